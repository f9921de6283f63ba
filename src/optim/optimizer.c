/*
 * Optimizers: creation and settings. The step itself is in step.c, looks at what is inside in inspect.c.
 */
#include "optim/optimizer.h"

#include "core/utf8.h"
#include "surgery/surgery.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beginnings of the slots of each tensor are aligned to this many bytes. */
#define SUT_SLOT_ALIGNMENT 64

void sut_optimizer_config_init_sized(sut_optimizer_config *config, size_t struct_size, sut_optimizer_method method)
{
    sut_optimizer_config defaults;
    memset(&defaults, 0, sizeof defaults);
    defaults.struct_size = struct_size;
    defaults.method = method;
    (void)sut_hyper_init(&defaults.hyper, method);
    defaults.n_losses = 1;
    sut_surgery_config_init(&defaults.surgery, SUT_SURGERY_SUM);
    defaults.align = SUT_ALIGN_NONE;
    defaults.metric = SUT_METRIC_NATURAL;
    defaults.rho_m = 0.1;
    defaults.rho_v = 0.03;
    defaults.conflict_cos_tol = 1e-6;
    defaults.correction_distance_tol = 1e-8;
    defaults.check = SUT_CHECK_GRADIENTS;
    sut_schedule_init(&defaults.schedule, SUT_SCHEDULE_CONSTANT);
    if (!config)
        return;
    memset(config, 0, struct_size);
    memcpy(config, &defaults, struct_size < sizeof defaults ? struct_size : sizeof defaults);
}

void sut_report_init_sized(sut_report *report, size_t struct_size)
{
    if (!report)
        return;
    memset(report, 0, struct_size);
    report->struct_size = struct_size;
}

/* ---- checks ---- */

/* Names go into state files, whose texts are UTF-8, and into error texts. NULL: there is none. */
static sut_status check_name(sut_context *ctx, const char *label, const char *name)
{
    if (name && (name[0] == '\0' || strlen(name) > SUT_MAX_NAME))
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "%s: its name has %zu bytes; a name has 1 to %d", label, strlen(name),
                 SUT_MAX_NAME);
    if (name && !sut_is_utf8(name))
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "%s: its name is not valid UTF-8", label);
    return SUT_OK;
}

static sut_status check_tensor(sut_context *ctx, const sut_tensor *t, int64_t index, int n_groups, int64_t *count_out)
{
    char label[200];
    (void)snprintf(label, sizeof label, "tensor %lld (\"%.120s\")", (long long)index, t->name ? t->name : "");
    if (!sut_dtype_name(t->dtype))
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "%s: dtype %d is not a value of sut_dtype", label, (int)t->dtype);
    if (t->n_dims < 0 || t->n_dims > SUT_MAX_DIMS)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "%s: n_dims is %d; it must lie in [0, %d]", label, t->n_dims,
                 SUT_MAX_DIMS);
    int64_t count = 1;
    bool empty = false;
    for (int d = 0; d < t->n_dims; ++d) {
        if (t->shape[d] < 0)
            SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "%s: shape[%d] is %lld; it must be >= 0", label, d,
                     (long long)t->shape[d]);
        empty = empty || t->shape[d] == 0;
    }
    for (int d = 0; d < t->n_dims && !empty; ++d)
        if (__builtin_mul_overflow(count, t->shape[d], &count) || count > INT64_MAX / 16)
            SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "%s: the number of elements overflows 64 bits", label);
    if (empty)
        count = 0;
    if (count > 0 && !t->data)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "%s: data is NULL", label);
    if (count > 0 && (uintptr_t)t->data % sut_dtype_size(t->dtype) != 0)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "%s: data is not aligned to its %zu-byte elements", label,
                 sut_dtype_size(t->dtype));
    if (t->group < 0 || t->group >= n_groups)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "%s: group is %d; there are %d groups", label, t->group, n_groups);
    SUT_TRY(check_name(ctx, label, t->name));
    *count_out = count;
    return SUT_OK;
}

