/*
 * Parser of safetensors headers, see safetensors_header.h. JSON: RFC 8259; UTF-8: RFC 3629.
 */
#include "quant/safetensors_header.h"

#include "core/utf8.h"

#include <string.h>

typedef struct reader {
    sut_header *h;
    const unsigned char *begin, *p, *end;
} reader;

#define REFUSE(r, class, ...) SUT_REFUSE_FILE((r)->h->ctx, (r)->h->what, (class), __VA_ARGS__)

static sut_status syntax(const reader *r, const char *expected)
{
    REFUSE(r, "json", "byte %zu of the header: %s was expected", (size_t)(r->p - r->begin), expected);
}

static void skip_space(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

/* The next character after white space; 0 at the end (a raw 0 is refused wherever it stands). */
static unsigned char peek(reader *r)
{
    skip_space(r);
    return r->p < r->end ? *r->p : 0;
}

static bool accept(reader *r, unsigned char c)
{
    if (peek(r) != c)
        return false;
    r->p++;
    return true;
}

static sut_status expect(reader *r, unsigned char c)
{
    const char expected[] = {'\'', (char)c, '\'', '\0'};
    return accept(r, c) ? SUT_OK : syntax(r, expected);
}

/* Room for one more element of `size` bytes. */
static sut_status reserve(sut_header *h, void *array_pointer, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return SUT_OK;
    void *old, *larger = NULL;
    memcpy(&old, array_pointer, sizeof old);
    const size_t wanted = *capacity ? 2 * *capacity : 16;
    larger = sut_alloc(h->ctx, wanted, size);
    if (larger == NULL)
        SUT_FAIL(h->ctx, SUT_ERROR_OUT_OF_MEMORY, "%s: no memory for the list of its tensors", h->what);
    if (n > 0)
        memcpy(larger, old, n * size);
    sut_free(h->ctx, old);
    memcpy(array_pointer, &larger, sizeof larger);
    *capacity = wanted;
    return SUT_OK;
}

/* --- strings -------------------------------------------------------------------------------------------------------- */

static char *put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (char)c;
        return out;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    *out++ = (char)(first[more] | c >> (6 * more));
    for (int k = more - 1; k >= 0; k--)
        *out++ = (char)(0x80 | (c >> (6 * k) & 0x3f));
    return out;
}

/* Four hexadecimal digits at p, or -1. */
static int32_t hexadecimal(const unsigned char *p, const unsigned char *end)
{
    if (end - p < 4)
        return -1;
    int32_t value = 0;
    for (int k = 0; k < 4; k++) {
        const unsigned char c = p[k];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* The escape behind a backslash. */
static sut_status read_escape(reader *r, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const unsigned char c = r->p < r->end ? *r->p : 0;
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) {
        *(*out)++ = to[simple - from];
        r->p++;
        return SUT_OK;
    }
    int32_t value = c == 'u' ? hexadecimal(r->p + 1, r->end) : -1;
    if (value < 0)
        return syntax(r, "an escape");
    r->p += 5;
    if (value >= 0xd800 && value < 0xe000) {
        const bool pair = value < 0xdc00 && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u';
        const int32_t low = pair ? hexadecimal(r->p + 2, r->end) : -1;
        if (low < 0xdc00 || low >= 0xe000)
            REFUSE(r, "utf8", "byte %zu of the header: an escape that is half of a surrogate pair",
                   (size_t)(r->p - r->begin));
        r->p += 6;
        value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
    }
    *out = put_utf8(*out, (uint32_t)value);
    return SUT_OK;
}

/* A string, decoded into h->strings, which has room for all: decoding never makes a text longer. */
static sut_status read_string(reader *r, const char **string_out, size_t *length_out)
{
    SUT_TRY(expect(r, '"'));
    char *const start = r->h->strings + r->h->strings_used, *out = start;
    for (;;) {
        const unsigned char c = r->p < r->end ? *r->p : 0;
        if (c < 0x20)
            return syntax(r, r->p < r->end ? "no control character in a string" : "the end of a string");
        if (c == '"')
            break;
        if (c == '\\') {
            r->p++;
            SUT_TRY(read_escape(r, &out));
            continue;
        }
        const size_t n = sut_utf8_sequence(r->p, r->end);
        if (n == 0)
            REFUSE(r, "utf8", "byte %zu of the header, 0x%02x, is not UTF-8", (size_t)(r->p - r->begin), c);
        memcpy(out, r->p, n);
        out += n;
        r->p += n;
    }
    r->p++;
    *out = '\0';
    *string_out = start;
    *length_out = (size_t)(out - start);
    r->h->strings_used += *length_out + 1;
    return SUT_OK;
}

static sut_status read_name(reader *r, const char **name_out)
{
    size_t length;
    SUT_TRY(read_string(r, name_out, &length));
    if (strlen(*name_out) != length)
        REFUSE(r, "name", "the name \"%.200s...\" holds a U+0000", *name_out);
    return expect(r, ':');
}

/* --- tensors -------------------------------------------------------------------------------------------------------- */

/* A plain non-negative integer below 2^63. */
static sut_status read_size(reader *r, const char *name, const char *member, int64_t *out)
{
    const unsigned char c = peek(r);
    if (c == '-')
        REFUSE(r, "json_number", "%s of tensor \"%.200s\" holds a number with a sign", member, name);
    if (c < '0' || c > '9')
        return syntax(r, "a number");
    int64_t value = 0;
    const unsigned char *const start = r->p;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *r->p - '0', &value))
            REFUSE(r, "json_number", "%s of tensor \"%.200s\" holds a number of 2^63 or more", member, name);
    if (c == '0' && r->p - start > 1)
        return syntax(r, "a number without leading zeros");
    if (r->p < r->end && (*r->p == '.' || *r->p == 'e' || *r->p == 'E'))
        REFUSE(r, "json_number", "%s of tensor \"%.200s\" holds a number with a fraction or an exponent", member, name);
    *out = value;
    return SUT_OK;
}

