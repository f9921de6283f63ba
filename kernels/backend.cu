/*
 * The launch layer: tables of a pass are written to pinned memory, copied to the device in one piece, and read by the kernels
 * from there. An allocation of either kind is made when a plan is created, none later.
 *
 * f32 and f64 tensors of one layout are two launches, f32 first; the second adds its sums to those of the first. Careful
 * passes are one launch in f64 over all of them.
 */
#include "kernels/backend.h"
#include "kernels/launch.h"

#include <stdio.h>
#include <stdlib.h>

/* The names of the rules' flags. */
#define SUT_REAL double
#include "optim/rules/terms.h"
#include "optim/rules/adam.h"
#include "optim/rules/radam.h"
#include "optim/rules/rmsprop.h"
#include "optim/rules/sgd.h"
#undef SUT_REAL

struct sut_cuda {
    cudaStream_t stream;
    char error[256];
};

/* Chunks that one launch walks. */
struct chunk_set {
    int64_t first, count;
};

struct sut_cuda_plan {
    sut_cuda *cuda;
    int64_t n_tensors, n_chunks;
    int m;
    chunk_set f32, f64, all;
    sut_dtype *dtype;    /* of each tensor */
    char *host, *device; /* pinned, and its copy: tensors, rows, settings, control */
    size_t rows_at, settings_at, control_at, table_size;
    char *work; /* device: chunks, partial sums, sums, results of searches, ticket */
    size_t partial_at, sums_at, found_at, ticket_at, work_size;
    double *host_sums;    /* pinned */
    cudaEvent_t uploaded; /* the device has read `host` */
};

static sut_status report(sut_cuda *cuda, int error, const char *what)
{
    if (error == cudaSuccess)
        return SUT_OK;
    (void)cudaGetLastError(); /* do not leave it for someone else to find */
    (void)snprintf(cuda->error, sizeof cuda->error, "%s: %s", what, cudaGetErrorString((cudaError_t)error));
    return error == cudaErrorMemoryAllocation ? SUT_ERROR_OUT_OF_MEMORY : SUT_ERROR_BACKEND;
}

#define CUDA_TRY(cuda, call, what)                                      \
    do {                                                                \
        const sut_status cuda_status = report(cuda, (int)(call), what); \
        if (cuda_status != SUT_OK)                                      \
            return cuda_status;                                         \
    } while (0)

extern "C" sut_status sut_cuda_open(void *stream, sut_cuda **out, char *why, size_t why_size)
{
    *out = NULL;
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count < 1) {
        (void)cudaGetLastError();
        (void)snprintf(why, why_size, "no CUDA device: %s",
                       error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists none");
        return SUT_ERROR_BACKEND;
    }
    sut_cuda *const cuda = static_cast<sut_cuda *>(calloc(1, sizeof *cuda));
    if (!cuda) {
        (void)snprintf(why, why_size, "no memory");
        return SUT_ERROR_OUT_OF_MEMORY;
    }
    cuda->stream = static_cast<cudaStream_t>(stream);
    *out = cuda;
    return SUT_OK;
}

extern "C" void sut_cuda_close(sut_cuda *cuda)
{
    free(cuda);
}

extern "C" const char *sut_cuda_error(const sut_cuda *cuda)
{
    return cuda->error;
}

/* ---- plans ---- */

/* Elements of a chunk: a strip where there are few, so that small problems fill the device too. A function of n alone. */
static int64_t chunk_elements(int64_t n)
{
    return n <= (int64_t)1 << 20 ? SUT_CUDA_STRIP : 4 * SUT_CUDA_STRIP;
}

static int slices_of(const chunk_set *set)
{
    return set->count < SUT_CUDA_SLICES ? (int)set->count : SUT_CUDA_SLICES;
}

/* Room for `size` bytes behind what has been placed; pieces begin at multiples of 256. */
static size_t place(size_t *end, size_t size)
{
    const size_t at = (*end + 255) / 256 * 256;
    *end = at + size;
    return at;
}

static int64_t count_chunks(const sut_layout *layout, int64_t size, bool f64)
{
    int64_t n = 0;
    for (int64_t k = 0; k < layout->n_tensors; ++k)
        if ((layout->dtype[k] == SUT_DTYPE_F64) == f64)
            n += layout->count[k] / size + (layout->count[k] % size != 0);
    return n;
}