/* Checks that alignment makes of a rule's settings (docs/optimizers.md). */
static sut_status check_alignment(sut_context *ctx, const sut_method_row *row, const sut_hyper *h, int group,
                                  sut_align align, double rho_m)
{
    if (align != SUT_ALIGN_GUA || rho_m == 0)
        return SUT_OK;
    if (row->rule == SUT_RULE_SGD && h->nesterov && h->momentum < 0.05)
        SUT_FAIL(ctx, SUT_ERROR_UNSUPPORTED,
                 "group %d: realigning Nesterov momentum divides by momentum, which is %g; use momentum >= 0.05 or "
                 "rho_m = 0",
                 group, h->momentum);
    if (row->rule == SUT_RULE_LION && h->beta1 == 0)
        SUT_FAIL(ctx, SUT_ERROR_UNSUPPORTED, "group %d: realigning Lion divides by beta1, which is 0; use rho_m = 0",
                 group);
    return SUT_OK;
}

static sut_status check_choice(sut_context *ctx, const char *name, int value, int count)
{
    if (value < 0 || value >= count)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "%s is %d; it must lie in [0, %d]", name, value, count - 1);
    return SUT_OK;
}

static sut_status check_settings(sut_context *ctx, const sut_optimizer_config *c)
{
    SUT_TRY(check_choice(ctx, "maximize", c->maximize, 2));
    SUT_TRY(check_choice(ctx, "align", (int)c->align, 2));
    SUT_TRY(check_choice(ctx, "metric", (int)c->metric, 2));
    SUT_TRY(check_choice(ctx, "check", (int)c->check, 3));
    SUT_TRY(check_choice(ctx, "strict", c->strict, 2));
    SUT_TRY(check_choice(ctx, "realign_raw", c->realign_raw, 2));
    SUT_TRY(check_choice(ctx, "use_schedule", c->use_schedule, 2));
    SUT_TRY(sut_check_range(ctx, "rho_m", c->rho_m, 0, false, 1, false));
    SUT_TRY(sut_check_range(ctx, "rho_v", c->rho_v, 0, false, 1, false));
    SUT_TRY(sut_check_range(ctx, "clip_norm", c->clip_norm, 0, false, HUGE_VAL, false));
    SUT_TRY(sut_check_range(ctx, "conflict_cos_tol", c->conflict_cos_tol, 0, false, 1, true));
    SUT_TRY(sut_check_range(ctx, "correction_distance_tol", c->correction_distance_tol, 0, false, HUGE_VAL, false));
    if (c->use_schedule) {
        double rate;
        SUT_TRY(sut_schedule_lr(ctx, &c->schedule, 0, &rate));
        if (c->schedule.peak == 0)
            SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "schedule: peak is 0; an optimizer's schedule needs peak > 0");
    }
    return SUT_OK;
}

/*
 * f32 arithmetic, that of every tensor but f64 ones, must be able to hold the settings of a group: a rate that rounds to Inf
 * would write Inf into the parameters.
 */
static sut_status check_f32(const sut_optimizer *opt, int group, const sut_hyper *h, const sut_optimizer_config *c)
{
    bool single = false;
    for (int64_t k = 0; k < opt->n_tensors && !single; ++k)
        single = opt->tensor[k].group == group && opt->tensor[k].count > 0 && opt->tensor[k].dtype != SUT_DTYPE_F64;
    if (!single)
        return SUT_OK;
    SUT_TRY(sut_hyper_check_f32(opt->ctx, opt->row, h, group));
    const double grows =
        c->use_schedule && c->schedule.final_lr > c->schedule.peak ? c->schedule.final_lr / c->schedule.peak : 1;
    if (h->lr * grows > FLT_MAX)
        SUT_FAIL(opt->ctx, SUT_ERROR_OUT_OF_RANGE,
                 "the schedule takes lr of group %d to %g; its f32 arithmetic holds at most %g", group, h->lr * grows,
                 FLT_MAX);
    return SUT_OK;
}

static sut_status check_groups_f32(const sut_optimizer *opt, const sut_optimizer_config *c)
{
    for (int k = 0; k < opt->n_groups; ++k)
        SUT_TRY(check_f32(opt, k, &opt->group[k], c));
    return SUT_OK;
}

