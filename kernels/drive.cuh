/*
 * The kernels of drive.h for one number of rows: few (SUT_ROOM is SUT_CUDA_FEW), whose elements the passes keep in registers, or
 * many. drive_few.cu and drive_many.cu include this.
 */
#include "kernels/array.cuh" /* before the headers that declare local arrays */

#include "kernels/drive.h"
#include "kernels/apply.cuh"
#include "kernels/fused.cuh"
#include "kernels/gram.cuh"
#include "kernels/launch.h"
#include "kernels/propose.cuh"
#include "kernels/scan.cuh"
#include "kernels/setting.h"
#include "kernels/step_factor.cuh"

#include <cooperative_groups.h>

/* The sources of the algebra, of which not everything is used here. They are C11. */
#ifdef __CUDACC__
#pragma nv_diag_suppress 177
#endif
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wc++20-extensions"
#define _Static_assert static_assert

#include "optim/algebra.c"
#include "optim/prepare.c"
#include "surgery/aligned_mtl.c"
#include "surgery/cagrad.c"
#include "surgery/config.c"
#include "surgery/dualproj.c"
#include "surgery/imtlg.c"
#include "surgery/mgda.c"
#include "surgery/nash.c"
#include "surgery/nnls.c"
#include "surgery/nnqp.c"
#include "surgery/pcgrad.c"
#include "surgery/plain.c"
#include "surgery/sdmgrad.c"
#include "surgery/solve.c"
#include "surgery/upgrad.c"

