/*
 * The loops over the rules, for one SUT_REAL: every rule and every combination of its flags as straight-line code that
 * the compiler turns into vectors. All of them take one block.
 *
 *   advance      state only                     (learning rate 0)
 *   propose      state, u, D, 1/D               (state not stored where the rule defers it)
 *   terms        u, D, 1/D from the state       (nothing stored)
 *   fused        state, theta
 *   apply        theta from the state as it is  (a deferred state is stored now)
 *   apply_chi    p = base + (num + chi) * (1/D), theta, state realigned or not; u and p for the sums
 *   apply_given  the same for a p that is given
 *   propose_few, apply_few   propose and apply_chi of 2 or 3 losses with the sums of the pass
 */
#include "optim/rules/terms.h"

#include "optim/rules/adagrad.h"
#include "optim/rules/adam.h"
#include "optim/rules/lion.h"
#include "optim/rules/nadam.h"
#include "optim/rules/radam.h"
#include "optim/rules/rmsprop.h"
#include "optim/rules/sgd.h"

typedef struct SUT_T(block) {
    int64_t n;
    const void *constants;
    SUT_REAL *state[SUT_MAX_SLOTS];
    const SUT_REAL *a;
    SUT_REAL *theta;
    SUT_REAL *u, *d, *r, *p; /* SUT_BLOCK elements each: u, D, 1/D, p; p is read by apply_given */
    const double *chi;
    int64_t ahead;            /* elements ahead of which streams are fetched; 0: not at all */
    const SUT_REAL *const *g; /* the rows: fetched, and summed in the loops of few losses into these lanes */
    int n_rows;
    double *const *lanes;
} SUT_T(block);

typedef void (*SUT_T(kernel))(const SUT_T(block) *b);

typedef struct SUT_T(kernels) {
    SUT_T(kernel) advance, propose, terms, fused, apply, apply_chi[2], apply_given[2];
    SUT_T(kernel) propose_few[2], apply_few[2][2]; /* of 2 and 3 losses, with their sums; NULL where there are none */
} SUT_T(kernels);

/* What every loop begins with: M is the mask of slots in use. */
#define SUT_BEGIN(rule)                                                                                  \
    const SUT_T(rule) c = *(const SUT_T(rule) *)b->constants;                                            \
    SUT_REAL *restrict const s0 = b->state[0];                                                           \
    SUT_REAL *restrict const s1 = b->state[1];                                                           \
    SUT_REAL *restrict const s2 = b->state[2];                                                           \
    const SUT_REAL *restrict const a = b->a;                                                             \
    SUT_REAL *restrict const theta = b->theta;                                                           \
    SUT_REAL *restrict const u = b->u;                                                                   \
    SUT_REAL *restrict const d = b->d;                                                                   \
    SUT_REAL *restrict const r = b->r;                                                                   \
    SUT_REAL *restrict const pp = b->p;                                                                  \
    const double *restrict const chis = b->chi;                                                          \
    const int64_t n = b->n, ahead = b->ahead;                                                            \
    (void)s0, (void)s1, (void)s2, (void)a, (void)theta, (void)u, (void)d, (void)r, (void)pp, (void)chis; \
    int64_t strip = 0;

/* A line of each stream that the loop will need, `ahead` elements from here. */
#define SUT_FETCH                                                                                                  \
    if (ahead)                                                                                                     \
        for (int64_t line = strip + ahead; line < strip + ahead + SUT_LANES; line += 64 / (int)sizeof(SUT_REAL)) { \
            if (M & 1)                                                                                             \
                __builtin_prefetch(s0 + line);                                                                     \
            if (M & 2)                                                                                             \
                __builtin_prefetch(s1 + line);                                                                     \
            if (M & 4)                                                                                             \
                __builtin_prefetch(s2 + line);                                                                     \
            if (NEEDS_THETA)                                                                                       \
                __builtin_prefetch(theta + line);                                                                  \
            for (int i = 0; i < b->n_rows; ++i)                                                                    \
                __builtin_prefetch(b->g[i] + line);                                                                \
        }

