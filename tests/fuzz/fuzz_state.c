/*
 * Fuzz target: the reader of state files. Arbitrary bytes are given to the container's reader and to an optimizer, once as
 * they are and once with their checksum repaired, so that the checks behind it are reached too.
 *
 * What must hold: no crash and no read outside the bytes (the sanitizers watch); tensors of an open container lie inside the
 * file; a refused load has changed nothing; after a load that succeeded the optimizer can still be saved and stepped.
 *
 * With clang: -fsanitize=fuzzer builds a libFuzzer program from this file alone. mutate.c drives the same function with
 * mutations of its own, so that a short run is part of every test.
 */
#include "fuzz/fuzz_state.h"

#include "core/crc64.h"
#include "quant/safetensors.h"
#include "suture/suture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                      \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            (void)fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            abort();                                                                            \
        }                                                                                       \
    } while (0)

enum { N_A = 6, N_B = 3 };

/* An optimizer that has made two steps, and its state. It is made once: thousands of inputs a second are wanted. */
typedef struct subject {
    sut_context *ctx;
    sut_optimizer *opt;
    float a[N_A];
    uint16_t b[N_B];
    void *file;
    size_t file_size;
} subject;

static const sut_optimizer_method methods[FUZZ_SUBJECTS] = {SUT_OPTIMIZER_ADAM, SUT_OPTIMIZER_SGD, SUT_OPTIMIZER_NADAM};

static void create(subject *s, int k)
{
    sut_context_config ctx_config;
    sut_context_config_init(&ctx_config);
    ctx_config.n_threads = 1;
    REQUIRE(sut_context_create(&s->ctx, &ctx_config) == SUT_OK);
    const sut_tensor tensors[] = {
        {.data = s->a, .dtype = SUT_DTYPE_F32, .n_dims = 2, .shape = {2, N_A / 2}, .group = 0, .name = "a"},
        {.data = s->b, .dtype = SUT_DTYPE_BF16, .n_dims = 1, .shape = {N_B}, .group = 1, .name = "b"},
    };
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, methods[k]);
    sut_hyper groups[2] = {config.hyper, config.hyper};
    groups[0].momentum = groups[1].momentum = 0.5;
    config.tensors = tensors;
    config.n_tensors = 2;
    config.groups = groups;
    config.n_groups = 2;
    config.n_losses = 2;
    config.align = SUT_ALIGN_GUA;
    REQUIRE(sut_optimizer_create(&s->opt, s->ctx, &config) == SUT_OK);
}

static sut_status step(subject *s)
{
    const float g[2][N_A] = {{1, -2, 3, -4, 5, -6}, {-1, 1, 1, 1, -1, 0.5f}};
    const uint16_t h[2][N_B] = {{0x3f80, 0xbf80, 0x4000}, {0, 0x3f80, 0xc000}}; /* 1 -1 2, 0 1 -2 */
    const void *grads[] = {g[0], h[0], g[1], h[1]};
    return sut_optimizer_step(s->opt, grads, NULL, NULL);
}

static subject *get(int k)
{
    static subject subjects[FUZZ_SUBJECTS];
    subject *s = &subjects[k];
    if (s->ctx == NULL) {
        create(s, k);
        REQUIRE(step(s) == SUT_OK && step(s) == SUT_OK);
        REQUIRE(sut_optimizer_save_memory(s->opt, NULL, &s->file, &s->file_size) == SUT_OK);
    }
    return s;
}

size_t fuzz_seed(int k, unsigned char **bytes_out)
{
    const subject *s = get(k);
    *bytes_out = malloc(s->file_size);
    REQUIRE(*bytes_out != NULL);
    memcpy(*bytes_out, s->file, s->file_size);
    return s->file_size;
}

static void open_container(sut_context *ctx, const uint8_t *data, size_t size)
{
    sut_safetensors *container;
    if (sut_safetensors_open(ctx, "fuzz", data, size, &container) != SUT_OK)
        return;
    size_t total = 0;
    for (int64_t k = 0; k < sut_safetensors_count(container); k++) {
        const sut_safetensors_entry *entry = sut_safetensors_entry_at(container, k);
        REQUIRE(entry->data >= data && entry->size <= size && entry->data + entry->size <= data + size);
        REQUIRE(sut_safetensors_find(container, entry->name) == entry);
        total += entry->size;
    }
    REQUIRE(total < size);
    sut_safetensors_close(container);
}

/* 1 when the bytes were loaded. */
static int load(int k, const uint8_t *data, size_t size)
{
    subject *s = get(k);
    const sut_status status = sut_optimizer_load_memory(s->opt, data, size, NULL);
    if (status == SUT_OK) {
        (void)step(s); /* may be refused: the parameters in the file may be anything */
        REQUIRE(sut_optimizer_load_memory(s->opt, s->file, s->file_size, NULL) == SUT_OK);
        return 1;
    }
    void *after;
    size_t after_size;
    REQUIRE(status == SUT_ERROR_CORRUPT || status == SUT_ERROR_MISMATCH);
    REQUIRE(strlen(sut_context_last_error(s->ctx)) > 10);
    REQUIRE(sut_optimizer_save_memory(s->opt, NULL, &after, &after_size) == SUT_OK);
    REQUIRE(after_size == s->file_size && memcmp(after, s->file, after_size) == 0);
    sut_buffer_free(s->ctx, after);
    return 0;
}

/* Put the right checksum into bytes that begin like a state file; false for others. */
static bool repair(uint8_t *bytes, size_t size)
{
    static const char prefix[] = "{\"__metadata__\":{\"suture.checksum\":\"";
    const size_t at = 8 + sizeof prefix - 1;
    if (size < at + 16 || memcmp(bytes + 8, prefix, sizeof prefix - 1) != 0)
        return false;
    memset(bytes + at, '0', 16);
    sut_crc64 crc;
    sut_crc64_begin(&crc);
    sut_crc64_add(&crc, bytes, size);
    char digits[17];
    (void)snprintf(digits, sizeof digits, "%016llx", (unsigned long long)sut_crc64_end(&crc));
    memcpy(bytes + at, digits, 16);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_container(get(0)->ctx, data, size);
    uint8_t *repaired = malloc(size ? size : 1); /* a block of its own size: reads behind it are seen */
    REQUIRE(repaired != NULL);
    if (size)
        memcpy(repaired, data, size);
    const bool state_file = repair(repaired, size);
    for (int k = 0; k < FUZZ_SUBJECTS; k++) {
        (void)load(k, data, size);
        if (state_file)
            fuzz_accepted += load(k, repaired, size);
    }
    free(repaired);
    return 0;
}

long fuzz_accepted;
