/* The calls without state: projection and surgery on arrays that the caller holds. The Python side allocates outputs. */
#include "functional.h"
#include "array.h"
#include "context.h"
#include "convert.h"
#include "layout.h"
#include "report.h"
#include "settings.h"
#include "unlocked.h"

#include <algorithm>
#include <memory>

namespace suture_python
{

/* What a vector that goes with the rows is called. */
struct vector_argument {
    const char *name = nullptr;
    PyObject *array = nullptr;
    bool write = false;
    View view;
};

/*
 * The arrays of one call: m rows of the same shape and type, which are a list of arrays or one array whose first axis counts
 * them, and vectors of a row's shape. Each is used where it lies, or copied when it does not lie row by row (an output has to).
 */
class Arguments
{
  public:
    explicit Arguments(nb::object given) : G(given), is_list(PyList_Check(given.ptr()))
    {
        const int64_t count = is_list ? (int64_t)PyList_Size(G.ptr()) : look_at_whole();
        if (count < 1 || count > SUT_MAX_LOSSES)
            raise(SUT_ERROR_OUT_OF_RANGE,
                  ("G has " + std::to_string(count) + " rows; possible are 1 to " + std::to_string(SUT_MAX_LOSSES))
                      .c_str());
        m = (int)count;
        views.reset(new View[(size_t)m]);
        for (int i = 0; i < m; i++)
            views[i].wide_only = true;
        for (int i = 0; i < m && is_list; i++) {
            objects[i] = PyList_GetItem(G.ptr(), i);
            Py_INCREF(objects[i]);
            held.add(objects[i]);
        }
    }

    /* None is left out. Arguments must stay. */
    void add(const char *name, nb::handle array, bool write)
    {
        vector_argument &v = vectors[n_vectors++];
        v.name = name;
        v.array = array.is_none() ? nullptr : array.ptr();
        v.write = write;
        v.view.wide_only = true;
    }

    /* Once, when everything was added and every other argument was read: until work() no Python code runs. */
    void open()
    {
        const bool ran_code = look(false);
        unlocks = !keeps_lock(first().count * m, m);
        if (unlocks || ran_code)
            (void)look(true);
        for (int i = 0; i < m; i++) {
            check_row(i);
            rows[i] = contiguous(views[i]);
        }
        for (int k = 0; k < n_vectors; k++)
            if (vectors[k].array) {
                check_like_first(vectors[k].view, vectors[k].name);
                pointers[k] = vectors[k].write ? output(vectors[k]) : const_cast<void *>(contiguous(vectors[k].view));
            }
    }

    /* Row 0, of whose kind all are. */
    const View &first() const
    {
        return views[0];
    }

    /* The library at work; its refusal becomes an exception. */
    template <typename F> void work(sut_context *ctx, F function) const
    {
        sut_status status;
        if (unlocks) {
            const Unlocked unlocked;
            status = function();
        } else {
            status = function();
        }
        check(status, ctx);
    }

    int m = 0;
    const void *rows[SUT_MAX_LOSSES];
    void *pointers[3] = {}; /* of the vectors, in the order of add(); NULL for None */

  private:
    int64_t look_at_whole()
    {
        whole.wide_only = true;
        whole.open(G.ptr(), "G", false);
        if (whole.n_dims < 2) {
            PyErr_Format(PyExc_ValueError, "G has shape %s; one row per loss is needed, (losses, ...)",
                         shape_text(whole.n_dims, whole.shape).c_str());
            throw nb::python_error();
        }
        return whole.shape[0];
    }

    static std::string row_name(int i)
    {
        return "G[" + std::to_string(i) + "]";
    }

    /* Look at everything; true when Python code may have run meanwhile. */
    bool look(bool keep)
    {
        bool ran_code = false;
        if (is_list) {
            for (int i = 0; i < m; i++) {
                View &v = views[i];
                if (!v.try_open(objects[i], false))
                    v.open(objects[i], row_name(i), false);
                if (keep)
                    v.keep(objects[i], held, true);
                ran_code = ran_code || v.ran_code;
            }
        } else {
            if (look_at_whole() != m) {
                PyErr_SetString(PyExc_ValueError, "G was changed by another thread");
                throw nb::python_error();
            }
            for (int i = 0; i < m; i++)
                views[i].row(whole, i);
            if (keep)
                whole.keep(G.ptr(), held, true);
            ran_code = ran_code || whole.ran_code;
        }
        for (int k = 0; k < n_vectors; k++)
            if (vectors[k].array) {
                View &v = vectors[k].view;
                v.open(vectors[k].array, vectors[k].name, vectors[k].write);
                if (keep)
                    v.keep(vectors[k].array, held, true);
                ran_code = ran_code || v.ran_code;
            }
        return ran_code;
    }

