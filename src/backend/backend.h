/*
 * The n-dimensional passes, as a table of functions. A back end fills in the table; nothing above it knows which one
 * runs. Surgery methods never come here: they see Gram matrices.
 *
 * Every sum is taken over fixed blocks in a fixed order, with a fixed number of lanes: the result has the same bits for
 * any number of threads and each instruction set. `strict` asks for products and sums in double throughout; otherwise f32
 * data are multiplied and summed in f32 lanes that are flushed to double every 512 elements (error of a dot product at
 * most about 3e-8 of sum |x_k y_k|).
 */
#ifndef SUT_BACKEND_BACKEND_H
#define SUT_BACKEND_BACKEND_H

#include "core/internal.h"

/* Elements of a chunk: the unit of work and of partial sums. */
#define SUT_CHUNK 4096
/* Elements of a block: what stays in the first-level cache while it goes through the loops of a pass. */
#define SUT_BLOCK 512
/* Chunks are dealt to at most this many slices, whose sums are folded in order. A function of n alone. */
#define SUT_MAX_SLICES 64

/* Version of the table below and of all that its functions are given, the context included. A back end in a library of its
 * own was built with the same number, which is part of the name of its entry (backend/cuda.h). */
#define SUT_BACKEND_VERSION 3

/* Where the elements are: tensors cut into chunks. `first_chunk` has n_tensors + 1 entries. */
typedef struct sut_layout {
    int64_t n_tensors;
    const int64_t *count;       /* elements of each tensor */
    const sut_dtype *dtype;     /* of each tensor */
    const int64_t *first_chunk; /* running number of each tensor's first chunk */
    int64_t n_chunks;
    int64_t n_elements;
    void *plan; /* what the back end keeps about it, see plan_create; NULL: nothing, or a plain array */
} sut_layout;

/* m rows over a layout: rows[i * n_tensors + k], NULL where absent (counts as zero). */
typedef struct sut_rows {
    const void *const *data;
    int m;
    const double *scale; /* m powers of two that multiply the rows (exact), or NULL; needs strict */
} sut_rows;

/* Sums of one projection on plain arrays: everything that the m x m algebra needs. */
typedef struct sut_cone_sums {
    double b[SUT_MAX_LOSSES]; /* G u */
    double *K;                /* m*m: G M^-1 G^T, both triangles */
    double uu;                /* u . u */
    double uMu;               /* u . M u over coordinates with finite M */
} sut_cone_sums;

/* Sums that certify a projected p. */
typedef struct sut_cone_measure {
    double s[SUT_MAX_LOSSES]; /* G p */
    double pp;                /* p . p */
    double dist2;             /* |p - u|^2 */
    double dist2_M;           /* |p - u|_M^2 */
} sut_cone_measure;

/* What a metric holds, see scan_metric. */
typedef struct sut_metric_scan {
    int64_t bad;     /* first entry that is NaN or not positive; -1: there is none */
    double value;    /* that entry */
    double smallest; /* Inf where all are; of no use where one is bad */
    bool frozen;     /* an entry is Inf where u is not 0 */
} sut_metric_scan;

struct sut_step_pass; /* optim/step.h */

/* What a whole step on a device is to do: leave figures for a report; take the Gram matrix; align. */
enum { SUT_DRIVE_REPORT = 1, SUT_DRIVE_GRAM = 2, SUT_DRIVE_ALIGNED = 4 };

/* What the library does for a back end that is not linked with it. */
typedef struct sut_backend_host {
    sut_status (*fail)(sut_context *ctx, sut_status status, const char *format, ...) SUT_PRINTF(3, 4);
    void *(*alloc)(sut_context *ctx, size_t count, size_t size);
    void (*free)(sut_context *ctx, void *memory);
} sut_backend_host;

/*
 * Every function returns SUT_OK, or an error of the device with its text in the context; those of the CPU fail for want of
 * memory only. Pointers to elements are memory of the back end; sums, weights and everything else of size m is the host's.
 *
 * A device does what it is asked for in order, and later. Functions that give something to the host wait for it.
 */