static int by_value(const void *a, const void *b)
{
    const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

/* Parameters in memory, as sorted pairs of beginning and end; refuses any overlap. Pairs stay pairs when sorted only if they are
 * disjoint, which is what is checked. */
static sut_status check_overlaps(sut_context *ctx, sut_optimizer *opt)
{
    int64_t n = 0;
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        if (opt->tensor[k].count > 0) {
            opt->range[2 * n] = (uintptr_t)opt->pass_tensor[k].param;
            opt->range[2 * n + 1] =
                opt->range[2 * n] + (uintptr_t)opt->tensor[k].count * sut_dtype_size(opt->tensor[k].dtype);
            ++n;
        }
    opt->n_ranges = n;
    qsort(opt->range, (size_t)n, 2 * sizeof *opt->range, by_value);
    for (int64_t k = 0; k + 1 < n; ++k) {
        if (opt->range[2 * k + 1] <= opt->range[2 * k + 2])
            continue;
        int64_t first = -1, second = -1;
        for (int64_t j = 0; j < opt->n_tensors; ++j) {
            if (opt->tensor[j].count == 0)
                continue;
            const uintptr_t at = (uintptr_t)opt->pass_tensor[j].param;
            if (at == opt->range[2 * k] && first < 0)
                first = j;
            else if (at == opt->range[2 * k + 2] && second < 0)
                second = j;
        }
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT,
                 "tensors \"%s\" and \"%s\" share memory: each parameter is listed once",
                 opt->tensor[first < 0 ? 0 : first].name, opt->tensor[second < 0 ? first : second].name);
    }
    return SUT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static sut_status check_names(sut_context *ctx, const sut_optimizer *opt)
{
    const char **const sorted = sut_alloc(ctx, (size_t)opt->n_tensors, sizeof *sorted);
    if (!sorted)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for the names of %lld tensors", (long long)opt->n_tensors);
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        sorted[k] = opt->tensor[k].name;
    qsort(sorted, (size_t)opt->n_tensors, sizeof *sorted, by_name);
    sut_status status = SUT_OK;
    for (int64_t k = 0; k + 1 < opt->n_tensors && status == SUT_OK; ++k)
        if (!strcmp(sorted[k], sorted[k + 1]))
            status = sut_fail(ctx, SUT_ERROR_INVALID_ARGUMENT, "two tensors are named \"%s\": names must be unique",
                              sorted[k]);
    sut_free(ctx, sorted);
    return status;
}

sut_status sut_step_find_bad_parameter(sut_context *ctx, const sut_layout *layout, const sut_pass_tensor *tensors,
                                       int64_t *tensor_out, int64_t *index_out)
{
    *tensor_out = *index_out = -1;
    for (int64_t k = 0; k < layout->n_tensors; ++k) {
        const sut_dtype own = layout->dtype[k] == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
        if (layout->count[k])
            SUT_TRY(ctx->ops->find_nonfinite(ctx, tensors[k].theta, layout->count[k], own, index_out));
        if (*index_out >= 0) {
            *tensor_out = k;
            break;
        }
    }
    return SUT_OK;
}

/* ---- creation ---- */

/* What the algebra is told once. */
static void start_algebra(sut_optimizer *opt)
{
    sut_algebra *const a = &opt->algebra;
    a->config = &opt->config;
    a->m = opt->config.n_losses;
    a->n_elements = opt->layout.n_elements;
    a->only_f64 = sut_layout_is_f64(&opt->layout);
    a->f64_elements = true;
    a->scans = !opt->ctx->ops->drive_create;
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        a->f64_elements = a->f64_elements && (!opt->tensor[k].count || opt->layout_dtype[k] == SUT_DTYPE_F64);
}

/* The master copies of low-precision parameters, from these. */
static sut_status load_masters(const sut_optimizer *opt)
{
    for (int64_t k = 0; k < opt->n_tensors; ++k) {
        const sut_pass_tensor *const p = &opt->pass_tensor[k];
        const sut_optimizer_tensor *const t = &opt->tensor[k];
        if (p->theta != p->param)
            SUT_TRY(opt->ctx->ops->convert(opt->ctx, p->theta, SUT_DTYPE_F32, p->param, t->dtype, t->count));
    }
    return SUT_OK;
}

static void *take(sut_context *ctx, sut_optimizer *opt, size_t count, size_t size)
{
    opt->workspace_bytes += count * size;
    return sut_alloc(ctx, count, size);
}

/* Names of tensors and losses in one block of memory. */
static bool copy_names(sut_context *ctx, sut_optimizer *opt, const sut_optimizer_config *c)
{
    size_t bytes = 0;
    for (int64_t k = 0; k < c->n_tensors; ++k)
        bytes += c->tensors[k].name ? strlen(c->tensors[k].name) + 1 : 32;
    if (c->loss_names)
        for (int i = 0; i < c->n_losses; ++i)
            bytes += c->loss_names[i] ? strlen(c->loss_names[i]) + 1 : 0;
    opt->names = take(ctx, opt, bytes, 1);
    opt->tensor_name = take(ctx, opt, (size_t)c->n_tensors, sizeof *opt->tensor_name);
    if (!opt->names || !opt->tensor_name)
        return false;
    char *at = opt->names;
    for (int64_t k = 0; k < c->n_tensors; ++k) {
        opt->tensor[k].name = opt->tensor_name[k] = at;
        if (c->tensors[k].name)
            at = stpcpy(at, c->tensors[k].name) + 1;
        else
            at += snprintf(at, 32, "param.%lld", (long long)k) + 1;
    }
    if (c->loss_names) {
        opt->loss_name = take(ctx, opt, (size_t)c->n_losses, sizeof *opt->loss_name);
        if (!opt->loss_name)
            return false;
        for (int i = 0; i < c->n_losses; ++i)
            if (c->loss_names[i]) {
                opt->loss_name[i] = at;
                at = stpcpy(at, c->loss_names[i]) + 1;
            }
    }
    return true;
}

/* State slots and master copies: one allocation, each tensor's part aligned. */
static sut_status make_state(sut_context *ctx, sut_optimizer *opt)
{
    size_t total = 0;
    for (int pass = 0; pass < 2; ++pass) {
        char *at = opt->state_memory;
        for (int slot = 0; slot <= SUT_MAX_SLOTS; ++slot)
            for (int64_t k = 0; k < opt->n_tensors; ++k) {
                const bool master = slot == SUT_MAX_SLOTS;
                if (opt->tensor[k].count == 0 ||
                    (master ? !sut_is_low_precision(opt->tensor[k].dtype) : !(opt->slots >> slot & 1)))
                    continue;
                const size_t size = opt->tensor[k].dtype == SUT_DTYPE_F64 ? 8 : 4;
                const size_t bytes = ((size_t)opt->tensor[k].count * size + SUT_SLOT_ALIGNMENT - 1) /
                                     SUT_SLOT_ALIGNMENT * SUT_SLOT_ALIGNMENT;
                if (pass == 0) {
                    if (__builtin_add_overflow(total, bytes, &total))
                        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "the bytes of the optimizer state overflow 64 bits");
                    continue;
                }
                if (master)
                    opt->pass_tensor[k].theta = at;
                else
                    opt->pass_tensor[k].state[slot] = at;
                at += bytes;
            }
        if (pass == 0) {
            opt->state_bytes = total;
            const sut_status status = ctx->ops->allocate(ctx, total, &opt->state_memory);
            if (status == SUT_ERROR_OUT_OF_MEMORY)
                SUT_FAIL(ctx, status, "no memory for %zu bytes of optimizer state", total);
            SUT_TRY(status);
        }
    }
    return SUT_OK;
}

