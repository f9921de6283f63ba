/*
 * Lion: Chen et al. 2023, arXiv 2302.06675, Algorithm 2.
 *
 *   c = beta1 m + (1 - beta1) g;   u = sign(c) + wd theta;   m <- beta2 m + (1 - beta2) g;   M = I
 *
 * The state is written in the last pass only (deferred): u belongs to the moment before the step, and recomputing c from
 * the one after it could flip a sign. Realignment: the wish c* = |c| p (p without decay) moves the old moment by
 * (c* - c)/beta1, hence the stored one by beta2/beta1 times that: m += rho (beta2/beta1) |c| (p - u).
 */
#define LION_DEFERRED 1

typedef struct SUT_T(lion) {
    SUT_REAL lr, wd;
    SUT_REAL beta1, one_beta1, beta2, one_beta2;
    SUT_REAL realign; /* rho beta2 / beta1, 0 for beta1 = 0 */
} SUT_T(lion);

SUT_RULE SUT_REAL SUT_T(lion_c)(const SUT_T(lion) *c, SUT_REAL m, SUT_REAL g)
{
    return c->beta1 * m + c->one_beta1 * g;
}

SUT_RULE void SUT_T(lion_update)(const SUT_T(lion) *c, int f, SUT_REAL *s, SUT_REAL g)
{
    (void)f;
    s[0] = c->beta2 * s[0] + c->one_beta2 * g;
}

SUT_RULE SUT_T(terms) SUT_T(lion_terms)(const SUT_T(lion) *c, int f, const SUT_REAL *s, SUT_REAL g)
{
    (void)f;
    const SUT_REAL x = SUT_T(lion_c)(c, s[0], g);
    SUT_T(terms) t = {(SUT_REAL)(x > 0) - (SUT_REAL)(x < 0), 1, 0};
    return t;
}

/* `weight` is |c| of the proposal, from the state before the step. */
SUT_RULE void SUT_T(lion_realign_deferred)(const SUT_T(lion) *c, SUT_REAL *s, SUT_REAL weight, SUT_REAL chi)
{
    s[0] += c->realign * weight * chi;
}