namespace
{

constexpr bool FEW_ROWS = SUT_ROOM == SUT_CUDA_FEW;

/* ---- what one thread decides ---- */

/* Sums of both sets, in place. */
SUT_GPU void add_second_set(sut_cuda_drive *d)
{
    const bool both = !d->all && d->sets[0].count > 0 && d->sets[1].count > 0;
    for (int k = 0; both && k < d->args.n_sums; ++k)
        d->args.sums[k] += d->second_sums[k];
}

/* A symmetric matrix from its packed lower triangle. */
SUT_GPU void unpack(const double *from, int m, double *K)
{
    for (int i = 0; i < m; ++i)
        for (int j = 0; j <= i; ++j)
            K[i * m + j] = K[j * m + i] = from[i * (i + 1) / 2 + j];
}

/* The triangle of m + 1 columns, from its packed rows. */
SUT_GPU void unpack_triangle(const double *from, int cols, double *R)
{
    for (int r = 0; r < cols; ++r)
        for (int c = r; c < cols; ++c)
            R[r * cols + c] = from[packed(r, c, cols)];
}

/* Gives the answer of the pass that was asked for to the algebra. Another action where it takes two. */
SUT_GPU int take_answer(sut_cuda_drive *d)
{
    sut_algebra *const a = &d->state.algebra;
    const bool found = d->found[0] != ~0ull;
    const int64_t low = (int64_t)(d->found[0] & 0xffffffffu), high = (int64_t)(d->found[0] >> 32);
    switch (d->action) {
    case SUT_ACTION_GRAM:
        add_second_set(d);
        unpack(d->args.sums, a->m, a->gram);
        break;
    case SUT_ACTION_PROPOSE:
    case SUT_ACTION_APPLY: add_second_set(d); break;
    case SUT_ACTION_FACTOR: unpack_triangle(d->args.sums, a->m + 1, a->R); break;
    case SUT_ACTION_LARGEST:
        for (int i = 0; i < a->m; ++i)
            memcpy(&a->largest[i], &d->found[i], sizeof a->largest[i]);
        break;
    case SUT_ACTION_CULPRIT:
    case SUT_ACTION_PARAMETERS:
        if (!found)
            break;
        a->failed_loss = (int)high;
        a->failed_tensor = low;
        d->found[0] = ~0ull;
        return d->action == SUT_ACTION_CULPRIT ? SUT_ACTION_CULPRIT_INDEX : SUT_ACTION_PARAMETERS_INDEX;
    case SUT_ACTION_CULPRIT_INDEX:
        sut_algebra_fail(a, SUT_ALGEBRA_GRADIENT, a->failed_loss, a->failed_tensor, (int64_t)d->found[0]);
        break;
    case SUT_ACTION_PARAMETERS_INDEX:
        sut_algebra_fail(a, SUT_ALGEBRA_PARAMETER, -1, a->failed_tensor, (int64_t)d->found[0]);
        break;
    case SUT_ACTION_PREPARE:
        d->state.steps += 1;
        a->one_rate = !d->several_rates;
        a->late_gradient = d->late_gradient != 0;
        break;
    default: break;
    }
    return SUT_ACTION_NONE;
}

SUT_GPU void record_failure(sut_cuda_drive *d)
{
    sut_cuda_state *const s = &d->state;
    const sut_algebra *const a = &s->algebra;
    s->last_failed = 1;
    s->skipped += a->status == SUT_ERROR_NOT_FINITE;
    s->last_failure = sut_algebra_failure_of(a);
    if (s->failures++ == 0)
        s->first_failure = s->last_failure;
}

/* The arguments of a pass over the rows, with room for n_sums. */
SUT_GPU void begin_args(sut_cuda_drive *d, int n_sums)
{
    d->args = d->base;
    d->args.n_sums = n_sums;
    d->args.want_sums = n_sums > 0;
    d->all = 0;
    d->control.update = 0;
    d->control.realign = 0;
    d->control.corrected = 0;
}

SUT_GPU int ask_for_gram(sut_cuda_drive *d)
{
    const sut_algebra *const a = &d->state.algebra;
    begin_args(d, a->m * (a->m + 1) / 2);
    d->args.strict = a->search.strict;
    d->args.scaled = d->all = a->search.scale != 1;
    for (int i = 0; i < a->m; ++i)
        d->control.scale[i] = a->search.scale;
    return SUT_ACTION_GRAM;
}

/* The arguments of a pass of the step, as sut_cuda_step() makes them on the host. */
SUT_GPU int ask_for_pass(sut_cuda_drive *d, const sut_request *r)
{
    const sut_algebra *const a = &d->state.algebra;
    const int m = a->m;
    begin_args(d, !r->want_sums ? 0 : SUT_SUM_ROWS + m + (r->want_metric ? m * (m + 1) / 2 : 0));
    d->args.kind = r->pass;
    d->args.direct = r->combined && a->direct;
    d->args.weighted = r->combined && !a->direct;
    d->args.exact_sum = a->exact_sum;
    d->args.strict = d->config->strict != 0;
    d->args.want_metric = r->want_sums && r->want_metric;
    d->args.euclidean = r->update == SUT_UPDATE_EUCLIDEAN;
    d->args.forms = r->corrected || (r->update != SUT_UPDATE_PROPOSAL && r->update != SUT_UPDATE_NATURAL);
    d->control.update = r->update;
    d->control.realign = r->realign;
    d->control.corrected = r->corrected;
    for (int i = 0; i < m; ++i) {
        d->control.weights[i] = a->signed_weights[i];
        d->control.lambda[i] = a->signed_lambda[i];
        d->control.correction[i] = a->signed_correction[i];
        d->control.scale[i] = a->signed_scale[i];
    }
    d->control.scale[m] = a->signed_scale[m];
    d->all = r->careful;
    if (r->factor) {
        d->args.n_sums = packed_size(m + 1);
        d->args.want_sums = 0;
        return SUT_ACTION_FACTOR;
    }
    if (r->pass == SUT_PASS_APPLY || r->pass == SUT_PASS_MEASURE)
        return SUT_ACTION_APPLY;
    return r->pass == SUT_PASS_FUSED && !r->want_sums ? SUT_ACTION_FUSED : SUT_ACTION_PROPOSE;
}

SUT_GPU int ask_for_search(sut_cuda_drive *d, int action)
{
    begin_args(d, 0);
    d->all = 1;
    for (int i = 0; i < d->state.algebra.m; ++i)
        d->found[i] = action == SUT_ACTION_LARGEST ? 0 : ~0ull;
    return action;
}

SUT_GPU void begin_step(sut_cuda_drive *d)
{
    sut_algebra *const a = &d->state.algebra;
    a->losses = d->input->has_losses ? d->input->losses : nullptr;
    a->t = d->state.steps;
    a->something = d->input->something != 0;
    a->report = d->input->report != 0;
    a->fused = true;
    sut_algebra_begin(a);
    d->state.last_failed = 0;
    d->action = SUT_ACTION_NONE;
    d->ready = SUT_ACTION_NONE;
}

/*
 * The next action. One thread works: the algebra of a few losses takes less time than to wake a second one, and its order of
 * operations, hence every bit, is the CPU's.
 */
static __device__ __noinline__ int decide(sut_cuda_drive *d, int flags)
{
    sut_algebra *const a = &d->state.algebra;
    if (flags & SUT_RUN_BEGIN)
        begin_step(d);
    else if (d->ready != SUT_ACTION_NONE)
        d->action = SUT_ACTION_NONE; /* a launch of its own has put the sums of both sets in place */
    d->ready = SUT_ACTION_NONE;
    bool has_gram = (flags & SUT_RUN_HAS_GRAM) != 0;
    const int more = take_answer(d);
    if (more != SUT_ACTION_NONE)
        return d->action = more;
    for (;;) {
        const bool failed_before = a->request.kind == SUT_REQUEST_FAILED && d->state.last_failed;
        const sut_request *const r = sut_algebra_next(a);
        switch (r->kind) {
        case SUT_REQUEST_DONE: return d->action = SUT_ACTION_NONE;
        case SUT_REQUEST_GRAM:
            d->action = ask_for_gram(d);
            if (!has_gram)
                return d->action;
            has_gram = false;
            d->action = SUT_ACTION_NONE;
            unpack(d->args.sums, a->m, a->gram); /* both sets are in it */
            break;
        case SUT_REQUEST_LARGEST: return d->action = ask_for_search(d, SUT_ACTION_LARGEST);
        case SUT_REQUEST_CULPRIT: return d->action = ask_for_search(d, SUT_ACTION_CULPRIT);
        case SUT_REQUEST_PARAMETERS: return d->action = ask_for_search(d, SUT_ACTION_PARAMETERS);
        case SUT_REQUEST_PREPARE: return d->action = SUT_ACTION_PREPARE;
        case SUT_REQUEST_STEP: {
            const int action = ask_for_pass(d, r);
            const bool proposes = r->pass == SUT_PASS_FUSED || r->pass == SUT_PASS_PROPOSE;
            const bool applies = r->pass == SUT_PASS_APPLY && !r->careful; /* careful ones are rare */
            const int stop = proposes ? SUT_RUN_TO_PROPOSE : applies ? SUT_RUN_TO_APPLY : 0;
            d->ready = flags & stop ? action : SUT_ACTION_NONE;
            return d->action = flags & stop ? SUT_ACTION_NONE : action;
        }
        case SUT_REQUEST_SOLVED: break;
        case SUT_REQUEST_FAILED:
            if (!failed_before)
                record_failure(d);
            return d->action = SUT_ACTION_NONE;
        }
    }
}

/* ---- rates and constants ---- */

static __device__ __noinline__ void begin_prepare(sut_cuda_drive *d)
{
    sut_algebra *const a = &d->state.algebra;
    d->scheduled = sut_scheduled_rate(d->config, d->state.steps);
    d->late_gradient = d->several_rates = 0;
    a->lr = 0;
    for (int k = 0; k < d->n_groups; ++k) {
        const double lr = sut_group_rate(d->config, &d->groups[k], d->scheduled);
        a->lr = lr > a->lr ? lr : a->lr;
    }
}

static __device__ __noinline__ void prepare_tensor(sut_cuda_drive *d, int64_t k)
{
    sut_cuda_tensor *const to = &d->tensors[k];
    to->present = d->present[k];
    if (!to->present)
        return;
    const sut_hyper *const h = &d->groups[d->group[k]];
    const bool realigns = d->config->align == SUT_ALIGN_GUA;
    sut_cuda_count *const count = &d->counts[k];
    sut_rule_setting setting;
    const double largest = d->state.algebra.lr;
    to->lr = sut_group_rate(d->config, h, d->scheduled);
    to->ratio = largest > 0 ? to->lr / largest : 0;
    to->setting = (int)k;
    ++count->t;
    sut_rule_prepare(d->rule, d->decay_flag, h, count->t, to->lr, &count->mu_prod, realigns ? d->config->rho_m : 0,
                     realigns ? d->config->rho_v : 0, d->config->realign_raw != 0, &setting);
    (void)sut_cuda_write_setting(&setting, &d->settings[k]);
    /* Flags that any tensor may set to 1: who is first does not matter. */
    if (sut_rule_needs_gradient_later(&setting))
        atomicMax(&d->late_gradient, 1);
    if (to->ratio != 1)
        atomicMax(&d->several_rates, 1);
}

/* ---- searches ---- */

SUT_GPU bool is_bad(const four<double> &x, int left, int *first)
{
    for (int e = 0; e < SUT_CUDA_EACH && e < left; ++e)
        if (magnitude_bits(x.x[e]) >= 0x7ff0000000000000ull) {
            *first = e;
            return true;
        }
    return false;
}

/* rows: of the gradients, else the parameters. The place of the first bad row and tensor, or of its first bad element. */
SUT_GPU void find_culprit(sut_cuda_drive *d, const sut_cuda_args &args, int slice, bool rows, bool index)
{
    const sut_algebra *const a = &d->state.algebra;
    unsigned long long first = ~0ull;
    const int first_row = rows && index ? a->failed_loss : 0, last_row = rows && !index ? args.m : first_row + 1;
    const int64_t end = slice_begin(args.n_chunks, args.n_slices, slice + 1);
    for (int64_t c = slice_begin(args.n_chunks, args.n_slices, slice); c < end; ++c) {
        const sut_cuda_chunk chunk = chunk_of(args, c);
        if (index && chunk.tensor != a->failed_tensor)
            continue;
        for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
            const piece p = piece_of(args, chunk, strip);
            for (int i = first_row; i < last_row; ++i) {
                const four<double> x = rows ? load_row<double>(args, p, i)
                                            : load_own<double>(p.tensor->theta, p.tensor->own, p.at, p.left);
                int e = 0;
                if (!is_bad(x, p.left, &e))
                    continue;
                const unsigned long long place =
                    index ? (unsigned long long)(p.at + e) : (unsigned long long)i << 32 | (unsigned)chunk.tensor;
                first = place < first ? place : first;
            }
        }
    }
    if (first != ~0ull)
        atomicMin(&d->found[0], first);
}

