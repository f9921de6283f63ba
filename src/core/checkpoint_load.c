/*
 * Loading in three stages: the container is opened and its checksum verified; everything in it is checked against the
 * optimizer and made ready in memory of its own; only then is it copied, by operations that cannot fail. Before the last
 * stage nothing of the optimizer, the context or the caller's extras has changed.
 *
 * Settings are tried on a shallow copy of the optimizer through the ordinary setters, so that a file can bring in nothing
 * that a caller could not set.
 */
#include "core/checkpoint.h"
#include "core/crc64.h"
#include "core/file.h"
#include "core/settings.h"

#include "surgery/surgery.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct loading {
    sut_context *ctx;
    sut_optimizer *opt;
    const char *what; /* name of the file in error texts */
    sut_checkpoint_config config;
    sut_safetensors *file;
    bool *used; /* entries of the file that have been asked for */
    /* Ready for the last stage: */
    int64_t t, skipped, kept_for;
    uint64_t seed;
    sut_optimizer_config settings;
    sut_hyper *groups;
    char *texts; /* the caller's texts, one after the other */
} loading;

static void release(loading *l)
{
    sut_safetensors_close(l->file);
    sut_free(l->ctx, l->used);
    sut_free(l->ctx, l->groups);
    sut_free(l->ctx, l->texts);
}

/* --- stage one: a sound file ---------------------------------------------------------------------------------------- */

static sut_status check_checksum(const loading *l, const unsigned char *bytes, size_t size)
{
    static const char prefix[] = SUT_CHECKSUM_PREFIX, zeros[] = "0000000000000000";
    const size_t after = SUT_CHECKSUM_AT + SUT_CHECKSUM_DIGITS;
    if (size < after || memcmp(bytes + 8, prefix, sizeof prefix - 1) != 0) {
        if (!sut_safetensors_has_metadata(l->file, "suture."))
            SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH,
                     "no optimizer state in %s: it is a safetensors file with %lld tensors that Suture did not write",
                     l->what, (long long)sut_safetensors_count(l->file));
        SUT_FAIL(l->ctx, SUT_ERROR_CORRUPT,
                 "%s is damaged or was written anew by another program: suture.checksum is not at the beginning",
                 l->what);
    }
    sut_crc64 crc;
    sut_crc64_begin(&crc);
    sut_crc64_add(&crc, bytes, SUT_CHECKSUM_AT);
    sut_crc64_add(&crc, zeros, SUT_CHECKSUM_DIGITS);
    sut_crc64_add(&crc, bytes + after, size - after);
    char digits[SUT_CHECKSUM_DIGITS + 1];
    (void)snprintf(digits, sizeof digits, "%016llx", (unsigned long long)sut_crc64_end(&crc));
    if (memcmp(digits, bytes + SUT_CHECKSUM_AT, SUT_CHECKSUM_DIGITS) != 0)
        SUT_FAIL(l->ctx, SUT_ERROR_CORRUPT, "%s is damaged (checksum): its bytes give %s, suture.checksum says %.16s",
                 l->what, digits, (const char *)bytes + SUT_CHECKSUM_AT);
    return SUT_OK;
}

/* --- stage two: the right file -------------------------------------------------------------------------------------- */

