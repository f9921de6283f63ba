/* Plans, see plan.h. */
#include "kernels/plan.h"
#include "kernels/blas.h"

/* Elements of a chunk: a strip where there are few, so that small problems fill the device too. A function of n alone. */
static int chunk_elements(int64_t n)
{
    return n <= (int64_t)1 << 20 ? SUT_CUDA_STRIP : 4 * SUT_CUDA_STRIP;
}

static int64_t chunks_in(int64_t count, int size)
{
    return count / size + (count % size != 0);
}

static int slices_of(int64_t n_chunks)
{
    return n_chunks < SUT_CUDA_SLICES ? (int)n_chunks : SUT_CUDA_SLICES;
}

/* Room for `size` bytes behind what has been placed; pieces begin at multiples of 256. */
static size_t place(size_t *end, size_t size)
{
    const size_t at = (*end + 255) / 256 * 256;
    *end = at + size;
    return at;
}

static int64_t count_chunks(const sut_layout *layout, int size, bool f64)
{
    int64_t n = 0;
    for (int64_t k = 0; k < layout->n_tensors; ++k)
        if ((layout->dtype[k] == SUT_DTYPE_F64) == f64)
            n += chunks_in(layout->count[k], size);
    return n;
}

static void write_chunks(const sut_layout *layout, int size, bool f64, sut_cuda_chunk *to)
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

/* Memory of every kind; what was made is released by sut_cuda_plan_destroy(). */
static sut_status take_memory(sut_context *ctx, sut_cuda_plan *plan)
{
    const int64_t n_slices = plan->listed ? slices_of(plan->all.count) : SUT_CUDA_SLICES;
    const size_t n_tensors = (size_t)plan->n_tensors, m = (size_t)plan->m;
    const size_t n_sums = SUT_SUM_ROWS + m + m * (m + 1) / 2;
    (void)place(&plan->table_size, n_tensors * sizeof(sut_cuda_tensor));
    plan->rows_at = place(&plan->table_size, n_tensors * m * sizeof(void *));
    plan->control_at = place(&plan->table_size, sizeof(sut_cuda_control));
    plan->settings_at = place(&plan->table_size, n_tensors * sizeof(sut_cuda_setting));
    (void)place(&plan->work_size, plan->listed ? (size_t)plan->all.count * sizeof(sut_cuda_chunk) : 0);
    plan->partial_at = place(&plan->work_size, n_sums * (size_t)n_slices * sizeof(double));
    plan->sums_at = place(&plan->work_size, n_sums * sizeof(double));
    plan->found_at = place(&plan->work_size, SUT_MAX_LOSSES * sizeof(unsigned long long));
    plan->ticket_at = place(&plan->work_size, sizeof(unsigned));

    void *host = NULL, *device = NULL, *work = NULL, *sums = NULL;
    SUT_CUDA_TRY(ctx, cudaMallocHost(&host, plan->table_size), "the tables of a pass in pinned memory");
    plan->host = static_cast<char *>(host);
    SUT_CUDA_TRY(ctx, cudaMallocHost(&sums, (n_sums + m * m + SUT_MAX_LOSSES) * sizeof(double)),
                 "the sums of a pass in pinned memory");
    plan->host_sums = static_cast<double *>(sums);
    SUT_TRY(sut_cuda_allocate(ctx, plan->table_size, &device));
    plan->device = static_cast<char *>(device);
    SUT_TRY(sut_cuda_allocate(ctx, plan->work_size, &work));
    plan->work = static_cast<char *>(work);
    SUT_CUDA_TRY(ctx, cudaEventCreateWithFlags(&plan->uploaded, cudaEventDisableTiming), "an event");
    return SUT_OK;
}

static sut_status start(sut_context *ctx, sut_cuda_plan *plan, const sut_cuda_chunk *chunks)
{
    const cudaStream_t stream = cuda_of(ctx)->stream;
    if (plan->listed && plan->all.count > 0)
        SUT_CUDA_TRY(ctx,
                     cudaMemcpyAsync(plan->work, chunks, (size_t)plan->all.count * sizeof *chunks,
                                     cudaMemcpyHostToDevice, stream),
                     "the list of chunks");
    SUT_CUDA_TRY(ctx, cudaMemsetAsync(plan->work + plan->ticket_at, 0, sizeof(unsigned), stream), "the sums of a pass");
    SUT_CUDA_TRY(ctx, cudaEventRecord(plan->uploaded, stream), "the tables of a pass");
    return sut_cuda_report(ctx, cudaStreamSynchronize(stream), "the list of chunks"); /* before the list is freed */
}

