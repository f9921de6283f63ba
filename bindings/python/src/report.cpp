/* See report.h. */
#include "report.h"

#include <nanobind/stl/string.h>

#include <cstdio>
#include <string>

namespace nb = nanobind;
using namespace nb::literals;

namespace suture_python
{

/* A member as Python sees it: a number, a flag, or one entry per loss. */
static nb::object entry(double x)
{
    return nb::float_(x);
}

static nb::object entry(int64_t x)
{
    return nb::int_(x);
}

static nb::object losses(const double *x, int m)
{
    nb::list list;
    for (int i = 0; i < m; i++)
        list.append(x[i]);
    return nb::tuple(list);
}

static nb::object losses(const int *x, int m)
{
    nb::list list;
    for (int i = 0; i < m; i++)
        list.append(nb::bool_(x[i] != 0));
    return nb::tuple(list);
}

static const char *const kinds[] = {"unchanged", "boundary", "zero", "infeasible"}; /* by sut_cone_kind */
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const char *kind_name(sut_cone_kind kind)
{
    return (unsigned)kind < N_KINDS ? kinds[kind] : "unknown";
}

#define STEP_MEMBERS(NUMBER, FLAG, LOSSES)                                           \
    NUMBER(step, "steps done, this one included")                                    \
    NUMBER(lr, "largest rate of a group in this step")                               \
    FLAG(moved, "False: the rate was 0; the state advanced, the parameters did not") \
    LOSSES(weights, "surgery weights w, clipping included")                          \
    LOSSES(norms, "norms of the gradients")                                          \
    LOSSES(cos_a, "cosine of the combined direction a with each gradient")           \
    LOSSES(cos_u, "cosine of the proposal u with each gradient")                     \
    LOSSES(cos_p, "cosine of the applied step p with each gradient, measured on it") \
    LOSSES(lambda, "multipliers of the projection")                                  \
    NUMBER(norm_a, "norm of a")                                                      \
    NUMBER(norm_u, "norm of u")                                                      \
    NUMBER(norm_p, "norm of p")                                                      \
    NUMBER(min_pair_cos, "smallest cosine between two gradients")                    \
    NUMBER(conflict_fraction, "share of pairs of gradients with cosine < -1e-6")     \
    FLAG(conflict_g, "a pair of gradients conflicts (cosine < -1e-6)")               \
    FLAG(conflict_a, "a conflicts with a gradient")                                  \
    FLAG(conflict_u, "u conflicts with a gradient")                                  \
    FLAG(conflict_p, "p conflicts with a gradient")                                  \
    FLAG(projected, "p differs from u")                                              \
    FLAG(realigned, "the state was realigned")                                       \
    FLAG(pareto, "p = 0: no direction near u hurts no loss")                         \
    FLAG(surgery_zero, "a = 0")                                                      \
    FLAG(strict, "products were taken in double")                                    \
    NUMBER(relative_change, "|p - u| / |u|")                                         \
    NUMBER(cos_pu, "cosine of p and u")                                              \
    NUMBER(ratio_pu, "|p| / |u|")                                                    \
    NUMBER(primal, "certificate: how far p is outside the cone")                     \
    NUMBER(dual, "certificate: how far a multiplier is below 0")                     \
    NUMBER(complementarity, "certificate: largest |lambda_i g_i.p| / |u|_M^2")       \
    NUMBER(gap, "certificate: |sum lambda_i g_i.p| / |u|_M^2")                       \
    NUMBER(skipped_steps, "steps refused so far (non-finite input)")                 \
    FLAG(surgery_converged, "False: the inner loop of the surgery stopped at its limit")

#define CONE_MEMBERS(NUMBER, FLAG, LOSSES)                                   \
    LOSSES(lambda, "multipliers on the rows as given, >= 0")                 \
    LOSSES(slack, "products of each gradient with p")                        \
    LOSSES(cos_u, "cosine of u with each gradient, 0 when either vanishes")  \
    LOSSES(cos_p, "cosine of p with each gradient, likewise")                \
    LOSSES(active, "multipliers above 0")                                    \
    LOSSES(tight, "products that vanish")                                    \
    NUMBER(primal, "certificate: how far p is outside the cone")             \
    NUMBER(dual, "certificate: how far a multiplier is below 0")             \
    NUMBER(complementarity, "certificate: largest |lambda_i s_i| / |u|_M^2") \
    NUMBER(gap, "certificate: |sum lambda_i s_i| / |u|_M^2")                 \
    NUMBER(relative_change, "|p - u| / |u|")                                 \
    NUMBER(distance2, "|p - u|_M^2")                                         \
    NUMBER(refinements, "refinement steps of the multipliers")               \
    NUMBER(rounds, "rounds of the active-set method")                        \
    FLAG(strict_met, "with strict: every product >= 0 as computed from the stored p")

#define SURGERY_MEMBERS(NUMBER, FLAG, LOSSES)                               \
    LOSSES(weights, "surgery weights w")                                    \
    LOSSES(norms, "norms of the gradients")                                 \
    LOSSES(cos_a, "cosine of a with each gradient, 0 when either vanishes") \
    NUMBER(norm_a, "norm of a")                                             \
    NUMBER(min_cos, "smallest entry of cos_a over rows that are not zero")  \
    NUMBER(min_pair_cos, "smallest cosine between two gradients")           \
    NUMBER(conflict_fraction, "share of pairs with cosine < -1e-6")         \
    NUMBER(alignment, "2 |mean unit gradient|^2 - 1, in [-1, 1]")           \
    NUMBER(rank, "numerical rank that the method used")                     \
    FLAG(zero, "a is exactly zero")                                         \
    FLAG(pareto, "stationary: 0 lies in the convex hull of the gradients")  \
    FLAG(negative_normaliser, "IMTL-G: a climbs every loss")                \
    NUMBER(n_conflicts, "rows with cos_a < -1e-6")                          \
    FLAG(strict, "products were taken in double")                           \
    FLAG(converged, "False: the method's inner loop stopped at its limit")  \
    NUMBER(iterations, "rounds of that loop, 0 where there is none")

static const char *losses_type(const double *)
{
    return "tuple[float, ...]";
}

static const char *losses_type(const int *)
{
    return "tuple[bool, ...]";
}

/* lambda is a word of Python: the attribute is lambda_, the key in the dict "lambda". */
static std::string attribute(const char *name)
{
    return std::string(name) == "lambda" ? "lambda_" : name;
}

template <typename T, typename C> static nb::dict to_dict(const T &report, C each)
{
    nb::dict d;
    each(report, [&](const char *name, nb::object value) { d[name] = value; });
    return d;
}

#define AS_NUMBER(member, doc) give(#member, entry(x.r.member));
#define AS_FLAG(member, doc) give(#member, nb::bool_(x.r.member != 0));
#define AS_LOSSES(member, doc) give(#member, losses(x.r.member, x.r.n_losses));

static const auto step_members = [](const Report &x, auto give) {
    give("n_losses", entry((int64_t)x.r.n_losses));
    STEP_MEMBERS(AS_NUMBER, AS_FLAG, AS_LOSSES)
};

#undef AS_NUMBER
#define AS_NUMBER(member, doc) give(#member, nb::cast(x.r.member));
static const auto cone_members = [](const ConeReport &x, auto give) {
    give("n_losses", entry((int64_t)x.r.n_losses));
    give("kind", nb::str(kind_name(x.r.kind)));
    CONE_MEMBERS(AS_NUMBER, AS_FLAG, AS_LOSSES)
};
static const auto surgery_members = [](const SurgeryReport &x, auto give) {
    give("n_losses", entry((int64_t)x.r.n_losses));
    SURGERY_MEMBERS(AS_NUMBER, AS_FLAG, AS_LOSSES)
};

/* ---- pickles: the dict of a report, and back. A member that the dict lacks (an older report) keeps its default. ---- */

static nb::object find(const nb::dict &d, const char *name)
{
    return d.contains(name) ? nb::object(d[name]) : nb::object();
}

template <typename N> static void read(const nb::dict &d, const char *name, N *to)
{
    if (nb::object x = find(d, name); x.is_valid())
        *to = nb::cast<N>(x);
}

static void read_flag(const nb::dict &d, const char *name, int *to)
{
    if (nb::object x = find(d, name); x.is_valid())
        *to = nb::cast<bool>(x);
}

template <typename N> static void read_losses(const nb::dict &d, const char *name, int m, N *to)
{
    nb::object x = find(d, name);
    if (!x.is_valid())
        return;
    const nb::tuple entries = nb::cast<nb::tuple>(x);
    for (int i = 0; i < m && i < (int)nb::len(entries); i++)
        to[i] = nb::cast<N>(entries[i]);
}

static int read_size(const nb::dict &d)
{
    const int m = nb::cast<int>(d["n_losses"]);
    if (m < 0 || m > SUT_MAX_LOSSES)
        throw nb::value_error("n_losses is out of range");
    return m;
}

#define READ_NUMBER(member, doc) read(d, #member, &x.r.member);
#define READ_FLAG(member, doc) read_flag(d, #member, &x.r.member);
#define READ_LOSSES(member, doc) read_losses(d, #member, x.r.n_losses, x.r.member);

static void set_state(Report &x, const nb::dict &d)
{
    x.r.n_losses = read_size(d);
    STEP_MEMBERS(READ_NUMBER, READ_FLAG, READ_LOSSES)
}

static void set_state(ConeReport &x, const nb::dict &d)
{
    x.r.n_losses = read_size(d);
    const std::string kind = nb::cast<std::string>(d["kind"]);
    for (int k = 0; k < N_KINDS; k++)
        if (kind == kinds[k])
            x.r.kind = (sut_cone_kind)k;
    CONE_MEMBERS(READ_NUMBER, READ_FLAG, READ_LOSSES)
}

static void set_state(SurgeryReport &x, const nb::dict &d)
{
    x.r.n_losses = read_size(d);
    SURGERY_MEMBERS(READ_NUMBER, READ_FLAG, READ_LOSSES)
}

/* Reports can be copied, pickled, and sent between processes. */
template <typename T, typename M> static void add_pickles(nb::class_<T> &c, M members)
{
    c.def(
        "__getstate__", [members](const T &x) { return to_dict(x, members); },
        nb::sig("def __getstate__(self) -> dict[str, typing.Any]"));
    c.def(
        "__setstate__",
        [](T &x, nb::dict d) {
            T *made = new (&x) T();
            set_state(*made, d);
        },
        nb::sig("def __setstate__(self, state: dict[str, typing.Any], /) -> None"));
}

static std::string numbers(const double *x, int m)
{
    std::string text = "[";
    for (int i = 0; i < m; i++) {
        char part[32];
        (void)snprintf(part, sizeof part, "%s%.3g", i ? ", " : "", x[i]);
        text += part;
    }
    return text + "]";
}

static std::string step_text(const Report &x)
{
    const sut_report &r = x.r;
    char line[160];
    (void)snprintf(line, sizeof line, "Report(step %lld, lr %.4g, %d loss%s)\n", (long long)r.step, r.lr, r.n_losses,
                   r.n_losses == 1 ? "" : "es");
    std::string text = line;
    text += "  weights            " + numbers(r.weights, r.n_losses) + "\n";
    text += "  gradient norms     " + numbers(r.norms, r.n_losses) + "\n";
    if (r.n_losses > 1) {
        (void)snprintf(line, sizeof line, "  smallest cosine between gradients  %.3g%s\n", r.min_pair_cos,
                       r.conflict_g ? ", conflict" : "");
        text += line;
    }
    text += "  cosines: direction " + numbers(r.cos_a, r.n_losses) + (r.conflict_a ? "  conflict\n" : "\n");
    text += "           proposal  " + numbers(r.cos_u, r.n_losses) + (r.conflict_u ? "  conflict\n" : "\n");
    text += "           applied   " + numbers(r.cos_p, r.n_losses) + (r.conflict_p ? "  conflict\n" : "\n");
    if (r.projected) {
        (void)snprintf(line, sizeof line, "  projected: changed by %.3g of its length, state %s\n", r.relative_change,
                       r.realigned ? "realigned" : "as it was");
        text += line;
    } else {
        text += "  the proposal was applied as it is\n";
    }
    if (r.pareto)
        text += "  no step near the proposal hurts no loss: nothing moved\n";
    return text;
}

static std::string cone_text(const ConeReport &x)
{
    return std::string("ConeReport(") + kind_name(x.r.kind) + ", cosines of u " + numbers(x.r.cos_u, x.r.n_losses) +
           ", of p " + numbers(x.r.cos_p, x.r.n_losses) + ", lambda " + numbers(x.r.lambda, x.r.n_losses) + ")";
}

static std::string surgery_text(const SurgeryReport &x)
{
    return "SurgeryReport(weights " + numbers(x.r.weights, x.r.n_losses) + ", cosines of a " +
           numbers(x.r.cos_a, x.r.n_losses) + ", smallest cosine between gradients " +
           numbers(&x.r.min_pair_cos, 1).substr(1, numbers(&x.r.min_pair_cos, 1).size() - 2) + ")";
}

void add_reports(nb::module_ &module)
{
#define NUMBER(member, doc) \
    c.def_prop_ro(          \
        #member, [](const Self &x) { return x.r.member; }, doc);
#define FLAG(member, doc) \
    c.def_prop_ro(        \
        #member, [](const Self &x) { return x.r.member != 0; }, doc);
#define LOSSES(member, doc)                                                                         \
    c.def_prop_ro(                                                                                  \
        attribute(#member).c_str(), [](const Self &x) { return losses(x.r.member, x.r.n_losses); }, \
        nb::sig(("def " + attribute(#member) + "(self) -> " + losses_type(Self().r.member)).c_str()), doc);
    {
        using Self = Report;
        nb::class_<Report> c(module, "Report", "What one step did; docs/alignment.md says how to read it.");
        c.def_prop_ro("n_losses", [](const Self &x) { return x.r.n_losses; });
        STEP_MEMBERS(NUMBER, FLAG, LOSSES)
        c.def(
            "to_dict", [](const Self &x) { return to_dict(x, step_members); },
            nb::sig("def to_dict(self) -> dict[str, typing.Any]"),
            "Every figure, by its name in the C structure; entries per loss are tuples.");
        c.def("__repr__", step_text);
        add_pickles(c, step_members);
    }
    {
        using Self = ConeReport;
        nb::class_<ConeReport> c(module, "ConeReport", "The certificate of one projection.");
        c.def_prop_ro("n_losses", [](const Self &x) { return x.r.n_losses; });
        c.def_prop_ro(
            "kind", [](const Self &x) { return kind_name(x.r.kind); },
            "'unchanged', 'boundary', 'zero' or 'infeasible'");
        CONE_MEMBERS(NUMBER, FLAG, LOSSES)
        c.def(
            "to_dict", [](const Self &x) { return to_dict(x, cone_members); },
            nb::sig("def to_dict(self) -> dict[str, typing.Any]"));
        c.def("__repr__", cone_text);
        add_pickles(c, cone_members);
    }
    {
        using Self = SurgeryReport;
        nb::class_<SurgeryReport> c(module, "SurgeryReport", "What a surgery call found.");
        c.def_prop_ro("n_losses", [](const Self &x) { return x.r.n_losses; });
        SURGERY_MEMBERS(NUMBER, FLAG, LOSSES)
        c.def(
            "to_dict", [](const Self &x) { return to_dict(x, surgery_members); },
            nb::sig("def to_dict(self) -> dict[str, typing.Any]"));
        c.def("__repr__", surgery_text);
        add_pickles(c, surgery_members);
    }
}

} // namespace suture_python