/* ---- blocks ---- */

/* One pass over a slice. */
template <class Real, int ACTION>
__device__ __forceinline__ void run_pass(const sut_cuda_args &args, int slice, block_memory memory)
{
    if constexpr (ACTION == SUT_ACTION_GRAM)
        gram_body<Real, FEW_ROWS>(args, slice, memory);
    else if constexpr (ACTION == SUT_ACTION_FUSED)
        fused_body<Real>(args, slice);
    else if constexpr (ACTION == SUT_ACTION_PROPOSE)
        propose_body<Real, FEW_ROWS>(args, slice, memory);
    else if constexpr (ACTION == SUT_ACTION_APPLY)
        apply_body<Real, FEW_ROWS, false>(args, slice, memory);
    else
        step_factor_body(args, slice, static_cast<double *>(memory.aside), memory.ticket);
}

/* Shared memory of a block, in dynamic shared memory: what every thread reads, then what the bodies work in. */
struct shared_head {
    array_room arrays; /* comes first */
    sut_cuda_args args;
    unsigned ticket, action;
};

enum {
    HEAD = (sizeof(shared_head) + 15) / 16 * 16,
    SCRATCH = WARPS * TILE * sizeof(double),
    /* An update that is formed outside the rule goes through panels, however few rows there are. */
    ASIDE = (FEW_ROWS ? 1 : 2) * PANEL * SUT_CUDA_STRIP * sizeof(double),
    BEFORE_SUMS = HEAD + SCRATCH + ASIDE
};

