/*
 * The safetensors container: what it must read, what it must refuse and under which class, and that the writer's bytes are
 * fixed. Files are written out as text so that a case can be read: header, then data.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "quant/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct file {
    unsigned char bytes[4096];
    size_t size;
} file;

static sut_context *ctx;

static void put_length(unsigned char *bytes, uint64_t length)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(length >> (8 * i));
}

/* Header of `n` bytes of text and `data_size` bytes of data 0, 1, 2, ... */
static file make_n(const char *header, size_t n, size_t data_size)
{
    file f;
    assert_true(8 + n + data_size <= sizeof f.bytes);
    put_length(f.bytes, n);
    memcpy(f.bytes + 8, header, n);
    for (size_t i = 0; i < data_size; i++)
        f.bytes[8 + n + i] = (unsigned char)i;
    f.size = 8 + n + data_size;
    return f;
}

static file make(const char *header, size_t data_size)
{
    return make_n(header, strlen(header), data_size);
}

/* The bytes go into a block of their own size, so that the address checker sees a read behind the end. */
static sut_status open_copy(const unsigned char *bytes, size_t size, void **copy, sut_safetensors **container)
{
    *copy = malloc(size ? size : 1);
    assert_non_null(*copy);
    memcpy(*copy, bytes, size);
    return sut_safetensors_open(ctx, "x.safetensors", *copy, size, container);
}

static void refused_bytes(const unsigned char *bytes, size_t size, const char *class)
{
    void *copy;
    sut_safetensors *container = (sut_safetensors *)&ctx;
    char word[40];
    (void)snprintf(word, sizeof word, "(%s)", class);
    if (open_copy(bytes, size, &copy, &container) != SUT_ERROR_CORRUPT)
        fail_msg("accepted, %s was expected: %.*s", word, (int)size - 8, (const char *)bytes + 8);
    assert_null(container);
    if (!strstr(sut_context_last_error(ctx), word))
        fail_msg("\"%s\" is not of class %s", sut_context_last_error(ctx), word);
    assert_non_null(strstr(sut_context_last_error(ctx), "x.safetensors"));
    free(copy);
}

static void refused(const char *header, size_t data_size, const char *class)
{
    const file f = make(header, data_size);
    refused_bytes(f.bytes, f.size, class);
}

static void accepted(const char *header, size_t data_size, int64_t count)
{
    const file f = make(header, data_size);
    void *copy;
    sut_safetensors *container;
    if (open_copy(f.bytes, f.size, &copy, &container) != SUT_OK)
        fail_msg("%s: %s", header, sut_context_last_error(ctx));
    assert_int_equal(sut_safetensors_count(container), count);
    sut_safetensors_close(container);
    free(copy);
}

#define A(shape, begin, end) "\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
#define B(shape, begin, end) "\"b\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void reads_entries_in_any_order(void **state)
{
    (void)state;
    const char *header = "{\"b\":{\"shape\":[3],\"data_offsets\":[4,16],\"dtype\":\"F32\"},"
                         "\"\\u0061\\/x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                         "\"e\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[16,16]},"
                         "\"__metadata__\":{\"k\":\"v\",\"nul\":\"x\\u0000y\"}}     ";
    const file f = make(header, 16);
    sut_safetensors *c;
    assert_int_equal(sut_safetensors_open(ctx, "x", f.bytes, f.size, &c), SUT_OK);
    assert_int_equal(sut_safetensors_count(c), 3);
    const char *names[] = {"a/x", "b", "e"};
    for (int k = 0; k < 3; k++) {
        const sut_safetensors_entry *entry = sut_safetensors_entry_at(c, k);
        assert_string_equal(entry->name, names[k]);
        assert_ptr_equal(sut_safetensors_find(c, names[k]), entry);
    }
    const sut_safetensors_entry *b = sut_safetensors_find(c, "b");
    assert_int_equal(b->dtype, SUT_FILE_F32);
    assert_int_equal(b->n_dims, 1);
    assert_int_equal(b->shape[0], 3);
    assert_int_equal(b->size, 12);
    assert_int_equal(b->data[0], 4);
    const sut_safetensors_entry *e = sut_safetensors_find(c, "e");
    assert_int_equal(e->n_dims, 2);
    assert_int_equal(e->shape[1], 7);
    assert_int_equal(e->size, 0);
    assert_int_equal(sut_safetensors_find(c, "a/x")->n_dims, 0);
    assert_null(sut_safetensors_find(c, "__metadata__"));
    assert_null(sut_safetensors_find(c, "zz"));
    assert_null(sut_safetensors_entry_at(c, 3));
    assert_null(sut_safetensors_entry_at(c, -1));
    assert_string_equal(sut_safetensors_metadata(c, "k"), "v");
    assert_null(sut_safetensors_metadata(c, "nul"));
    assert_null(sut_safetensors_metadata(c, "b"));
    assert_true(sut_safetensors_has_metadata(c, "nu"));
    assert_false(sut_safetensors_has_metadata(c, "v"));
    sut_safetensors_close(c);
}

