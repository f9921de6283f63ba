/*
 * The library leaves the process as it finds it: locale, working directory, signal handlers, rounding and other control
 * bits of the processor, OpenBLAS's number of threads, file mode mask, environment, open files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "suture/suture.h"

#include <dirent.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern int openblas_get_num_threads(void); /* its header is not installed everywhere */
extern char **environ;

#if defined(__x86_64__)
#include <xmmintrin.h>
/* Rounding, flush to zero, masks; not the sticky flags of results. */
static unsigned control_bits(void)
{
    return _mm_getcsr() & ~0x3fu;
}
#else
static unsigned control_bits(void)
{
    return (unsigned)fegetround();
}
#endif

typedef struct process {
    char locale[256], directory[4096];
    int rounding, blas_threads, open_files, n_environment;
    unsigned control;
    mode_t mask;
    void (*handler[32])(int);
    int handler_flags[32];
    char **environment;
} process;

static int count_open_files(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL)
        return 0;
    while (readdir(dir) != NULL)
        n++;
    (void)closedir(dir);
    return n;
}

static void look(process *p)
{
    memset(p, 0, sizeof *p);
    (void)snprintf(p->locale, sizeof p->locale, "%s", setlocale(LC_ALL, NULL));
    assert_non_null(getcwd(p->directory, sizeof p->directory));
    p->rounding = fegetround();
    p->control = control_bits();
    p->blas_threads = openblas_get_num_threads();
    p->mask = umask(0);
    (void)umask(p->mask);
    for (int k = 1; k < 32; k++) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        (void)sigaction(k, NULL, &action);
        p->handler[k] = action.sa_handler;
        p->handler_flags[k] = action.sa_flags;
    }
    p->environment = environ;
    while (environ[p->n_environment])
        p->n_environment++;
    p->open_files = count_open_files();
}

static void same(const process *a, const char *after)
{
    process b;
    look(&b);
    if (memcmp(a, &b, sizeof b) != 0)
        fail_msg("after %s: locale %s / %s, directory %s / %s, rounding %d / %d, control %x / %x, BLAS threads %d / "
                 "%d, mask "
                 "%o / %o, files %d / %d",
                 after, a->locale, b.locale, a->directory, b.directory, a->rounding, b.rounding, a->control, b.control,
                 a->blas_threads, b.blas_threads, (unsigned)a->mask, (unsigned)b.mask, a->open_files, b.open_files);
}

enum { N = 100000 };

static void the_process_stays_as_it_is(void **state)
{
    (void)state;
    float *memory = calloc(4 * N, sizeof *memory);
    assert_non_null(memory);
    float *theta = memory, *g0 = memory + N, *g1 = memory + 2 * N, *out = memory + 3 * N;
    for (int k = 0; k < N; k++) {
        g0[k] = k % 3 ? 1.0f : -2.0f;
        g1[k] = k % 5 ? -1.0f : 3.0f;
    }
    const void *grads[2] = {g0, g1};
    char path[64];
    (void)snprintf(path, sizeof path, "suture-process-%ld.safetensors", (long)getpid());
    process before;
    look(&before);

    sut_context *ctx;
    sut_context_config config;
    sut_context_config_init(&config);
    config.n_threads = 3;
    assert_int_equal(sut_context_create(&ctx, &config), SUT_OK);
    same(&before, "sut_context_create");
    const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {N}, .name = "theta"};
    sut_optimizer_config opt_config;
    sut_optimizer *opt;
    sut_optimizer_config_init(&opt_config, SUT_OPTIMIZER_ADAM);
    opt_config.tensors = &tensor;
    opt_config.n_tensors = 1;
    opt_config.n_losses = 2;
    opt_config.surgery.method = SUT_SURGERY_CAGRAD;
    opt_config.align = SUT_ALIGN_GUA;
    assert_int_equal(sut_optimizer_create(&opt, ctx, &opt_config), SUT_OK);
    same(&before, "sut_optimizer_create");
    for (int k = 0; k < 3; k++)
        assert_int_equal(sut_optimizer_step(opt, grads, NULL, NULL), SUT_OK);
    same(&before, "sut_optimizer_step");
    sut_surgery_config surgery;
    sut_surgery_config_init(&surgery, SUT_SURGERY_UPGRAD);
    assert_int_equal(sut_surgery_direction(ctx, &surgery, grads, 2, N, SUT_DTYPE_F32, NULL, 0, out, NULL), SUT_OK);
    same(&before, "sut_surgery_direction");
    assert_int_equal(sut_cone_project(ctx, NULL, grads, 2, N, SUT_DTYPE_F32, theta, NULL, out, NULL), SUT_OK);
    same(&before, "sut_cone_project");
    assert_int_equal(sut_optimizer_save(opt, path, NULL), SUT_OK);
    same(&before, "sut_optimizer_save");
    assert_int_equal(sut_optimizer_load(opt, path, NULL), SUT_OK);
    same(&before, "sut_optimizer_load");
    assert_int_equal(sut_optimizer_save(opt, "missing/x", NULL), SUT_ERROR_IO);
    assert_int_equal(sut_optimizer_load(opt, "missing/x", NULL), SUT_ERROR_IO);
    assert_int_equal(sut_optimizer_load(opt, ".", NULL), SUT_ERROR_IO);
    assert_int_equal(sut_optimizer_load_memory(opt, "rubbish", 7, NULL), SUT_ERROR_CORRUPT);
    same(&before, "failures");
    sut_optimizer_destroy(opt);
    sut_context_destroy(ctx);
    same(&before, "the end");
    (void)unlink(path);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_process_stays_as_it_is)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
