/* Refusals of the public surgery calls: nothing written, the text names what is wrong; out of memory; overlapping arrays. */
#include "support/surgery.h"
#include "surgery/surgery.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double G[3][5] = {{1, 2, 3, 4, 5}, {-1, 0.5, 2, -3, 1}, {0.3, 1, -1, 2, 0}};
static const void *const grads[3] = {G[0], G[1], G[2]};

/* The call fails with `status`, its text contains `word`, and neither out nor report is touched. */
static void refused(const sut_surgery_config *config, const void *const *rows, int m, int64_t n, sut_dtype dtype,
                    const double *losses, sut_status status, const char *word)
{
    sut_context *const ctx = test_context();
    double out[5], kept[5];
    sut_surgery_report report, before;
    memset(out, 0x5a, sizeof out);
    memset(kept, 0x5a, sizeof kept);
    memset(&report, 0x5a, sizeof report);
    report.struct_size = sizeof report;
    before = report;
    assert_int_equal(sut_surgery_direction(ctx, config, rows, m, n, dtype, losses, 0, out, &report), status);
    if (!strstr(sut_context_last_error(ctx), word))
        fail_msg("\"%s\" does not contain \"%s\"", sut_context_last_error(ctx), word);
    assert_memory_equal(out, kept, sizeof out);
    assert_memory_equal(&report, &before, sizeof report);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    sut_surgery_config config;
    sut_surgery_config_init(&config, SUT_SURGERY_CONFIG);
    const void *const holes[3] = {G[0], NULL, G[2]};
    refused(NULL, grads, 3, 5, SUT_DTYPE_F64, NULL, SUT_ERROR_INVALID_ARGUMENT, "config is NULL");
    refused(&config, NULL, 3, 5, SUT_DTYPE_F64, NULL, SUT_ERROR_INVALID_ARGUMENT, "grads is NULL");
    refused(&config, holes, 3, 5, SUT_DTYPE_F64, NULL, SUT_ERROR_INVALID_ARGUMENT, "grads[1]");
    refused(&config, grads, 0, 5, SUT_DTYPE_F64, NULL, SUT_ERROR_OUT_OF_RANGE, "m is 0");
    refused(&config, grads, 65, 5, SUT_DTYPE_F64, NULL, SUT_ERROR_OUT_OF_RANGE, "m is 65");
    refused(&config, grads, 3, 0, SUT_DTYPE_F64, NULL, SUT_ERROR_INVALID_ARGUMENT, "n is 0");
    refused(&config, grads, 3, -1, SUT_DTYPE_F64, NULL, SUT_ERROR_INVALID_ARGUMENT, "n is -1");
    refused(&config, grads, 3, INT64_MAX, SUT_DTYPE_F64, NULL, SUT_ERROR_INVALID_ARGUMENT, "n is");
    refused(&config, grads, 3, 5, SUT_DTYPE_BF16, NULL, SUT_ERROR_UNSUPPORTED, "bf16");
    refused(&config, grads, 3, 5, (sut_dtype)77, NULL, SUT_ERROR_UNSUPPORTED, "dtype");
    refused(&config, grads, 3, 5, SUT_DTYPE_F64, (const double[]){1, NAN, 1}, SUT_ERROR_NOT_FINITE, "loss 1");
    config.struct_size = 0;
    refused(&config, grads, 3, 5, SUT_DTYPE_F64, NULL, SUT_ERROR_INVALID_ARGUMENT, "struct_size");
    config.struct_size = sizeof config + 1;
    refused(&config, grads, 3, 5, SUT_DTYPE_F64, NULL, SUT_ERROR_INVALID_ARGUMENT, "struct_size");
    sut_surgery_config_init(&config, SUT_SURGERY_MGDA);
    config.mgda_normalisation = SUT_MGDA_LOSS;
    refused(&config, grads, 3, 5, SUT_DTYPE_F64, NULL, SUT_ERROR_INVALID_ARGUMENT, "losses is NULL");
    refused(&config, grads, 3, 5, SUT_DTYPE_F64, (const double[]){1, 1, 0}, SUT_ERROR_OUT_OF_RANGE, "loss 2 is 0");
    config.sdmgrad_lambda = NAN;
    refused(&config, grads, 3, 5, SUT_DTYPE_F64, NULL, SUT_ERROR_OUT_OF_RANGE, "sdmgrad_lambda");
    assert_int_equal(sut_surgery_direction(NULL, &config, grads, 3, 5, SUT_DTYPE_F64, NULL, 0, NULL, NULL),
                     SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_surgery_weights(NULL, &config, G[0], 1, NULL, 0, NULL), SUT_ERROR_INVALID_ARGUMENT);
}

