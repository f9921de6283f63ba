/*
 * Reader and writer of the safetensors container, see safetensors.h. The format and its rules are those of the safetensors
 * project; where that reader is lenient (repeated names, white space around the header, U+0000 in names) this one refuses,
 * and no known writer produces such files.
 *
 * JSON is read and written by jansson, which checks UTF-8, escapes and repeated names. Jansson takes its memory from
 * malloc: it has only process-wide hooks, which a library must not set. Everything else comes from the context.
 */
#include "quant/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "data are used as they lie in the file");

/* A header needs three levels. The limit keeps jansson's recursion flat on hostile input. */
#define MAX_NESTING 64

struct sut_safetensors {
    sut_context *ctx;
    const char *what;
    json_t *root; /* owns all names and texts */
    sut_safetensors_entry *entries;
    sut_safetensors_entry **by_name;
    int64_t *dims; /* all shapes */
    int64_t n_entries;
};

static const struct {
    const char *name;
    size_t size;
} dtypes[SUT_FILE_DTYPE_COUNT] = {
    [SUT_FILE_BOOL] = {"BOOL", 1}, [SUT_FILE_I8] = {"I8", 1},   [SUT_FILE_U8] = {"U8", 1},
    [SUT_FILE_BF16] = {"BF16", 2}, [SUT_FILE_F16] = {"F16", 2}, [SUT_FILE_I16] = {"I16", 2},
    [SUT_FILE_U16] = {"U16", 2},   [SUT_FILE_F32] = {"F32", 4}, [SUT_FILE_I32] = {"I32", 4},
    [SUT_FILE_U32] = {"U32", 4},   [SUT_FILE_F64] = {"F64", 8}, [SUT_FILE_I64] = {"I64", 8},
    [SUT_FILE_U64] = {"U64", 8},
};

const char *sut_file_dtype_name(sut_file_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t sut_file_dtype_size(sut_file_dtype dtype)
{
    return dtypes[dtype].size;
}

sut_file_dtype sut_file_dtype_of(sut_dtype dtype)
{
    switch (dtype) {
    case SUT_DTYPE_F64: return SUT_FILE_F64;
    case SUT_DTYPE_BF16: return SUT_FILE_BF16;
    case SUT_DTYPE_F16: return SUT_FILE_F16;
    case SUT_DTYPE_F32: break;
    }
    return SUT_FILE_F32;
}

/* Every refusal of a file: its name, the class, the sentence. Names from the file are cut to keep the sentence readable. */
#define REFUSE(ctx, what, class, format, ...) \
    SUT_FAIL((ctx), SUT_ERROR_CORRUPT, "%s is damaged or not a state file (%s): " format, (what), (class), __VA_ARGS__)

static uint64_t read_u64(const unsigned char *p)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

/* --- reader: the header as text ------------------------------------------------------------------------------------- */

sut_status sut_safetensors_probe(sut_context *ctx, const char *what, const void *bytes, size_t n, uint64_t size)
{
    const unsigned char *p = bytes;
    if (size < 8 || n < 8)
        REFUSE(ctx, what, "truncated", "it has %llu bytes, the header length alone takes 8", (unsigned long long)size);
    const uint64_t length = read_u64(p);
    if (length > SUT_SAFETENSORS_MAX_HEADER)
        REFUSE(ctx, what, "header_length", "the header length is %llu, the limit is %u", (unsigned long long)length,
               SUT_SAFETENSORS_MAX_HEADER);
    if (length > size - 8)
        REFUSE(ctx, what, "header_length", "the header length is %llu, but only %llu bytes follow it",
               (unsigned long long)length, (unsigned long long)(size - 8));
    if (length < 2)
        REFUSE(ctx, what, "json", "the header length is %llu; the smallest header, {}, has 2 bytes",
               (unsigned long long)length);
    if (n >= 9 && p[8] != '{')
        REFUSE(ctx, what, "json", "the header begins with byte 0x%02x instead of {", p[8]);
    return SUT_OK;
}

/*
 * What jansson would let pass: a sign in front of a number (it reads -0 as 0), and deep nesting. The text may still be
 * anything, so this only tracks strings and brackets.
 */
static sut_status check_text(sut_context *ctx, const char *what, const char *text, size_t length)
{
    bool in_string = false;
    int depth = 0;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"')
            in_string = true;
        else if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        else if (c == '-')
            REFUSE(ctx, what, "json_number", "a number with a sign at byte %zu of the header", i);
        if (depth > MAX_NESTING)
            REFUSE(ctx, what, "json", "the header is nested deeper than %d levels", MAX_NESTING);
    }
    return SUT_OK;
}

