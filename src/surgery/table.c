/*
 * The list of methods, and names. Whatever lists methods is derived from this table; a test holds it against the enum.
 */
#include "surgery/surgery.h"

#include <string.h>

/* clang-format off */
const sut_surgery_row sut_surgery_table[SUT_SURGERY_COUNT] = {
    /* method, name, solve, degree, sum_like, keeps_weights, uses_preference, needs_losses_hint, source */
    {SUT_SURGERY_SUM, "sum", sut_surgery_sum, 1, true, true, false, false, ""},
    {SUT_SURGERY_MEAN, "mean", sut_surgery_mean, 1, false, true, false, false, ""},
    {SUT_SURGERY_FIXED, "fixed", sut_surgery_fixed, 1, true, true, true, false, ""},
    {SUT_SURGERY_CONFIG, "config", sut_surgery_config_solve, 1, true, false, true, false,
     "Liu, Chu, Thuerey 2024, arXiv 2408.11104"},
    {SUT_SURGERY_PCGRAD, "pcgrad", sut_surgery_pcgrad, 1, true, false, false, false,
     "Yu et al. 2020, arXiv 2001.06782"},
    {SUT_SURGERY_CAGRAD, "cagrad", sut_surgery_cagrad, 1, false, false, false, false,
     "Liu, Liu, Jin, Stone, Liu 2021, arXiv 2110.14048"},
    {SUT_SURGERY_IMTLG, "imtlg", sut_surgery_imtlg, 1, false, false, false, false,
     "Liu et al. 2021, ICLR, OpenReview IMPnRXEWpvr"},
    {SUT_SURGERY_ALIGNED_MTL, "aligned_mtl", sut_surgery_aligned_mtl, 1, false, false, true, false,
     "Senushkin et al. 2023, arXiv 2305.19000"},
    {SUT_SURGERY_UPGRAD, "upgrad", sut_surgery_upgrad, 1, false, false, true, false,
     "Quinton, Rey 2024, arXiv 2406.16232"},
    {SUT_SURGERY_DUALPROJ, "dualproj", sut_surgery_dualproj, 1, false, false, true, false,
     "Lopez-Paz, Ranzato 2017, arXiv 1706.08840"},
    {SUT_SURGERY_MGDA, "mgda", sut_surgery_mgda, 1, false, false, false, true,
     "Desideri 2012; Sener, Koltun 2018, arXiv 1810.04650"},
    {SUT_SURGERY_NASH, "nash", sut_surgery_nash, 0, false, false, false, false,
     "Navon et al. 2022, arXiv 2202.01017"},
    {SUT_SURGERY_SDMGRAD, "sdmgrad", sut_surgery_sdmgrad, 1, false, false, false, false,
     "Xiao, Ban, Ji 2023, arXiv 2305.18409"},
};
/* clang-format on */

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
