/*
 * What a kernel reads in device memory: tensors, chunks, constants, and what the m x m algebra decided. The launch layer fills
 * these tables; a kernel receives pointers to them, so that one captured launch serves every later step.
 */
#ifndef SUT_KERNELS_TABLES_H
#define SUT_KERNELS_TABLES_H

#include "kernels/host.h"

/* Threads of a block, elements that one thread takes at a time, and the strip that a block takes at a time. */
#define SUT_CUDA_THREADS 256
#define SUT_CUDA_EACH 4
#define SUT_CUDA_STRIP (SUT_CUDA_THREADS * SUT_CUDA_EACH)

/* Rows whose elements and sums are kept in registers; more rows go through tiles of this many. */
#define SUT_CUDA_FEW 4

/* Blocks of a launch at most, each of them one slice of the chunks with partial sums of its own. A function of n alone: the
 * sums have the same bits on every GPU. */
#define SUT_CUDA_SLICES 1024

/* Slices that make a triangle of their own, at most: one block folds them afterwards. */
#define SUT_CUDA_FACTOR_SLICES 64

/* Every rule with every combination of its flags (coupled decay aside, which comes before the rule). */
typedef enum sut_cuda_variant {
    SUT_CUDA_SGD,
    SUT_CUDA_SGD_MOMENTUM,
    SUT_CUDA_SGD_NESTEROV,
    SUT_CUDA_RMSPROP,
    SUT_CUDA_RMSPROP_MOMENTUM,
    SUT_CUDA_RMSPROP_CENTERED,
    SUT_CUDA_RMSPROP_BOTH,
    SUT_CUDA_ADAGRAD,
    SUT_CUDA_ADAM,
    SUT_CUDA_ADAM_DECOUPLED,
    SUT_CUDA_ADAM_MAX,
    SUT_CUDA_ADAM_MAX_DECOUPLED,
    SUT_CUDA_NADAM,
    SUT_CUDA_RADAM,
    SUT_CUDA_RADAM_RECTIFIED,
    SUT_CUDA_LION,
    SUT_CUDA_LION_DECOUPLED,
    SUT_CUDA_VARIANTS
} sut_cuda_variant;

typedef struct sut_cuda_setting {
    int variant;
    int coupled;    /* g += wd theta before the rule */
    int uses_theta; /* the proposal needs theta: decay of either kind */
    int deferred;   /* the state is written in the last pass */
    int slots;      /* in use, as bits */
    alignas(16) unsigned char f32[SUT_RULE_CONSTANTS];
    alignas(16) unsigned char f64[SUT_RULE_CONSTANTS];
} sut_cuda_setting;

typedef struct sut_cuda_tensor {
    void *param, *theta, *state[SUT_MAX_SLOTS];
    void *u_out, *inverse_out, *p_out; /* NULL: not wanted */
    const void *p_in;
    double lr, ratio;
    int dtype; /* of param and rows */
    int own;   /* of theta, state and outputs */
    int setting;
    int present;
} sut_cuda_tensor;

/* A piece of one tensor. */
typedef struct sut_cuda_chunk {
    int64_t offset;
    int32_t tensor, count;
} sut_cuda_chunk;

/* What the algebra decides between the passes. */
typedef struct sut_cuda_control {
    double weights[SUT_MAX_LOSSES], lambda[SUT_MAX_LOSSES], correction[SUT_MAX_LOSSES];
    double scale[SUT_MAX_LOSSES + 1]; /* of the rows; of the triangle's columns */
    int update;                       /* sut_update_kind */
    int realign;
    int corrected; /* `correction` counts */
} sut_cuda_control;

/* Arguments of every pass, by value. */
typedef struct sut_cuda_args {
    const sut_cuda_chunk *chunks; /* NULL: the chunks of one tensor, one after the other */
    const sut_cuda_tensor *tensors;
    const void *const *rows; /* m * n_tensors */
    const sut_cuda_setting *settings;
    const sut_cuda_control *control;
    double *partial;  /* n_sums * n_slices */
    double *sums;     /* n_sums */
    unsigned *ticket; /* 0 before and after each launch: counts the blocks that are done */
    int64_t n_tensors, n_chunks, n_elements;
    int chunk_elements;
    int n_slices, n_sums, m;
    int kind; /* sut_pass_kind */
    int add;  /* add to `sums` what they hold: the second launch of a pass over two types */
    int direct, weighted, exact_sum, strict, scaled;
    int want_sums, want_metric, euclidean;
    int forms; /* last pass: p is formed outside the rule, or an output */
    double u_scale;
} sut_cuda_args;

/* And of those over plain arrays, f32 or f64. Weights and multipliers are `weights` of the control block. */
typedef struct sut_cuda_plain_args {
    sut_cuda_args pass; /* one tensor; u_scale is in here */
    const void *u, *delta, *p;
    void *out;
    double delta_scale;
    int multiplied; /* p is u + M^-1 G^T lambda */
} sut_cuda_plain_args;

/* What a search in a metric finds; each entry is set before the launch. */
typedef struct sut_cuda_metric_scan {
    unsigned long long bad;      /* index; starts at ~0 */
    unsigned long long smallest; /* bits of a positive double; starts at those of Inf */
    unsigned frozen;
} sut_cuda_metric_scan;

#endif // SUT_KERNELS_TABLES_H
