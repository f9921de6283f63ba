/*
 * Every member of sut_surgery_config: a value outside its range is refused by name (C051), and two values inside make a
 * visible difference (C050). A member that is missing from the table fails the test: every byte of the struct belongs to
 * a row of the table or is padding.
 */
#include "support/surgery.h"
#include "surgery/surgery.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

typedef enum kind { INTEGER, REAL, POINTER } kind;

typedef struct option {
    const char *name;
    size_t offset, size;
    kind kind;
    double bad[5]; /* values that must be refused, NaN-terminated for integers; NaN and Inf come on top for reals */
    int n_bad;
} option;

#define ROW(member, kind, ...)                                                                        \
    {                                                                                                 \
#member, offsetof(sut_surgery_config, member), sizeof((sut_surgery_config *)0)->member, kind, \
            {__VA_ARGS__ }, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double))                   \
    }

static const option options[] = {
    ROW(struct_size, POINTER, 0),
    ROW(method, INTEGER, -1, SUT_SURGERY_COUNT),
    ROW(scale_to_sum, INTEGER, -1, 2),
    ROW(preference, POINTER, 0),
    ROW(order, POINTER, 0),
    ROW(pcgrad_identity_order, INTEGER, -1, 2),
    ROW(pcgrad_mean, INTEGER, -1, 2),
    ROW(config_length, INTEGER, -1, 7),
    ROW(config_row, INTEGER, -1, 3),
    ROW(cagrad_c, REAL, -0.1),
    ROW(cagrad_rescale, INTEGER, -1, 3),
    ROW(cagrad_eps, REAL, -1e-9),
    ROW(cagrad_pareto, INTEGER, -1, 3),
    ROW(imtlg_abs_normaliser, INTEGER, -1, 2),
    ROW(aligned_scale, INTEGER, -1, 3),
    ROW(aligned_rank_tol, REAL, 0, 1, -0.5, 2),
    ROW(norm_eps, REAL, -1e-9),
    ROW(reg_eps, REAL, -1e-9),
    ROW(mgda_normalisation, INTEGER, -1, 4),
    ROW(mgda_frank_wolfe, INTEGER, -1, 2),
    ROW(mgda_fw_epsilon, REAL, 0, -1),
    ROW(mgda_fw_max_iterations, INTEGER, 0, -1),
    ROW(nash_max_norm, REAL, -1),
    ROW(nash_update_every, INTEGER, 0, -1),
    ROW(sdmgrad_lambda, REAL, -0.1),
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static void put(sut_surgery_config *config, const option *o, double value)
{
    char *const to = (char *)config + o->offset;
    const int whole = o->kind == INTEGER ? (int)value : 0;
    if (o->kind == INTEGER)
        memcpy(to, &whole, sizeof whole);
    else
        memcpy(to, &value, sizeof value);
}

static void the_table_covers_the_struct(void **state)
{
    (void)state;
    bool covered[sizeof(sut_surgery_config)] = {false};
    for (int k = 0; k < N_OPTIONS; ++k) {
        assert_true(options[k].kind == POINTER || options[k].size == (options[k].kind == INTEGER ? sizeof(int) : 8));
        for (size_t byte = 0; byte < options[k].size; ++byte)
            covered[options[k].offset + byte] = true;
    }
    size_t hole = 0;
    for (size_t byte = 0; byte < sizeof covered; ++byte) {
        hole = covered[byte] ? 0 : hole + 1;
        assert_true(hole <= 4); /* alignment of a double after an int */
    }
    /* No two ints in a hole: the number of members is what the sizes say. */
    size_t total = 0;
    for (int k = 0; k < N_OPTIONS; ++k)
        total += options[k].size;
    assert_true(sizeof(sut_surgery_config) - total <= 7 * 4);
}

/* The queries by name against the struct: every number can be found, has the default of _init, and goes in and out. */
static void queries_by_name(void **state)
{
    (void)state;
    bool found[N_OPTIONS] = {false};
    sut_parameter_info info;
    double value = 7;
    for (int m = 0; m < SUT_SURGERY_COUNT; ++m) {
        const sut_surgery_method method = (sut_surgery_method)m;
        sut_surgery_config config, kept;
        sut_surgery_config_init(&config, method);
        int n = 0;
        for (; sut_surgery_option(method, n, &info) == SUT_OK; ++n) {
            const option *o = NULL;
            for (int k = 0; k < N_OPTIONS; ++k)
                if (strcmp(options[k].name, info.name) == 0) {
                    o = &options[k];
                    found[k] = true;
                }
            assert_non_null(o);
            assert_int_equal(info.is_array, o->kind == POINTER);
            if (info.is_array) {
                assert_int_equal(sut_surgery_config_set(&config, info.name, 1), SUT_ERROR_INVALID_ARGUMENT);
                assert_int_equal(sut_surgery_config_get(&config, info.name, &value), SUT_ERROR_INVALID_ARGUMENT);
                continue;
            }
            assert_int_equal(info.is_integer, o->kind == INTEGER);
            assert_int_equal(sut_surgery_config_get(&config, info.name, &value), SUT_OK);
            assert_true(value == info.default_value);
            if (info.choices) {
                int choices = 0;
                while (info.choices[choices])
                    ++choices;
                assert_true(choices == (int)info.maximum + 1 && info.minimum == 0 && info.is_integer && !info.is_flag);
            }
            kept = config;
            for (int k = 0; k < o->n_bad; ++k) {
                if (strcmp(info.name, "config_row") == 0 && o->bad[k] > 0)
                    continue; /* the table does not know m */
                assert_int_equal(sut_surgery_config_set(&config, info.name, o->bad[k]), SUT_ERROR_OUT_OF_RANGE);
            }
            const double never[] = {NAN, INFINITY, -INFINITY, 1e300, 0.5};
            for (int k = 0; k < (info.is_integer ? 5 : 3); ++k)
                assert_int_equal(sut_surgery_config_set(&config, info.name, never[k]), SUT_ERROR_OUT_OF_RANGE);
            assert_memory_equal(&config, &kept, sizeof config);
            const double good = info.is_integer ? info.maximum : 0.0625;
            assert_int_equal(sut_surgery_config_set(&config, info.name, good), SUT_OK);
            assert_int_equal(sut_surgery_config_get(&config, info.name, &value), SUT_OK);
            assert_true(value == good);
            put(&kept, o, good);
            assert_memory_equal(&config, &kept, sizeof config); /* that member and no other */
        }
        assert_true(n >= 1);
        assert_int_equal(sut_surgery_option(method, n + 1, &info), SUT_ERROR_OUT_OF_RANGE);
        assert_int_equal(sut_surgery_option(method, -1, &info), SUT_ERROR_OUT_OF_RANGE);
        assert_int_equal(sut_surgery_option(method, 0, NULL), SUT_ERROR_INVALID_ARGUMENT);
        assert_int_equal(sut_surgery_config_set(&config, "nonsense", 1), SUT_ERROR_INVALID_ARGUMENT);
        assert_int_equal(sut_surgery_config_set(&config, NULL, 1), SUT_ERROR_INVALID_ARGUMENT);
        assert_int_equal(sut_surgery_config_get(&config, "scale_to_sum", NULL), SUT_ERROR_INVALID_ARGUMENT);
    }
    for (int k = 0; k < N_OPTIONS; ++k)
        if (!found[k] && strcmp(options[k].name, "struct_size") != 0 && strcmp(options[k].name, "method") != 0)
            fail_msg("no method has the option %s", options[k].name);
    sut_surgery_config config;
    sut_surgery_config_init(&config, SUT_SURGERY_SUM);
    assert_int_equal(sut_surgery_config_set(&config, "cagrad_c", 1), SUT_ERROR_INVALID_ARGUMENT); /* not of sum */
    assert_int_equal(sut_surgery_config_set(NULL, "scale_to_sum", 1), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_surgery_option(SUT_SURGERY_COUNT, 0, &info), SUT_ERROR_INVALID_ARGUMENT);
    /* A struct of an older program, which ends before the option. */
    config.method = SUT_SURGERY_CAGRAD;
    config.struct_size = offsetof(sut_surgery_config, cagrad_c);
    assert_int_equal(sut_surgery_config_set(&config, "cagrad_c", 1), SUT_ERROR_INVALID_ARGUMENT);
}

static void init_leaves_no_rubbish(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
        sut_surgery_config a, b;
        memset(&a, 0x5a, sizeof a);
        memset(&b, 0xa5, sizeof b);
        sut_surgery_config_init(&a, (sut_surgery_method)method);
        sut_surgery_config_init(&b, (sut_surgery_method)method);
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(a.struct_size, sizeof a);
        assert_int_equal(a.method, method);
        a.preference = method == SUT_SURGERY_FIXED ? (const double[]){1, 1, 1} : NULL;
        assert_int_equal(sut_surgery_validate(test_context(), &a, 3), SUT_OK);
    }
    sut_surgery_report a, b;
    memset(&a, 0x5a, sizeof a);
    memset(&b, 0xa5, sizeof b);
    sut_surgery_report_init(&a);
    sut_surgery_report_init(&b);
    assert_memory_equal(&a, &b, sizeof a);
    /* A caller compiled against a shorter struct: nothing behind it is touched. */
    unsigned char bytes[sizeof(sut_surgery_config)];
    memset(bytes, 0x5a, sizeof bytes);
    sut_surgery_config_init_sized((sut_surgery_config *)(void *)bytes, 16, SUT_SURGERY_MEAN);
    for (size_t k = 16; k < sizeof bytes; ++k)
        assert_int_equal(bytes[k], 0x5a);
}