static_assert((int)ASIDE >= 16384, "the algebra's local arrays lie there, too");

SUT_GPU block_memory divide_shared()
{
    SUT_DYNAMIC_SHARED(unsigned char, memory);
    shared_head *const head = reinterpret_cast<shared_head *>(memory);
    block_memory b;
    b.ticket = &head->ticket;
    b.scratch = reinterpret_cast<double *>(memory + HEAD);
    b.aside = memory + HEAD + SCRATCH;
    b.total = reinterpret_cast<double *>(memory + BEFORE_SUMS);
    return b;
}

/* By calls, one to a slice: their registers are not added up, and the kernel around them keeps none in memory. */
template <class Real, int ACTION> __device__ __noinline__ void call_pass(const sut_cuda_args &args, int slice)
{
    run_pass<Real, ACTION>(args, slice, divide_shared());
}
template <class Real> __device__ __noinline__ void call_forms(const sut_cuda_args &args, int slice)
{
    apply_body<Real, false, true>(args, slice, divide_shared());
}
__device__ __noinline__ void call_search(sut_cuda_drive *d, const sut_cuda_args &args, int action, int slice)
{
    const block_memory memory = divide_shared();
    if (action == SUT_ACTION_LARGEST)
        row_max_body(args, slice, reinterpret_cast<unsigned long long *>(memory.scratch), d->found);
    else
        find_culprit(d, args, slice, action == SUT_ACTION_CULPRIT || action == SUT_ACTION_CULPRIT_INDEX,
                     action == SUT_ACTION_CULPRIT_INDEX || action == SUT_ACTION_PARAMETERS_INDEX);
}