static void write_chunks(const sut_layout *layout, int64_t size, bool f64, sut_cuda_chunk *to)
{
    for (int64_t k = 0; k < layout->n_tensors; ++k) {
        if ((layout->dtype[k] == SUT_DTYPE_F64) != f64)
            continue;
        for (int64_t at = 0; at < layout->count[k]; at += size) {
            const int64_t left = layout->count[k] - at;
            *to++ = sut_cuda_chunk{at, (int32_t)k, (int32_t)(left < size ? left : size)};
        }
    }
}

static sut_status fill_plan(sut_cuda_plan *plan, const sut_layout *layout)
{
    sut_cuda *const cuda = plan->cuda;
    const int64_t size = chunk_elements(layout->n_elements);
    const int m = plan->m;
    plan->f32 = chunk_set{0, count_chunks(layout, size, false)};
    plan->f64 = chunk_set{plan->f32.count, count_chunks(layout, size, true)};
    plan->all = chunk_set{0, plan->f32.count + plan->f64.count};
    plan->n_chunks = plan->all.count;
    const size_t n_tensors = (size_t)plan->n_tensors, n_sums = (size_t)(SUT_SUM_ROWS + m + m * (m + 1) / 2);

    (void)place(&plan->table_size, n_tensors * sizeof(sut_cuda_tensor));
    plan->rows_at = place(&plan->table_size, n_tensors * (size_t)m * sizeof(void *));
    plan->settings_at = place(&plan->table_size, n_tensors * sizeof(sut_cuda_setting));
    plan->control_at = place(&plan->table_size, sizeof(sut_cuda_control));
    (void)place(&plan->work_size, (size_t)plan->n_chunks * sizeof(sut_cuda_chunk));
    plan->partial_at = place(&plan->work_size, n_sums * (size_t)slices_of(&plan->all) * sizeof(double));
    plan->sums_at = place(&plan->work_size, n_sums * sizeof(double));
    plan->found_at = place(&plan->work_size, SUT_MAX_LOSSES * sizeof(unsigned long long));
    plan->ticket_at = place(&plan->work_size, sizeof(unsigned));

    plan->dtype = static_cast<sut_dtype *>(malloc((n_tensors + 1) * sizeof *plan->dtype));
    sut_cuda_chunk *const chunks =
        static_cast<sut_cuda_chunk *>(malloc(((size_t)plan->n_chunks + 1) * sizeof(sut_cuda_chunk)));
    if (!plan->dtype || !chunks) {
        free(chunks);
        return report(cuda, cudaErrorMemoryAllocation, "the list of chunks");
    }
    for (size_t k = 0; k < n_tensors; ++k)
        plan->dtype[k] = layout->dtype[k];
    write_chunks(layout, size, false, chunks);
    write_chunks(layout, size, true, chunks + plan->f64.first);

    void *host = NULL, *device = NULL, *work = NULL, *sums = NULL;
    int error = (int)cudaMallocHost(&host, plan->table_size);
    plan->host = static_cast<char *>(host);
    if (!error)
        error = (int)cudaMallocHost(&sums, n_sums * sizeof(double) + SUT_MAX_LOSSES * sizeof(unsigned long long));
    plan->host_sums = static_cast<double *>(sums);
    if (!error)
        error = (int)cudaMalloc(&device, plan->table_size);
    plan->device = static_cast<char *>(device);
    if (!error)
        error = (int)cudaMalloc(&work, plan->work_size);
    plan->work = static_cast<char *>(work);
    if (!error)
        error = (int)cudaEventCreateWithFlags(&plan->uploaded, cudaEventDisableTiming);
    if (!error && plan->n_chunks > 0)
        error = (int)cudaMemcpyAsync(plan->work, chunks, (size_t)plan->n_chunks * sizeof *chunks,
                                     cudaMemcpyHostToDevice, cuda->stream);
    if (!error)
        error = (int)cudaMemsetAsync(plan->work + plan->ticket_at, 0, sizeof(unsigned), cuda->stream);
    if (!error)
        error = (int)cudaEventRecord(plan->uploaded, cuda->stream);
    if (!error)
        error = (int)cudaStreamSynchronize(cuda->stream); /* before the list is freed */
    free(chunks);
    return report(cuda, error, "the memory of a plan");
}