static void refused(const sut_surgery_config *config, const char *name, int m)
{
    sut_context *const ctx = test_context();
    const sut_status status = sut_surgery_validate(ctx, config, m);
    assert_true(status == SUT_ERROR_OUT_OF_RANGE || status == SUT_ERROR_INVALID_ARGUMENT);
    if (!strstr(sut_context_last_error(ctx), name))
        fail_msg("the text \"%s\" does not name %s", sut_context_last_error(ctx), name);
}

static void values_outside_their_range_are_refused_by_name(void **state)
{
    (void)state;
    sut_surgery_config config;
    for (int k = 0; k < N_OPTIONS; ++k) {
        if (options[k].kind == POINTER)
            continue;
        for (int v = 0; v < options[k].n_bad; ++v) {
            sut_surgery_config_init(&config, SUT_SURGERY_CONFIG);
            put(&config, &options[k], options[k].bad[v]);
            refused(&config, options[k].name, 3);
        }
        for (int v = 0; v < 3 && options[k].kind == REAL; ++v) {
            sut_surgery_config_init(&config, SUT_SURGERY_CONFIG);
            put(&config, &options[k], (const double[]){NAN, INFINITY, -INFINITY}[v]);
            refused(&config, options[k].name, 3);
        }
    }
    sut_surgery_config_init(&config, SUT_SURGERY_SUM);
    refused(&config, "m is 0", 0);
    refused(&config, "m is 65", 65);
}

