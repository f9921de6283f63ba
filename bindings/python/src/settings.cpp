/* See settings.h. A new member of a configuration struct is one row here. */
#include "settings.h"
#include "convert.h"
#include "errors.h"

#include <climits>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>

namespace suture_python
{

enum option_kind { FLAG, INTEGER, NUMBER, CHOICE };

struct option {
    const char *name;
    option_kind kind;
    size_t offset;
    const char *choices; /* names of an enum's values from 0, separated by spaces */
};

#define AT(member) offsetof(sut_surgery_config, member)
static const option surgery_options[] = {
    {"scale_to_sum", FLAG, AT(scale_to_sum), nullptr},
    {"pcgrad_identity_order", FLAG, AT(pcgrad_identity_order), nullptr},
    {"pcgrad_mean", FLAG, AT(pcgrad_mean), nullptr},
    {"config_length", CHOICE, AT(config_length), "projection minimum maximum harmonic arithmetic geometric specific"},
    {"config_row", INTEGER, AT(config_row), nullptr},
    {"cagrad_c", NUMBER, AT(cagrad_c), nullptr},
    {"cagrad_rescale", INTEGER, AT(cagrad_rescale), nullptr},
    {"cagrad_eps", NUMBER, AT(cagrad_eps), nullptr},
    {"cagrad_pareto", CHOICE, AT(cagrad_pareto), "project zero mean"},
    {"imtlg_abs_normaliser", FLAG, AT(imtlg_abs_normaliser), nullptr},
    {"aligned_scale", CHOICE, AT(aligned_scale), "min median rmse"},
    {"aligned_rank_tol", NUMBER, AT(aligned_rank_tol), nullptr},
    {"norm_eps", NUMBER, AT(norm_eps), nullptr},
    {"reg_eps", NUMBER, AT(reg_eps), nullptr},
    {"mgda_normalisation", CHOICE, AT(mgda_normalisation), "none l2 loss loss_plus"},
    {"mgda_frank_wolfe", FLAG, AT(mgda_frank_wolfe), nullptr},
    {"mgda_fw_epsilon", NUMBER, AT(mgda_fw_epsilon), nullptr},
    {"mgda_fw_max_iterations", INTEGER, AT(mgda_fw_max_iterations), nullptr},
    {"nash_max_norm", NUMBER, AT(nash_max_norm), nullptr},
    {"nash_update_every", INTEGER, AT(nash_update_every), nullptr},
    {"sdmgrad_lambda", NUMBER, AT(sdmgrad_lambda), nullptr},
};
#undef AT

#define AT(member) offsetof(sut_optimizer_config, member)
static const option optimizer_options[] = {
    {"maximize", FLAG, AT(maximize), nullptr},
    {"clip_norm", NUMBER, AT(clip_norm), nullptr},
    {"align", CHOICE, AT(align), "none gua"},
    {"metric", CHOICE, AT(metric), "natural euclidean"},
    {"rho_m", NUMBER, AT(rho_m), nullptr},
    {"rho_v", NUMBER, AT(rho_v), nullptr},
    {"realign_raw", FLAG, AT(realign_raw), nullptr},
    {"conflict_cos_tol", NUMBER, AT(conflict_cos_tol), nullptr},
    {"correction_distance_tol", NUMBER, AT(correction_distance_tol), nullptr},
    {"strict", FLAG, AT(strict), nullptr},
    {"check", CHOICE, AT(check), "none gradients all"},
};
#undef AT

#define AT(member) offsetof(sut_schedule, member)
static const option schedule_options[] = {
    {"peak", NUMBER, AT(peak), nullptr},
    {"final_lr", NUMBER, AT(final_lr), nullptr},
    {"warmup_start", NUMBER, AT(warmup_start), nullptr},
    {"cooldown_fraction", NUMBER, AT(cooldown_fraction), nullptr},
    {"cooldown", CHOICE, AT(cooldown), "linear cosine mirror 1-sqrt square exp"},
};
#undef AT

static int choice(const option &o, nb::handle value)
{
    const char *at = o.choices;
    const char *name = PyUnicode_Check(value.ptr()) ? nb::borrow<nb::str>(value).c_str() : nullptr;
    for (int k = 0; name && *at; k++) {
        const size_t length = strcspn(at, " ");
        if (strlen(name) == length && !strncmp(at, name, length))
            return k;
        at += length + (at[length] == ' ');
    }
    std::string list = "'";
    for (const char *c = o.choices; *c; c++)
        list += *c == ' ' ? std::string("', '") : std::string(1, *c);
    PyErr_Format(name ? PyExc_ValueError : PyExc_TypeError, "%s is %R; possible are %s'", o.name, value.ptr(),
                 list.c_str());
    throw nb::python_error();
}

static void set_option(const option &o, nb::handle value, void *base)
{
    char *to = static_cast<char *>(base) + o.offset;
    int whole = 0;
    if (o.kind == NUMBER) {
        const double x = number(o.name, value);
        memcpy(to, &x, sizeof x);
        return;
    }
    if (o.kind == CHOICE) {
        whole = choice(o, value);
    } else if (o.kind == FLAG) {
        whole = flag(o.name, value);
    } else {
        whole = (int)integer(o.name, value, INT_MIN, INT_MAX);
    }
    memcpy(to, &whole, sizeof whole); /* enums of C are ints here */
}

/* False when the table has no such option. */
template <size_t N> static bool take(const option (&table)[N], const char *name, nb::handle value, void *base)
{
    for (const option &o : table)
        if (!strcmp(o.name, name))
            return set_option(o, value, base), true;
    return false;
}

static_assert(sizeof(sut_align) == sizeof(int) && sizeof(sut_cooldown) == sizeof(int), "enums are ints");

static void read_order(nb::handle given, int m, std::vector<int> *order)
{
    nb::object rows = nb::steal(PySequence_List(given.ptr()));
    if (!rows.is_valid()) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "order is %R; a list with one row per loss is needed", given.ptr());
        throw nb::python_error();
    }
    order->clear();
    for (nb::handle row : nb::borrow<nb::list>(rows)) {
        std::vector<double> entries = numbers("a row of order", row, m);
        for (double x : entries) {
            if (!(x >= 0 && x < m && x == std::floor(x)))
                raise(SUT_ERROR_OUT_OF_RANGE, "order: each row is a permutation of the losses, counted from 0");
            order->push_back((int)x);
        }
    }
    if ((int)order->size() != m * m)
        raise(SUT_ERROR_INVALID_ARGUMENT, "order must have one row per loss, each a permutation of all losses");
}

