/*
 * Memory that runs out: the n-th allocation fails, for every n. Each call then answers SUT_ERROR_OUT_OF_MEMORY, what
 * existed before is as it was, and everything that was taken is given back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "suture/suture.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- an allocator that counts, and fails on demand ------------------------------------------------------------------- */

typedef struct meter {
    long taken;   /* allocations so far */
    long held;    /* blocks in use */
    long fail_at; /* the allocation that fails: 1, 2, ...; 0: none */
    bool failed;
} meter;

static void *take(void *user, size_t size)
{
    meter *m = user;
    if (++m->taken == m->fail_at) {
        m->failed = true;
        return NULL;
    }
    void *block = malloc(size);
    m->held += block != NULL;
    return block;
}

static void *change(void *user, void *pointer, size_t size)
{
    meter *m = user;
    if (++m->taken == m->fail_at) {
        m->failed = true;
        return NULL;
    }
    m->held += pointer == NULL;
    return realloc(pointer, size);
}

static void give_back(void *user, void *pointer)
{
    meter *m = user;
    m->held -= pointer != NULL;
    free(pointer);
}

static sut_status make_context(sut_context **ctx, meter *m)
{
    sut_context_config config;
    sut_context_config_init(&config);
    config.n_threads = 2;
    config.allocator = (sut_allocator){take, change, give_back, m};
    return sut_context_create(ctx, &config);
}

/* --- the calls ------------------------------------------------------------------------------------------------------- */

enum { N = 7 };

typedef struct scene {
    sut_context *ctx;
    sut_optimizer *opt, *other;
    float theta[N], g[2][N], out[N];
    uint16_t low[3], low_g[2][3];
    sut_report report;
    void *file; /* a sound state of other steps, in malloc'ed memory */
    size_t file_size;
    char path[64];
} scene;

static sut_status create(scene *s, sut_optimizer **opt)
{
    const sut_tensor tensors[] = {
        {.data = s->theta, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {N}, .name = "theta"},
        {.data = s->low, .dtype = SUT_DTYPE_BF16, .n_dims = 1, .shape = {3}, .name = "low", .group = 1},
    };
    static const char *const losses[] = {"residual", "boundary"};
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    const sut_hyper groups[2] = {config.hyper, config.hyper};
    config.tensors = tensors;
    config.n_tensors = 2;
    config.groups = groups;
    config.n_groups = 2;
    config.n_losses = 2;
    config.loss_names = losses;
    config.surgery.method = SUT_SURGERY_UPGRAD;
    config.align = SUT_ALIGN_GUA;
    return sut_optimizer_create(opt, s->ctx, &config);
}

static sut_status step(scene *s, sut_optimizer *opt)
{
    const void *grads[] = {s->g[0], s->low_g[0], s->g[1], s->low_g[1]};
    return sut_optimizer_step(opt, grads, NULL, &s->report);
}

static sut_status call_create(scene *s)
{
    const sut_status status = create(s, &s->other);
    assert_true((status == SUT_OK) == (s->other != NULL));
    return status;
}

static sut_status call_save(scene *s)
{
    return sut_optimizer_save(s->opt, s->path, NULL);
}

static sut_status call_save_memory(scene *s)
{
    void *data = s;
    size_t size = 1;
    const sut_status status = sut_optimizer_save_memory(s->opt, NULL, &data, &size);
    if (status == SUT_OK)
        sut_buffer_free(s->ctx, data);
    else
        assert_true(data == s && size == 1);
    return status;
}

static double extra[2];
static sut_extra_tensor extra_tensor = {
    .name = "extra", .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {2}, .data = extra};
static sut_extra_text extra_text = {.key = "text", .value = "value"};

static sut_checkpoint_config with_extras(void)
{
    sut_checkpoint_config config;
    sut_checkpoint_config_init(&config);
    config.tensors = &extra_tensor, config.n_tensors = 1;
    extra_text.value = "value"; /* a load leaves a text there that lives no longer than its context */
    config.texts = &extra_text, config.n_texts = 1;
    return config;
}

