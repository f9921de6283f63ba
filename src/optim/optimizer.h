/*
 * The inside of an optimizer, and the table of methods.
 *
 * Invariants between calls: t of every tensor counts the steps in which it had a gradient; state and parameters belong to
 * the same step unless `pending` (between propose and apply); masters of low-precision tensors are authoritative.
 */
#ifndef SUT_OPTIM_OPTIMIZER_H
#define SUT_OPTIM_OPTIMIZER_H

#include "optim/algebra.h"
#include "optim/rates.h"

#define SUT_MAX_PARAMETERS 8

/* One hyper-parameter of a method. */
typedef struct sut_method_parameter {
    const char *name; /* NULL ends the list */
    size_t offset;    /* in sut_hyper */
    bool is_flag;
    double default_value, minimum, maximum;
    bool minimum_open, maximum_open;
} sut_method_parameter;

/* One row per method. Names, validation, state layout, state files and documentation are derived from it. */
typedef struct sut_method_row {
    sut_optimizer_method method;
    const char *name;
    sut_rule rule;
    int decay_flag; /* SUT_RULE_COUPLED or SUT_RULE_DECOUPLED */
    const char *slot[SUT_MAX_SLOTS];
    unsigned (*slots)(const sut_hyper *h); /* which slots these settings need, as bits */
    sut_method_parameter parameter[SUT_MAX_PARAMETERS + 1];
    const char *source;
} sut_method_row;

extern const sut_method_row sut_method_table[SUT_OPTIMIZER_COUNT];

typedef struct sut_optimizer_tensor {
    char *name;
    sut_dtype dtype; /* as the caller stores it */
    int n_dims;
    int64_t shape[SUT_MAX_DIMS];
    int64_t count; /* elements */
    int group;
    int64_t t;      /* steps of this tensor */
    double mu_prod; /* NAdam: mu_1 ... mu_t, 1 at the start */
} sut_optimizer_tensor;

/* Where an output of a staged call lies. */
typedef struct sut_span {
    uintptr_t begin, end;
    int64_t tensor;
    int which; /* of two lists of outputs */
} sut_span;

struct sut_optimizer {
    sut_context *ctx;
    const sut_method_row *row;
    sut_optimizer_config config; /* complete; pointers inside it are not used after creation */
    int n_groups;
    sut_hyper *group;
    int64_t n_tensors;
    sut_optimizer_tensor *tensor;
    char **tensor_name; /* n_tensors, into tensor[].name */
    char **loss_name;   /* m, or NULL */
    char *names;        /* storage of all names */
    unsigned slots;     /* slots that exist */
    void *state_memory; /* all slots and masters, in the memory of the back end */
    size_t state_bytes, workspace_bytes;
    int64_t t, skipped;
    uint64_t seed; /* of the context when this optimizer was created, or of the state that was loaded */

    /* Filled in per step. */
    sut_layout layout;
    int64_t *layout_count, *first_chunk;
    sut_dtype *layout_dtype;
    sut_pass_tensor *pass_tensor;
    sut_rule_setting *setting; /* n_groups shared ones, then one per tensor */
    int64_t *setting_t;        /* n_groups: the step the shared setting is for */
    uintptr_t *range;          /* n_ranges pairs, sorted: beginning and end of each parameter */
    int64_t n_ranges;
    sut_span *span; /* 2 n_tensors, for the checks of outputs */

    /* Where the back end runs the algebra itself (CUDA): its part of this optimizer; whether it has taken steps that the host
     * has not seen, or may have at any time (a graph); whether it knows what the host has changed; how the last step ended; the
     * failures that have not been delivered, of which the first is kept. */
    void *drive;
    bool ahead, captured, told_state, told_settings, last_failed;
    sut_step_failure last_failure, late;
    int64_t n_late;

    /* The step in hand. */
    bool pending, solved;
    double proposed[SUT_MAX_LOSSES]; /* the largest entry of each gradient, as propose found it */
    double lr;                       /* largest of a group */
    sut_algebra algebra;
};

/* Has an f32 master copy. */
static inline bool sut_is_low_precision(sut_dtype dtype)
{
    return dtype == SUT_DTYPE_BF16 || dtype == SUT_DTYPE_F16;
}

/* What a device's steps have done is known to the host; the failure of the last of them, as the call for it returns it. */
sut_status sut_optimizer_pull(sut_optimizer *opt);
sut_status sut_optimizer_deliver_last(sut_optimizer *opt);
/* And the other way round, after the host has changed counts and memory. */
sut_status sut_optimizer_push(sut_optimizer *opt);

/* Slots that the settings of all groups need together. */
unsigned sut_optimizer_needed_slots(const sut_method_row *row, const sut_hyper *groups, int n_groups);

/* Range checks of one group's settings, with everything that one setting demands of another. */
sut_status sut_hyper_check(sut_context *ctx, const sut_method_row *row, const sut_hyper *h, int group);

/* And that f32 arithmetic can hold each of them. */
sut_status sut_hyper_check_f32(sut_context *ctx, const sut_method_row *row, const sut_hyper *h, int group);

/* The method's row; NULL for an unknown value. */
const sut_method_row *sut_method_find(sut_optimizer_method method);

/* Lowest-level view of a slot: NULL where the slot does not exist. Slot SUT_MAX_SLOTS is the master copy. */
void *sut_optimizer_slot(sut_optimizer *opt, int slot, int64_t tensor);

#endif /* SUT_OPTIM_OPTIMIZER_H */
