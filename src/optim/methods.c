/*
 * The table of methods, and what is derived from it: names, defaults, ranges.
 */
#include "optim/optimizer.h"

#include "optim/rules/prelude.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* {name, offset, is_flag, default, minimum, maximum, minimum_open, maximum_open} */
#define REAL_FROM(field, value, minimum)                                                 \
    {                                                                                    \
#field, offsetof(sut_hyper, field), false, value, minimum, HUGE_VAL, false, true \
    }
#define REAL_BELOW_ONE(field, value)                                        \
    {                                                                       \
#field, offsetof(sut_hyper, field), false, value, 0, 1, false, true \
    }
#define REAL_UP_TO_ONE(field, value)                                         \
    {                                                                        \
#field, offsetof(sut_hyper, field), false, value, 0, 1, false, false \
    }
#define FLAG(field)                                                     \
    {                                                                   \
#field, offsetof(sut_hyper, field), true, 0, 0, 1, false, false \
    }

static unsigned sgd_slots(const sut_hyper *h)
{
    return h->momentum > 0 ? 1 : 0;
}

static unsigned rmsprop_slots(const sut_hyper *h)
{
    return 1u | (h->momentum > 0 ? 2u : 0u) | (h->centered ? 4u : 0u);
}

static unsigned one_slot(const sut_hyper *h)
{
    (void)h;
    return 1;
}

static unsigned two_slots(const sut_hyper *h)
{
    (void)h;
    return 3;
}

static unsigned adam_slots(const sut_hyper *h)
{
    return h->amsgrad ? 7 : 3;
}

const sut_method_row sut_method_table[SUT_OPTIMIZER_COUNT] = {
    {SUT_OPTIMIZER_SGD,
     "sgd",
     SUT_RULE_SGD,
     SUT_RULE_COUPLED,
     {"b"},
     sgd_slots,
     {REAL_FROM(lr, 1e-2, 0), REAL_FROM(weight_decay, 0, 0), REAL_BELOW_ONE(momentum, 0), REAL_UP_TO_ONE(dampening, 0),
      FLAG(nesterov)},
     "Polyak 1964; Nesterov 1983; Sutskever et al. 2013"},
    {SUT_OPTIMIZER_RMSPROP,
     "rmsprop",
     SUT_RULE_RMSPROP,
     SUT_RULE_COUPLED,
     {"v", "b", "ga"},
     rmsprop_slots,
     {REAL_FROM(lr, 1e-2, 0), REAL_FROM(weight_decay, 0, 0), REAL_BELOW_ONE(alpha, 0.99), REAL_FROM(eps, 1e-8, 0),
      REAL_BELOW_ONE(momentum, 0), FLAG(centered)},
     "Tieleman and Hinton 2012; Graves 2013, arXiv 1308.0850"},
    {SUT_OPTIMIZER_ADAGRAD,
     "adagrad",
     SUT_RULE_ADAGRAD,
     SUT_RULE_COUPLED,
     {"v"},
     one_slot,
     {REAL_FROM(lr, 1e-2, 0), REAL_FROM(weight_decay, 0, 0), REAL_FROM(eps, 1e-10, 0), REAL_FROM(lr_decay, 0, 0),
      REAL_FROM(initial_accumulator_value, 0, 0)},
     "Duchi, Hazan, Singer 2011"},
    {SUT_OPTIMIZER_ADAM,
     "adam",
     SUT_RULE_ADAM,
     SUT_RULE_COUPLED,
     {"m", "v", "vmax"},
     adam_slots,
     {REAL_FROM(lr, 1e-3, 0), REAL_FROM(weight_decay, 0, 0), REAL_BELOW_ONE(beta1, 0.9), REAL_BELOW_ONE(beta2, 0.999),
      REAL_FROM(eps, 1e-8, 0), FLAG(amsgrad)},
     "Kingma and Ba 2014, arXiv 1412.6980"},
    {SUT_OPTIMIZER_ADAMW,
     "adamw",
     SUT_RULE_ADAM,
     SUT_RULE_DECOUPLED,
     {"m", "v", "vmax"},
     adam_slots,
     {REAL_FROM(lr, 1e-3, 0), REAL_FROM(weight_decay, 1e-2, 0), REAL_BELOW_ONE(beta1, 0.9),
      REAL_BELOW_ONE(beta2, 0.999), REAL_FROM(eps, 1e-8, 0), FLAG(amsgrad)},
     "Loshchilov and Hutter 2017, arXiv 1711.05101"},
    {SUT_OPTIMIZER_NADAM,
     "nadam",
     SUT_RULE_NADAM,
     SUT_RULE_COUPLED,
     {"m", "v"},
     two_slots,
     {REAL_FROM(lr, 2e-3, 0), REAL_FROM(weight_decay, 0, 0), REAL_BELOW_ONE(beta1, 0.9), REAL_BELOW_ONE(beta2, 0.999),
      REAL_FROM(eps, 1e-8, 0), REAL_FROM(momentum_decay, 4e-3, 0)},
     "Dozat 2016"},
    {SUT_OPTIMIZER_RADAM,
     "radam",
     SUT_RULE_RADAM,
     SUT_RULE_COUPLED,
     {"m", "v"},
     two_slots,
     {REAL_FROM(lr, 1e-3, 0), REAL_FROM(weight_decay, 0, 0), REAL_BELOW_ONE(beta1, 0.9), REAL_BELOW_ONE(beta2, 0.999),
      REAL_FROM(eps, 1e-8, 0)},
     "Liu et al. 2019, arXiv 1908.03265"},
    {SUT_OPTIMIZER_LION,
     "lion",
     SUT_RULE_LION,
     SUT_RULE_DECOUPLED,
     {"m"},
     one_slot,
     {REAL_FROM(lr, 1e-4, 0), REAL_FROM(weight_decay, 0, 0), REAL_BELOW_ONE(beta1, 0.9), REAL_BELOW_ONE(beta2, 0.99)},
     "Chen et al. 2023, arXiv 2302.06675"},
};

