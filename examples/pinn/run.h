/*
 * One training run: everything it holds, and its steps. train.c drives it, checkpoint.c keeps it, history.c and report.c
 * write it down.
 */
#ifndef PINN_RUN_H
#define PINN_RUN_H

#include "batch.h"
#include "evaluate.h"
#include "options.h"
#include "statistics.h"

#include "suture/suture.h"

#include <stdio.h>

enum { PINN_MAX_TENSORS = 32, PINN_PATH = 4096 };

#define PINN_CHECKPOINT "checkpoint.safetensors"

/* Why a run ended. */
typedef enum pinn_stop {
    PINN_STOP_NOT,
    PINN_STOP_STEPS,
    PINN_STOP_TARGET_LOSS,
    PINN_STOP_PATIENCE,
    PINN_STOP_TIME_LIMIT,
    PINN_STOP_SIGNAL
} pinn_stop;

/* What is kept beside parameters and optimizer; doubles only, so that a checkpoint holds it as one array. */
typedef struct pinn_progress {
    double best_step, best_selection; /* of the kept parameters; best_selection Inf: none yet */
    double row_step, evaluation_step; /* the last steps with a row and an evaluation that were due; 0: none */
    double terms[PINN_MAX_TERMS], loss[PINN_MAX_TERMS]; /* of the last step; NAN: none yet */
    pinn_statistics total;                              /* since the first step */
    pinn_statistics window;                             /* since the last row of history.csv */
} pinn_progress;

typedef struct pinn_run {
    const pinn_options *options;
    const pinn_problem *problem;
    const net_kernels *kernels;
    net_shape shape;
    size_t n_parameters;
    pinn_loss losses[PINN_MAX_TERMS];
    int n_losses;

    pinn_device *device; /* --backend cuda; NULL: the CPU */
    pinn_pool *pool;
    pinn_batch *batch;
    pinn_evaluation *evaluation;
    sut_context *context;
    sut_optimizer *optimizer;
    double preference[SUT_MAX_LOSSES]; /* borrowed by the optimizer */

    /* Arrays of n_parameters elements of the network's type: theta and the gradients in the memory of the back end, the kept
     * parameters and a copy of theta (pinn_run_parameters()) in that of the host. */
    void *theta, *best, *copy;
    void *gradients[PINN_MAX_TERMS];
    const void *gradient_tensors[PINN_MAX_TERMS * PINN_MAX_TENSORS]; /* [loss][tensor] */
    int n_tensors;

    int64_t steps; /* done */
    pinn_progress progress;
    sut_report report;  /* of the last step */
    pinn_scores scores; /* of the last evaluation */
    bool evaluated;     /* in the last step */

    char directory[PINN_PATH];
    FILE *history;
    FILE *log;               /* where progress goes */
    bool history_renamed;    /* from its temporary name */
    int lock;                /* descriptor of the directory, -1: none */
    double seconds, earlier; /* of training; of the earlier parts of a resumed run, which `seconds` includes */
    double started;          /* monotonic clock, less the earlier parts */
    pinn_stop stop;
} pinn_run;

/* Monotonic clock in seconds. */
double pinn_clock(void);

/* One message on stderr, "suture-pinn: ..."; returns `code`. */
int pinn_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* run->directory/name in `path`; false, after a message, when it is too long. */
bool pinn_path(const pinn_run *run, const char *name, char path[PINN_PATH]);

/* Zeroed but for `options`; destroy takes half-made runs. Returns 0 or an exit code after a message. */
int pinn_run_create(pinn_run *run);
void pinn_run_destroy(pinn_run *run);

/* The parameters in host memory: lent until the next call. NULL: the device failed. */
const void *pinn_run_parameters(pinn_run *run);
/* 0, or an exit code after a message: the device failed. */
int pinn_run_check_device(const pinn_run *run);
/* What computes the network, for people and files: an instruction set, or "cuda". */
const char *pinn_run_kernels(const pinn_run *run);

/* Make, check and lock the directory. Nothing in it is touched. */
int pinn_run_open_directory(pinn_run *run);

/* The results of the run that the directory holds are removed, unless this one goes on from its checkpoint. */
bool pinn_run_replaces(const pinn_run *run);
void pinn_run_remove_results(const pinn_run *run);

/* The command PROBLEM: returns the exit code. */
int pinn_train(pinn_options *options);

/* Checkpoints. Functions return 0 or an exit code after a message. */
int pinn_checkpoint_save(pinn_run *run);
int pinn_checkpoint_configuration(const char *file, json_t **configuration_out);
int pinn_checkpoint_load(pinn_run *run, const char *file, const json_t *configuration);

/*
 * history.csv: one row per --log-every steps. Opening makes a new one under a temporary name and keeps the rows up to
 * run->steps of the history beside `resumed` (a checkpoint; NULL: a new run), and sets run->seconds from them;
 * replacing gives it its name. The row of the last step is completed by its evaluation, or added where it was not due.
 */
int pinn_history_open(pinn_run *run, const char *resumed);
int pinn_history_replace(pinn_run *run);
int pinn_history_row(pinn_run *run);
int pinn_history_last_row(pinn_run *run);
int pinn_history_flush(pinn_run *run);
void pinn_history_close(pinn_run *run); /* and remove it where it has not got its name */

/* Number, from 1, of the first column with that name in the header that a run of these losses has; 0: none. */
int pinn_history_column(const pinn_problem *problem, const pinn_loss *losses, int n_losses, const char *name);

/* metrics.json, solution.csv and the final table, after the last evaluation of both parameter sets. */
int pinn_report(pinn_run *run, const pinn_scores *kept, const pinn_scores *last);

enum { PINN_N_PICTURES = 5 };
extern const char *const pinn_pictures[PINN_N_PICTURES];

/*
 * Draw the pictures of a directory that holds metrics.json, history.csv and solution.csv. Without gnuplot a run goes
 * without pictures and says so; where they were `asked_for` that is a failure.
 */
int pinn_plot(const char *directory, FILE *log, bool asked_for);

/* The command `version`. */
int pinn_version(const pinn_options *options);
/* "OpenBLAS kernel X", with what to do when it does not suit the processor. */
void pinn_print_blas(FILE *to);

#endif