static void overlaps_are_refused(void **state)
{
    (void)state;
    sut_context *const ctx = test_context();
    sut_surgery_config config;
    double block[20], kept[20];
    for (int k = 0; k < 20; ++k)
        block[k] = kept[k] = k + 1;
    const void *const rows[2] = {block, block + 5};
    sut_surgery_config_init(&config, SUT_SURGERY_SUM);
    for (int shift = 0; shift < 10; ++shift) {
        assert_int_equal(sut_surgery_direction(ctx, &config, rows, 2, 5, SUT_DTYPE_F64, NULL, 0, block + shift, NULL),
                         SUT_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(sut_context_last_error(ctx), "overlaps"));
    }
    assert_memory_equal(block, kept, sizeof block);
    assert_int_equal(sut_surgery_direction(ctx, &config, rows, 2, 5, SUT_DTYPE_F64, NULL, 0, block + 10, NULL), SUT_OK);
    for (int k = 0; k < 5; ++k)
        assert_true(block[10 + k] == kept[k] + kept[5 + k]);
}

/* Any byte offset that is not a multiple of the element size, in a gradient and in out. */
static void misaligned_pointers_are_refused(void **state)
{
    (void)state;
    static const struct {
        sut_dtype dtype;
        size_t size;
    } types[2] = {{SUT_DTYPE_F32, sizeof(float)}, {SUT_DTYPE_F64, sizeof(double)}};
    static double memory[2][8];
    sut_surgery_config config;
    char *const block = (char *)memory[0], *const out = (char *)memory[1];
    sut_surgery_config_init(&config, SUT_SURGERY_SUM);
    for (int t = 0; t < 2; ++t) {
        for (size_t shift = 0; shift < 2 * types[t].size; ++shift) {
            const bool fits = shift % types[t].size == 0;
            const void *const rows[2] = {block, block + shift};
            assert_int_equal(
                sut_surgery_direction(test_context(), &config, rows, 2, 5, types[t].dtype, NULL, 0, NULL, NULL),
                fits ? SUT_OK : SUT_ERROR_INVALID_ARGUMENT);
            if (!fits)
                assert_non_null(strstr(sut_context_last_error(test_context()), "grads[1] is not aligned"));
            assert_int_equal(
                sut_surgery_direction(test_context(), &config, rows, 1, 5, types[t].dtype, NULL, 0, out + shift, NULL),
                fits ? SUT_OK : SUT_ERROR_INVALID_ARGUMENT);
            if (!fits)
                assert_non_null(strstr(sut_context_last_error(test_context()), "out is not aligned"));
        }
    }
}

/* C005: one bad entry among 1001, found by loss and index, for every method. */
static void bad_entries_are_named(void **state)
{
    (void)state;
    static double big[3][1001], out[1001], kept[1001];
    static float small[3][1001];
    const void *const rows[3] = {big[0], big[1], big[2]}, *const floats[3] = {small[0], small[1], small[2]};
    static const double bad[3] = {NAN, INFINITY, -INFINITY};
    sut_context *const ctx = test_context();
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
        for (int b = 0; b < 3; ++b) {
            sut_surgery_config config;
            sut_surgery_config_init(&config, (sut_surgery_method)method);
            config.preference = method == SUT_SURGERY_FIXED ? (const double[]){1, 1, 1} : NULL;
            for (int i = 0; i < 3; ++i)
                for (int k = 0; k < 1001; ++k)
                    big[i][k] = small[i][k] = 1;
            big[1][1000] = bad[b];
            small[1][1000] = (float)bad[b];
            memset(out, 0x5a, sizeof out);
            memset(kept, 0x5a, sizeof kept);
            assert_int_equal(sut_surgery_direction(ctx, &config, rows, 3, 1001, SUT_DTYPE_F64, NULL, 0, out, NULL),
                             SUT_ERROR_NOT_FINITE);
            assert_non_null(strstr(sut_context_last_error(ctx), "loss 1"));
            assert_non_null(strstr(sut_context_last_error(ctx), "1000"));
            assert_int_equal(sut_surgery_direction(ctx, &config, floats, 3, 1001, SUT_DTYPE_F32, NULL, 0, out, NULL),
                             SUT_ERROR_NOT_FINITE);
            assert_memory_equal(out, kept, sizeof out);
        }
    }
}

