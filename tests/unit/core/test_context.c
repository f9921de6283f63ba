/*
 * Contexts: choice of back end, instruction set and threads; allocator hooks that balance, are given back what they gave,
 * and are never called inside a step; what this build can do; the log callback.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "suture/suture.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- an allocator that keeps books ----------------------------------------------------------------------------------- */

typedef struct books {
    long live, calls;
    size_t bytes; /* in use */
    pthread_t owner;
    int wrong_thread, wrong_user;
} books;

static books the_books;
enum { HEAD = 32 }; /* keeps the alignment of malloc */

static void enter(void *user)
{
    books *const b = &the_books;
    ++b->calls;
    b->wrong_user |= user != b;
    b->wrong_thread |= !pthread_equal(b->owner, pthread_self());
}

static void *allocate(void *user, size_t size)
{
    enter(user);
    char *const raw = malloc(size + HEAD);
    if (!raw)
        return NULL;
    memcpy(raw, &size, sizeof size);
    memset(raw + HEAD, 0xA5, size); /* nobody may count on zeros */
    ++the_books.live;
    the_books.bytes += size;
    return raw + HEAD;
}

static void release(void *user, void *pointer)
{
    enter(user);
    if (!pointer)
        return;
    size_t size;
    memcpy(&size, (char *)pointer - HEAD, sizeof size);
    --the_books.live;
    the_books.bytes -= size;
    memset((char *)pointer - HEAD, 0x5A, size + HEAD);
    free((char *)pointer - HEAD);
}

static void *resize(void *user, void *pointer, size_t size)
{
    void *const larger = allocate(user, size);
    if (larger && pointer) {
        size_t old;
        memcpy(&old, (char *)pointer - HEAD, sizeof old);
        memcpy(larger, pointer, old < size ? old : size);
        release(user, pointer);
    }
    return larger;
}

static sut_context_config with_books(int n_threads)
{
    sut_context_config config;
    sut_context_config_init(&config);
    config.n_threads = n_threads;
    config.allocator = (sut_allocator){allocate, resize, release, &the_books};
    memset(&the_books, 0, sizeof the_books);
    the_books.owner = pthread_self();
    return config;
}

/* --- tests ----------------------------------------------------------------------------------------------------------- */

static void defaults(void **state)
{
    (void)state;
    sut_context *ctx;
    sut_capability_report report;
    sut_capabilities_init(&report);
    assert_int_equal(sut_capabilities(&report), SUT_OK);
    assert_int_equal(sut_context_create(&ctx, NULL), SUT_OK);
    assert_int_equal(sut_context_backend(ctx), SUT_BACKEND_CPU);
    if (!getenv("SUTURE_ISA"))
        assert_int_equal(sut_context_isa(ctx), report.best_isa);
    assert_int_equal(sut_context_threads(ctx), report.processors);
    assert_string_equal(sut_context_last_error(ctx), "");
    double here[2] = {0, 0};
    const double there[2] = {1, 2};
    assert_int_equal(sut_context_set_stream(ctx, &report), SUT_OK); /* there are none on the CPU */
    assert_int_equal(sut_context_upload(ctx, here, there, sizeof here), SUT_OK);
    assert_memory_equal(here, there, sizeof here);
    here[0] = 0;
    assert_int_equal(sut_context_download(ctx, here, there, sizeof here), SUT_OK);
    assert_memory_equal(here, there, sizeof here);
    sut_context_destroy(ctx);

    sut_context_config config;
    sut_context_config_init(&config);
    config.backend = SUT_BACKEND_CPU;
    for (int n = 1; n <= 1024; n = n < 8 ? n + 1 : n * 2) {
        config.n_threads = n;
        assert_int_equal(sut_context_create(&ctx, &config), SUT_OK);
        assert_int_equal(sut_context_threads(ctx), n);
        sut_context_destroy(ctx);
    }
}

