/*
 * What the tests of the step share: contexts of every kind, small problems for every method and combination of switches,
 * gradients that conflict, and comparisons of everything that an optimizer holds.
 *
 * Methods and hyper-parameters come from the library's own table, so that a new one is covered without a change here.
 */
#ifndef SUT_TEST_STEP_H
#define SUT_TEST_STEP_H

#include "support/surgery.h"

#include <math.h>

enum { STEP_MAX_TENSORS = 50 };

/* 1 where a sanitizer makes everything ten times slower: repetitions shrink, as they do on an imitated device. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEP_SANITIZED 1
#else
#define STEP_SANITIZED 0
#endif
#define STEP_ROUNDS(full, short) (STEP_SANITIZED || test_on_device() ? (short) : (full))
/* Of a loop over many combinations every turn on the CPU, one in three on an imitated device, one in twelve there under a
 * sanitizer. */
bool step_is_run(int turn);

/* A context that lives as long as the program. NULL where the instruction set is not available here. */
sut_context *step_context(int n_threads, sut_isa isa);

/* --- problems -------------------------------------------------------------------------------------------------------- */

/* Parameters (random, from the seed) and an optimizer's configuration. */
typedef struct step_spec {
    sut_optimizer_config config; /* tensors and n_tensors are filled in by step_open() */
    sut_dtype dtype;
    int n_tensors;
    int64_t length[STEP_MAX_TENSORS];
    int group[STEP_MAX_TENSORS];
    int misalign; /* elements by which parameters and gradients start beside a 64-byte boundary */
    double theta_scale;
    uint64_t seed;
} step_spec;

/*
 * Variants of a method: every combination of its flags, of momentum and of weight decay (on or off), as far as the library
 * accepts it. All other hyper-parameters get values that are not their defaults.
 */
int step_n_variants(sut_optimizer_method method);
bool step_variant(sut_optimizer_method method, int variant, sut_hyper *h);
/* "rmsprop momentum=0.6 centered=1", static memory. */
const char *step_variant_name(sut_optimizer_method method, int variant);

/* Alignment on, gate 0, plain sum, strengths that are not the defaults; one tensor of 40 elements, f64, 2 losses. */
void step_spec_init(step_spec *spec, sut_optimizer_method method, int variant);
void step_spec_lengths(step_spec *spec, int n_tensors, const int64_t *lengths);

typedef struct step_run {
    step_spec spec;
    sut_context *ctx;
    sut_optimizer *opt;
    sut_tensor tensor[STEP_MAX_TENSORS];
    void *memory[STEP_MAX_TENSORS];
} step_run;

/* Fails the test when the optimizer cannot be created. */
step_run *step_open(sut_context *ctx, const step_spec *spec);
void step_close(step_run *run);

/* --- gradients ------------------------------------------------------------------------------------------------------- */

typedef struct step_grads {
    int m, n_tensors;
    sut_dtype dtype;
    int64_t length[STEP_MAX_TENSORS];
    void *memory[SUT_MAX_LOSSES * STEP_MAX_TENSORS];
    const void
        *pointer[SUT_MAX_LOSSES * STEP_MAX_TENSORS]; /* what the calls take; set entries to NULL for absent ones */
} step_grads;

step_grads *step_grads_new(const step_spec *spec);
void step_grads_free(step_grads *g);

/* Rows along +b and -b with noise: the shorter ones conflict with every direction that follows the longer ones. */
void step_grads_conflict(step_grads *g, test_random *r);
/* Rows around one direction: no two of them conflict. */
void step_grads_agree(step_grads *g, test_random *r);

double step_grad_get(const step_grads *g, int loss, int tensor, int64_t k);
void step_grad_set(step_grads *g, int loss, int tensor, int64_t k, double value);

/* --- numbers of any dtype -------------------------------------------------------------------------------------------- */

double step_get(const void *x, sut_dtype dtype, int64_t k);
void step_set(void *x, sut_dtype dtype, int64_t k, double value);
sut_dtype step_compute_type(sut_dtype dtype); /* f64, or f32 for all others */

double step_theta(const step_run *run, int tensor, int64_t k);
double step_state(const step_run *run, const char *slot, int tensor, int64_t k);

/* Arrays of the compute type for the outputs of the staged calls, with their pointers. */
typedef struct step_arrays {
    int n_tensors;
    sut_dtype dtype;
    void *pointer[STEP_MAX_TENSORS];
    int64_t length[STEP_MAX_TENSORS];
} step_arrays;
step_arrays *step_arrays_new(const step_run *run);
void step_arrays_free(step_arrays *a);

/* --- calls and comparisons ------------------------------------------------------------------------------------------- */

/* A step that has to succeed. report may be NULL. */
void step_do(step_run *run, const step_grads *g, sut_report *report);
/* The same through direction, propose, project (twice) and apply. */
void step_do_staged(step_run *run, const step_grads *g, sut_report *report);

/* Same bytes of parameters, of every state slot, same counts; else the test fails and says where. */
void step_assert_same(const step_run *a, const step_run *b, const char *what);
/* Bytes of everything that a refused call must not change: parameters, state, counts, memory of the surgery. */
typedef struct step_snapshot {
    unsigned char *bytes;
    size_t size;
} step_snapshot;
step_snapshot step_snapshot_take(const step_run *run);
void step_assert_unchanged(const step_run *run, step_snapshot *before, const char *what); /* releases it */

#endif /* SUT_TEST_STEP_H */