static bool is_read(sut_surgery_method method, const char *name)
{
    sut_parameter_info info;
    for (int k = 0; sut_surgery_option(method, k, &info) == SUT_OK; k++)
        if (!strcmp(info.name, name))
            return true;
    return false;
}

/* An option that config->method does not read would be without effect. */
static void refuse_foreign(const char *name, sut_surgery_method method)
{
    std::string owners;
    for (int k = 0; k < SUT_SURGERY_COUNT; k++)
        if (is_read((sut_surgery_method)k, name))
            owners += std::string(owners.empty() ? "" : ", ") + sut_surgery_method_name((sut_surgery_method)k);
    PyErr_Format(PyExc_TypeError, "%s has no option '%s', which belongs to %s", sut_surgery_method_name(method), name,
                 owners.c_str());
    throw nb::python_error();
}

bool take_surgery(const char *name, nb::handle value, int m, sut_surgery_config *config, SurgeryArrays *arrays)
{
    bool is_known = !strcmp(name, "preference") || !strcmp(name, "order");
    for (const option &o : surgery_options)
        is_known = is_known || !strcmp(o.name, name);
    if (!is_known)
        return false;
    if (!value.is_none() && !is_read(config->method, name))
        refuse_foreign(name, config->method);
    if (!strcmp(name, "preference")) {
        arrays->preference = numbers("preference", value, m);
        config->preference = arrays->preference.empty() ? nullptr : arrays->preference.data();
    } else if (!strcmp(name, "order")) {
        arrays->order.clear();
        if (!value.is_none())
            read_order(value, m, &arrays->order);
        config->order = arrays->order.empty() ? nullptr : arrays->order.data();
    } else {
        (void)take(surgery_options, name, value, config);
    }
    return true;
}