const sut_method_row *sut_method_find(sut_optimizer_method method)
{
    return (unsigned)method < SUT_OPTIMIZER_COUNT ? &sut_method_table[method] : NULL;
}

const char *sut_optimizer_method_name(sut_optimizer_method method)
{
    const sut_method_row *const row = sut_method_find(method);
    return row ? row->name : NULL;
}

sut_status sut_optimizer_method_from_name(const char *name, sut_optimizer_method *method_out)
{
    if (!name || !method_out)
        return SUT_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < SUT_OPTIMIZER_COUNT; ++i)
        if (!strcmp(name, sut_method_table[i].name)) {
            *method_out = sut_method_table[i].method;
            return SUT_OK;
        }
    return SUT_ERROR_INVALID_ARGUMENT;
}

static const char *const align_names[] = {"none", "gua"};
static const char *const metric_names[] = {"natural", "euclidean"};

/* Index of `name` in a table of two, or -1. */
static int find_name(const char *name, const char *const names[2])
{
    for (int k = 0; name && k < 2; ++k)
        if (!strcmp(name, names[k]))
            return k;
    return -1;
}

const char *sut_align_name(sut_align align)
{
    return (unsigned)align < 2 ? align_names[align] : NULL;
}

sut_status sut_align_from_name(const char *name, sut_align *align_out)
{
    const int k = find_name(name, align_names);
    if (k < 0 || !align_out)
        return SUT_ERROR_INVALID_ARGUMENT;
    *align_out = (sut_align)k;
    return SUT_OK;
}

const char *sut_metric_name(sut_metric metric)
{
    return (unsigned)metric < 2 ? metric_names[metric] : NULL;
}

sut_status sut_metric_from_name(const char *name, sut_metric *metric_out)
{
    const int k = find_name(name, metric_names);
    if (k < 0 || !metric_out)
        return SUT_ERROR_INVALID_ARGUMENT;
    *metric_out = (sut_metric)k;
    return SUT_OK;
}

