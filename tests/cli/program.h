/*
 * Running suture-pinn from outside, each test in a directory of its own that is removed afterwards. Functions end the test
 * when the system refuses them something.
 */
#ifndef TEST_CLI_PROGRAM_H
#define TEST_CLI_PROGRAM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <sys/types.h>

typedef struct outcome {
    int code;        /* exit code, or 128 + signal */
    char *out, *err; /* what it printed; free with drop() */
} outcome;

/* Limits and circumstances of the program's process; all zero: none. */
typedef struct limits {
    long file_size;          /* largest file in bytes, instead of a full disk */
    const char *stdout_to;   /* a file instead of outcome.out */
    bool no_stdout;          /* closed */
    bool no_hangup;          /* as under nohup */
    const char *path;        /* PATH */
    const char *isa;         /* SUTURE_ISA */
    const char *blas_kernel; /* OPENBLAS_CORETYPE */
} limits;

/* Directory of the test, and file in it (one of eight buffers in turn). */
int enter_directory(void **state);
int leave_directory(void **state);
const char *in(const char *name);

/* Run suture-pinn with the words of a line, "%s" replaced by the test's directory as in printf. */
outcome run(const char *format, ...) __attribute__((format(printf, 1, 2)));
outcome run_limited(const limits *limits, const char *format, ...) __attribute__((format(printf, 2, 3)));
void drop(outcome *outcome);

/* Start it, and wait for its end. */
pid_t start(const limits *limits, const char *format, ...) __attribute__((format(printf, 2, 3)));
outcome finish(pid_t process);

/* Run a line and fail unless it ends with this code; `text` (may be NULL) must be in what it says on stderr. */
void expect(int code, const char *text, const char *line);

/* The whole file, zero-terminated; NULL when there is none. Free it. */
char *contents(const char *path, size_t *size);
bool exists(const char *path);
bool same_file(const char *a, const char *b);
/* Temporary files in a directory; -1: there is no directory. */
int leftovers(const char *path);
void write_bytes(const char *path, const void *bytes, size_t size);

/* history.csv: number of rows; the value in a row (0, 1, ...) of a named column, NAN when empty; steps alike. */
typedef struct history {
    char *text;
    int n_columns, n_rows;
    char **cells; /* header first */
} history;
history read_history(const char *path);
double cell(const history *history, int row, const char *column);
void drop_history(history *history);
/* The same in every column but `seconds`. */
bool same_history(const char *a, const char *b);

/* metrics.json; json_decref it. */
json_t *read_metrics(const char *path);
double metric(const json_t *metrics, const char *name);
/* The same but for `seconds`. */
bool same_metrics(const char *a, const char *b);

/* How often a word is in a text. */
int count_of(const char *text, const char *word);

#endif