    void check_row(int i) const
    {
        const View &v = views[i];
        if (v.dtype != first().dtype || !same_shape(v))
            check_like_first(v, row_name(i).c_str());
    }

    bool same_shape(const View &v) const
    {
        return v.n_dims == first().n_dims && std::equal(v.shape, v.shape + v.n_dims, first().shape);
    }

    void check_like_first(const View &v, const char *name) const
    {
        if (v.dtype != first().dtype)
            PyErr_Format(PyExc_TypeError, "%s has elements of type %s, G[0] of type %s", name, dtype_text(v.dtype),
                         dtype_text(first().dtype));
        else if (!same_shape(v))
            PyErr_Format(PyExc_ValueError, "%s has shape %s, G[0] has %s", name, shape_text(v.n_dims, v.shape).c_str(),
                         shape_text(first().n_dims, first().shape).c_str());
        else
            return;
        throw nb::python_error();
    }

    const void *contiguous(const View &v)
    {
        if (v.is_contiguous())
            return v.data;
        const Layout flat = Layout::row_by_row(v);
        copies.emplace_back((size_t)v.count * sut_dtype_size(v.dtype));
        flat.gather(v, copies.back().data());
        return copies.back().data();
    }

    static void *output(const vector_argument &v)
    {
        if (!v.view.is_contiguous()) {
            PyErr_Format(PyExc_ValueError, "%s must be contiguous", v.name);
            throw nb::python_error();
        }
        return v.view.data;
    }

