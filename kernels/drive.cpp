/* The host's side of a step without the host, see drive.h. */
#include "kernels/drive.h"
#include "kernels/launch.h"

/* Up to here the whole step is one cooperative launch. */
static const int64_t one_launch_elements = (int64_t)1 << 20;

struct host_drive {
    sut_cuda_plan *plan;
    char *device; /* the drive, then everything that its pointers lead to */
    size_t gram_at, K_at, R_at, work_at, counts_at, group_at, told_at, tensors_at, table_at, partial_at, sums_at,
        ticket_at, size;
    size_t settings_size, told_size; /* told: the settings, then the input of a step */
    char *told;                      /* the host's: what the device was told last */
    char *telling;                   /* the host's: what it is told now */
    char *pulled;                    /* pinned: a state, the Gram matrix, sums, counts */
    size_t pulled_gram_at, pulled_sums_at, pulled_counts_at, pulled_size;
    int slices[3], blocks;
    bool fresh; /* nothing was told yet */
};

static host_drive *drive_of(const sut_optimizer *opt)
{
    return static_cast<host_drive *>(opt->drive);
}

static size_t place(size_t *end, size_t size)
{
    const size_t at = (*end + 255) / 256 * 256;
    *end = at + size;
    return at;
}

static bool is_few(int m)
{
    return m <= SUT_CUDA_FEW;
}

static size_t n_sums_of(int m)
{
    return (size_t)(SUT_SUM_ROWS + m + m * (m + 1) / 2);
}

/* ---- creation ---- */

static void divide(host_drive *h, const sut_optimizer *opt)
{
    const size_t m = (size_t)opt->config.n_losses, n = (size_t)opt->n_tensors, triangle = (m + 1) * (m + 1);
    const size_t slices = (size_t)(h->slices[1] > 0 ? h->slices[1] : 1);
    h->settings_size = sizeof(sut_cuda_settings_head) + (size_t)opt->n_groups * sizeof(sut_hyper) +
                       (opt->config.surgery.order ? m * m * sizeof(int) : 0);
    h->settings_size = (h->settings_size + 7) / 8 * 8;
    h->told_size = h->settings_size + sizeof(sut_cuda_input) + m * n * sizeof(void *) + n * sizeof(int);
    h->told_size = (h->told_size + 7) / 8 * 8;
    (void)place(&h->size, sizeof(sut_cuda_drive));
    h->gram_at = place(&h->size, m * m * sizeof(double));
    h->K_at = place(&h->size, m * m * sizeof(double));
    h->R_at = place(&h->size, triangle * sizeof(double));
    h->work_at = place(&h->size, SUT_SURGERY_WORK(m) * sizeof(double));
    h->counts_at = place(&h->size, n * sizeof(sut_cuda_count));
    h->group_at = place(&h->size, n * sizeof(int));
    h->told_at = place(&h->size, h->told_size);
    h->tensors_at = place(&h->size, n * sizeof(sut_cuda_tensor));
    h->table_at = place(&h->size, n * sizeof(sut_cuda_setting));
    h->partial_at = place(&h->size, n_sums_of((int)m) * slices * sizeof(double));
    h->sums_at = place(&h->size, n_sums_of((int)m) * sizeof(double));
    h->ticket_at = place(&h->size, sizeof(unsigned));
    (void)place(&h->pulled_size, sizeof(sut_cuda_state));
    h->pulled_gram_at = place(&h->pulled_size, m * m * sizeof(double));
    h->pulled_sums_at = place(&h->pulled_size, n_sums_of((int)m) * sizeof(double));
    h->pulled_counts_at = place(&h->pulled_size, n * sizeof(sut_cuda_count));
}

static sut_status take_memory(sut_context *ctx, sut_optimizer *opt, host_drive *h)
{
    const sut_backend_host *const host = cuda_of(ctx)->host;
    void *memory = NULL;
    SUT_TRY(sut_cuda_allocate(ctx, h->size, &memory));
    h->device = static_cast<char *>(memory);
    SUT_CUDA_TRY(ctx, cudaMemsetAsync(h->device, 0, h->size, cuda_of(ctx)->stream), "the memory of a step");
    h->told = static_cast<char *>(host->alloc(ctx, 2, h->told_size));
    if (!h->told)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for the table of %lld tensors",
                      (long long)opt->n_tensors);
    h->telling = h->told + h->told_size;
    SUT_CUDA_TRY(ctx, cudaMallocHost(&memory, h->pulled_size), "the state of an optimizer in pinned memory");
    h->pulled = static_cast<char *>(memory);
    return SUT_OK;
}