static void decodes_escapes(void **state)
{
    (void)state;
    const file f =
        make("{\"__metadata__\":{\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u007f\"}}", 0);
    sut_safetensors *c;
    assert_int_equal(sut_safetensors_open(ctx, "x", f.bytes, f.size, &c), SUT_OK);
    assert_string_equal(sut_safetensors_metadata(c, "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\\/\b\f\n\r\t\x7f");
    sut_safetensors_close(c);
    const char *bad[] = {"\\x", "\\u12", "\\u12g4", "\\", "\\U0041", "\\u", "a\tb", "a\nb"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        char header[80];
        (void)snprintf(header, sizeof header, "{\"__metadata__\":{\"%s\":\"\"}}", bad[k]);
        refused(header, 0, "json");
        (void)snprintf(header, sizeof header, "{\"__metadata__\":{\"k\":\"%s\"}}", bad[k]);
        refused(header, 0, "json");
    }
}

static void accepts_what_is_valid(void **state)
{
    (void)state;
    accepted("{}", 0, 0);
    accepted("{}      ", 0, 0);
    accepted("{\"__metadata__\":{}}", 0, 0);
    accepted("{" A("[1]", "0", "4") "," B("[0]", "0", "0") "}", 4, 2); /* empty tensor at the front */
    accepted("{" B("[0]", "4", "4") "," A("[1]", "0", "4") "}", 4, 2); /* at the end */
    accepted("{" A("[0,9223372036854775807]", "0", "0") "}", 0, 1);    /* 0 first: the product stays 0 */
    accepted("{ \"a\" : { \"dtype\" : \"F32\" , \"shape\" : [ 1 ] , \"data_offsets\" : [ 0 , 4 ] } }", 4, 1);
    for (int k = 0; k < SUT_FILE_DTYPE_COUNT; k++) {
        char header[200];
        const size_t size = 3 * sut_file_dtype_size((sut_file_dtype)k);
        (void)snprintf(header, sizeof header,
                       "{\"\xc3\xa9\":{\"dtype\":\"%s\",\"shape\":[1,3],\"data_offsets\":[0,%zu]}}",
                       sut_file_dtype_name((sut_file_dtype)k), size);
        accepted(header, size, 1);
    }
}

static void refuses_bad_lengths(void **state)
{
    (void)state;
    const file good = make("{" A("[2]", "0", "8") "}", 8);
    for (size_t n = 0; n < 8; n++)
        refused_bytes(good.bytes, n, "truncated");
    file f = good;
    const size_t lengths[] = {good.size - 7,     UINT64_C(100000000), UINT64_C(100000001), UINT64_C(1) << 62,
                              UINT64_C(1) << 63, UINT64_MAX,          UINT64_MAX - 7};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        put_length(f.bytes, lengths[k]);
        refused_bytes(f.bytes, f.size, "header_length");
    }
    for (uint64_t length = 0; length < 8; length++) {
        put_length(f.bytes, length);
        refused_bytes(f.bytes, f.size, "json");
    }
    /* Every other length and every cut is refused, too, under one class or another. */
    for (uint64_t length = 8; length < good.size; length++) {
        put_length(f.bytes, length);
        sut_safetensors *c;
        if (length != good.size - 16)
            assert_int_equal(sut_safetensors_open(ctx, "x", f.bytes, f.size, &c), SUT_ERROR_CORRUPT);
    }
    for (size_t n = 8; n < good.size; n++)
        refused_bytes(good.bytes, n, n < good.size - 8 ? "header_length" : "truncated");
}