static void bad_preferences_and_orders(void **state)
{
    (void)state;
    static const sut_surgery_method users[] = {SUT_SURGERY_CONFIG, SUT_SURGERY_ALIGNED_MTL, SUT_SURGERY_UPGRAD,
                                               SUT_SURGERY_DUALPROJ, SUT_SURGERY_FIXED};
    sut_surgery_config config;
    for (size_t k = 0; k < sizeof users / sizeof users[0]; ++k) {
        sut_surgery_config_init(&config, users[k]);
        config.preference = (const double[]){1, NAN, 1};
        refused(&config, "preference[1]", 3);
        config.preference = (const double[]){1, 1, INFINITY};
        refused(&config, "preference[2]", 3);
        config.preference = (const double[]){-1, 1, 1};
        if (users[k] == SUT_SURGERY_FIXED)
            assert_int_equal(sut_surgery_validate(test_context(), &config, 3), SUT_OK);
        else
            refused(&config, "preference[0]", 3);
    }
    sut_surgery_config_init(&config, SUT_SURGERY_CONFIG);
    config.preference = (const double[]){0, 0, 0};
    refused(&config, "preference", 3);
    sut_surgery_config_init(&config, SUT_SURGERY_FIXED);
    refused(&config, "preference", 3);
    sut_surgery_config_init(&config, SUT_SURGERY_PCGRAD);
    config.order = (const int[]){0, 1, 1, 1};
    refused(&config, "order[1] holds 1 twice", 2);
    config.order = (const int[]){0, 2, 1, 0};
    refused(&config, "order[0][1] is 2", 2);
    config.order = (const int[]){0, -1, 1, 0};
    refused(&config, "order[0][1] is -1", 2);
}