/* The drive as it begins; the tensors, whose places do not change. */
static sut_status start(sut_context *ctx, sut_optimizer *opt, host_drive *h)
{
    const sut_backend_host *const host = cuda_of(ctx)->host;
    const cudaStream_t stream = cuda_of(ctx)->stream;
    const int m = opt->config.n_losses;
    const size_t n = (size_t)opt->n_tensors;
    char *const at = h->device;
    sut_cuda_drive *const d = static_cast<sut_cuda_drive *>(host->alloc(ctx, 1, sizeof *d));
    sut_cuda_tensor *const tensors = static_cast<sut_cuda_tensor *>(host->alloc(ctx, n, sizeof *tensors));
    int *const groups = static_cast<int *>(host->alloc(ctx, n, sizeof *groups));
    int error = (int)cudaErrorMemoryAllocation;
    if (d && tensors && groups) {
        sut_cuda_plan *const plan = h->plan;
        for (size_t k = 0; k < n; ++k) {
            const sut_pass_tensor *const from = &opt->pass_tensor[k];
            tensors[k].param = from->param;
            tensors[k].theta = from->theta;
            for (int s = 0; s < SUT_MAX_SLOTS; ++s)
                tensors[k].state[s] = from->state[s];
            tensors[k].dtype = (int)opt->layout.dtype[k];
            tensors[k].own = opt->layout.dtype[k] == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
            groups[k] = opt->tensor[k].group;
        }
        const sut_cuda_settings_head *const settings =
            reinterpret_cast<const sut_cuda_settings_head *>(at + h->told_at);
        d->config = &settings->config;
        d->groups = reinterpret_cast<const sut_hyper *>(settings + 1);
        d->rule = opt->row->rule;
        d->decay_flag = opt->row->decay_flag;
        d->n_groups = opt->n_groups;
        d->group = reinterpret_cast<const int *>(at + h->group_at);
        d->counts = reinterpret_cast<sut_cuda_count *>(at + h->counts_at);
        d->input = reinterpret_cast<const sut_cuda_input *>(at + h->told_at + h->settings_size);
        d->rows = reinterpret_cast<const void **>(at + h->told_at + h->settings_size + sizeof(sut_cuda_input));
        d->present = reinterpret_cast<const int *>(d->rows + (size_t)m * n);
        d->tensors = reinterpret_cast<sut_cuda_tensor *>(at + h->tensors_at);
        d->settings = reinterpret_cast<sut_cuda_setting *>(at + h->table_at);
        const sut_rows rows = {NULL, m, NULL};
        d->base = sut_cuda_base_args(plan, &opt->layout, &rows, &plan->all, 0);
        d->base.tensors = d->tensors;
        d->base.rows = d->rows;
        d->base.settings = d->settings;
        d->base.control = &reinterpret_cast<sut_cuda_drive *>(at)->control;
        d->base.u_scale = 1;
        const sut_cuda_chunks sets[3] = {plan->f32, plan->f64, plan->all};
        for (int set = 0; set < 3; ++set) {
            d->sets[set] = sets[set];
            d->slices[set] = h->slices[set];
        }
        d->second_partial = reinterpret_cast<double *>(at + h->partial_at);
        d->second_sums = reinterpret_cast<double *>(at + h->sums_at);
        d->second_ticket = reinterpret_cast<unsigned *>(at + h->ticket_at);
        error = (int)cudaMemcpyAsync(at, d, sizeof *d, cudaMemcpyHostToDevice, stream);
        if (!error)
            error =
                (int)cudaMemcpyAsync(at + h->tensors_at, tensors, n * sizeof *tensors, cudaMemcpyHostToDevice, stream);
        if (!error)
            error = (int)cudaMemcpyAsync(at + h->group_at, groups, n * sizeof *groups, cudaMemcpyHostToDevice, stream);
        if (!error)
            error = (int)cudaStreamSynchronize(stream); /* before the copies are freed */
    }
    host->free(ctx, groups);
    host->free(ctx, tensors);
    host->free(ctx, d);
    return sut_cuda_report(ctx, error, "the memory of a step");
}

