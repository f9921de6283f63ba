/* The calls without state: projection and surgery on arrays that the caller holds. The Python side allocates outputs. */
#include "array.h"
#include "context.h"
#include "functional.h"
#include "report.h"
#include "settings.h"
#include "unlocked.h"

#include <memory>

namespace suture_python
{

/* m rows of the same shape and type: a list of arrays, or one array whose first axis counts them. Each is used where it lies,
 * or copied when it does not lie row by row. */
class Rows
{
  public:
    explicit Rows(nb::object G)
    {
        const bool list = PyList_Check(G.ptr());
        if (!list)
            whole.open(G.ptr(), "G", false);
        if (!list && whole.n_dims == 0) {
            PyErr_SetString(PyExc_ValueError, "G is a single number; one row per loss is needed");
            throw nb::python_error();
        }
        const int64_t count = list ? (int64_t)PyList_Size(G.ptr()) : whole.shape[0];
        if (count < 1 || count > SUT_MAX_LOSSES)
            raise(SUT_ERROR_OUT_OF_RANGE,
                  ("G has " + std::to_string(count) + " rows; possible are 1 to " + std::to_string(SUT_MAX_LOSSES))
                      .c_str());
        m = (int)count;
        views.reset(new View[(size_t)m]);
        copies.resize((size_t)m);
        for (int i = 0; i < m; i++) {
            if (list)
                views[i].open(PyList_GetItem(G.ptr(), i), "G[" + std::to_string(i) + "]", false);
            else
                views[i].row(whole, i);
            pointers[i] = accept(views[i], "G[" + std::to_string(i) + "]", copies[(size_t)i]);
        }
    }

    const void *vector(View &view, PyObject *array, const std::string &name, std::vector<char> &copy)
    {
        view.open(array, name, false);
        return accept(view, name, copy);
    }

    const View &first() const
    {
        return views[0];
    }

    int m;
    const void *pointers[SUT_MAX_LOSSES];

  private:
    const void *accept(View &view, const std::string &name, std::vector<char> &copy)
    {
        const View &first = views[0];
        if (&view != &first && view.dtype != first.dtype) {
            PyErr_Format(PyExc_TypeError, "%s has elements of type %s, G[0] of type %s", name.c_str(),
                         dtype_text(view.dtype), dtype_text(first.dtype));
            throw nb::python_error();
        }
        if (view.dtype != SUT_DTYPE_F32 && view.dtype != SUT_DTYPE_F64) {
            PyErr_Format(PyExc_TypeError, "%s has elements of type %s; float32 and float64 are possible here",
                         name.c_str(), dtype_text(view.dtype));
            throw nb::python_error();
        }
        if (&view != &first &&
            (view.n_dims != first.n_dims || !std::equal(view.shape, view.shape + view.n_dims, first.shape))) {
            PyErr_Format(PyExc_ValueError, "%s has shape %s, G[0] has %s", name.c_str(),
                         shape_text(view.n_dims, view.shape).c_str(), shape_text(first.n_dims, first.shape).c_str());
            throw nb::python_error();
        }
        if (view.is_contiguous())
            return view.data;
        Layout flat;
        flat.dtype = view.dtype;
        flat.n_dims = view.n_dims;
        flat.count = view.count;
        int64_t step = (int64_t)sut_dtype_size(view.dtype);
        for (int k = view.n_dims - 1; k >= 0; k--) {
            flat.shape[k] = view.shape[k];
            flat.stride[k] = step;
            step *= view.shape[k];
        }
        copy.resize((size_t)step);
        flat.gather(view, copy.data());
        return copy.data();
    }