typedef struct sut_backend_ops {
    int version;

    /* Only where the back end is a library of its own, else NULL. `open` fills in ctx->device; on failure the text is in the
     * context, and `close` is called as after success. */
    sut_status (*open)(sut_context *ctx, const sut_backend_host *host, const sut_context_config *config);
    void (*close)(sut_context *ctx);
    /* What comes from now on goes to another stream; NULL where there are none. Nothing has changed on failure. */
    sut_status (*set_stream)(sut_context *ctx, void *stream);
    /* What is wrong with p as memory of this device, as the end of a sentence: "is host memory"; NULL: nothing. */
    const char *(*pointer_fault)(sut_context *ctx, const void *p);
    /* Everything that a layout of up to m rows needs on the device, and how many bytes that is. NULL is destroyed too. */
    sut_status (*plan_create)(sut_context *ctx, const sut_layout *layout, int m, void **plan_out, size_t *bytes_out);
    void (*plan_destroy)(sut_context *ctx, void *plan);

    /* Scratch for passes of up to m rows; allocates, never called inside a step. */
    sut_status (*reserve)(sut_context *ctx, int m);
    /* Wait for all that was queued; what went wrong in it is returned here. */
    sut_status (*synchronize)(sut_context *ctx);

    /* Zeroed, aligned to 64 bytes at least; *out is NULL on failure. */
    sut_status (*allocate)(sut_context *ctx, size_t size, void **out);
    void (*release)(sut_context *ctx, void *memory);
    sut_status (*upload)(sut_context *ctx, void *to, const void *host, size_t size);
    sut_status (*download)(sut_context *ctx, void *host, const void *from, size_t size);
    sut_status (*copy)(sut_context *ctx, void *to, const void *from, size_t size);
    sut_status (*clear)(sut_context *ctx, void *to, size_t size);
    /* n elements, f32 or f64. */
    sut_status (*fill)(sut_context *ctx, void *to, int64_t n, sut_dtype dtype, double value);
    /* Between f32 and either of the halves. */
    sut_status (*convert)(sut_context *ctx, void *to, sut_dtype to_dtype, const void *from, sut_dtype from_dtype,
                          int64_t n);

    /* K = G G^T, m*m doubles, both triangles. Not finite where a product overflowed or an entry is not finite. */
    sut_status (*gram)(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, bool strict, double *K);
    /* Largest absolute value of each row; NaN if the row holds a NaN. */
    sut_status (*row_max)(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, double *max_out);
    /* First element that is not finite in one array into *index_out; -1 if there is none. */
    sut_status (*find_nonfinite)(sut_context *ctx, const void *x, int64_t n, sut_dtype dtype, int64_t *index_out);

    /* n entries of a metric, and of u, f32 or f64. */
    sut_status (*scan_metric)(sut_context *ctx, const void *delta, const void *u, int64_t n, sut_dtype dtype,
                              sut_metric_scan *scan);

    /* Plain arrays, layout of one tensor, f32 or f64, products in double throughout. `inverse` selects 1/delta; delta
     * NULL: M = I. u_scale multiplies u, rows->scale the rows. */
    sut_status (*combine)(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const double *weights,
                          void *out);
    sut_status (*cone_sums)(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                            double u_scale, const void *delta, double delta_scale, sut_cone_sums *sums);
    /* p = u + M^-1 G^T lambda on unscaled rows, u and delta, summed in double, rounded once. p may be u. */
    sut_status (*cone_apply)(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                             const void *delta, const double *lambda, void *p);
    /* p as stored, or (p NULL) u + M^-1 G^T lambda unrounded in double; on scaled rows and u, p as in cone_sums. */
    sut_status (*cone_measure)(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                               double u_scale, const void *delta, double delta_scale, const void *p,
                               const double *lambda, sut_cone_measure *measure);

    /* The triangle of [M^-1/2 G^T, M^1/2 p] (surgery/nnls.h) into R, (m + 1)^2, of p = u + M^-1 G^T lambda (NULL: u) on
     * scaled rows and u as in cone_sums. For the rare case that cone_sums cannot resolve. */
    sut_status (*cone_factor)(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                              double u_scale, const void *delta, double delta_scale, const double *lambda, double *R);

    /* Whole steps without a visit to the host, which sees their counts and figures after `pull`; NULL where the host runs the
     * algebra. `kind`: SUT_DRIVE_ bits. `create` fills in opt->drive, which `destroy` releases. */
    sut_status (*drive_create)(sut_context *ctx, struct sut_optimizer *opt);
    void (*drive_destroy)(sut_context *ctx, struct sut_optimizer *opt);
    sut_status (*drive_step)(sut_context *ctx, struct sut_optimizer *opt, const void *const *grads,
                             const double *losses, unsigned kind);
    sut_status (*drive_pull)(sut_context *ctx, struct sut_optimizer *opt);
    sut_status (*drive_push)(sut_context *ctx, struct sut_optimizer *opt);

    /* A = V diag(values) V^T of a symmetric f64 matrix, by columns, lower triangle: A becomes V, eigenvalues ascend. For
     * states that are matrices; allocates. NULL on the CPU, whose LAPACK serves. */
    sut_status (*eigen)(sut_context *ctx, int n, double *A, double *values);

    /* One pass of an optimizer step, see optim/step.h. */
    sut_status (*step)(sut_context *ctx, const struct sut_step_pass *pass);
} sut_backend_ops;

