/*
 * What the command line asks for. One table (option_table.c) feeds the parser, --help, metrics.json and the configuration
 * kept in checkpoints, so an option cannot be parsed and forgotten.
 */
#ifndef PINN_OPTIONS_H
#define PINN_OPTIONS_H

#include "problem.h"

#include "suture/optimizer.h"

#include <jansson.h>

enum { PINN_MAX_SETTINGS = 64, PINN_MAX_OPTIONS = 48 };

enum { PINN_EXIT_FAILURE = 1, PINN_EXIT_USAGE = 2 };

typedef enum pinn_command { PINN_RUN, PINN_LIST, PINN_PLOT, PINN_VERSION, PINN_HELP } pinn_command;

enum { PINN_PRESET_PAPER, PINN_PRESET_QUICK };

/* --set name=value */
typedef struct pinn_setting {
    char name[32];
    char value[224];
} pinn_setting;

typedef struct pinn_options {
    pinn_command command;
    const pinn_problem *problem;
    const char *directory;        /* of `plot` */
    bool given[PINN_MAX_OPTIONS]; /* by row of the table: on the command line, not a default */

    /* Choices: the enums of the library, and net_real. */
    int optimizer, surgery, align, metric, schedule, dtype, preset, backend, isa;
    int64_t losses, steps, points, warmup, seed;
    double lr, final_lr, rho_m, rho_v, conflict_tol;
    bool fixed_points;
    pinn_setting settings[PINN_MAX_SETTINGS];
    int n_settings;

    /* What does not change a bit of the result. */
    const char *out, *resume;
    int64_t threads, checkpoint_every, log_every, evaluate_every, patience;
    double time_limit, target_loss;
    bool json, no_plots;
} pinn_options;

/*
 * Parse, check and complete with the problem's defaults. The strings of argv are borrowed.
 * @return 0, or PINN_EXIT_USAGE after a message on stderr.
 */
int pinn_options_parse(pinn_options *options, int argc, char **argv);

/* --help, and `list`. */
void pinn_options_help(void);
void pinn_options_list(void);

/* Everything that the results depend on, by option name; new reference. */
json_t *pinn_options_configuration(const pinn_options *options);

/*
 * Take the configuration of a checkpoint for everything that was not given on the command line, and say on stderr what was
 * given and differs. What a state cannot be carried over to (problem, optimizer, dtype, seed, number of losses) must agree.
 * @return 0, or PINN_EXIT_USAGE after a message on stderr; PINN_EXIT_FAILURE when the configuration makes no sense.
 */
int pinn_options_continue(pinn_options *options, json_t *configuration);

/*
 * Apply --set to an optimizer's configuration; `preference` (SUT_MAX_LOSSES) holds a list of weights if one is given.
 * @return 0, or PINN_EXIT_USAGE after a message on stderr.
 */
int pinn_settings_apply(const pinn_options *options, sut_optimizer_config *config, double *preference);

/* "did you mean" : prints "; did you mean X?" or the list of names to stderr, with a newline. */
void pinn_suggest(const char *word, const char *const *names, int n_names);

#endif
