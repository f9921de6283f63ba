/* Reading golden files, see golden.h. */
#include "support/golden.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void golden_malformed(const golden_place *place, const char *format, ...)
{
    va_list args;
    (void)fflush(stdout);
    (void)fprintf(stderr, "%s: %s%s", place->path, place->text, place->text[0] ? ": " : "");
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    exit(2);
}

void golden_at(golden_place *place, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(place->text, sizeof place->text, format, args);
    va_end(args);
}

json_t *golden_load(golden_place *place, const char *path)
{
    json_error_t error;
    place->path = path;
    place->text[0] = '\0';
    json_t *const root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root && error.line < 0)
        golden_malformed(place, "%s", error.text); /* it could not be read at all */
    if (!root)
        golden_malformed(place, "line %d: %s", error.line, error.text);
    if (!json_is_object(root))
        golden_malformed(place, "the file does not hold an object");
    return root;
}

json_t *golden_open(golden_place *place, const char *path, const char *schema)
{
    json_t *const root = golden_load(place, path);
    const char *const found = golden_text(place, root, "schema");
    if (strcmp(found, schema) != 0)
        golden_malformed(place, "the schema is \"%s\"; this program reads \"%s\"", found, schema);
    return root;
}

json_t *golden_member(const golden_place *place, const json_t *parent, const char *key)
{
    if (!json_is_object(parent))
        golden_malformed(place, "an object was expected where \"%s\" is looked for", key);
    json_t *const value = json_object_get(parent, key);
    if (!value)
        golden_malformed(place, "the field \"%s\" is missing", key);
    return value;
}

json_t *golden_object(const golden_place *place, const json_t *parent, const char *key)
{
    json_t *const value = golden_member(place, parent, key);
    if (!json_is_object(value))
        golden_malformed(place, "the field \"%s\" is not an object", key);
    return value;
}

json_t *golden_array(const golden_place *place, const json_t *parent, const char *key)
{
    json_t *const value = golden_member(place, parent, key);
    if (!json_is_array(value))
        golden_malformed(place, "the field \"%s\" is not an array", key);
    return value;
}

const char *golden_text(const golden_place *place, const json_t *parent, const char *key)
{
    json_t *const value = golden_member(place, parent, key);
    if (!json_is_string(value))
        golden_malformed(place, "the field \"%s\" is not a text", key);
    return json_string_value(value);
}

static double number_of(const golden_place *place, const json_t *value, const char *key)
{
    if (json_is_number(value))
        return json_number_value(value);
    if (json_is_string(value)) {
        char *end;
        const char *const text = json_string_value(value);
        const double x = strtod(text, &end);
        if (end != text && *end == '\0')
            return x;
    }
    golden_malformed(place, "\"%s\" holds something that is not a number", key);
}

double golden_number(const golden_place *place, const json_t *parent, const char *key)
{
    return number_of(place, golden_member(place, parent, key), key);
}

double golden_number_or(const golden_place *place, const json_t *parent, const char *key, double otherwise)
{
    return json_object_get(parent, key) ? golden_number(place, parent, key) : otherwise;
}

long golden_integer(const golden_place *place, const json_t *parent, const char *key, long minimum, long maximum)
{
    const double x = golden_number(place, parent, key);
    if (!(x >= (double)minimum && x <= (double)maximum) || x != floor(x))
        golden_malformed(place, "\"%s\" is %g; it must be an integer in %ld..%ld", key, x, minimum, maximum);
    return (long)x;
}

uint64_t golden_unsigned(const golden_place *place, const json_t *parent, const char *key)
{
    const json_t *const value = golden_member(place, parent, key);
    if (json_is_integer(value) && json_integer_value(value) >= 0)
        return (uint64_t)json_integer_value(value);
    if (json_is_string(value)) {
        char *end;
        const char *const text = json_string_value(value);
        errno = 0;
        const unsigned long long x = strtoull(text, &end, 10);
        if (end != text && *end == '\0' && errno == 0 && text[0] != '-')
            return (uint64_t)x;
    }
    golden_malformed(place, "\"%s\" is not an unsigned integer", key);
}

bool golden_bool(const golden_place *place, const json_t *parent, const char *key)
{
    const json_t *const value = golden_member(place, parent, key);
    if (!json_is_boolean(value))
        golden_malformed(place, "the field \"%s\" is neither true nor false", key);
    return json_is_true(value);
}

static void numbers_of(const golden_place *place, const json_t *array, const char *key, long count, double *out)
{
    if (!json_is_array(array))
        golden_malformed(place, "the field \"%s\" is not an array of numbers", key);
    if (json_array_size(array) != (size_t)count)
        golden_malformed(place, "\"%s\" has %zu entries where %ld were expected", key, json_array_size(array), count);
    for (long k = 0; k < count; ++k)
        out[k] = number_of(place, json_array_get(array, (size_t)k), key);
}

void golden_vector(const golden_place *place, const json_t *parent, const char *key, long count, double *out)
{
    numbers_of(place, golden_array(place, parent, key), key, count, out);
}

void golden_matrix(const golden_place *place, const json_t *parent, const char *key, long rows, long columns,
                   double *out)
{
    const json_t *const array = golden_array(place, parent, key);
    if (json_array_size(array) != (size_t)rows)
        golden_malformed(place, "\"%s\" has %zu rows where %ld were expected", key, json_array_size(array), rows);
    for (long i = 0; i < rows; ++i)
        numbers_of(place, json_array_get(array, (size_t)i), key, columns, out + i * columns);
}

bool golden_check(golden_count *count, const golden_place *place, bool good, const char *format, ...)
{
    if (good) {
        ++count->passed;
        return true;
    }
    ++count->failed;
    va_list args;
    (void)printf("FAILED %s: ", place->text);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)putchar('\n');
    return false;
}

int golden_finish(const golden_count *count)
{
    const bool empty = count->passed + count->failed + count->skipped == 0;
    if (empty)
        (void)fprintf(stderr, "the files hold no case\n");
    (void)printf("%ld passed, %ld failed, %ld skipped\n", count->passed, count->failed, count->skipped);
    return count->failed > 0 || empty;
}

void *golden_memory(size_t count, size_t size)
{
    void *const memory = calloc(count ? count : 1, size);
    if (!memory) {
        (void)fprintf(stderr, "no memory for %zu * %zu bytes\n", count, size);
        exit(2);
    }
    return memory;
}