/* Effects. Each entry sets up a method, and two or more variants whose results must differ pairwise. */

static const double rows[3][4] = {{1, 2, -1, 0.5}, {-1.5, 1, 2, 0.3}, {0.2, -2, 1.7, 1}};
static const double opposed[3][4] = {{1, 0, 0, 0}, {-1, 0, 0, 0}, {0.5, 1, 0, 0}}; /* stationary, mean not zero */
/* x_3 < 0 in C x = 1 and d_3 small: a negative normaliser of IMTL-G. */
static const double negative[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0.006, 0.006, 0.0052915, 0}};
/* The long row is no part of the point of least norm: MGDA and SDMGrad differ only there. */
static const double uneven[3][4] = {{1, 2, -1, 0.5}, {-1.5, 1, 2, 0.3}, {3, 8, 2, 2}};
static const double losses[3] = {0.5, 2, 3};

typedef struct effect {
    const char *member;
    sut_surgery_method method;
    int n_values;
    double values[7];
    double scale;         /* of the rows */
    const double (*G)[4]; /* NULL: rows */
    const char *with;     /* another member that is set first */
    double with_value;
} effect;

static const effect effects[] = {
    {"scale_to_sum", SUT_SURGERY_MEAN, 2, {0, 1}, 1, NULL, NULL, 0},
    {"pcgrad_mean", SUT_SURGERY_PCGRAD, 2, {0, 1}, 1, NULL, NULL, 0},
    {"config_length", SUT_SURGERY_CONFIG, 7, {0, 1, 2, 3, 4, 5, 6}, 1, NULL, "config_row", 1},
    {"config_row", SUT_SURGERY_CONFIG, 3, {0, 1, 2}, 1, NULL, "config_length", SUT_CONFIG_SPECIFIC},
    {"cagrad_c", SUT_SURGERY_CAGRAD, 3, {0, 0.4, 0.5}, 1, NULL, NULL, 0},
    {"cagrad_rescale", SUT_SURGERY_CAGRAD, 3, {0, 1, 2}, 1, NULL, NULL, 0},
    {"cagrad_eps", SUT_SURGERY_CAGRAD, 2, {0, 1e-2}, 1, NULL, NULL, 0},
    {"cagrad_pareto", SUT_SURGERY_CAGRAD, 3, {0, 1, 2}, 1, opposed, NULL, 0},
    {"imtlg_abs_normaliser", SUT_SURGERY_IMTLG, 2, {0, 1}, 1, negative, NULL, 0},
    {"aligned_scale", SUT_SURGERY_ALIGNED_MTL, 3, {0, 1, 2}, 1, NULL, NULL, 0},
    {"aligned_rank_tol", SUT_SURGERY_ALIGNED_MTL, 2, {1e-7, 0.3}, 1, NULL, NULL, 0},
    {"norm_eps", SUT_SURGERY_UPGRAD, 2, {0, 1e-4}, 1e-4, NULL, NULL, 0},
    {"norm_eps", SUT_SURGERY_DUALPROJ, 2, {0, 1e-4}, 1e-4, opposed, NULL, 0},
    {"reg_eps", SUT_SURGERY_UPGRAD, 2, {0, 1e-4}, 1, NULL, NULL, 0},
    {"reg_eps", SUT_SURGERY_DUALPROJ, 2, {0, 1e-4}, 1, opposed, NULL, 0},
    {"mgda_normalisation", SUT_SURGERY_MGDA, 4, {0, 1, 2, 3}, 1, NULL, NULL, 0},
    {"mgda_frank_wolfe", SUT_SURGERY_MGDA, 2, {0, 1}, 1, NULL, NULL, 0},
    {"mgda_fw_epsilon", SUT_SURGERY_MGDA, 2, {0.2, 1e-3}, 1, NULL, "mgda_frank_wolfe", 1},
    {"mgda_fw_max_iterations", SUT_SURGERY_MGDA, 3, {1, 2, 100}, 1, NULL, "mgda_frank_wolfe", 1},
    {"nash_max_norm", SUT_SURGERY_NASH, 3, {0, 0.5, 1}, 1, NULL, NULL, 0},
    {"sdmgrad_lambda", SUT_SURGERY_SDMGRAD, 3, {0, 0.3, 0.6}, 1, uneven, NULL, 0},
};
enum { N_EFFECTS = sizeof effects / sizeof effects[0] };

