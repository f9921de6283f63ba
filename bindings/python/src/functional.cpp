/*
 * The calls without state: projection and surgery on arrays that the caller holds. Each answers NotImplemented to arrays that
 * the Python side has to convert first (lists of numbers, arrays of JAX), unless that was done (`converted`).
 */
#include "functional.h"
#include "arguments.h"
#include "context.h"
#include "convert.h"
#include "report.h"
#include "settings.h"

namespace suture_python
{

static nb::object not_implemented()
{
    return nb::borrow(Py_NotImplemented);
}

template <typename R> static nb::object given_away(std::unique_ptr<R> &report)
{
    return report ? nb::cast(report.release(), nb::rv_policy::take_ownership) : nb::none();
}

/* (p, report). name: what u is called in refusals. */
static nb::object project(nb::object u, nb::object G, nb::object metric, bool want_p, nb::object feas_tol,
                          nb::object strict, nb::object threads, const char *name, bool converted)
{
    if (u.is_none() || (!converted && !Arguments::are_plain({G, u, metric})))
        return not_implemented();
    Arguments a(G);
    a.add(name, u);
    a.add("metric", metric);
    sut_cone_config config;
    sut_cone_config_init(&config);
    config.feas_tol = number("feas_tol", feas_tol);
    config.strict = flag("strict", strict);
    sut_context *ctx = a.context(context_settings(threads));
    std::unique_ptr<ConeReport> report(new ConeReport);
    nb::object p = want_p ? a.make_output() : nb::none();
    a.open();
    a.work(ctx, [&] {
        return sut_cone_project(ctx, &config, a.rows, a.m, a.count(), a.dtype(), a.vectors[0], a.vectors[1], a.output,
                                &report->r);
    });
    return nb::make_tuple(p, given_away(report));
}

static void surgery_config(nb::handle method, nb::dict options, int m, sut_surgery_config *config,
                           SurgeryArrays *arrays)
{
    sut_surgery_config_init(config, surgery_method(method));
    for (auto [key, value] : options)
        if (!take_surgery(option_name(key), value, m, config, arrays))
            refuse_unknown(key, sut_surgery_method_name(config->method),
                           nb::list(nb::object(nb::module_::import_("suture._suture").attr("surgery_options"))));
}

/* The direction, the report, or both as a pair. */
static nb::object combine(nb::object G, nb::object method, nb::object losses, nb::dict options, bool want_direction,
                          nb::object seed, nb::object count, nb::object threads, bool want_report, bool converted)
{
    if (!converted && !Arguments::are_plain({G}))
        return not_implemented();
    Arguments a(G);
    sut_surgery_config config;
    SurgeryArrays arrays;
    surgery_config(method, options, a.m, &config, &arrays);
    const std::vector<double> values = numbers("losses", losses, a.m);
    const uint64_t draw = counter("counter", count);
    std::unique_ptr<SurgeryReport> report(want_report ? new SurgeryReport : nullptr);
    sut_context *ctx = a.context(context_settings(threads, seed));
    nb::object direction = want_direction ? a.make_output() : nb::none();
    a.open();
    a.work(ctx, [&] {
        return sut_surgery_direction(ctx, &config, a.rows, a.m, a.count(), a.dtype(),
                                     values.empty() ? nullptr : values.data(), draw, a.output,
                                     report ? &report->r : nullptr);
    });
    if (!want_report)
        return direction;
    return want_direction ? nb::object(nb::make_tuple(direction, given_away(report))) : given_away(report);
}

/* The cosine of each pair of rows: m x m figures, row by row; 0 where a row is zero. Pair by pair, since the library reports the
 * smallest of several. */
static nb::object cosines(nb::object G, nb::object threads)
{
    Arguments a(G);
    sut_context *ctx = a.context(context_settings(threads));
    sut_surgery_config config;
    sut_surgery_config_init(&config, SUT_SURGERY_SUM);
    sut_surgery_report pair;
    sut_surgery_report_init(&pair);
    std::vector<double> result((size_t)a.m * (size_t)a.m);
    a.open();
    for (int i = 0; i < a.m; i++)
        for (int j = 0; j <= i; j++) {
            const void *const rows[2] = {a.rows[i], a.rows[j]};
            a.work(ctx, [&] {
                return sut_surgery_direction(ctx, &config, rows, i == j ? 1 : 2, a.count(), a.dtype(), nullptr, 0,
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
    sut_context *ctx = thread_context(context_settings(nb::int_(0), seed), "gram");
    check(sut_surgery_weights(ctx, &config, static_cast<const double *>(view.data), m,
                              values.empty() ? nullptr : values.data(), draw, &report->r),
          ctx);
    return given_away(report);
}

void add_functional(nb::module_ &module)
{
    module.def(
        "project", project, nb::arg("u").none(), nb::arg("G").none(), nb::arg("metric").none(), nb::arg("want_p"),
        nb::arg("feas_tol").none(), nb::arg("strict").none(), nb::arg("threads").none(), nb::arg("name"),
        nb::arg("converted"),
        nb::sig("def project(u: object, G: object, metric: object, want_p: bool, feas_tol: object, strict: object, "
                "threads: object, name: str, converted: bool) -> tuple[typing.Any, ConeReport]"));
    module.def("combine", combine, nb::arg("G").none(), nb::arg("method").none(), nb::arg("losses").none(),
               nb::arg("options"), nb::arg("direction"), nb::arg("seed").none(), nb::arg("counter").none(),
               nb::arg("threads").none(), nb::arg("report"), nb::arg("converted"),
               nb::sig("def combine(G: object, method: object, losses: object, options: dict[str, typing.Any], "
                       "direction: bool, seed: object, counter: object, threads: object, report: bool, "
                       "converted: bool) -> typing.Any"));
    module.def("cosines", cosines, nb::arg("G"), nb::arg("threads").none(),
               nb::sig("def cosines(G: object, threads: object) -> tuple[tuple[float, ...], ...]"));
    module.def("weights", weights, nb::arg("gram"), nb::arg("method").none(), nb::arg("losses").none(),
               nb::arg("options"), nb::arg("seed").none(), nb::arg("counter").none(),
               nb::sig("def weights(gram: object, method: object, losses: object, options: dict[str, typing.Any], "
                       "seed: object, counter: object) -> SurgeryReport"));
}

} // namespace suture_python
