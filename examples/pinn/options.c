/* The command line (see options.h; its rows are in option_table.c). */
#include "option_table.h"

#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP = 1000, VERSION };

int option_names(const option_row *row, const char *names[OPTION_MAX_NAMES])
{
    int n = 0;
    while (n < OPTION_MAX_NAMES && row->choice(n)) {
        names[n] = row->choice(n);
        n++;
    }
    return n;
}

static void set_default(pinn_options *o, const option_row *row)
{
    void *const to = option_member(o, row);
    switch (row->kind) {
    case OPTION_CHOICE: *(int *)to = (int)row->initial; break;
    case OPTION_INTEGER: *(int64_t *)to = isnan(row->initial) ? -1 : (int64_t)row->initial; break;
    case OPTION_REAL: *(double *)to = row->initial; break;
    default: break;
    }
}

int option_add_setting(pinn_options *o, const char *text)
{
    const char *equals = strchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : 0;
    if (!equals || !length || length >= sizeof o->settings[0].name ||
        strlen(equals + 1) >= sizeof o->settings[0].value) {
        fprintf(stderr, "suture-pinn: --set %s: NAME=VALUE is expected\n", text);
        return PINN_EXIT_USAGE;
    }
    int i = 0;
    while (i < o->n_settings && (strncmp(o->settings[i].name, text, length) != 0 || o->settings[i].name[length]))
        i++;
    if (i == PINN_MAX_SETTINGS) {
        fprintf(stderr, "suture-pinn: --set: more than %d settings\n", PINN_MAX_SETTINGS);
        return PINN_EXIT_USAGE;
    }
    o->n_settings += i == o->n_settings; /* the last one given wins */
    memcpy(o->settings[i].name, text, length);
    o->settings[i].name[length] = 0;
    snprintf(o->settings[i].value, sizeof o->settings[i].value, "%s", equals + 1);
    return 0;
}

int option_set(pinn_options *o, const option_row *row, const char *origin, const char *text)
{
    void *const to = option_member(o, row);
    char *end = NULL;
    errno = 0;
    switch (row->kind) {
    case OPTION_FLAG: *(bool *)to = true; return 0;
    case OPTION_TEXT: *(const char **)to = text; return 0;
    case OPTION_SETTING: return option_add_setting(o, text);
    case OPTION_CHOICE: {
        const char *names[OPTION_MAX_NAMES];
        const int n = option_names(row, names);
        for (int i = 0; i < n; i++)
            if (!strcmp(names[i], text)) {
                *(int *)to = i;
                return 0;
            }
        fprintf(stderr, "suture-pinn: %s%s: there is no '%s'", origin, row->name, text);
        pinn_suggest(text, names, n);
        return PINN_EXIT_USAGE;
    }
    case OPTION_INTEGER: {
        const long long value = strtoll(text, &end, 10);
        if (end == text || *end || errno || (double)value < row->minimum || (double)value > row->maximum) {
            fprintf(stderr, "suture-pinn: %s%s %s: a whole number from %.0f to %.0f is expected\n", origin, row->name,
                    text, row->minimum, row->maximum);
            return PINN_EXIT_USAGE;
        }
        *(int64_t *)to = value;
        return 0;
    }
    case OPTION_REAL: {
        const double value = strtod(text, &end);
        if (end == text || *end || !(value >= row->minimum && value <= row->maximum)) {
            fprintf(stderr, "suture-pinn: %s%s %s: a number %s%g is expected\n", origin, row->name, text,
                    row->maximum == DBL_MAX ? "of at least " : "from 0 to ",
                    row->maximum == DBL_MAX ? row->minimum : row->maximum);
            return PINN_EXIT_USAGE;
        }
        *(double *)to = value;
        return 0;
    }
    }
    return 0;
}

/* The option that getopt stumbled over, without dashes and value. */
static void complain(int code, char *const *argv)
{
    char name[64];
    const char *word = argv[optind - 1];
    if (code == ':') {
        fprintf(stderr, "suture-pinn: %s needs a value\n", word);
        return;
    }
    if (optopt && optopt < 256 && strncmp(word, "--", 2) != 0) {
        fprintf(stderr, "suture-pinn: unknown option -%c; options are words: see suture-pinn --help\n", optopt);
        return;
    }
    snprintf(name, sizeof name, "%s", word + strspn(word, "-"));
    name[strcspn(name, "=")] = 0;
    const int n = option_count();
    if (option_find(name) < n || !strcmp(name, "help") || !strcmp(name, "version")) {
        fprintf(stderr, "suture-pinn: --%s takes no value\n", name);
        return;
    }
    const char *names[PINN_MAX_OPTIONS];
    for (int i = 0; i < n; i++)
        names[i] = option_at(i)->name;
    fprintf(stderr, "suture-pinn: unknown or ambiguous option --%s", name);
    pinn_suggest(name, names, n);
}