/* Adagrad's accumulator starts at a value of its own. */
static sut_status fill_state(sut_optimizer *opt)
{
    for (int64_t k = 0; k < opt->n_tensors; ++k) {
        const sut_optimizer_tensor *const t = &opt->tensor[k];
        opt->tensor[k].mu_prod = 1;
        const double start = opt->group[t->group].initial_accumulator_value;
        if (opt->row->rule != SUT_RULE_ADAGRAD || start == 0)
            continue;
        SUT_TRY(opt->ctx->ops->fill(opt->ctx, opt->pass_tensor[k].state[0], t->count,
                                    t->dtype == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32, start));
    }
    return SUT_OK;
}

/* Back ends with memory of their own take no other. */
static sut_status check_memory(sut_context *ctx, const sut_optimizer *opt)
{
    for (int64_t k = 0; k < opt->n_tensors; ++k) {
        const char *const fault = opt->tensor[k].count ? sut_pointer_fault(ctx, opt->pass_tensor[k].param) : NULL;
        if (fault)
            SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "the data of tensor \"%s\" %s", opt->tensor[k].name, fault);
    }
    return SUT_OK;
}

static sut_status fill(sut_context *ctx, sut_optimizer *opt, const sut_optimizer_config *c)
{
    const size_t n = (size_t)c->n_tensors, m = (size_t)c->n_losses;
    opt->config = *c;
    opt->n_tensors = c->n_tensors;
    opt->n_groups = c->groups ? c->n_groups : 1;
    opt->group = take(ctx, opt, (size_t)opt->n_groups, sizeof *opt->group);
    opt->tensor = take(ctx, opt, n, sizeof *opt->tensor);
    opt->pass_tensor = take(ctx, opt, n, sizeof *opt->pass_tensor);
    opt->layout_count = take(ctx, opt, n, sizeof *opt->layout_count);
    opt->layout_dtype = take(ctx, opt, n, sizeof *opt->layout_dtype);
    opt->first_chunk = take(ctx, opt, n + 1, sizeof *opt->first_chunk);
    opt->setting = take(ctx, opt, (size_t)opt->n_groups + n, sizeof *opt->setting);
    opt->setting_t = take(ctx, opt, (size_t)opt->n_groups, sizeof *opt->setting_t);
    opt->range = take(ctx, opt, 2 * n, sizeof *opt->range);
    opt->algebra.gram = take(ctx, opt, m * m, sizeof *opt->algebra.gram);
    opt->algebra.K = take(ctx, opt, m * m, sizeof *opt->algebra.K);
    opt->algebra.work = take(ctx, opt, SUT_SURGERY_WORK(m), sizeof *opt->algebra.work);
    opt->span = take(ctx, opt, 2 * n, sizeof *opt->span);
    opt->algebra.R = take(ctx, opt, ((size_t)m + 1) * ((size_t)m + 1), sizeof *opt->algebra.R);
    opt->algebra.sums = take(ctx, opt, SUT_SUM_ROWS + m + m * (m + 1) / 2, sizeof *opt->algebra.sums);
    if (!opt->group || !opt->tensor || !opt->pass_tensor || !opt->layout_count || !opt->layout_dtype ||
        !opt->first_chunk || !opt->setting || !opt->setting_t || !opt->range || !opt->algebra.gram || !opt->algebra.K ||
        !opt->algebra.work || !opt->span || !opt->algebra.R || !opt->algebra.sums || !copy_names(ctx, opt, c))
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for an optimizer of %zu tensors", n);

    memcpy(opt->group, c->groups ? c->groups : &c->hyper, (size_t)opt->n_groups * sizeof *opt->group);
    int64_t elements = 0;
    for (size_t k = 0; k < n; ++k) {
        sut_optimizer_tensor *const t = &opt->tensor[k];
        const sut_tensor *const from = &c->tensors[k];
        int64_t count = 0;
        SUT_TRY(check_tensor(ctx, from, (int64_t)k, opt->n_groups, &count));
        t->dtype = from->dtype;
        t->n_dims = from->n_dims;
        memcpy(t->shape, from->shape, sizeof t->shape);
        t->count = count;
        t->group = from->group;
        opt->pass_tensor[k].param = from->data;
        opt->pass_tensor[k].theta = from->data;
        opt->layout_count[k] = count;
        opt->layout_dtype[k] = t->dtype;
        opt->first_chunk[k + 1] = opt->first_chunk[k] + count / SUT_CHUNK + (count % SUT_CHUNK != 0);
        if (__builtin_add_overflow(elements, count, &elements))
            SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "the number of parameters overflows 64 bits");
    }
    if (elements == 0)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "there are no parameters: every tensor is empty");
    opt->layout = (sut_layout){
        (int64_t)n, opt->layout_count, opt->layout_dtype, opt->first_chunk, opt->first_chunk[n], elements, NULL};
    start_algebra(opt);
    SUT_TRY(check_names(ctx, opt));
    SUT_TRY(check_groups_f32(opt, &opt->config));
    SUT_TRY(check_overlaps(ctx, opt));
    SUT_TRY(check_memory(ctx, opt));
    opt->slots = sut_optimizer_needed_slots(opt->row, opt->group, opt->n_groups);
    SUT_TRY(make_state(ctx, opt));
    SUT_TRY(fill_state(opt));
    SUT_TRY(load_masters(opt));
    size_t plan_bytes = 0;
    if (ctx->ops->plan_create)
        SUT_TRY(ctx->ops->plan_create(ctx, &opt->layout, c->n_losses, &opt->layout.plan, &plan_bytes));
    opt->workspace_bytes += plan_bytes;
    int64_t bad, index;
    SUT_TRY(sut_step_find_bad_parameter(ctx, &opt->layout, opt->pass_tensor, &bad, &index));
    if (bad >= 0)
        SUT_FAIL(ctx, SUT_ERROR_NOT_FINITE, "parameter \"%s\" is NaN or Inf at index %lld", opt->tensor[bad].name,
                 (long long)index);
    SUT_TRY(sut_backend_reserve(ctx, c->n_losses));
    return SUT_OK;
}

