/*
 * Refusals: every public function with NULL, bad sizes, numbers that are not finite, unknown enum values and rubbish in
 * struct_size. A refused call returns its status, explains itself by name, and changes nothing. Also: no byte of rubbish
 * survives an _init function.
 *
 * Hyper-parameters and schedules have their own tests of every range; here it is the doors that are tried.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "suture/suture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static sut_context *ctx;

/* The call gives this status, and the context's text holds `word`. */
static void check(sut_status status, sut_status expected, const char *word, const char *call)
{
    if (status != expected)
        fail_msg("%s gave %d (%s), expected %d; text: %s", call, status, sut_status_string(status), expected,
                 sut_context_last_error(ctx));
    if (!strstr(sut_context_last_error(ctx), word))
        fail_msg("%s: \"%s\" does not name \"%s\"", call, sut_context_last_error(ctx), word);
}
#define REFUSED(call, status, word) check((call), (status), (word), #call)
#define INVALID SUT_ERROR_INVALID_ARGUMENT
#define RANGE SUT_ERROR_OUT_OF_RANGE

/* --- _init ----------------------------------------------------------------------------------------------------------- */

typedef union any_struct {
    unsigned char bytes[16384];
    size_t struct_size;
    sut_context_config context;
    sut_schedule schedule;
    sut_surgery_config surgery;
    sut_surgery_report surgery_report;
    sut_cone_config cone;
    sut_cone_report cone_report;
    sut_optimizer_config optimizer;
    sut_report report;
    sut_checkpoint_config checkpoint;
} any_struct;

typedef struct init_case {
    const char *name;
    size_t size;
    void (*init)(any_struct *s, size_t struct_size);
} init_case;

static void init_context(any_struct *s, size_t n)
{
    sut_context_config_init_sized(&s->context, n);
}
static void init_schedule(any_struct *s, size_t n)
{
    sut_schedule_init_sized(&s->schedule, n, SUT_SCHEDULE_WSD);
}
static void init_surgery(any_struct *s, size_t n)
{
    sut_surgery_config_init_sized(&s->surgery, n, SUT_SURGERY_CAGRAD);
}
static void init_surgery_report(any_struct *s, size_t n)
{
    sut_surgery_report_init_sized(&s->surgery_report, n);
}
static void init_cone(any_struct *s, size_t n)
{
    sut_cone_config_init_sized(&s->cone, n);
}
static void init_cone_report(any_struct *s, size_t n)
{
    sut_cone_report_init_sized(&s->cone_report, n);
}
static void init_optimizer(any_struct *s, size_t n)
{
    sut_optimizer_config_init_sized(&s->optimizer, n, SUT_OPTIMIZER_ADAMW);
}
static void init_report(any_struct *s, size_t n)
{
    sut_report_init_sized(&s->report, n);
}
static void init_checkpoint(any_struct *s, size_t n)
{
    sut_checkpoint_config_init_sized(&s->checkpoint, n);
}

static const init_case inits[] = {
    {"sut_context_config_init", sizeof(sut_context_config), init_context},
    {"sut_schedule_init", sizeof(sut_schedule), init_schedule},
    {"sut_surgery_config_init", sizeof(sut_surgery_config), init_surgery},
    {"sut_surgery_report_init", sizeof(sut_surgery_report), init_surgery_report},
    {"sut_cone_config_init", sizeof(sut_cone_config), init_cone},
    {"sut_cone_report_init", sizeof(sut_cone_report), init_cone_report},
    {"sut_optimizer_config_init", sizeof(sut_optimizer_config), init_optimizer},
    {"sut_report_init", sizeof(sut_report), init_report},
    {"sut_checkpoint_config_init", sizeof(sut_checkpoint_config), init_checkpoint},
};

/* Two kinds of rubbish lead to the same bytes; bytes beyond the caller's size are not touched. */
static void init_leaves_no_rubbish(void **state)
{
    (void)state;
    static any_struct a, b;
    for (size_t k = 0; k < sizeof inits / sizeof *inits; k++) {
        assert_true(inits[k].size + 64 < sizeof a);
        const size_t sizes[] = {inits[k].size, inits[k].size - 8, inits[k].size + 40, sizeof(size_t)};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t n = sizes[i];
            memset(&a, 0xA5, sizeof a);
            memset(&b, 0x5A, sizeof b);
            inits[k].init(&a, n);
            inits[k].init(&b, n);
            if (memcmp(&a, &b, n) != 0)
                fail_msg("%s with struct_size %zu leaves bytes as they were", inits[k].name, n);
            if (a.struct_size != n)
                fail_msg("%s: struct_size is %zu, not %zu", inits[k].name, a.struct_size, n);
            for (size_t j = n; j < sizeof a; j++)
                if (a.bytes[j] != 0xA5)
                    fail_msg("%s with struct_size %zu writes byte %zu", inits[k].name, n, j);
        }
    }
}

/* --- status, context ------------------------------------------------------------------------------------------------- */

static void names_of_unknown_values(void **state)
{
    (void)state;
    for (int status = 0; status <= SUT_ERROR_INTERNAL; status++)
        assert_string_not_equal(sut_status_string((sut_status)status), "unknown status");
    assert_string_equal(sut_status_string((sut_status)99), "unknown status");
    assert_string_equal(sut_status_string((sut_status)-1), "unknown status");
    for (int bad = -1; bad <= 1000; bad += 1001) {
        assert_null(sut_dtype_name((sut_dtype)bad));
        assert_int_equal(sut_dtype_size((sut_dtype)bad), 0);
        assert_null(sut_backend_name((sut_backend)bad));
        assert_null(sut_isa_name((sut_isa)bad));
        assert_null(sut_surgery_method_name((sut_surgery_method)bad));
        assert_null(sut_optimizer_method_name((sut_optimizer_method)bad));
    }
    sut_surgery_method surgery = SUT_SURGERY_MGDA;
    sut_optimizer_method method = SUT_OPTIMIZER_LION;
    const char *unknown[] = {"", "Adam", "adam ", "nonsense"};
    for (int k = 0; k < 4; k++) {
        assert_int_equal(sut_surgery_method_from_name(unknown[k], &surgery), INVALID);
        assert_int_equal(sut_optimizer_method_from_name(unknown[k], &method), INVALID);
    }
    assert_int_equal(sut_surgery_method_from_name(NULL, &surgery), INVALID);
    assert_int_equal(sut_surgery_method_from_name("sum", NULL), INVALID);
    assert_int_equal(sut_optimizer_method_from_name(NULL, &method), INVALID);
    assert_int_equal(sut_optimizer_method_from_name("adam", NULL), INVALID);
    assert_int_equal(surgery, SUT_SURGERY_MGDA);
    assert_int_equal(method, SUT_OPTIMIZER_LION);
}

static void *no_memory(void *user, size_t size)
{
    (void)user, (void)size;
    return NULL;
}

static char logged[256];

static void keep_line(void *user, sut_log_level level, const char *message)
{
    (void)user, (void)level;
    (void)strncpy(logged, message, sizeof logged - 1);
}