static int parse_words(pinn_options *o, int n, char **words)
{
    if (n == 0) {
        fprintf(stderr, "suture-pinn: which problem? Try: suture-pinn burgers --preset quick, or suture-pinn --help\n");
        return PINN_EXIT_USAGE;
    }
    static const struct {
        const char *word;
        pinn_command command;
    } commands[] = {{"list", PINN_LIST}, {"plot", PINN_PLOT}, {"version", PINN_VERSION}, {"help", PINN_HELP}};
    o->command = PINN_RUN;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (!strcmp(words[0], commands[i].word))
            o->command = commands[i].command;
    if (o->command == PINN_PLOT) {
        o->directory = n > 1 ? words[1] : NULL;
        if (!o->directory) {
            fprintf(stderr, "suture-pinn: plot: which directory? It is the --out of a run\n");
            return PINN_EXIT_USAGE;
        }
    }
    const int expected = o->command == PINN_PLOT ? 2 : 1;
    if (n > expected) {
        fprintf(stderr, "suture-pinn: '%s' is one word too many\n", words[expected]);
        return PINN_EXIT_USAGE;
    }
    if (o->command != PINN_RUN) {
        for (int i = 0; i < option_count(); i++)
            if (o->given[i]) {
                fprintf(stderr, "suture-pinn: %s takes no options; --%s is one of a run\n", words[0],
                        option_at(i)->name);
                return PINN_EXIT_USAGE;
            }
        return 0;
    }
    o->problem = pinn_problem_find(words[0]);
    if (o->problem)
        return 0;
    const char *names[16];
    int n_names = 0;
    for (const pinn_problem *p; n_names < 12 && (p = pinn_problem_at(n_names)) != NULL;)
        names[n_names++] = p->name;
    for (size_t i = 0; i < 3; i++)
        names[n_names++] = commands[i].word;
    fprintf(stderr, "suture-pinn: there is no problem '%s'", words[0]);
    pinn_suggest(words[0], names, n_names);
    return PINN_EXIT_USAGE;
}

void option_fill_preset(pinn_options *o)
{
    const pinn_problem *const p = o->problem;
    const bool quick = o->preset == PINN_PRESET_QUICK;
    const int split = (int)o->losses - 2;
    const double lr = quick ? p->quick.lr : p->lr[split], final_lr = quick ? p->quick.final_lr : p->final_lr[split];
    if (o->steps < 0)
        o->steps = quick ? p->quick.steps : p->steps;
    if (o->points < 0)
        o->points = quick ? p->quick.points : p->terms[0].n_points;
    if (isnan(o->lr))
        o->lr = lr;
    if (isnan(o->final_lr))
        o->final_lr = option_is_given(o, "lr") ? o->lr * (final_lr / lr) : final_lr;
}

int option_complete(pinn_options *o)
{
    const pinn_problem *const p = o->problem;
    pinn_loss losses[PINN_MAX_TERMS];
    if (!pinn_problem_split(p, (int)o->losses, losses)) {
        fprintf(stderr, "suture-pinn: --losses %" PRId64 ": %s has no initial condition, so 2 losses\n", o->losses,
                p->name);
        return PINN_EXIT_USAGE;
    }
    option_fill_preset(o);
    if (o->lr == 0) {
        fprintf(stderr, "suture-pinn: --lr 0: the rate at the start must be above 0\n");
        return PINN_EXIT_USAGE;
    }
    if (isnan(o->rho_m))
        o->rho_m = p->rho_m;
    if (isnan(o->rho_v))
        o->rho_v = p->rho_v;
    if (o->warmup < 0)
        o->warmup = o->steps / 100 < 100 ? o->steps / 100 : 100;
    if (o->warmup >= o->steps) {
        fprintf(stderr, "suture-pinn: --warmup %" PRId64 ": it must be shorter than the run of %" PRId64 " steps\n",
                o->warmup, o->steps);
        return PINN_EXIT_USAGE;
    }
    return 0;
}

/* An instruction set that the command line leaves open may be named by the environment, as in the library's tests. */
static int isa_of_environment(pinn_options *o)
{
    const option_row *const row = option_at(option_find("isa"));
    const char *const name = getenv("SUTURE_ISA");
    return option_is_given(o, "isa") || !name ? 0 : option_set(o, row, "SUTURE_ISA in the environment, as --", name);
}