/* `layout` NULL: the plain plan. */
static sut_status make_plan(sut_context *ctx, const sut_layout *layout, int m, sut_cuda_plan **out)
{
    const sut_backend_host *const host = cuda_of(ctx)->host;
    *out = NULL;
    sut_cuda_plan *const plan = static_cast<sut_cuda_plan *>(host->alloc(ctx, 1, sizeof *plan));
    sut_cuda_chunk *chunks = NULL;
    bool enough = plan != NULL;
    if (plan) {
        plan->m = m;
        plan->listed = layout != NULL;
        plan->n_tensors = layout ? layout->n_tensors : 1;
    }
    if (plan && layout) {
        const int size = chunk_elements(layout->n_elements);
        plan->f32 = sut_cuda_chunks{0, count_chunks(layout, size, false)};
        plan->f64 = sut_cuda_chunks{plan->f32.count, count_chunks(layout, size, true)};
        plan->all = sut_cuda_chunks{0, plan->f32.count + plan->f64.count};
        chunks = static_cast<sut_cuda_chunk *>(host->alloc(ctx, (size_t)plan->all.count + 1, sizeof *chunks));
        enough = chunks != NULL;
        if (chunks) {
            write_chunks(layout, size, false, chunks);
            write_chunks(layout, size, true, chunks + plan->f64.first);
        }
    }
    sut_status status = SUT_OK;
    if (!enough)
        status = host->fail(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for the list of chunks of %lld elements",
                            layout ? (long long)layout->n_elements : 0LL);
    if (status == SUT_OK)
        status = take_memory(ctx, plan);
    if (status == SUT_OK)
        status = start(ctx, plan, chunks);
    host->free(ctx, chunks);
    if (status == SUT_OK)
        *out = plan;
    else
        sut_cuda_plan_destroy(ctx, plan);
    return status;
}

sut_status sut_cuda_plan_create(sut_context *ctx, const sut_layout *layout, int m, void **plan_out, size_t *bytes_out)
{
    SUT_CUDA_ENTER(ctx);
    sut_cuda_plan *plan = NULL;
    *plan_out = NULL;
    SUT_TRY(make_plan(ctx, layout, m, &plan));
    *plan_out = plan;
    *bytes_out = 2 * plan->table_size + plan->work_size;
    if (sut_cuda_blas_serves(layout, m))
        SUT_TRY(sut_cuda_blas_open(ctx)); /* a step allocates nothing */
    return SUT_OK;
}

void sut_cuda_plan_destroy(sut_context *ctx, void *memory)
{
    sut_cuda_plan *const plan = static_cast<sut_cuda_plan *>(memory);
    if (!plan)
        return;
    const sut_cuda_scope scope(ctx);
    (void)cudaStreamSynchronize(cuda_of(ctx)->stream);
    sut_cuda_release(ctx, plan->work);
    sut_cuda_release(ctx, plan->device);
    (void)cudaFreeHost(plan->host_sums);
    (void)cudaFreeHost(plan->host);
    if (plan->uploaded)
        (void)cudaEventDestroy(plan->uploaded);
    cuda_of(ctx)->host->free(ctx, plan);
}

sut_status sut_cuda_reserve(sut_context *ctx, int m)
{
    sut_cuda *const cuda = cuda_of(ctx);
    if (cuda->plain && cuda->plain->m >= m)
        return SUT_OK;
    SUT_CUDA_ENTER(ctx);
    sut_cuda_plan *larger = NULL;
    SUT_TRY(make_plan(ctx, NULL, m, &larger));
    sut_cuda_plan_destroy(ctx, cuda->plain);
    cuda->plain = larger;
    return SUT_OK;
}

/* ---- passes ---- */

sut_status sut_cuda_find_plan(sut_context *ctx, const sut_layout *layout, int m, sut_cuda_plan **out)
{
    sut_cuda_plan *const plan = layout->plan ? static_cast<sut_cuda_plan *>(layout->plan) : cuda_of(ctx)->plain;
    *out = plan;
    if (m < 1 || m > plan->m || layout->n_tensors != plan->n_tensors)
        SUT_CUDA_FAIL(ctx, SUT_ERROR_INTERNAL, "a pass over %d rows of %lld tensors has room for %d of %lld", m,
                      (long long)layout->n_tensors, plan->m, (long long)plan->n_tensors);
    return SUT_OK;
}

sut_cuda_chunks sut_cuda_chunks_of(const sut_cuda_plan *plan, const sut_layout *layout, int which)
{
    if (plan->listed)
        return which == 0 ? plan->f32 : which == 1 ? plan->f64 : plan->all;
    const bool f64 = layout->dtype[0] == SUT_DTYPE_F64;
    const bool some = which == 2 || (which == 1) == f64;
    return sut_cuda_chunks{0, some ? chunks_in(layout->count[0], chunk_elements(layout->n_elements)) : 0};
}