SUT_GPU void run_float(const sut_cuda_args &args, int action, int slice)
{
    switch (action) {
    case SUT_ACTION_GRAM: call_pass<float, SUT_ACTION_GRAM>(args, slice); break;
    case SUT_ACTION_FUSED: call_pass<float, SUT_ACTION_FUSED>(args, slice); break;
    case SUT_ACTION_PROPOSE: call_pass<float, SUT_ACTION_PROPOSE>(args, slice); break;
    default:
        if (args.forms)
            call_forms<float>(args, slice);
        else
            call_pass<float, SUT_ACTION_APPLY>(args, slice);
    }
}

/* Repairs and searches go over all chunks, in double. */
SUT_GPU void run_double(sut_cuda_drive *d, const sut_cuda_args &args, int action, int slice)
{
    switch (action) {
    case SUT_ACTION_GRAM: call_pass<double, SUT_ACTION_GRAM>(args, slice); break;
    case SUT_ACTION_FUSED: call_pass<double, SUT_ACTION_FUSED>(args, slice); break;
    case SUT_ACTION_PROPOSE: call_pass<double, SUT_ACTION_PROPOSE>(args, slice); break;
    case SUT_ACTION_APPLY:
        if (args.forms)
            call_forms<double>(args, slice);
        else
            call_pass<double, SUT_ACTION_APPLY>(args, slice);
        break;
    case SUT_ACTION_FACTOR: call_pass<double, SUT_ACTION_FACTOR>(args, slice); break;
    default: call_search(d, args, action, slice);
    }
}