static void gram_matrices_are_checked(void **state)
{
    (void)state;
    sut_context *const ctx = test_context();
    sut_surgery_config config;
    sut_surgery_report report;
    sut_surgery_config_init(&config, SUT_SURGERY_CONFIG);
    sut_surgery_report_init(&report);
    const double nan_entry[4] = {1, 0, NAN, 1}, negative[4] = {1, 0, 0, -1};
    assert_int_equal(sut_surgery_weights(ctx, &config, nan_entry, 2, NULL, 0, &report), SUT_ERROR_NOT_FINITE);
    assert_non_null(strstr(sut_context_last_error(ctx), "gram[1][0]"));
    assert_int_equal(sut_surgery_weights(ctx, &config, negative, 2, NULL, 0, &report), SUT_ERROR_OUT_OF_RANGE);
    assert_non_null(strstr(sut_context_last_error(ctx), "gram[1][1]"));
    assert_int_equal(sut_surgery_weights(ctx, &config, NULL, 2, NULL, 0, &report), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(report.n_losses, 0);
    /* The lower triangle is read; NaN above it does not matter. */
    const double lower[4] = {1, NAN, -0.5, 4};
    assert_int_equal(sut_surgery_weights(ctx, &config, lower, 2, NULL, 0, &report), SUT_OK);
    assert_true(fabs(report.min_pair_cos + 0.25) <= 1e-15);
    report.struct_size = 3;
    assert_int_equal(sut_surgery_weights(ctx, &config, lower, 2, NULL, 0, &report), SUT_ERROR_INVALID_ARGUMENT);
}

/* C048: whatever comes in, success comes with finite numbers. */
static void success_never_comes_with_nan(void **state)
{
    (void)state;
    static const double extremes[] = {0, 1, -1, 1e308, -1e308, 1e-308, 5e-324, NAN, INFINITY, -INFINITY, 1e150, 1e-150};
    test_random r = {51};
    int refusals = 0, successes = 0;
    for (int round = 0; round < 3000; ++round) {
        const int m = 1 + test_below(&r, 5), n = 1 + test_below(&r, 4);
        double rows[20], a[4], K[25], losses[5];
        for (int k = 0; k < m * n; ++k)
            rows[k] = test_uniform(&r) < 0.5 ? test_normal(&r) : extremes[test_below(&r, round % 2 ? 12 : 7)];
        for (int i = 0; i < m; ++i)
            losses[i] = test_uniform(&r);
        for (int k = 0; k < m * m; ++k)
            K[k] = test_uniform(&r) < 0.7 ? test_normal(&r) : extremes[test_below(&r, 12)];
        for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
            sut_surgery_config config;
            sut_surgery_report report;
            sut_surgery_config_init(&config, (sut_surgery_method)method);
            config.preference = method == SUT_SURGERY_FIXED ? (const double[]){1, 2, 1, 2, 1} : NULL;
            config.mgda_normalisation = (sut_mgda_normalisation)test_below(&r, 4);
            config.mgda_fw_max_iterations = 1;
            config.mgda_frank_wolfe = test_below(&r, 2);
            config.cagrad_eps = test_below(&r, 2) ? 1e-8 : 0.0;
            if (test_below(&r, 2))
                config.norm_eps = config.reg_eps = 0.0;
            sut_status status = test_direction_status(&config, rows, m, n, losses, a, &report);
            if (status != SUT_OK) {
                ++refusals;
                assert_true(sut_context_last_error(test_context())[0] != '\0');
            } else {
                ++successes;
                for (int i = 0; i < m; ++i)
                    assert_true(isfinite(report.weights[i]) && isfinite(report.cos_a[i]) && !isnan(report.norms[i]));
                assert_true(isfinite(report.min_cos) && isfinite(report.alignment) && !isnan(report.norm_a));
                for (int k = 0; k < n; ++k)
                    assert_true(!isnan(a[k]));
            }
            /* A matrix that is no Gram matrix at all may be refused, or give something finite. */
            status = sut_surgery_weights(test_context(), &config, K, m, losses, 0, &report);
            for (int i = 0; i < m && status == SUT_OK; ++i)
                assert_true(isfinite(report.weights[i]) && isfinite(report.cos_a[i]));
        }
    }
    assert_true(refusals > 1000 && successes > 1000);
}

static void overflow_is_refused_before_writing(void **state)
{
    (void)state;
    static const float F[4] = {3e38f, 1, 3e38f, 1};
    const void *const rows[2] = {F, F + 2};
    float out[2] = {7, 7};
    sut_surgery_config config;
    sut_surgery_config_init(&config, SUT_SURGERY_SUM);
    assert_int_equal(sut_surgery_direction(test_context(), &config, rows, 2, 2, SUT_DTYPE_F32, NULL, 0, out, NULL),
                     SUT_ERROR_OUT_OF_RANGE);
    assert_non_null(strstr(sut_context_last_error(test_context()), "overflow"));
    assert_true(out[0] == 7 && out[1] == 7);
    sut_surgery_config_init(&config, SUT_SURGERY_MEAN);
    assert_int_equal(sut_surgery_direction(test_context(), &config, rows, 2, 2, SUT_DTYPE_F32, NULL, 0, out, NULL),
                     SUT_OK);
    assert_true(out[0] == 3e38f && out[1] == 1);
}