/* A context cannot keep the text of its own refusal; the log callback receives it. */
static void context_refused(const sut_context_config *config, sut_status status, const char *word)
{
    sut_context *out = ctx;
    sut_context_config logging = *config;
    logging.log = keep_line;
    logged[0] = '\0';
    assert_int_equal(sut_context_create(&out, &logging), status);
    assert_null(out);
    if (!strstr(logged, word))
        fail_msg("\"%s\" does not name \"%s\"", logged, word);
}

static void context(void **state)
{
    (void)state;
    assert_int_equal(sut_context_create(NULL, NULL), INVALID);
    sut_context_config c;
    sut_context *out = ctx;
    const size_t sizes[] = {0, 1, 7, sizeof c + 1, SIZE_MAX};
    for (int k = 0; k < 5; k++) {
        sut_context_config_init(&c);
        c.struct_size = sizes[k];
        out = ctx;
        assert_int_equal(sut_context_create(&out, &c), INVALID);
        assert_null(out);
    }
    sut_context_config_init(&c), c.backend = (sut_backend)9;
    context_refused(&c, INVALID, "backend");
    sut_context_config_init(&c), c.backend = SUT_BACKEND_CUDA;
    context_refused(&c, SUT_ERROR_BACKEND, "CUDA");
    sut_context_config_init(&c), c.isa = (sut_isa)-1;
    context_refused(&c, INVALID, "isa");
    const int threads[] = {0, -2, 1025, INT32_MAX, INT32_MIN};
    for (int k = 0; k < 5; k++) {
        sut_context_config_init(&c), c.n_threads = threads[k];
        context_refused(&c, RANGE, "n_threads");
    }
    sut_context_config_init(&c), c.allocator.allocate = no_memory; /* without the two others */
    context_refused(&c, INVALID, "allocator");

    sut_context_destroy(NULL);
    assert_int_equal(sut_context_backend(NULL), SUT_BACKEND_AUTO);
    assert_int_equal(sut_context_isa(NULL), SUT_ISA_AUTO);
    assert_int_equal(sut_context_threads(NULL), 0);
    assert_string_equal(sut_context_last_error(NULL), "");
    assert_int_equal(sut_capabilities(NULL), INVALID);
    assert_int_equal(sut_context_set_stream(NULL, NULL), INVALID);
    char byte = 7, other = 8;
    assert_int_equal(sut_context_upload(NULL, &byte, &other, 1), INVALID);
    assert_int_equal(sut_context_download(ctx, NULL, &other, 1), INVALID);
    assert_int_equal(sut_context_upload(ctx, &byte, NULL, 1), INVALID);
    assert_int_equal(sut_context_upload(ctx, NULL, NULL, 0), SUT_OK);
    assert_int_equal(byte, 7);
    sut_capability_report report;
    for (int k = 0; k < 5; k++) {
        report.struct_size = sizes[k] == sizeof c + 1 ? sizeof report + 1 : sizes[k];
        assert_int_equal(sut_capabilities(&report), INVALID);
    }
}

/* --- surgery and cone ------------------------------------------------------------------------------------------------ */

enum { N = 5 };

static void surgery(void **state)
{
    (void)state;
    float g0[N] = {1, 2, 3, 4, 5}, g1[N] = {-1, 1, -1, 1, -1}, out[N] = {9, 9, 9, 9, 9};
    const void *grads[2] = {g0, g1}, *with_null[2] = {g0, NULL};
    double losses[2] = {1, 2}, bad_losses[2] = {1, NAN}, gram[4] = {2, 1, 1, 2};
    sut_surgery_config c, bad;
    sut_surgery_report r, bad_report;
    sut_surgery_config_init(&c, SUT_SURGERY_CONFIG);
    sut_surgery_report_init(&r);
    const sut_surgery_report untouched = r;

    REFUSED(sut_surgery_direction(ctx, NULL, grads, 2, N, SUT_DTYPE_F32, NULL, 0, out, &r), INVALID, "config");
    REFUSED(sut_surgery_direction(ctx, &c, NULL, 2, N, SUT_DTYPE_F32, NULL, 0, out, &r), INVALID, "grad");
    REFUSED(sut_surgery_direction(ctx, &c, with_null, 2, N, SUT_DTYPE_F32, NULL, 0, out, &r), INVALID, "1");
    assert_int_equal(sut_surgery_direction(NULL, &c, grads, 2, N, SUT_DTYPE_F32, NULL, 0, out, &r), INVALID);
    const int counts[] = {0, -1, SUT_MAX_LOSSES + 1, INT32_MAX};
    for (int k = 0; k < 4; k++) {
        const sut_status status = sut_surgery_direction(ctx, &c, grads, counts[k], N, SUT_DTYPE_F32, NULL, 0, out, &r);
        assert_true(status == INVALID || status == RANGE);
        const sut_status weights = sut_surgery_weights(ctx, &c, gram, counts[k], NULL, 0, &r);
        assert_true(weights == INVALID || weights == RANGE);
    }
    for (int64_t n = -1; n <= 0; n++) {
        const sut_status status = sut_surgery_direction(ctx, &c, grads, 2, n, SUT_DTYPE_F32, NULL, 0, out, &r);
        assert_true(status == INVALID || status == RANGE);
    }
    REFUSED(sut_surgery_direction(ctx, &c, grads, 2, N, SUT_DTYPE_BF16, NULL, 0, out, &r), SUT_ERROR_UNSUPPORTED,
            "bf16");
    REFUSED(sut_surgery_direction(ctx, &c, grads, 2, N, (sut_dtype)7, NULL, 0, out, &r), SUT_ERROR_UNSUPPORTED,
            "dtype");
    REFUSED(sut_surgery_direction(ctx, &c, grads, 2, N, SUT_DTYPE_F32, NULL, 0, g0 + 1, &r), INVALID, "overlap");
    REFUSED(sut_surgery_direction(ctx, &c, grads, 2, N, SUT_DTYPE_F32, bad_losses, 0, out, &r), SUT_ERROR_NOT_FINITE,
            "loss");
    const float values[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        g1[N - 1] = values[k];
        REFUSED(sut_surgery_direction(ctx, &c, grads, 2, N, SUT_DTYPE_F32, NULL, 0, out, &r), SUT_ERROR_NOT_FINITE,
                "4");
        g1[N - 1] = -1;
    }
    bad = c, bad.method = SUT_SURGERY_COUNT;
    REFUSED(sut_surgery_direction(ctx, &bad, grads, 2, N, SUT_DTYPE_F32, NULL, 0, out, &r), INVALID, "method");
    const size_t sizes[] = {0, 7, sizeof c + 1, SIZE_MAX};
    for (int k = 0; k < 4; k++) {
        bad = c, bad.struct_size = sizes[k];
        REFUSED(sut_surgery_direction(ctx, &bad, grads, 2, N, SUT_DTYPE_F32, NULL, 0, out, &r), INVALID, "struct_size");
        REFUSED(sut_surgery_weights(ctx, &bad, gram, 2, NULL, 0, &r), INVALID, "struct_size");
        bad_report = r, bad_report.struct_size = k == 2 ? sizeof r + 1 : sizes[k];
        REFUSED(sut_surgery_direction(ctx, &c, grads, 2, N, SUT_DTYPE_F32, NULL, 0, out, &bad_report), INVALID,
                "struct_size");
    }
    /* Options out of their range, each by name. */
    const struct {
        sut_surgery_method method;
        size_t offset;
        double value;
        const char *name;
    } options[] = {
        {SUT_SURGERY_CAGRAD, offsetof(sut_surgery_config, cagrad_c), -1, "cagrad_c"},
        {SUT_SURGERY_CAGRAD, offsetof(sut_surgery_config, cagrad_c), NAN, "cagrad_c"},
        {SUT_SURGERY_CAGRAD, offsetof(sut_surgery_config, cagrad_eps), -1, "cagrad_eps"},
        {SUT_SURGERY_ALIGNED_MTL, offsetof(sut_surgery_config, aligned_rank_tol), 0, "aligned_rank_tol"},
        {SUT_SURGERY_ALIGNED_MTL, offsetof(sut_surgery_config, aligned_rank_tol), 1, "aligned_rank_tol"},
        {SUT_SURGERY_UPGRAD, offsetof(sut_surgery_config, norm_eps), -1, "norm_eps"},
        {SUT_SURGERY_UPGRAD, offsetof(sut_surgery_config, reg_eps), INFINITY, "reg_eps"},
        {SUT_SURGERY_DUALPROJ, offsetof(sut_surgery_config, reg_eps), -1, "reg_eps"},
        {SUT_SURGERY_MGDA, offsetof(sut_surgery_config, mgda_fw_epsilon), 0, "mgda_fw_epsilon"},
        {SUT_SURGERY_NASH, offsetof(sut_surgery_config, nash_max_norm), -1, "nash_max_norm"},
        {SUT_SURGERY_SDMGRAD, offsetof(sut_surgery_config, sdmgrad_lambda), NAN, "sdmgrad_lambda"},
    };
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        sut_surgery_config_init(&bad, options[k].method);
        memcpy((char *)&bad + options[k].offset, &options[k].value, sizeof(double));
        REFUSED(sut_surgery_direction(ctx, &bad, grads, 2, N, SUT_DTYPE_F32, losses, 0, out, &r), RANGE,
                options[k].name);
        REFUSED(sut_surgery_weights(ctx, &bad, gram, 2, losses, 0, &r), RANGE, options[k].name);
    }
    sut_surgery_config_init(&bad, SUT_SURGERY_FIXED); /* needs its weights */
    REFUSED(sut_surgery_direction(ctx, &bad, grads, 2, N, SUT_DTYPE_F32, NULL, 0, out, &r), INVALID, "preference");

    REFUSED(sut_surgery_weights(ctx, NULL, gram, 2, NULL, 0, &r), INVALID, "config");
    REFUSED(sut_surgery_weights(ctx, &c, NULL, 2, NULL, 0, &r), INVALID, "gram");
    assert_int_equal(sut_surgery_weights(NULL, &c, gram, 2, NULL, 0, &r), INVALID);
    gram[3] = NAN;
    REFUSED(sut_surgery_weights(ctx, &c, gram, 2, NULL, 0, &r), SUT_ERROR_NOT_FINITE, "1");
    gram[3] = -2;
    const sut_status negative = sut_surgery_weights(ctx, &c, gram, 2, NULL, 0, &r);
    assert_true(negative == INVALID || negative == RANGE);

    for (int k = 0; k < N; k++)
        assert_true(out[k] == 9);
    assert_memory_equal(&r, &untouched, sizeof r);
}