/* What a back end that takes whole steps keeps of this optimizer. */
static sut_status start_drive(sut_optimizer *opt)
{
    if (!opt->ctx->ops->drive_create)
        return SUT_OK;
    SUT_TRY(opt->ctx->ops->drive_create(opt->ctx, opt));
    return sut_optimizer_push(opt);
}

sut_status sut_optimizer_create(sut_optimizer **opt_out, sut_context *ctx, const sut_optimizer_config *config)
{
    if (opt_out)
        *opt_out = NULL;
    if (!ctx)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (!opt_out || !config)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "sut_optimizer_create: %s is NULL", opt_out ? "config" : "opt_out");
    sut_optimizer_config c;
    sut_optimizer_config_init(&c, SUT_OPTIMIZER_SGD);
    SUT_TRY(sut_read_struct(ctx, "sut_optimizer_config", &c, sizeof c, config));
    const sut_method_row *const row = sut_method_find(c.method);
    if (!row)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "method %d is not a value of sut_optimizer_method", (int)c.method);
    if (c.n_losses < 1 || c.n_losses > SUT_MAX_LOSSES)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "n_losses is %d; it must lie in [1, %d]", c.n_losses, SUT_MAX_LOSSES);
    if (c.n_tensors < 0 || c.n_tensors > INT32_MAX)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "n_tensors is %lld; it must lie in [1, 2147483647]",
                 (long long)c.n_tensors);
    if (c.n_tensors == 0 || !c.tensors)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "there are no parameters: %s",
                 c.n_tensors == 0 ? "n_tensors is 0" : "tensors is NULL");
    if (c.groups && (c.n_groups < 1 || c.n_groups > SUT_MAX_GROUPS))
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "n_groups is %d; it must lie in [1, %d]", c.n_groups, SUT_MAX_GROUPS);
    if (!c.groups && (c.n_groups < 0 || c.n_groups > 1))
        SUT_FAIL(
            ctx, SUT_ERROR_INVALID_ARGUMENT,
            "n_groups is %d and groups is NULL; give the %d groups, or n_groups 0 or 1 for the single group `hyper`",
            c.n_groups, c.n_groups);
    for (int i = 0; c.loss_names && i < c.n_losses; ++i) {
        char label[32];
        (void)snprintf(label, sizeof label, "loss %d", i);
        SUT_TRY(check_name(ctx, label, c.loss_names[i]));
    }
    SUT_TRY(check_settings(ctx, &c));
    sut_surgery_config surgery;
    sut_surgery_config_init(&surgery, SUT_SURGERY_SUM);
    SUT_TRY(sut_read_struct(ctx, "sut_optimizer_config.surgery", &surgery, sizeof surgery, &c.surgery));
    c.surgery = surgery;
    SUT_TRY(sut_surgery_validate(ctx, &c.surgery, c.n_losses));
    for (int k = 0; k < (c.groups ? c.n_groups : 1); ++k) {
        const sut_hyper *const h = c.groups ? &c.groups[k] : &c.hyper;
        SUT_TRY(sut_hyper_check(ctx, row, h, k));
        SUT_TRY(check_alignment(ctx, row, h, k, c.align, c.rho_m));
    }

    sut_optimizer *const opt = sut_alloc(ctx, 1, sizeof *opt);
    if (!opt)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for an optimizer");
    opt->ctx = ctx;
    opt->row = row;
    opt->seed = ctx->seed;
    opt->workspace_bytes = sizeof *opt;
    const sut_status status = fill(ctx, opt, &c);
    if (status != SUT_OK) {
        sut_optimizer_destroy(opt);
        return status;
    }
    /* Borrowed pointers of the configuration are dead now, those of the surgery excepted. */
    opt->config.tensors = NULL;
    opt->config.groups = NULL;
    opt->config.loss_names = NULL;
    const sut_status driven = start_drive(opt);
    if (driven != SUT_OK) {
        sut_optimizer_destroy(opt);
        return driven;
    }
    *opt_out = opt;
    return SUT_OK;
}

