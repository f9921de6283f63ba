/*
 * Looking inside an optimizer: settings, tensors, state, counts, memory. Nothing here changes anything.
 */
#include "optim/optimizer.h"

#include <stdio.h>
#include <string.h>

sut_context *sut_optimizer_context(const sut_optimizer *opt)
{
    return opt ? opt->ctx : NULL;
}

sut_status sut_optimizer_get_config(const sut_optimizer *opt, sut_optimizer_config *config_out)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (!config_out)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "sut_optimizer_get_config: config_out is NULL");
    const size_t size = config_out->struct_size;
    if (size < sizeof size || size > sizeof *config_out)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT,
                 "sut_optimizer_get_config: struct_size is %zu; fill the struct in with sut_optimizer_config_init()",
                 size);
    sut_optimizer_config full = opt->config;
    full.struct_size = size;
    full.n_tensors = opt->n_tensors;
    full.n_groups = opt->n_groups;
    full.hyper = opt->group[0];
    memcpy(config_out, &full, size);
    return SUT_OK;
}

sut_status sut_optimizer_get_tensor(const sut_optimizer *opt, int64_t tensor, sut_tensor *tensor_out)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (!tensor_out)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "sut_optimizer_get_tensor: tensor_out is NULL");
    if (tensor < 0 || tensor >= opt->n_tensors)
        SUT_FAIL(opt->ctx, SUT_ERROR_OUT_OF_RANGE, "tensor is %lld; there are %lld tensors", (long long)tensor,
                 (long long)opt->n_tensors);
    const sut_optimizer_tensor *const t = &opt->tensor[tensor];
    *tensor_out = (sut_tensor){.data = opt->pass_tensor[tensor].param,
                               .dtype = t->dtype,
                               .n_dims = t->n_dims,
                               .group = t->group,
                               .name = t->name};
    memcpy(tensor_out->shape, t->shape, sizeof t->shape);
    return SUT_OK;
}

sut_status sut_optimizer_get_lr(const sut_optimizer *opt, int group, double *lr_out)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (!lr_out)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "sut_optimizer_get_lr: lr_out is NULL");
    if (group < 0 || group >= opt->n_groups)
        SUT_FAIL(opt->ctx, SUT_ERROR_OUT_OF_RANGE, "group is %d; there are %d groups", group, opt->n_groups);
    SUT_TRY(sut_optimizer_pull((sut_optimizer *)opt)); /* what is known, not what is */
    *lr_out = sut_group_rate(&opt->config, &opt->group[group], sut_scheduled_rate(&opt->config, opt->t));
    return SUT_OK;
}

int64_t sut_optimizer_steps(const sut_optimizer *opt)
{
    if (opt)
        (void)sut_optimizer_pull((sut_optimizer *)opt); /* on failure: what was known last */
    return opt ? opt->t : 0;
}

int64_t sut_optimizer_tensor_steps(const sut_optimizer *opt, int64_t tensor)
{
    if (opt)
        (void)sut_optimizer_pull((sut_optimizer *)opt);
    return opt && tensor >= 0 && tensor < opt->n_tensors ? opt->tensor[tensor].t : -1;
}

int64_t sut_optimizer_skipped_steps(const sut_optimizer *opt)
{
    if (opt)
        (void)sut_optimizer_pull((sut_optimizer *)opt); /* on failure: what was known last */
    return opt ? opt->skipped : 0;
}

void *sut_optimizer_slot(sut_optimizer *opt, int slot, int64_t tensor)
{
    const sut_pass_tensor *const p = &opt->pass_tensor[tensor];
    if (slot == SUT_MAX_SLOTS)
        return p->theta != p->param ? p->theta : NULL;
    return p->state[slot];
}

const char *sut_optimizer_state_name(const sut_optimizer *opt, int index)
{
    if (!opt || index < 0)
        return NULL;
    for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
        if ((opt->slots >> slot & 1) && index-- == 0)
            return opt->row->slot[slot];
    bool masters = false;
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        masters = masters || sut_is_low_precision(opt->tensor[k].dtype);
    if (masters && index-- == 0)
        return "master";
    if (opt->row->rule == SUT_RULE_NADAM && index == 0)
        return "mu_prod";
    return NULL;
}

sut_status sut_optimizer_state(sut_optimizer *opt, const char *slot, int64_t tensor, void **data_out,
                               sut_dtype *dtype_out, int64_t *count_out)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (!slot || !data_out)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "sut_optimizer_state: %s is NULL", slot ? "data_out" : "slot");
    if (tensor < 0 || tensor >= opt->n_tensors)
        SUT_FAIL(opt->ctx, SUT_ERROR_OUT_OF_RANGE, "tensor is %lld; there are %lld tensors", (long long)tensor,
                 (long long)opt->n_tensors);
    sut_optimizer_tensor *const t = &opt->tensor[tensor];
    if (opt->row->rule == SUT_RULE_NADAM && !strcmp(slot, "mu_prod")) {
        SUT_TRY(sut_optimizer_pull(opt));
        *data_out = &t->mu_prod;
        if (dtype_out)
            *dtype_out = SUT_DTYPE_F64;
        if (count_out)
            *count_out = 1;
        return SUT_OK;
    }
    for (int k = 0; k <= SUT_MAX_SLOTS; ++k) {
        const char *const name = k == SUT_MAX_SLOTS ? "master" : opt->row->slot[k];
        const bool exists = k == SUT_MAX_SLOTS ? sut_is_low_precision(t->dtype) : opt->slots >> k & 1;
        if (!name || strcmp(name, slot) != 0 || !exists)
            continue;
        *data_out = sut_optimizer_slot(opt, k, tensor);
        if (dtype_out)
            *dtype_out = t->dtype == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
        if (count_out)
            *count_out = t->count;
        return SUT_OK;
    }
    char known[64] = "";
    for (int index = 0; sut_optimizer_state_name(opt, index); ++index)
        (void)snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", index ? ", " : "",
                       sut_optimizer_state_name(opt, index));
    SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "%s has no state \"%.60s\" for tensor \"%.200s\"; it has: %s",
             opt->row->name, slot, t->name, known[0] ? known : "none");
}

sut_status sut_optimizer_memory(const sut_optimizer *opt, size_t *state_out, size_t *workspace_out)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (state_out)
        *state_out = opt->state_bytes;
    if (workspace_out)
        *workspace_out = opt->workspace_bytes + opt->ctx->scratch_size * sizeof(double);
    return SUT_OK;
}
