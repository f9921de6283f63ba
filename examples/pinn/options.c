/* The command line (see options.h). */
#include "options.h"

#include "suture/schedule.h"

#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { CHOICE, INTEGER, REAL, FLAG, TEXT, SETTING } kind;

typedef struct row {
    const char *name, *argument, *help;
    kind kind;
    size_t offset;
    bool configuration;               /* the results depend on it */
    bool fixed;                       /* a checkpoint cannot be carried over to another value */
    const char *(*choice)(int);       /* names of 0, 1, ...; NULL past the last */
    double minimum, maximum, initial; /* initial NAN: from the problem, or not set */
} row;

static const char *optimizer_name(int i)
{
    return i < SUT_OPTIMIZER_COUNT ? sut_optimizer_method_name((sut_optimizer_method)i) : NULL;
}
static const char *surgery_name(int i)
{
    return i < SUT_SURGERY_COUNT ? sut_surgery_method_name((sut_surgery_method)i) : NULL;
}
static const char *schedule_name(int i)
{
    return i < SUT_SCHEDULE_COUNT ? sut_schedule_name((sut_schedule_kind)i) : NULL;
}
static const char *align_name(int i)
{
    return i == SUT_ALIGN_NONE ? "none" : i == SUT_ALIGN_GUA ? "gua" : NULL;
}
static const char *metric_name(int i)
{
    return i == SUT_METRIC_NATURAL ? "natural" : i == SUT_METRIC_EUCLIDEAN ? "euclidean" : NULL;
}
static const char *dtype_name(int i)
{
    return i == NET_F32 ? "f32" : i == NET_F64 ? "f64" : NULL;
}
static const char *preset_name(int i)
{
    return i == PINN_PRESET_PAPER ? "paper" : i == PINN_PRESET_QUICK ? "quick" : NULL;
}
static const char *backend_name(int i)
{
    return i >= 0 && i < 2 ? sut_backend_name(i ? SUT_BACKEND_CPU : SUT_BACKEND_AUTO) : NULL;
}
static const char *isa_name(int i)
{
    return i >= 0 && i <= SUT_ISA_AVX512 ? sut_isa_name((sut_isa)i) : NULL;
}

#define AT(member) offsetof(pinn_options, member)
#define MANY 9e15 /* every integer up to here is a double */

