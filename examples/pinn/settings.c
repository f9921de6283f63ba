/*
 * --set name=value: hyper-parameters of the optimizer (the library knows their names and ranges), options of the surgery
 * method, and what remains of the optimizer's configuration. Ranges are checked by the library when the optimizer is made.
 */
#include "options.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { FLAG, INTEGER, REAL, CHOICE, WEIGHTS } kind;

typedef struct row {
    const char *name;
    kind kind;
    size_t offset;       /* in sut_optimizer_config */
    const char *choices; /* names of enum values 0, 1, ..., separated by spaces */
} row;

#define SURGERY(member) offsetof(sut_optimizer_config, surgery) + offsetof(sut_surgery_config, member)
#define OPTIMIZER(member) offsetof(sut_optimizer_config, member)

static const row rows[] = {
    {"scale_to_sum", FLAG, SURGERY(scale_to_sum), NULL},
    {"preference", WEIGHTS, SURGERY(preference), NULL},
    {"pcgrad_identity_order", FLAG, SURGERY(pcgrad_identity_order), NULL},
    {"pcgrad_mean", FLAG, SURGERY(pcgrad_mean), NULL},
    {"config_length", CHOICE, SURGERY(config_length),
     "projection minimum maximum harmonic arithmetic geometric specific"},
    {"config_row", INTEGER, SURGERY(config_row), NULL},
    {"cagrad_c", REAL, SURGERY(cagrad_c), NULL},
    {"cagrad_rescale", INTEGER, SURGERY(cagrad_rescale), NULL},
    {"cagrad_eps", REAL, SURGERY(cagrad_eps), NULL},
    {"cagrad_pareto", CHOICE, SURGERY(cagrad_pareto), "project zero mean"},
    {"imtlg_abs_normaliser", FLAG, SURGERY(imtlg_abs_normaliser), NULL},
    {"aligned_scale", CHOICE, SURGERY(aligned_scale), "min median rmse"},
    {"aligned_rank_tol", REAL, SURGERY(aligned_rank_tol), NULL},
    {"norm_eps", REAL, SURGERY(norm_eps), NULL},
    {"reg_eps", REAL, SURGERY(reg_eps), NULL},
    {"mgda_normalisation", CHOICE, SURGERY(mgda_normalisation), "none l2 loss loss_plus"},
    {"mgda_frank_wolfe", FLAG, SURGERY(mgda_frank_wolfe), NULL},
    {"mgda_fw_epsilon", REAL, SURGERY(mgda_fw_epsilon), NULL},
    {"mgda_fw_max_iterations", INTEGER, SURGERY(mgda_fw_max_iterations), NULL},
    {"nash_max_norm", REAL, SURGERY(nash_max_norm), NULL},
    {"nash_update_every", INTEGER, SURGERY(nash_update_every), NULL},
    {"sdmgrad_lambda", REAL, SURGERY(sdmgrad_lambda), NULL},
    {"clip_norm", REAL, OPTIMIZER(clip_norm), NULL},
    {"strict", FLAG, OPTIMIZER(strict), NULL},
    {"realign_raw", FLAG, OPTIMIZER(realign_raw), NULL},
    {"correction_distance_tol", REAL, OPTIMIZER(correction_distance_tol), NULL},
};

enum { N_ROWS = sizeof rows / sizeof rows[0], MAX_NAMES = N_ROWS + 32 };

static int refuse(const pinn_setting *s, const char *allowed)
{
    fprintf(stderr, "suture-pinn: --set %s=%s: the value must be %s\n", s->name, s->value, allowed);
    return PINN_EXIT_USAGE;
}

static bool read_number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && isfinite(*value);
}