/* As many threads as this process may use, not as the machine has. */
static void threads_follow_the_affinity(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int k = 0; k < CPU_SETSIZE; ++k)
        if (CPU_ISSET(k, &before)) {
            CPU_SET(k, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    sut_context *ctx;
    sut_capability_report report;
    sut_capabilities_init(&report);
    const sut_status created = sut_context_create(&ctx, NULL), asked = sut_capabilities(&report);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(created, SUT_OK);
    assert_int_equal(asked, SUT_OK);
    assert_int_equal(sut_context_threads(ctx), 1);
    assert_int_equal(report.processors, 1);
    sut_context_destroy(ctx);
}

static void capabilities(void **state)
{
    (void)state;
    sut_capability_report report;
    memset(&report, 0xA5, sizeof report);
    sut_capabilities_init(&report);
    assert_int_equal(sut_capabilities(&report), SUT_OK);
    assert_string_equal(report.version, sut_version());
    assert_true(report.best_isa >= SUT_ISA_BASELINE && report.best_isa <= SUT_ISA_AVX512);
    assert_true(report.processors >= 1);
    assert_int_equal(report.max_losses, SUT_MAX_LOSSES);
    assert_true(report.blas_integer_bits == 32 || report.blas_integer_bits == 64);
    assert_non_null(strstr(report.blas, "OpenBLAS"));
    assert_true(strlen(report.blas_kernel) > 0);
    assert_true(report.has_cuda == 1 || strlen(report.cuda_reason) > 10); /* what is missing explains itself */

    /* An older caller's report is filled in as far as it goes, and not a byte further. */
    for (size_t size = sizeof size; size < sizeof report; size += 7) {
        sut_capability_report shorter;
        memset(&shorter, 0x5A, sizeof shorter);
        shorter.struct_size = size;
        assert_int_equal(sut_capabilities(&shorter), SUT_OK);
        assert_int_equal(shorter.struct_size, size);
        assert_memory_equal((char *)&shorter + sizeof size, (char *)&report + sizeof size, size - sizeof size);
        for (size_t k = size; k < sizeof shorter; ++k)
            assert_int_equal(((unsigned char *)&shorter)[k], 0x5A);
    }
}

/* One round of everything that allocates. */
static void use(sut_context *ctx, int64_t n)
{
    static float theta[2][70000], g[2][70000], p[70000];
    for (int64_t k = 0; k < n; ++k) {
        g[0][k] = (float)(k % 7) - 3;
        g[1][k] = 2 - (float)(k % 5) * 1.5f;
        theta[0][k] = theta[1][k] = 0.25f;
    }
    const void *const rows[2] = {g[0], g[1]};
    sut_tensor tensor = {.data = theta[0], .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {n}};
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    config.tensors = &tensor;
    config.n_tensors = 1;
    config.n_losses = 2;
    config.align = SUT_ALIGN_GUA;
    config.conflict_cos_tol = 0;
    config.surgery.method = SUT_SURGERY_CONFIG;
    sut_optimizer *a, *b;
    assert_int_equal(sut_optimizer_create(&a, ctx, &config), SUT_OK);
    tensor.data = theta[1];
    config.n_losses = 2;
    assert_int_equal(sut_optimizer_create(&b, ctx, &config), SUT_OK);
    for (int t = 0; t < 3; ++t)
        assert_int_equal(sut_optimizer_step(a, rows, NULL, NULL), SUT_OK);
    void *bytes;
    size_t size;
    assert_int_equal(sut_optimizer_save_memory(a, NULL, &bytes, &size), SUT_OK);
    assert_int_equal(sut_optimizer_load_memory(b, bytes, size, NULL), SUT_OK);
    sut_buffer_free(ctx, bytes);
    assert_int_equal(sut_cone_project(ctx, NULL, rows, 2, n, SUT_DTYPE_F32, g[0], NULL, p, NULL), SUT_OK);
    sut_surgery_config surgery;
    sut_surgery_config_init(&surgery, SUT_SURGERY_UPGRAD);
    assert_int_equal(sut_surgery_direction(ctx, &surgery, rows, 2, n, SUT_DTYPE_F32, NULL, 0, p, NULL), SUT_OK);
    sut_optimizer_destroy(b);
    sut_optimizer_destroy(a);
}

/* Whatever was allocated through the hooks is released through them, by the calling thread, with its user pointer. */
static void hooks_balance(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 4; n_threads += 3) {
        const sut_context_config config = with_books(n_threads);
        sut_context *ctx;
        assert_int_equal(sut_context_create(&ctx, &config), SUT_OK);
        assert_true(the_books.live > 0);
        use(ctx, 50);
        use(ctx, 70000);
        const long live = the_books.live;
        const size_t bytes = the_books.bytes;
        for (int k = 0; k < 5; ++k)
            use(ctx, 70000);
        assert_int_equal(the_books.live, live); /* nothing is left behind by use */
        assert_int_equal(the_books.bytes, bytes);
        sut_context_destroy(ctx);
        assert_int_equal(the_books.live, 0);
        assert_int_equal(the_books.bytes, 0);
        assert_int_equal(the_books.wrong_thread, 0);
        assert_int_equal(the_books.wrong_user, 0);
    }
}