static void cone(void **state)
{
    (void)state;
    double g0[N] = {1, 2, 3, 4, 5}, g1[N] = {-1, 1, -1, 1, -1}, u[N] = {1, -1, 1, -1, 1}, delta[N] = {1, 1, 1, 1, 1};
    double p[N] = {9, 9, 9, 9, 9};
    const void *grads[2] = {g0, g1}, *with_null[2] = {NULL, g1};
    sut_cone_config c, bad;
    sut_cone_report r, bad_report;
    sut_cone_config_init(&c);
    sut_cone_report_init(&r);
    const sut_cone_report untouched = r;
    const sut_dtype f64 = SUT_DTYPE_F64;

    assert_int_equal(sut_cone_project(NULL, NULL, grads, 2, N, f64, u, NULL, p, &r), INVALID);
    REFUSED(sut_cone_project(ctx, NULL, NULL, 2, N, f64, u, NULL, p, &r), INVALID, "grad");
    REFUSED(sut_cone_project(ctx, NULL, with_null, 2, N, f64, u, NULL, p, &r), INVALID, "0");
    REFUSED(sut_cone_project(ctx, NULL, grads, 2, N, f64, NULL, NULL, p, &r), INVALID, "u");
    REFUSED(sut_cone_project(ctx, NULL, grads, 2, N, SUT_DTYPE_F16, u, NULL, p, &r), SUT_ERROR_UNSUPPORTED, "f16");
    REFUSED(sut_cone_project(ctx, NULL, grads, 2, N, (sut_dtype)-1, u, NULL, p, &r), SUT_ERROR_UNSUPPORTED, "dtype");
    REFUSED(sut_cone_project(ctx, NULL, grads, 2, N, f64, u, NULL, g1 + 1, &r), INVALID, "overlap");
    REFUSED(sut_cone_project(ctx, NULL, grads, 2, N, f64, u, delta, delta, &r), INVALID, "overlap");
    REFUSED(sut_cone_project(ctx, NULL, grads, 2, N, f64, u, NULL, u + 1, &r), INVALID, "overlap");
    const int counts[] = {0, -1, SUT_MAX_LOSSES + 1};
    for (int k = 0; k < 3; k++) {
        const sut_status status = sut_cone_project(ctx, NULL, grads, counts[k], N, f64, u, NULL, p, &r);
        assert_true(status == INVALID || status == RANGE);
    }
    for (int64_t n = -1; n <= 0; n++) {
        const sut_status status = sut_cone_project(ctx, NULL, grads, 2, n, f64, u, NULL, p, &r);
        assert_true(status == INVALID || status == RANGE);
    }
    double *const arrays[] = {g0, g1, u, delta};
    const double values[] = {NAN, INFINITY, -INFINITY};
    for (int a = 0; a < 4; a++)
        for (int k = 0; k < 3; k++) {
            if (arrays[a] == delta && values[k] == INFINITY)
                continue; /* freezes the coordinate */
            const double kept = arrays[a][3];
            arrays[a][3] = values[k];
            const sut_status status = sut_cone_project(ctx, NULL, grads, 2, N, f64, u, delta, p, &r);
            if (arrays[a] == delta)
                assert_true(status == SUT_ERROR_NOT_FINITE || status == RANGE);
            else
                assert_int_equal(status, SUT_ERROR_NOT_FINITE);
            assert_non_null(strstr(sut_context_last_error(ctx), "3"));
            arrays[a][3] = kept;
        }
    delta[2] = 0;
    REFUSED(sut_cone_project(ctx, NULL, grads, 2, N, f64, u, delta, p, &r), RANGE, "metric");
    delta[2] = -1;
    REFUSED(sut_cone_project(ctx, NULL, grads, 2, N, f64, u, delta, p, &r), RANGE, "metric");
    const double tolerances[] = {-1, NAN, INFINITY};
    for (int k = 0; k < 3; k++) {
        bad = c, bad.feas_tol = tolerances[k];
        REFUSED(sut_cone_project(ctx, &bad, grads, 2, N, f64, u, NULL, p, &r), RANGE, "feas_tol");
    }
    const size_t sizes[] = {0, 7, 1 << 20, SIZE_MAX};
    for (int k = 0; k < 4; k++) {
        bad = c, bad.struct_size = sizes[k];
        REFUSED(sut_cone_project(ctx, &bad, grads, 2, N, f64, u, NULL, p, &r), INVALID, "struct_size");
        bad_report = r, bad_report.struct_size = sizes[k];
        REFUSED(sut_cone_project(ctx, &c, grads, 2, N, f64, u, NULL, p, &bad_report), INVALID, "struct_size");
    }
    for (int k = 0; k < N; k++)
        assert_true(p[k] == 9);
    assert_memory_equal(&r, &untouched, sizeof r);
}