/* The class of a refusal by jansson. */
static const char *json_class(const json_error_t *error)
{
    switch (json_error_code(error)) {
    case json_error_invalid_utf8: return "utf8";
    case json_error_duplicate_key: return "duplicate";
    case json_error_null_byte_in_key: return "name";
    case json_error_numeric_overflow: return "json_number";
    default: break;
    }
    /* A lone surrogate escape has no code of its own. */
    return strstr(error->text, "Unicode") ? "utf8" : "json";
}

static sut_status parse_header(sut_safetensors *c, const char *text, size_t length)
{
    size_t end = length;
    while (end > 0 && text[end - 1] == ' ')
        end--;
    if (text[end - 1] != '}')
        REFUSE(c->ctx, c->what, "json", "the header ends with byte 0x%02x instead of }", (unsigned char)text[end - 1]);
    SUT_TRY(check_text(c->ctx, c->what, text, end));
    json_error_t error;
    c->root = json_loadb(text, end, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (c->root == NULL && json_error_code(&error) == json_error_out_of_memory)
        SUT_FAIL(c->ctx, SUT_ERROR_OUT_OF_MEMORY, "%s: no memory for its header of %zu bytes", c->what, length);
    if (c->root == NULL)
        REFUSE(c->ctx, c->what, json_class(&error), "the header is not valid JSON: %.100s at byte %d", error.text,
               error.position);
    return SUT_OK;
}

/* --- reader: the entries -------------------------------------------------------------------------------------------- */

static sut_status check_metadata(sut_safetensors *c)
{
    json_t *metadata = json_object_get(c->root, "__metadata__");
    if (metadata == NULL)
        return SUT_OK;
    if (!json_is_object(metadata))
        REFUSE(c->ctx, c->what, "metadata", "%s is not an object", "__metadata__");
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) if (!json_is_string(value))
        REFUSE(c->ctx, c->what, "metadata", "__metadata__ \"%.100s\" is not a string", key);
    return SUT_OK;
}

/* A plain non-negative integer below 2^63. */
static sut_status read_size(sut_safetensors *c, const char *name, const char *member, const json_t *value, int64_t *out)
{
    if (json_is_real(value))
        REFUSE(c->ctx, c->what, "json_number", "%s of tensor \"%.200s\" holds a number with a fraction or exponent",
               member, name);
    if (!json_is_integer(value))
        REFUSE(c->ctx, c->what, "json", "%s of tensor \"%.200s\" holds something that is not a number", member, name);
    *out = json_integer_value(value);
    return SUT_OK;
}

static bool multiply(uint64_t *product, uint64_t factor)
{
    if (factor != 0 && *product > UINT64_MAX / factor)
        return false;
    *product *= factor;
    return true;
}

static sut_status read_dtype(sut_safetensors *c, const char *name, const json_t *value, sut_file_dtype *out)
{
    if (!json_is_string(value))
        REFUSE(c->ctx, c->what, "json", "dtype of tensor \"%.200s\" is not a string", name);
    const char *text = json_string_value(value);
    for (int k = 0; k < SUT_FILE_DTYPE_COUNT; k++)
        if (strcmp(text, dtypes[k].name) == 0 && json_string_length(value) == strlen(text)) {
            *out = (sut_file_dtype)k;
            return SUT_OK;
        }
    REFUSE(c->ctx, c->what, "dtype", "tensor \"%.200s\" has the unknown dtype \"%.20s\"", name, text);
}