extern "C" sut_status sut_cuda_plan_create(sut_cuda *cuda, const sut_layout *layout, int m, sut_cuda_plan **out)
{
    *out = NULL;
    if (m < 1 || m > SUT_MAX_LOSSES || layout->n_tensors < 0 || layout->n_tensors > INT32_MAX)
        return report(cuda, cudaErrorInvalidValue, "the shape of a plan");
    sut_cuda_plan *const plan = static_cast<sut_cuda_plan *>(calloc(1, sizeof *plan));
    if (!plan)
        return report(cuda, cudaErrorMemoryAllocation, "a plan");
    plan->cuda = cuda;
    plan->n_tensors = layout->n_tensors;
    plan->m = m;
    const sut_status status = fill_plan(plan, layout);
    if (status != SUT_OK) {
        sut_cuda_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return SUT_OK;
}

extern "C" void sut_cuda_plan_destroy(sut_cuda_plan *plan)
{
    if (!plan)
        return;
    (void)cudaStreamSynchronize(plan->cuda->stream);
    (void)cudaFree(plan->work);
    (void)cudaFree(plan->device);
    (void)cudaFreeHost(plan->host_sums);
    (void)cudaFreeHost(plan->host);
    if (plan->uploaded)
        (void)cudaEventDestroy(plan->uploaded);
    free(plan->dtype);
    free(plan);
}

/* ---- tables of a pass ---- */

/* The pinned tables may be written again once the device has read them. */
static sut_status begin_tables(sut_cuda_plan *plan, const sut_rows *rows)
{
    if (rows->m < 1 || rows->m > plan->m)
        return report(plan->cuda, cudaErrorInvalidValue, "the number of rows of a plan");
    CUDA_TRY(plan->cuda, cudaEventSynchronize(plan->uploaded), "the tables of the pass before");
    memset(plan->host, 0, plan->table_size);
    const void **const to = reinterpret_cast<const void **>(plan->host + plan->rows_at);
    for (int64_t k = 0; k < rows->m * plan->n_tensors; ++k)
        to[k] = rows->data[k];
    sut_cuda_tensor *const tensors = reinterpret_cast<sut_cuda_tensor *>(plan->host);
    for (int64_t k = 0; k < plan->n_tensors; ++k) {
        tensors[k].dtype = (int)plan->dtype[k];
        tensors[k].own = plan->dtype[k] == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
    }
    sut_cuda_control *const control = reinterpret_cast<sut_cuda_control *>(plan->host + plan->control_at);
    if (rows->scale)
        memcpy(control->scale, rows->scale, (size_t)rows->m * sizeof(double));
    return SUT_OK;
}

static sut_status upload(sut_cuda_plan *plan)
{
    CUDA_TRY(plan->cuda,
             cudaMemcpyAsync(plan->device, plan->host, plan->table_size, cudaMemcpyHostToDevice, plan->cuda->stream),
             "the tables of a pass");
    CUDA_TRY(plan->cuda, cudaEventRecord(plan->uploaded, plan->cuda->stream), "the tables of a pass");
    return SUT_OK;
}

static sut_cuda_args base_args(const sut_cuda_plan *plan, const sut_rows *rows, const chunk_set *set, int n_sums)
{
    sut_cuda_args args;
    memset(&args, 0, sizeof args);
    args.chunks = reinterpret_cast<const sut_cuda_chunk *>(plan->work) + set->first;
    args.tensors = reinterpret_cast<const sut_cuda_tensor *>(plan->device);
    args.rows = reinterpret_cast<const void *const *>(plan->device + plan->rows_at);
    args.settings = reinterpret_cast<const sut_cuda_setting *>(plan->device + plan->settings_at);
    args.control = reinterpret_cast<const sut_cuda_control *>(plan->device + plan->control_at);
    args.partial = reinterpret_cast<double *>(plan->work + plan->partial_at);
    args.sums = reinterpret_cast<double *>(plan->work + plan->sums_at);
    args.ticket = reinterpret_cast<unsigned *>(plan->work + plan->ticket_at);
    args.n_tensors = plan->n_tensors;
    args.n_chunks = set->count;
    args.n_slices = slices_of(set);
    args.n_sums = n_sums;
    args.m = rows->m;
    args.scaled = rows->scale != NULL;
    return args;
}

static sut_status fetch_sums(sut_cuda_plan *plan, int n_sums, double *sums)
{
    sut_cuda *const cuda = plan->cuda;
    CUDA_TRY(cuda,
             cudaMemcpyAsync(plan->host_sums, plan->work + plan->sums_at, (size_t)n_sums * sizeof(double),
                             cudaMemcpyDeviceToHost, cuda->stream),
             "the sums of a pass");
    CUDA_TRY(cuda, cudaStreamSynchronize(cuda->stream), "a pass");
    memcpy(sums, plan->host_sums, (size_t)n_sums * sizeof(double));
    return SUT_OK;
}

typedef int (*launcher)(const sut_cuda_args *args, int f64, void *stream);

/* One launch for each type that is there, with the sums of both. */
static sut_status launch_sets(sut_cuda_plan *plan, const sut_rows *rows, sut_cuda_args args, bool careful,
                              launcher launch, const char *what)
{
    const chunk_set *const sets[3] = {&plan->f32, &plan->f64, &plan->all};
    int add = 0;
    for (int k = careful ? 2 : 0; k < (careful ? 3 : 2); ++k) {
        if (sets[k]->count == 0)
            continue;
        const sut_cuda_args own = base_args(plan, rows, sets[k], args.n_sums);
        args.chunks = own.chunks;
        args.n_chunks = own.n_chunks;
        args.n_slices = own.n_slices;
        args.add = add;
        CUDA_TRY(plan->cuda, launch(&args, k > 0, plan->cuda->stream), what);
        add = 1;
    }
    if (!add && args.n_sums > 0) /* a layout without elements */
        CUDA_TRY(plan->cuda, cudaMemsetAsync(args.sums, 0, (size_t)args.n_sums * sizeof(double), plan->cuda->stream),
                 what);
    return SUT_OK;
}

/* ---- the passes ---- */

static sut_status cuda_gram(sut_cuda_plan *plan, const sut_rows *rows, bool strict, double *K)
{
    const int m = rows->m, n_sums = m * (m + 1) / 2;
    SUT_TRY(begin_tables(plan, rows));
    SUT_TRY(upload(plan));
    sut_cuda_args args = base_args(plan, rows, &plan->all, n_sums);
    args.strict = strict;
    args.want_sums = 1;
    SUT_TRY(launch_sets(plan, rows, args, rows->scale != NULL, sut_cuda_launch_gram, "the Gram pass"));
    double sums[SUT_MAX_LOSSES * (SUT_MAX_LOSSES + 1) / 2];
    SUT_TRY(fetch_sums(plan, n_sums, sums));
    for (int i = 0; i < m; ++i)
        for (int j = 0; j <= i; ++j)
            K[i * m + j] = K[j * m + i] = sums[i * (i + 1) / 2 + j];
    return SUT_OK;
}

static sut_status fetch_found(sut_cuda_plan *plan, int count, unsigned long long *found)
{
    sut_cuda *const cuda = plan->cuda;
    CUDA_TRY(cuda,
             cudaMemcpyAsync(plan->host_sums, plan->work + plan->found_at, (size_t)count * sizeof *found,
                             cudaMemcpyDeviceToHost, cuda->stream),
             "the result of a search");
    CUDA_TRY(cuda, cudaStreamSynchronize(cuda->stream), "a search");
    memcpy(found, plan->host_sums, (size_t)count * sizeof *found);
    return SUT_OK;
}

static sut_status cuda_row_max(sut_cuda_plan *plan, const sut_rows *rows, double *max_out)
{
    unsigned long long found[SUT_MAX_LOSSES];
    unsigned long long *const to = reinterpret_cast<unsigned long long *>(plan->work + plan->found_at);
    SUT_TRY(begin_tables(plan, rows));
    SUT_TRY(upload(plan));
    CUDA_TRY(plan->cuda, cudaMemsetAsync(to, 0, sizeof found, plan->cuda->stream),
             "the search for the largest elements");
    const sut_cuda_args args = base_args(plan, rows, &plan->all, 0);
    if (plan->n_chunks > 0)
        CUDA_TRY(plan->cuda, sut_cuda_launch_row_max(&args, to, plan->cuda->stream),
                 "the search for the largest elements");
    SUT_TRY(fetch_found(plan, rows->m, found));
    for (int i = 0; i < rows->m; ++i)
        memcpy(&max_out[i], &found[i], sizeof max_out[i]);
    return SUT_OK;
}

static sut_status cuda_find_nonfinite(sut_cuda_plan *plan, const void *x, int64_t n, sut_dtype dtype,
                                      int64_t *index_out)
{
    unsigned long long found = ~0ull;
    unsigned long long *const to = reinterpret_cast<unsigned long long *>(plan->work + plan->found_at);
    *index_out = -1;
    if (n <= 0)
        return SUT_OK;
    CUDA_TRY(plan->cuda, cudaMemsetAsync(to, 0xff, sizeof found, plan->cuda->stream), "the search for NaN");
    CUDA_TRY(plan->cuda, sut_cuda_launch_find_nonfinite(x, n, (int)dtype, to, plan->cuda->stream),
             "the search for NaN");
    SUT_TRY(fetch_found(plan, 1, &found));
    *index_out = found == ~0ull ? -1 : (int64_t)found;
    return SUT_OK;
}

/* A rule with its flags as the kernels number them, and the slots it has. -1 for a combination that does not exist. */
static int variant_of(sut_rule rule, int flags, int *slots)
{
    static const struct {
        sut_rule rule;
        int flags, variant, slots;
    } table[] = {
        {SUT_RULE_SGD, 0, SUT_CUDA_SGD, 0},
        {SUT_RULE_SGD, SGD_MOMENTUM, SUT_CUDA_SGD_MOMENTUM, 1},
        {SUT_RULE_SGD, SGD_MOMENTUM | SGD_NESTEROV, SUT_CUDA_SGD_NESTEROV, 1},
        {SUT_RULE_RMSPROP, 0, SUT_CUDA_RMSPROP, 1},
        {SUT_RULE_RMSPROP, RMSPROP_MOMENTUM, SUT_CUDA_RMSPROP_MOMENTUM, 3},
        {SUT_RULE_RMSPROP, RMSPROP_CENTERED, SUT_CUDA_RMSPROP_CENTERED, 5},
        {SUT_RULE_RMSPROP, RMSPROP_MOMENTUM | RMSPROP_CENTERED, SUT_CUDA_RMSPROP_BOTH, 7},
        {SUT_RULE_ADAGRAD, 0, SUT_CUDA_ADAGRAD, 1},
        {SUT_RULE_ADAM, 0, SUT_CUDA_ADAM, 3},
        {SUT_RULE_ADAM, SUT_RULE_DECOUPLED, SUT_CUDA_ADAM_DECOUPLED, 3},
        {SUT_RULE_ADAM, ADAM_AMSGRAD, SUT_CUDA_ADAM_MAX, 7},
        {SUT_RULE_ADAM, ADAM_AMSGRAD | SUT_RULE_DECOUPLED, SUT_CUDA_ADAM_MAX_DECOUPLED, 7},
        {SUT_RULE_NADAM, 0, SUT_CUDA_NADAM, 3},
        {SUT_RULE_RADAM, 0, SUT_CUDA_RADAM, 3},
        {SUT_RULE_RADAM, RADAM_RECTIFIED, SUT_CUDA_RADAM_RECTIFIED, 3},
        {SUT_RULE_LION, 0, SUT_CUDA_LION, 1},
        {SUT_RULE_LION, SUT_RULE_DECOUPLED, SUT_CUDA_LION_DECOUPLED, 1},
    };
    for (size_t k = 0; k < sizeof table / sizeof *table; ++k)
        if (table[k].rule == rule && table[k].flags == flags) {
            *slots = table[k].slots;
            return table[k].variant;
        }
    return -1;
}

static bool write_setting(const sut_rule_setting *from, sut_cuda_setting *to)
{
    to->variant = variant_of(from->rule, from->flags & ~SUT_RULE_COUPLED, &to->slots);
    to->coupled = (from->flags & SUT_RULE_COUPLED) != 0;
    to->uses_theta = (from->flags & (SUT_RULE_COUPLED | SUT_RULE_DECOUPLED)) != 0;
    to->deferred = from->rule == SUT_RULE_LION;
    memcpy(to->f32, from->f32, sizeof to->f32);
    memcpy(to->f64, from->f64, sizeof to->f64);
    return to->variant >= 0;
}

static bool write_tensors(sut_cuda_plan *plan, const sut_step_pass *pass)
{
    sut_cuda_tensor *const tensors = reinterpret_cast<sut_cuda_tensor *>(plan->host);
    sut_cuda_setting *const settings = reinterpret_cast<sut_cuda_setting *>(plan->host + plan->settings_at);
    const sut_rule_setting *last = NULL;
    int n_settings = 0;
    for (int64_t k = 0; k < plan->n_tensors; ++k) {
        const sut_pass_tensor *const from = &pass->tensors[k];
        sut_cuda_tensor *const to = &tensors[k];
        to->present = from->present;
        if (!from->present)
            continue;
        to->param = from->param;
        to->theta = from->theta;
        for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
            to->state[slot] = from->state[slot];
        to->u_out = pass->u_out ? pass->u_out[k] : NULL;
        to->inverse_out = pass->inverse_out ? pass->inverse_out[k] : NULL;
        to->p_out = pass->p_out ? pass->p_out[k] : NULL;
        to->p_in = pass->p_in ? pass->p_in[k] : NULL;
        to->lr = from->lr;
        to->ratio = from->ratio;
        /* Neighbours of one group share their constants. */
        if (from->setting != last && !write_setting(from->setting, &settings[n_settings++]))
            return false;
        last = from->setting;
        to->setting = n_settings - 1;
    }
    return true;
}

static sut_status cuda_step(sut_cuda_plan *plan, const sut_step_pass *pass)
{
    const int m = pass->rows.m;
    SUT_TRY(begin_tables(plan, &pass->rows));
    if (!write_tensors(plan, pass))
        return report(plan->cuda, cudaErrorInvalidValue, "a rule that the kernels do not know");
    sut_cuda_control *const control = reinterpret_cast<sut_cuda_control *>(plan->host + plan->control_at);
    const size_t size = (size_t)m * sizeof(double);
    if (pass->weights)
        memcpy(control->weights, pass->weights, size);
    if (pass->lambda)
        memcpy(control->lambda, pass->lambda, size);
    if (pass->correction)
        memcpy(control->correction, pass->correction, size);
    control->update = pass->update;
    control->realign = pass->realign;
    control->corrected = pass->correction != NULL;
    SUT_TRY(upload(plan));

    const int n_sums = !pass->want_sums ? 0 : SUT_SUM_ROWS + m + (pass->want_metric ? m * (m + 1) / 2 : 0);
    sut_cuda_args args = base_args(plan, &pass->rows, &plan->all, n_sums);
    args.kind = pass->kind;
    args.direct = pass->direct;
    args.weighted = pass->weights && !pass->direct;
    args.exact_sum = pass->exact_sum;
    args.strict = pass->strict;
    args.want_sums = pass->want_sums;
    args.want_metric = pass->want_sums && pass->want_metric;
    args.euclidean = pass->update == SUT_UPDATE_EUCLIDEAN;
    args.forms =
        pass->p_out || pass->correction || (pass->update != SUT_UPDATE_PROPOSAL && pass->update != SUT_UPDATE_NATURAL);
    args.u_scale = pass->u_scale;
    launcher launch = sut_cuda_launch_propose;
    if (pass->kind == SUT_PASS_FUSED && !pass->want_sums)
        launch = sut_cuda_launch_fused;
    else if (pass->kind == SUT_PASS_APPLY || pass->kind == SUT_PASS_MEASURE)
        launch = sut_cuda_launch_apply;
    SUT_TRY(launch_sets(plan, &pass->rows, args, pass->careful, launch, "a pass of the step"));
    return n_sums > 0 ? fetch_sums(plan, n_sums, pass->sums) : SUT_OK;
}

extern "C" const sut_cuda_ops sut_cuda_table = {1, cuda_gram, cuda_row_max, cuda_find_nonfinite, cuda_step};