/* --- the optimizer --------------------------------------------------------------------------------------------------- */

static float theta_a[N] = {1, 2, 3, 4, 5};
static double theta_b[2] = {-1, -2};

static sut_tensor tensors[3];
static sut_optimizer_config good;

static void reset_good(void)
{
    tensors[0] = (sut_tensor){.data = theta_a, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {N}, .name = "alpha"};
    tensors[1] = (sut_tensor){.data = theta_b, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {2}, .name = "beta"};
    sut_optimizer_config_init(&good, SUT_OPTIMIZER_ADAM);
    good.tensors = tensors;
    good.n_tensors = 2;
    good.n_losses = 2;
}

static char long_name[SUT_MAX_NAME + 2]; /* one byte too long */

/* Creation from `good` as it was changed; then it is put right again. */
static void not_created(sut_status expected, const char *word, int line)
{
    sut_optimizer *opt = (sut_optimizer *)&good;
    const sut_status status = sut_optimizer_create(&opt, ctx, &good);
    if (status != expected)
        fail_msg("line %d: status %d (%s), expected %d; text: %s", line, status, sut_status_string(status), expected,
                 status == SUT_OK ? "" : sut_context_last_error(ctx));
    assert_null(opt); /* nothing to destroy */
    sut_optimizer_destroy(opt);
    if (!strstr(sut_context_last_error(ctx), word))
        fail_msg("line %d: \"%s\" does not name \"%s\"", line, sut_context_last_error(ctx), word);
    reset_good();
}
#define NOT_CREATED(status, word) not_created((status), (word), __LINE__)

static void creation(void **state)
{
    (void)state;
    reset_good();
    sut_optimizer *opt = NULL;
    assert_int_equal(sut_optimizer_create(NULL, ctx, &good), INVALID);
    assert_int_equal(sut_optimizer_create(&opt, NULL, &good), INVALID);
    REFUSED(sut_optimizer_create(&opt, ctx, NULL), INVALID, "config");
    assert_null(opt);

    const size_t sizes[] = {0, 7, sizeof good + 1, SIZE_MAX};
    for (int k = 0; k < 4; k++) {
        good.struct_size = sizes[k];
        NOT_CREATED(INVALID, "struct_size");
    }
    good.method = SUT_OPTIMIZER_COUNT;
    NOT_CREATED(INVALID, "method");
    good.tensors = NULL;
    NOT_CREATED(INVALID, "tensors");
    good.n_tensors = 0;
    NOT_CREATED(INVALID, "no parameters");
    good.n_tensors = -1;
    NOT_CREATED(RANGE, "n_tensors");
    tensors[0].shape[0] = tensors[1].shape[0] = 0; /* only empty tensors */
    NOT_CREATED(INVALID, "no parameters");
    const int losses[] = {0, -1, SUT_MAX_LOSSES + 1};
    for (int k = 0; k < 3; k++) {
        good.n_losses = losses[k];
        NOT_CREATED(RANGE, "n_losses");
    }

    tensors[1].data = NULL;
    NOT_CREATED(INVALID, "beta");
    tensors[1].dtype = (sut_dtype)4;
    NOT_CREATED(INVALID, "beta");
    tensors[1].n_dims = -1;
    NOT_CREATED(RANGE, "beta");
    tensors[1].n_dims = SUT_MAX_DIMS + 1;
    NOT_CREATED(RANGE, "beta");
    tensors[1].shape[0] = -2;
    NOT_CREATED(RANGE, "beta");
    tensors[1].n_dims = 3;
    tensors[1].shape[0] = tensors[1].shape[1] = tensors[1].shape[2] = INT64_C(1) << 40; /* the product overflows */
    NOT_CREATED(RANGE, "beta");
    tensors[1].name = "alpha";
    NOT_CREATED(INVALID, "alpha");
    tensors[1].group = 1;
    NOT_CREATED(INVALID, "group");
    tensors[1].group = -1;
    NOT_CREATED(INVALID, "group");
    tensors[1] = tensors[0]; /* the same memory under another name */
    tensors[1].name = "gamma";
    NOT_CREATED(INVALID, "gamma");
    tensors[1] = tensors[0];
    tensors[1].name = "gamma", tensors[1].data = theta_a + 2, tensors[1].shape[0] = 2; /* a part of it */
    NOT_CREATED(INVALID, "alpha");
    for (int shared = 0; shared < 2; shared++) { /* one f16 element, at either end */
        static uint16_t halves[8];
        tensors[0] =
            (sut_tensor){.data = halves + 2, .dtype = SUT_DTYPE_F16, .n_dims = 1, .shape = {3}, .name = "half"};
        tensors[1] = tensors[0];
        tensors[1].name = "other", tensors[1].data = shared ? halves + 4 : halves;
        NOT_CREATED(INVALID, "half");
    }
    theta_b[1] = NAN;
    NOT_CREATED(SUT_ERROR_NOT_FINITE, "beta");
    theta_b[1] = INFINITY;
    NOT_CREATED(SUT_ERROR_NOT_FINITE, "beta");
    theta_b[1] = -2;

    const char *bad_names[] = {"", "\xff", "caf\xc3", "\xed\xa0\x80", "\xc0\xaf", long_name};
    memset(long_name, 'x', SUT_MAX_NAME + 1);
    for (size_t k = 0; k < sizeof bad_names / sizeof *bad_names; k++) {
        tensors[1].name = bad_names[k];
        NOT_CREATED(INVALID, "tensor 1");
        const char *loss_names[2] = {"a", bad_names[k]};
        good.loss_names = loss_names;
        NOT_CREATED(INVALID, "loss 1");
    }

    sut_hyper hyper[2] = {good.hyper, good.hyper};
    const int counts[] = {0, -1, SUT_MAX_GROUPS + 1, INT32_MAX};
    for (int k = 0; k < 4; k++) {
        good.groups = hyper;
        good.n_groups = counts[k];
        NOT_CREATED(RANGE, "n_groups");
    }
    const int without_groups[] = {2, -1, INT32_MAX, INT32_MIN};
    for (int k = 0; k < 4; k++) {
        good.n_groups = without_groups[k];
        NOT_CREATED(INVALID, "n_groups");
    }
    const struct {
        size_t offset;
        double value;
        const char *name;
    } numbers[] = {
        {offsetof(sut_optimizer_config, hyper.lr), -1, "lr"},
        {offsetof(sut_optimizer_config, hyper.lr), NAN, "lr"},
        {offsetof(sut_optimizer_config, hyper.lr), INFINITY, "lr"},
        {offsetof(sut_optimizer_config, hyper.beta1), 1, "beta1"},
        {offsetof(sut_optimizer_config, hyper.beta2), -0.1, "beta2"},
        {offsetof(sut_optimizer_config, hyper.beta2), NAN, "beta2"},
        {offsetof(sut_optimizer_config, hyper.eps), -1e-8, "eps"},
        {offsetof(sut_optimizer_config, hyper.weight_decay), NAN, "weight_decay"},
        {offsetof(sut_optimizer_config, clip_norm), -1, "clip_norm"},
        {offsetof(sut_optimizer_config, clip_norm), NAN, "clip_norm"},
        {offsetof(sut_optimizer_config, rho_m), 1.5, "rho_m"},
        {offsetof(sut_optimizer_config, rho_v), -0.5, "rho_v"},
        {offsetof(sut_optimizer_config, rho_v), NAN, "rho_v"},
        {offsetof(sut_optimizer_config, conflict_cos_tol), -1, "conflict_cos_tol"},
        {offsetof(sut_optimizer_config, correction_distance_tol), NAN, "correction_distance_tol"},
    };
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        memcpy((char *)&good + numbers[k].offset, &numbers[k].value, sizeof(double));
        NOT_CREATED(RANGE, numbers[k].name);
    }
    good.align = (sut_align)2;
    NOT_CREATED(INVALID, "align");
    good.metric = (sut_metric)-1;
    NOT_CREATED(INVALID, "metric");
    good.check = (sut_check)3;
    NOT_CREATED(INVALID, "check");
    good.surgery.method = SUT_SURGERY_COUNT;
    NOT_CREATED(INVALID, "method");
    good.surgery.method = SUT_SURGERY_CAGRAD, good.surgery.cagrad_c = -1;
    NOT_CREATED(RANGE, "cagrad_c");
    good.use_schedule = 1; /* its total was not set */
    sut_schedule_init(&good.schedule, SUT_SCHEDULE_LINEAR);
    NOT_CREATED(RANGE, "total");
    sut_optimizer_destroy(NULL);
}

