/*
 * A small training run with everything in it: two losses, PCGrad (draws random orders), GUA, Adam, a schedule, three
 * tensors of two types. Gradients depend on nothing but the step and the place, so a run can be taken up by any process.
 */
#ifndef TESTS_CHECKPOINT_RUN_H
#define TESTS_CHECKPOINT_RUN_H

#include "suture/suture.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_A = 40000, RUN_B = 37, RUN_C = 5000 };

typedef struct run {
    sut_context *ctx;
    sut_optimizer *opt;
    float *a, *b;
    double *c;
    void *grads[2 * 3];
} run;

/* Says what failed and ends the program: the checks here run in several processes, without a test framework. */
static inline void require(bool condition, const char *what, const run *r)
{
    if (condition)
        return;
    (void)fprintf(stderr, "failed: %s (%s)\n", what, r ? sut_context_last_error(r->ctx) : "");
    exit(1);
}

static inline void *run_block(size_t count, size_t size)
{
    void *block = calloc(count, size);
    require(block != NULL, "memory for the test", NULL);
    return block;
}

static inline void run_create(run *r)
{
    memset(r, 0, sizeof *r);
    sut_context_config ctx_config;
    sut_context_config_init(&ctx_config);
    ctx_config.n_threads = 1; /* these programs fork */
    ctx_config.seed = 11;
    require(sut_context_create(&r->ctx, &ctx_config) == SUT_OK, "sut_context_create", NULL);
    r->a = run_block(RUN_A, sizeof *r->a);
    r->b = run_block(RUN_B, sizeof *r->b);
    r->c = run_block(RUN_C, sizeof *r->c);
    for (int i = 0; i < 2; i++) {
        r->grads[3 * i] = run_block(RUN_A, sizeof(float));
        r->grads[3 * i + 1] = run_block(RUN_B, sizeof(float));
        r->grads[3 * i + 2] = run_block(RUN_C, sizeof(double));
    }
    const sut_tensor tensors[] = {
        {.data = r->a, .dtype = SUT_DTYPE_F32, .n_dims = 2, .shape = {RUN_A / 8, 8}, .name = "layer.weight"},
        {.data = r->b, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {RUN_B}, .name = "layer.bias"},
        {.data = r->c, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {RUN_C}, .name = "coefficients"},
    };
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    config.tensors = tensors;
    config.n_tensors = 3;
    config.n_losses = 2;
    sut_surgery_config_init(&config.surgery, SUT_SURGERY_PCGRAD);
    config.align = SUT_ALIGN_GUA;
    config.use_schedule = 1;
    sut_schedule_init(&config.schedule, SUT_SCHEDULE_COSINE);
    config.schedule.total = 100000;
    config.schedule.peak = config.hyper.lr = 1e-2;
    require(sut_optimizer_create(&r->opt, r->ctx, &config) == SUT_OK, "sut_optimizer_create", r);
}

static inline void run_destroy(run *r)
{
    sut_optimizer_destroy(r->opt);
    sut_context_destroy(r->ctx);
    free(r->a);
    free(r->b);
    free(r->c);
    for (int k = 0; k < 6; k++)
        free(r->grads[k]);
}

/* A number in [-1, 1) from step, loss and place. */
static inline double run_number(int64_t step, int loss, int64_t place)
{
    uint64_t x = (uint64_t)step * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)place * UINT64_C(0xBF58476D1CE4E5B9) +
                 (uint64_t)loss * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    x *= UINT64_C(0xD6E8FEB86659FD93);
    x ^= x >> 32;
    return (double)(x >> 11) / 4503599627370496.0 - 1.0;
}

static inline void run_step(run *r)
{
    const int64_t t = sut_optimizer_steps(r->opt);
    for (int i = 0; i < 2; i++) {
        for (int64_t k = 0; k < RUN_A; k++)
            ((float *)r->grads[3 * i])[k] = (float)run_number(t, i, k);
        for (int64_t k = 0; k < RUN_B; k++)
            ((float *)r->grads[3 * i + 1])[k] = (float)run_number(t, i, RUN_A + k);
        for (int64_t k = 0; k < RUN_C; k++)
            ((double *)r->grads[3 * i + 2])[k] = run_number(t, i, RUN_A + RUN_B + k);
    }
    require(sut_optimizer_step(r->opt, (const void *const *)r->grads, NULL, NULL) == SUT_OK, "sut_optimizer_step", r);
}

static inline void run_until(run *r, int64_t steps)
{
    while (sut_optimizer_steps(r->opt) < steps)
        run_step(r);
}

/* The file's bytes are those of the run's own state. */
static inline bool run_matches_file(run *r, const char *path)
{
    void *bytes;
    size_t size;
    require(sut_optimizer_save_memory(r->opt, NULL, &bytes, &size) == SUT_OK, "sut_optimizer_save_memory", r);
    FILE *file = fopen(path, "rb");
    require(file != NULL, "the state file can be opened", NULL);
    unsigned char *found = run_block(size + 1, 1);
    const size_t n = fread(found, 1, size + 1, file);
    (void)fclose(file);
    const bool same = n == size && memcmp(found, bytes, size) == 0;
    free(found);
    sut_buffer_free(r->ctx, bytes);
    return same;
}

#endif /* TESTS_CHECKPOINT_RUN_H */