/* One entry; its offsets are kept in `range` until the data are known to be long enough. `dims` receives the shape. */
static sut_status read_entry(sut_safetensors *c, const char *name, const json_t *value, int64_t *dims,
                             sut_safetensors_entry *entry, int64_t range[2])
{
    const json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape");
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (json_object_size(value) != 3 || dtype == NULL || !json_is_array(shape) || !json_is_array(offsets) ||
        json_array_size(offsets) != 2)
        REFUSE(c->ctx, c->what, "json",
               "tensor \"%.200s\" does not have exactly dtype, shape (a list) and data_offsets (two numbers)", name);
    entry->name = name;
    SUT_TRY(read_dtype(c, name, dtype, &entry->dtype));
    entry->n_dims = (int64_t)json_array_size(shape);
    entry->shape = dims;
    uint64_t bytes = 1;
    for (int64_t d = 0; d < entry->n_dims; d++) {
        SUT_TRY(read_size(c, name, "shape", json_array_get(shape, (size_t)d), &dims[d]));
        if (!multiply(&bytes, (uint64_t)dims[d]))
            REFUSE(c->ctx, c->what, "overflow", "shape of tensor \"%.200s\": the product does not fit 64 bits", name);
    }
    if (!multiply(&bytes, dtypes[entry->dtype].size))
        REFUSE(c->ctx, c->what, "overflow", "shape of tensor \"%.200s\": its bytes do not fit 64 bits", name);
    for (int k = 0; k < 2; k++)
        SUT_TRY(read_size(c, name, "data_offsets", json_array_get(offsets, (size_t)k), &range[k]));
    if (range[1] < range[0])
        REFUSE(c->ctx, c->what, "offsets", "data_offsets of tensor \"%.200s\" end at %lld, before they begin at %lld",
               name, (long long)range[1], (long long)range[0]);
    const uint64_t size = (uint64_t)range[1] - (uint64_t)range[0];
    if (size != bytes)
        REFUSE(c->ctx, c->what, "size", "data_offsets of tensor \"%.200s\" span %llu bytes, shape and dtype need %llu",
               name, (unsigned long long)size, (unsigned long long)bytes);
    return SUT_OK;
}

typedef struct placed_entry {
    sut_safetensors_entry entry;
    int64_t range[2];
} placed_entry;

/* By place; empty tensors come before the one that starts at the same byte. Names only settle ties. */
static int compare_places(const void *a, const void *b)
{
    const placed_entry *x = a, *y = b;
    for (int k = 0; k < 2; k++)
        if (x->range[k] != y->range[k])
            return x->range[k] < y->range[k] ? -1 : 1;
    return strcmp(x->entry.name, y->entry.name);
}

