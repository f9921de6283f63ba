/*
 * The rows behind the command line: one for each option, from which parser, --help, metrics.json and the configuration in
 * checkpoints are derived (options.c, resume.c).
 */
#ifndef PINN_OPTION_TABLE_H
#define PINN_OPTION_TABLE_H

#include "options.h"

typedef enum option_kind {
    OPTION_CHOICE,
    OPTION_INTEGER,
    OPTION_REAL,
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_SETTING
} option_kind;

typedef struct option_row {
    const char *name, *argument, *help;
    option_kind kind;
    size_t offset;                    /* in pinn_options */
    bool configuration;               /* the results depend on it */
    bool fixed;                       /* a checkpoint cannot be carried over to another value */
    const char *(*choice)(int);       /* names of 0, 1, ...; NULL past the last */
    double minimum, maximum, initial; /* initial NAN: from the problem, or not set */
} option_row;

/* The number of rows; the rows by index, by name (must be there). */
int option_count(void);
const option_row *option_at(int index);
int option_find(const char *name); /* option_count() when there is none */

/* A row's member of the options. */
static inline void *option_member(pinn_options *options, const option_row *row)
{
    return (char *)options + row->offset;
}
static inline bool option_is_given(const pinn_options *options, const char *name)
{
    return options->given[option_find(name)];
}

/* Names of a CHOICE; returns how many. */
enum { OPTION_MAX_NAMES = 64 };
int option_names(const option_row *row, const char *names[OPTION_MAX_NAMES]);

/*
 * Set one value from text (NULL for flags). What is refused is written to stderr after "suture-pinn: " and `origin`, such
 * as "--". Returns 0 or PINN_EXIT_USAGE.
 */
int option_set(pinn_options *options, const option_row *row, const char *origin, const char *text);

/* "name=value", the text of --set; the last value given to a name wins. */
int option_add_setting(pinn_options *options, const char *text);

/* A row's value; new reference. */
json_t *option_value(const pinn_options *options, const option_row *row);

/* Fill in what is not set: by preset and problem, then the rest. Returns 0 or PINN_EXIT_USAGE after a message. */
void option_fill_preset(pinn_options *options);
int option_complete(pinn_options *options);

#endif
