/*
 * The JSON header of a safetensors file: from text to lists and back.
 *
 * The parser knows no other JSON than this: an object of tensors, each an object of exactly dtype, shape and data_offsets,
 * and __metadata__, an object of strings. There is no recursion, and memory (all from the context) stays within a few times
 * the length of the text. A general JSON library would not do: jansson, for one, takes its memory from malloc, ends the
 * process by an assertion when an allocation fails inside its lexer, and reads "-0" as an integer.
 */
#ifndef SUT_QUANT_SAFETENSORS_HEADER_H
#define SUT_QUANT_SAFETENSORS_HEADER_H

#include "quant/safetensors.h"

/* Every refusal of a file: its name, the class, the sentence. Names from the file are cut to keep the sentence readable. */
#define SUT_REFUSE_FILE(ctx, what, class, format, ...) \
    SUT_FAIL((ctx), SUT_ERROR_CORRUPT, "%s is damaged or not a state file (%s): " format, (what), (class), __VA_ARGS__)

/* A tensor as the header describes it; nothing is checked yet but the grammar. */
typedef struct sut_header_entry {
    const char *name; /* holds no U+0000 */
    sut_file_dtype dtype;
    int64_t n_dims;
    size_t first_dim; /* in dims */
    int64_t begin, end;
} sut_header_entry;

typedef struct sut_header_text {
    const char *key;   /* holds no U+0000 */
    const char *value; /* may hold some: then it is longer than strlen() says */
    size_t length;
} sut_header_text;

typedef struct sut_header {
    sut_context *ctx;
    const char *what; /* name of the file */
    char *strings;    /* all texts, decoded */
    size_t strings_used;
    sut_header_entry *entries;
    size_t n_entries, entries_capacity;
    int64_t *dims;
    size_t n_dims, dims_capacity;
    sut_header_text *texts;
    size_t n_texts, texts_capacity;
    bool has_metadata;
} sut_header;

/* Parse `length` >= 2 bytes into a cleared header (ctx and what set). Release it after failure, too. */
sut_status sut_header_parse(sut_header *header, const unsigned char *text, size_t length);
void sut_header_release(sut_header *header);

#endif /* SUT_QUANT_SAFETENSORS_HEADER_H */