/* Steps of every kind, in one call and in stages, refused ones too: not one call of a hook. The bytes of an optimizer are those that it tells. */
static void no_allocation_in_a_step(void **state)
{
    (void)state;
    enum { M = 3 };
    static float theta[70000], g[M][70000];
    static double out[70000];
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int k = 0; k < 8; ++k) {
            const int64_t n = k % 2 ? 70000 : 300;
            const sut_context_config context_config = with_books(2);
            sut_context *ctx;
            assert_int_equal(sut_context_create(&ctx, &context_config), SUT_OK);
            for (int64_t j = 0; j < n; ++j) {
                theta[j] = 0.5f;
                for (int i = 0; i < M; ++i)
                    g[i][j] = (float)((j * (i + 3)) % 11) - 5.0f - 0.3f * (float)i;
            }
            /* Nearly opposed, so that sums are repeated and multipliers refined. */
            for (int64_t j = 0; j < n && k / 4; ++j)
                g[2][j] = -g[0][j] + 1e-4f * g[1][j];
            sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {n}};
            sut_optimizer_config config;
            sut_optimizer_config_init(&config, (sut_optimizer_method)method);
            config.tensors = &tensor;
            config.n_tensors = 1;
            config.n_losses = M;
            config.align = SUT_ALIGN_GUA;
            config.conflict_cos_tol = 0;
            config.check = SUT_CHECK_ALL;
            config.surgery.method = k / 2 % 2 ? SUT_SURGERY_ALIGNED_MTL : SUT_SURGERY_SUM;
            const size_t before = the_books.bytes;
            sut_optimizer *opt;
            assert_int_equal(sut_optimizer_create(&opt, ctx, &config), SUT_OK);
            size_t own, workspace;
            assert_int_equal(sut_optimizer_memory(opt, &own, &workspace), SUT_OK);
            assert_true(the_books.bytes - before >= own);
            assert_true(the_books.bytes - before <= own + workspace + 8192); /* heads and alignment */

            const void *const rows[M] = {g[0], g[1], g[2]};
            void *const wanted[1] = {out};
            const long calls = the_books.calls;
            for (int t = 0; t < (n > 1000 ? 3 : 25); ++t) {
                sut_report report;
                sut_report_init(&report);
                assert_int_equal(sut_optimizer_step(opt, rows, NULL, &report), SUT_OK);
                assert_int_equal(sut_optimizer_direction(opt, rows, NULL, NULL, wanted), SUT_OK);
                assert_int_equal(sut_optimizer_propose(opt, rows, NULL, wanted, NULL), SUT_OK);
                assert_int_equal(sut_optimizer_project(opt, rows, wanted, &report), SUT_OK);
                assert_int_equal(sut_optimizer_apply(opt, rows, NULL, &report), SUT_OK);
                g[1][0] = NAN; /* not for a refusal, either */
                assert_int_equal(sut_optimizer_step(opt, rows, NULL, &report), SUT_ERROR_NOT_FINITE);
                g[1][0] = 1;
            }
            assert_int_equal(the_books.calls, calls);
            sut_optimizer_destroy(opt);
            sut_context_destroy(ctx);
            assert_int_equal(the_books.live, 0);
        }
}

