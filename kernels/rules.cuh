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
#define SUT_REAL double
#include "optim/rules/terms.h"
#include "optim/rules/adagrad.h"
#include "optim/rules/adam.h"
#include "optim/rules/lion.h"
#include "optim/rules/nadam.h"
#include "optim/rules/radam.h"
#include "optim/rules/rmsprop.h"
#include "optim/rules/sgd.h"
#undef SUT_REAL

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

/* What a thread works on. */
template <class Real> struct elements {
    four<Real> state[SUT_MAX_SLOTS], a, theta, u, D, inverse, p;
    double chi[SUT_CUDA_EACH];
};

/* What to do with it: one of these, of which a kernel names those that it asks for. */
enum todo { ADVANCE = 1, PROPOSE = 2, TERMS = 4, FUSED = 8, APPLY = 16, CHI = 32, GIVEN = 64 };

/* One variant on four elements. G_LATER: whether the terms need the gradient once the state is updated. */
template <class Rule, class Real, int WHATS, bool DEFERRED, bool G_LATER, int F>
SUT_DEVICE void run_variant(int asked, bool realign, const void *constants, elements<Real> *b)
{
    const typename Rule::constants *const c = static_cast<const typename Rule::constants *>(constants);
    const int what = asked & WHATS; /* the compiler drops what the kernel does not ask for */
    const bool first = what & (PROPOSE | FUSED | ADVANCE);
#pragma unroll
    for (int e = 0; e < SUT_CUDA_EACH; ++e) {
        Real s[SUT_MAX_SLOTS];
#pragma unroll
        for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
            s[slot] = b->state[slot].x[e];
        const Real old = s[0], theta = b->theta.x[e];
        const Real g = first || G_LATER ? b->a.x[e] : (Real)0;
        if (what & ADVANCE) {
            Rule::update(c, F, s, g);
        } else {
            if (first && !DEFERRED)
                Rule::update(c, F, s, g);
            typename scalar<Real>::terms t = Rule::terms(c, F, s, g);
            if (F & SUT_RULE_DECOUPLED)
                t.base += scalar<Real>::overflowed(t.D) ? (Real)0 : c->wd * theta;
            const Real inverse = scalar<Real>::inverse(t.D);
            const Real u = t.base + t.num * inverse;
            b->u.x[e] = u;
            b->D.x[e] = t.D;
            b->inverse.x[e] = inverse;
            if (what & (FUSED | APPLY)) {
                b->theta.x[e] = theta - c->lr * u;
                if (DEFERRED)
                    Rule::update(c, F, s, g);
            } else if (what & (CHI | GIVEN)) {
                Real chi, p;
                if (what & CHI) {
                    const Real q = (Real)((double)t.num + b->chi[e]);
                    chi = q - t.num;
                    p = t.base + q * inverse;
                } else {
                    p = b->p.x[e];
                    const Real difference = p - u; /* D = Inf: no state would propose p. */
                    chi = scalar<Real>::overflowed(t.D) ? (Real)0 : t.D * difference;
                }
                b->theta.x[e] = theta - c->lr * p;
                b->p.x[e] = p;
                if (DEFERRED)
                    Rule::update(c, F, s, g);
                if (realign)
                    Rule::settle(c, F, s, old, g, t, p, chi);
            }
        }
#pragma unroll
        for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
            b->state[slot].x[e] = s[slot];
    }
}

/* Whether `what` leaves another state than it found; a deferred state is written by the last pass alone. */
SUT_DEVICE bool changes_state(int what, bool realign, bool deferred)
{
    if (what & (ADVANCE | FUSED))
        return true;
    if (what & PROPOSE)
        return !deferred;
    return !(what & TERMS) && (deferred || (realign && (what & (CHI | GIVEN))));
}

/* keep: write the state back where it was changed. */
template <class Real, int WHATS>
SUT_DEVICE void run_rule(const sut_cuda_setting *setting, int what, bool realign, const piece &at, bool keep,
                         elements<Real> *b)
{
    const sut_cuda_tensor *const tensor = at.tensor;
#pragma unroll
    for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
        b->state[slot] = setting->slots >> slot & 1 ? load_own<Real>(tensor->state[slot], tensor->own, at.at, at.left)
                                                    : zeros<Real>();
    const void *const constants = sizeof(Real) == 4 ? (const void *)setting->f32 : (const void *)setting->f64;
#define SUT_CUDA_CASE(name, rule, deferred, g_later, flags)                                                 \
    case SUT_CUDA_##name:                                                                                   \
        run_variant<rule##_rule<Real>, Real, WHATS, deferred, g_later, flags>(what, realign, constants, b); \
        break;
    switch (setting->variant) {
        SUT_CUDA_CASE(SGD, sgd, false, true, 0)
        SUT_CUDA_CASE(SGD_MOMENTUM, sgd, false, false, SGD_MOMENTUM)
        SUT_CUDA_CASE(SGD_NESTEROV, sgd, false, true, SGD_MOMENTUM | SGD_NESTEROV)
        SUT_CUDA_CASE(RMSPROP, rmsprop, false, true, 0)
        SUT_CUDA_CASE(RMSPROP_MOMENTUM, rmsprop, false, false, RMSPROP_MOMENTUM)
        SUT_CUDA_CASE(RMSPROP_CENTERED, rmsprop, false, true, RMSPROP_CENTERED)
        SUT_CUDA_CASE(RMSPROP_BOTH, rmsprop, false, false, RMSPROP_MOMENTUM | RMSPROP_CENTERED)
        SUT_CUDA_CASE(ADAGRAD, adagrad, false, true, 0)
        SUT_CUDA_CASE(ADAM, adam, false, false, 0)
        SUT_CUDA_CASE(ADAM_DECOUPLED, adam, false, false, SUT_RULE_DECOUPLED)
        SUT_CUDA_CASE(ADAM_MAX, adam, false, false, ADAM_AMSGRAD)
        SUT_CUDA_CASE(ADAM_MAX_DECOUPLED, adam, false, false, ADAM_AMSGRAD | SUT_RULE_DECOUPLED)
        SUT_CUDA_CASE(NADAM, nadam, false, true, 0)
        SUT_CUDA_CASE(RADAM, radam, false, false, 0)
        SUT_CUDA_CASE(RADAM_RECTIFIED, radam, false, false, RADAM_RECTIFIED)
        SUT_CUDA_CASE(LION, lion, true, true, 0)
        SUT_CUDA_CASE(LION_DECOUPLED, lion, true, true, SUT_RULE_DECOUPLED)
    }
#undef SUT_CUDA_CASE
    if (!keep || !changes_state(what, realign, setting->deferred != 0))
        return;
#pragma unroll
    for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
        if (setting->slots >> slot & 1)
            store_own(tensor->state[slot], tensor->own, at.at, at.left, b->state[slot]);
}

} // namespace

#endif // SUT_KERNELS_RULES_CUH
