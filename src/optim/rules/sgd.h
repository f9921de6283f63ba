/*
 * SGD: plain, heavy ball (Polyak 1964) and Nesterov (1983; Sutskever et al. 2013), in PyTorch's convention.
 *
 *   b <- mu b + (1 - tau) g   (first step: b = g, undamped);   u = g,  b,  or  g + mu b;   M = I
 *
 * b is a sum, not an average. Realignment: b += rho chi, divided by mu for Nesterov, where g is held.
 */
#define SGD_MOMENTUM SUT_RULE_OWN(0)
#define SGD_NESTEROV SUT_RULE_OWN(1)
#define SGD_DEFERRED 0

typedef struct SUT_T(sgd) {
    SUT_REAL lr, wd;
    SUT_REAL decay; /* mu, 0 at the first step */
    SUT_REAL gain;  /* 1 - tau, 1 at the first step */
    SUT_REAL mu;
    SUT_REAL realign; /* rho, or rho / mu for Nesterov */
} SUT_T(sgd);

SUT_RULE void SUT_T(sgd_update)(const SUT_T(sgd) *c, int f, SUT_REAL *s, SUT_REAL g)
{
    if (f & SGD_MOMENTUM)
        s[0] = c->decay * s[0] + c->gain * g;
}

SUT_RULE SUT_T(terms) SUT_T(sgd_terms)(const SUT_T(sgd) *c, int f, const SUT_REAL *s, SUT_REAL g)
{
    SUT_T(terms) t = {g, 1, 0};
    if (f & SGD_NESTEROV)
        t.num = g + c->mu * s[0];
    else if (f & SGD_MOMENTUM)
        t.num = s[0];
    return t;
}

SUT_RULE void SUT_T(sgd_realign)(const SUT_T(sgd) *c, int f, SUT_REAL *s, SUT_T(terms) t, SUT_REAL p, SUT_REAL chi)
{
    (void)t, (void)p;
    if (f & SGD_MOMENTUM)
        s[0] += c->realign * chi;
}
