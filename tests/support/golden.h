/*
 * Reading golden files: every access names the place and the field, so that a damaged file ends with a sentence and exit
 * code 2 instead of a crash. Counting: passed, failed and skipped, and the last line of every runner.
 */
#ifndef SUT_TEST_GOLDEN_H
#define SUT_TEST_GOLDEN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Where we are in the file, for messages: "case gauss_3x7". */
typedef struct golden_place {
    const char *path;
    char text[256];
} golden_place;

/* The file, and the same checked for its schema. End the process with code 2 when it cannot be read; json_decref them. */
json_t *golden_load(golden_place *place, const char *path);
json_t *golden_open(golden_place *place, const char *path, const char *schema);
void golden_at(golden_place *place, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Print "path: place: ..." and end with code 2. */
_Noreturn void golden_malformed(const golden_place *place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Members that must be there, of any type or of one. Numbers may be written as strings ("nan", "inf", "-inf", large integers). */
json_t *golden_member(const golden_place *place, const json_t *parent, const char *key);
json_t *golden_object(const golden_place *place, const json_t *parent, const char *key);
json_t *golden_array(const golden_place *place, const json_t *parent, const char *key);
const char *golden_text(const golden_place *place, const json_t *parent, const char *key);
double golden_number(const golden_place *place, const json_t *parent, const char *key);
double golden_number_or(const golden_place *place, const json_t *parent, const char *key, double otherwise);
long golden_integer(const golden_place *place, const json_t *parent, const char *key, long minimum, long maximum);
uint64_t golden_unsigned(const golden_place *place, const json_t *parent, const char *key);
bool golden_bool(const golden_place *place, const json_t *parent, const char *key);

/* `count` numbers into out. */
void golden_vector(const golden_place *place, const json_t *parent, const char *key, long count, double *out);
/* rows x columns numbers, row by row. */
void golden_matrix(const golden_place *place, const json_t *parent, const char *key, long rows, long columns,
                   double *out);

typedef struct golden_count {
    long passed, failed, skipped;
} golden_count;

/* Count one check; a failure prints the place and the sentence. Returns `good`. */
bool golden_check(golden_count *count, const golden_place *place, bool good, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Print "N passed, N failed, N skipped"; the exit code of the runner, 1 also when there was no case at all. */
int golden_finish(const golden_count *count);

/* Memory or exit 2. */
void *golden_memory(size_t count, size_t size);

#endif /* SUT_TEST_GOLDEN_H */
