/*
 * NAdam: Dozat 2016, in PyTorch's form with the momentum schedule mu_t = beta1 (1 - 0.96^(t psi) / 2).
 *
 *   m, v as Adam;  c1 = (1 - mu_t)/(1 - Pi_t),  c2 = mu_{t+1}/(1 - Pi_t mu_{t+1}),  Pi_t = mu_1 ... mu_t
 *   u = (c1 g + c2 m)/D,  D = sqrt(v^) + eps;   M = D.   m is not divided by 1 - beta1^t.
 *
 * Realignment: m += (rho/c2) chi;  q = D p / (c1 + c2 (1 - beta1^t)),  v^ -> q^2.
 */
#define NADAM_DEFERRED 0
/* Slots: m, v. */

typedef struct SUT_T(nadam) {
    SUT_REAL lr, wd;
    SUT_REAL beta1, one_beta1, beta2, one_beta2, eps;
    SUT_REAL c1, c2, v_correction; /* v_correction = 1/(1 - beta2^t) */
    SUT_REAL rho_m;                /* rho / c2 */
    SUT_REAL keep_v, pull_v;       /* 1 - rho', and the root of rho' (1 - beta2^t) */
    SUT_REAL inverse_W;
} SUT_T(nadam);

SUT_RULE void SUT_T(nadam_update)(const SUT_T(nadam) *c, int f, SUT_REAL *s, SUT_REAL g)
{
    (void)f;
    s[0] = c->beta1 * s[0] + c->one_beta1 * g;
    s[1] = c->beta2 * s[1] + c->one_beta2 * (g * g);
}

SUT_RULE SUT_T(terms) SUT_T(nadam_terms)(const SUT_T(nadam) *c, int f, const SUT_REAL *s, SUT_REAL g)
{
    (void)f;
    SUT_T(terms) t = {c->c1 * g + c->c2 * s[0], SUT_T(root)(s[1] * c->v_correction) + c->eps, 0};
    return t;
}

SUT_RULE void SUT_T(nadam_realign)(const SUT_T(nadam) *c, int f, SUT_REAL *s, SUT_T(terms) t, SUT_REAL p, SUT_REAL chi)
{
    (void)f, (void)p;
    const SUT_REAL q = (t.num + chi) * c->inverse_W;
    s[0] += c->rho_m * chi;
    const SUT_REAL pull = c->pull_v * q;
    s[1] = SUT_T(positive)(c->keep_v * s[1] + pull * pull);
}