/* One set of chunks, slices in turn. */
SUT_GPU void run_set(sut_cuda_drive *d, int set, shared_head *head)
{
    __syncthreads(); /* nobody reads the arguments of the set before any more */
    if (threadIdx.x == 0) {
        sut_cuda_args args = d->args;
        args.chunks += d->sets[set].first;
        args.n_chunks = d->sets[set].count;
        args.n_slices = d->slices[set];
        if (head->action == SUT_ACTION_FACTOR && args.n_slices > SUT_CUDA_FACTOR_SLICES)
            args.n_slices = SUT_CUDA_FACTOR_SLICES;
        if (set == 1) {
            args.partial = d->second_partial;
            args.sums = d->sets[0].count > 0 ? d->second_sums : args.sums;
            args.ticket = d->second_ticket;
        }
        head->args = args;
    }
    __syncthreads();
    for (int slice = (int)blockIdx.x; slice < head->args.n_slices; slice += (int)gridDim.x) {
        if (set == 0)
            run_float(head->args, (int)head->action, slice);
        else
            run_double(d, head->args, (int)head->action, slice);
    }
}

/* The block that decides: thread 0 asks the algebra, all of them make the constants of the tensors. */
static __device__ __noinline__ void lead(sut_cuda_drive *d, shared_head *head, int flags)
{
    if (threadIdx.x == 0)
        head->arrays.first = head->arrays.next = static_cast<unsigned char *>(divide_shared().aside);
    for (int now = flags;; now &= ~(SUT_RUN_BEGIN | SUT_RUN_HAS_GRAM)) {
        if (threadIdx.x == 0) {
            head->action = (unsigned)decide(d, now);
            if (head->action == SUT_ACTION_PREPARE)
                begin_prepare(d);
        }
        __syncthreads();
        if (head->action != SUT_ACTION_PREPARE)
            return;
        for (int64_t k = threadIdx.x; k < d->base.n_tensors; k += SUT_CUDA_THREADS)
            prepare_tensor(d, k);
        __threadfence();
        __syncthreads();
    }
}

SUT_GPU void unpack(const sut_cuda_parcel &parcel)
{
    for (int k = (int)threadIdx.x; k < parcel.size; k += SUT_CUDA_THREADS)
        parcel.to[k] = parcel.words[k];
}

__global__ void __launch_bounds__(SUT_CUDA_THREADS, 1)
    run_kernel(sut_cuda_drive *d, int flags, const __grid_constant__ sut_cuda_parcel parcel)
{
    SUT_DYNAMIC_SHARED(unsigned char, memory);
    shared_head *const head = reinterpret_cast<shared_head *>(memory);
    if (blockIdx.x == 0) {
        unpack(parcel);
        __syncthreads();
        lead(d, head, flags);
        __threadfence();
    }
    for (;;) {
        cooperative_groups::this_grid().sync();
        if (threadIdx.x == 0)
            head->action = (unsigned)*(volatile int *)&d->action;
        __syncthreads();
        if (head->action == SUT_ACTION_NONE)
            return;
        const bool all = d->all != 0;
        for (int set = all ? 2 : 0; set < (all ? 3 : 2); ++set)
            if (d->sets[set].count > 0)
                run_set(d, set, head);
        /* Whoever is done last decides: its block sees what all have written. */
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0)
            head->ticket = atomicAdd(&d->arrived, 1u);
        __syncthreads();
        if (head->ticket == gridDim.x - 1) {
            __threadfence();
            if (threadIdx.x == 0)
                d->arrived = 0;
            lead(d, head, flags & ~(SUT_RUN_BEGIN | SUT_RUN_HAS_GRAM));
            __threadfence();
        }
    }
}