    nb::object G;
    bool is_list;
    bool unlocks = false;
    View whole;
    std::unique_ptr<View[]> views;
    PyObject *objects[SUT_MAX_LOSSES];
    vector_argument vectors[3];
    int n_vectors = 0;
    std::vector<std::vector<char>> copies;
    Held held;
};

template <typename R> static nb::object given_away(std::unique_ptr<R> &report)
{
    return report ? nb::cast(report.release(), nb::rv_policy::take_ownership) : nb::none();
}

/* name: what u is called in refusals. */
static nb::object project(nb::object u, nb::object G, nb::object metric, nb::object out, nb::object feas_tol,
                          nb::object strict, nb::object threads, const char *name)
{
    Arguments a(G);
    a.add(name, u, false);
    a.add("metric", metric, false);
    a.add("out", out, true);
    sut_cone_config config;
    sut_cone_config_init(&config);
    config.feas_tol = number("feas_tol", feas_tol);
    config.strict = flag("strict", strict);
    sut_context *ctx = thread_context(context_settings(threads, nb::int_(0), nb::str("auto")));
    std::unique_ptr<ConeReport> report(new ConeReport);
    a.open();
    a.work(ctx, [&] {
        return sut_cone_project(ctx, &config, a.rows, a.m, a.first().count, a.first().dtype, a.pointers[0],
                                a.pointers[1], a.pointers[2], &report->r);
    });
    return given_away(report);
}

static void surgery_config(nb::handle method, nb::dict options, int m, sut_surgery_config *config,
                           SurgeryArrays *arrays)
{
    sut_surgery_config_init(config, surgery_method(method));
    if (PyDict_Size(options.ptr()) == 0)
        return;
    nb::dict left = copy_of(options);
    read_surgery(left, m, config, arrays);
    refuse_unknown(left, sut_surgery_method_name(config->method),
                   nb::list(nb::object(nb::module_::import_("suture._suture").attr("surgery_options"))));
}

static nb::object combine(nb::object G, nb::object method, nb::object losses, nb::dict options, nb::object out,
                          nb::object seed, nb::object count, nb::object threads, bool want_report)
{
    Arguments a(G);
    a.add("out", out, true);
    sut_surgery_config config;
    SurgeryArrays arrays;
    surgery_config(method, options, a.m, &config, &arrays);
    const std::vector<double> values = numbers("losses", losses, a.m);
    const uint64_t draw = counter("counter", count);
    std::unique_ptr<SurgeryReport> report(want_report ? new SurgeryReport : nullptr);
    sut_context *ctx = thread_context(context_settings(threads, seed, nb::str("auto")));
    a.open();
    a.work(ctx, [&] {
        return sut_surgery_direction(ctx, &config, a.rows, a.m, a.first().count, a.first().dtype,
                                     values.empty() ? nullptr : values.data(), draw, a.pointers[0],
                                     report ? &report->r : nullptr);
    });
    return given_away(report);
}

/* The cosine of each pair of rows: m x m figures, row by row; 0 where a row is zero. Pair by pair, since the library reports the
 * smallest of several. */
static nb::object cosines(nb::object G, nb::object threads)
{
    Arguments a(G);
    sut_context *ctx = thread_context(context_settings(threads, nb::int_(0), nb::str("auto")));
    sut_surgery_config config;
    sut_surgery_config_init(&config, SUT_SURGERY_SUM);
    sut_surgery_report pair;
    sut_surgery_report_init(&pair);
    std::vector<double> result((size_t)a.m * (size_t)a.m);
    a.open();
    for (int i = 0; i < a.m; i++)
        for (int j = 0; j <= i; j++) {
            const void *const rows[2] = {a.rows[i], a.rows[j]};
            const int64_t n = a.first().count;
            a.work(ctx, [&] {
                return sut_surgery_direction(ctx, &config, rows, i == j ? 1 : 2, n, a.first().dtype, nullptr, 0,
                                             nullptr, &pair);
            });
            const double cosine = i == j ? (pair.norms[0] > 0 ? 1.0 : 0.0) : pair.min_pair_cos;
            result[(size_t)(i * a.m + j)] = result[(size_t)(j * a.m + i)] = cosine;
        }
    nb::list matrix;
    for (int i = 0; i < a.m; i++) {
        nb::list row;
        for (int j = 0; j < a.m; j++)
            row.append(result[(size_t)(i * a.m + j)]);
        matrix.append(nb::tuple(row));
    }
    return nb::tuple(matrix);
}

/* gram: a square matrix of float64, row by row. */
static nb::object weights(nb::object gram, nb::object method, nb::object losses, nb::dict options, nb::object seed,
                          nb::object count)
{
    View view;
    view.open(gram.ptr(), "gram", false);
    if (view.dtype != SUT_DTYPE_F64 || view.n_dims != 2 || view.shape[0] != view.shape[1] || !view.is_contiguous())
        raise(SUT_ERROR_INVALID_ARGUMENT, "gram must be a square, contiguous matrix of float64");
    const int m = (int)view.shape[0];
    sut_surgery_config config;
    SurgeryArrays arrays;
    surgery_config(method, options, m, &config, &arrays);
    const std::vector<double> values = numbers("losses", losses, m);
    const uint64_t draw = counter("counter", count);
    std::unique_ptr<SurgeryReport> report(new SurgeryReport);
    sut_context *ctx = thread_context(context_settings(nb::int_(0), seed, nb::str("auto")));
    check(sut_surgery_weights(ctx, &config, static_cast<const double *>(view.data), m,
                              values.empty() ? nullptr : values.data(), draw, &report->r),
          ctx);
    return given_away(report);
}

void add_functional(nb::module_ &module)
{
    module.def(
        "project", project, nb::arg("u"), nb::arg("G"), nb::arg("metric").none(), nb::arg("out").none(),
        nb::arg("feas_tol").none(), nb::arg("strict").none(), nb::arg("threads").none(), nb::arg("name") = "u",
        nb::sig("def project(u: object, G: object, metric: object, out: object, feas_tol: object, strict: object, "
                "threads: object, name: str = 'u') -> ConeReport"));
    module.def("combine", combine, nb::arg("G"), nb::arg("method").none(), nb::arg("losses").none(), nb::arg("options"),
               nb::arg("out").none(), nb::arg("seed").none(), nb::arg("counter").none(), nb::arg("threads").none(),
               nb::arg("report"),
               nb::sig("def combine(G: object, method: object, losses: object, options: dict[str, typing.Any], "
                       "out: object, seed: object, counter: object, threads: object, report: bool) -> typing.Any"));
    module.def("cosines", cosines, nb::arg("G"), nb::arg("threads").none(),
               nb::sig("def cosines(G: object, threads: object) -> tuple[tuple[float, ...], ...]"));
    module.def("weights", weights, nb::arg("gram"), nb::arg("method").none(), nb::arg("losses").none(),
               nb::arg("options"), nb::arg("seed").none(), nb::arg("counter").none(),
               nb::sig("def weights(gram: object, method: object, losses: object, options: dict[str, typing.Any], "
                       "seed: object, counter: object) -> SurgeryReport"));
}

} // namespace suture_python
