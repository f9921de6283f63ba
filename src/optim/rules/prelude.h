/*
 * The prelude of the rule headers. A rule header holds one optimizer's arithmetic on scalars: a struct of constants and a
 * few inline functions. It is included once with SUT_REAL = float and once with SUT_REAL = double, by the C compiler (the
 * loops of backend/cpu_rules.h) and, for the GPU, by nvcc. Multiply-add contraction is off for both, so all of them agree
 * bit for bit.
 *
 * A rule's proposal has the form  u = base + num * (1/D),  and its natural metric is D:  the aligned update is
 * p = base + (num + chi) * (1/D)  with  chi = M(p - u) = G^T lambda, so that alignment costs no division of its own.
 *
 *   RULE_update(c, f, s, g)            state after the gradient g
 *   RULE_terms(c, f, s, g)             num, D, base from that state (RULE_DEFERRED: from the state before it)
 *   RULE_realign(c, f, s, t, p, chi)   state moved towards the one that would have proposed p
 *
 * The constants begin with lr and wd. `f` is a compile-time constant of flags; `s` the state of one element. q is the constant gradient that, fed at every
 * step so far, makes the rule propose p; second moments are pulled towards q^2, as the square of (root of strength times q):
 * with strength 0 nothing changes even where q^2 overflows.
 */
#ifndef SUT_OPTIM_RULES_PRELUDE_H
#define SUT_OPTIM_RULES_PRELUDE_H

#include <math.h>

#ifdef __CUDACC__
#define SUT_RULE static __host__ __device__ __forceinline__
#else
#define SUT_RULE static inline __attribute__((always_inline, unused))
#endif

/* Flags that every rule knows; a rule's own begin at SUT_RULE_OWN. */
#define SUT_RULE_COUPLED 1   /* g += wd theta: added to the combined gradient before the rule sees it */
#define SUT_RULE_DECOUPLED 2 /* base += wd theta */
#define SUT_RULE_OWN(k) (4 << (k))

#define SUT_RULE_PASTE_(a, b) a##b
#define SUT_RULE_PASTE(a, b) SUT_RULE_PASTE_(a, b)

#endif /* SUT_OPTIM_RULES_PRELUDE_H */

/* The part that depends on SUT_REAL is given anew with each inclusion. */
#undef SUT_T
#define SUT_T(name) SUT_RULE_PASTE(SUT_RULE_PASTE(sut_, name), SUT_RULE_PASTE(_, SUT_REAL))
