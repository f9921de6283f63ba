/*
 * The cone projection without squaring its condition. With B = M^-1/2 G^T and y = M^1/2 u the multipliers minimise
 * |B l + y| over l >= 0, non-negative least squares (Lawson, Hanson 1974, chapter 23). All that matters of the n x (m + 1)
 * matrix [B y] is the triangle R of its QR factorisation, which grows block by block over the elements (Golub, Van Loan,
 * 5.2: sequential QR) in memory of m^2. The Gram matrix K = B^T B loses rows that depend on each other to 1e-8; R tells them
 * apart to 1e-15. It costs twice as much and is made only where the measured p of the cheap way is not good enough.
 */
#ifndef SUT_SURGERY_NNLS_H
#define SUT_SURGERY_NNLS_H

#include "surgery/prelude.h"

/* Elements of a block. */
#define SUT_FACTOR_ROWS 64

/* Rotate `rows` <= SUT_FACTOR_ROWS more rows into R: cols x cols, row-major, upper triangle; zeros to begin with. `block`:
 * cols columns of SUT_FACTOR_ROWS entries each; destroyed. */
SUT_PORTABLE void sut_factor_add(double *R, int cols, double *block, int rows);

/* What was found: the length of what is left, below which length that is nothing but rounding, and how many rounds it took. */
typedef struct sut_nnls_end {
    double length, noise;
    int rounds;
} sut_nnls_end;

/*
 * Multipliers from R ((m + 1)^2, y in the last column). Columns of B that vanish impose nothing.
 *
 * `from`: NULL, or multipliers that are in y already: y = M^1/2 p, p the step that they make. What is left to do is then
 * small beside y, and its rounding too: this is the refinement of a solution. `lambda`: out, the new multipliers; `delta`:
 * out, by how much they differ from `from`, with digits of its own. `work`: SUT_SURGERY_WORK(m). False: the solver reached
 * its limit of rounds.
 */
SUT_PORTABLE bool sut_nnls(const double *R, int m, const double *from, double *lambda, double *delta, double *work,
                           sut_nnls_end *end);

#endif /* SUT_SURGERY_NNLS_H */