static sut_status check_head(loading *l)
{
    const sut_optimizer *opt = l->opt;
    int64_t format, m;
    const char *method;
    SUT_TRY(sut_text_get_int(l->ctx, l->file, "suture.format", 1, INT64_MAX, &format));
    if (format > SUT_CHECKPOINT_FORMAT)
        SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "%s has format %lld; this version of Suture (%s) reads formats up to %d",
                 l->what, (long long)format, sut_version(), SUT_CHECKPOINT_FORMAT);
    if (l->config.only_parameters)
        return SUT_OK;
    SUT_TRY(sut_text_get(l->ctx, l->file, "suture.method", &method));
    if (strcmp(method, opt->row->name) != 0)
        SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "%s was written by %.40s, this optimizer is %s", l->what, method,
                 opt->row->name);
    SUT_TRY(sut_text_get_int(l->ctx, l->file, "suture.n_losses", 1, SUT_MAX_LOSSES, &m));
    if (m != opt->config.n_losses)
        SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "%s was written with %lld losses, this optimizer has %d", l->what,
                 (long long)m, opt->config.n_losses);
    SUT_TRY(sut_text_get_int(l->ctx, l->file, "suture.steps", 0, INT64_MAX, &l->t));
    SUT_TRY(sut_text_get_int(l->ctx, l->file, "suture.skipped_steps", 0, INT64_MAX, &l->skipped));
    SUT_TRY(sut_text_get_int(l->ctx, l->file, "suture.surgery.kept_for", 0, INT64_MAX, &l->kept_for));
    return sut_text_get_unsigned(l->ctx, l->file, "suture.seed", &l->seed);
}

/* What a state is called in a sentence. */
static const char *describe(const char *slot)
{
    static const char *const names[][2] = {
        {"m", "first moment m"},     {"v", "second moment v"},       {"vmax", "largest second moment vmax"},
        {"b", "momentum buffer b"},  {"ga", "averaged gradient ga"}, {"mu_prod", "product of momenta mu_prod"},
        {"step", "step count step"},
    };
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (strcmp(names[k][0], slot) == 0)
            return names[k][1];
    return slot;
}

static const sut_safetensors_entry *find(const loading *l, const char *name)
{
    const sut_safetensors_entry *entry = sut_safetensors_find(l->file, name);
    if (entry != NULL)
        l->used[entry - sut_safetensors_entry_at(l->file, 0)] = true;
    return entry;
}

static const sut_safetensors_entry *find_piece(const loading *l, int64_t tensor, const sut_piece *piece)
{
    char name[SUT_PIECE_NAME_MAX];
    sut_piece_name(l->opt, tensor, piece, name);
    return find(l, name);
}

/* "[2, 3]"; cut when it does not fit. */
static void write_shape(char *text, size_t size, int64_t n_dims, const int64_t *shape)
{
    size_t n = (size_t)snprintf(text, size, "[");
    for (int64_t d = 0; d < n_dims && n < size; d++)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", d ? ", " : "", (long long)shape[d]);
    if (n < size)
        (void)snprintf(text + n, size - n, "]");
}

static bool same_shape(int64_t n_dims, const int64_t *shape, int64_t other_n_dims, const int64_t *other)
{
    if (n_dims != other_n_dims)
        return false;
    for (int64_t d = 0; d < n_dims; d++)
        if (shape[d] != other[d])
            return false;
    return true;
}

static sut_status shape_mismatch(const loading *l, const char *name, int64_t n_dims, const int64_t *shape,
                                 int64_t own_n_dims, const int64_t *own)
{
    char theirs[120], ours[120];
    write_shape(theirs, sizeof theirs, n_dims, shape);
    write_shape(ours, sizeof ours, own_n_dims, own);
    SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "tensor \"%.300s\" has shape %s in %s, and %s here", name, theirs, l->what,
             ours);
}

