/*
 * Constants of one step, once per step and group, in double: powers of the betas, bias corrections, strengths of
 * realignment. The f32 constants are the double ones rounded.
 */
#include "optim/rates.h"

#include "optim/rules/double.h"

#include <math.h>
#include <string.h>

/* Every rule's constants are reals only, so the f32 struct is the double one, member by member. */
SUT_HOST_DEVICE static void keep(sut_rule_setting *setting, const void *constants, size_t size)
{
    _Static_assert(sizeof(sut_adam_double) <= SUT_RULE_CONSTANTS && sizeof(sut_nadam_double) <= SUT_RULE_CONSTANTS &&
                       sizeof(sut_radam_double) <= SUT_RULE_CONSTANTS &&
                       sizeof(sut_rmsprop_double) <= SUT_RULE_CONSTANTS,
                   "SUT_RULE_CONSTANTS is too small");
    memcpy(setting->f64, constants, size);
    for (size_t k = 0; k < size / sizeof(double); ++k) {
        double x;
        memcpy(&x, (const char *)constants + k * sizeof x, sizeof x);
        const float y = (float)x;
        memcpy(setting->f32 + k * sizeof y, &y, sizeof y);
    }
}

SUT_PORTABLE void sut_rule_prepare(sut_rule rule, int decay_flag, const sut_hyper *h, int64_t t, double lr,
                                   double *mu_prod, double rho_m, double rho_v, bool raw, sut_rule_setting *setting)
{
    const double steps = (double)t;
    const double v_total = 1 - pow(h->beta2, steps), m_total = 1 - pow(h->beta1, steps);
    const bool decay = h->weight_decay != 0;
    setting->rule = rule;
    setting->flags = decay ? decay_flag : 0;

    switch (rule) {
    case SUT_RULE_SGD: {
        if (h->momentum > 0)
            setting->flags |= SGD_MOMENTUM | (h->nesterov ? SGD_NESTEROV : 0);
        const sut_sgd_double c = {
            .lr = lr,
            .wd = h->weight_decay,
            .decay = t == 1 ? 0 : h->momentum,
            .gain = t == 1 ? 1 : 1 - h->dampening,
            .mu = h->momentum,
            .realign = h->nesterov ? rho_m / h->momentum : rho_m,
        };
        keep(setting, &c, sizeof c);
        break;
    }
    case SUT_RULE_RMSPROP: {
        if (h->momentum > 0)
            setting->flags |= RMSPROP_MOMENTUM;
        if (h->centered)
            setting->flags |= RMSPROP_CENTERED;
        const sut_rmsprop_double c = {
            .lr = lr,
            .wd = h->weight_decay,
            .alpha = h->alpha,
            .one_alpha = 1 - h->alpha,
            .mu = h->momentum,
            .eps = h->eps,
            .rho_m = rho_m,
            .keep_v = 1 - rho_v,
            .pull_v = sqrt(rho_v),
            .pull_ga = rho_v,
            .inverse_W = h->momentum > 0 ? (1 - h->momentum) / (1 - pow(h->momentum, steps)) : 1,
        };
        keep(setting, &c, sizeof c);
        break;
    }
    case SUT_RULE_ADAGRAD: {
        const double inverse = 1 + (steps - 1) * h->lr_decay;
        const sut_adagrad_double c = {
            .lr = lr, .wd = h->weight_decay, .eps = h->eps, .k = 1 / inverse, .inverse_k = inverse, .rho_v = rho_v};
        keep(setting, &c, sizeof c);
        break;
    }
    case SUT_RULE_ADAM: {
        if (h->amsgrad)
            setting->flags |= ADAM_AMSGRAD;
        const sut_adam_double c = {
            .lr = lr,
            .wd = h->weight_decay,
            .beta1 = h->beta1,
            .one_beta1 = 1 - h->beta1,
            .beta2 = h->beta2,
            .one_beta2 = 1 - h->beta2,
            .eps = h->eps,
            .c1 = 1 / m_total,
            .c2 = 1 / v_total,
            .rho_m = rho_m * m_total,
            .keep_v = 1 - rho_v,
            .pull_v = sqrt(rho_v * v_total),
            .raw = raw ? 1.0 : 0.0,
        };
        keep(setting, &c, sizeof c);
        break;
    }
    case SUT_RULE_NADAM: {
        const double mu = h->beta1 * (1 - 0.5 * pow(0.96, steps * h->momentum_decay));
        const double next = h->beta1 * (1 - 0.5 * pow(0.96, (steps + 1) * h->momentum_decay));
        *mu_prod *= mu;
        const double c1 = (1 - mu) / (1 - *mu_prod), c2 = next / (1 - *mu_prod * next);
        const sut_nadam_double c = {
            .lr = lr,
            .wd = h->weight_decay,
            .beta1 = h->beta1,
            .one_beta1 = 1 - h->beta1,
            .beta2 = h->beta2,
            .one_beta2 = 1 - h->beta2,
            .eps = h->eps,
            .c1 = c1,
            .c2 = c2,
            .v_correction = 1 / v_total,
            .rho_m = c2 > 0 ? rho_m / c2 : 0,
            .keep_v = 1 - rho_v,
            .pull_v = sqrt(rho_v * v_total),
            .inverse_W = 1 / (c1 + c2 * m_total),
        };
        keep(setting, &c, sizeof c);
        break;
    }
    case SUT_RULE_RADAM: {
        const double top = 2 / (1 - h->beta2) - 1, now = top - 2 * steps * (1 - v_total) / v_total;
        double r = 1;
        if (now > 5) {
            setting->flags |= RADAM_RECTIFIED;
            r = sqrt((now - 4) * (now - 2) * top / ((top - 4) * (top - 2) * now));
        }
        const sut_radam_double c = {
            .lr = lr,
            .wd = h->weight_decay,
            .beta1 = h->beta1,
            .one_beta1 = 1 - h->beta1,
            .beta2 = h->beta2,
            .one_beta2 = 1 - h->beta2,
            .eps = h->eps,
            .num = r / m_total,
            .d_correction = 1 / sqrt(v_total),
            .rho_m = rho_m * m_total / r,
            .keep_v = 1 - rho_v,
            .pull_v = sqrt(rho_v * v_total),
            .inverse_r = 1 / r,
        };
        keep(setting, &c, sizeof c);
        break;
    }
    case SUT_RULE_LION: {
        const sut_lion_double c = {
            .lr = lr,
            .wd = h->weight_decay,
            .beta1 = h->beta1,
            .one_beta1 = 1 - h->beta1,
            .beta2 = h->beta2,
            .one_beta2 = 1 - h->beta2,
            .realign = h->beta1 > 0 ? rho_m * h->beta2 / h->beta1 : 0,
        };
        keep(setting, &c, sizeof c);
        break;
    }
    case SUT_RULE_COUNT: break;
    }
}

SUT_PORTABLE bool sut_rule_needs_gradient_later(const sut_rule_setting *setting)
{
    switch (setting->rule) {
    case SUT_RULE_SGD: return !(setting->flags & SGD_MOMENTUM) || (setting->flags & SGD_NESTEROV);
    case SUT_RULE_RMSPROP: return !(setting->flags & RMSPROP_MOMENTUM);
    case SUT_RULE_ADAGRAD:
    case SUT_RULE_NADAM:
    case SUT_RULE_LION: return true;
    default: return false;
    }
}

SUT_PORTABLE bool sut_rule_defers_state(sut_rule rule)
{
    return rule == SUT_RULE_LION;
}
