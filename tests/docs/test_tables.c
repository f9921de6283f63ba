/*
 * The tables in the documents are held against the library: every method is there once, in the library's order, with the
 * papers that its header names; every hyper-parameter has the default and the range that the library enforces. A failure
 * prints the row that belongs there.
 */
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "suture/suture.h"

static char *read_file(const char *path)
{
    char full[1024];
    snprintf(full, sizeof full, "%s/%s", SUT_SOURCE_DIR, path);
    FILE *file = fopen(full, "rb");
    if (!file)
        fail_msg("%s cannot be opened", full);
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    rewind(file);
    char *text = test_malloc((size_t)size + 1);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    text[size] = '\0';
    fclose(file);
    return text;
}

/* The part of `text` between a marker and the next comment, ended in place; the marker must be there once. */
static char *section(char *text, const char *marker)
{
    char *begin = strstr(text, marker);
    if (!begin)
        fail_msg("the marker %s is missing", marker);
    begin += strlen(marker);
    assert_null(strstr(begin, marker));
    char *end = strstr(begin, "<!--");
    if (end)
        *end = '\0';
    return begin;
}

/* Copies the next table row that begins with a name in backquotes; false after the last. */
static bool next_row(const char **cursor, char *row, size_t size)
{
    const char *begin = strstr(*cursor, "\n| `");
    if (!begin)
        return false;
    begin++;
    const size_t length = strcspn(begin, "\n");
    assert_true(length < size);
    memcpy(row, begin, length);
    row[length] = '\0';
    *cursor = begin + length;
    return true;
}

static void first_name(const char *row, char *name, size_t size)
{
    const char *begin = strchr(row, '`') + 1, *end = strchr(begin, '`');
    assert_non_null(end);
    snprintf(name, size, "%.*s", (int)(end - begin), begin);
}

/* Every arXiv number in the comment of the enumerator must be linked in the row. */
static void check_papers(const char *header, const char *prefix, const char *name, const char *row)
{
    char enumerator[128];
    int length = snprintf(enumerator, sizeof enumerator, "%s%s", prefix, name);
    for (int i = 0; i < length; i++)
        enumerator[i] = (char)toupper((unsigned char)enumerator[i]);
    const char *at = header;
    while ((at = strstr(at, enumerator)) && (isalnum((unsigned char)at[length]) || at[length] == '_'))
        at += length;
    if (!at)
        fail_msg("%s is not in the header", enumerator);
    const char *end = strchr(at, '\n');
    for (const char *paper = at; (paper = strstr(paper, "arXiv ")) && paper < end; paper += 6) {
        char link[64];
        const int length_of_number = (int)strspn(paper + 6, "0123456789.");
        snprintf(link, sizeof link, "https://arxiv.org/abs/%.*s)", length_of_number, paper + 6);
        if (!strstr(row, link))
            fail_msg("the row of %s lacks %s", name, link);
    }
}

static void check_methods(const char *marker, const char *header_path, const char *prefix, int count,
                          const char *(*name_of)(int))
{
    char *readme = read_file("README.md"), *header = read_file(header_path);
    const char *cursor = section(readme, marker);
    char row[4096], name[64];
    for (int i = 0; i < count; i++) {
        if (!next_row(&cursor, row, sizeof row))
            fail_msg("README.md ends its table before %s", name_of(i));
        first_name(row, name, sizeof name);
        assert_string_equal(name, name_of(i));
        check_papers(header, prefix, name, row);
    }
    assert_false(next_row(&cursor, row, sizeof row));
    test_free(header);
    test_free(readme);
}

static const char *surgery_name(int i)
{
    return sut_surgery_method_name((sut_surgery_method)i);
}

static const char *optimizer_name(int i)
{
    return sut_optimizer_method_name((sut_optimizer_method)i);
}

static void test_readme_lists_every_surgery_method(void **state)
{
    (void)state;
    check_methods("<!-- methods: surgery -->", "include/suture/surgery.h", "sut_surgery_", SUT_SURGERY_COUNT,
                  surgery_name);
}

static void test_readme_lists_every_optimizer(void **state)
{
    (void)state;
    check_methods("<!-- methods: optimizer -->", "include/suture/optimizer.h", "sut_optimizer_", SUT_OPTIMIZER_COUNT,
                  optimizer_name);
}

/* Each page has one heading per method, in the library's order. */
static void check_headings(const char *path, int count, const char *(*name_of)(int))
{
    char *page = read_file(path);
    const char *cursor = page;
    for (int i = 0; i < count; i++) {
        char heading[128];
        snprintf(heading, sizeof heading, "\n### `%s`", name_of(i));
        const char *at = strstr(cursor, heading);
        if (!at)
            fail_msg("%s has no heading ### `%s` in its place", path, name_of(i));
        cursor = at + 1;
    }
    test_free(page);
}

static void test_pages_have_a_section_for_every_method(void **state)
{
    (void)state;
    check_headings("docs/surgery.md", SUT_SURGERY_COUNT, surgery_name);
    check_headings("docs/optimizers.md", SUT_OPTIMIZER_COUNT, optimizer_name);
}

static void test_hyper_parameters_are_as_documented(void **state)
{
    (void)state;
    char *page = read_file("docs/optimizers.md");
    char row[4096];
    const char *cursor = section(page, "<!-- hyper-parameters -->");
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; method++) {
        sut_parameter_info info;
        for (int i = 0; sut_optimizer_parameter((sut_optimizer_method)method, i, &info) == SUT_OK; i++) {
            char expected[256], range[96];
            if (info.is_flag)
                snprintf(range, sizeof range, "0 or 1");
            else
                snprintf(range, sizeof range, "%s%g, %g%s", info.minimum_open ? "(" : "[", info.minimum, info.maximum,
                         info.maximum_open || isinf(info.maximum) ? ")" : "]");
            snprintf(expected, sizeof expected, "| `%s` | `%s` | %g | %s |", optimizer_name(method), info.name,
                     info.default_value, range);
            if (!next_row(&cursor, row, sizeof row))
                fail_msg("the table of hyper-parameters ends before\n%s", expected);
            assert_string_equal(row, expected);
        }
    }
    assert_false(next_row(&cursor, row, sizeof row));
    test_free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_readme_lists_every_surgery_method),
        cmocka_unit_test(test_readme_lists_every_optimizer),
        cmocka_unit_test(test_pages_have_a_section_for_every_method),
        cmocka_unit_test(test_hyper_parameters_are_as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