static double get(const sut_hyper *h, const sut_method_parameter *p)
{
    const char *const at = (const char *)h + p->offset;
    if (p->is_flag) {
        int flag;
        memcpy(&flag, at, sizeof flag);
        return flag;
    }
    double value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void set(sut_hyper *h, const sut_method_parameter *p, double value)
{
    char *const at = (char *)h + p->offset;
    if (p->is_flag) {
        const int flag = value != 0;
        memcpy(at, &flag, sizeof flag);
    } else {
        memcpy(at, &value, sizeof value);
    }
}

static const sut_method_parameter *find(const sut_method_row *row, const char *name)
{
    for (const sut_method_parameter *p = row->parameter; p->name; ++p)
        if (!strcmp(p->name, name))
            return p;
    return NULL;
}

sut_status sut_hyper_init(sut_hyper *hyper, sut_optimizer_method method)
{
    const sut_method_row *const row = sut_method_find(method);
    if (!hyper || !row)
        return SUT_ERROR_INVALID_ARGUMENT;
    memset(hyper, 0, sizeof *hyper);
    for (const sut_method_parameter *p = row->parameter; p->name; ++p)
        set(hyper, p, p->default_value);
    return SUT_OK;
}

sut_status sut_hyper_set(sut_hyper *hyper, sut_optimizer_method method, const char *name, double value)
{
    const sut_method_row *const row = sut_method_find(method);
    if (!hyper || !row || !name)
        return SUT_ERROR_INVALID_ARGUMENT;
    const sut_method_parameter *const p = find(row, name);
    if (!p)
        return SUT_ERROR_INVALID_ARGUMENT;
    SUT_TRY(sut_check_range(NULL, name, value, p->minimum, p->minimum_open, p->maximum, p->maximum_open));
    if (p->is_flag && value != 0 && value != 1)
        return SUT_ERROR_OUT_OF_RANGE;
    set(hyper, p, value);
    return SUT_OK;
}

sut_status sut_hyper_get(const sut_hyper *hyper, sut_optimizer_method method, const char *name, double *value_out)
{
    const sut_method_row *const row = sut_method_find(method);
    if (!hyper || !row || !name || !value_out)
        return SUT_ERROR_INVALID_ARGUMENT;
    const sut_method_parameter *const p = find(row, name);
    if (!p)
        return SUT_ERROR_INVALID_ARGUMENT;
    *value_out = get(hyper, p);
    return SUT_OK;
}

sut_status sut_optimizer_parameter(sut_optimizer_method method, int index, sut_parameter_info *info_out)
{
    const sut_method_row *const row = sut_method_find(method);
    if (!row || !info_out)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (index < 0 || index >= SUT_MAX_PARAMETERS)
        return SUT_ERROR_OUT_OF_RANGE;
    for (int i = 0; i <= index; ++i)
        if (!row->parameter[i].name)
            return SUT_ERROR_OUT_OF_RANGE;
    const sut_method_parameter *const p = &row->parameter[index];
    *info_out = (sut_parameter_info){.name = p->name,
                                     .is_flag = p->is_flag,
                                     .default_value = p->default_value,
                                     .minimum = p->minimum,
                                     .maximum = p->maximum,
                                     .minimum_open = p->minimum_open,
                                     .maximum_open = p->maximum_open,
                                     .is_integer = p->is_flag};
    return SUT_OK;
}

sut_status sut_hyper_check(sut_context *ctx, const sut_method_row *row, const sut_hyper *h, int group)
{
    char label[64];
    for (const sut_method_parameter *p = row->parameter; p->name; ++p) {
        const double value = get(h, p);
        (void)snprintf(label, sizeof label, "%s of group %d (%s)", p->name, group, row->name);
        if (p->is_flag && value != 0 && value != 1)
            SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "%s is %g; it must be 0 or 1", label, value);
        SUT_TRY(sut_check_range(ctx, label, value, p->minimum, p->minimum_open, p->maximum, p->maximum_open));
    }
    if (row->rule == SUT_RULE_SGD && h->nesterov && (h->momentum <= 0 || h->dampening != 0))
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE,
                 "nesterov of group %d (sgd) needs momentum > 0 and dampening 0; they are %g and %g", group,
                 h->momentum, h->dampening);
    return SUT_OK;
}

sut_status sut_hyper_check_f32(sut_context *ctx, const sut_method_row *row, const sut_hyper *h, int group)
{
    for (const sut_method_parameter *p = row->parameter; p->name; ++p)
        if (get(h, p) > FLT_MAX)
            SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "%s of group %d (%s) is %g; its f32 arithmetic holds at most %g",
                     p->name, group, row->name, get(h, p), FLT_MAX);
    return SUT_OK;
}

unsigned sut_optimizer_needed_slots(const sut_method_row *row, const sut_hyper *groups, int n_groups)
{
    unsigned slots = 0;
    for (int k = 0; k < n_groups; ++k)
        slots |= row->slots(&groups[k]);
    return slots;
}
