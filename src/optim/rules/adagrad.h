/*
 * Adagrad: Duchi, Hazan, Singer 2011, with PyTorch's rate decay eta.
 *
 *   S <- S + g^2 (S_0 = initial_accumulator_value);   D = sqrt(S) + eps;   u = g/D / (1 + (t-1) eta);   M = D
 *
 * Realignment exchanges the last increment: q = D p (1 + (t-1) eta), S <- max(S + rho' (q^2 - g^2), 0).
 */
#define ADAGRAD_DEFERRED 0

typedef struct SUT_T(adagrad) {
    SUT_REAL lr, wd;
    SUT_REAL eps;
    SUT_REAL k, inverse_k; /* 1/(1 + (t-1) eta) and its inverse */
    SUT_REAL rho_v;
} SUT_T(adagrad);

SUT_RULE void SUT_T(adagrad_update)(const SUT_T(adagrad) *c, int f, SUT_REAL *s, SUT_REAL g)
{
    (void)c, (void)f;
    s[0] = s[0] + g * g;
}

SUT_RULE SUT_T(terms) SUT_T(adagrad_terms)(const SUT_T(adagrad) *c, int f, const SUT_REAL *s, SUT_REAL g)
{
    (void)f;
    SUT_T(terms) t = {g * c->k, SUT_T(root)(s[0]) + c->eps, 0};
    return t;
}

SUT_RULE void SUT_T(adagrad_realign)(const SUT_T(adagrad) *c, int f, SUT_REAL *s, SUT_T(terms) t, SUT_REAL p,
                                     SUT_REAL chi)
{
    (void)f, (void)chi;
    const SUT_REAL q = t.D * p * c->inverse_k, g = t.num * c->inverse_k;
    /* An S that has overflowed stays Inf: Inf - Inf would be read as 0. */
    const SUT_REAL increment = c->rho_v * (q * q - g * g);
    s[0] = increment - increment == 0 ? SUT_T(positive)(s[0] + increment) : s[0];
}