/* Every flag and every choice of every public struct, at values that it does not have. */
static void flags_and_choices(void **state)
{
    (void)state;
#define MEMBER(type, member, count)            \
    {                                          \
#member, offsetof(type, member), count \
    }
    static const struct {
        const char *name;
        size_t offset;
        int count; /* values 0 .. count - 1 are allowed */
    } optimizer[] =
        {
            MEMBER(sut_optimizer_config, maximize, 2),
            MEMBER(sut_optimizer_config, align, 2),
            MEMBER(sut_optimizer_config, metric, 2),
            MEMBER(sut_optimizer_config, realign_raw, 2),
            MEMBER(sut_optimizer_config, strict, 2),
            MEMBER(sut_optimizer_config, check, 3),
            MEMBER(sut_optimizer_config, use_schedule, 2),
            MEMBER(sut_optimizer_config, hyper.amsgrad, 2),
            MEMBER(sut_optimizer_config, surgery.method, SUT_SURGERY_COUNT),
            MEMBER(sut_optimizer_config, surgery.scale_to_sum, 2),
            MEMBER(sut_optimizer_config, schedule.kind, SUT_SCHEDULE_COUNT),
            MEMBER(sut_optimizer_config, schedule.cooldown, SUT_COOLDOWN_COUNT),
            MEMBER(sut_optimizer_config, method, SUT_OPTIMIZER_COUNT),
        },
      surgery[] =
          {
              MEMBER(sut_surgery_config, method, SUT_SURGERY_COUNT),
              MEMBER(sut_surgery_config, scale_to_sum, 2),
              MEMBER(sut_surgery_config, pcgrad_identity_order, 2),
              MEMBER(sut_surgery_config, pcgrad_mean, 2),
              MEMBER(sut_surgery_config, config_length, SUT_CONFIG_SPECIFIC + 1),
              MEMBER(sut_surgery_config, config_row, 2),
              MEMBER(sut_surgery_config, cagrad_rescale, 3),
              MEMBER(sut_surgery_config, cagrad_pareto, SUT_PARETO_MEAN + 1),
              MEMBER(sut_surgery_config, imtlg_abs_normaliser, 2),
              MEMBER(sut_surgery_config, aligned_scale, SUT_ALIGNED_RMSE + 1),
              MEMBER(sut_surgery_config, mgda_normalisation, SUT_MGDA_LOSS_PLUS + 1),
              MEMBER(sut_surgery_config, mgda_frank_wolfe, 2),
          },
      checkpoint[] = {
          MEMBER(sut_checkpoint_config, include_parameters, 2),
          MEMBER(sut_checkpoint_config, restore_settings, 2),
          MEMBER(sut_checkpoint_config, only_parameters, 2),
      };
    const double gram[4] = {2, 1, 1, 2};
    sut_optimizer *opt, *none;
    reset_good();
    assert_int_equal(sut_optimizer_create(&opt, ctx, &good), SUT_OK);
    void *bytes;
    size_t size;
    assert_int_equal(sut_optimizer_save_memory(opt, NULL, &bytes, &size), SUT_OK);
    for (int round = 0; round < 4; round++) {
#define EACH(list, start, call)                                                               \
    for (size_t k = 0; k < sizeof(list) / sizeof *(list); k++) {                              \
        const int values[4] = {-1, (list)[k].count, 5 + SUT_SURGERY_COUNT, INT32_MIN};        \
        start;                                                                                \
        memcpy((char *)&config + (list)[k].offset, &values[round], sizeof(int));              \
        const sut_status status = (call);                                                     \
        const char *const word = strrchr((list)[k].name, '.');                                \
        if (status != INVALID && status != RANGE)                                             \
            fail_msg("%s = %d gave status %d", (list)[k].name, values[round], status);        \
        if (!strstr(sut_context_last_error(ctx), word ? word + 1 : (list)[k].name))           \
            fail_msg("\"%s\" does not name %s", sut_context_last_error(ctx), (list)[k].name); \
    }
        {
            sut_optimizer_config config;
            EACH(optimizer, (config = good, config.use_schedule = 1), sut_optimizer_create(&none, ctx, &config))
        }
        {
            sut_surgery_config config;
            EACH(surgery, sut_surgery_config_init(&config, SUT_SURGERY_MGDA),
                 sut_surgery_weights(ctx, &config, gram, 2, NULL, 0, NULL))
        }
        {
            sut_checkpoint_config config;
            EACH(checkpoint, sut_checkpoint_config_init(&config), sut_optimizer_load_memory(opt, bytes, size, &config))
            EACH(checkpoint, sut_checkpoint_config_init(&config),
                 sut_optimizer_save_memory(opt, &config, (void **)&none, &(size_t){0}))
        }
        const int strict[4] = {-1, 2, 5, INT32_MIN};
        sut_cone_config cone_config;
        sut_cone_config_init(&cone_config);
        cone_config.strict = strict[round];
        const double g[1] = {1}, *const row = g;
        REFUSED(
            sut_cone_project(ctx, &cone_config, (const void *const *)&row, 1, 1, SUT_DTYPE_F64, g, NULL, NULL, NULL),
            RANGE, "strict");
    }
    sut_buffer_free(ctx, bytes);
    sut_optimizer_destroy(opt);
}

