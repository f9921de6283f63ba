/*
 * The cone projection without squaring its condition. With B = M^-1/2 G^T and y = M^1/2 u the multipliers minimise
 * |B l + y| over l >= 0, non-negative least squares (Lawson, Hanson 1974, chapter 23). All that matters of the n x (m + 1)
 * matrix [B y] is the triangle R of its QR factorisation, which grows block by block over the elements (Golub, Van Loan,
 * 5.2: sequential QR) in memory of m^2. The Gram matrix K = B^T B loses rows that depend on each other to 1e-8; R tells them
 * apart to 1e-15. It costs twice as much and is made only where the measured p of the cheap way is not good enough.
 */
#ifndef SUT_SURGERY_NNLS_H
#define SUT_SURGERY_NNLS_H

#include <stdbool.h>

/* Elements of a block. */
#define SUT_FACTOR_ROWS 64

/* Rotate `rows` <= SUT_FACTOR_ROWS more rows into R: cols x cols, row-major, upper triangle; zeros to begin with. `block`:
 * cols columns of SUT_FACTOR_ROWS entries each; destroyed. */
void sut_factor_add(double *R, int cols, double *block, int rows);

/* What was found: |B l + y|, and below which length this is nothing but rounding. */
typedef struct sut_nnls_end {
    double length, noise;
    int rounds;
} sut_nnls_end;

/*
 * Multipliers from R ((m + 1)^2, y in the last column). Columns of B that vanish impose nothing. `work`:
 * SUT_SURGERY_WORK(m). False: the solver reached its limit of rounds.
 */
bool sut_nnls(const double *R, int m, double *lambda, double *work, sut_nnls_end *end);

/* As sut_nnqp_correction(): with s = G p measured, delta = -(B_P^T B_P)^-1 s_P on P = { lambda > 0 }, else 0. True when
 * lambda + delta stays positive on P. */
bool sut_nnls_correction(const double *R, int m, const double *lambda, const double *s, double *delta, double *work);

#endif /* SUT_SURGERY_NNLS_H */