void sut_optimizer_destroy(sut_optimizer *opt)
{
    if (!opt)
        return;
    sut_context *const ctx = opt->ctx;
    void *const parts[] = {opt->group,       opt->tensor,      opt->pass_tensor, opt->layout_count, opt->layout_dtype,
                           opt->first_chunk, opt->setting,     opt->setting_t,   opt->range,        opt->algebra.gram,
                           opt->algebra.K,   opt->span,        opt->algebra.R,   opt->algebra.work, opt->algebra.sums,
                           opt->names,       opt->tensor_name, opt->loss_name};
    if (ctx->ops->drive_destroy)
        ctx->ops->drive_destroy(ctx, opt);
    if (ctx->ops->plan_destroy)
        ctx->ops->plan_destroy(ctx, opt->layout.plan);
    ctx->ops->release(ctx, opt->state_memory);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; ++k)
        sut_free(ctx, parts[k]);
    sut_free(ctx, opt);
}

/* ---- settings ---- */

#define REFUSE_WHILE_PENDING(opt, what)                                                                    \
    do {                                                                                                   \
        if ((opt)->pending)                                                                                \
            SUT_FAIL((opt)->ctx, SUT_ERROR_SEQUENCE, what ": a proposal waits for sut_optimizer_apply()"); \
    } while (0)