static sut_status read_dtype(reader *r, sut_header_entry *entry)
{
    const char *text;
    size_t length;
    SUT_TRY(read_string(r, &text, &length));
    for (int k = 0; k < SUT_FILE_DTYPE_COUNT; k++) {
        const char *known = sut_file_dtype_name((sut_file_dtype)k);
        if (strlen(known) == length && memcmp(known, text, length) == 0) {
            entry->dtype = (sut_file_dtype)k;
            return SUT_OK;
        }
    }
    REFUSE(r, "dtype", "tensor \"%.200s\" has the unknown dtype \"%.20s\"", entry->name, text);
}

static sut_status read_shape(reader *r, sut_header_entry *entry)
{
    sut_header *h = r->h;
    SUT_TRY(expect(r, '['));
    entry->first_dim = h->n_dims;
    if (!accept(r, ']')) {
        do {
            SUT_TRY(reserve(h, &h->dims, h->n_dims, &h->dims_capacity, sizeof *h->dims));
            SUT_TRY(read_size(r, entry->name, "shape", &h->dims[h->n_dims]));
            h->n_dims++;
        } while (accept(r, ','));
        SUT_TRY(expect(r, ']'));
    }
    entry->n_dims = (int64_t)(h->n_dims - entry->first_dim);
    return SUT_OK;
}

static sut_status read_offsets(reader *r, sut_header_entry *entry)
{
    SUT_TRY(expect(r, '['));
    SUT_TRY(read_size(r, entry->name, "data_offsets", &entry->begin));
    SUT_TRY(expect(r, ','));
    SUT_TRY(read_size(r, entry->name, "data_offsets", &entry->end));
    return expect(r, ']');
}

static sut_status read_tensor(reader *r, sut_header_entry *entry)
{
    static const char *const members[] = {"dtype", "shape", "data_offsets"};
    static sut_status (*const read[])(reader *, sut_header_entry *) = {read_dtype, read_shape, read_offsets};
    bool seen[3] = {false, false, false};
    SUT_TRY(expect(r, '{'));
    do {
        const char *member;
        int which = 0;
        SUT_TRY(read_name(r, &member));
        while (which < 3 && strcmp(member, members[which]) != 0)
            which++;
        if (which == 3)
            REFUSE(r, "json", "tensor \"%.200s\" has a member \"%.40s\"", entry->name, member);
        if (seen[which])
            REFUSE(r, "duplicate", "tensor \"%.200s\" has two members \"%s\"", entry->name, member);
        seen[which] = true;
        SUT_TRY(read[which](r, entry));
    } while (accept(r, ','));
    SUT_TRY(expect(r, '}'));
    for (int k = 0; k < 3; k++)
        if (!seen[k])
            REFUSE(r, "json", "tensor \"%.200s\" has no member \"%s\"", entry->name, members[k]);
    return SUT_OK;
}

/* --- the whole ------------------------------------------------------------------------------------------------------ */

static sut_status read_metadata(reader *r)
{
    sut_header *h = r->h;
    if (h->has_metadata)
        REFUSE(r, "duplicate", "%s occurs twice", "__metadata__");
    h->has_metadata = true;
    if (peek(r) != '{')
        REFUSE(r, "metadata", "%s is not an object", "__metadata__");
    r->p++;
    if (accept(r, '}'))
        return SUT_OK;
    do {
        sut_header_text text;
        SUT_TRY(read_name(r, &text.key));
        if (peek(r) != '"')
            REFUSE(r, "metadata", "__metadata__ \"%.100s\" is not a string", text.key);
        SUT_TRY(read_string(r, &text.value, &text.length));
        SUT_TRY(reserve(h, &h->texts, h->n_texts, &h->texts_capacity, sizeof *h->texts));
        h->texts[h->n_texts++] = text;
    } while (accept(r, ','));
    return expect(r, '}');
}

static sut_status read_members(reader *r)
{
    sut_header *h = r->h;
    do {
        const char *name;
        SUT_TRY(read_name(r, &name));
        if (strcmp(name, "__metadata__") == 0) {
            SUT_TRY(read_metadata(r));
            continue;
        }
        sut_header_entry entry = {.name = name};
        SUT_TRY(read_tensor(r, &entry));
        SUT_TRY(reserve(h, &h->entries, h->n_entries, &h->entries_capacity, sizeof *h->entries));
        h->entries[h->n_entries++] = entry;
    } while (accept(r, ','));
    return expect(r, '}');
}

sut_status sut_header_parse(sut_header *header, const unsigned char *text, size_t length)
{
    reader r = {header, text, text, text + length};
    header->strings = sut_alloc(header->ctx, length, 1);
    if (header->strings == NULL)
        SUT_FAIL(header->ctx, SUT_ERROR_OUT_OF_MEMORY, "%s: no memory for its header of %zu bytes", header->what,
                 length);
    if (*r.p++ != '{') /* not even white space before it */
        REFUSE(&r, "json", "the header begins with byte 0x%02x instead of {", text[0]);
    if (!accept(&r, '}'))
        SUT_TRY(read_members(&r));
    for (; r.p < r.end; r.p++)
        if (*r.p != ' ')
            return syntax(&r, "nothing but spaces behind the object");
    return SUT_OK;
}

void sut_header_release(sut_header *header)
{
    sut_free(header->ctx, header->strings);
    sut_free(header->ctx, header->entries);
    sut_free(header->ctx, header->dims);
    sut_free(header->ctx, header->texts);
}
