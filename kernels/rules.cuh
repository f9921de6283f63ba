/*
 * The rules on four elements of one thread. The arithmetic of each rule is in optim/rules/; what is here is the order in which
 * its functions are called, the same as in the loops of backend/cpu_rules.h, so that both give the same bits. The rule of a
 * tensor is a number in its setting: all threads of a block take the same branch.
 */
#ifndef SUT_KERNELS_RULES_CUH
#define SUT_KERNELS_RULES_CUH

#include "kernels/rows.cuh"

#define SUT_REAL float
#include "optim/rules/terms.h"
#include "optim/rules/adagrad.h"
#include "optim/rules/adam.h"
#include "optim/rules/lion.h"
#include "optim/rules/nadam.h"
#include "optim/rules/radam.h"
#include "optim/rules/rmsprop.h"
#include "optim/rules/sgd.h"
#undef SUT_REAL
#include "optim/rules/double.h"

namespace
{

/* The functions of the headers by type. */
template <class Real> struct scalar;
#define SUT_CUDA_SCALAR(real)                     \
    template <> struct scalar<real> {             \
        typedef sut_terms_##real terms;           \
        SUT_MEMBER static bool overflowed(real x) \
        {                                         \
            return sut_overflowed_##real(x) != 0; \
        }                                         \
        SUT_MEMBER static real inverse(real x)    \
        {                                         \
            return sut_inverse_##real(x);         \
        }                                         \
    };
SUT_CUDA_SCALAR(float)
SUT_CUDA_SCALAR(double)

/* `settle` moves the state towards the one that would have proposed p; Lion's wish belongs to the old moment. */
#define SUT_CUDA_RULE_(rule, real)                                                                              \
    template <> struct rule##_rule<real> {                                                                      \
        typedef sut_##rule##_##real constants;                                                                  \
        SUT_MEMBER static void update(const constants *c, int f, real *s, real g)                               \
        {                                                                                                       \
            sut_##rule##_update_##real(c, f, s, g);                                                             \
        }                                                                                                       \
        SUT_MEMBER static sut_terms_##real terms(const constants *c, int f, const real *s, real g)              \
        {                                                                                                       \
            return sut_##rule##_terms_##real(c, f, s, g);                                                       \
        }                                                                                                       \
        SUT_MEMBER static void settle(const constants *c, int f, real *s, real old, real g, sut_terms_##real t, \
                                      real p, real chi)                                                         \
        {                                                                                                       \
            SUT_CUDA_SETTLE(rule, real)                                                                         \
        }                                                                                                       \
    };
#define SUT_CUDA_RULE(rule)                   \
    template <class Real> struct rule##_rule; \
    SUT_CUDA_RULE_(rule, float)               \
    SUT_CUDA_RULE_(rule, double)

#define SUT_CUDA_SETTLE(rule, real) \
    (void)old, (void)g;             \
    sut_##rule##_realign_##real(c, f, s, t, p, chi);
SUT_CUDA_RULE(adagrad)
SUT_CUDA_RULE(adam)
SUT_CUDA_RULE(nadam)
SUT_CUDA_RULE(radam)
SUT_CUDA_RULE(rmsprop)
SUT_CUDA_RULE(sgd)
#undef SUT_CUDA_SETTLE
#define SUT_CUDA_SETTLE(rule, real)                     \
    (void)f, (void)t, (void)p;                          \
    const real wish = sut_##rule##_c_##real(c, old, g); \
    sut_##rule##_realign_deferred_##real(c, s, wish < 0 ? -wish : wish, chi);
SUT_CUDA_RULE(lion)

/* What a thread works on: num, D and base are the rule's terms, u = base + num * inverse. */
template <class Real> struct elements {
    four<Real> state[SUT_MAX_SLOTS], a, theta, num, D, base, inverse, u, p;
    double chi[SUT_CUDA_EACH];
};

/* What to do with it. */
enum todo { ADVANCE, PROPOSE, TERMS, FUSED, APPLY, CHI, GIVEN };

template <class Real> SUT_GPU void take_state(const elements<Real> &b, int e, Real *s)
{
#pragma unroll
    for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
        s[slot] = b.state[slot].x[e];
}