sut_status sut_optimizer_get_hyper(const sut_optimizer *opt, int group, sut_hyper *hyper_out)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (!hyper_out)
        SUT_FAIL(opt->ctx, SUT_ERROR_INVALID_ARGUMENT, "sut_optimizer_get_hyper: hyper_out is NULL");
    if (group < 0 || group >= opt->n_groups)
        SUT_FAIL(opt->ctx, SUT_ERROR_OUT_OF_RANGE, "group is %d; there are %d groups", group, opt->n_groups);
    *hyper_out = opt->group[group];
    return SUT_OK;
}

sut_status sut_optimizer_set_hyper(sut_optimizer *opt, int group, const sut_hyper *hyper)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    sut_context *const ctx = opt->ctx;
    if (!hyper)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "sut_optimizer_set_hyper: hyper is NULL");
    if (group < 0 || group >= opt->n_groups)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "group is %d; there are %d groups", group, opt->n_groups);
    REFUSE_WHILE_PENDING(opt, "sut_optimizer_set_hyper");
    const sut_hyper wanted = *hyper; /* may be a member of this optimizer */
    SUT_TRY(sut_hyper_check(ctx, opt->row, &wanted, group));
    SUT_TRY(check_alignment(ctx, opt->row, &wanted, group, opt->config.align, opt->config.rho_m));
    const unsigned missing = opt->row->slots(&wanted) & ~opt->slots;
    if (missing) {
        int slot = 0;
        while (!(missing >> slot & 1))
            ++slot;
        SUT_FAIL(
            ctx, SUT_ERROR_UNSUPPORTED,
            "these settings of group %d need the state \"%s\", which this optimizer was created without; create it "
            "with them",
            group, opt->row->slot[slot]);
    }
    SUT_TRY(check_f32(opt, group, &wanted, &opt->config));
    opt->group[group] = wanted;
    opt->told_settings = false;
    return SUT_OK;
}

