/*
 * The Gram matrix, the search for what is not finite, and the slices that the work is dealt in: against plain sums in long
 * double, for tensors of every length around a lane, a block and a chunk, at any scale.
 */
#include "support/step.h"

#include "backend/backend.h"
#include "optim/step.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_M = 9, MAX_TENSORS = 4 };

/* A layout over `n_tensors` arrays, built by hand. */
typedef struct arrays {
    int n_tensors, m;
    int64_t count[MAX_TENSORS], first_chunk[MAX_TENSORS + 1];
    sut_dtype dtype[MAX_TENSORS];
    void *memory[MAX_M * MAX_TENSORS];
    const void *data[MAX_M * MAX_TENSORS];
    sut_layout layout;
} arrays;

static void arrays_begin(arrays *a, int m, int n_tensors, const int64_t *count, const sut_dtype *dtype)
{
    memset(a, 0, sizeof *a);
    a->m = m;
    a->n_tensors = n_tensors;
    int64_t n = 0;
    for (int k = 0; k < n_tensors; ++k) {
        a->count[k] = count[k];
        a->dtype[k] = dtype[k];
        a->first_chunk[k + 1] = a->first_chunk[k] + (count[k] + SUT_CHUNK - 1) / SUT_CHUNK;
        n += count[k];
        for (int i = 0; i < m; ++i) {
            a->memory[i * n_tensors + k] = calloc((size_t)count[k] + 1, 8);
            a->data[i * n_tensors + k] = a->memory[i * n_tensors + k];
        }
    }
    a->layout = (sut_layout){n_tensors, a->count, a->dtype, a->first_chunk, a->first_chunk[n_tensors], n, NULL};
}

static void arrays_end(arrays *a)
{
    for (int k = 0; k < a->m * a->n_tensors; ++k)
        free(a->memory[k]);
}

static void set(arrays *a, int row, int tensor, int64_t k, double x)
{
    step_set(a->memory[row * a->n_tensors + tensor], a->dtype[tensor], k, x);
}

/* K by the definition, and the sum of absolute products that its rounding is measured by (f32 lanes: 3e-8 of it is usual,
 * 2e-7 five times the deviation). */
static void reference(const arrays *a, int i, int j, long double *dot, long double *size)
{
    *dot = *size = 0;
    for (int k = 0; k < a->n_tensors; ++k) {
        const void *const x = a->data[i * a->n_tensors + k], *const y = a->data[j * a->n_tensors + k];
        for (int64_t e = 0; x && y && e < a->count[k]; ++e) {
            const long double product = (long double)step_get(x, a->dtype[k], e) * step_get(y, a->dtype[k], e);
            *dot += product;
            *size += fabsl(product);
        }
    }
}

static void check_gram(const arrays *a, bool strict, const char *what)
{
    double K[MAX_M * MAX_M];
    sut_gram gram = {K, 0, false};
    const sut_rows rows = {a->data, a->m, NULL};
    for (int isa = SUT_ISA_BASELINE; isa <= SUT_ISA_AVX512; ++isa) {
        sut_context *const ctx = step_context(1 + isa, (sut_isa)isa);
        if (!ctx)
            continue;
        assert_int_equal(sut_backend_reserve(ctx, MAX_M), SUT_OK);
        const sut_status status = sut_gram_compute(ctx, &a->layout, &rows, strict, NULL, NULL, &gram);
        if (status != SUT_OK)
            fail_msg("%s: %s", what, sut_context_last_error(ctx));
        for (int i = 0; i < a->m; ++i)
            for (int j = 0; j < a->m; ++j) {
                long double dot, size;
                reference(a, i, j, &dot, &size);
                const long double scale = ldexpl(1, -2 * gram.exponent);
                const long double error = fabsl((long double)K[i * a->m + j] - dot * scale);
                if (!(error <= (gram.strict ? 4e-15L : 2e-7L) * size * scale + 1e-300L))
                    fail_msg("%s: K[%d][%d] is %.17g, expected %.17Lg", what, i, j, K[i * a->m + j], dot * scale);
                assert_true(K[i * a->m + j] == K[j * a->m + i]);
            }
        assert_true(gram.strict || !strict);
    }
}