/* Group, dtype and shape of a tensor. The piece's entry is I64 with one dimension: that much is known. */
static sut_status check_layout(const loading *l, int64_t tensor, const sut_safetensors_entry *entry)
{
    const sut_optimizer_tensor *t = &l->opt->tensor[tensor];
    int64_t number[2 + SUT_MAX_DIMS];
    const int64_t n = entry->shape[0];
    if (n < 2 || n > 2 + SUT_MAX_DIMS)
        SUT_FAIL(l->ctx, SUT_ERROR_CORRUPT, "%s is damaged: layout of tensor \"%.300s\" has %lld numbers", l->what,
                 t->name, (long long)n);
    memcpy(number, entry->data, entry->size);
    if (number[1] != (int64_t)t->dtype) {
        const char *theirs = number[1] >= 0 && number[1] <= INT_MAX ? sut_dtype_name((sut_dtype)number[1]) : NULL;
        SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "tensor \"%.300s\" is %s in %s, and %s here", t->name,
                 theirs ? theirs : "of an unknown dtype", l->what, sut_dtype_name(t->dtype));
    }
    if (!same_shape(n - 2, number + 2, t->n_dims, t->shape))
        return shape_mismatch(l, t->name, n - 2, number + 2, t->n_dims, t->shape);
    if (l->config.restore_settings && !l->config.only_parameters && number[0] != t->group)
        SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "tensor \"%.300s\" is in group %lld in %s, and in group %d here", t->name,
                 (long long)number[0], l->what, t->group);
    return SUT_OK;
}

static sut_status missing_piece(const loading *l, int64_t tensor, const sut_piece *piece)
{
    const char *name = l->opt->tensor[tensor].name;
    switch (piece->kind) {
    case SUT_PIECE_LAYOUT: SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "tensor \"%.300s\" is not in %s", name, l->what);
    case SUT_PIECE_PARAMETER:
        SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "%s of tensor \"%.300s\" is missing from %s%s",
                 strcmp(piece->prefix, "suture.param") == 0 ? "the parameter" : "the f32 master copy", name, l->what,
                 l->config.only_parameters ? "" : "; include_parameters = 0 loads the rest");
    default:
        SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "%s of tensor \"%.300s\" is missing from %s", describe(piece->slot), name,
                 l->what);
    }
}

static sut_status check_piece(const loading *l, int64_t tensor, const sut_piece *piece)
{
    const sut_safetensors_entry *entry = find_piece(l, tensor, piece);
    if (entry == NULL)
        return missing_piece(l, tensor, piece);
    if (entry->dtype != piece->dtype)
        SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "\"%.300s\" is %s in %s, and %s here", entry->name,
                 sut_file_dtype_name(entry->dtype), l->what, sut_file_dtype_name(piece->dtype));
    if (piece->kind == SUT_PIECE_LAYOUT && entry->n_dims == 1)
        return check_layout(l, tensor, entry);
    if (!same_shape(entry->n_dims, entry->shape, piece->n_dims, piece->shape))
        return shape_mismatch(l, entry->name, entry->n_dims, entry->shape, piece->n_dims, piece->shape);
    if (piece->kind == SUT_PIECE_STEP) {
        int64_t steps;
        memcpy(&steps, entry->data, sizeof steps);
        if (steps < 0 || steps > l->t)
            SUT_FAIL(l->ctx, SUT_ERROR_CORRUPT, "%s is damaged: tensor \"%.300s\" made %lld of %lld steps", l->what,
                     l->opt->tensor[tensor].name, (long long)steps, (long long)l->t);
    }
    return SUT_OK;
}

/* State in the file that nothing here asked for: of a tensor or of a kind that this optimizer does not have. */
static sut_status check_leftovers(const loading *l)
{
    static const char prefix[] = "suture.state.";
    for (int64_t k = 0; k < sut_safetensors_count(l->file); k++) {
        const char *name = sut_safetensors_entry_at(l->file, k)->name;
        if (l->used[k] || strncmp(name, prefix, sizeof prefix - 1) != 0)
            continue;
        const char *slot = name + sizeof prefix - 1, *dot = strchr(slot, '.');
        const int length = dot ? (int)(dot - slot) : (int)strlen(slot);
        if (length == 6 && strncmp(slot, "layout", 6) == 0)
            SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "tensor \"%.300s\" of %s is not among those of this optimizer",
                     dot ? dot + 1 : "", l->what);
        bool known = false;
        for (int j = 0; sut_optimizer_state_name(l->opt, j); j++)
            known |= strlen(sut_optimizer_state_name(l->opt, j)) == (size_t)length &&
                     strncmp(slot, sut_optimizer_state_name(l->opt, j), (size_t)length) == 0;
        if (!known && !(length == 4 && strncmp(slot, "step", 4) == 0))
            SUT_FAIL(
                l->ctx, SUT_ERROR_MISMATCH,
                "%s holds the state \"%.*s\", which this optimizer was created without; create it with the settings "
                "that need it (momentum, amsgrad, centered)",
                l->what, length < 40 ? length : 40, slot);
        SUT_FAIL(l->ctx, SUT_ERROR_CORRUPT, "%s is damaged: \"%.300s\" belongs to no tensor", l->what, name);
    }
    return SUT_OK;
}