sut_status sut_optimizer_set_lr(sut_optimizer *opt, int group, double lr)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (group < -1 || group >= opt->n_groups)
        SUT_FAIL(opt->ctx, SUT_ERROR_OUT_OF_RANGE, "group is %d; it must lie in [-1, %d]", group, opt->n_groups - 1);
    REFUSE_WHILE_PENDING(opt, "sut_optimizer_set_lr");
    SUT_TRY(sut_check_range(opt->ctx, "lr", lr, 0, false, HUGE_VAL, false));
    const int first = group < 0 ? 0 : group, last = group < 0 ? opt->n_groups - 1 : group;
    for (int k = first; k <= last; ++k) {
        sut_hyper wanted = opt->group[k];
        wanted.lr = lr;
        SUT_TRY(check_f32(opt, k, &wanted, &opt->config));
    }
    for (int k = first; k <= last; ++k)
        opt->group[k].lr = lr;
    opt->told_settings = false;
    return SUT_OK;
}

sut_status sut_optimizer_set_schedule(sut_optimizer *opt, const sut_schedule *schedule)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    REFUSE_WHILE_PENDING(opt, "sut_optimizer_set_schedule");
    sut_optimizer_config changed = opt->config;
    changed.use_schedule = schedule != NULL;
    if (schedule)
        SUT_TRY(sut_read_struct(opt->ctx, "sut_schedule", &changed.schedule, sizeof changed.schedule, schedule));
    SUT_TRY(check_settings(opt->ctx, &changed));
    SUT_TRY(check_groups_f32(opt, &changed));
    opt->config = changed;
    opt->told_settings = false;
    return SUT_OK;
}

sut_status sut_optimizer_set_align(sut_optimizer *opt, sut_align align, double rho_m, double rho_v)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    REFUSE_WHILE_PENDING(opt, "sut_optimizer_set_align");
    sut_optimizer_config changed = opt->config;
    changed.align = align;
    changed.rho_m = rho_m;
    changed.rho_v = rho_v;
    SUT_TRY(check_settings(opt->ctx, &changed));
    for (int k = 0; k < opt->n_groups; ++k)
        SUT_TRY(check_alignment(opt->ctx, opt->row, &opt->group[k], k, align, rho_m));
    opt->config = changed;
    opt->told_settings = false;
    return SUT_OK;
}

sut_status sut_optimizer_parameters_changed(sut_optimizer *opt)
{
    if (!opt)
        return SUT_ERROR_INVALID_ARGUMENT;
    REFUSE_WHILE_PENDING(opt, "sut_optimizer_parameters_changed");
    for (int64_t k = 0; k < opt->n_tensors; ++k) {
        int64_t index = -1;
        if (opt->tensor[k].count)
            SUT_TRY(opt->ctx->ops->find_nonfinite(opt->ctx, opt->pass_tensor[k].param, opt->tensor[k].count,
                                                  opt->tensor[k].dtype, &index));
        if (index >= 0)
            SUT_FAIL(opt->ctx, SUT_ERROR_NOT_FINITE, "parameter \"%s\" is NaN or Inf at index %lld",
                     opt->tensor[k].name, (long long)index);
    }
    return load_masters(opt);
}