static void every_length(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 15, 16, 17, 31, 511, 512, 513, 1000, 4095, 4096, 4097, 8193, 33001};
    test_random r = {31};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c)
        for (int m = 1; m <= MAX_M; m += counts[c] > 4097 ? 4 : 1) {
            for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F16; ++dtype) {
                arrays a;
                const sut_dtype type = (sut_dtype)dtype;
                arrays_begin(&a, m, 1, &counts[c], &type);
                for (int i = 0; i < m; ++i)
                    for (int64_t k = 0; k < counts[c]; ++k)
                        set(&a, i, 0, k, test_normal(&r));
                check_gram(&a, dtype == SUT_DTYPE_F16, "one tensor");
                arrays_end(&a);
            }
        }
}

/* Several tensors of several types, some of them absent from some rows. */
static void tensors_that_are_absent(void **state)
{
    (void)state;
    static const int64_t counts[MAX_TENSORS] = {5, 4100, 1, 700};
    static const sut_dtype types[MAX_TENSORS] = {SUT_DTYPE_F32, SUT_DTYPE_F64, SUT_DTYPE_BF16, SUT_DTYPE_F32};
    test_random r = {32};
    for (int round = 0; round < 20; ++round) {
        arrays a;
        arrays_begin(&a, 1 + round % 6, MAX_TENSORS, counts, types);
        for (int at = 0; at < a.m * MAX_TENSORS; ++at) {
            for (int64_t k = 0; k < counts[at % MAX_TENSORS]; ++k)
                set(&a, at / MAX_TENSORS, at % MAX_TENSORS, k, test_normal(&r));
            if (test_below(&r, 3) == 0)
                a.data[at] = NULL;
        }
        check_gram(&a, round % 2, "absent tensors");
        arrays_end(&a);
    }
}

/* Scales whose squares leave the range of f32, and of doubles; rows that nearly cancel are noticed. */
static void every_scale(void **state)
{
    (void)state;
    test_random r = {33};
    const int64_t n = 600;
    for (int k = 0; k < 24; ++k) {
        const sut_dtype type = k % 2 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
        const double scale = pow(10, type == SUT_DTYPE_F64 ? -290 + 25 * k : -34 + 3 * k);
        arrays a;
        arrays_begin(&a, 3, 1, &n, &type);
        for (int i = 0; i < 3; ++i)
            for (int64_t j = 0; j < n; ++j)
                set(&a, i, 0, j, scale * test_normal(&r));
        check_gram(&a, false, "scaled rows");
        arrays_end(&a);
    }
    for (int k = 0; k < 2; ++k) {
        const sut_dtype type = SUT_DTYPE_F32;
        double K[4];
        sut_gram gram = {K, 0, false};
        arrays a;
        arrays_begin(&a, 2, 1, &n, &type);
        for (int64_t j = 0; j < n; ++j) {
            const double x = test_normal(&r);
            set(&a, 0, 0, j, x);
            set(&a, 1, 0, j, k ? -x + 1e-3 * test_normal(&r) : test_normal(&r));
        }
        const sut_rows rows = {a.data, 2, NULL};
        sut_context *const ctx = step_context(1, SUT_ISA_AUTO);
        assert_int_equal(sut_backend_reserve(ctx, 2), SUT_OK);
        assert_int_equal(sut_gram_compute(ctx, &a.layout, &rows, false, NULL, NULL, &gram), SUT_OK);
        assert_int_equal(gram.strict, k); /* doubles only where they are needed */
        check_gram(&a, false, "rows that nearly cancel");
        arrays_end(&a);
    }
}

static int64_t find_nonfinite(sut_context *ctx, const void *x, int64_t n, sut_dtype dtype)
{
    int64_t index = -2;
    assert_int_equal(ctx->ops->find_nonfinite(ctx, x, n, dtype, &index), SUT_OK);
    return index;
}