static void refuses_foreign_files(void **state)
{
    (void)state;
    refused_bytes((const unsigned char *)"", 0, "truncated");
    refused_bytes((const unsigned char *)"PK\3\4\x14\0\0\0\0\0!!!!", 14, "header_length");
    refused_bytes((const unsigned char *)"step,loss\n0,1\n", 14, "header_length");
    refused_bytes((const unsigned char *)"\x89PNG\r\n\x1a\n", 8, "header_length");
}

static void refuses_bad_json(void **state)
{
    (void)state;
    const char *bad[] = {
        " {}",
        "\n{}",
        "[]",
        "{}\n",
        "{}\t",
        "{},",
        "{}{}",
        "{} {}",
        "{",
        "}",
        "{]",
        "{\"a\"}",
        "{\"a\":}",
        "{,}",
        "{\"__metadata__\":{},}",
        "{/*x*/}",
        "{\"__metadata__\":{}//\n}",
        "{'a':1}",
        "{a:1}",
        "  ",
        "{\"a\":1}",
        "{\"a\":\"F32\"}",
        "{\"a\":null}",
        "{\"a\":{}}",
        "{\"a\":[]}",
        "{\"a\":{\"dtype\":NaN}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[01],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[+1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[true],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":4}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,null]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":0}}",
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        refused(bad[k], 4, "json");
    char deep[2 * 1000 + 8];
    for (int levels = 1; levels <= 1000; levels += 37) {
        const int n = snprintf(deep, sizeof deep, "{\"a\":");
        memset(deep + n, '[', (size_t)levels);
        memset(deep + n + levels, ']', (size_t)levels);
        memcpy(deep + n + 2 * levels, "}", 2);
        refused(deep, 4, "json");
    }
}

static void refuses_bad_text(void **state)
{
    (void)state;
    refused("{\"a\xff\xfe\":{}}", 0, "utf8");
    refused("{\"\xc0\xaf\":{}}", 0, "utf8");         /* overlong */
    refused("{\"\xed\xa0\x80\":{}}", 0, "utf8");     /* surrogate */
    refused("{\"\xf4\x90\x80\x80\":{}}", 0, "utf8"); /* beyond U+10FFFF */
    refused("{\"\\ud800\":{}}", 0, "utf8");          /* lone surrogate escapes */
    refused("{\"\\udc00x\":{}}", 0, "utf8");
    refused("{\"\\ud83d\\u0041\":{}}", 0, "utf8");
    refused("{\"\\ud83d\\ue000\":{}}", 0, "utf8");
    refused("{\"a\\u0000b\":{}}", 0, "name");
    refused("{" A("[1]", "0", "4") "," A("[1]", "0", "4") "}", 4, "duplicate");
    refused("{" A("[1]", "0", "4") ",\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
            "duplicate");
    refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "duplicate");
    refused("{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"}}", 0, "duplicate");
    refused("{\"__metadata__\":{\"step\":3}}", 0, "metadata");
    refused("{\"__metadata__\":{\"step\":null}}", 0, "metadata");
    refused("{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "metadata");
    refused("{\"__metadata__\":[]}", 0, "metadata");
    refused("{\"__metadata__\":\"x\"}", 0, "metadata");
}

