/*
 * Adam: Kingma, Ba 2014, arXiv 1412.6980. AdamW (decoupled decay): Loshchilov, Hutter 2017, arXiv 1711.05101, Algorithm 2.
 * AMSGrad: Reddi et al. 2018, arXiv 1904.09237, the maximum taken over the uncorrected v.
 *
 *   m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;  m^ = m/(1 - beta1^t);  v^ = v/(1 - beta2^t)
 *   D = sqrt(v^) + eps (AMSGrad: of v_max);   u = m^/D (+ wd theta);   M = D
 *
 * Realignment (gradient-update alignment, Xiao et al. 2026, arXiv 2609.01558): q = m^ + chi = D (p - wd theta);
 * m^ += rho chi, v^ -> q^2, v_max untouched. `raw`: towards D p, decay included, as the published code.
 */
#define ADAM_AMSGRAD SUT_RULE_OWN(0)
#define ADAM_DEFERRED 0
/* Slots: m, v, vmax. */

typedef struct SUT_T(adam) {
    SUT_REAL lr, wd;
    SUT_REAL beta1, one_beta1, beta2, one_beta2, eps;
    SUT_REAL c1, c2;         /* 1/(1 - beta^t) */
    SUT_REAL rho_m;          /* rho (1 - beta1^t) */
    SUT_REAL keep_v, pull_v; /* 1 - rho', and the root of rho' (1 - beta2^t) */
    SUT_REAL raw;            /* 1: the decay belongs to the target */
} SUT_T(adam);

SUT_RULE void SUT_T(adam_update)(const SUT_T(adam) *c, int f, SUT_REAL *s, SUT_REAL g)
{
    s[0] = c->beta1 * s[0] + c->one_beta1 * g;
    s[1] = c->beta2 * s[1] + c->one_beta2 * (g * g);
    if (f & ADAM_AMSGRAD)
        s[2] = s[2] > s[1] ? s[2] : s[1];
}

SUT_RULE SUT_T(terms) SUT_T(adam_terms)(const SUT_T(adam) *c, int f, const SUT_REAL *s, SUT_REAL g)
{
    (void)g;
    const SUT_REAL v = f & ADAM_AMSGRAD ? s[2] : s[1];
    SUT_T(terms) t = {s[0] * c->c1, SUT_T(root)(v * c->c2) + c->eps, 0};
    return t;
}

SUT_RULE void SUT_T(adam_realign)(const SUT_T(adam) *c, int f, SUT_REAL *s, SUT_T(terms) t, SUT_REAL p, SUT_REAL chi)
{
    (void)p;
    SUT_REAL change = chi;
    if (f & SUT_RULE_DECOUPLED)
        change = chi + c->raw * (SUT_T(overflowed)(t.D) ? (SUT_REAL)0 : t.D * t.base);
    const SUT_REAL q = t.num + change;
    s[0] += c->rho_m * change;
    const SUT_REAL pull = c->pull_v * q;
    s[1] = SUT_T(positive)(c->keep_v * s[1] + pull * pull);
}