static const row table[] = {
    {"optimizer", "NAME", "update rule", CHOICE, AT(optimizer), true, true, optimizer_name, 0, 0, SUT_OPTIMIZER_ADAM},
    {"surgery", "NAME", "how the losses' gradients become one", CHOICE, AT(surgery), true, false, surgery_name, 0, 0,
     SUT_SURGERY_CONFIG},
    {"align", "gua|none", "make every step conflict-free", CHOICE, AT(align), true, false, align_name, 0, 0,
     SUT_ALIGN_GUA},
    {"losses", "2|3", "2: interior, boundary with initial; 3: each by itself", INTEGER, AT(losses), true, true, NULL, 2,
     3, 2},
    {"dtype", "f32|f64", "type of network and optimizer", CHOICE, AT(dtype), true, true, dtype_name, 0, 0, NET_F32},
    {"preset", "quick|paper", "steps, points and rates: a minute's, or the published ones (default)", CHOICE,
     AT(preset), false, false, preset_name, 0, 0, PINN_PRESET_PAPER},
    {"steps", "N", "number of steps", INTEGER, AT(steps), true, false, NULL, 1, 1e12, NAN},
    {"points", "N", "interior points of a step", INTEGER, AT(points), true, false, NULL, 1, 1e7, NAN},
    {"seed", "S", "of points and initial parameters", INTEGER, AT(seed), true, true, NULL, 0, MANY, 0},
    {"lr", "X", "learning rate at the start", REAL, AT(lr), true, false, NULL, 0, DBL_MAX, NAN},
    {"final-lr", "X", "learning rate at the end", REAL, AT(final_lr), true, false, NULL, 0, DBL_MAX, NAN},
    {"schedule", "NAME", "course of the rate: constant, linear, cosine, wsd", CHOICE, AT(schedule), true, false,
     schedule_name, 0, 0, SUT_SCHEDULE_COSINE},
    {"warmup", "N", "steps of warm-up (default min(100, steps/100))", INTEGER, AT(warmup), true, false, NULL, 0, 1e12,
     NAN},
    {"rho-m", "X", "realignment of first moments", REAL, AT(rho_m), true, false, NULL, 0, 1, NAN},
    {"rho-v", "X", "realignment of second moments", REAL, AT(rho_v), true, false, NULL, 0, 1, NAN},
    {"conflict-tol", "X", "project when a cosine is below -X", REAL, AT(conflict_tol), true, false, NULL, 0, 0.999999,
     1e-6},
    {"metric", "NAME", "metric of the projection: natural (the rule's own), euclidean", CHOICE, AT(metric), true, false,
     metric_name, 0, 0, SUT_METRIC_NATURAL},
    {"fixed-points", NULL, "keep the first draw of points for the whole run", FLAG, AT(fixed_points), true, false, NULL,
     0, 0, 0},
    {"set", "NAME=VALUE", "hyper-parameter or surgery option; may be repeated", SETTING, 0, true, false, NULL, 0, 0, 0},
    {"out", "DIR", "where results go (default suture-pinn-PROBLEM)", TEXT, AT(out), false, false, NULL, 0, 0, 0},
    {"resume", "FILE", "go on from a checkpoint", TEXT, AT(resume), false, false, NULL, 0, 0, 0},
    {"threads", "N", "default: one per processor; never changes a bit of the result", INTEGER, AT(threads), false,
     false, NULL, 1, 1024, NAN},
    {"checkpoint-every", "N", "steps between checkpoints", INTEGER, AT(checkpoint_every), false, false, NULL, 1, 1e12,
     500},
    {"log-every", "N", "steps between rows of history.csv", INTEGER, AT(log_every), true, false, NULL, 1, 1e12, 10},
    {"evaluate-every", "N", "steps between evaluations, by which the best parameters are kept", INTEGER,
     AT(evaluate_every), true, false, NULL, 1, 1e12, 100},
    {"target-loss", "X", "stop when the sum of the losses is at most X", REAL, AT(target_loss), false, false, NULL, 0,
     DBL_MAX, NAN},
    {"time-limit", "S", "stop after S seconds", REAL, AT(time_limit), false, false, NULL, 0, DBL_MAX, NAN},
    {"patience", "N", "stop after N steps without a better evaluation", INTEGER, AT(patience), false, false, NULL, 1,
     1e12, NAN},
    {"json", NULL, "print metrics.json on stdout, and nothing else there", FLAG, AT(json), false, false, NULL, 0, 0, 0},
    {"no-plots", NULL, "draw no pictures", FLAG, AT(no_plots), false, false, NULL, 0, 0, 0},
    {"backend", "NAME", "auto, cpu", CHOICE, AT(backend), false, false, backend_name, 0, 0, 0},
    {"isa", "NAME", "instruction set of the network: auto, baseline, avx2, avx512", CHOICE, AT(isa), false, false,
     isa_name, 0, 0, SUT_ISA_AUTO},
};

enum { N_ROWS = sizeof table / sizeof table[0], HELP = 1000, VERSION };
_Static_assert((int)N_ROWS <= (int)PINN_MAX_OPTIONS, "PINN_MAX_OPTIONS is too small");

static void *member(pinn_options *o, const row *row)
{
    return (char *)o + row->offset;
}

static int row_of(const char *name)
{
    int i = 0;
    while (i < N_ROWS && strcmp(table[i].name, name) != 0)
        i++;
    return i;
}

static bool is_given(const pinn_options *o, const char *name)
{
    return o->given[row_of(name)];
}

static int names_of(const row *row, const char **names, int space)
{
    int n = 0;
    while (n < space && row->choice(n)) {
        names[n] = row->choice(n);
        n++;
    }
    return n;
}

static void set_default(pinn_options *o, const row *row)
{
    void *const to = member(o, row);
    switch (row->kind) {
    case CHOICE: *(int *)to = (int)row->initial; break;
    case INTEGER: *(int64_t *)to = isnan(row->initial) ? -1 : (int64_t)row->initial; break;
    case REAL: *(double *)to = row->initial; break;
    default: break;
    }
}