/* The pass that is ready, as a launch of its own: a block to a slice. */
template <class Real, int ACTION>
__global__ void __launch_bounds__(SUT_CUDA_THREADS, 1) ready_kernel(const sut_cuda_drive *d, int set, int add)
{
    SUT_DYNAMIC_SHARED(unsigned char, memory);
    shared_head *const head = reinterpret_cast<shared_head *>(memory);
    if (threadIdx.x == 0) {
        head->args = d->args;
        head->args.chunks += d->sets[set].first;
        head->args.n_chunks = d->sets[set].count;
        head->args.n_slices = d->slices[set];
        head->args.add = add;
        head->action = d->ready == ACTION; /* a step that was refused has none */
    }
    __syncthreads();
    if (!head->action)
        return;
    if (ACTION == SUT_ACTION_APPLY && head->args.forms)
        call_forms<Real>(head->args, (int)blockIdx.x);
    else
        run_pass<Real, ACTION>(head->args, (int)blockIdx.x, divide_shared());
}

/* ---- launches ---- */

/* The triangle takes the place of what is put aside and of the sums. */
size_t run_memory(int m)
{
    const size_t n_sums = (size_t)(SUT_SUM_ROWS + m + m * (m + 1) / 2);
    const size_t passes = ASIDE + n_sums * sizeof(double), factor = sut_cuda_factor_memory(m);
    return HEAD + SCRATCH + (passes > factor ? passes : factor);
}

/*
 * More than a block has unasked is asked for, always the most that this kernel can want: the limit belongs to the kernel, which
 * contexts of other threads launch too, and graphs later.
 */
template <class... P> int allow_memory(void (*kernel)(P...))
{
    const size_t most = run_memory(FEW_ROWS ? SUT_CUDA_FEW : SUT_MAX_LOSSES);
    if (most <= 48 << 10)
        return 0;
    return (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)most);
}

int launch_run(sut_cuda_drive *drive, int m, int flags, int blocks, const sut_cuda_parcel *parcel, void *stream)
{
    sut_cuda_parcel copy;
    copy.to = parcel->to;
    copy.size = parcel->size;
    memcpy(copy.words, parcel->words, (size_t)parcel->size * sizeof *parcel->words);
    void *arguments[] = {&drive, &flags, &copy};
    const size_t size = run_memory(m);
    const int error = allow_memory(run_kernel);
    if (error)
        return error;
    return (int)cudaLaunchCooperativeKernel(run_kernel, dim3((unsigned)blocks), dim3(SUT_CUDA_THREADS), arguments, size,
                                            static_cast<cudaStream_t>(stream));
}

/* Blocks that can be resident at once. */
int run_blocks(int m, int *error)
{
    int device = 0, processors = 0, each = 0;
    const size_t size = run_memory(m);
    *error = allow_memory(run_kernel);
    if (!*error)
        *error = (int)cudaGetDevice(&device);
    if (!*error)
        *error = (int)cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (!*error)
        *error = (int)cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, run_kernel, SUT_CUDA_THREADS, size);
    return processors * each;
}

typedef void (*ready_function)(const sut_cuda_drive *, int, int);

template <class Real> ready_function ready_kernel_of(int action)
{
    return action == SUT_ACTION_FUSED     ? ready_kernel<Real, SUT_ACTION_FUSED>
           : action == SUT_ACTION_PROPOSE ? ready_kernel<Real, SUT_ACTION_PROPOSE>
                                          : ready_kernel<Real, SUT_ACTION_APPLY>;
}

int launch_ready(const sut_cuda_drive *drive, int action, int set, int slices, int n_sums, bool add, void *stream)
{
    const ready_function kernel = set ? ready_kernel_of<double>(action) : ready_kernel_of<float>(action);
    int more = add;
    void *arguments[] = {&drive, &set, &more};
    const size_t size = BEFORE_SUMS + (size_t)(n_sums > 0 ? n_sums : 1) * sizeof(double);
    const int error = allow_memory(kernel);
    if (error)
        return error;
    return (int)cudaLaunchKernel(kernel, dim3((unsigned)slices), dim3(SUT_CUDA_THREADS), arguments, size,
                                 static_cast<cudaStream_t>(stream));
}

} // namespace