sut_status sut_cuda_drive_create(sut_context *ctx, sut_optimizer *opt)
{
    SUT_CUDA_ENTER(ctx);
    const sut_backend_host *const host = cuda_of(ctx)->host;
    const int m = opt->config.n_losses;
    host_drive *const h = static_cast<host_drive *>(host->alloc(ctx, 1, sizeof *h));
    if (!h)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for the steps of an optimizer");
    opt->drive = h; /* sut_optimizer_destroy() releases what was made, whatever happens */
    h->plan = static_cast<sut_cuda_plan *>(opt->layout.plan);
    h->fresh = true;
    const sut_rows rows = {NULL, m, NULL};
    const sut_cuda_chunks sets[3] = {h->plan->f32, h->plan->f64, h->plan->all};
    int most = 1, error = 0;
    for (int set = 0; set < 3; ++set) {
        h->slices[set] = sut_cuda_base_args(h->plan, &opt->layout, &rows, &sets[set], 0).n_slices;
        most = h->slices[set] > most ? h->slices[set] : most;
    }
    h->blocks = is_few(m) ? sut_cuda_run_blocks_few(m, &error) : sut_cuda_run_blocks_many(m, &error);
    SUT_CUDA_TRY(ctx, error, "the kernel of a step");
    if (h->blocks < 1)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_BACKEND, "the kernel of a step does not fit this device");
    h->blocks = h->blocks < most ? h->blocks : most;
    divide(h, opt);
    SUT_TRY(take_memory(ctx, opt, h));
    opt->workspace_bytes += h->size + 2 * h->told_size + h->pulled_size;
    return start(ctx, opt, h);
}

void sut_cuda_drive_destroy(sut_context *ctx, sut_optimizer *opt)
{
    host_drive *const h = drive_of(opt);
    if (!h)
        return;
    const sut_cuda_scope scope(ctx);
    (void)cudaStreamSynchronize(cuda_of(ctx)->stream);
    (void)cudaFreeHost(h->pulled);
    sut_cuda_release(ctx, h->device);
    cuda_of(ctx)->host->free(ctx, h->told);
    cuda_of(ctx)->host->free(ctx, h);
    opt->drive = NULL;
}

/* ---- what the device is told ---- */

/* Counts and memory that the host has changed (a load, a staged step): rare, so it waits. */
sut_status sut_cuda_drive_push(sut_context *ctx, sut_optimizer *opt)
{
    SUT_CUDA_ENTER(ctx);
    host_drive *const h = drive_of(opt);
    const cudaStream_t stream = cuda_of(ctx)->stream;
    char *const at = h->device;
    SUT_CUDA_TRY(ctx, cudaStreamSynchronize(stream), "the steps before");
    sut_cuda_state *const state = reinterpret_cast<sut_cuda_state *>(h->pulled);
    memset(state, 0, sizeof *state);
    state->steps = opt->t;
    state->skipped = opt->skipped;
    sut_algebra *const a = &state->algebra;
    *a = opt->algebra;
    a->config = &reinterpret_cast<const sut_cuda_settings_head *>(at + h->told_at)->config;
    a->gram = reinterpret_cast<double *>(at + h->gram_at);
    a->K = reinterpret_cast<double *>(at + h->K_at);
    a->R = reinterpret_cast<double *>(at + h->R_at);
    a->work = reinterpret_cast<double *>(at + h->work_at);
    a->sums = reinterpret_cast<double *>(h->plan->work + h->plan->sums_at);
    a->losses = NULL;
    a->seed = opt->seed;
    sut_cuda_count *const counts = reinterpret_cast<sut_cuda_count *>(h->pulled + h->pulled_counts_at);
    for (int64_t k = 0; k < opt->n_tensors; ++k)
        counts[k] = sut_cuda_count{opt->tensor[k].t, opt->tensor[k].mu_prod};
    SUT_CUDA_TRY(ctx, cudaMemcpyAsync(at, state, sizeof *state, cudaMemcpyHostToDevice, stream), "the state of a step");
    SUT_CUDA_TRY(ctx,
                 cudaMemcpyAsync(at + h->counts_at, counts, (size_t)opt->n_tensors * sizeof *counts,
                                 cudaMemcpyHostToDevice, stream),
                 "the counts of a step");
    SUT_CUDA_TRY(ctx, cudaStreamSynchronize(stream), "the state of a step");
    opt->told_state = true;
    return SUT_OK;
}

