/*
 * The settings of an optimizer as texts in a state file: one table says which members of sut_optimizer_config are kept,
 * under which key, and how; saving and loading both follow it.
 *
 * Numbers are decimal and exact (17 digits give back every double), independent of the locale. Values of enumerations
 * that have names are written by name. What belongs to the caller is not kept: pointers (tensors, names, preference, order).
 */
#ifndef SUT_CORE_SETTINGS_H
#define SUT_CORE_SETTINGS_H

#include "core/internal.h"
#include "quant/safetensors.h"

/* Texts to be written. Every key and value fits its buffer: keys are ours, values are numbers and names. */
typedef struct sut_text_entry {
    char key[64];
    char value[40];
} sut_text_entry;

typedef struct sut_text_list {
    sut_text_entry *entries;
    size_t n, capacity;
} sut_text_list;

/* Append; the caller made the list large enough. */
void sut_text_add(sut_text_list *list, const char *key, const char *value);
void sut_text_add_double(sut_text_list *list, const char *key, double value);
void sut_text_add_int(sut_text_list *list, const char *key, int64_t value);
void sut_text_add_unsigned(sut_text_list *list, const char *key, uint64_t value);

/* Read a text of an open state file; SUT_ERROR_CORRUPT by name when it is missing or not what it should be. */
sut_status sut_text_get(sut_context *ctx, const sut_safetensors *file, const char *key, const char **value_out);
sut_status sut_text_get_double(sut_context *ctx, const sut_safetensors *file, const char *key, double *value_out);
sut_status sut_text_get_int(sut_context *ctx, const sut_safetensors *file, const char *key, int64_t minimum,
                            int64_t maximum, int64_t *value_out);
sut_status sut_text_get_unsigned(sut_context *ctx, const sut_safetensors *file, const char *key, uint64_t *value_out);

/* Number of texts that sut_settings_add appends. */
size_t sut_settings_count(void);
void sut_settings_add(sut_text_list *list, const sut_optimizer_config *config);
/* Overwrite the settings in `config` by those of the file; other members stay. Ranges are the caller's to check. */
sut_status sut_settings_get(sut_context *ctx, const sut_safetensors *file, sut_optimizer_config *config);

#endif /* SUT_CORE_SETTINGS_H */
