/*
 * A step without a visit to the host. The machine of optim/algebra.h runs on the device: with few elements one cooperative
 * launch is the whole step; with many, each pass is a launch of its own and the algebra another one between them. The rare
 * passes (sums again in double, repairs) run inside the algebra's launch, so that what is launched never depends on what is
 * found. Nothing waits, allocates or copies to the host: a step can be captured in a graph.
 *
 * Step counts, NAdam's products, weights that are kept and the report's figures live in device memory; pull() brings them to
 * the host. A step that is refused (NaN) leaves all of it, parameters and state as they were, and says so at the next pull().
 */
#ifndef SUT_KERNELS_DRIVE_H
#define SUT_KERNELS_DRIVE_H

#include "kernels/plan.h"

extern "C" {
#include "optim/optimizer.h"
}

/* What a tensor has been through. */
typedef struct sut_cuda_count {
    int64_t t;
    double mu_prod;
} sut_cuda_count;

/* What pull() brings: this, the Gram matrix, K, and the sums of the last pass; then the counts. */
typedef struct sut_cuda_state {
    sut_algebra algebra;
    int64_t steps;
    int64_t skipped;                /* of all steps: refused for what is not finite */
    int64_t failures;               /* since the last pull() */
    int last_failed;                /* the last step was refused */
    sut_step_failure first_failure; /* since the last pull(); none where `failures` is 0 */
    sut_step_failure last_failure;  /* where `last_failed` */
} sut_cuda_state;

/* Settings; followed in memory by the groups, and by the order of PCGrad where it has one. */
typedef struct sut_cuda_settings_head {
    sut_optimizer_config config; /* its pointers are the device's */
    double preference[SUT_MAX_LOSSES];
} sut_cuda_settings_head;

/* What a step is given beside the rows; followed in memory by m * n_tensors rows and n_tensors flags (int): present. */
typedef struct sut_cuda_input {
    double losses[SUT_MAX_LOSSES];
    int has_losses, something, report;
} sut_cuda_input;

/* Words on their way to the device, as an argument of a launch. */
typedef struct sut_cuda_parcel {
    unsigned long long *to;
    int size; /* words */
    unsigned long long words[440];
} sut_cuda_parcel;

/* What blocks are asked to do. */
typedef enum sut_cuda_action {
    SUT_ACTION_NONE = 0, /* the step is over, or a launch of its own does the pass */
    SUT_ACTION_GRAM,
    SUT_ACTION_FUSED,
    SUT_ACTION_PROPOSE,
    SUT_ACTION_APPLY,
    SUT_ACTION_FACTOR,
    SUT_ACTION_LARGEST,
    SUT_ACTION_CULPRIT,       /* the first row and tensor with an element that is not finite */
    SUT_ACTION_CULPRIT_INDEX, /* its first such element */
    SUT_ACTION_PARAMETERS,    /* the same of the parameters */
    SUT_ACTION_PARAMETERS_INDEX,
    SUT_ACTION_PREPARE /* the block that decides does it */
} sut_cuda_action;

/* Where a launch of the algebra begins and ends. */
enum {
    SUT_RUN_BEGIN = 1,      /* a step begins */
    SUT_RUN_HAS_GRAM = 2,   /* products of the rows have been taken by a launch before */
    SUT_RUN_TO_PROPOSE = 4, /* FUSED or PROPOSE is a launch of its own */
    SUT_RUN_TO_APPLY = 8    /* so is APPLY */
};

/* In device memory. */
typedef struct sut_cuda_drive {
    sut_cuda_state state;
    const sut_optimizer_config *config;
    sut_rule rule;
    int decay_flag, n_groups;
    const sut_hyper *groups;
    const int *group; /* of each tensor */
    sut_cuda_count *counts;
    const sut_cuda_input *input;
    const int *present;
    sut_cuda_tensor *tensors;
    sut_cuda_setting *settings;
    const void **rows;
    sut_cuda_control control;
    sut_cuda_chunks sets[3]; /* computed in f32, in f64, all */
    int slices[3];
    sut_cuda_args base;
    /* The second set of a pass over both types keeps its sums to itself until both are done. */
    double *second_partial, *second_sums;
    unsigned *second_ticket;
    /* The request in hand. */
    int action, all;
    int ready; /* the action that a launch of its own does */
    sut_cuda_args args;
    unsigned arrived;
    unsigned long long found[SUT_MAX_LOSSES];
    double scheduled;
    int late_gradient, several_rates;
} sut_cuda_drive;

extern "C" {
/* For up to SUT_CUDA_FEW rows, and for more. Launchers return a cudaError_t as an int.
 * The algebra up to where `flags` say, on `blocks` blocks, at most as many as can be resident at once; the parcel is put in
 * its place before. */
int sut_cuda_launch_run_few(sut_cuda_drive *drive, int m, int flags, int blocks, const sut_cuda_parcel *parcel,
                            void *stream);
int sut_cuda_launch_run_many(sut_cuda_drive *drive, int m, int flags, int blocks, const sut_cuda_parcel *parcel,
                             void *stream);
int sut_cuda_launch_parcel(const sut_cuda_parcel *parcel, void *stream);
int sut_cuda_run_blocks_few(int m, int *error);
int sut_cuda_run_blocks_many(int m, int *error);
/* The pass that is ready, if it is `action`, over one set of chunks. add: to the sums of the first set. */
int sut_cuda_launch_ready_few(const sut_cuda_drive *drive, int action, int set, int slices, int n_sums, bool add,
                              void *stream);
int sut_cuda_launch_ready_many(const sut_cuda_drive *drive, int action, int set, int slices, int n_sums, bool add,
                               void *stream);
}

/* ---- the host's side: entries of the table ---- */

sut_status sut_cuda_drive_create(sut_context *ctx, sut_optimizer *opt);
void sut_cuda_drive_destroy(sut_context *ctx, sut_optimizer *opt);
sut_status sut_cuda_drive_step(sut_context *ctx, sut_optimizer *opt, const void *const *grads, const double *losses,
                               unsigned kind);
sut_status sut_cuda_drive_pull(sut_context *ctx, sut_optimizer *opt);
sut_status sut_cuda_drive_push(sut_context *ctx, sut_optimizer *opt);

#endif // SUT_KERNELS_DRIVE_H