template <class Real> SUT_GPU void give_state(const Real *s, int e, elements<Real> *b)
{
#pragma unroll
    for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
        b->state[slot].x[e] = s[slot];
}

/*
 * The state after the gradient, where the rule does not put that off, and its terms. G_LATER: whether the terms need the
 * gradient once the state is updated.
 */
template <class Rule, class Real, bool DEFERRED, bool G_LATER, int F>
SUT_GPU void derive(bool first, const void *constants, elements<Real> *b)
{
    const typename Rule::constants *const c = static_cast<const typename Rule::constants *>(constants);
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e) {
        Real s[SUT_MAX_SLOTS];
        take_state(*b, e, s);
        const Real g = first || G_LATER ? b->a.x[e] : (Real)0;
        if (first && !DEFERRED) {
            Rule::update(c, F, s, g);
            give_state(s, e, b);
        }
        typename scalar<Real>::terms t = Rule::terms(c, F, s, g);
        if (F & SUT_RULE_DECOUPLED)
            t.base += scalar<Real>::overflowed(t.D) ? (Real)0 : c->wd * b->theta.x[e];
        b->num.x[e] = t.num;
        b->D.x[e] = t.D;
        b->base.x[e] = t.base;
    }
}

/* The state once p is known: put-off updates, realignment by chi = D (p - u). */
template <class Rule, class Real, bool DEFERRED, bool G_LATER, int F>
SUT_GPU void settle(bool first, bool realign, const void *constants, const four<Real> &chi, elements<Real> *b)
{
    const typename Rule::constants *const c = static_cast<const typename Rule::constants *>(constants);
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e) {
        Real s[SUT_MAX_SLOTS];
        take_state(*b, e, s);
        const Real old = s[0], g = first || G_LATER ? b->a.x[e] : (Real)0;
        const typename scalar<Real>::terms t = {b->num.x[e], b->D.x[e], b->base.x[e]};
        if (DEFERRED)
            Rule::update(c, F, s, g);
        if (realign)
            Rule::settle(c, F, s, old, g, t, b->p.x[e], chi.x[e]);
        give_state(s, e, b);
    }
}

/* Every variant, its rule and its flags: PLAIN for those that update the state at once, LATE for the others. */
#define SUT_CUDA_VARIANTS_OF(PLAIN, LATE)                                     \
    PLAIN(SGD, sgd, true, 0)                                                  \
    PLAIN(SGD_MOMENTUM, sgd, false, SGD_MOMENTUM)                             \
    PLAIN(SGD_NESTEROV, sgd, true, SGD_MOMENTUM | SGD_NESTEROV)               \
    PLAIN(RMSPROP, rmsprop, true, 0)                                          \
    PLAIN(RMSPROP_MOMENTUM, rmsprop, false, RMSPROP_MOMENTUM)                 \
    PLAIN(RMSPROP_CENTERED, rmsprop, true, RMSPROP_CENTERED)                  \
    PLAIN(RMSPROP_BOTH, rmsprop, false, RMSPROP_MOMENTUM | RMSPROP_CENTERED)  \
    PLAIN(ADAGRAD, adagrad, true, 0)                                          \
    PLAIN(ADAM, adam, false, 0)                                               \
    PLAIN(ADAM_DECOUPLED, adam, false, SUT_RULE_DECOUPLED)                    \
    PLAIN(ADAM_MAX, adam, false, ADAM_AMSGRAD)                                \
    PLAIN(ADAM_MAX_DECOUPLED, adam, false, ADAM_AMSGRAD | SUT_RULE_DECOUPLED) \
    PLAIN(NADAM, nadam, true, 0)                                              \
    PLAIN(RADAM, radam, false, 0)                                             \
    PLAIN(RADAM_RECTIFIED, radam, false, RADAM_RECTIFIED)                     \
    LATE(LION, lion, true, 0)                                                 \
    LATE(LION_DECOUPLED, lion, true, SUT_RULE_DECOUPLED)

/*
 * One strip through the rule. keep: write the state back where it was changed. ALIGNED: the kernel asks for CHI and GIVEN; the
 * others need no realignment and leave its code out.
 */