/* Members whose effect is shown elsewhere: in the functions below; nash_update_every acts in the optimizer alone. */
static const char *const elsewhere[] = {"struct_size",           "method",           "preference", "order",
                                        "pcgrad_identity_order", "nash_update_every"};

static const option *find(const char *name)
{
    for (int k = 0; k < N_OPTIONS; ++k)
        if (strcmp(options[k].name, name) == 0)
            return &options[k];
    fail_msg("no option %s", name);
    return NULL;
}

static void every_option_has_an_effect(void **state)
{
    (void)state;
    for (int k = 0; k < N_EFFECTS; ++k) {
        const effect *const e = &effects[k];
        double G[12], a[7][4];
        for (int j = 0; j < 12; ++j)
            G[j] = e->scale * (e->G ? e->G : rows)[j / 4][j % 4];
        for (int v = 0; v < e->n_values; ++v) {
            sut_surgery_config config;
            sut_surgery_config_init(&config, e->method);
            if (e->with)
                put(&config, find(e->with), e->with_value);
            put(&config, find(e->member), e->values[v]);
            /* With equal angle weights ConFIG's projection length is its arithmetic one. */
            config.preference = e->method == SUT_SURGERY_CONFIG ? (const double[]){1, 2, 0.5} : NULL;
            assert_int_equal(test_direction_status(&config, G, 3, 4, losses, a[v], NULL), SUT_OK);
            for (int u = 0; u < v; ++u)
                if (test_distance(a[u], a[v], 4) <= 1e-9 * e->scale)
                    fail_msg("%s: %g and %g give the same result", e->member, e->values[u], e->values[v]);
        }
    }
    for (int k = 0; k < N_OPTIONS; ++k) {
        bool shown = false;
        for (int l = 0; l < N_EFFECTS; ++l)
            shown = shown || strcmp(effects[l].member, options[k].name) == 0;
        for (size_t l = 0; l < sizeof elsewhere / sizeof elsewhere[0]; ++l)
            shown = shown || strcmp(elsewhere[l], options[k].name) == 0;
        if (!shown)
            fail_msg("no effect is shown for %s", options[k].name);
    }
}

static void preferences_have_an_effect(void **state)
{
    (void)state;
    static const double other[3] = {1, 2, 0.5};
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
        double equal[4], weighted[4];
        static const double ones[3] = {1, 1, 1};
        sut_surgery_config config;
        sut_surgery_config_init(&config, (sut_surgery_method)method);
        config.preference = method == SUT_SURGERY_FIXED ? ones : NULL;
        test_direction(&config, rows[0], 3, 4, equal, NULL);
        config.preference = other;
        test_direction(&config, rows[0], 3, 4, weighted, NULL);
        assert_true((test_distance(equal, weighted, 4) > 1e-6) == sut_surgery_table[method].uses_preference);
    }
}