static sut_optimizer *make(void)
{
    reset_good();
    sut_optimizer *opt = NULL;
    assert_int_equal(sut_optimizer_create(&opt, ctx, &good), SUT_OK);
    return opt;
}

/* Every call that needs an optimizer answers NULL with a status instead of a crash. */
static void null_handles(void **state)
{
    (void)state;
    const void *grads[4] = {theta_a, theta_b, theta_a, theta_b};
    sut_report report;
    sut_hyper hyper;
    void *data;
    size_t size;
    int64_t count;
    sut_dtype dtype;
    sut_report_init(&report);
    assert_int_equal(sut_optimizer_step(NULL, grads, NULL, &report), INVALID);
    assert_int_equal(sut_optimizer_direction(NULL, grads, NULL, NULL, NULL), INVALID);
    assert_int_equal(sut_optimizer_propose(NULL, grads, NULL, NULL, NULL), INVALID);
    assert_int_equal(sut_optimizer_project(NULL, grads, NULL, &report), INVALID);
    assert_int_equal(sut_optimizer_apply(NULL, grads, NULL, &report), INVALID);
    assert_int_equal(sut_optimizer_get_hyper(NULL, 0, &hyper), INVALID);
    assert_int_equal(sut_optimizer_set_hyper(NULL, 0, &hyper), INVALID);
    assert_int_equal(sut_optimizer_set_lr(NULL, 0, 1), INVALID);
    assert_int_equal(sut_optimizer_set_schedule(NULL, NULL), INVALID);
    assert_int_equal(sut_optimizer_set_align(NULL, SUT_ALIGN_NONE, 0, 0), INVALID);
    assert_int_equal(sut_optimizer_parameters_changed(NULL), INVALID);
    assert_int_equal(sut_optimizer_state(NULL, "m", 0, &data, &dtype, &count), INVALID);
    assert_null(sut_optimizer_state_name(NULL, 0));
    assert_int_equal(sut_optimizer_memory(NULL, &size, &size), INVALID);
    assert_int_equal(sut_optimizer_save(NULL, "x", NULL), INVALID);
    assert_int_equal(sut_optimizer_load(NULL, "x", NULL), INVALID);
    assert_int_equal(sut_optimizer_save_memory(NULL, NULL, &data, &size), INVALID);
    assert_int_equal(sut_optimizer_load_memory(NULL, "x", 1, NULL), INVALID);
    (void)sut_optimizer_steps(NULL); /* any number, but no crash */
    (void)sut_optimizer_tensor_steps(NULL, 0);
    (void)sut_optimizer_skipped_steps(NULL);
    sut_buffer_free(NULL, NULL);
    sut_buffer_free(ctx, NULL);
}

/* The bytes of everything that a refused call must not change. */
static void *snapshot(sut_optimizer *opt, size_t *size)
{
    void *bytes;
    assert_int_equal(sut_optimizer_save_memory(opt, NULL, &bytes, size), SUT_OK);
    return bytes;
}

static void unchanged(sut_optimizer *opt, const void *before, size_t before_size)
{
    size_t size;
    void *now = snapshot(opt, &size);
    assert_int_equal(size, before_size);
    assert_memory_equal(now, before, size);
    sut_buffer_free(ctx, now);
}

static void steps(void **state)
{
    (void)state;
    sut_optimizer *opt = make();
    float g[2][N] = {{1, -1, 1, -1, 1}, {-1, 2, 1, 1, 1}};
    double h[2][2] = {{1, 2}, {-2, 1}};
    const void *grads[4] = {g[0], h[0], g[1], h[1]}, *overlapping[4] = {g[0], h[0], theta_a, h[1]};
    double losses[2] = {1, 1};
    sut_report report;
    sut_report_init(&report);
    assert_int_equal(sut_optimizer_step(opt, grads, NULL, &report), SUT_OK);
    size_t size;
    void *before = snapshot(opt, &size);

    REFUSED(sut_optimizer_step(opt, NULL, NULL, &report), INVALID, "grad");
    REFUSED(sut_optimizer_direction(opt, NULL, NULL, NULL, NULL), INVALID, "grad");
    REFUSED(sut_optimizer_propose(opt, NULL, NULL, NULL, NULL), INVALID, "grad");
    REFUSED(sut_optimizer_step(opt, overlapping, NULL, &report), INVALID, "alpha");
    const size_t sizes[] = {0, 7, sizeof report + 1, SIZE_MAX};
    for (int k = 0; k < 4; k++) {
        report.struct_size = sizes[k];
        REFUSED(sut_optimizer_step(opt, grads, NULL, &report), INVALID, "struct_size");
    }
    sut_report_init(&report);
    REFUSED(sut_optimizer_project(opt, grads, NULL, &report), SUT_ERROR_SEQUENCE, "propose");
    REFUSED(sut_optimizer_apply(opt, grads, NULL, &report), SUT_ERROR_SEQUENCE, "propose");
    unchanged(opt, before, size);
    sut_buffer_free(ctx, before);

    /* What is not finite is counted as a skipped step, and changes nothing else. */
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        float kept_theta[N];
        memcpy(kept_theta, theta_a, sizeof theta_a);
        const int64_t t = sut_optimizer_steps(opt), skipped = sut_optimizer_skipped_steps(opt);
        g[1][3] = bad[k];
        REFUSED(sut_optimizer_step(opt, grads, NULL, &report), SUT_ERROR_NOT_FINITE, "alpha");
        assert_non_null(strstr(sut_context_last_error(ctx), "3"));
        g[1][3] = 1;
        assert_memory_equal(theta_a, kept_theta, sizeof theta_a);
        assert_int_equal(sut_optimizer_steps(opt), t);
        assert_int_equal(sut_optimizer_skipped_steps(opt), skipped + 1);
        losses[1] = (double)bad[k];
        REFUSED(sut_optimizer_step(opt, grads, losses, &report), SUT_ERROR_NOT_FINITE, "loss");
        assert_memory_equal(theta_a, kept_theta, sizeof theta_a);
        assert_int_equal(sut_optimizer_steps(opt), t);
        assert_int_equal(sut_optimizer_skipped_steps(opt), skipped + 2);
    }
    sut_optimizer_destroy(opt);
    memcpy(theta_a, (float[N]){1, 2, 3, 4, 5}, sizeof theta_a);
    memcpy(theta_b, (double[2]){-1, -2}, sizeof theta_b);
}