/* Allocation: the n-th request fails, for every n; then everything works. */
typedef struct budget {
    int left, live;
} budget;

static void *allocate(void *user, size_t size)
{
    budget *const b = user;
    if (b->left-- <= 0)
        return NULL;
    ++b->live;
    return malloc(size);
}

static void *resize(void *user, void *pointer, size_t size)
{
    budget *const b = user;
    if (b->left-- <= 0)
        return NULL;
    b->live += pointer == NULL;
    return realloc(pointer, size);
}

static void release(void *user, void *pointer)
{
    ((budget *)user)->live -= pointer != NULL;
    free(pointer);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    bool done = false;
    for (int n = 0; n < 20 && !done; ++n) {
        budget b = {1000, 0};
        sut_context_config context;
        sut_context *ctx;
        sut_context_config_init(&context);
        context.n_threads = 1;
        context.allocator = (sut_allocator){allocate, resize, release, &b};
        assert_int_equal(sut_context_create(&ctx, &context), SUT_OK);
        b.left = n;
        double out[5] = {7, 7, 7, 7, 7}, K[9];
        sut_surgery_config config;
        sut_surgery_config_init(&config, SUT_SURGERY_UPGRAD);
        test_gram(G[0], 3, 5, K);
        const sut_status direction =
            sut_surgery_direction(ctx, &config, grads, 3, 5, SUT_DTYPE_F64, NULL, 0, out, NULL);
        const sut_status weights = sut_surgery_weights(ctx, &config, K, 3, NULL, 0, NULL);
        assert_true(direction == SUT_OK || direction == SUT_ERROR_OUT_OF_MEMORY);
        assert_true(weights == SUT_OK || weights == SUT_ERROR_OUT_OF_MEMORY);
        assert_true(direction == SUT_OK || out[0] == 7);
        done = direction == SUT_OK && weights == SUT_OK;
        assert_true(n > 0 || !done);
        sut_context_destroy(ctx);
        assert_int_equal(b.live, 0);
    }
    assert_true(done);
}

static void parts_may_be_left_out(void **state)
{
    (void)state;
    sut_context *const ctx = test_context();
    sut_surgery_config config;
    sut_surgery_report report, shorter;
    double a[5], K[9];
    sut_surgery_config_init(&config, SUT_SURGERY_CAGRAD);
    sut_surgery_report_init(&report);
    assert_int_equal(sut_surgery_direction(ctx, &config, grads, 3, 5, SUT_DTYPE_F64, NULL, 0, a, NULL), SUT_OK);
    assert_int_equal(sut_surgery_direction(ctx, &config, grads, 3, 5, SUT_DTYPE_F64, NULL, 0, NULL, &report), SUT_OK);
    for (int k = 0; k < 5; ++k) {
        const double x = report.weights[0] * G[0][k] + report.weights[1] * G[1][k] + report.weights[2] * G[2][k];
        assert_true(fabs(x - a[k]) <= 1e-14);
    }
    /* The weights from the Gram matrix are those of the direction. */
    test_gram(G[0], 3, 5, K);
    sut_surgery_report_init(&shorter);
    assert_int_equal(sut_surgery_weights(ctx, &config, K, 3, NULL, 0, &shorter), SUT_OK);
    test_close(shorter.weights, report.weights, 3, 1e-14);
    /* A caller compiled against a shorter report gets its part. */
    sut_surgery_report_init(&shorter);
    shorter.struct_size = offsetof(sut_surgery_report, norms);
    assert_int_equal(sut_surgery_direction(ctx, &config, grads, 3, 5, SUT_DTYPE_F64, NULL, 0, NULL, &shorter), SUT_OK);
    assert_memory_equal(shorter.weights, report.weights, 3 * sizeof(double));
    assert_true(shorter.norms[0] == 0.0);
    /* And one that was compiled against a shorter config gets the defaults of the rest. */
    config.cagrad_c = 3.0;
    config.struct_size = offsetof(sut_surgery_config, cagrad_c);
    sut_surgery_report_init(&shorter);
    assert_int_equal(sut_surgery_direction(ctx, &config, grads, 3, 5, SUT_DTYPE_F64, NULL, 0, NULL, &shorter), SUT_OK);
    assert_memory_equal(shorter.weights, report.weights, 3 * sizeof(double));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(overlaps_are_refused),
        cmocka_unit_test(misaligned_pointers_are_refused),
        cmocka_unit_test(bad_entries_are_named),
        cmocka_unit_test(gram_matrices_are_checked),
        cmocka_unit_test(success_never_comes_with_nan),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(parts_may_be_left_out),
        cmocka_unit_test(overflow_is_refused_before_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