static void read_schedule(nb::handle given, sut_optimizer_config *config)
{
    if (!PyDict_Check(given.ptr())) {
        PyErr_Format(PyExc_TypeError, "schedule is %R; a dict is needed, e.g. {'kind': 'cosine', 'total': 10000}",
                     given.ptr());
        throw nb::python_error();
    }
    const nb::dict options = nb::borrow<nb::dict>(given);
    const std::string kinds = "possible are 'constant', 'linear', 'cosine', 'wsd'";
    if (!options.contains("kind"))
        raise(SUT_ERROR_INVALID_ARGUMENT, ("schedule needs a 'kind'; " + kinds).c_str());
    sut_schedule_kind kind = SUT_SCHEDULE_CONSTANT;
    const std::string kind_name = text("the kind of the schedule", nb::object(options["kind"]));
    if (sut_schedule_from_name(kind_name.c_str(), &kind) != SUT_OK)
        raise(SUT_ERROR_INVALID_ARGUMENT, ("the kind of the schedule is '" + kind_name + "'; " + kinds).c_str());
    sut_schedule *const schedule = &config->schedule;
    sut_schedule_init(schedule, kind);
    for (auto [key, value] : options) {
        const std::string name = text("a key of the schedule", key);
        if (name == "warmup") {
            schedule->warmup = integer("warmup of the schedule", value);
        } else if (name == "total") {
            schedule->total = integer("total of the schedule", value);
        } else if (name != "kind" && !take(schedule_options, name.c_str(), value, schedule)) {
            nb::list known;
            for (const char *k : {"kind", "warmup", "total"})
                known.append(k);
            for (const option &o : schedule_options)
                known.append(o.name);
            refuse_unknown(key, "schedule", known);
        }
    }
    config->use_schedule = 1;
}

bool take_optimizer(const char *name, nb::handle value, sut_optimizer_config *config)
{
    if (strcmp(name, "schedule"))
        return take(optimizer_options, name, value, config);
    if (!value.is_none())
        read_schedule(value, config);
    return true;
}

const char *option_name(nb::handle key)
{
    const char *name = PyUnicode_Check(key.ptr()) ? PyUnicode_AsUTF8AndSize(key.ptr(), nullptr) : nullptr;
    PyErr_Clear();
    return name ? name : "";
}

/* What people write elsewhere, and what it is called here. */
static const struct {
    const char *elsewhere, *here;
} synonyms[] = {
    {"learning_rate", "lr"}, {"step_size", "lr"},       {"beta", "betas"},         {"b1", "beta1"},
    {"b2", "beta2"},         {"epsilon", "eps"},        {"wd", "weight_decay"},    {"decay", "weight_decay"},
    {"l2", "weight_decay"},  {"rho", "alpha"},          {"alignment", "align"},    {"max_norm", "clip_norm"},
    {"clip", "clip_norm"},   {"scheduler", "schedule"}, {"weights", "preference"},
};

void refuse_unknown(nb::handle key, const char *function, nb::list known)
{
    nb::list names(known);
    for (const auto &s : synonyms)
        if (PySequence_Contains(known.ptr(), nb::str(s.here).ptr()) == 1)
            names.append(s.elsewhere);
    nb::object near = nb::module_::import_("difflib").attr("get_close_matches")(nb::str(key), names, 1, 0.5);
    std::string hint;
    if (nb::len(near)) {
        hint = nb::borrow<nb::str>(nb::object(near[0])).c_str();
        for (const auto &s : synonyms)
            if (hint == s.elsewhere)
                hint = s.here;
        hint = "; did you mean '" + hint + "'?";
    }
    PyErr_Format(PyExc_TypeError, "%s has no option '%U'%s", function, nb::str(key).ptr(), hint.c_str());
    throw nb::python_error();
}

static void set_hyper(sut_hyper *hyper, sut_optimizer_method method, const char *name, nb::handle value,
                      bool is_flag = false)
{
    const double x = is_flag ? flag(name, value) : number(name, value);
    if (std::isnan(x) || sut_hyper_set(hyper, method, name, x) != SUT_OK) {
        sut_parameter_info info;
        for (int k = 0; sut_optimizer_parameter(method, k, &info) == SUT_OK; k++)
            if (!strcmp(info.name, name)) {
                PyErr_Clear();
                nb::str text(nb::object(nb::str("{} is {}; allowed is {}{}, {}{}")
                                            .attr("format")(name, value, info.minimum_open ? "(" : "[", info.minimum,
                                                            info.maximum, info.maximum_open ? ")" : "]")));
                raise(SUT_ERROR_OUT_OF_RANGE, text.c_str());
            }
        raise(SUT_ERROR_INVALID_ARGUMENT, (std::string(name) + " does not belong to this method").c_str());
    }
}

