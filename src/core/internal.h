/*
 * What every room of the library shares: the context's inside, error recording, allocation.
 *
 * Errors: SUT_FAIL records a sentence in the context and returns the status; SUT_TRY passes an error on. Arguments are
 * checked before anything is touched, so a refused call has changed nothing.
 */
#ifndef SUT_CORE_INTERNAL_H
#define SUT_CORE_INTERNAL_H

#include "suture/suture.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SUT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define SUT_PRINTF(f, a)
#endif

struct sut_pool;
struct sut_backend_ops;

struct sut_context {
    sut_backend backend;
    sut_isa isa;
    int n_threads;
    uint64_t seed;
    sut_allocator allocator;
    sut_log_function log;
    void *log_user;
    struct sut_pool *pool;
    const struct sut_backend_ops *ops; /* the n-dimensional passes, see backend/backend.h */
    void *device;                      /* the back end's own; NULL on the CPU */
    void *library;                     /* that the back end came from; NULL: this one */
    double *scratch;                   /* lanes and partial sums of the passes, see sut_backend_reserve() */
    size_t scratch_size;               /* doubles */
    char *loaded_text;                 /* texts lent by the last load */
    char error[1024];
};

/* Record a sentence (truncated to the buffer) and return `status`. `ctx` may be NULL. */
sut_status sut_fail(sut_context *ctx, sut_status status, const char *format, ...) SUT_PRINTF(3, 4);
void sut_log(sut_context *ctx, sut_log_level level, const char *format, ...) SUT_PRINTF(3, 4);

#define SUT_FAIL(ctx, status, ...) return sut_fail((ctx), (status), __VA_ARGS__)
#define SUT_TRY(expression)                       \
    do {                                          \
        const sut_status sut_try_ = (expression); \
        if (sut_try_ != SUT_OK)                   \
            return sut_try_;                      \
    } while (0)

/* Memory through the context's hooks. 64-byte aligned, zeroed; NULL when it fails or count * size overflows. */
void *sut_alloc(sut_context *ctx, size_t count, size_t size);
void sut_free(sut_context *ctx, void *pointer);

/* Copy a caller's struct of `struct_size` bytes over defaults: the library reads no more than the caller's size.
 * Fails by name when struct_size is 0 or larger than the library's own. */
sut_status sut_read_struct(sut_context *ctx, const char *what, void *defaults, size_t own_size, const void *given);

/* Range check of one number by name; NaN is never inside. */
sut_status sut_check_range(sut_context *ctx, const char *name, double value, double minimum, bool minimum_open,
                           double maximum, bool maximum_open);

/* [a, a + a_size) and [b, b + b_size) share a byte. */
static inline bool sut_overlap(const void *a, size_t a_size, const void *b, size_t b_size)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_size && b_size && x < y + b_size && y < x + a_size;
}

#endif /* SUT_CORE_INTERNAL_H */
