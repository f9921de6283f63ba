/*
 * Saving: everything that goes into a state file is listed, the header is made, the checksum taken over header and data,
 * and the bytes are written to a file or to memory. Data go from the optimizer to the file without a copy; those of a device
 * go through a buffer of the longest piece, once for the checksum and once for the file.
 */
#include "core/checkpoint.h"
#include "core/crc64.h"
#include "core/file.h"
#include "core/settings.h"

#include <stdio.h>
#include <string.h>

typedef struct saving {
    sut_context *ctx;
    sut_optimizer *opt;
    sut_checkpoint_config config;
    sut_safetensors_item *items;
    int64_t n_items;
    void *staging; /* for items that are not the host's; NULL: there are none */
    char *names;
    sut_tensor_layout *layouts;
    int64_t n_losses;
    sut_text_list own;
    sut_safetensors_text *texts;
    unsigned char *header;
    size_t header_size;
    uint64_t data_size;
} saving;

static void release(saving *s)
{
    sut_free(s->ctx, s->items);
    sut_free(s->ctx, s->staging);
    sut_free(s->ctx, s->names);
    sut_free(s->ctx, s->layouts);
    sut_free(s->ctx, s->own.entries);
    sut_free(s->ctx, s->texts);
    sut_free(s->ctx, s->header);
}

static sut_status out_of_memory(sut_context *ctx)
{
    SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for the table of contents of the state");
}

/* Tensors: the pieces of each parameter, the memory of the surgery, the caller's own. */
static sut_status list_tensors(saving *s)
{
    sut_optimizer *opt = s->opt;
    size_t bytes = 0;
    for (int64_t k = 0; k < opt->n_tensors; k++)
        bytes += SUT_MAX_PIECES * (strlen(opt->tensor[k].name) + SUT_PIECE_NAME_MAX - 1000);
    const size_t n = (size_t)opt->n_tensors * SUT_MAX_PIECES + (size_t)s->config.n_tensors + 1;
    s->items = sut_alloc(s->ctx, n, sizeof *s->items);
    s->names = sut_alloc(s->ctx, bytes, 1);
    s->layouts = sut_alloc(s->ctx, (size_t)opt->n_tensors, sizeof *s->layouts);
    if (!s->items || !s->names || !s->layouts)
        return out_of_memory(s->ctx);

    char *name = s->names;
    for (int64_t k = 0; k < opt->n_tensors; k++) {
        sut_piece pieces[SUT_MAX_PIECES];
        const int n_pieces = sut_checkpoint_pieces(opt, k, s->config.include_parameters != 0, &s->layouts[k], pieces);
        for (int j = 0; j < n_pieces; j++) {
            char full[SUT_PIECE_NAME_MAX];
            sut_piece_name(opt, k, &pieces[j], full);
            memcpy(name, full, strlen(full) + 1);
            s->items[s->n_items++] = (sut_safetensors_item){
                .name = name,
                .dtype = pieces[j].dtype,
                .n_dims = pieces[j].n_dims,
                .shape = pieces[j].shape,
                .data = pieces[j].data,
                .on_device = !pieces[j].is_host && s->ctx->backend != SUT_BACKEND_CPU,
            };
            name += strlen(full) + 1;
        }
    }
    s->n_losses = opt->config.n_losses;
    s->items[s->n_items++] = (sut_safetensors_item){
        "suture.surgery.kept_weights", SUT_FILE_F64, 1, &s->n_losses, opt->algebra.kept_weights, 0, false};
    for (int k = 0; k < s->config.n_tensors; k++) {
        const sut_extra_tensor *t = &s->config.tensors[k];
        s->items[s->n_items++] =
            (sut_safetensors_item){t->name, sut_file_dtype_of(t->dtype), t->n_dims, t->shape, t->data, 0, false};
    }
    return SUT_OK;
}

static void list_groups(saving *s)
{
    const sut_method_row *row = s->opt->row;
    for (int k = 0; k < s->opt->n_groups; k++)
        for (const sut_method_parameter *p = row->parameter; p->name; p++) {
            char key[64];
            double value = 0;
            (void)snprintf(key, sizeof key, "suture.group.%d.%s", k, p->name);
            (void)sut_hyper_get(&s->opt->group[k], row->method, p->name, &value);
            sut_text_add_double(&s->own, key, value);
        }
}

enum { N_HEAD = 10 };

static sut_status list_texts(saving *s)
{
    sut_optimizer *opt = s->opt;
    const size_t n = N_HEAD + sut_settings_count() + (size_t)opt->n_groups * SUT_MAX_PARAMETERS;
    s->own.entries = sut_alloc(s->ctx, n, sizeof *s->own.entries);
    s->texts = sut_alloc(s->ctx, n + (size_t)s->config.n_texts, sizeof *s->texts);
    if (!s->own.entries || !s->texts)
        return out_of_memory(s->ctx);
    sut_text_add(&s->own, "suture.checksum", "0000000000000000");
    sut_text_add_int(&s->own, "suture.format", SUT_CHECKPOINT_FORMAT);
    sut_text_add(&s->own, "suture.method", opt->row->name);
    sut_text_add_int(&s->own, "suture.n_losses", opt->config.n_losses);
    sut_text_add_int(&s->own, "suture.n_groups", opt->n_groups);
    sut_text_add_int(&s->own, "suture.steps", opt->t);
    sut_text_add_int(&s->own, "suture.skipped_steps", opt->skipped);
    sut_text_add_int(&s->own, "suture.surgery.kept_for", opt->algebra.kept_for);
    sut_text_add_unsigned(&s->own, "suture.seed", opt->seed);
    sut_settings_add(&s->own, &opt->config);
    list_groups(s);
    for (size_t k = 0; k < s->own.n; k++)
        s->texts[k] = (sut_safetensors_text){s->own.entries[k].key, s->own.entries[k].value};
    for (int k = 0; k < s->config.n_texts; k++)
        s->texts[s->own.n + (size_t)k] = (sut_safetensors_text){s->config.texts[k].key, s->config.texts[k].value};
    return SUT_OK;
}