static void write_settings(const sut_optimizer *opt, const host_drive *h, char *to)
{
    sut_cuda_settings_head *const head = reinterpret_cast<sut_cuda_settings_head *>(to);
    const sut_cuda_settings_head *const device =
        reinterpret_cast<const sut_cuda_settings_head *>(h->device + h->told_at);
    const size_t m = (size_t)opt->config.n_losses, groups = (size_t)opt->n_groups * sizeof(sut_hyper);
    memset(to, 0, h->settings_size);
    head->config = opt->config;
    head->config.tensors = NULL;
    head->config.groups = NULL;
    head->config.loss_names = NULL;
    head->config.surgery.preference = NULL;
    head->config.surgery.order = NULL;
    if (opt->config.surgery.preference) {
        memcpy(head->preference, opt->config.surgery.preference, m * sizeof(double));
        head->config.surgery.preference = device->preference;
    }
    memcpy(head + 1, opt->group, groups);
    if (opt->config.surgery.order) {
        memcpy(to + sizeof *head + groups, opt->config.surgery.order, m * m * sizeof(int));
        head->config.surgery.order = reinterpret_cast<const int *>(h->device + h->told_at + sizeof *head + groups);
    }
}

static void write_input(const sut_optimizer *opt, const void *const *grads, const double *losses, bool report, char *to)
{
    const size_t m = (size_t)opt->config.n_losses, n = (size_t)opt->n_tensors;
    sut_cuda_input *const input = reinterpret_cast<sut_cuda_input *>(to);
    memset(input, 0, sizeof *input);
    input->has_losses = losses != NULL;
    if (losses)
        memcpy(input->losses, losses, m * sizeof *losses);
    input->something = opt->algebra.something;
    input->report = report;
    const void **const rows = reinterpret_cast<const void **>(input + 1);
    memcpy(rows, grads, m * n * sizeof *rows);
    int *const present = reinterpret_cast<int *>(rows + m * n);
    for (size_t k = 0; k < n; ++k)
        present[k] = opt->pass_tensor[k].present;
}

/*
 * Rows, losses and settings, where they differ from what the device has: all but the last parcel are sent, that one is left to
 * the launch that begins the step (`last->size` 0: there is none). Parcels are arguments of kernels, so that a graph keeps its own
 * copy; it sends all of them, since other steps may have told something else.
 */
static sut_status tell(sut_context *ctx, sut_optimizer *opt, const void *const *grads, const double *losses,
                       bool report, bool capturing, sut_cuda_parcel *last)
{
    host_drive *const h = drive_of(opt);
    bool everything = h->fresh || !opt->told_settings || opt->captured;
    last->size = 0;
    /* Preferences and orders are the caller's, who may have changed them. */
    const bool borrowed = opt->config.surgery.preference || opt->config.surgery.order;
    if (everything || borrowed)
        write_settings(opt, h, h->telling);
    everything = everything || (borrowed && memcmp(h->telling, h->told, h->settings_size) != 0);
    write_input(opt, grads, losses, report, h->telling + h->settings_size);
    if (!everything &&
        !memcmp(h->telling + h->settings_size, h->told + h->settings_size, h->told_size - h->settings_size))
        return SUT_OK;
    size_t at = everything ? 0 : h->settings_size;
    memcpy(h->told + at, h->telling + at, h->told_size - at);
    h->fresh = false;
    opt->told_settings = !capturing;
    for (;;) {
        const size_t left = h->told_size - at, size = left < sizeof last->words ? left : sizeof last->words;
        last->to = reinterpret_cast<unsigned long long *>(h->device + h->told_at + at);
        last->size = (int)(size / 8);
        memcpy(last->words, h->telling + at, size);
        at += size;
        if (at == h->told_size)
            return SUT_OK;
        SUT_CUDA_TRY(ctx, sut_cuda_launch_parcel(last, cuda_of(ctx)->stream), "the input of a step");
    }
}

/* ---- the step ---- */