static sut_status call_load_memory(scene *s)
{
    const sut_checkpoint_config config = with_extras();
    extra[0] = 42;
    const sut_status status = sut_optimizer_load_memory(s->opt, s->file, s->file_size, &config);
    assert_true((extra[0] == 42) == (status != SUT_OK));
    return status;
}

static sut_status call_load(scene *s)
{
    const sut_checkpoint_config config = with_extras();
    return sut_optimizer_load(s->opt, s->path, &config);
}

static sut_status call_direction(scene *s)
{
    const void *grads[] = {s->g[0], s->g[1]};
    sut_surgery_config config;
    sut_surgery_config_init(&config, SUT_SURGERY_CONFIG);
    return sut_surgery_direction(s->ctx, &config, grads, 2, N, SUT_DTYPE_F32, NULL, 0, s->out, NULL);
}

static sut_status call_weights(scene *s)
{
    const double gram[4] = {2, -1, -1, 3};
    sut_surgery_config config;
    sut_surgery_report report;
    sut_surgery_config_init(&config, SUT_SURGERY_CAGRAD);
    sut_surgery_report_init(&report);
    return sut_surgery_weights(s->ctx, &config, gram, 2, NULL, 0, &report);
}

static sut_status call_project(scene *s)
{
    const void *grads[] = {s->g[0], s->g[1]};
    return sut_cone_project(s->ctx, NULL, grads, 2, N, SUT_DTYPE_F32, s->g[0], NULL, s->out, NULL);
}

typedef struct call {
    const char *name;
    sut_status (*run)(scene *s);
    bool may_change; /* a load that succeeds has changed the optimizer */
} call;

static const call calls[] = {
    {"sut_optimizer_create", call_create, false},
    {"sut_optimizer_save", call_save, false},
    {"sut_optimizer_save_memory", call_save_memory, false},
    {"sut_optimizer_load_memory", call_load_memory, true},
    {"sut_optimizer_load", call_load, true},
    {"sut_surgery_direction", call_direction, false},
    {"sut_surgery_weights", call_weights, false},
    {"sut_cone_project", call_project, false},
};

/* A fresh context with an optimizer that has made two steps, and a file (of three) in memory and on the disk. */
static void set_up(scene *s, meter *m)
{
    memset(s, 0, sizeof *s);
    memset(m, 0, sizeof *m);
    sut_report_init(&s->report);
    for (int k = 0; k < N; k++) {
        s->theta[k] = (float)k;
        s->g[0][k] = k % 2 ? 1.0f : -1.5f;
        s->g[1][k] = k % 3 ? -1.0f : 2.0f;
        s->out[k] = 9;
    }
    memcpy(s->low_g, (uint16_t[2][3]){{0x3f80, 0xbf80, 0x4000}, {0x3f80, 0x3f80, 0xc000}}, sizeof s->low_g);
    (void)snprintf(s->path, sizeof s->path, "suture-alloc-%ld.safetensors", (long)getpid());
    assert_int_equal(make_context(&s->ctx, m), SUT_OK);
    assert_int_equal(create(s, &s->opt), SUT_OK);
    sut_checkpoint_config config = with_extras();
    extra[0] = 7;
    void *data;
    for (int k = 0; k < 3; k++)
        assert_int_equal(step(s, s->opt), SUT_OK);
    assert_int_equal(sut_optimizer_save_memory(s->opt, &config, &data, &s->file_size), SUT_OK);
    s->file = malloc(s->file_size);
    assert_non_null(s->file);
    memcpy(s->file, data, s->file_size);
    sut_buffer_free(s->ctx, data);
    assert_int_equal(sut_optimizer_save(s->opt, s->path, &config), SUT_OK);
    assert_int_equal(step(s, s->opt), SUT_OK);
}

static void tear_down(scene *s)
{
    sut_optimizer_destroy(s->other);
    sut_optimizer_destroy(s->opt);
    sut_context_destroy(s->ctx);
    free(s->file);
    (void)unlink(s->path);
}