static int compare_names(const void *a, const void *b)
{
    const sut_safetensors_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* The tensors must fill the data: the first begins at 0, each where the one before ended, the last ends with the file. */
static sut_status place_entries(sut_safetensors *c, placed_entry *placed, const unsigned char *data, uint64_t data_size)
{
    if (c->n_entries > 0)
        qsort(placed, (size_t)c->n_entries, sizeof *placed, compare_places);
    int64_t expected = 0;
    for (int64_t k = 0; k < c->n_entries; k++) {
        const int64_t *range = placed[k].range;
        if (range[0] != expected)
            REFUSE(c->ctx, c->what, "offsets",
                   "data_offsets of tensor \"%.200s\" begin at %lld; %lld was expected (%s)", placed[k].entry.name,
                   (long long)range[0], (long long)expected, range[0] < expected ? "tensors overlap" : "a hole");
        if ((uint64_t)range[1] > data_size)
            REFUSE(c->ctx, c->what, "truncated",
                   "data_offsets of tensor \"%.200s\" end at %lld, but the file holds %llu bytes of data",
                   placed[k].entry.name, (long long)range[1], (unsigned long long)data_size);
        expected = range[1];
        c->entries[k] = placed[k].entry;
        c->entries[k].data = data + range[0];
        c->entries[k].size = (size_t)(range[1] - range[0]);
        c->by_name[k] = &c->entries[k];
    }
    if ((uint64_t)expected != data_size)
        REFUSE(c->ctx, c->what, "trailing", "%llu bytes follow the last tensor",
               (unsigned long long)(data_size - (uint64_t)expected));
    if (c->n_entries > 0)
        qsort(c->by_name, (size_t)c->n_entries, sizeof *c->by_name, compare_names);
    return SUT_OK;
}

static sut_status read_entries(sut_safetensors *c, placed_entry *placed)
{
    int64_t k = 0;
    int64_t *dims = c->dims;
    const char *name;
    json_t *value;
    json_object_foreach(c->root, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        SUT_TRY(read_entry(c, name, value, dims, &placed[k].entry, placed[k].range));
        dims += placed[k].entry.n_dims;
        k++;
    }
    return SUT_OK;
}

static sut_status open_entries(sut_safetensors *c, const unsigned char *data, uint64_t data_size)
{
    SUT_TRY(check_metadata(c));
    size_t n_dims = 0;
    const char *name;
    json_t *value;
    json_object_foreach(c->root, name, value) n_dims +=
        json_array_size(json_object_get(value, "shape")); /* 0 for whatever is not an array */
    const size_t n = json_object_size(c->root) - (json_object_get(c->root, "__metadata__") != NULL);
    c->n_entries = (int64_t)n;
    c->entries = sut_alloc(c->ctx, n, sizeof *c->entries);
    c->by_name = sut_alloc(c->ctx, n, sizeof(sut_safetensors_entry *));
    c->dims = sut_alloc(c->ctx, n_dims, sizeof *c->dims);
    placed_entry *placed = sut_alloc(c->ctx, n, sizeof *placed);
    sut_status status = SUT_OK;
    if ((n > 0 && (!c->entries || !c->by_name || !placed)) || (n_dims > 0 && !c->dims))
        status = sut_fail(c->ctx, SUT_ERROR_OUT_OF_MEMORY, "%s: no memory for the list of its %zu tensors", c->what, n);
    if (status == SUT_OK)
        status = read_entries(c, placed);
    if (status == SUT_OK)
        status = place_entries(c, placed, data, data_size);
    sut_free(c->ctx, placed);
    return status;
}

sut_status sut_safetensors_open(sut_context *ctx, const char *what, const void *bytes, size_t size,
                                sut_safetensors **container_out)
{
    *container_out = NULL;
    SUT_TRY(sut_safetensors_probe(ctx, what, bytes, size, size));
    sut_safetensors *c = sut_alloc(ctx, 1, sizeof *c);
    if (c == NULL)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "%s: no memory to open it", what);
    c->ctx = ctx;
    c->what = what;
    const unsigned char *p = bytes;
    const size_t length = (size_t)read_u64(p);
    sut_status status = parse_header(c, (const char *)p + 8, length);
    if (status == SUT_OK)
        status = open_entries(c, p + 8 + length, size - 8 - length);
    if (status != SUT_OK) {
        sut_safetensors_close(c);
        return status;
    }
    *container_out = c;
    return SUT_OK;
}

void sut_safetensors_close(sut_safetensors *container)
{
    if (container == NULL)
        return;
    sut_context *ctx = container->ctx;
    json_decref(container->root);
    sut_free(ctx, container->entries);
    sut_free(ctx, container->by_name);
    sut_free(ctx, container->dims);
    sut_free(ctx, container);
}

int64_t sut_safetensors_count(const sut_safetensors *container)
{
    return container->n_entries;
}

const sut_safetensors_entry *sut_safetensors_entry_at(const sut_safetensors *container, int64_t index)
{
    return index >= 0 && index < container->n_entries ? &container->entries[index] : NULL;
}

const sut_safetensors_entry *sut_safetensors_find(const sut_safetensors *container, const char *name)
{
    if (container->n_entries == 0)
        return NULL;
    const sut_safetensors_entry key = {.name = name}, *pointer = &key;
    sut_safetensors_entry **found =
        bsearch(&pointer, container->by_name, (size_t)container->n_entries, sizeof *container->by_name, compare_names);
    return found ? *found : NULL;
}

const char *sut_safetensors_metadata(const sut_safetensors *container, const char *key)
{
    const json_t *value = json_object_get(json_object_get(container->root, "__metadata__"), key);
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

bool sut_safetensors_has_metadata(const sut_safetensors *container, const char *prefix)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(container->root, "__metadata__"), key,
                        value) if (strncmp(key, prefix, strlen(prefix)) == 0) return true;
    return false;
}

/* --- writer --------------------------------------------------------------------------------------------------------- */

static int compare_items(const void *a, const void *b)
{
    const sut_safetensors_item *x = a, *y = b;
    const size_t x_size = dtypes[x->dtype].size, y_size = dtypes[y->dtype].size;
    return x_size != y_size ? (x_size > y_size ? -1 : 1) : strcmp(x->name, y->name);
}

static sut_status out_of_header_memory(sut_context *ctx)
{
    SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for the header of the file");
}