static sut_status run(sut_context *ctx, const sut_optimizer *opt, int flags, const sut_cuda_parcel *parcel)
{
    host_drive *const h = drive_of(opt);
    const int m = opt->config.n_losses;
    sut_cuda_drive *const d = reinterpret_cast<sut_cuda_drive *>(h->device);
    const int error = is_few(m) ? sut_cuda_launch_run_few(d, m, flags, h->blocks, parcel, cuda_of(ctx)->stream)
                                : sut_cuda_launch_run_many(d, m, flags, h->blocks, parcel, cuda_of(ctx)->stream);
    return sut_cuda_report(ctx, error, "the algebra of a step");
}

/* A pass of the ordinary step as launches of its own. */
static sut_status launch_pass(sut_context *ctx, const sut_optimizer *opt, int action, int n_sums)
{
    host_drive *const h = drive_of(opt);
    const int m = opt->config.n_losses;
    const sut_cuda_drive *const d = reinterpret_cast<const sut_cuda_drive *>(h->device);
    bool add = false;
    for (int set = 0; set < 2; ++set) {
        if ((set ? h->plan->f64 : h->plan->f32).count == 0)
            continue;
        const int error =
            is_few(m) ? sut_cuda_launch_ready_few(d, action, set, h->slices[set], n_sums, add, cuda_of(ctx)->stream)
                      : sut_cuda_launch_ready_many(d, action, set, h->slices[set], n_sums, add, cuda_of(ctx)->stream);
        SUT_CUDA_TRY(ctx, error, "a pass of the step");
        add = true;
    }
    return SUT_OK;
}

/* Products of the rows, as every step with a Gram matrix begins. */
static sut_status launch_gram(sut_context *ctx, const sut_optimizer *opt)
{
    host_drive *const h = drive_of(opt);
    const int m = opt->config.n_losses;
    const sut_rows rows = {NULL, m, NULL};
    bool add = false;
    for (int set = 0; set < 2; ++set) {
        const sut_cuda_chunks *const chunks = set ? &h->plan->f64 : &h->plan->f32;
        if (chunks->count == 0)
            continue;
        sut_cuda_args args = sut_cuda_base_args(h->plan, &opt->layout, &rows, chunks, m * (m + 1) / 2);
        args.tensors = reinterpret_cast<const sut_cuda_tensor *>(h->device + h->tensors_at);
        args.rows =
            reinterpret_cast<const void *const *>(h->device + h->told_at + h->settings_size + sizeof(sut_cuda_input));
        args.strict = opt->config.strict || opt->algebra.only_f64;
        args.want_sums = 1;
        args.add = add;
        SUT_CUDA_TRY(ctx, sut_cuda_launch_gram(&args, set, cuda_of(ctx)->stream), "the Gram pass");
        add = true;
    }
    return SUT_OK;
}

sut_status sut_cuda_drive_step(sut_context *ctx, sut_optimizer *opt, const void *const *grads, const double *losses,
                               unsigned kind)
{
    SUT_CUDA_ENTER(ctx);
    const bool report = kind & SUT_DRIVE_REPORT, has_gram = kind & SUT_DRIVE_GRAM, aligned = kind & SUT_DRIVE_ALIGNED;
    const int m = opt->config.n_losses;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    SUT_CUDA_TRY(ctx, cudaStreamIsCapturing(cuda_of(ctx)->stream, &capture), "the stream");
    const bool capturing = capture != cudaStreamCaptureStatusNone;
    if (capturing && report)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_SEQUENCE,
                      "sut_optimizer_step: a step that is captured cannot wait for its report; give NULL");
    if (capturing && !opt->told_state)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_SEQUENCE,
                      "sut_optimizer_step: the state was changed by the host; take one step before a step is captured");
    opt->captured = opt->captured || capturing;
    if (!opt->told_state)
        SUT_TRY(sut_cuda_drive_push(ctx, opt));
    sut_cuda_parcel parcel;
    SUT_TRY(tell(ctx, opt, grads, losses, report, capturing, &parcel));
    if (opt->layout.n_elements <= one_launch_elements)
        return run(ctx, opt, SUT_RUN_BEGIN, &parcel);

    const int n_sums = (int)n_sums_of(m);
    if (has_gram && parcel.size > 0) { /* the products need the rows */
        SUT_CUDA_TRY(ctx, sut_cuda_launch_parcel(&parcel, cuda_of(ctx)->stream), "the input of a step");
        parcel.size = 0;
    }
    if (has_gram)
        SUT_TRY(launch_gram(ctx, opt));
    SUT_TRY(run(ctx, opt,
                SUT_RUN_BEGIN | SUT_RUN_TO_PROPOSE | SUT_RUN_TO_APPLY | (has_gram ? (int)SUT_RUN_HAS_GRAM : 0),
                &parcel));
    SUT_TRY(launch_pass(ctx, opt, aligned || report ? SUT_ACTION_PROPOSE : SUT_ACTION_FUSED, n_sums));
    parcel.size = 0;
    if (aligned) {
        SUT_TRY(run(ctx, opt, SUT_RUN_TO_APPLY, &parcel));
        return launch_pass(ctx, opt, SUT_ACTION_APPLY, n_sums);
    }
    return report ? run(ctx, opt, 0, &parcel) : SUT_OK;
}