/* What is wrong with a pointer as memory of the back end, see above; the CPU takes any. */
static inline const char *sut_pointer_fault(sut_context *ctx, const void *p)
{
    return ctx->ops->pointer_fault ? ctx->ops->pointer_fault(ctx, p) : NULL;
}

/* The CPU's table for one instruction set; NULL when the build or the processor lacks it. */
const sut_backend_ops *sut_backend_cpu(sut_isa isa);
sut_isa sut_backend_cpu_best_isa(void);

/* Up to here the caller's thread works alone: waking a pool costs more than it brings. */
#define SUT_SERIAL_ELEMENTS 30000

/* Number of slices for a layout, and the first chunk of slice s (s = n_slices gives n_chunks). */
static inline int sut_n_slices(const sut_layout *layout)
{
    if (layout->n_elements <= SUT_SERIAL_ELEMENTS)
        return 1;
    return layout->n_chunks < SUT_MAX_SLICES ? (int)layout->n_chunks : SUT_MAX_SLICES;
}
static inline int64_t sut_slice_begin(int64_t n_chunks, int n_slices, int s)
{
    /* n_chunks = q * n_slices + r: the first r slices hold one chunk more; no product can overflow. */
    const int64_t q = n_chunks / n_slices, r = n_chunks % n_slices;
    return q * s + (s < r ? s : r);
}

/* A layout of one plain array, in the caller's storage. */
typedef struct sut_plain_layout {
    int64_t count;
    sut_dtype dtype;
    int64_t first_chunk[2];
    sut_layout layout;
} sut_plain_layout;
const sut_layout *sut_plain_layout_init(sut_plain_layout *plain, int64_t n, sut_dtype dtype);

/* Every tensor is f64. */
bool sut_layout_is_f64(const sut_layout *layout);

/* The Gram matrix with everything that can go wrong taken care of (surgery/gram.h). */
typedef struct sut_gram {
    double *K;    /* m*m, of the rows times 2^-exponent (a common power of two) */
    int exponent; /* 0 unless the rows are too large or too small for their squares */
    bool strict;  /* products were taken in double */
} sut_gram;

/* On a non-finite entry: SUT_ERROR_NOT_FINITE with a text that names loss, tensor and index. Names may be NULL. */
sut_status sut_gram_compute(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, bool strict,
                            const char *const *loss_names, const char *const *tensor_names, sut_gram *gram);
/* Its parts: the products that a search asks for, and the error that names the first entry that is not finite (SUT_OK if
 * there is none). */
struct sut_gram_search;
sut_status sut_gram_pass(sut_context *ctx, const sut_layout *layout, const sut_rows *rows,
                         const struct sut_gram_search *search, double *K);
sut_status sut_gram_find_culprit(sut_context *ctx, const sut_layout *layout, const sut_rows *rows,
                                 const char *const *loss_names, const char *const *tensor_names);

#endif /* SUT_BACKEND_BACKEND_H */