static void refuses_bad_entries(void **state)
{
    (void)state;
    refused("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype");
    refused("{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype");
    refused("{\"a\":{\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype");
    refused("{\"a\":{\"dtype\":\"F32\\u0000\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype");
    refused("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "dtype");
    refused("{" A("[-1]", "0", "4") "}", 4, "json_number");
    refused("{" A("[-0]", "0", "0") "}", 0, "json_number");
    refused("{" A("[1]", "-4", "0") "}", 4, "json_number");
    refused("{" A("[1.0]", "0", "4") "}", 4, "json_number");
    refused("{" A("[1e0]", "0", "4") "}", 4, "json_number");
    refused("{" A("[1]", "0", "4e0") "}", 4, "json_number");
    refused("{" A("[18446744073709551617]", "0", "4") "}", 4, "json_number");
    refused("{" A("[1]", "0", "99999999999999999999999") "}", 4, "json_number");
    refused("{" A("[4294967296,4294967296,4]", "0", "4") "}", 4, "overflow");
    refused("{" A("[4294967296,4294967296,0]", "0", "0") "}", 0, "overflow"); /* a later 0 is no excuse */
    refused("{" A("[4611686018427387904]", "0", "0") "}", 0, "overflow");     /* only the bytes overflow */
    refused("{" A("[1]", "4", "0") "}", 4, "offsets");
    refused("{" A("[1]", "9223372036854775807", "0") "}", 4, "offsets");
    refused("{" A("[1]", "4", "8") "}", 8, "offsets");                          /* does not start at 0 */
    refused("{" A("[1]", "0", "4") "," B("[1]", "8", "12") "}", 12, "offsets"); /* hole */
    refused("{" A("[2]", "0", "8") "," B("[2]", "4", "12") "}", 12, "offsets"); /* overlap */
    refused("{" A("[1]", "0", "4") "," B("[1]", "0", "4") "}", 4, "offsets");
    refused("{" A("[2]", "0", "8") "," B("[0]", "4", "4") "}", 8, "offsets"); /* empty, inside another */
    refused("{" A("[2]", "0", "4") "}", 4, "size");
    refused("{" A("[1]", "0", "8") "}", 8, "size");
    refused("{" A("[]", "0", "0") "}", 0, "size");
    refused("{" A("[2]", "0", "8") "}", 7, "truncated");
    refused("{" A("[2]", "0", "8") "}", 0, "truncated");
    refused("{" A("[2]", "0", "8") "}", 9, "trailing");
    refused("{}", 1, "trailing");
    refused("{" A("[0]", "1", "1") "}", 1, "offsets");
}

/* Each single-byte change of a header is refused or gives tensors inside the file. */
static void survives_every_byte_change(void **state)
{
    (void)state;
    const file good = make("{\"__metadata__\":{\"k\":\"v\"}," A("[2]", "0", "8") "," B("[1,1]", "8", "12") "}  ", 12);
    unsigned char *copy = malloc(good.size);
    assert_non_null(copy);
    int opened = 0;
    for (size_t i = 0; i < good.size - 12; i++) {
        for (int delta = 1; delta < 256; delta++) {
            memcpy(copy, good.bytes, good.size);
            copy[i] = (unsigned char)(copy[i] + delta);
            sut_safetensors *c;
            const sut_status status = sut_safetensors_open(ctx, "x", copy, good.size, &c);
            assert_true(status == SUT_OK || status == SUT_ERROR_CORRUPT);
            if (status != SUT_OK)
                continue;
            opened++;
            size_t total = 0;
            for (int64_t k = 0; k < sut_safetensors_count(c); k++) {
                const sut_safetensors_entry *entry = sut_safetensors_entry_at(c, k);
                assert_true(entry->data >= copy && entry->data + entry->size <= copy + good.size);
                total += entry->size;
            }
            assert_int_equal(total, 12);
            sut_safetensors_close(c);
        }
    }
    free(copy);
    assert_true(opened > 0); /* changed names and texts are fine */
}

static void writer_gives_fixed_bytes(void **state)
{
    (void)state;
    const int64_t shape[] = {2, 1}, empty[] = {0};
    const float f[] = {1, 2};
    const double d[] = {3, 4};
    const uint16_t h[] = {5, 6};
    const sut_safetensors_item items[] = {
        {.name = "z", .dtype = SUT_FILE_F32, .n_dims = 2, .shape = shape, .data = f},
        {.name = "h", .dtype = SUT_FILE_BF16, .n_dims = 1, .shape = shape, .data = h},
        {.name = "\"q\\\xc3\xa9\n", .dtype = SUT_FILE_F32, .n_dims = 1, .shape = empty, .data = NULL},
        {.name = "d", .dtype = SUT_FILE_F64, .n_dims = 1, .shape = shape, .data = d},
        {.name = "s", .dtype = SUT_FILE_F32, .n_dims = 0, .shape = NULL, .data = f},
    };
    const sut_safetensors_text texts[] = {{"zz", "1"}, {"a", "x/\ty"}};
    const char *expected = "{\"__metadata__\":{\"zz\":\"1\",\"a\":\"x/\\ty\"},"
                           "\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
                           "\"\\\"q\\\\\xc3\xa9\\n\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[16,16]},"
                           "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
                           "\"z\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[20,28]},"
                           "\"h\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[28,32]}}";
    for (int rotation = 0; rotation < 5; rotation++) { /* the order of the input does not matter */
        sut_safetensors_item mixed[5];
        for (int k = 0; k < 5; k++)
            mixed[k] = items[(k + rotation) % 5];
        unsigned char *header;
        size_t size;
        uint64_t data_size;
        assert_int_equal(sut_safetensors_header(ctx, mixed, 5, texts, 2, &header, &size, &data_size), SUT_OK);
        assert_int_equal(data_size, 32);
        assert_int_equal(size % 8, 0);
        assert_true(size - 8 >= strlen(expected) && size - 8 < strlen(expected) + 8);
        assert_int_equal(header[0] | header[1] << 8, size - 8);
        assert_memory_equal(header + 8, expected, strlen(expected));
        for (size_t i = 8 + strlen(expected); i < size; i++)
            assert_int_equal(header[i], ' ');

        unsigned char *bytes = malloc(size + 32);
        assert_non_null(bytes);
        memcpy(bytes, header, size);
        size_t at = size;
        for (int k = 0; k < 5; k++) {
            assert_int_equal((at - size) % sut_file_dtype_size(mixed[k].dtype), 0); /* aligned */
            if (mixed[k].size)
                memcpy(bytes + at, mixed[k].data, mixed[k].size);
            at += mixed[k].size;
        }
        sut_safetensors *c;
        assert_int_equal(sut_safetensors_open(ctx, "x", bytes, at, &c), SUT_OK);
        assert_int_equal(sut_safetensors_count(c), 5);
        assert_memory_equal(sut_safetensors_find(c, "z")->data, f, 8);
        assert_memory_equal(sut_safetensors_find(c, "d")->data, d, 16);
        assert_memory_equal(sut_safetensors_find(c, "h")->data, h, 4);
        assert_string_equal(sut_safetensors_metadata(c, "a"), "x/\ty");
        sut_safetensors_close(c);
        free(bytes);
        sut_free(ctx, header);
    }
}

static void not_written(sut_safetensors_item *items, int n, const sut_safetensors_text *texts, int n_texts,
                        const char *word)
{
    unsigned char *header = NULL;
    size_t size;
    uint64_t data_size;
    assert_int_equal(sut_safetensors_header(ctx, items, n, texts, n_texts, &header, &size, &data_size),
                     SUT_ERROR_INVALID_ARGUMENT);
    assert_null(header);
    if (!strstr(sut_context_last_error(ctx), word))
        fail_msg("\"%s\" does not name %s", sut_context_last_error(ctx), word);
}

static void writer_refuses(void **state)
{
    (void)state;
    const int64_t shape[] = {2}, negative[] = {-1}, huge[] = {INT64_MAX, 1};
    sut_safetensors_item items[2] = {
        {.name = "a", .dtype = SUT_FILE_F32, .n_dims = 1, .shape = shape, .data = shape},
        {.name = "a", .dtype = SUT_FILE_F32, .n_dims = 1, .shape = shape, .data = shape},
    };
    not_written(items, 2, NULL, 0, "\"a\" occurs twice");
    items[1].name = "";
    not_written(items, 2, NULL, 0, "cannot be called \"\"");
    items[0].name = "__metadata__", items[1].name = "b";
    not_written(items, 2, NULL, 0, "__metadata__");
    const char *const not_utf8[] = {"\xff",
                                    "\x80",
                                    "a\xc1\xbf",
                                    "\xc3",
                                    "\xc3(",
                                    "\xe0\x9f\xbf",
                                    "\xe2\x82",
                                    "\xed\xa0\x80",
                                    "\xf0\x8f\xbf\xbf",
                                    "\xf4\x90\x80\x80",
                                    "\xf5\x80\x80\x80",
                                    "\xe2\x82\xac\xe2("};
    for (size_t k = 0; k < sizeof not_utf8 / sizeof *not_utf8; k++) {
        items[0].name = not_utf8[k];
        not_written(items, 1, NULL, 0, "UTF-8");
    }
    items[0].name = "a", items[0].shape = negative;
    not_written(items, 1, NULL, 0, "shape");
    items[0].shape = huge, items[0].dtype = SUT_FILE_U8;
    items[1].dtype = SUT_FILE_U8;
    not_written(items, 2, NULL, 0, "2^63");
    const sut_safetensors_text twice[] = {{"k", "1"}, {"k", "2"}}, latin[] = {{"k", "\xe9"}},
                               latin_key[] = {{"\xe9", "k"}};
    not_written(items, 0, twice, 2, "\"k\" occurs twice");
    not_written(items, 0, latin, 1, "UTF-8");
    not_written(items, 0, latin_key, 1, "UTF-8");
}

/* The limits of each length of UTF-8 are written, and read again. */
static void writer_takes_all_of_utf8(void **state)
{
    (void)state;
    const char *name = "\x01\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80"
                       "\xf4\x8f\xbf\xbf";
    sut_safetensors_item item = {.name = name, .dtype = SUT_FILE_U8, .n_dims = 1, .shape = (int64_t[]){0}};
    unsigned char *header;
    size_t size;
    uint64_t data_size;
    sut_safetensors *c;
    assert_int_equal(sut_safetensors_header(ctx, &item, 1, NULL, 0, &header, &size, &data_size), SUT_OK);
    assert_int_equal(sut_safetensors_open(ctx, "x", header, size, &c), SUT_OK);
    assert_non_null(sut_safetensors_find(c, name));
    sut_safetensors_close(c);
    sut_free(ctx, header);
}

static int open_context(void **state)
{
    (void)state;
    return sut_context_create(&ctx, NULL) == SUT_OK ? 0 : -1;
}

static int close_context(void **state)
{
    (void)state;
    sut_context_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_entries_in_any_order),
        cmocka_unit_test(accepts_what_is_valid),
        cmocka_unit_test(decodes_escapes),
        cmocka_unit_test(refuses_bad_lengths),
        cmocka_unit_test(refuses_foreign_files),
        cmocka_unit_test(refuses_bad_json),
        cmocka_unit_test(refuses_bad_text),
        cmocka_unit_test(refuses_bad_entries),
        cmocka_unit_test(survives_every_byte_change),
        cmocka_unit_test(writer_gives_fixed_bytes),
        cmocka_unit_test(writer_refuses),
        cmocka_unit_test(writer_takes_all_of_utf8),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