/* Between propose and apply whatever would change the optimizer is refused. */
static void sequence(void **state)
{
    (void)state;
    sut_optimizer *opt = make();
    float g[2][N] = {{1, -1, 1, -1, 1}, {-1, 2, 1, 1, 1}};
    double h[2][2] = {{1, 2}, {-2, 1}};
    const void *grads[4] = {g[0], h[0], g[1], h[1]};
    sut_hyper hyper;
    void *data = opt;
    size_t size = 3;
    assert_int_equal(sut_optimizer_get_hyper(opt, 0, &hyper), SUT_OK);
    assert_int_equal(sut_optimizer_propose(opt, grads, NULL, NULL, NULL), SUT_OK);
    const sut_status out_of_order = SUT_ERROR_SEQUENCE;
    REFUSED(sut_optimizer_propose(opt, grads, NULL, NULL, NULL), out_of_order, "apply");
    REFUSED(sut_optimizer_step(opt, grads, NULL, NULL), out_of_order, "apply");
    REFUSED(sut_optimizer_set_hyper(opt, 0, &hyper), out_of_order, "apply");
    REFUSED(sut_optimizer_set_lr(opt, 0, 1), out_of_order, "apply");
    REFUSED(sut_optimizer_set_schedule(opt, NULL), out_of_order, "apply");
    REFUSED(sut_optimizer_set_align(opt, SUT_ALIGN_NONE, 0, 0), out_of_order, "apply");
    REFUSED(sut_optimizer_parameters_changed(opt), out_of_order, "apply");
    REFUSED(sut_optimizer_save_memory(opt, NULL, &data, &size), out_of_order, "apply");
    REFUSED(sut_optimizer_save(opt, "never-written", NULL), out_of_order, "apply");
    REFUSED(sut_optimizer_load_memory(opt, "x", 1, NULL), out_of_order, "apply");
    REFUSED(sut_optimizer_load(opt, "never-read", NULL), out_of_order, "apply");
    assert_ptr_equal(data, opt);
    assert_int_equal(size, 3);
    assert_int_equal(sut_optimizer_apply(opt, grads, NULL, NULL), SUT_OK);
    assert_int_equal(sut_optimizer_steps(opt), 1);
    sut_optimizer_destroy(opt);
    memcpy(theta_a, (float[N]){1, 2, 3, 4, 5}, sizeof theta_a);
    memcpy(theta_b, (double[2]){-1, -2}, sizeof theta_b);
}

static void settings(void **state)
{
    (void)state;
    sut_optimizer *opt = make();
    size_t size;
    void *before = snapshot(opt, &size);
    sut_hyper hyper, bad;
    assert_int_equal(sut_optimizer_get_hyper(opt, 0, NULL), INVALID);
    REFUSED(sut_optimizer_get_hyper(opt, 1, &hyper), RANGE, "group");
    REFUSED(sut_optimizer_get_hyper(opt, -1, &hyper), RANGE, "group");
    assert_int_equal(sut_optimizer_get_hyper(opt, 0, &hyper), SUT_OK);
    REFUSED(sut_optimizer_set_hyper(opt, 0, NULL), INVALID, "hyper");
    REFUSED(sut_optimizer_set_hyper(opt, 5, &hyper), RANGE, "group");
    bad = hyper, bad.beta1 = 1;
    REFUSED(sut_optimizer_set_hyper(opt, 0, &bad), RANGE, "beta1");
    bad = hyper, bad.eps = NAN;
    REFUSED(sut_optimizer_set_hyper(opt, 0, &bad), RANGE, "eps");
    bad = hyper, bad.amsgrad = 1; /* the state has no room for it */
    REFUSED(sut_optimizer_set_hyper(opt, 0, &bad), SUT_ERROR_UNSUPPORTED, "vmax");
    REFUSED(sut_optimizer_set_lr(opt, 1, 0.1), RANGE, "group");
    REFUSED(sut_optimizer_set_lr(opt, -2, 0.1), RANGE, "group");
    const double rates[] = {-1, NAN, INFINITY};
    for (int k = 0; k < 3; k++)
        REFUSED(sut_optimizer_set_lr(opt, -1, rates[k]), RANGE, "lr");
    sut_schedule schedule;
    sut_schedule_init(&schedule, SUT_SCHEDULE_COSINE);
    REFUSED(sut_optimizer_set_schedule(opt, &schedule), RANGE, "total");
    schedule.struct_size = 3;
    REFUSED(sut_optimizer_set_schedule(opt, &schedule), INVALID, "struct_size");
    REFUSED(sut_optimizer_set_align(opt, (sut_align)7, 0.1, 0.1), INVALID, "align");
    REFUSED(sut_optimizer_set_align(opt, SUT_ALIGN_GUA, 1.1, 0.1), RANGE, "rho_m");
    REFUSED(sut_optimizer_set_align(opt, SUT_ALIGN_GUA, 0.1, NAN), RANGE, "rho_v");
    theta_b[0] = NAN;
    REFUSED(sut_optimizer_parameters_changed(opt), SUT_ERROR_NOT_FINITE, "beta");
    theta_b[0] = -1;

    void *data = NULL;
    sut_dtype dtype;
    int64_t count;
    REFUSED(sut_optimizer_state(opt, NULL, 0, &data, &dtype, &count), INVALID, "slot");
    REFUSED(sut_optimizer_state(opt, "momentum", 0, &data, &dtype, &count), INVALID, "v");
    REFUSED(sut_optimizer_state(opt, "m", 2, &data, &dtype, &count), RANGE, "tensor");
    REFUSED(sut_optimizer_state(opt, "m", -1, &data, &dtype, &count), RANGE, "tensor");
    assert_null(data);
    assert_null(sut_optimizer_state_name(opt, -1));
    assert_null(sut_optimizer_state_name(opt, 100));
    assert_int_equal(sut_optimizer_tensor_steps(opt, 2), -1);
    assert_int_equal(sut_optimizer_tensor_steps(opt, -1), -1);
    unchanged(opt, before, size);
    sut_buffer_free(ctx, before);
    sut_optimizer_destroy(opt);
}

