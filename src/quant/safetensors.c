/*
 * Reader of the safetensors container, see safetensors.h. The format and its rules are those of the safetensors project;
 * where its own reader is lenient (repeated names, white space around the header, U+0000 in names) this one refuses, and no
 * known writer produces such files.
 */
#include "quant/safetensors.h"

#include "quant/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "data are used as they lie in the file");

struct sut_safetensors {
    sut_context *ctx;
    const char *what;
    sut_header header; /* owns names, texts and shapes */
    sut_safetensors_entry *entries;
    sut_safetensors_entry **by_name;
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

static uint64_t read_u64(const unsigned char *p)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

sut_status sut_safetensors_probe(sut_context *ctx, const char *what, const void *bytes, size_t n, uint64_t size)
{
    const unsigned char *p = bytes;
    if (size < 8 || n < 8)
        SUT_REFUSE_FILE(ctx, what, "truncated", "it has %llu bytes, the header length alone takes 8",
                        (unsigned long long)size);
    const uint64_t length = read_u64(p);
    if (length > SUT_SAFETENSORS_MAX_HEADER)
        SUT_REFUSE_FILE(ctx, what, "header_length", "the header length is %llu, the limit is %u",
                        (unsigned long long)length, SUT_SAFETENSORS_MAX_HEADER);
    if (length > size - 8)
        SUT_REFUSE_FILE(ctx, what, "header_length", "the header length is %llu, but only %llu bytes follow it",
                        (unsigned long long)length, (unsigned long long)(size - 8));
    if (length < 2)
        SUT_REFUSE_FILE(ctx, what, "json", "the header length is %llu; the smallest header, {}, has 2 bytes",
                        (unsigned long long)length);
    if (n >= 9 && p[8] != '{')
        SUT_REFUSE_FILE(ctx, what, "json", "the header begins with byte 0x%02x instead of {", p[8]);
    return SUT_OK;
}

/* The bytes that shape and dtype ask for must be those between the offsets. */
static sut_status check_entry(const sut_safetensors *c, const sut_header_entry *entry)
{
    uint64_t bytes = 1;
    bool overflow = false;
    for (int64_t d = 0; d < entry->n_dims; d++) /* from left to right; a later 0 does not excuse an overflow */
        overflow |= __builtin_mul_overflow(bytes, (uint64_t)c->header.dims[entry->first_dim + (size_t)d], &bytes);
    overflow |= __builtin_mul_overflow(bytes, (uint64_t)dtypes[entry->dtype].size, &bytes);
    if (overflow)
        SUT_REFUSE_FILE(c->ctx, c->what, "overflow", "shape of tensor \"%.200s\": its size does not fit 64 bits",
                        entry->name);
    if (entry->end < entry->begin)
        SUT_REFUSE_FILE(c->ctx, c->what, "offsets",
                        "data_offsets of tensor \"%.200s\" end at %lld, before they begin at %lld", entry->name,
                        (long long)entry->end, (long long)entry->begin);
    const uint64_t size = (uint64_t)entry->end - (uint64_t)entry->begin;
    if (size != bytes)
        SUT_REFUSE_FILE(c->ctx, c->what, "size",
                        "data_offsets of tensor \"%.200s\" span %llu bytes, shape and dtype need %llu", entry->name,
                        (unsigned long long)size, (unsigned long long)bytes);
    return SUT_OK;
}

/* By place; empty tensors come before the one that starts at the same byte. Names only settle ties. */
static int compare_places(const void *a, const void *b)
{
    const sut_header_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    const sut_safetensors_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int compare_keys(const void *a, const void *b)
{
    const sut_header_text *x = a, *y = b;
    return strcmp(x->key, y->key);
}

/* The tensors must fill the data: the first begins at 0, each where the one before ended, the last ends with the file. */
static sut_status place_entries(sut_safetensors *c, const unsigned char *data, uint64_t data_size)
{
    int64_t expected = 0;
    for (int64_t k = 0; k < c->n_entries; k++) {
        const sut_header_entry *from = &c->header.entries[k];
        if (from->begin != expected)
            SUT_REFUSE_FILE(c->ctx, c->what, "offsets",
                            "data_offsets of tensor \"%.200s\" begin at %lld; %lld was expected (%s)", from->name,
                            (long long)from->begin, (long long)expected,
                            from->begin < expected ? "tensors overlap" : "a hole");
        if ((uint64_t)from->end > data_size)
            SUT_REFUSE_FILE(c->ctx, c->what, "truncated",
                            "data_offsets of tensor \"%.200s\" end at %lld, but the file holds %llu bytes of data",
                            from->name, (long long)from->end, (unsigned long long)data_size);
        expected = from->end;
        c->entries[k] = (sut_safetensors_entry){.name = from->name,
                                                .dtype = from->dtype,
                                                .n_dims = from->n_dims,
                                                .shape = c->header.dims + from->first_dim,
                                                .data = data + from->begin,
                                                .size = (size_t)(from->end - from->begin)};
        c->by_name[k] = &c->entries[k];
    }
    if ((uint64_t)expected != data_size)
        SUT_REFUSE_FILE(c->ctx, c->what, "trailing", "%llu bytes follow the last tensor",
                        (unsigned long long)(data_size - (uint64_t)expected));
    return SUT_OK;
}

/* Sorted lists find names quickly and show repeated ones. */
static sut_status sort_names(sut_safetensors *c)
{
    sut_header *h = &c->header;
    if (c->n_entries > 0)
        qsort(c->by_name, (size_t)c->n_entries, sizeof *c->by_name, compare_names);
    for (int64_t k = 1; k < c->n_entries; k++)
        if (strcmp(c->by_name[k - 1]->name, c->by_name[k]->name) == 0)
            SUT_REFUSE_FILE(c->ctx, c->what, "duplicate", "tensor \"%.200s\" is listed twice", c->by_name[k]->name);
    if (h->n_texts > 0)
        qsort(h->texts, h->n_texts, sizeof *h->texts, compare_keys);
    for (size_t k = 1; k < h->n_texts; k++)
        if (strcmp(h->texts[k - 1].key, h->texts[k].key) == 0)
            SUT_REFUSE_FILE(c->ctx, c->what, "duplicate", "__metadata__ has \"%.200s\" twice", h->texts[k].key);
    return SUT_OK;
}

static sut_status open_entries(sut_safetensors *c, const unsigned char *data, uint64_t data_size)
{
    sut_header *h = &c->header;
    c->n_entries = (int64_t)h->n_entries;
    c->entries = sut_alloc(c->ctx, h->n_entries + 1, sizeof *c->entries);
    c->by_name = sut_alloc(c->ctx, h->n_entries + 1, sizeof(sut_safetensors_entry *));
    if (!c->entries || !c->by_name)
        SUT_FAIL(c->ctx, SUT_ERROR_OUT_OF_MEMORY, "%s: no memory for the list of its %zu tensors", c->what,
                 h->n_entries);
    /* A repeated name is told as such, not as the overlap that it mostly is, too: names come first. */
    for (int64_t k = 0; k < c->n_entries; k++) {
        c->entries[k].name = h->entries[k].name;
        c->by_name[k] = &c->entries[k];
    }
    SUT_TRY(sort_names(c));
    for (int64_t k = 0; k < c->n_entries; k++)
        SUT_TRY(check_entry(c, &h->entries[k]));
    if (c->n_entries > 0)
        qsort(h->entries, h->n_entries, sizeof *h->entries, compare_places);
    SUT_TRY(place_entries(c, data, data_size));
    return sort_names(c);
}

sut_status sut_safetensors_open(sut_context *ctx, const char *what, const void *bytes, size_t size,
                                sut_safetensors **container_out)
{
    *container_out = NULL;
    SUT_TRY(sut_safetensors_probe(ctx, what, bytes, size, size));
    sut_safetensors *c = sut_alloc(ctx, 1, sizeof *c);
    if (c == NULL)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "%s: no memory to open it", what);
    c->ctx = c->header.ctx = ctx;
    c->what = c->header.what = what;
    const unsigned char *p = bytes;
    const size_t length = (size_t)read_u64(p);
    sut_status status = sut_header_parse(&c->header, p + 8, length);
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
    sut_header_release(&container->header);
    sut_free(ctx, container->entries);
    sut_free(ctx, container->by_name);
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
    const sut_safetensors_entry key = {.name = name}, *pointer = &key;
    sut_safetensors_entry **found =
        bsearch(&pointer, container->by_name, (size_t)container->n_entries, sizeof *container->by_name, compare_names);
    return found ? *found : NULL;
}

const char *sut_safetensors_metadata(const sut_safetensors *container, const char *key)
{
    const sut_header *h = &container->header;
    const sut_header_text wanted = {.key = key};
    if (h->n_texts == 0)
        return NULL;
    const sut_header_text *found = bsearch(&wanted, h->texts, h->n_texts, sizeof wanted, compare_keys);
    return found && strlen(found->value) == found->length ? found->value : NULL;
}

bool sut_safetensors_has_metadata(const sut_safetensors *container, const char *prefix)
{
    for (size_t k = 0; k < container->header.n_texts; k++)
        if (strncmp(container->header.texts[k].key, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}