/* Beyond state and parameters memory depends on m and the number of tensors, not on the number of elements. */
static void workspace_does_not_grow(void **state)
{
    (void)state;
    static float theta[100000];
    sut_context *ctx;
    sut_context_config context_config;
    sut_context_config_init(&context_config);
    context_config.n_threads = 3;
    assert_int_equal(sut_context_create(&ctx, &context_config), SUT_OK);
    for (int m = 1; m <= SUT_MAX_LOSSES; m *= 2) {
        size_t first = 0;
        for (int64_t n = 1; n <= 100000; n *= 10) {
            sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {n}};
            sut_optimizer_config config;
            sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
            config.tensors = &tensor;
            config.n_tensors = 1;
            config.n_losses = m;
            sut_optimizer *opt;
            size_t own, workspace;
            assert_int_equal(sut_optimizer_create(&opt, ctx, &config), SUT_OK);
            assert_int_equal(sut_optimizer_memory(opt, &own, &workspace), SUT_OK);
            first = n == 1 ? workspace : first;
            assert_int_equal(workspace, first);
            assert_true(own >= 8 * (size_t)n && own <= 8 * (size_t)n + 128);
            sut_optimizer_destroy(opt);
        }
    }
    sut_context_destroy(ctx);
}

/* --- the log --------------------------------------------------------------------------------------------------------- */

static char logged[4096];
static int n_lines, n_newlines;

static void keep_line(void *user, sut_log_level level, const char *message)
{
    assert_ptr_equal(user, logged);
    assert_true(level == SUT_LOG_INFO || level == SUT_LOG_WARNING);
    (void)strncat(logged, message, sizeof logged - strlen(logged) - 1);
    n_newlines += strchr(message, '\n') != NULL;
    ++n_lines;
}

/* Lines without newlines, with the caller's pointer; and nothing on the standard streams, whatever is refused. */
static void the_log_is_all_there_is(void **state)
{
    (void)state;
    char name[] = "/tmp/suture-test-XXXXXX";
    const int file = mkstemp(name), out = dup(1), err = dup(2);
    assert_true(file >= 0 && out >= 0 && err >= 0);
    (void)fflush(NULL);
    (void)dup2(file, 1);
    (void)dup2(file, 2);

    sut_context_config config;
    sut_context_config_init(&config);
    config.log = keep_line;
    config.log_user = logged;
    sut_context *ctx = NULL, *none = NULL;
    const sut_status created = sut_context_create(&ctx, &config);
    config.backend = SUT_BACKEND_CUDA;
    const int before = n_lines;
    const sut_status refused = sut_context_create(&none, &config);
    const int more = n_lines - before;
    sut_optimizer *opt;
    const sut_status bad = sut_optimizer_create(&opt, ctx, NULL);
    sut_context_destroy(ctx);

    (void)fflush(NULL);
    (void)dup2(out, 1);
    (void)dup2(err, 2);
    const off_t printed = lseek(file, 0, SEEK_END);
    (void)close(out), (void)close(err), (void)close(file), (void)unlink(name);
    assert_int_equal(created, SUT_OK);
    assert_int_equal(bad, SUT_ERROR_INVALID_ARGUMENT);
    if (refused != SUT_OK) {
        assert_int_equal(refused, SUT_ERROR_BACKEND);
        assert_int_equal(more, 1);
        assert_non_null(strstr(logged, "CUDA"));
    }
    assert_int_equal(n_newlines, 0);
    assert_true(printed == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(threads_follow_the_affinity),
        cmocka_unit_test(capabilities),
        cmocka_unit_test(hooks_balance),
        cmocka_unit_test(no_allocation_in_a_step),
        cmocka_unit_test(workspace_does_not_grow),
        cmocka_unit_test(the_log_is_all_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