/* What is copied into the optimizer. */
static bool is_wanted(const loading *l, const sut_piece *piece)
{
    return piece->kind == SUT_PIECE_PARAMETER || (piece->kind != SUT_PIECE_LAYOUT && !l->config.only_parameters);
}

static sut_status check_tensors(loading *l)
{
    const int64_t n = sut_safetensors_count(l->file);
    l->used = sut_alloc(l->ctx, (size_t)n + 1, sizeof *l->used);
    if (l->used == NULL)
        SUT_FAIL(l->ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory to check the %lld tensors of %s", (long long)n, l->what);
    for (int64_t k = 0; k < l->opt->n_tensors; k++) {
        sut_tensor_layout layout;
        sut_piece pieces[SUT_MAX_PIECES];
        const int n_pieces = sut_checkpoint_pieces(l->opt, k, l->config.include_parameters != 0, &layout, pieces);
        for (int j = 0; j < n_pieces; j++)
            if (is_wanted(l, &pieces[j]) || pieces[j].kind == SUT_PIECE_LAYOUT)
                SUT_TRY(check_piece(l, k, &pieces[j]));
    }
    if (l->config.only_parameters)
        return SUT_OK;
    SUT_TRY(check_leftovers(l));
    const sut_safetensors_entry *kept = find(l, "suture.surgery.kept_weights");
    if (kept == NULL || kept->dtype != SUT_FILE_F64 || kept->n_dims != 1 || kept->shape[0] != l->opt->config.n_losses)
        SUT_FAIL(l->ctx, SUT_ERROR_CORRUPT,
                 "%s is damaged: suture.surgery.kept_weights is missing or has another shape", l->what);
    return SUT_OK;
}

/* --- stage two: settings and extras --------------------------------------------------------------------------------- */

static sut_status read_groups(loading *l)
{
    const sut_optimizer *opt = l->opt;
    int64_t n_groups;
    SUT_TRY(sut_text_get_int(l->ctx, l->file, "suture.n_groups", 1, INT_MAX, &n_groups));
    if (n_groups != opt->n_groups)
        SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "%s has %lld parameter groups, this optimizer has %d", l->what,
                 (long long)n_groups, opt->n_groups);
    for (int k = 0; k < opt->n_groups; k++)
        for (const sut_method_parameter *p = opt->row->parameter; p->name; p++) {
            char key[64];
            double value;
            (void)snprintf(key, sizeof key, "suture.group.%d.%s", k, p->name);
            SUT_TRY(sut_text_get_double(l->ctx, l->file, key, &value));
            if (sut_hyper_set(&l->groups[k], opt->row->method, p->name, value) != SUT_OK)
                SUT_FAIL(l->ctx, SUT_ERROR_CORRUPT, "%s is damaged: \"%s\" is %g, which is outside its range", l->what,
                         key, value);
        }
    return SUT_OK;
}

/* The settings go through the setters of a copy; its members that are pointers are shared but not written to. */
static sut_status try_settings(const loading *l)
{
    sut_optimizer trial = *l->opt;
    trial.group = l->groups;
    trial.config = l->settings;
    SUT_TRY(sut_surgery_validate(l->ctx, &l->settings.surgery, l->settings.n_losses));
    SUT_TRY(sut_optimizer_set_align(&trial, l->settings.align, l->settings.rho_m, l->settings.rho_v));
    for (int k = 0; k < trial.n_groups; k++)
        SUT_TRY(sut_optimizer_set_hyper(&trial, k, &l->groups[k]));
    return SUT_OK;
}