sut_status sut_cuda_begin_tables(sut_context *ctx, sut_cuda_plan *plan, const sut_layout *layout, const sut_rows *rows)
{
    SUT_CUDA_TRY(ctx, cudaEventSynchronize(plan->uploaded), "the tables of the pass before");
    memset(plan->host, 0, (size_t)plan->n_tensors * sizeof(sut_cuda_tensor));
    memset(plan->host + plan->control_at, 0, sizeof(sut_cuda_control));
    plan->n_settings = 0;
    const void **const to = reinterpret_cast<const void **>(plan->host + plan->rows_at);
    for (int64_t k = 0; k < rows->m * plan->n_tensors; ++k)
        to[k] = rows->data[k];
    sut_cuda_tensor *const tensors = sut_cuda_tensors(plan);
    for (int64_t k = 0; k < plan->n_tensors; ++k) {
        tensors[k].dtype = (int)layout->dtype[k];
        tensors[k].own = layout->dtype[k] == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;
    }
    if (rows->scale)
        memcpy(sut_cuda_control_of(plan)->scale, rows->scale, (size_t)rows->m * sizeof(double));
    return SUT_OK;
}

sut_status sut_cuda_upload_tables(sut_context *ctx, sut_cuda_plan *plan)
{
    const cudaStream_t stream = cuda_of(ctx)->stream;
    const size_t used = plan->settings_at + (size_t)plan->n_settings * sizeof(sut_cuda_setting);
    SUT_CUDA_TRY(ctx, cudaMemcpyAsync(plan->device, plan->host, used, cudaMemcpyHostToDevice, stream),
                 "the tables of a pass");
    SUT_CUDA_TRY(ctx, cudaEventRecord(plan->uploaded, stream), "the tables of a pass");
    return SUT_OK;
}

sut_cuda_args sut_cuda_base_args(const sut_cuda_plan *plan, const sut_layout *layout, const sut_rows *rows,
                                 const sut_cuda_chunks *chunks, int n_sums)
{
    sut_cuda_args args;
    memset(&args, 0, sizeof args);
    args.chunks = plan->listed ? reinterpret_cast<const sut_cuda_chunk *>(plan->work) + chunks->first : NULL;
    args.tensors = reinterpret_cast<const sut_cuda_tensor *>(plan->device);
    args.rows = reinterpret_cast<const void *const *>(plan->device + plan->rows_at);
    args.settings = reinterpret_cast<const sut_cuda_setting *>(plan->device + plan->settings_at);
    args.control = reinterpret_cast<const sut_cuda_control *>(plan->device + plan->control_at);
    args.partial = reinterpret_cast<double *>(plan->work + plan->partial_at);
    args.sums = reinterpret_cast<double *>(plan->work + plan->sums_at);
    args.ticket = reinterpret_cast<unsigned *>(plan->work + plan->ticket_at);
    args.n_tensors = plan->n_tensors;
    args.n_elements = layout->n_elements;
    args.chunk_elements = chunk_elements(layout->n_elements);
    args.n_chunks = chunks->count;
    args.n_slices = slices_of(chunks->count);
    args.n_sums = n_sums;
    args.m = rows->m;
    args.scaled = rows->scale != NULL;
    return args;
}

sut_status sut_cuda_fetch(sut_context *ctx, sut_cuda_plan *plan, size_t at, size_t size, void *to)
{
    const cudaStream_t stream = cuda_of(ctx)->stream;
    SUT_CUDA_TRY(ctx, cudaMemcpyAsync(plan->host_sums, plan->work + at, size, cudaMemcpyDeviceToHost, stream),
                 "the sums of a pass");
    SUT_CUDA_TRY(ctx, cudaStreamSynchronize(stream), "a pass");
    memcpy(to, plan->host_sums, size);
    return SUT_OK;
}

sut_status sut_cuda_fetch_sums(sut_context *ctx, sut_cuda_plan *plan, int n_sums, double *sums)
{
    return sut_cuda_fetch(ctx, plan, plan->sums_at, (size_t)n_sums * sizeof *sums, sums);
}

sut_status sut_cuda_fetch_found(sut_context *ctx, sut_cuda_plan *plan, int count, unsigned long long *found)
{
    return sut_cuda_fetch(ctx, plan, plan->found_at, (size_t)count * sizeof *found, found);
}

void sut_cuda_begin_triangle(sut_cuda_args *args)
{
    args->n_slices = args->n_slices < SUT_CUDA_FACTOR_SLICES ? args->n_slices : SUT_CUDA_FACTOR_SLICES;
    args->n_sums = (args->m + 1) * (args->m + 2) / 2; /* fewer than the sums of a pass: their room is enough */
}

sut_status sut_cuda_take_triangle(sut_context *ctx, sut_cuda_plan *plan, int m, double *R)
{
    const int cols = m + 1, size = cols * (cols + 1) / 2;
    double packed[(SUT_MAX_LOSSES + 1) * (SUT_MAX_LOSSES + 2) / 2];
    SUT_TRY(sut_cuda_fetch_sums(ctx, plan, size, packed));
    memset(R, 0, (size_t)cols * (size_t)cols * sizeof *R);
    const double *from = packed;
    for (int r = 0; r < cols; ++r)
        for (int c = r; c < cols; ++c)
            R[r * cols + c] = *from++;
    return SUT_OK;
}