/* Set a member; `value` is taken over. Jansson answers a key that is not UTF-8 like a lack of memory: both are refused. */
static sut_status set_member(sut_context *ctx, json_t *object, const char *key, json_t *value)
{
    if (json_object_get(object, key) != NULL) {
        json_decref(value);
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "the name \"%.200s\" occurs twice in the file to be written", key);
    }
    json_t *probe = json_string(key); /* tells the two reasons apart */
    const bool valid = probe != NULL;
    json_decref(probe);
    if (value == NULL || (valid && json_object_set_new(object, key, value) != 0))
        return out_of_header_memory(ctx);
    if (!valid) {
        json_decref(value);
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "the name \"%.200s\" is not valid UTF-8", key);
    }
    return SUT_OK;
}

static json_t *entry_to_json(const sut_safetensors_item *item, uint64_t begin)
{
    json_t *shape = json_array();
    for (int d = 0; shape && d < item->n_dims; d++)
        if (json_array_append_new(shape, json_integer(item->shape[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtypes[item->dtype].name, "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + item->size));
}

static sut_status build_header(sut_context *ctx, json_t *root, sut_safetensors_item *items, int64_t n_items,
                               const sut_safetensors_text *texts, int64_t n_texts, uint64_t *data_size)
{
    if (n_texts > 0) {
        json_t *metadata = json_object();
        SUT_TRY(set_member(ctx, root, "__metadata__", metadata));
        for (int64_t k = 0; k < n_texts; k++) {
            json_t *value = json_string(texts[k].value);
            if (value == NULL)
                SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "the text of \"%.200s\" is not valid UTF-8", texts[k].key);
            SUT_TRY(set_member(ctx, metadata, texts[k].key, value));
        }
    }
    uint64_t begin = 0;
    for (int64_t k = 0; k < n_items; k++) {
        if (items[k].name[0] == '\0' || strcmp(items[k].name, "__metadata__") == 0)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "a tensor cannot be called \"%s\" in a file", items[k].name);
        uint64_t bytes = dtypes[items[k].dtype].size;
        for (int d = 0; d < items[k].n_dims; d++)
            if (items[k].shape[d] < 0 || !multiply(&bytes, (uint64_t)items[k].shape[d]))
                SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "shape of tensor \"%.200s\" is impossible", items[k].name);
        if (bytes > (uint64_t)INT64_MAX - begin || bytes > SIZE_MAX)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "the file to be written would exceed 2^63 bytes at \"%.200s\"",
                     items[k].name);
        items[k].size = (size_t)bytes;
        SUT_TRY(set_member(ctx, root, items[k].name, entry_to_json(&items[k], begin)));
        begin += bytes;
    }
    *data_size = begin;
    return SUT_OK;
}

static sut_status dump_header(sut_context *ctx, const json_t *root, unsigned char **header_out, size_t *size_out)
{
    const size_t length = json_dumpb(root, NULL, 0, JSON_COMPACT);
    if (length == 0)
        return out_of_header_memory(ctx);
    const size_t padded = (length + 7) / 8 * 8;
    if (padded > SUT_SAFETENSORS_MAX_HEADER)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "the header would take %zu bytes, the limit is %u", padded,
                 SUT_SAFETENSORS_MAX_HEADER);
    unsigned char *header = sut_alloc(ctx, 8 + padded, 1);
    if (header == NULL || json_dumpb(root, (char *)header + 8, length, JSON_COMPACT) != length) {
        sut_free(ctx, header);
        return out_of_header_memory(ctx);
    }
    memset(header + 8 + length, ' ', padded - length);
    for (int i = 0; i < 8; i++)
        header[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    *header_out = header;
    *size_out = 8 + padded;
    return SUT_OK;
}

sut_status sut_safetensors_header(sut_context *ctx, sut_safetensors_item *items, int64_t n_items,
                                  const sut_safetensors_text *texts, int64_t n_texts, unsigned char **header_out,
                                  size_t *header_size_out, uint64_t *data_size_out)
{
    if (n_items > 0)
        qsort(items, (size_t)n_items, sizeof *items, compare_items);
    json_t *root = json_object();
    if (root == NULL)
        return out_of_header_memory(ctx);
    sut_status status = build_header(ctx, root, items, n_items, texts, n_texts, data_size_out);
    if (status == SUT_OK)
        status = dump_header(ctx, root, header_out, header_size_out);
    json_decref(root);
    return status;
}
