/*
 * RAdam: Liu et al. 2019, arXiv 1908.03265, with eps added to sqrt(v) before the correction, as in PyTorch.
 *
 *   m, v as Adam;  rectified (rho_t > 5): u = r m^ / D,  D = (sqrt(v) + eps)/sqrt(1 - beta2^t);   M = D
 *                  unrectified:           u = m^;                                                 M = I
 *
 * Realignment: m^ += (rho/r) chi, q = D p / r; unrectified r = 1, D = 1.
 */
#define RADAM_RECTIFIED SUT_RULE_OWN(0)
#define RADAM_DEFERRED 0
/* Slots: m, v. */

typedef struct SUT_T(radam) {
    SUT_REAL lr, wd;
    SUT_REAL beta1, one_beta1, beta2, one_beta2, eps;
    SUT_REAL num;            /* r/(1 - beta1^t) */
    SUT_REAL d_correction;   /* 1/sqrt(1 - beta2^t) */
    SUT_REAL rho_m;          /* rho (1 - beta1^t)/r */
    SUT_REAL keep_v, pull_v; /* 1 - rho', and the root of rho' (1 - beta2^t) */
    SUT_REAL inverse_r;
} SUT_T(radam);

SUT_RULE void SUT_T(radam_update)(const SUT_T(radam) *c, int f, SUT_REAL *s, SUT_REAL g)
{
    (void)f;
    s[0] = c->beta1 * s[0] + c->one_beta1 * g;
    s[1] = c->beta2 * s[1] + c->one_beta2 * (g * g);
}

SUT_RULE SUT_T(terms) SUT_T(radam_terms)(const SUT_T(radam) *c, int f, const SUT_REAL *s, SUT_REAL g)
{
    (void)g;
    SUT_T(terms) t = {s[0] * c->num, 1, 0};
    if (f & RADAM_RECTIFIED)
        t.D = (SUT_T(root)(s[1]) + c->eps) * c->d_correction;
    return t;
}

SUT_RULE void SUT_T(radam_realign)(const SUT_T(radam) *c, int f, SUT_REAL *s, SUT_T(terms) t, SUT_REAL p, SUT_REAL chi)
{
    (void)f, (void)p;
    const SUT_REAL q = (t.num + chi) * c->inverse_r;
    s[0] += c->rho_m * chi;
    const SUT_REAL pull = c->pull_v * q;
    s[1] = SUT_T(positive)(c->keep_v * s[1] + pull * pull);
}