/* BODY for each k, in strips of the 16 lanes: the compiler turns a strip into vectors. */
#define SUT_STRIPS(BODY)                                    \
    for (; strip + SUT_LANES <= n; strip += SUT_LANES) {    \
        SUT_FETCH                                           \
        SUT_INDEPENDENT for (int l = 0; l < SUT_LANES; ++l) \
        {                                                   \
            const int64_t k = strip + l;                    \
            BODY                                            \
        }                                                   \
    }                                                       \
    for (int64_t k = strip; k < n; ++k) {                   \
        BODY                                                \
    }

#define SUT_LOAD                               \
    SUT_REAL s[SUT_MAX_SLOTS] = {0, 0, 0};     \
    if (M & 1)                                 \
        s[0] = s0[k];                          \
    if (M & 2)                                 \
        s[1] = s1[k];                          \
    if (M & 4)                                 \
        s[2] = s2[k];                          \
    SUT_REAL g = NEEDS_G ? a[k] : (SUT_REAL)0; \
    (void)g;

#define SUT_STORE     \
    if (M & 1)        \
        s0[k] = s[0]; \
    if (M & 2)        \
        s1[k] = s[1]; \
    if (M & 4)        \
        s2[k] = s[2];

#define SUT_TERMS(rule)                                \
    SUT_T(terms) t = SUT_T(rule##_terms)(&c, F, s, g); \
    if (F & SUT_RULE_DECOUPLED)                        \
        t.base += SUT_T(overflowed)(t.D) ? (SUT_REAL)0 : c.wd * theta[k];

#define SUT_U (t.base + t.num * SUT_T(inverse)(t.D))

/* The proposal of one element into U, D, R, the state with it unless the rule defers that. */
#define SUT_PROPOSE_BODY(rule, DEFERRED, U, D_, R) \
    SUT_LOAD                                       \
    if (!DEFERRED)                                 \
        SUT_T(rule##_update)(&c, F, s, g);         \
    SUT_TERMS(rule)                                \
    U = SUT_U;                                     \
    D_ = t.D;                                      \
    R = SUT_T(inverse)(t.D);                       \
    if (!DEFERRED) {                               \
        SUT_STORE                                  \
    }

/* The aligned update of one element. The sum num + chi is taken in double and rounded once: where they cancel, p keeps its
 * digits. */
#define SUT_CHI_BODY(rule, ON, DEFERRED, REALIGN, U, P)     \
    SUT_LOAD                                                \
    SUT_TERMS(rule)                                         \
    const SUT_REAL q = (SUT_REAL)((double)t.num + chis[k]); \
    const SUT_REAL chi = q - t.num;                         \
    const SUT_REAL p = t.base + q * SUT_T(inverse)(t.D);    \
    theta[k] = theta[k] - c.lr * p;                         \
    P = p;                                                  \
    U = SUT_U;                                              \
    if (DEFERRED)                                           \
        SUT_T(rule##_update)(&c, F, s, g);                  \
    if (ON) {                                               \
        REALIGN(rule)                                       \
    }                                                       \
    if (DEFERRED || ON) {                                   \
        SUT_STORE                                           \
    }

/* `G_LATER`: whether the terms need the gradient once the state is updated. */
#define SUT_RULE_LOOPS(rule, tag, DEFERRED, G_LATER, MASK, FLAGS, REALIGN)                                   \
    static void SUT_T(rule##_advance_##tag)(const SUT_T(block) *b)                                           \
    {                                                                                                        \
        enum { F = FLAGS, M = MASK, NEEDS_G = 1, NEEDS_THETA = 0 };                                          \
        SUT_BEGIN(rule)                                                                                      \
        SUT_STRIPS(SUT_LOAD SUT_T(rule##_update)(&c, F, s, g); SUT_STORE)                                    \
    }                                                                                                        \
    static void SUT_T(rule##_propose_##tag)(const SUT_T(block) *b)                                           \
    {                                                                                                        \
        enum { F = FLAGS, M = MASK, NEEDS_G = 1, NEEDS_THETA = (F & SUT_RULE_DECOUPLED) != 0 };              \
        SUT_BEGIN(rule)                                                                                      \
        SUT_STRIPS(SUT_PROPOSE_BODY(rule, DEFERRED, u[k], d[k], r[k]))                                       \
    }                                                                                                        \
    static void SUT_T(rule##_terms_##tag)(const SUT_T(block) *b)                                             \
    {                                                                                                        \
        enum { F = FLAGS, M = MASK, NEEDS_G = G_LATER, NEEDS_THETA = (F & SUT_RULE_DECOUPLED) != 0 };        \
        SUT_BEGIN(rule)                                                                                      \
        SUT_STRIPS(SUT_LOAD SUT_TERMS(rule) u[k] = SUT_U; d[k] = t.D; r[k] = SUT_T(inverse)(t.D);)           \
    }                                                                                                        \
    static void SUT_T(rule##_fused_##tag)(const SUT_T(block) *b)                                             \
    {                                                                                                        \
        enum { F = FLAGS, M = MASK, NEEDS_G = 1, NEEDS_THETA = 1 };                                          \
        SUT_BEGIN(rule)                                                                                      \
        SUT_STRIPS(SUT_LOAD if (!DEFERRED) SUT_T(rule##_update)(&c, F, s, g);                                \
                   SUT_TERMS(rule) theta[k] = theta[k] - c.lr * SUT_U;                                       \
                   if (DEFERRED) SUT_T(rule##_update)(&c, F, s, g); SUT_STORE)                               \
    }                                                                                                        \
    static void SUT_T(rule##_apply_##tag)(const SUT_T(block) *b)                                             \
    {                                                                                                        \
        enum { F = FLAGS, M = MASK, NEEDS_G = G_LATER, NEEDS_THETA = 1 };                                    \
        SUT_BEGIN(rule)                                                                                      \
        SUT_STRIPS(SUT_LOAD SUT_TERMS(rule) theta[k] = theta[k] - c.lr * SUT_U; if (DEFERRED) {              \
            SUT_T(rule##_update)(&c, F, s, g);                                                               \
            SUT_STORE                                                                                        \
        })                                                                                                   \
    }                                                                                                        \
    SUT_RULE_ALIGNED(rule, tag, 0, DEFERRED, G_LATER, MASK, FLAGS, REALIGN)                                  \
    SUT_RULE_ALIGNED(rule, tag, 1, DEFERRED, G_LATER, MASK, FLAGS, REALIGN)                                  \
    SUT_RULE_FEW(rule, tag, 2, DEFERRED, G_LATER, MASK, FLAGS, REALIGN)                                      \
    SUT_RULE_FEW(rule, tag, 3, DEFERRED, G_LATER, MASK, FLAGS, REALIGN)                                      \
    static const SUT_T(kernels)                                                                              \
        SUT_T(rule##_kernels_##tag) = {SUT_T(rule##_advance_##tag),                                          \
                                       SUT_T(rule##_propose_##tag),                                          \
                                       SUT_T(rule##_terms_##tag),                                            \
                                       SUT_T(rule##_fused_##tag),                                            \
                                       SUT_T(rule##_apply_##tag),                                            \
                                       {SUT_T(rule##_apply_chi0_##tag), SUT_T(rule##_apply_chi1_##tag)},     \
                                       {SUT_T(rule##_apply_given0_##tag), SUT_T(rule##_apply_given1_##tag)}, \
                                       SUT_RULE_FEW_TABLE(rule, tag)};

#define SUT_RULE_ALIGNED(rule, tag, ON, DEFERRED, G_LATER, MASK, FLAGS, REALIGN)                                     \
    static void SUT_T(rule##_apply_chi##ON##_##tag)(const SUT_T(block) *b)                                           \
    {                                                                                                                \
        enum { F = FLAGS, M = MASK, NEEDS_G = G_LATER, NEEDS_THETA = 1 };                                            \
        SUT_BEGIN(rule)                                                                                              \
        SUT_STRIPS(SUT_CHI_BODY(rule, ON, DEFERRED, REALIGN, u[k], pp[k]))                                           \
    }                                                                                                                \
    static void SUT_T(rule##_apply_given##ON##_##tag)(const SUT_T(block) *b)                                         \
    {                                                                                                                \
        enum { F = FLAGS, M = MASK, NEEDS_G = G_LATER, NEEDS_THETA = 1 };                                            \
        SUT_BEGIN(rule)                                                                                              \
        SUT_STRIPS(SUT_LOAD SUT_TERMS(rule) const SUT_REAL p = pp[k]; const SUT_REAL proposal = SUT_U;               \
                   const SUT_REAL difference = p - proposal; /* D = Inf: no state would propose p. */                \
                   const SUT_REAL chi = SUT_T(overflowed)(t.D) ? (SUT_REAL)0 : t.D * difference;                     \
                   theta[k] = theta[k] - c.lr * p; u[k] = proposal; if (DEFERRED) SUT_T(rule##_update)(&c, F, s, g); \
                   if (ON) { REALIGN(rule) } if (DEFERRED || ON){SUT_STORE})                                         \
    }

/*
 * Few losses: the sums of a pass in the loop of the rule, which waits for its root and its division anyway. The same bits as
 * with the loops above and the sums of cpu_dots.h after them.
 */
#undef SUT_RULE_FEW
#undef SUT_RULE_FEW_TABLE
#if SUT_HAS_FEW
/* BODY leaves N arrays now[0..N)[l]; the SUMS sums of STEP are taken of them and the rows. They are taken one strip behind:
 * instructions that wait for a division would fill the processor's queue. */
#define SUT_STRIPS_WITH_SUMS(N, ROWS, SUMS, STEP, BODY)                                                               \
    enum { W = SUT_VECTOR / (int)sizeof(SUT_REAL), VECTORS = SUT_LANES / W };                                         \
    SUT_REAL strips[2][N][SUT_LANES] __attribute__((aligned(64))) = {{{0}}};                                          \
    SUT_REAL(*now)[SUT_LANES] = strips[0], (*before)[SUT_LANES] = strips[1];                                          \
    SUT_T(vector) sums[VECTORS][SUMS] = {{{0}}};                                                                      \
    const SUT_REAL *in[(N) + (ROWS)];                                                                                 \
    for (; strip + SUT_LANES <= n; strip += SUT_LANES) {                                                              \
        SUT_FETCH                                                                                                     \
        SUT_INDEPENDENT for (int l = 0; l < SUT_LANES; ++l)                                                           \
        {                                                                                                             \
            const int64_t k = strip + l;                                                                              \
            BODY                                                                                                      \
        }                                                                                                             \
        SUT_SUM_STRIP(N, ROWS, STEP, before, strip > 0 ? strip - SUT_LANES : 0)                                       \
        SUT_REAL(*const swap)[SUT_LANES] = before;                                                                    \
        before = now;                                                                                                 \
        now = swap;                                                                                                   \
    }                                                                                                                 \
    if (strip > 0)                                                                                                    \
        SUT_SUM_STRIP(N, ROWS, STEP, before, strip - SUT_LANES)                                                       \
    if (strip < n) {                                                                                                  \
        SUT_REAL rest[ROWS][SUT_LANES] = {{0}};                                                                       \
        for (int l = 0; l < SUT_LANES; ++l)                                                                           \
            for (int i = 0; i < (N); ++i)                                                                             \
                now[i][l] = 0;                                                                                        \
        for (int64_t k = strip; k < n; ++k) {                                                                         \
            const int l = (int)(k - strip);                                                                           \
            BODY                                                                                                      \
        }                                                                                                             \
        for (int i = 0; i < (N) + (ROWS); ++i)                                                                        \
            in[i] =                                                                                                   \
                i < (N) ? now[i] : memcpy(rest[i - (N)], b->g[i - (N)] + strip, (size_t)(n - strip) * sizeof **rest); \
        SUT_UNROLL(4) for (int v = 0; v < VECTORS; ++v) STEP(sums[v], in, v *W);                                      \
    }                                                                                                                 \
    SUT_UNROLL(4)                                                                                                     \
    for (int v = 0; v < VECTORS; ++v)                                                                                 \
        SUT_UNROLL(16) for (int i = 0; i < (SUMS); ++i) SUT_T(end)(sums[v][i], b->lanes[i] + v * W);

#define SUT_SUM_STRIP(N, ROWS, STEP, from, at)                                     \
    {                                                                              \
        const int64_t first = at;                                                  \
        SUT_UNROLL(8)                                                              \
        for (int i = 0; i < (N) + (ROWS); ++i)                                     \
            in[i] = i < (N) ? (const SUT_REAL *)(from)[i] : b->g[i - (N)] + first; \
        SUT_UNROLL(4) for (int v = 0; v < VECTORS; ++v) STEP(sums[v], in, v *W);   \
    }

#define SUT_RULE_FEW(rule, tag, ROWS, DEFERRED, G_LATER, MASK, FLAGS, REALIGN)                       \
    static void SUT_T(rule##_propose_few##ROWS##_##tag)(const SUT_T(block) *b)                       \
    {                                                                                                \
        enum { F = FLAGS, M = MASK, NEEDS_G = 1, NEEDS_THETA = (F & SUT_RULE_DECOUPLED) != 0 };      \
        SUT_BEGIN(rule)                                                                              \
        SUT_STRIPS_WITH_SUMS(3, ROWS, 2 + ROWS + ROWS * (ROWS + 1) / 2, SUT_T(proposal_step_##ROWS), \
                             SUT_PROPOSE_BODY(rule, DEFERRED, now[0][l], now[1][l], now[2][l]))      \
    }                                                                                                \
    SUT_RULE_FEW_ALIGNED(rule, tag, ROWS, 0, DEFERRED, G_LATER, MASK, FLAGS, REALIGN)                \
    SUT_RULE_FEW_ALIGNED(rule, tag, ROWS, 1, DEFERRED, G_LATER, MASK, FLAGS, REALIGN)
#define SUT_RULE_FEW_ALIGNED(rule, tag, ROWS, ON, DEFERRED, G_LATER, MASK, FLAGS, REALIGN)    \
    static void SUT_T(rule##_apply_few##ROWS##_chi##ON##_##tag)(const SUT_T(block) *b)        \
    {                                                                                         \
        enum { F = FLAGS, M = MASK, NEEDS_G = G_LATER, NEEDS_THETA = 1 };                     \
        SUT_BEGIN(rule)                                                                       \
        SUT_STRIPS_WITH_SUMS(2, ROWS, 3 + ROWS, SUT_T(update_step_##ROWS),                    \
                             SUT_CHI_BODY(rule, ON, DEFERRED, REALIGN, now[0][l], now[1][l])) \
    }
#define SUT_RULE_FEW_TABLE(rule, tag)                                                \
    {SUT_T(rule##_propose_few2_##tag), SUT_T(rule##_propose_few3_##tag)},            \
    {                                                                                \
        {SUT_T(rule##_apply_few2_chi0_##tag), SUT_T(rule##_apply_few2_chi1_##tag)},  \
        {                                                                            \
            SUT_T(rule##_apply_few3_chi0_##tag), SUT_T(rule##_apply_few3_chi1_##tag) \
        }                                                                            \
    }
#else
#define SUT_RULE_FEW(rule, tag, ROWS, DEFERRED, G_LATER, MASK, FLAGS, REALIGN)
#define SUT_RULE_FEW_TABLE(rule, tag) \
    {NULL, NULL},                     \
    {                                 \
        {NULL, NULL},                 \
        {                             \
            NULL, NULL                \
        }                             \
    }
#endif

#define SUT_REALIGN_COMMON(rule) \
    (void)chi;                   \
    SUT_T(rule##_realign)(&c, F, s, t, p, chi);
/* s holds the new moment here; |c| belongs to the old one, which is still in memory. */
#define SUT_REALIGN_LION(rule)                         \
    const SUT_REAL wish = SUT_T(lion_c)(&c, s0[k], g); \
    SUT_T(lion_realign_deferred)(&c, s, wish < 0 ? -wish : wish, chi);

#define ALL_G 1
#define NO_G 0

SUT_RULE_LOOPS(sgd, plain, 0, ALL_G, 0, 0, SUT_REALIGN_COMMON)
SUT_RULE_LOOPS(sgd, momentum, 0, NO_G, 1, SGD_MOMENTUM, SUT_REALIGN_COMMON)
SUT_RULE_LOOPS(sgd, nesterov, 0, ALL_G, 1, SGD_MOMENTUM | SGD_NESTEROV, SUT_REALIGN_COMMON)

SUT_RULE_LOOPS(rmsprop, plain, 0, ALL_G, 1, 0, SUT_REALIGN_COMMON)
SUT_RULE_LOOPS(rmsprop, momentum, 0, NO_G, 3, RMSPROP_MOMENTUM, SUT_REALIGN_COMMON)
SUT_RULE_LOOPS(rmsprop, centered, 0, ALL_G, 5, RMSPROP_CENTERED, SUT_REALIGN_COMMON)
SUT_RULE_LOOPS(rmsprop, both, 0, NO_G, 7, RMSPROP_MOMENTUM | RMSPROP_CENTERED, SUT_REALIGN_COMMON)

SUT_RULE_LOOPS(adagrad, plain, 0, ALL_G, 1, 0, SUT_REALIGN_COMMON)

SUT_RULE_LOOPS(adam, plain, 0, NO_G, 3, 0, SUT_REALIGN_COMMON)
SUT_RULE_LOOPS(adam, decoupled, 0, NO_G, 3, SUT_RULE_DECOUPLED, SUT_REALIGN_COMMON)
SUT_RULE_LOOPS(adam, max, 0, NO_G, 7, ADAM_AMSGRAD, SUT_REALIGN_COMMON)
SUT_RULE_LOOPS(adam, max_decoupled, 0, NO_G, 7, ADAM_AMSGRAD | SUT_RULE_DECOUPLED, SUT_REALIGN_COMMON)

SUT_RULE_LOOPS(nadam, plain, 0, ALL_G, 3, 0, SUT_REALIGN_COMMON)

SUT_RULE_LOOPS(radam, plain, 0, NO_G, 3, 0, SUT_REALIGN_COMMON)
SUT_RULE_LOOPS(radam, rectified, 0, NO_G, 3, RADAM_RECTIFIED, SUT_REALIGN_COMMON)

SUT_RULE_LOOPS(lion, plain, 1, ALL_G, 1, 0, SUT_REALIGN_LION)
SUT_RULE_LOOPS(lion, decoupled, 1, ALL_G, 1, SUT_RULE_DECOUPLED, SUT_REALIGN_LION)

/* The loops of a rule with given flags (SUT_RULE_COUPLED aside: coupled decay has been added to `a`); NULL for a
 * combination that does not exist. */
static const SUT_T(kernels) *SUT_T(select)(sut_rule rule, int flags)
{
    flags &= ~SUT_RULE_COUPLED;
    switch (rule) {
    case SUT_RULE_SGD:
        switch (flags) {
        case 0: return &SUT_T(sgd_kernels_plain);
        case SGD_MOMENTUM: return &SUT_T(sgd_kernels_momentum);
        case SGD_MOMENTUM | SGD_NESTEROV: return &SUT_T(sgd_kernels_nesterov);
        }
        break;
    case SUT_RULE_RMSPROP:
        switch (flags) {
        case 0: return &SUT_T(rmsprop_kernels_plain);
        case RMSPROP_MOMENTUM: return &SUT_T(rmsprop_kernels_momentum);
        case RMSPROP_CENTERED: return &SUT_T(rmsprop_kernels_centered);
        case RMSPROP_MOMENTUM | RMSPROP_CENTERED: return &SUT_T(rmsprop_kernels_both);
        }
        break;
    case SUT_RULE_ADAGRAD:
        switch (flags) {
        case 0: return &SUT_T(adagrad_kernels_plain);
        }
        break;
    case SUT_RULE_ADAM:
        switch (flags) {
        case 0: return &SUT_T(adam_kernels_plain);
        case SUT_RULE_DECOUPLED: return &SUT_T(adam_kernels_decoupled);
        case ADAM_AMSGRAD: return &SUT_T(adam_kernels_max);
        case ADAM_AMSGRAD | SUT_RULE_DECOUPLED: return &SUT_T(adam_kernels_max_decoupled);
        }
        break;
    case SUT_RULE_NADAM:
        switch (flags) {
        case 0: return &SUT_T(nadam_kernels_plain);
        }
        break;
    case SUT_RULE_RADAM:
        switch (flags) {
        case 0: return &SUT_T(radam_kernels_plain);
        case RADAM_RECTIFIED: return &SUT_T(radam_kernels_rectified);
        }
        break;
    case SUT_RULE_LION:
        switch (flags) {
        case 0: return &SUT_T(lion_kernels_plain);
        case SUT_RULE_DECOUPLED: return &SUT_T(lion_kernels_decoupled);
        }
        break;
    case SUT_RULE_COUNT: break;
    }
    return NULL;
}