static int add_setting(pinn_options *o, const char *text)
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

/* One value; `text` is NULL for flags. */
static int set_value(pinn_options *o, const row *row, const char *text)
{
    void *const to = member(o, row);
    char *end = NULL;
    errno = 0;
    switch (row->kind) {
    case FLAG: *(bool *)to = true; return 0;
    case TEXT: *(const char **)to = text; return 0;
    case SETTING: return add_setting(o, text);
    case CHOICE: {
        const char *names[64];
        const int n = names_of(row, names, 64);
        for (int i = 0; i < n; i++)
            if (!strcmp(names[i], text)) {
                *(int *)to = i;
                return 0;
            }
        fprintf(stderr, "suture-pinn: --%s: there is no '%s'", row->name, text);
        pinn_suggest(text, names, n);
        return PINN_EXIT_USAGE;
    }
    case INTEGER: {
        const long long value = strtoll(text, &end, 10);
        if (end == text || *end || errno || (double)value < row->minimum || (double)value > row->maximum) {
            fprintf(stderr, "suture-pinn: --%s %s: a whole number from %.0f to %.0f is expected\n", row->name, text,
                    row->minimum, row->maximum);
            return PINN_EXIT_USAGE;
        }
        *(int64_t *)to = value;
        return 0;
    }
    case REAL: {
        const double value = strtod(text, &end);
        if (end == text || *end || !(value >= row->minimum && value <= row->maximum)) {
            fprintf(stderr, "suture-pinn: --%s %s: a number %s%.0f is expected\n", row->name, text,
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
    if (row_of(name) < N_ROWS || !strcmp(name, "help") || !strcmp(name, "version")) {
        fprintf(stderr, "suture-pinn: --%s takes no value\n", name);
        return;
    }
    const char *names[N_ROWS];
    for (int i = 0; i < N_ROWS; i++)
        names[i] = table[i].name;
    fprintf(stderr, "suture-pinn: unknown or ambiguous option --%s", name);
    pinn_suggest(name, names, N_ROWS);
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
    if (o->command != PINN_RUN)
        return 0;
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

/* What depends on the problem. */
static int complete(pinn_options *o)
{
    const pinn_problem *const p = o->problem;
    pinn_loss losses[PINN_MAX_TERMS];
    if (!pinn_problem_split(p, (int)o->losses, losses)) {
        fprintf(stderr, "suture-pinn: --losses %" PRId64 ": %s has no initial condition, so 2 losses\n", o->losses,
                p->name);
        return PINN_EXIT_USAGE;
    }
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
        o->final_lr = is_given(o, "lr") ? o->lr * (final_lr / lr) : final_lr;
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

int pinn_options_parse(pinn_options *o, int argc, char **argv)
{
    memset(o, 0, sizeof *o);
    struct option longs[N_ROWS + 3] = {{"help", no_argument, NULL, HELP}, {"version", no_argument, NULL, VERSION}};
    for (int i = 0; i < N_ROWS; i++) {
        set_default(o, &table[i]);
        longs[2 + i] = (struct option){table[i].name, table[i].kind == FLAG ? no_argument : required_argument, NULL, i};
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
            const int error = set_value(o, &table[code], optarg);
            if (error)
                return error;
            o->given[code] = true;
        }
    }
    if (help || version) {
        o->command = help ? PINN_HELP : PINN_VERSION;
        return 0;
    }
    const int error = parse_words(o, argc - optind, argv + optind);
    if (error || o->command != PINN_RUN)
        return error;
    /* With --resume the rest comes from the checkpoint first; see pinn_options_continue. */
    return o->resume ? 0 : complete(o);
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
    for (int i = 0; i < N_ROWS; i++) {
        char left[48];
        snprintf(left, sizeof left, "--%s%s%s", table[i].name, table[i].argument ? " " : "",
                 table[i].argument ? table[i].argument : "");
        printf("  %-24s %s\n", left, table[i].help);
    }
}

void pinn_options_list(void)
{
    const pinn_problem *p;
    printf("problems:");
    for (int i = 0; (p = pinn_problem_at(i)) != NULL; i++)
        printf("\n  %-12s %s", p->name, p->title);
    static const char *const listed[] = {"optimizer", "surgery", "schedule"};
    for (size_t k = 0; k < sizeof listed / sizeof listed[0]; k++) {
        const row *const row = &table[row_of(listed[k])];
        printf("\n%s:\n ", row->name);
        for (int i = 0; row->choice(i); i++)
            printf(" %s", row->choice(i));
    }
    printf("\n");
}

static json_t *value_of(const pinn_options *o, const row *row)
{
    const void *const from = (const char *)o + row->offset;
    switch (row->kind) {
    case CHOICE: return json_string(row->choice(*(const int *)from));
    case INTEGER: return json_integer(*(const int64_t *)from);
    case REAL: return json_real(*(const double *)from);
    case FLAG: return json_boolean(*(const bool *)from);
    case SETTING: {
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
    for (int i = 0; i < N_ROWS; i++)
        if (table[i].configuration)
            json_object_set_new(out, table[i].name, value_of(o, &table[i]));
    return out;
}

/* Take one value from a checkpoint's configuration. */
static int take(pinn_options *o, const row *row, json_t *value)
{
    char text[64];
    if (row->kind == FLAG) {
        *(bool *)member(o, row) = json_is_true(value);
        return 0;
    }
    if (json_is_string(value))
        snprintf(text, sizeof text, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        snprintf(text, sizeof text, "%.17g", json_number_value(value));
    return set_value(o, row, text);
}

static int continue_settings(pinn_options *o, json_t *settings)
{
    const int n_given = o->n_settings;
    const char *name;
    json_t *value;
    json_object_foreach(settings, name, value)
    {
        int i = 0;
        while (i < n_given && strcmp(o->settings[i].name, name) != 0)
            i++;
        const char *old = json_string_value(value) ? json_string_value(value) : "";
        char text[sizeof(pinn_setting) + 2];
        snprintf(text, sizeof text, "%s=%s", name, old);
        if (i == n_given && add_setting(o, text))
            return PINN_EXIT_USAGE;
        if (i < n_given && strcmp(o->settings[i].value, old) != 0)
            fprintf(stderr, "suture-pinn: --set %s=%s instead of the checkpoint's %s\n", name, o->settings[i].value,
                    old);
    }
    return 0;
}

int pinn_options_continue(pinn_options *o, json_t *configuration)
{
    const char *problem = json_string_value(json_object_get(configuration, "problem"));
    if (!problem || strcmp(problem, o->problem->name) != 0) {
        fprintf(stderr, "suture-pinn: --resume %s: that is a run of %s, not of %s\n", o->resume,
                problem ? problem : "something else", o->problem->name);
        return PINN_EXIT_USAGE;
    }
    if (is_given(o, "preset") && !is_given(o, "steps")) {
        o->steps = o->preset == PINN_PRESET_QUICK ? o->problem->quick.steps : o->problem->steps;
        o->given[row_of("steps")] = true;
    }
    for (int i = 0; i < N_ROWS; i++) {
        const row *const row = &table[i];
        json_t *const old = json_object_get(configuration, row->name);
        if (!row->configuration || !old)
            continue;
        if (row->kind == SETTING) {
            if (continue_settings(o, old))
                return PINN_EXIT_USAGE;
            continue;
        }
        if (!o->given[i]) {
            if (take(o, row, old))
                return PINN_EXIT_USAGE;
            continue;
        }
        json_t *const now = value_of(o, row);
        if (!json_equal(now, old)) {
            char *const was = json_dumps(old, JSON_ENCODE_ANY), *const is = json_dumps(now, JSON_ENCODE_ANY);
            fprintf(stderr,
                    row->fixed ? "suture-pinn: --%s %s: the checkpoint was made with %s, which cannot be changed\n"
                               : "suture-pinn: --%s %s instead of the checkpoint's %s\n",
                    row->name, is ? is : "?", was ? was : "?");
            free(was);
            free(is);
        }
        const bool differs = !json_equal(now, old);
        json_decref(now);
        if (differs && row->fixed)
            return PINN_EXIT_USAGE;
    }
    return complete(o);
}