static sut_status read_settings(loading *l)
{
    const size_t n = (size_t)l->opt->n_groups;
    l->settings = l->opt->config;
    l->groups = sut_alloc(l->ctx, n, sizeof *l->groups);
    if (l->groups == NULL)
        SUT_FAIL(l->ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for the settings of %zu parameter groups", n);
    memcpy(l->groups, l->opt->group, n * sizeof *l->groups);
    if (!l->config.restore_settings) {
        /* Weights that another surgery left behind would be used in place of this one's. */
        const char *method;
        SUT_TRY(sut_text_get(l->ctx, l->file, "suture.surgery.method", &method));
        if (strcmp(method, sut_surgery_method_name(l->settings.surgery.method)) != 0)
            l->kept_for = 0;
        l->seed = l->opt->seed;
        return SUT_OK;
    }
    SUT_TRY(sut_settings_get(l->ctx, l->file, &l->settings));
    SUT_TRY(read_groups(l));
    const sut_status status = try_settings(l);
    if (status == SUT_OK || status == SUT_ERROR_OUT_OF_MEMORY)
        return status;
    char reason[500];
    (void)snprintf(reason, sizeof reason, "%s", sut_context_last_error(l->ctx));
    SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "the settings in %s do not fit this optimizer: %s", l->what, reason);
}

static sut_status check_extra_tensors(const loading *l)
{
    for (int k = 0; k < l->config.n_tensors; k++) {
        const sut_extra_tensor *t = &l->config.tensors[k];
        const sut_safetensors_entry *entry = find(l, t->name);
        if (entry == NULL)
            SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "the extra tensor \"%s\" is not in %s", t->name, l->what);
        if (entry->dtype != sut_file_dtype_of(t->dtype))
            SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "the extra tensor \"%s\" is %s in %s, and %s here", t->name,
                     sut_file_dtype_name(entry->dtype), l->what, sut_file_dtype_name(sut_file_dtype_of(t->dtype)));
        if (!same_shape(entry->n_dims, entry->shape, t->n_dims, t->shape))
            return shape_mismatch(l, t->name, entry->n_dims, entry->shape, t->n_dims, t->shape);
    }
    return SUT_OK;
}

