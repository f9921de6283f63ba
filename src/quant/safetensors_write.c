/*
 * Writer of safetensors headers, see safetensors.h. The text is made twice by the same code: once to count its bytes, once
 * into memory of that size.
 */
#include "quant/safetensors.h"

#include "core/utf8.h"
#include "quant/safetensors_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    char *out; /* NULL: only count */
    size_t size;
} writer;

static void put_bytes(writer *w, const char *bytes, size_t n)
{
    if (w->out)
        memcpy(w->out + w->size, bytes, n);
    w->size += n;
}

static void put(writer *w, const char *text)
{
    put_bytes(w, text, strlen(text));
}

static void put_integer(writer *w, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    put(w, text);
}

/* What cannot stand in a string as it is. */
static const char special[] = "\"\\\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
                              "\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f";

static void put_string(writer *w, const char *string)
{
    static const char short_from[] = "\"\\\b\f\n\r\t", short_to[] = "\"\\bfnrt";
    put(w, "\"");
    for (const char *p = string; *p; p++) {
        const size_t n = strcspn(p, special);
        put_bytes(w, p, n);
        p += n;
        if (*p == '\0')
            break;
        const char *simple = strchr(short_from, *p);
        char text[8];
        if (simple)
            (void)snprintf(text, sizeof text, "\\%c", short_to[simple - short_from]);
        else
            (void)snprintf(text, sizeof text, "\\u%04x", (unsigned)(unsigned char)*p & 0xffu);
        put(w, text);
    }
    put(w, "\"");
}

static void put_header(writer *w, const sut_safetensors_item *items, int64_t n_items, const sut_safetensors_text *texts,
                       int64_t n_texts)
{
    put(w, "{");
    if (n_texts > 0) {
        put(w, "\"__metadata__\":{");
        for (int64_t k = 0; k < n_texts; k++) {
            put(w, k ? "," : "");
            put_string(w, texts[k].key);
            put(w, ":");
            put_string(w, texts[k].value);
        }
        put(w, "}");
    }
    uint64_t begin = 0;
    for (int64_t k = 0; k < n_items; k++) {
        put(w, k || n_texts > 0 ? "," : "");
        put_string(w, items[k].name);
        put(w, ":{\"dtype\":\"");
        put(w, sut_file_dtype_name(items[k].dtype));
        put(w, "\",\"shape\":[");
        for (int d = 0; d < items[k].n_dims; d++) {
            put(w, d ? "," : "");
            put_integer(w, (uint64_t)items[k].shape[d]);
        }
        put(w, "],\"data_offsets\":[");
        put_integer(w, begin);
        put(w, ",");
        begin += items[k].size;
        put_integer(w, begin);
        put(w, "]}");
    }
    put(w, "}");
}

/* --- checks --------------------------------------------------------------------------------------------------------- */

static sut_status check_utf8(sut_context *ctx, const char *what, const char *text)
{
    if (!sut_is_utf8(text))
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "%s \"%.200s\" is not valid UTF-8", what, text);
    return SUT_OK;
}

/* Names must be unique. They are compared in a sorted list, so that many tensors take no quadratic time. */
static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static sut_status check_unique(sut_context *ctx, const char **names, int64_t n)
{
    qsort(names, (size_t)n, sizeof *names, compare_strings);
    for (int64_t k = 1; k < n; k++)
        if (strcmp(names[k - 1], names[k]) == 0)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "the name \"%.200s\" occurs twice in the file to be written",
                     names[k]);
    return SUT_OK;
}

static sut_status check_names(sut_context *ctx, const sut_safetensors_item *items, int64_t n_items,
                              const sut_safetensors_text *texts, int64_t n_texts)
{
    const int64_t larger = n_items > n_texts ? n_items : n_texts;
    const char **names = sut_alloc(ctx, (size_t)larger + 1, sizeof *names);
    if (names == NULL)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for the names in the file to be written");
    for (int64_t k = 0; k < n_items; k++)
        names[k] = items[k].name;
    sut_status status = check_unique(ctx, names, n_items);
    for (int64_t k = 0; k < n_texts; k++)
        names[k] = texts[k].key;
    if (status == SUT_OK)
        status = check_unique(ctx, names, n_texts);
    sut_free(ctx, names);
    return status;
}

static sut_status check_item(sut_context *ctx, sut_safetensors_item *item, uint64_t *begin)
{
    if (item->name[0] == '\0' || strcmp(item->name, "__metadata__") == 0)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "a tensor cannot be called \"%s\" in a file", item->name);
    SUT_TRY(check_utf8(ctx, "the name", item->name));
    uint64_t bytes = 1;
    bool impossible = false;
    for (int d = 0; d < item->n_dims; d++)
        impossible |= item->shape[d] < 0 || __builtin_mul_overflow(bytes, (uint64_t)item->shape[d], &bytes);
    impossible |= __builtin_mul_overflow(bytes, (uint64_t)sut_file_dtype_size(item->dtype), &bytes);
    if (impossible)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "shape of tensor \"%.200s\" is impossible", item->name);
    if (bytes > (uint64_t)INT64_MAX - *begin || bytes > SIZE_MAX)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "the file to be written would exceed 2^63 bytes at \"%.200s\"",
                 item->name);
    item->size = (size_t)bytes;
    *begin += bytes;
    return SUT_OK;
}

/* --- the header ----------------------------------------------------------------------------------------------------- */

/* Larger elements first, then by name. */
static int compare_items(const void *a, const void *b)
{
    const sut_safetensors_item *x = a, *y = b;
    const size_t x_size = sut_file_dtype_size(x->dtype), y_size = sut_file_dtype_size(y->dtype);
    return x_size != y_size ? (x_size > y_size ? -1 : 1) : strcmp(x->name, y->name);
}

sut_status sut_safetensors_header(sut_context *ctx, sut_safetensors_item *items, int64_t n_items,
                                  const sut_safetensors_text *texts, int64_t n_texts, unsigned char **header_out,
                                  size_t *header_size_out, uint64_t *data_size_out)
{
    SUT_TRY(check_names(ctx, items, n_items, texts, n_texts));
    for (int64_t k = 0; k < n_texts; k++) {
        SUT_TRY(check_utf8(ctx, "the key", texts[k].key));
        SUT_TRY(check_utf8(ctx, "the text", texts[k].value));
    }
    if (n_items > 0)
        qsort(items, (size_t)n_items, sizeof *items, compare_items);
    uint64_t data_size = 0;
    for (int64_t k = 0; k < n_items; k++)
        SUT_TRY(check_item(ctx, &items[k], &data_size));

    writer w = {NULL, 0};
    put_header(&w, items, n_items, texts, n_texts);
    const size_t length = w.size, padded = (length + 7) / 8 * 8;
    if (padded > SUT_SAFETENSORS_MAX_HEADER)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "the header would take %zu bytes, the limit is %u", padded,
                 SUT_SAFETENSORS_MAX_HEADER);
    unsigned char *header = sut_alloc(ctx, 8 + padded, 1);
    if (header == NULL)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for a header of %zu bytes", padded);
    for (int i = 0; i < 8; i++)
        header[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    w = (writer){(char *)header + 8, 0};
    put_header(&w, items, n_items, texts, n_texts);
    memset(header + 8 + length, ' ', padded - length);
    *header_out = header;
    *header_size_out = 8 + padded;
    *data_size_out = data_size;
    return SUT_OK;
}
