/*
 * The safetensors container: 8 bytes little-endian header length N, N bytes of JSON, then the data.
 *
 *     {"__metadata__": {key: text, ...}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
 *
 * Offsets count from the start of the data; tensors are row-major and little-endian and fill the data without holes. The
 * reader is strict: what it accepts has unique names, known types, sizes that agree with the shapes, and not one byte that
 * belongs to nobody. Each refusal carries a class in parentheses, one of
 *     truncated header_length json utf8 duplicate name metadata dtype json_number overflow offsets size trailing
 *
 * Element types: F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL. Others (8-bit floats, names in lower case) are refused.
 * The machine must be little-endian: data are used as they lie in the file.
 */
#ifndef SUT_QUANT_SAFETENSORS_H
#define SUT_QUANT_SAFETENSORS_H

#include "core/internal.h"

#define SUT_SAFETENSORS_MAX_HEADER 100000000u

/* From small to large elements. */
typedef enum sut_file_dtype {
    SUT_FILE_BOOL,
    SUT_FILE_I8,
    SUT_FILE_U8,
    SUT_FILE_BF16,
    SUT_FILE_F16,
    SUT_FILE_I16,
    SUT_FILE_U16,
    SUT_FILE_F32,
    SUT_FILE_I32,
    SUT_FILE_U32,
    SUT_FILE_F64,
    SUT_FILE_I64,
    SUT_FILE_U64,
    SUT_FILE_DTYPE_COUNT
} sut_file_dtype;

const char *sut_file_dtype_name(sut_file_dtype dtype); /* "F32" */
size_t sut_file_dtype_size(sut_file_dtype dtype);
sut_file_dtype sut_file_dtype_of(sut_dtype dtype);

/* One tensor of an open container. */
typedef struct sut_safetensors_entry {
    const char *name;
    sut_file_dtype dtype;
    int64_t n_dims;
    const int64_t *shape;
    const unsigned char *data; /* in the caller's bytes; unaligned */
    size_t size;               /* bytes */
} sut_safetensors_entry;

typedef struct sut_safetensors sut_safetensors;

/*
 * Open a container that lies in memory.
 *
 * `what` names it in error texts ("state.safetensors"). `bytes` must outlive the container; so must `ctx`.
 * SUT_ERROR_CORRUPT with a class as above, or SUT_ERROR_OUT_OF_MEMORY. Nothing is allocated from a number in the file
 * before it has been checked against `size`; the parsed header takes memory in proportion to its length.
 */
sut_status sut_safetensors_open(sut_context *ctx, const char *what, const void *bytes, size_t size,
                                sut_safetensors **container_out);
void sut_safetensors_close(sut_safetensors *container); /* NULL is allowed */

/* Whether the first `n` bytes (n = min(size, 9) or more) can begin a container of `size` bytes; fails as open would. */
sut_status sut_safetensors_probe(sut_context *ctx, const char *what, const void *bytes, size_t n, uint64_t size);

/* Entries 0 .. count - 1 in the order of their data. */
int64_t sut_safetensors_count(const sut_safetensors *container);
const sut_safetensors_entry *sut_safetensors_entry_at(const sut_safetensors *container, int64_t index);
/* By name; NULL when there is none. */
const sut_safetensors_entry *sut_safetensors_find(const sut_safetensors *container, const char *name);

/* Text of a metadata key; NULL when there is none, or when it holds a U+0000. */
const char *sut_safetensors_metadata(const sut_safetensors *container, const char *key);
/* Whether some metadata key begins with `prefix`. */
bool sut_safetensors_has_metadata(const sut_safetensors *container, const char *prefix);

/* What is to be written. */
typedef struct sut_safetensors_item {
    const char *name;
    sut_file_dtype dtype;
    int n_dims;
    const int64_t *shape;
    const void *data;
    size_t size;    /* out: bytes */
    bool on_device; /* for the caller's use: carried along when items are put into order */
} sut_safetensors_item;

typedef struct sut_safetensors_text {
    const char *key, *value;
} sut_safetensors_text;

/*
 * Length field and JSON header of a file, padded with spaces to a multiple of 8. `items` are put into the order of the
 * file: larger elements first, then by name, so that every tensor is aligned to its element size; their data follow the
 * header one after the other. `texts` keep their order and come first. The same input gives the same bytes.
 *
 * header_out: release with sut_free(). data_size_out: bytes that follow.
 * SUT_ERROR_INVALID_ARGUMENT for names that are empty, repeated, "__metadata__" or not UTF-8, or a header above the limit.
 */
sut_status sut_safetensors_header(sut_context *ctx, sut_safetensors_item *items, int64_t n_items,
                                  const sut_safetensors_text *texts, int64_t n_texts, unsigned char **header_out,
                                  size_t *header_size_out, uint64_t *data_size_out);

#endif /* SUT_QUANT_SAFETENSORS_H */