static void hyper_parameters(void **state)
{
    (void)state;
    sut_parameter_info info;
    sut_hyper hyper, kept;
    double value = 42;
    assert_int_equal(sut_optimizer_parameter(SUT_OPTIMIZER_COUNT, 0, &info), INVALID);
    assert_int_equal(sut_optimizer_parameter(SUT_OPTIMIZER_ADAM, -1, &info), RANGE);
    assert_int_equal(sut_optimizer_parameter(SUT_OPTIMIZER_ADAM, 1000, &info), RANGE);
    assert_int_equal(sut_optimizer_parameter(SUT_OPTIMIZER_ADAM, 0, NULL), INVALID);
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; method++)
        for (int k = 0; sut_optimizer_parameter((sut_optimizer_method)method, k, &info) == SUT_OK; k++) {
            assert_true(isfinite(info.minimum) && isfinite(info.default_value));
            assert_true(isfinite(info.maximum) || info.maximum_open); /* no number is infinite */
            assert_int_equal(sut_hyper_init(&hyper, (sut_optimizer_method)method), SUT_OK);
            assert_int_equal(sut_hyper_set(&hyper, (sut_optimizer_method)method, info.name, info.maximum),
                             info.maximum_open ? RANGE : SUT_OK);
        }
    assert_int_equal(sut_hyper_init(NULL, SUT_OPTIMIZER_ADAM), INVALID);
    assert_int_equal(sut_hyper_init(&hyper, (sut_optimizer_method)-1), INVALID);
    assert_int_equal(sut_hyper_init(&hyper, SUT_OPTIMIZER_ADAM), SUT_OK);
    kept = hyper;
    assert_int_equal(sut_hyper_set(NULL, SUT_OPTIMIZER_ADAM, "lr", 1), INVALID);
    assert_int_equal(sut_hyper_set(&hyper, SUT_OPTIMIZER_COUNT, "lr", 1), INVALID);
    assert_int_equal(sut_hyper_set(&hyper, SUT_OPTIMIZER_ADAM, NULL, 1), INVALID);
    assert_int_equal(sut_hyper_set(&hyper, SUT_OPTIMIZER_ADAM, "momentum", 0.5), INVALID); /* not Adam's */
    assert_int_equal(sut_hyper_set(&hyper, SUT_OPTIMIZER_ADAM, "LR", 1), INVALID);
    assert_int_equal(sut_hyper_get(NULL, SUT_OPTIMIZER_ADAM, "lr", &value), INVALID);
    assert_int_equal(sut_hyper_get(&hyper, SUT_OPTIMIZER_ADAM, "lr", NULL), INVALID);
    assert_int_equal(sut_hyper_get(&hyper, SUT_OPTIMIZER_ADAM, NULL, &value), INVALID);
    assert_int_equal(sut_hyper_get(&hyper, SUT_OPTIMIZER_ADAM, "dampening", &value), INVALID);
    assert_memory_equal(&hyper, &kept, sizeof hyper);
    assert_true(value == 42);
}

/* --- checkpoints ----------------------------------------------------------------------------------------------------- */

static void checkpoints(void **state)
{
    (void)state;
    sut_optimizer *opt = make();
    size_t size, good_size;
    void *bytes = opt, *before = snapshot(opt, &good_size);
    REFUSED(sut_optimizer_save(opt, NULL, NULL), INVALID, "path");
    REFUSED(sut_optimizer_load(opt, NULL, NULL), INVALID, "path");
    REFUSED(sut_optimizer_save(opt, "no-such-directory/x", NULL), SUT_ERROR_IO, "no-such-directory/x");
    REFUSED(sut_optimizer_load(opt, "no-such-file", NULL), SUT_ERROR_IO, "no-such-file");
    REFUSED(sut_optimizer_save_memory(opt, NULL, NULL, &size), INVALID, "data_out");
    REFUSED(sut_optimizer_save_memory(opt, NULL, &bytes, NULL), INVALID, "size_out");
    REFUSED(sut_optimizer_load_memory(opt, NULL, 100, NULL), INVALID, "data");
    REFUSED(sut_optimizer_load_memory(opt, before, 0, NULL), SUT_ERROR_CORRUPT, "truncated");

    sut_checkpoint_config config;
    const size_t sizes[] = {0, 7, sizeof config + 1, SIZE_MAX};
    for (int k = 0; k < 4; k++) {
        sut_checkpoint_config_init(&config);
        config.struct_size = sizes[k];
        REFUSED(sut_optimizer_save_memory(opt, &config, &bytes, &size), INVALID, "struct_size");
        REFUSED(sut_optimizer_load_memory(opt, before, good_size, &config), INVALID, "struct_size");
    }
    double extra[2] = {1, 2};
    const sut_extra_tensor good_tensor = {
        .name = "x", .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {2}, .data = extra};
    const sut_extra_text good_text = {.key = "k", .value = "v"};
    sut_extra_tensor tensor[2] = {good_tensor, good_tensor};
    sut_extra_text text[2] = {good_text, good_text};
    sut_checkpoint_config_init(&config);
    const sut_checkpoint_config plain = config;
    char long_name[202];
    memset(long_name, 'x', 201);
    long_name[201] = '\0';
#define SAVE_REFUSED(word) REFUSED(sut_optimizer_save_memory(opt, &config, &bytes, &size), INVALID, word)
#define BOTH_REFUSED(word)                                                                  \
    do {                                                                                    \
        SAVE_REFUSED(word);                                                                 \
        REFUSED(sut_optimizer_load_memory(opt, before, good_size, &config), INVALID, word); \
    } while (0)
    config.n_tensors = 1; /* without tensors */
    BOTH_REFUSED("tensors");
    config = plain, config.n_tensors = -1;
    BOTH_REFUSED("n_tensors");
    config = plain, config.n_texts = 1;
    BOTH_REFUSED("texts");
    config = plain, config.n_texts = -1;
    BOTH_REFUSED("n_texts");

    config = plain, config.tensors = tensor, config.n_tensors = 1;
    const char *names[] = {NULL, "", "suture.x", "__metadata__", long_name};
    for (int k = 0; k < 5; k++) {
        tensor[0] = good_tensor, tensor[0].name = names[k];
        BOTH_REFUSED("tensor");
    }
    tensor[0] = good_tensor, tensor[0].name = "\xff";
    SAVE_REFUSED("UTF-8");
    tensor[0] = good_tensor, tensor[0].dtype = (sut_dtype)9;
    BOTH_REFUSED("dtype");
    tensor[0] = good_tensor, tensor[0].n_dims = SUT_MAX_DIMS + 1;
    BOTH_REFUSED("n_dims");
    tensor[0] = good_tensor, tensor[0].shape[0] = -1;
    BOTH_REFUSED("shape");
    tensor[0] = good_tensor, tensor[0].data = NULL;
    BOTH_REFUSED("data");
    tensor[0] = good_tensor, config.n_tensors = 2;
    SAVE_REFUSED("\"x\"");

    config = plain, config.texts = text, config.n_texts = 1;
    const char *keys[] = {NULL, "", "suture.method"};
    for (int k = 0; k < 3; k++) {
        text[0] = good_text, text[0].key = keys[k];
        BOTH_REFUSED("key");
    }
    text[0] = good_text, text[0].value = NULL;
    SAVE_REFUSED("\"k\"");
    text[0] = good_text, text[0].value = "\xe9";
    SAVE_REFUSED("UTF-8");
    text[0] = good_text, config.n_texts = 2;
    SAVE_REFUSED("\"k\"");
    assert_ptr_equal(bytes, opt);
    unchanged(opt, before, good_size);
    sut_buffer_free(ctx, before);
    sut_optimizer_destroy(opt);
}

static int open_context(void **state)
{
    (void)state;
    sut_context_config config;
    sut_context_config_init(&config);
    config.n_threads = 2;
    return sut_context_create(&ctx, &config) == SUT_OK ? 0 : -1;
}

static int close_context(void **state)
{
    (void)state;
    sut_context_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_leaves_no_rubbish),
        cmocka_unit_test(names_of_unknown_values),
        cmocka_unit_test(context),
        cmocka_unit_test(surgery),
        cmocka_unit_test(cone),
        cmocka_unit_test(creation),
        cmocka_unit_test(flags_and_choices),
        cmocka_unit_test(null_handles),
        cmocka_unit_test(steps),
        cmocka_unit_test(sequence),
        cmocka_unit_test(settings),
        cmocka_unit_test(hyper_parameters),
        cmocka_unit_test(checkpoints),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
