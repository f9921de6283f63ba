/*
 * RMSprop: Tieleman and Hinton 2012; centered: Graves 2013, arXiv 1308.0850; momentum as in PyTorch.
 *
 *   v <- alpha v + (1 - alpha) g^2;   centered: a <- alpha a + (1 - alpha) g,  D = sqrt(max(v - a^2, 0)) + eps
 *   D = sqrt(v) + eps;   u = g/D,  or  b <- mu b + g/D,  u = b;   M = D.   No bias correction.
 *
 * Realignment: b += rho chi/D; q = D p/W with W = (1 - mu^t)/(1 - mu) (1 without momentum); v -> q^2 and, centered,
 * a -> q with the same strength, so that v - a^2 stays >= 0.
 */
#define RMSPROP_MOMENTUM SUT_RULE_OWN(0)
#define RMSPROP_CENTERED SUT_RULE_OWN(1)
#define RMSPROP_DEFERRED 0
/* Slots: v, b, ga. */

typedef struct SUT_T(rmsprop) {
    SUT_REAL lr, wd;
    SUT_REAL alpha, one_alpha, mu, eps;
    SUT_REAL rho_m;
    SUT_REAL keep_v, pull_v, pull_ga; /* 1 - rho', the root of rho', rho' */
    SUT_REAL inverse_W;
} SUT_T(rmsprop);

SUT_RULE SUT_REAL SUT_T(rmsprop_D)(const SUT_T(rmsprop) *c, int f, const SUT_REAL *s)
{
    /* Where the square has overflowed D stays Inf: the coordinate proposes 0, its momentum included. */
    SUT_REAL v = s[0];
    if (f & RMSPROP_CENTERED)
        v = SUT_T(overflowed)(v) ? v : SUT_T(positive)(v - s[2] * s[2]);
    return SUT_T(root)(v) + c->eps;
}

SUT_RULE void SUT_T(rmsprop_update)(const SUT_T(rmsprop) *c, int f, SUT_REAL *s, SUT_REAL g)
{
    s[0] = c->alpha * s[0] + c->one_alpha * (g * g);
    if (f & RMSPROP_CENTERED)
        s[2] = c->alpha * s[2] + c->one_alpha * g;
    if (f & RMSPROP_MOMENTUM)
        s[1] = c->mu * s[1] + g * SUT_T(inverse)(SUT_T(rmsprop_D)(c, f, s));
}

SUT_RULE SUT_T(terms) SUT_T(rmsprop_terms)(const SUT_T(rmsprop) *c, int f, const SUT_REAL *s, SUT_REAL g)
{
    SUT_T(terms) t = {g, SUT_T(rmsprop_D)(c, f, s), 0};
    if (f & RMSPROP_MOMENTUM) {
        t.num = 0;
        t.base = SUT_T(overflowed)(t.D) ? (SUT_REAL)0 : s[1];
    }
    return t;
}

SUT_RULE void SUT_T(rmsprop_realign)(const SUT_T(rmsprop) *c, int f, SUT_REAL *s, SUT_T(terms) t, SUT_REAL p,
                                     SUT_REAL chi)
{
    const SUT_REAL q = t.D * p * c->inverse_W;
    if (f & RMSPROP_MOMENTUM)
        s[1] += c->rho_m * (chi * SUT_T(inverse)(t.D));
    const SUT_REAL pull = c->pull_v * q;
    /* Where the square has overflowed q is Inf * 0: the coordinate does not move and has nothing to realign. */
    const int frozen = SUT_T(overflowed)(t.D);
    s[0] = frozen ? s[0] : SUT_T(positive)(c->keep_v * s[0] + pull * pull);
    if (f & RMSPROP_CENTERED)
        s[2] = frozen ? s[2] : c->keep_v * s[2] + c->pull_ga * q;
}