static sut_status make_staging(saving *s)
{
    size_t largest = 0;
    for (int64_t k = 0; k < s->n_items; k++)
        if (s->items[k].on_device && s->items[k].size > largest)
            largest = s->items[k].size;
    if (largest == 0)
        return SUT_OK;
    s->staging = sut_alloc(s->ctx, largest, 1);
    if (!s->staging)
        SUT_FAIL(s->ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for a copy of the longest tensor (%zu bytes)", largest);
    return SUT_OK;
}

/* An item's bytes in memory of the host, valid until the next call. */
static sut_status bytes_of(saving *s, const sut_safetensors_item *item, const void **bytes_out)
{
    *bytes_out = item->on_device ? s->staging : item->data;
    if (item->on_device && item->size > 0)
        SUT_TRY(s->ctx->ops->download(s->ctx, s->staging, item->data, item->size));
    return SUT_OK;
}

/* The digits were written as zeros, just as they are to be taken. */
static sut_status enter_checksum(saving *s)
{
    sut_crc64 crc;
    sut_crc64_begin(&crc);
    sut_crc64_add(&crc, s->header, s->header_size);
    for (int64_t k = 0; k < s->n_items; k++) {
        const void *bytes;
        SUT_TRY(bytes_of(s, &s->items[k], &bytes));
        sut_crc64_add(&crc, bytes, s->items[k].size);
    }
    char digits[SUT_CHECKSUM_DIGITS + 1];
    (void)snprintf(digits, sizeof digits, "%016llx", (unsigned long long)sut_crc64_end(&crc));
    memcpy(s->header + SUT_CHECKSUM_AT, digits, SUT_CHECKSUM_DIGITS);
    return SUT_OK;
}

static sut_status prepare(saving *s, sut_optimizer *opt, const sut_checkpoint_config *config)
{
    *s = (saving){.ctx = opt->ctx, .opt = opt};
    if (opt->pending)
        SUT_FAIL(s->ctx, SUT_ERROR_SEQUENCE,
                 "the state cannot be saved now: a proposal waits for sut_optimizer_apply()");
    SUT_TRY(sut_optimizer_pull(opt));
    SUT_TRY(sut_checkpoint_config_read(s->ctx, config, true, &s->config));
    SUT_TRY(list_tensors(s));
    SUT_TRY(list_texts(s));
    SUT_TRY(sut_safetensors_header(s->ctx, s->items, s->n_items, s->texts, (int64_t)s->own.n + s->config.n_texts,
                                   &s->header, &s->header_size, &s->data_size));
    SUT_TRY(make_staging(s));
    return enter_checksum(s);
}

static sut_status write_file(saving *s, const char *path)
{
    sut_file_writer writer;
    SUT_TRY(sut_file_begin(&writer, s->ctx, path));
    SUT_TRY(sut_file_append(&writer, s->header, s->header_size));
    for (int64_t k = 0; k < s->n_items; k++) {
        const void *bytes;
        const sut_status status = bytes_of(s, &s->items[k], &bytes);
        if (status != SUT_OK) {
            sut_file_abandon(&writer);
            return status;
        }
        SUT_TRY(sut_file_append(&writer, bytes, s->items[k].size));
    }
    return sut_file_commit(&writer);
}

static sut_status write_memory(saving *s, void **data_out, size_t *size_out)
{
    unsigned char *bytes = NULL;
    if (s->data_size <= SIZE_MAX - s->header_size)
        bytes = sut_alloc(s->ctx, s->header_size + (size_t)s->data_size, 1);
    if (bytes == NULL)
        SUT_FAIL(s->ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for a state of %llu bytes",
                 (unsigned long long)(s->header_size + s->data_size));
    unsigned char *at = bytes;
    memcpy(at, s->header, s->header_size);
    at += s->header_size;
    for (int64_t k = 0; k < s->n_items; k++) {
        const sut_safetensors_item *const t = &s->items[k];
        sut_status status = SUT_OK;
        if (t->size > 0 && !t->on_device)
            memcpy(at, t->data, t->size);
        else if (t->size > 0)
            status = s->ctx->ops->download(s->ctx, at, t->data, t->size);
        if (status != SUT_OK) {
            sut_free(s->ctx, bytes);
            return status;
        }
        at += t->size;
    }
    *data_out = bytes;
    *size_out = (size_t)(at - bytes);
    return SUT_OK;
}

sut_status sut_optimizer_save(sut_optimizer *opt, const char *path, const sut_checkpoint_config *config)
{
    if (opt == NULL)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (path == NULL)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "sut_optimizer_save: path is NULL");
    saving s;
    sut_status status = prepare(&s, opt, config);
    if (status == SUT_OK)
        status = write_file(&s, path);
    release(&s);
    return status;
}

sut_status sut_optimizer_save_memory(sut_optimizer *opt, const sut_checkpoint_config *config, void **data_out,
                                     size_t *size_out)
{
    if (opt == NULL)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (data_out == NULL || size_out == NULL)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "sut_optimizer_save_memory: %s is NULL",
                 data_out ? "size_out" : "data_out");
    saving s;
    sut_status status = prepare(&s, opt, config);
    if (status == SUT_OK)
        status = write_memory(&s, data_out, size_out);
    release(&s);
    return status;
}
