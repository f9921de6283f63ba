/*
 * Burgers' residual at one point, written once for the CPU and the GPU: POINT is how a function is declared there. Numbers of a
 * point are `stride` apart.
 */
#ifndef PINN_BURGERS_H
#define PINN_BURGERS_H

#include <math.h>

#define BURGERS_NU (0.01 / M_PI)

enum { BURGERS_VALUE, BURGERS_X, BURGERS_T, BURGERS_XX }; /* channels */

POINT void burgers_residual(int stride, const double *x, const double *value, double *r)
{
    (void)x;
    const double u = value[BURGERS_VALUE * stride], u_x = value[BURGERS_X * stride], u_t = value[BURGERS_T * stride],
                 u_xx = value[BURGERS_XX * stride];
    r[0] = u_t + u * u_x - BURGERS_NU * u_xx;
}

POINT void burgers_adjoint(int stride, const double *x, const double *value, const double *e, double *adjoint)
{
    (void)x;
    const double u = value[BURGERS_VALUE * stride], u_x = value[BURGERS_X * stride];
    adjoint[BURGERS_VALUE * stride] = e[0] * u_x;
    adjoint[BURGERS_X * stride] = e[0] * u;
    adjoint[BURGERS_T * stride] = e[0];
    adjoint[BURGERS_XX * stride] = -BURGERS_NU * e[0];
}

#endif