/* The file on the disk is not another one. */
static void same_file(const scene *s)
{
    unsigned char *found = malloc(s->file_size + 1);
    FILE *file = fopen(s->path, "rb");
    assert_non_null(found);
    assert_non_null(file);
    assert_int_equal(fread(found, 1, s->file_size + 1, file), s->file_size);
    assert_memory_equal(found, s->file, s->file_size);
    (void)fclose(file);
    free(found);
}

/* --- the context's memory -------------------------------------------------------------------------------------------- */

static void a_context_is_made_or_not(void **state)
{
    (void)state;
    meter m = {0};
    sut_status status = SUT_ERROR_OUT_OF_MEMORY;
    for (long n = 1; status != SUT_OK; n++) {
        sut_context *ctx = (sut_context *)&m;
        m = (meter){.fail_at = n};
        status = make_context(&ctx, &m);
        assert_int_equal(status, m.failed ? SUT_ERROR_OUT_OF_MEMORY : SUT_OK);
        assert_true((ctx == NULL) == m.failed);
        sut_context_destroy(ctx);
        assert_int_equal(m.held, 0);
    }
    assert_true(m.taken >= 1);
}

static void every_allocation_of_every_call(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        long failures = 0;
        for (long n = 1;; n++) {
            scene s;
            meter m;
            set_up(&s, &m);
            void *before;
            size_t before_size;
            assert_int_equal(sut_optimizer_save_memory(s.opt, NULL, &before, &before_size), SUT_OK);
            float theta[N];
            memcpy(theta, s.theta, sizeof theta);
            const long held = m.held;
            m.fail_at = m.taken + n;
            const sut_status status = calls[k].run(&s);
            m.fail_at = 0;
            if (status != (m.failed ? SUT_ERROR_OUT_OF_MEMORY : SUT_OK))
                fail_msg("%s, allocation %ld: status %d, %s", calls[k].name, n, status, sut_context_last_error(s.ctx));
            if (m.failed) {
                failures++;
                if (m.held != held)
                    fail_msg("%s, allocation %ld: %ld blocks are lost", calls[k].name, n, m.held - held);
                if (!strstr(sut_context_last_error(s.ctx), "memory"))
                    fail_msg("%s, allocation %ld: \"%s\"", calls[k].name, n, sut_context_last_error(s.ctx));
                same_file(&s);
                for (int j = 0; j < N; j++)
                    assert_true(s.out[j] == 9);
            }
            if (m.failed || !calls[k].may_change) {
                void *after;
                size_t size;
                assert_memory_equal(theta, s.theta, sizeof theta);
                assert_int_equal(sut_optimizer_save_memory(s.opt, NULL, &after, &size), SUT_OK);
                assert_int_equal(size, before_size);
                assert_memory_equal(before, after, size);
                sut_buffer_free(s.ctx, after);
            }
            assert_int_equal(step(&s, s.opt), SUT_OK); /* and it goes on */
            sut_buffer_free(s.ctx, before);
            tear_down(&s);
            assert_int_equal(m.held, 0);
            if (!m.failed)
                break;
        }
        print_message("%s: %ld allocations\n", calls[k].name, failures);
    }
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    scene s;
    meter m;
    set_up(&s, &m);
    const void *grads[] = {s.g[0], s.low_g[0], s.g[1], s.low_g[1]};
    double weights[2];
    const long taken = m.taken;
    assert_int_equal(step(&s, s.opt), SUT_OK);
    assert_int_equal(sut_optimizer_direction(s.opt, grads, NULL, weights, NULL), SUT_OK);
    assert_int_equal(sut_optimizer_propose(s.opt, grads, NULL, NULL, NULL), SUT_OK);
    assert_int_equal(sut_optimizer_project(s.opt, grads, NULL, &s.report), SUT_OK);
    assert_int_equal(sut_optimizer_apply(s.opt, grads, NULL, NULL), SUT_OK);
    assert_int_equal(m.taken, taken);
    tear_down(&s);
    assert_int_equal(m.held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_is_made_or_not),
        cmocka_unit_test(every_allocation_of_every_call),
        cmocka_unit_test(a_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