static int set_choice(const pinn_setting *s, const char *choices, int *out)
{
    char copy[128];
    snprintf(copy, sizeof copy, "%s", choices);
    int index = 0;
    char *rest = NULL;
    for (char *name = strtok_r(copy, " ", &rest); name; name = strtok_r(NULL, " ", &rest), index++)
        if (!strcmp(name, s->value)) {
            *out = index;
            return 0;
        }
    char allowed[160];
    snprintf(allowed, sizeof allowed, "one of: %s", choices);
    return refuse(s, allowed);
}

static int set_weights(const pinn_setting *s, int n_losses, double *preference)
{
    const char *next = s->value;
    for (int i = 0; i < n_losses; i++) {
        char *end;
        preference[i] = strtod(next, &end);
        if (end == next || !isfinite(preference[i]) || *end != (i + 1 < n_losses ? ',' : '\0'))
            return refuse(s, "one number per loss, separated by commas");
        next = end + 1;
    }
    return 0;
}

static int set_row(const pinn_setting *s, const row *row, sut_optimizer_config *config, double *preference)
{
    char *const member = (char *)config + row->offset;
    double value = 0;
    switch (row->kind) {
    case CHOICE: return set_choice(s, row->choices, (int *)(void *)member);
    case WEIGHTS: config->surgery.preference = preference; return set_weights(s, config->n_losses, preference);
    case REAL:
        if (!read_number(s->value, &value))
            return refuse(s, "a finite number");
        *(double *)(void *)member = value;
        return 0;
    case FLAG:
    case INTEGER:
        if (!read_number(s->value, &value) || value != floor(value) || fabs(value) > INT_MAX ||
            (row->kind == FLAG && value != 0 && value != 1))
            return refuse(s, row->kind == FLAG ? "0 or 1" : "a whole number");
        *(int *)(void *)member = (int)value;
        return 0;
    }
    return 0;
}

static int out_of_range(const pinn_setting *s, sut_optimizer_method method)
{
    sut_parameter_info info;
    for (int i = 0; sut_optimizer_parameter(method, i, &info) == SUT_OK; i++)
        if (!strcmp(info.name, s->name)) {
            char allowed[96];
            snprintf(allowed, sizeof allowed, "in %c%g, %g%c", info.minimum_open ? '(' : '[', info.minimum,
                     info.maximum, info.maximum_open ? ')' : ']');
            return refuse(s, allowed);
        }
    return refuse(s, "in its range");
}

static int unknown(const pinn_setting *s, sut_optimizer_method method)
{
    const char *names[MAX_NAMES];
    int n = 0;
    sut_parameter_info info;
    while (n < MAX_NAMES - N_ROWS && sut_optimizer_parameter(method, n, &info) == SUT_OK)
        names[n++] = info.name;
    for (int i = 0; i < N_ROWS; i++)
        names[n++] = rows[i].name;
    fprintf(stderr, "suture-pinn: --set: neither %s nor its surgery has a setting '%s'",
            sut_optimizer_method_name(method), s->name);
    pinn_suggest(s->name, names, n);
    return PINN_EXIT_USAGE;
}

int pinn_settings_apply(const pinn_options *options, sut_optimizer_config *config, double *preference)
{
    for (int k = 0; k < options->n_settings; k++) {
        const pinn_setting *const s = &options->settings[k];
        double value = 0;
        const bool is_number = read_number(s->value, &value);
        if (!strcmp(s->name, "lr"))
            return refuse(s, "given as --lr");
        if (sut_hyper_get(&config->hyper, config->method, s->name, &(double){0}) == SUT_OK) {
            if (!is_number)
                return refuse(s, "a finite number");
            if (sut_hyper_set(&config->hyper, config->method, s->name, value) != SUT_OK)
                return out_of_range(s, config->method);
            continue;
        }
        int i = 0;
        while (i < N_ROWS && strcmp(rows[i].name, s->name) != 0)
            i++;
        if (i == N_ROWS)
            return unknown(s, config->method);
        const int code = set_row(s, &rows[i], config, preference);
        if (code)
            return code;
    }
    return 0;
}