static sut_status copy_extra_texts(loading *l)
{
    size_t bytes = 1;
    for (int k = 0; k < l->config.n_texts; k++) {
        const char *text = sut_safetensors_metadata(l->file, l->config.texts[k].key);
        if (text == NULL)
            SUT_FAIL(l->ctx, SUT_ERROR_MISMATCH, "the extra text \"%.200s\" is not in %s", l->config.texts[k].key,
                     l->what);
        bytes += strlen(text) + 1;
    }
    l->texts = sut_alloc(l->ctx, bytes, 1);
    if (l->texts == NULL)
        SUT_FAIL(l->ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes of texts from %s", bytes, l->what);
    char *at = l->texts;
    for (int k = 0; k < l->config.n_texts; k++) {
        const char *text = sut_safetensors_metadata(l->file, l->config.texts[k].key);
        memcpy(at, text, strlen(text) + 1);
        at += strlen(text) + 1;
    }
    return SUT_OK;
}

/* --- stage three: nothing here can fail, a device that is lost apart ---------------------------------------------------- */

static void take_over_state(loading *l)
{
    sut_optimizer *opt = l->opt;
    const sut_safetensors_entry *kept = find(l, "suture.surgery.kept_weights");
    memcpy(opt->algebra.kept_weights, kept->data, kept->size);
    opt->algebra.kept_for = l->kept_for;
    opt->t = l->t;
    opt->skipped = l->skipped;
    opt->config = l->settings;
    memcpy(opt->group, l->groups, (size_t)opt->n_groups * sizeof *opt->group);
    opt->seed = l->seed;
}

static sut_status take_over(loading *l)
{
    sut_optimizer *opt = l->opt;
    for (int64_t k = 0; k < opt->n_tensors; k++) {
        sut_tensor_layout layout;
        sut_piece pieces[SUT_MAX_PIECES];
        const int n_pieces = sut_checkpoint_pieces(opt, k, l->config.include_parameters != 0, &layout, pieces);
        for (int j = 0; j < n_pieces; j++) {
            if (!is_wanted(l, &pieces[j]))
                continue;
            const sut_safetensors_entry *entry = find_piece(l, k, &pieces[j]);
            if (entry->size > 0 && pieces[j].is_host)
                memcpy(pieces[j].data, entry->data, entry->size);
            else if (entry->size > 0)
                SUT_TRY(l->ctx->ops->upload(l->ctx, pieces[j].data, entry->data, entry->size));
        }
    }
    if (!l->config.only_parameters)
        take_over_state(l);

    for (int k = 0; k < l->config.n_tensors; k++) {
        const sut_safetensors_entry *entry = find(l, l->config.tensors[k].name);
        if (entry->size > 0)
            memcpy(l->config.tensors[k].data, entry->data, entry->size);
    }
    if (l->config.n_texts > 0) {
        sut_free(l->ctx, l->ctx->loaded_text);
        l->ctx->loaded_text = l->texts;
        const char *at = l->texts;
        for (int k = 0; k < l->config.n_texts; k++) {
            l->config.texts[k].value = at;
            at += strlen(at) + 1;
        }
        l->texts = NULL;
    }
    return SUT_OK;
}

static sut_status load(loading *l, const void *bytes, size_t size)
{
    SUT_TRY(sut_safetensors_open(l->ctx, l->what, bytes, size, &l->file));
    SUT_TRY(check_checksum(l, bytes, size));
    SUT_TRY(check_head(l));
    SUT_TRY(check_tensors(l));
    if (!l->config.only_parameters)
        SUT_TRY(read_settings(l));
    SUT_TRY(check_extra_tensors(l));
    SUT_TRY(copy_extra_texts(l));
    SUT_TRY(take_over(l));
    return sut_optimizer_push(l->opt);
}

static sut_status begin(loading *l, sut_optimizer *opt, const char *what, const sut_checkpoint_config *config)
{
    *l = (loading){.ctx = opt->ctx, .opt = opt, .what = what};
    if (opt->pending)
        SUT_FAIL(l->ctx, SUT_ERROR_SEQUENCE, "no state can be loaded now: a proposal waits for sut_optimizer_apply()");
    SUT_TRY(sut_optimizer_pull(opt));
    return sut_checkpoint_config_read(l->ctx, config, false, &l->config);
}

sut_status sut_optimizer_load_memory(sut_optimizer *opt, const void *data, size_t size,
                                     const sut_checkpoint_config *config)
{
    if (opt == NULL)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (data == NULL)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "sut_optimizer_load_memory: data is NULL");
    loading l;
    SUT_TRY(begin(&l, opt, "the buffer", config));
    const sut_status status = load(&l, data, size);
    release(&l);
    return status;
}

sut_status sut_optimizer_load(sut_optimizer *opt, const char *path, const sut_checkpoint_config *config)
{
    if (opt == NULL)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (path == NULL)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "sut_optimizer_load: path is NULL");
    loading l;
    void *bytes;
    size_t size;
    SUT_TRY(begin(&l, opt, path, config));
    SUT_TRY(sut_file_read(opt->ctx, path, sut_safetensors_probe, &bytes, &size));
    const sut_status status = load(&l, bytes, size);
    release(&l);
    sut_free(opt->ctx, bytes);
    return status;
}