template <class Real, bool ALIGNED>
SUT_GPU void run_rule(const sut_cuda_setting *setting, int what, bool realign, const piece &at, bool keep,
                      elements<Real> *b)
{
    const sut_cuda_tensor *const tensor = at.tensor;
    const void *const constants = sizeof(Real) == 4 ? (const void *)setting->f32 : (const void *)setting->f64;
    const bool first = what == ADVANCE || what == PROPOSE || what == FUSED, deferred = setting->deferred != 0;
#pragma unroll
    for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
        b->state[slot] = setting->slots >> slot & 1 ? load_own<Real>(tensor->state[slot], tensor->own, at.at, at.left)
                                                    : zeros<Real>();

#define SUT_CUDA_PLAIN(name, rule, g_later, flags)                                   \
    case SUT_CUDA_##name:                                                            \
        derive<rule##_rule<Real>, Real, false, g_later, flags>(first, constants, b); \
        break;
#define SUT_CUDA_LATE(name, rule, g_later, flags) \
    case SUT_CUDA_##name: derive<rule##_rule<Real>, Real, true, g_later, flags>(first, constants, b); break;
    switch (setting->variant) {
        SUT_CUDA_VARIANTS_OF(SUT_CUDA_PLAIN, SUT_CUDA_LATE)
    }
#undef SUT_CUDA_PLAIN
#undef SUT_CUDA_LATE

    const Real lr = *static_cast<const Real *>(constants); /* every rule's constants begin with it */
    const bool updates = what == FUSED || what == APPLY || what == CHI || what == GIVEN;
    four<Real> chi = zeros<Real>();
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e) {
        const Real inverse = scalar<Real>::inverse(b->D.x[e]);
        const Real u = b->base.x[e] + b->num.x[e] * inverse;
        b->inverse.x[e] = inverse;
        b->u.x[e] = u;
        Real p = u;
        if (ALIGNED && what == CHI) {
            /* Where num and chi cancel, p keeps its digits: their sum is taken in double and rounded once. */
            const Real q = (Real)((double)b->num.x[e] + b->chi[e]);
            chi.x[e] = q - b->num.x[e];
            p = b->base.x[e] + q * inverse;
        } else if (ALIGNED && what == GIVEN) {
            p = b->p.x[e];
            const Real difference = p - u; /* D = Inf: no state would propose p. */
            chi.x[e] = scalar<Real>::overflowed(b->D.x[e]) ? (Real)0 : b->D.x[e] * difference;
        }
        b->p.x[e] = p;
    }

    /* A put-off state is written by the last pass; realignment changes any. Decoupled decay looks at the old theta. */
    const bool late = deferred && (updates || what == ADVANCE),
               moved = ALIGNED && realign && (what == CHI || what == GIVEN);
    if (late || moved) {
#define SUT_CUDA_PLAIN(name, rule, g_later, flags)                                                   \
    case SUT_CUDA_##name:                                                                            \
        if (ALIGNED)                                                                                 \
            settle<rule##_rule<Real>, Real, false, g_later, flags>(first, moved, constants, chi, b); \
        break;
#define SUT_CUDA_LATE(name, rule, g_later, flags) \
    case SUT_CUDA_##name: settle<rule##_rule<Real>, Real, true, g_later, flags>(first, moved, constants, chi, b); break;
        switch (setting->variant) {
            SUT_CUDA_VARIANTS_OF(SUT_CUDA_PLAIN, SUT_CUDA_LATE)
        }
#undef SUT_CUDA_PLAIN
#undef SUT_CUDA_LATE
    }
    if (updates) {
#pragma unroll
        for (int e = 0; e < SUT_CUDA_EACH; ++e)
            b->theta.x[e] = b->theta.x[e] - lr * b->p.x[e];
    }
    if (!keep || !(late || moved || (first && !deferred)))
        return;
#pragma unroll
    for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
        if (setting->slots >> slot & 1)
            store_own(tensor->state[slot], tensor->own, at.at, at.left, b->state[slot]);
}

} // namespace

#endif // SUT_KERNELS_RULES_CUH