/* ---- what the host learns ---- */

sut_status sut_cuda_drive_pull(sut_context *ctx, sut_optimizer *opt)
{
    SUT_CUDA_ENTER(ctx);
    host_drive *const h = drive_of(opt);
    const cudaStream_t stream = cuda_of(ctx)->stream;
    const size_t m = (size_t)opt->config.n_losses, n = (size_t)opt->n_tensors;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    SUT_CUDA_TRY(ctx, cudaStreamIsCapturing(stream, &capture), "the stream");
    if (capture != cudaStreamCaptureStatusNone)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_SEQUENCE, "the stream is being captured: what its steps did is not known yet");
    const char *const at = h->device;
    char *const to = h->pulled;
    static const char what[] = "the state of a step";
    SUT_CUDA_TRY(ctx, cudaMemcpyAsync(to, at, sizeof(sut_cuda_state), cudaMemcpyDeviceToHost, stream), what);
    SUT_CUDA_TRY(ctx,
                 cudaMemcpyAsync(to + h->pulled_gram_at, at + h->gram_at, m * m * sizeof(double),
                                 cudaMemcpyDeviceToHost, stream),
                 what);
    SUT_CUDA_TRY(ctx,
                 cudaMemcpyAsync(to + h->pulled_sums_at, h->plan->work + h->plan->sums_at,
                                 n_sums_of((int)m) * sizeof(double), cudaMemcpyDeviceToHost, stream),
                 what);
    SUT_CUDA_TRY(ctx,
                 cudaMemcpyAsync(to + h->pulled_counts_at, at + h->counts_at, n * sizeof(sut_cuda_count),
                                 cudaMemcpyDeviceToHost, stream),
                 what);
    SUT_CUDA_TRY(ctx, cudaStreamSynchronize(stream), "the steps");
    const sut_cuda_state *const state = reinterpret_cast<const sut_cuda_state *>(to);
    sut_algebra *const a = &opt->algebra;
    const sut_algebra own = *a;
    *a = state->algebra;
    a->config = own.config;
    a->gram = own.gram;
    a->K = own.K;
    a->R = own.R;
    a->work = own.work;
    a->sums = own.sums;
    a->losses = NULL;
    memcpy(a->gram, to + h->pulled_gram_at, m * m * sizeof(double));
    memcpy(a->sums, to + h->pulled_sums_at, n_sums_of((int)m) * sizeof(double));
    const sut_cuda_count *const counts = reinterpret_cast<const sut_cuda_count *>(to + h->pulled_counts_at);
    for (size_t k = 0; k < n; ++k) {
        opt->tensor[k].t = counts[k].t;
        opt->tensor[k].mu_prod = counts[k].mu_prod;
    }
    opt->t = state->steps;
    opt->skipped = state->skipped;
    opt->lr = a->lr;
    opt->last_failed = state->last_failed != 0;
    opt->last_failure = state->last_failure;
    if (state->failures > 0 && opt->late.failure == SUT_ALGEBRA_FINE)
        opt->late = state->first_failure;
    opt->n_late += state->failures;
    if (state->failures > 0) {
        SUT_CUDA_TRY(ctx,
                     cudaMemsetAsync(h->device + offsetof(sut_cuda_state, failures), 0, sizeof state->failures, stream),
                     what);
    }
    return SUT_OK;
}
