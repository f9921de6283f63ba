/*
 * The table of methods, and names.
 */
#include "surgery/methods.h"
#include "surgery/surgery.h"

#include <string.h>

#define ROW(method, name, solve, degree, sum_like, keeps_weights, uses_preference, needs_losses_hint, source) \
    {method, name, solve, degree, sum_like, keeps_weights, uses_preference, needs_losses_hint, source},
const sut_surgery_row sut_surgery_table[SUT_SURGERY_COUNT] = {SUT_SURGERY_METHODS(ROW)};
#undef ROW

/* Other names of the same thing: the centre variant of DCGD (Hwang, Lim 2024, arXiv 2409.18426) is ConFIG of two losses. */
static const struct {
    const char *name;
    sut_surgery_method method;
} aliases[] = {{"dcgd_center", SUT_SURGERY_CONFIG}};

const char *sut_surgery_method_name(sut_surgery_method method)
{
    return (int)method >= 0 && method < SUT_SURGERY_COUNT ? sut_surgery_table[method].name : NULL;
}

sut_status sut_surgery_method_from_name(const char *name, sut_surgery_method *method_out)
{
    if (!name || !method_out)
        return SUT_ERROR_INVALID_ARGUMENT;
    for (int k = 0; k < SUT_SURGERY_COUNT; ++k) {
        if (strcmp(name, sut_surgery_table[k].name) == 0) {
            *method_out = sut_surgery_table[k].method;
            return SUT_OK;
        }
    }
    for (size_t k = 0; k < sizeof aliases / sizeof aliases[0]; ++k) {
        if (strcmp(name, aliases[k].name) == 0) {
            *method_out = aliases[k].method;
            return SUT_OK;
        }
    }
    return SUT_ERROR_INVALID_ARGUMENT;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Edits (insert, delete, replace a character) between a known name and the first 63 characters of what was given. */
static int distance(const char *known, const char *given)
{
    enum { LONGEST = 63 };
    int row[LONGEST + 1];
    const int n = (int)strnlen(given, LONGEST);
    for (int j = 0; j <= n; ++j)
        row[j] = j;
    for (int i = 0; known[i]; ++i) {
        int diagonal = row[0];
        row[0] = i + 1;
        for (int j = 1; j <= n; ++j) {
            const int replace = diagonal + (known[i] != lower(given[j - 1]));
            const int other = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            diagonal = row[j];
            row[j] = replace < other ? replace : other;
        }
    }
    return row[n];
}

sut_status sut_surgery_parse_method(sut_context *ctx, const char *name, sut_surgery_method *method_out)
{
    if (!name || !method_out)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "surgery: the %s is NULL", name ? "place for the method" : "name");
    if (sut_surgery_method_from_name(name, method_out) == SUT_OK)
        return SUT_OK;
    const char *nearest = sut_surgery_table[0].name;
    for (int k = 1; k < SUT_SURGERY_COUNT; ++k)
        if (distance(sut_surgery_table[k].name, name) < distance(nearest, name))
            nearest = sut_surgery_table[k].name;
    SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "unknown surgery method \"%.63s\"; the nearest known name is \"%s\"",
             name, nearest);
}