void read_hyper(nb::dict group, sut_optimizer_method method, sut_hyper *hyper, const sut_context *)
{
    sut_parameter_info info;
    for (int k = 0; sut_optimizer_parameter(method, k, &info) == SUT_OK; k++) {
        if (!strcmp(info.name, "beta1") && group.contains("betas")) {
            for (const char *single : {"beta1", "beta2"})
                if (group.contains(single))
                    raise(SUT_ERROR_INVALID_ARGUMENT,
                          (std::string("a group has '") + single + "' beside 'betas', which holds both; set betas")
                              .c_str());
            nb::object betas = group["betas"];
            const bool list = PySequence_Check(betas.ptr()) && !PyUnicode_Check(betas.ptr());
            if (!list || nb::len(betas) != 2) {
                PyErr_Format(list ? PyExc_ValueError : PyExc_TypeError, "betas is %R; a pair of numbers is needed",
                             betas.ptr());
                throw nb::python_error();
            }
            set_hyper(hyper, method, "beta1", nb::object(betas[0]));
            set_hyper(hyper, method, "beta2", nb::object(betas[1]));
        }
        if (group.contains(info.name))
            set_hyper(hyper, method, info.name, nb::object(group[info.name]), info.is_flag != 0);
    }
}

/* Keywords of the constructors, which groups cannot have either. */
static const char *const keywords[] = {"method", "n_losses", "surgery", "loss_names", "threads", "seed", "isa"};

void refuse_whole(nb::dict group, int index)
{
    for (auto [key, value] : group) {
        (void)value;
        const char *const name = option_name(key);
        bool belongs = !strcmp(name, "preference") || !strcmp(name, "order") || !strcmp(name, "schedule");
        for (const option &o : surgery_options)
            belongs = belongs || !strcmp(name, o.name);
        for (const option &o : optimizer_options)
            belongs = belongs || !strcmp(name, o.name);
        for (const char *keyword : keywords)
            belongs = belongs || !strcmp(name, keyword);
        if (!belongs)
            continue;
        PyErr_Format(PyExc_TypeError, "group %d: '%s' belongs to the whole optimizer, not to a group", index, name);
        throw nb::python_error();
    }
}

template <typename Method>
static Method by_name(const char *what, const std::string &name, int n, sut_status (*from)(const char *, Method *),
                      const char *(*to)(Method))
{
    Method method;
    if (from(name.c_str(), &method) == SUT_OK)
        return method;
    std::string list;
    for (int k = 0; k < n; k++)
        list += std::string(k ? ", " : "") + to((Method)k);
    raise(SUT_ERROR_INVALID_ARGUMENT,
          (std::string("there is no ") + what + " '" + name + "'; there are " + list).c_str());
}

sut_optimizer_method optimizer_method(nb::handle name)
{
    return by_name<sut_optimizer_method>("optimizer", text("method", name), SUT_OPTIMIZER_COUNT,
                                         sut_optimizer_method_from_name, sut_optimizer_method_name);
}

sut_surgery_method surgery_method(nb::handle name)
{
    return by_name<sut_surgery_method>("surgery method", text("the name of a surgery method", name), SUT_SURGERY_COUNT,
                                       sut_surgery_method_from_name, sut_surgery_method_name);
}

void add_tables(nb::module_ &module)
{
    nb::list names, surgery, optimizer;
    nb::dict methods;
    for (int k = 0; k < SUT_SURGERY_COUNT; k++)
        names.append(sut_surgery_method_name((sut_surgery_method)k));
    for (const option &o : surgery_options)
        surgery.append(o.name);
    surgery.append("preference");
    surgery.append("order");
    for (const option &o : optimizer_options)
        optimizer.append(o.name);
    optimizer.append("schedule");
    for (int k = 0; k < SUT_OPTIMIZER_COUNT; k++) {
        nb::dict parameters;
        sut_parameter_info info;
        for (int j = 0; sut_optimizer_parameter((sut_optimizer_method)k, j, &info) == SUT_OK; j++) {
            if (info.is_flag)
                parameters[info.name] = info.default_value != 0;
            else
                parameters[info.name] = info.default_value;
        }
        methods[sut_optimizer_method_name((sut_optimizer_method)k)] = parameters;
    }
    module.attr("surgery_methods") = nb::tuple(names);
    module.attr("surgery_options") = nb::tuple(surgery);
    module.attr("optimizer_options") = nb::tuple(optimizer);
    module.attr("optimizer_methods") = methods;
}

} // namespace suture_python
