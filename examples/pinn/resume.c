/*
 * The configuration of a run that goes on: the checkpoint's, but for what the command line says. Every difference is said,
 * in a line of its own; one that the state cannot be carried over to is refused.
 */
#include "option_table.h"

#include "suture/schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a row's value reads like on the command line; free it. */
static char *text_of(const json_t *value)
{
    const char *const string = json_string_value(value);
    return string ? strdup(string) : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10));
}

/* Take one value from the checkpoint's configuration. */
static int take(pinn_options *o, const option_row *row, const json_t *value)
{
    int error = 0;
    if (row->kind == OPTION_FLAG) {
        *(bool *)option_member(o, row) = json_is_true(value);
        return 0;
    }
    char text[64];
    if (json_is_string(value))
        snprintf(text, sizeof text, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        snprintf(text, sizeof text, "%.17g", json_number_value(value));
    error = option_set(o, row, "the checkpoint's ", text);
    return error ? PINN_EXIT_FAILURE : 0; /* no mistake of the user's: the file is damaged or of another version */
}

static bool has_setting(const json_t *settings, const char *name)
{
    return json_object_get(settings, name) != NULL;
}

static int take_settings(pinn_options *o, json_t *settings)
{
    const int n_given = o->n_settings;
    for (int i = 0; i < n_given; i++)
        if (!has_setting(settings, o->settings[i].name))
            fprintf(stderr, "suture-pinn: --set %s=%s instead of the default that the checkpoint was made with\n",
                    o->settings[i].name, o->settings[i].value);
    const char *name;
    json_t *value;
    json_object_foreach(settings, name, value)
    {
        int i = 0;
        while (i < n_given && strcmp(o->settings[i].name, name) != 0)
            i++;
        const char *const old = json_string_value(value) ? json_string_value(value) : "";
        char text[sizeof(pinn_setting) + 2];
        snprintf(text, sizeof text, "%s=%s", name, old);
        if (i == n_given && option_add_setting(o, text))
            return PINN_EXIT_FAILURE;
        if (i < n_given && strcmp(o->settings[i].value, old) != 0)
            fprintf(stderr, "suture-pinn: --set %s=%s instead of the checkpoint's %s\n", name, o->settings[i].value,
                    old);
    }
    return 0;
}

/* A row that was given: say what differs. */
static int compare(const pinn_options *o, const option_row *row, const json_t *old)
{
    json_t *const now = option_value(o, row);
    int error = 0;
    if (!json_equal(now, old)) {
        char *const was = text_of(old), *const is = text_of(now);
        fprintf(stderr,
                row->fixed ? "suture-pinn: --%s %s: the checkpoint was made with %s, which cannot be changed\n"
                           : "suture-pinn: --%s %s instead of the checkpoint's %s\n",
                row->name, is ? is : "?", was ? was : "?");
        free(was);
        free(is);
        error = row->fixed ? PINN_EXIT_USAGE : 0;
    }
    json_decref(now);
    return error;
}

/* --preset beside --resume gives all that a preset stands for, where that is not given by itself. */
static void give_preset(pinn_options *o, json_t *configuration)
{
    static const char *const names[] = {"steps", "points", "lr", "final-lr"};
    if (!option_is_given(o, "preset"))
        return;
    if (!option_is_given(o, "losses") && json_integer_value(json_object_get(configuration, "losses")) == 3)
        o->losses = 3; /* rates may depend on it */
    option_fill_preset(o);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        o->given[option_find(names[k])] = true;
}

int pinn_options_continue(pinn_options *o, json_t *configuration)
{
    const char *const problem = json_string_value(json_object_get(configuration, "problem"));
    if (!problem || strcmp(problem, o->problem->name) != 0) {
        fprintf(stderr, "suture-pinn: --resume %s: that is a run of %s, not of %s\n", o->resume,
                problem ? problem : "something else", o->problem->name);
        return PINN_EXIT_USAGE;
    }
    give_preset(o, configuration);
    for (int i = 0; i < option_count(); i++) {
        const option_row *const row = option_at(i);
        json_t *const old = json_object_get(configuration, row->name);
        if (!row->configuration || !old)
            continue;
        int error;
        if (row->kind == OPTION_SETTING)
            error = take_settings(o, old);
        else
            error = o->given[i] ? compare(o, row, old) : take(o, row, old);
        if (error) {
            if (error == PINN_EXIT_FAILURE)
                fprintf(stderr, "suture-pinn: --resume %s: a damaged checkpoint, or one of another version\n",
                        o->resume);
            return error;
        }
    }
    const json_int_t planned = json_integer_value(json_object_get(configuration, "steps"));
    if (planned != o->steps && o->schedule != SUT_SCHEDULE_CONSTANT)
        fprintf(stderr, "suture-pinn: the rate now takes its course (%s) over %" PRId64 " steps\n",
                sut_schedule_name((sut_schedule_kind)o->schedule), o->steps);
    return option_complete(o);
}