/* The first element that is not finite, wherever it is. */
static void finding_what_is_not_finite(void **state)
{
    (void)state;
    enum { N = 9001 };
    static double memory[N];
    test_random r = {34};
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int isa = SUT_ISA_BASELINE; isa <= SUT_ISA_AVX512; ++isa) {
        sut_context *const ctx = step_context(2, (sut_isa)isa);
        if (!ctx)
            continue;
        for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F16; ++dtype)
            for (int round = 0; round < 40; ++round) {
                const sut_dtype type = (sut_dtype)dtype;
                const int64_t n = round % 4 == 0 ? 1 + test_below(&r, 40) : 1 + test_below(&r, N);
                const double largest = type == SUT_DTYPE_F64 ? DBL_MAX : type == SUT_DTYPE_F16 ? 65504 : 3.3e38;
                for (int64_t k = 0; k < n; ++k)
                    step_set(memory, type, k, k % 5 ? test_normal(&r) : k % 2 ? largest : -largest);
                assert_int_equal(find_nonfinite(ctx, memory, n, type), -1);
                const int64_t first = test_below(&r, (int)n), second = first + test_below(&r, (int)(n - first));
                step_set(memory, type, second, bad[test_below(&r, 3)]);
                step_set(memory, type, first, bad[test_below(&r, 3)]);
                assert_int_equal(find_nonfinite(ctx, memory, n, type), first);
            }
        assert_int_equal(find_nonfinite(ctx, memory, 0, SUT_DTYPE_F32), -1);
    }
}

/* Up to three large rows are read in two places at once: the same bits as beside a fourth row, which is not. */
static void large_rows(void **state)
{
    (void)state;
    static const int64_t counts[MAX_TENSORS] = {300001, 81920, 5, 180000};
    test_random r = {36};
    for (int round = 0; round < STEP_ROUNDS(6, 2); ++round) {
        sut_dtype types[MAX_TENSORS] = {SUT_DTYPE_F32, SUT_DTYPE_F32, SUT_DTYPE_F32, SUT_DTYPE_F32};
        types[round % MAX_TENSORS] = (sut_dtype)(SUT_DTYPE_F32 + round % 4);
        arrays a;
        arrays_begin(&a, 4, MAX_TENSORS, counts, types);
        for (int at = 0; at < a.m * MAX_TENSORS; ++at) {
            for (int64_t k = 0; k < counts[at % MAX_TENSORS]; ++k)
                set(&a, at / MAX_TENSORS, at % MAX_TENSORS, k, test_uniform(&r) - 0.3);
            if (round > 1 && test_below(&r, 8) == 0)
                a.data[at] = NULL;
        }
        for (int isa = SUT_ISA_BASELINE; isa <= SUT_ISA_AVX512; ++isa)
            for (int threads = 1; threads <= 3; threads += 2) {
                sut_context *const ctx = step_context(threads, (sut_isa)isa);
                if (!ctx)
                    continue;
                double K[4][16];
                assert_int_equal(sut_backend_reserve(ctx, 4), SUT_OK);
                for (int m = 4; m >= 1; --m) {
                    const sut_rows rows = {a.data, m, NULL};
                    assert_int_equal(ctx->ops->gram(ctx, &a.layout, &rows, false, K[m - 1]), SUT_OK);
                    for (int i = 0; i < m; ++i)
                        for (int j = 0; j < m; ++j)
                            assert_true(K[m - 1][i * m + j] == K[3][i * 4 + j]);
                }
            }
        if (round == 0)
            check_gram(&a, false, "large rows");
        arrays_end(&a);
    }
}

