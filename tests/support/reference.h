/*
 * Projection on the cone { p : g_i . p >= 0 } by trying every set of tight rows, in long double: slow, plain, and written
 * without looking at the library's solver.
 */
#ifndef SUT_TEST_REFERENCE_H
#define SUT_TEST_REFERENCE_H

enum { REFERENCE_MAX_M = 4, REFERENCE_MAX_N = 200 };

/*
 * p = argmin |p - u|_M over the cone. m <= REFERENCE_MAX_M rows, row i at G + i * stride, n <= REFERENCE_MAX_N elements; w is
 * the diagonal of M^-1, where 0 freezes a coordinate.
 */
void reference_project(const double *G, int stride, int m, int n, const double *w, const double *u, double *p);

#endif /* SUT_TEST_REFERENCE_H */