    View whole;
    std::unique_ptr<View[]> views;
    std::vector<std::vector<char>> copies;
};

static std::vector<double> loss_values(nb::object losses, int m)
{
    std::vector<double> values;
    if (losses.is_none())
        return values;
    for (nb::handle x : nb::list(losses)) {
        values.push_back(PyFloat_AsDouble(x.ptr()));
        if (PyErr_Occurred())
            throw nb::python_error();
    }
    if ((int)values.size() != m)
        raise(SUT_ERROR_INVALID_ARGUMENT,
              ("losses has " + std::to_string(values.size()) + " entries, one per row is needed: " + std::to_string(m))
                  .c_str());
    return values;
}

/* An output made by the Python side: of the same shape and type, row by row. */
static void *output(View &view, nb::object out, const View &like)
{
    if (out.is_none())
        return nullptr;
    view.open(out.ptr(), "out", true);
    if (view.dtype != like.dtype || view.count != like.count || !view.is_contiguous()) {
        PyErr_SetString(PyExc_ValueError, "out must be contiguous, of the same shape and element type as G[0]");
        throw nb::python_error();
    }
    return view.data;
}

static ConeReport project(nb::object u, nb::object G, nb::object metric, nb::object out, double feas_tol, bool strict,
                          int threads)
{
    Rows rows(G);
    View u_view, metric_view, out_view;
    std::vector<char> u_copy, metric_copy;
    const void *u_data = rows.vector(u_view, u.ptr(), "u", u_copy);
    const void *metric_data =
        metric.is_none() ? nullptr : rows.vector(metric_view, metric.ptr(), "metric", metric_copy);
    void *p = output(out_view, out, rows.first());
    sut_cone_config config;
    sut_cone_config_init(&config);
    config.feas_tol = feas_tol;
    config.strict = strict;
    ConeReport report;
    sut_context *ctx = thread_context(context_settings(threads, 0, "auto"));
    sut_status status;
    {
        const Unlocked unlocked;
        status = sut_cone_project(ctx, &config, rows.pointers, rows.m, rows.first().count, rows.first().dtype, u_data,
                                  metric_data, p, &report.r);
    }
    check(status, ctx);
    return report;
}

static void surgery_config(const char *method, nb::dict options, int m, sut_surgery_config *config,
                           SurgeryArrays *arrays)
{
    sut_surgery_config_init(config, surgery_method(method));
    if (PyDict_Size(options.ptr()) == 0)
        return;
    nb::dict left = copy_of(options);
    read_surgery(left, m, config, arrays);
    refuse_unknown(left, method, nb::list(nb::object(nb::module_::import_("suture._suture").attr("surgery_options"))));
}

static SurgeryReport combine(nb::object G, const char *method, nb::object losses, nb::dict options, nb::object out,
                             uint64_t seed, uint64_t counter, int threads)
{
    Rows rows(G);
    View out_view;
    void *a = output(out_view, out, rows.first());
    sut_surgery_config config;
    SurgeryArrays arrays;
    surgery_config(method, options, rows.m, &config, &arrays);
    const std::vector<double> values = loss_values(losses, rows.m);
    SurgeryReport report;
    sut_context *ctx = thread_context(context_settings(threads, seed, "auto"));
    sut_status status;
    {
        const Unlocked unlocked;
        status = sut_surgery_direction(ctx, &config, rows.pointers, rows.m, rows.first().count, rows.first().dtype,
                                       values.empty() ? nullptr : values.data(), counter, a, &report.r);
    }
    check(status, ctx);
    return report;
}

static SurgeryReport weights(nb::object gram, const char *method, nb::object losses, nb::dict options, uint64_t seed,
                             uint64_t counter)
{
    View view;
    view.open(gram.ptr(), "gram", false);
    if (view.dtype != SUT_DTYPE_F64 || view.n_dims != 2 || view.shape[0] != view.shape[1] || !view.is_contiguous())
        raise(SUT_ERROR_INVALID_ARGUMENT, "gram must be a square, contiguous matrix of float64");
    if (view.shape[0] < 1 || view.shape[0] > SUT_MAX_LOSSES)
        raise(SUT_ERROR_OUT_OF_RANGE, "gram has no rows, or more than there can be losses");
    const int m = (int)view.shape[0];
    sut_surgery_config config;
    SurgeryArrays arrays;
    surgery_config(method, options, m, &config, &arrays);
    const std::vector<double> values = loss_values(losses, m);
    SurgeryReport report;
    sut_context *ctx = thread_context(context_settings(0, seed, "auto"));
    sut_status status;
    {
        const Unlocked unlocked;
        status = sut_surgery_weights(ctx, &config, static_cast<const double *>(view.data), m,
                                     values.empty() ? nullptr : values.data(), counter, &report.r);
    }
    check(status, ctx);
    return report;
}

void add_functional(nb::module_ &module)
{
    module.def("project", project, nb::arg("u"), nb::arg("G"), nb::arg("metric").none(), nb::arg("out").none(),
               nb::arg("feas_tol"), nb::arg("strict"), nb::arg("threads"));
    module.def("combine", combine, nb::arg("G"), nb::arg("method"), nb::arg("losses").none(), nb::arg("options"),
               nb::arg("out").none(), nb::arg("seed"), nb::arg("counter"), nb::arg("threads"));
    module.def("weights", weights, nb::arg("gram"), nb::arg("method"), nb::arg("losses").none(), nb::arg("options"),
               nb::arg("seed"), nb::arg("counter"));
}

} // namespace suture_python