/* The largest absolute value of each row, in every type; Inf is one, NaN wins over all. */
static void largest_entries(void **state)
{
    (void)state;
    test_random r = {35};
    for (int round = 0; round < STEP_ROUNDS(120, 30); ++round) {
        int64_t counts[MAX_TENSORS];
        sut_dtype types[MAX_TENSORS];
        for (int k = 0; k < MAX_TENSORS; ++k) {
            counts[k] = k == round % 3 ? test_below(&r, 40000) : test_below(&r, 4) * test_below(&r, 30);
            types[k] = (sut_dtype)(SUT_DTYPE_F32 + test_below(&r, 4));
        }
        arrays a;
        arrays_begin(&a, 1 + round % 4, MAX_TENSORS, counts, types);
        double expected[4] = {0, 0, 0, 0};
        for (int at = 0; at < a.m * MAX_TENSORS; ++at) {
            const int row = at / MAX_TENSORS, tensor = at % MAX_TENSORS;
            const double scale = test_below(&r, 5) == 0 ? 1e-6 : 1;
            for (int64_t k = 0; k < counts[tensor]; ++k)
                set(&a, row, tensor, k, scale * test_normal(&r));
            if (counts[tensor] && test_below(&r, 3) == 0)
                set(&a, row, tensor, test_below(&r, (int)counts[tensor]), test_below(&r, 2) ? -100 : 100);
            if (counts[tensor] && test_below(&r, 12) == 0)
                set(&a, row, tensor, test_below(&r, (int)counts[tensor]), test_below(&r, 2) ? -INFINITY : NAN);
            if (test_below(&r, 6) == 0) {
                a.data[at] = NULL;
                continue;
            }
            for (int64_t k = 0; k < counts[tensor]; ++k) {
                const double x = fabs(step_get(a.data[at], types[tensor], k));
                expected[row] = isnan(x) || x > expected[row] ? x : expected[row];
            }
        }
        const sut_rows rows = {a.data, a.m, NULL};
        for (int isa = SUT_ISA_BASELINE; isa <= SUT_ISA_AVX512 && a.layout.n_elements > 0; ++isa) {
            sut_context *const ctx = step_context(1 + (round + isa) % 3, (sut_isa)isa);
            if (!ctx)
                continue;
            double largest[4];
            assert_int_equal(sut_backend_reserve(ctx, a.m), SUT_OK);
            assert_int_equal(ctx->ops->row_max(ctx, &a.layout, &rows, largest), SUT_OK);
            for (int i = 0; i < a.m; ++i)
                if (isnan(expected[i]) ? !isnan(largest[i]) : largest[i] != expected[i])
                    fail_msg("round %d, row %d: %g, expected %g", round, i, largest[i], expected[i]);
        }
        arrays_end(&a);
    }
}

/* Slices cover the chunks once, in order, none of them empty; their number depends on the size alone. */
static void slices(void **state)
{
    (void)state;
    test_random r = {35};
    for (int round = 0; round < 2000; ++round) {
        const int64_t n_chunks = round < 200 ? round + 1 : (int64_t)pow(10, 18 * test_uniform(&r));
        sut_layout layout = {.n_chunks = n_chunks,
                             .n_elements = n_chunks < 100 ? n_chunks * SUT_CHUNK : INT64_C(1) << 40};
        const int n = sut_n_slices(&layout);
        assert_true(n >= 1 && n <= SUT_MAX_SLICES && n <= n_chunks);
        assert_int_equal(sut_slice_begin(n_chunks, n, 0), 0);
        assert_true(sut_slice_begin(n_chunks, n, n) == n_chunks);
        int64_t smallest = INT64_MAX, largest = 0;
        for (int s = 0; s < n; ++s) {
            const int64_t length = sut_slice_begin(n_chunks, n, s + 1) - sut_slice_begin(n_chunks, n, s);
            smallest = length < smallest ? length : smallest;
            largest = length > largest ? length : largest;
        }
        assert_true(smallest >= 1 && largest - smallest <= 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length),    cmocka_unit_test(tensors_that_are_absent),
        cmocka_unit_test(every_scale),     cmocka_unit_test(finding_what_is_not_finite),
        cmocka_unit_test(largest_entries), cmocka_unit_test(large_rows),
        cmocka_unit_test(slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
