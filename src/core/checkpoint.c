/*
 * What saving and loading share: the pieces of a tensor, and the caller's configuration.
 */
#include "core/checkpoint.h"

#include <stdio.h>
#include <string.h>

void sut_checkpoint_config_init_sized(sut_checkpoint_config *config, size_t struct_size)
{
    if (config == NULL || struct_size < sizeof config->struct_size)
        return;
    sut_checkpoint_config defaults;
    memset(&defaults, 0, sizeof defaults);
    defaults.include_parameters = 1;
    defaults.restore_settings = 1;
    memset(config, 0, struct_size);
    memcpy(config, &defaults, struct_size < sizeof defaults ? struct_size : sizeof defaults);
    config->struct_size = struct_size;
}

int sut_checkpoint_pieces(sut_optimizer *opt, int64_t tensor, bool parameters, sut_tensor_layout *layout,
                          sut_piece pieces[SUT_MAX_PIECES])
{
    sut_optimizer_tensor *t = &opt->tensor[tensor];
    layout->size = 2 + t->n_dims;
    layout->number[0] = t->group;
    layout->number[1] = t->dtype;
    memcpy(layout->number + 2, t->shape, (size_t)t->n_dims * sizeof *t->shape);

    const sut_file_dtype own = t->dtype == SUT_DTYPE_F64 ? SUT_FILE_F64 : SUT_FILE_F32;
    const char *const state = "suture.state.";
    int n = 0;
    pieces[n++] = (sut_piece){SUT_PIECE_LAYOUT, state, "layout", SUT_FILE_I64, 1, &layout->size, layout->number, true};
    pieces[n++] = (sut_piece){SUT_PIECE_STEP, state, "step", SUT_FILE_I64, 0, NULL, &t->t, true};
    for (int slot = 0; slot < SUT_MAX_SLOTS; slot++)
        if (opt->slots >> slot & 1)
            pieces[n++] = (sut_piece){.kind = SUT_PIECE_STATE,
                                      .prefix = state,
                                      .slot = opt->row->slot[slot],
                                      .dtype = own,
                                      .n_dims = t->n_dims,
                                      .shape = t->shape,
                                      .data = sut_optimizer_slot(opt, slot, tensor)};
    if (opt->row->rule == SUT_RULE_NADAM)
        pieces[n++] = (sut_piece){SUT_PIECE_STATE, state, "mu_prod", SUT_FILE_F64, 0, NULL, &t->mu_prod, true};
    if (!parameters)
        return n;
    pieces[n++] = (sut_piece){.kind = SUT_PIECE_PARAMETER,
                              .prefix = "suture.param",
                              .dtype = sut_file_dtype_of(t->dtype),
                              .n_dims = t->n_dims,
                              .shape = t->shape,
                              .data = opt->pass_tensor[tensor].param};
    if (t->dtype == SUT_DTYPE_BF16 || t->dtype == SUT_DTYPE_F16)
        pieces[n++] = (sut_piece){.kind = SUT_PIECE_PARAMETER,
                                  .prefix = "suture.master",
                                  .dtype = SUT_FILE_F32,
                                  .n_dims = t->n_dims,
                                  .shape = t->shape,
                                  .data = sut_optimizer_slot(opt, SUT_MAX_SLOTS, tensor)};
    return n;
}

void sut_piece_name(const sut_optimizer *opt, int64_t tensor, const sut_piece *piece, char name[SUT_PIECE_NAME_MAX])
{
    (void)snprintf(name, SUT_PIECE_NAME_MAX, "%s%s.%s", piece->prefix, piece->slot ? piece->slot : "",
                   opt->tensor[tensor].name);
}

/* --- the caller's configuration ------------------------------------------------------------------------------------- */

static sut_status check_flag(sut_context *ctx, const char *name, int value)
{
    if (value != 0 && value != 1)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "checkpoint: %s is %d; it must be 0 or 1", name, value);
    return SUT_OK;
}

static sut_status check_tensor(sut_context *ctx, const sut_extra_tensor *t, int index)
{
    if (t->name == NULL || t->name[0] == '\0' || strlen(t->name) > 200)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "extra tensor %d: its name must have 1 to 200 bytes", index);
    if (strncmp(t->name, "suture.", 7) == 0 || strcmp(t->name, "__metadata__") == 0)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "extra tensor %d: the name \"%s\" is reserved", index, t->name);
    if (sut_dtype_name(t->dtype) == NULL)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "extra tensor \"%s\": dtype %d is unknown", t->name, (int)t->dtype);
    if (t->n_dims < 0 || t->n_dims > SUT_MAX_DIMS)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "extra tensor \"%s\": n_dims is %d; allowed: 0 to %d", t->name,
                 t->n_dims, SUT_MAX_DIMS);
    bool empty = false;
    for (int d = 0; d < t->n_dims; d++) {
        if (t->shape[d] < 0)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "extra tensor \"%s\": shape[%d] is %lld; it must be >= 0",
                     t->name, d, (long long)t->shape[d]);
        empty |= t->shape[d] == 0;
    }
    if (t->data == NULL && !empty)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "extra tensor \"%s\": data is NULL", t->name);
    return SUT_OK;
}

static sut_status check_text(sut_context *ctx, const sut_extra_text *t, int index, bool saving)
{
    if (t->key == NULL || t->key[0] == '\0')
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "extra text %d has no key", index);
    if (strncmp(t->key, "suture.", 7) == 0)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "extra text %d: the key \"%.200s\" is reserved", index, t->key);
    if (saving && t->value == NULL)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "extra text \"%.200s\": value is NULL", t->key);
    return SUT_OK;
}

sut_status sut_checkpoint_config_read(sut_context *ctx, const sut_checkpoint_config *given, bool saving,
                                      sut_checkpoint_config *complete)
{
    sut_checkpoint_config_init(complete);
    if (given == NULL)
        return SUT_OK;
    SUT_TRY(sut_read_struct(ctx, "sut_checkpoint_config", complete, sizeof *complete, given));
    SUT_TRY(check_flag(ctx, "include_parameters", complete->include_parameters));
    SUT_TRY(check_flag(ctx, "restore_settings", complete->restore_settings));
    SUT_TRY(check_flag(ctx, "only_parameters", complete->only_parameters));
    if (complete->only_parameters && !complete->include_parameters)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT,
                 "checkpoint: only_parameters is 1 and include_parameters is 0: nothing would be left");
    if (complete->n_tensors < 0 || (complete->n_tensors > 0 && complete->tensors == NULL))
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "checkpoint: n_tensors is %d and tensors is %s", complete->n_tensors,
                 complete->tensors ? "given" : "NULL");
    if (complete->n_texts < 0 || (complete->n_texts > 0 && complete->texts == NULL))
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "checkpoint: n_texts is %d and texts is %s", complete->n_texts,
                 complete->texts ? "given" : "NULL");
    for (int k = 0; k < complete->n_tensors; k++)
        SUT_TRY(check_tensor(ctx, &complete->tensors[k], k));
    for (int k = 0; k < complete->n_texts; k++)
        SUT_TRY(check_text(ctx, &complete->texts[k], k, saving));
    return SUT_OK;
}