int pinn_options_parse(pinn_options *o, int argc, char **argv)
{
    memset(o, 0, sizeof *o);
    struct option longs[PINN_MAX_OPTIONS + 3] = {{"help", no_argument, NULL, HELP},
                                                 {"version", no_argument, NULL, VERSION}};
    for (int i = 0; i < option_count(); i++) {
        const option_row *const row = option_at(i);
        set_default(o, row);
        longs[2 + i] = (struct option){row->name, row->kind == OPTION_FLAG ? no_argument : required_argument, NULL, i};
    }
    opterr = 0;
    optind = 0;
    bool help = false, version = false;
    for (int code; (code = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        if (code == '?' || code == ':') {
            complain(code, argv);
            return PINN_EXIT_USAGE;
        }
        if (code == HELP || code == 'h') {
            help = true;
        } else if (code == VERSION) {
            version = true;
        } else {
            const int error = option_set(o, option_at(code), "--", optarg);
            if (error)
                return error;
            o->given[code] = true;
        }
    }
    const int bad_isa = isa_of_environment(o);
    if (bad_isa)
        return bad_isa;
    if (help || version) {
        o->command = help ? PINN_HELP : PINN_VERSION;
        return 0;
    }
    const int error = parse_words(o, argc - optind, argv + optind);
    if (error || o->command != PINN_RUN)
        return error;
    /* With --resume the rest comes from the checkpoint first; see pinn_options_continue. */
    return o->resume ? 0 : option_complete(o);
}

void pinn_options_help(void)
{
    printf(
        "usage: suture-pinn PROBLEM [options]     train a physics-informed network\n"
        "       suture-pinn list                  problems, optimizers, surgery methods, schedules\n"
        "       suture-pinn plot DIR              draw the pictures of a run again\n"
        "       suture-pinn version               what this build can do here\n\n"
        "A run leaves metrics.json, history.csv, solution.csv, checkpoint.safetensors and pictures in its directory.\n"
        "Ctrl-C ends it with a checkpoint. Exit code: 0 done, 1 failure, 2 usage, 128 + signal when interrupted.\n\n");
    for (int i = 0; i < option_count(); i++) {
        const option_row *const row = option_at(i);
        char left[48];
        snprintf(left, sizeof left, "--%s%s%s", row->name, row->argument ? " " : "",
                 row->argument ? row->argument : "");
        printf("  %-24s %s", left, row->help);
        if (row->kind == OPTION_CHOICE)
            printf(" (default: %s)", row->choice((int)row->initial));
        else if ((row->kind == OPTION_INTEGER || row->kind == OPTION_REAL) && !isnan(row->initial))
            printf(" (default: %g)", row->initial);
        putchar('\n');
    }
}

void pinn_options_list(void)
{
    const pinn_problem *p;
    printf("problems:");
    for (int i = 0; (p = pinn_problem_at(i)) != NULL; i++)
        printf("\n  %-12s %s\n  %12s paper: %" PRId64 " steps of %d points, rate %g to %g; quick: %" PRId64
               " steps of %" PRId64 " points, rate %g to %g",
               p->name, p->title, "", p->steps, p->terms[0].n_points, p->lr[0], p->final_lr[0], p->quick.steps,
               p->quick.points, p->quick.lr, p->quick.final_lr);
    static const char *const listed[] = {"optimizer", "surgery", "schedule"};
    for (size_t k = 0; k < sizeof listed / sizeof listed[0]; k++) {
        const option_row *const row = option_at(option_find(listed[k]));
        printf("\n%s:\n ", row->name);
        for (int i = 0; row->choice(i); i++)
            printf(" %s", row->choice(i));
    }
    printf("\n");
}

json_t *option_value(const pinn_options *o, const option_row *row)
{
    const void *const from = (const char *)o + row->offset;
    switch (row->kind) {
    case OPTION_CHOICE: return json_string(row->choice(*(const int *)from));
    case OPTION_INTEGER: return json_integer(*(const int64_t *)from);
    case OPTION_REAL: return json_real(*(const double *)from);
    case OPTION_FLAG: return json_boolean(*(const bool *)from);
    case OPTION_SETTING: {
        json_t *settings = json_object();
        for (int i = 0; i < o->n_settings; i++)
            json_object_set_new(settings, o->settings[i].name, json_string(o->settings[i].value));
        return settings;
    }
    default: return json_null();
    }
}

json_t *pinn_options_configuration(const pinn_options *o)
{
    json_t *out = json_object();
    json_object_set_new(out, "problem", json_string(o->problem->name));
    for (int i = 0; i < option_count(); i++)
        if (option_at(i)->configuration)
            json_object_set_new(out, option_at(i)->name, option_value(o, option_at(i)));
    return out;
}