static void methods_differ(void **state)
{
    (void)state;
    static const double weights[3] = {0.3, 0.5, 0.9};
    double a[SUT_SURGERY_COUNT][4];
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method) {
        sut_surgery_config config;
        sut_surgery_config_init(&config, (sut_surgery_method)method);
        config.preference = method == SUT_SURGERY_FIXED ? weights : NULL;
        test_direction(&config, uneven[0], 3, 4, a[method], NULL);
        for (int other = 0; other < method; ++other) {
            /* The mean of these rows conflicts with none: DualProj leaves it alone. */
            if (method == SUT_SURGERY_DUALPROJ && other == SUT_SURGERY_MEAN)
                continue;
            if (test_distance(a[method], a[other], 4) <= 1e-9)
                fail_msg("%s and %s give the same result", sut_surgery_method_name((sut_surgery_method)method),
                         sut_surgery_method_name((sut_surgery_method)other));
        }
    }
}

static void orders_have_an_effect(void **state)
{
    (void)state;
    static const int reversed[9] = {2, 1, 0, 2, 1, 0, 2, 1, 0}, identity[9] = {0, 1, 2, 0, 1, 2, 0, 1, 2};
    /* Every pair conflicts, so that the order matters. */
    static const double G[12] = {1, -0.5, -0.4, 0.2, -0.6, 1, -0.5, 0.1, -0.3, -0.6, 1, 0.3};
    double a[4], b[4], c[4], d[4];
    sut_surgery_config config;
    sut_surgery_config_init(&config, SUT_SURGERY_PCGRAD);
    config.order = identity;
    test_direction(&config, G, 3, 4, a, NULL);
    config.order = reversed;
    test_direction(&config, G, 3, 4, b, NULL);
    assert_true(test_distance(a, b, 4) > 1e-6);
    config.order = NULL;
    config.pcgrad_identity_order = 1;
    test_direction(&config, G, 3, 4, c, NULL);
    assert_memory_equal(a, c, sizeof a);
    /* Random orders: the counter and the seed matter, the same ones give the same bits. */
    config.pcgrad_identity_order = 0;
    sut_context *const ctx = test_context();
    const void *const grads[3] = {G, G + 4, G + 8};
    bool by_counter = false;
    assert_int_equal(sut_surgery_direction(ctx, &config, grads, 3, 4, SUT_DTYPE_F64, NULL, 0, a, NULL), SUT_OK);
    for (uint64_t counter = 1; counter < 8; ++counter) {
        assert_int_equal(sut_surgery_direction(ctx, &config, grads, 3, 4, SUT_DTYPE_F64, NULL, counter, b, NULL),
                         SUT_OK);
        assert_int_equal(sut_surgery_direction(ctx, &config, grads, 3, 4, SUT_DTYPE_F64, NULL, counter, d, NULL),
                         SUT_OK);
        assert_memory_equal(b, d, sizeof b);
        by_counter = by_counter || test_distance(a, b, 4) > 1e-6;
    }
    assert_true(by_counter);
    bool by_seed = false, by_identity = false;
    for (uint64_t seed = 1; seed < 8; ++seed) {
        sut_context_config context;
        sut_context *other;
        sut_context_config_init(&context);
        context.seed = seed;
        context.n_threads = 1;
        assert_int_equal(sut_context_create(&other, &context), SUT_OK);
        assert_int_equal(sut_surgery_direction(other, &config, grads, 3, 4, SUT_DTYPE_F64, NULL, 0, b, NULL), SUT_OK);
        sut_context_destroy(other);
        by_seed = by_seed || test_distance(a, b, 4) > 1e-6;
        by_identity = by_identity || test_distance(c, b, 4) > 1e-6;
    }
    assert_true(by_seed && by_identity);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_covers_the_struct), cmocka_unit_test(queries_by_name),
        cmocka_unit_test(init_leaves_no_rubbish),      cmocka_unit_test(values_outside_their_range_are_refused_by_name),
        cmocka_unit_test(bad_preferences_and_orders),  cmocka_unit_test(every_option_has_an_effect),
        cmocka_unit_test(preferences_have_an_effect),  cmocka_unit_test(methods_differ),
        cmocka_unit_test(orders_have_an_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
