/*
 * The CPU back end's passes. This file is compiled once per instruction set with SUT_ISA_SUFFIX as its name (baseline,
 * avx2, avx512); the rest of the library sees only the table sut_cpu_ops_<suffix>.
 *
 * Slices of chunks are dealt to the threads. Each slice is summed in lanes (cpu_dots.h) that start at zero; the sums of the
 * slices are then added in order. Slices and lanes depend on n alone, so the result has the same bits for any number of
 * threads.
 */
#include "backend/cpu.h"
#include "backend/cpu_dots.h"
#include "backend/half.h"
#include "core/pool.h"
#include "optim/step.h"
#include "surgery/nnls.h"

#include <math.h>
#include <string.h>

/* Streams that do not fit the caches profit from software prefetch; those that do lose by it. */
#define SUT_PREFETCH_ELEMENTS 500000
/* How far ahead of the loops: a block, 2 KB of f32. */
#define SUT_AHEAD SUT_BLOCK

static inline bool sut_rule_is_deferred(sut_rule rule)
{
    return rule == SUT_RULE_LION;
}

/*
 * Sums of few losses in the loop of the rule: a gain where their lanes and the rule's constants fit the registers, a loss
 * where they do not. The 32 registers of AVX-512 do; the baseline has the loops so that every machine can test them.
 */
#if defined(__AVX512F__) || !defined(__AVX2__)
#define SUT_FUSED_SUMS 1
#else
#define SUT_FUSED_SUMS 0
#endif

#define SUT_REAL float
#define SUT_OWN_DTYPE SUT_DTYPE_F32
#define SUT_HAS_WIDE 1
#define SUT_HAS_FEW SUT_FUSED_SUMS
#include "backend/cpu_rules.h"
#include "backend/cpu_pass.h"
#undef SUT_HAS_FEW
#undef SUT_HAS_WIDE
#undef SUT_OWN_DTYPE
#undef SUT_REAL

#define SUT_REAL double
#define SUT_OWN_DTYPE SUT_DTYPE_F64
#define SUT_HAS_WIDE 0
#define SUT_HAS_FEW 0
#include "backend/cpu_rules.h"
#include "backend/cpu_pass.h"
#undef SUT_HAS_FEW
#undef SUT_HAS_WIDE
#undef SUT_OWN_DTYPE
#undef SUT_REAL

/* The tensor that holds a chunk. */
static int64_t find_tensor(const sut_layout *layout, int64_t chunk)
{
    int64_t low = 0, high = layout->n_tensors - 1;
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (layout->first_chunk[middle] <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

#include "backend/cpu_plain.h"

/* Scratch: [lanes of worker 0.. | row buffers of worker 0.. | sums of slice 0..], see sut_backend_scratch(). */
typedef struct scratch {
    double *lanes, *rows, *sums;
    int n_sums;
} scratch;

static size_t max_sums(int m)
{
    return (size_t)SUT_SUM_ROWS + (size_t)m + (size_t)m * (size_t)(m + 1) / 2;
}

static scratch partition(sut_context *ctx, int m, int n_sums)
{
    scratch s;
    s.lanes = ctx->scratch;
    s.rows = s.lanes + (size_t)ctx->n_threads * max_sums(m) * SUT_LANES;
    s.sums = s.rows + (size_t)ctx->n_threads * (size_t)m * SUT_BLOCK;
    s.n_sums = n_sums;
    return s;
}

typedef struct walk {
    sut_context *ctx;
    const sut_layout *layout;
    const sut_rows *rows;
    const sut_step_pass *pass; /* NULL: the Gram matrix */
    bool strict;               /* the Gram matrix: products and sums in double */
    bool careful;              /* f64 arithmetic for f32 tensors too */
    bool prefetch;
    scratch scratch;
    int n_slices;
} walk;

#define SUT_STEP_CHUNK(real)                                                                    \
    static void step_chunk_##real(const walk *w, int64_t tensor, int64_t offset, int64_t count, \
                                  double(*lanes)[SUT_LANES], void *buffer)                      \
    {                                                                                           \
        const sut_step_pass *const pass = w->pass;                                              \
        const sut_rule_setting *const setting = pass->tensors[tensor].setting;                  \
        if (sut_run_plain_chunk_##real(pass, tensor, offset, count))                            \
            return;                                                                             \
        sut_chunk_##real c; /* field by field: `row` is long */                                 \
        c.pass = pass;                                                                          \
        c.tensor = &pass->tensors[tensor];                                                      \
        c.kernels = sut_select_##real(setting->rule, setting->flags);                           \
        c.constants = sizeof(real) == 4 ? setting->f32 : setting->f64;                          \
        c.tensor_index = tensor;                                                                \
        c.offset = offset;                                                                      \
        c.count = count;                                                                        \
        c.row_dtype = w->layout->dtype[tensor];                                                 \
        c.own = w->layout->dtype[tensor] == SUT_DTYPE_F64 ? SUT_DTYPE_F64 : SUT_DTYPE_F32;      \
        c.lanes = lanes;                                                                        \
        c.row_buffer = buffer;                                                                  \
        c.wide = pass->strict;                                                                  \
        c.n_rows = 0;                                                                           \
        for (int i = 0; i < pass->rows.m; ++i)                                                  \
            if (pass->rows.data[(int64_t)i * w->layout->n_tensors + tensor])                    \
                c.row[c.n_rows++] = i;                                                          \
        sut_run_chunk_##real(&c);                                                               \
    }
SUT_STEP_CHUNK(float)
SUT_STEP_CHUNK(double)

/* One chunk's share of the Gram matrix. */
static void gram_of_chunk(const walk *w, int64_t tensor, int64_t chunk, double (*lanes)[SUT_LANES], double *buffer)
{
    const sut_layout *const layout = w->layout;
    const int64_t offset = (chunk - layout->first_chunk[tensor]) * SUT_CHUNK, ahead = w->prefetch ? SUT_AHEAD : 0;
    const int64_t left = layout->count[tensor] - offset, count = left < SUT_CHUNK ? left : SUT_CHUNK;
    if (w->careful || layout->dtype[tensor] == SUT_DTYPE_F64)
        sut_gram_chunk_double(w->rows, layout, tensor, offset, count, false, ahead, lanes, buffer);
    else
        sut_gram_chunk_float(w->rows, layout, tensor, offset, count, w->strict, ahead, lanes, (float *)buffer);
}

static void walk_slice(void *argument, int slice, int worker)
{
    const walk *const w = argument;
    const sut_layout *const layout = w->layout;
    const int n_sums = w->scratch.n_sums;
    double(*const lanes)[SUT_LANES] = (double(*)[SUT_LANES])w->scratch.lanes + (size_t)worker * max_sums(w->rows->m);
    double *const buffer = w->scratch.rows + (size_t)worker * (size_t)w->rows->m * SUT_BLOCK;
    memset(lanes, 0, (size_t)n_sums * sizeof *lanes);

    int64_t chunk = sut_slice_begin(layout->n_chunks, w->n_slices, slice);
    const int64_t end = sut_slice_begin(layout->n_chunks, w->n_slices, slice + 1);
    int64_t tensor = chunk < end ? find_tensor(layout, chunk) : 0;
    for (; chunk < end; ++chunk) {
        while (chunk >= layout->first_chunk[tensor + 1])
            ++tensor;
        if (!w->pass) {
            gram_of_chunk(w, tensor, chunk, lanes, buffer);
            continue;
        }
        if (!w->pass->tensors[tensor].present)
            continue;
        const int64_t offset = (chunk - layout->first_chunk[tensor]) * SUT_CHUNK;
        const int64_t left = layout->count[tensor] - offset, count = left < SUT_CHUNK ? left : SUT_CHUNK;
        if (w->careful || layout->dtype[tensor] == SUT_DTYPE_F64)
            step_chunk_double(w, tensor, offset, count, lanes, buffer);
        else
            step_chunk_float(w, tensor, offset, count, lanes, buffer);
    }
    double *const sums = w->scratch.sums + (size_t)slice * (size_t)n_sums;
    for (int k = 0; k < n_sums; ++k)
        sums[k] = sut_fold(lanes[k]);
}

/*
 * The Gram matrix of one to three large f32 rows. Two or three streams alone leave memory waiting: a worker takes two slices at
 * once, chunk beside chunk, each with the sums that it has on its own.
 */
#define SUT_PAIRED_ROWS 3

/* All rows of a whole chunk of f32, or false. */
static bool whole_rows(const walk *w, int64_t tensor, int64_t chunk, const float **rows)
{
    const sut_layout *const layout = w->layout;
    const int64_t offset = (chunk - layout->first_chunk[tensor]) * SUT_CHUNK;
    if (layout->dtype[tensor] != SUT_DTYPE_F32 || layout->count[tensor] - offset < SUT_CHUNK)
        return false;
    for (int i = 0; i < w->rows->m; ++i) {
        const float *const x = w->rows->data[(int64_t)i * layout->n_tensors + tensor];
        if (!x)
            return false;
        rows[i] = x + offset;
    }
    return true;
}

static void gram_slices(void *argument, int task, int worker)
{
    const walk *const w = argument;
    const sut_layout *const layout = w->layout;
    const int m = w->rows->m, n_sums = w->scratch.n_sums;
    double(*const lanes)[SUT_LANES] = (double(*)[SUT_LANES])w->scratch.lanes + (size_t)worker * max_sums(m);
    double *const buffer = w->scratch.rows + (size_t)worker * (size_t)m * SUT_BLOCK;
    const int slice[2] = {task, task + w->n_slices / 2};
    int64_t chunk[2], end[2], tensor[2];
    double *to[SUT_PAIRED_ROWS * (SUT_PAIRED_ROWS + 1)];
    memset(lanes, 0, 2 * (size_t)n_sums * sizeof *lanes);
    for (int k = 0; k < 2 * n_sums; ++k)
        to[k] = lanes[k];
    for (int k = 0; k < 2; ++k) {
        chunk[k] = sut_slice_begin(layout->n_chunks, w->n_slices, slice[k]);
        end[k] = sut_slice_begin(layout->n_chunks, w->n_slices, slice[k] + 1);
        tensor[k] = find_tensor(layout, chunk[k]);
    }
    while (chunk[0] < end[0] || chunk[1] < end[1]) {
        const float *rows[2 * SUT_PAIRED_ROWS];
        for (int k = 0; k < 2; ++k)
            while (chunk[k] < end[k] && chunk[k] >= layout->first_chunk[tensor[k] + 1])
                ++tensor[k];
        if (chunk[0] < end[0] && chunk[1] < end[1] && whole_rows(w, tensor[0], chunk[0], rows) &&
            whole_rows(w, tensor[1], chunk[1], rows + m)) {
            for (int64_t start = 0; start < SUT_CHUNK; start += SUT_BLOCK) {
                (m == 3   ? sut_triangle_pair_3_float
                 : m == 2 ? sut_triangle_pair_2_float
                          : sut_triangle_pair_1_float)(rows, SUT_BLOCK, SUT_AHEAD, to);
                for (int i = 0; i < 2 * m; ++i)
                    rows[i] += SUT_BLOCK;
            }
        } else {
            for (int k = 0; k < 2; ++k)
                if (chunk[k] < end[k])
                    gram_of_chunk(w, tensor[k], chunk[k], lanes + k * n_sums, buffer);
        }
        ++chunk[0];
        ++chunk[1];
    }
    for (int k = 0; k < 2; ++k)
        for (int i = 0; i < n_sums; ++i)
            w->scratch.sums[(size_t)slice[k] * (size_t)n_sums + (size_t)i] = sut_fold(lanes[k * n_sums + i]);
}

/* Two slices have as many sums as the lanes of a worker have room for, see max_sums(). */
static bool is_paired(const walk *w)
{
    return !w->pass && !w->strict && !w->careful && w->prefetch && w->rows->m <= SUT_PAIRED_ROWS &&
           w->n_slices % 2 == 0;
}

static void run_walk(walk *w, int n_sums, double *sums)
{
    sut_context *const ctx = w->ctx;
    w->scratch = partition(ctx, w->rows->m, n_sums);
    w->n_slices = w->pass && w->pass->factor ? 1 : sut_n_slices(w->layout);
    w->prefetch = w->layout->n_elements >= SUT_PREFETCH_ELEMENTS;
    const bool parallel = w->layout->n_elements > SUT_SERIAL_ELEMENTS;
    if (is_paired(w))
        sut_pool_run(ctx->pool, w->n_slices / 2, parallel, gram_slices, w);
    else
        sut_pool_run(ctx->pool, w->n_slices, parallel, walk_slice, w);
    memset(sums, 0, (size_t)n_sums * sizeof *sums);
    for (int slice = 0; slice < w->n_slices; ++slice)
        for (int k = 0; k < n_sums; ++k)
            sums[k] += w->scratch.sums[(size_t)slice * (size_t)n_sums + (size_t)k];
}

static sut_status cpu_gram(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, bool strict, double *K)
{
    const int m = rows->m, n_sums = m * (m + 1) / 2;
    double sums[SUT_MAX_LOSSES * (SUT_MAX_LOSSES + 1) / 2];
    walk w = {.ctx = ctx, .layout = layout, .rows = rows, .strict = strict, .careful = rows->scale != NULL};
    run_walk(&w, n_sums, sums);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j <= i; ++j)
            K[i * m + j] = K[j * m + i] = sums[i * (i + 1) / 2 + j];
    return SUT_OK;
}

static sut_status cpu_step(sut_context *ctx, const sut_step_pass *pass)
{
    const int m = pass->rows.m;
    walk w = {.ctx = ctx, .layout = pass->layout, .rows = &pass->rows, .pass = pass, .careful = pass->careful};
    const int n_sums = !pass->want_sums ? 0 : SUT_SUM_ROWS + m + (pass->want_metric ? m * (m + 1) / 2 : 0);
    sut_step_pass with_prefetch = *pass;
    with_prefetch.prefetch = pass->layout->n_elements >= SUT_PREFETCH_ELEMENTS;
    w.pass = &with_prefetch;
    run_walk(&w, n_sums, pass->sums);
    return SUT_OK;
}

#define SUT_TABLE_NAME_(suffix) sut_cpu_ops_##suffix
#define SUT_TABLE_NAME(suffix) SUT_TABLE_NAME_(suffix)

extern const sut_backend_ops SUT_TABLE_NAME(SUT_ISA_SUFFIX);
const sut_backend_ops SUT_TABLE_NAME(SUT_ISA_SUFFIX) = {
    .version = SUT_BACKEND_VERSION,
    .reserve = sut_cpu_reserve,
    .synchronize = sut_cpu_synchronize,
    .allocate = sut_cpu_allocate,
    .release = sut_cpu_release,
    .upload = sut_cpu_copy,
    .download = sut_cpu_copy,
    .copy = sut_cpu_copy,
    .clear = sut_cpu_clear,
    .fill = sut_cpu_fill,
    .convert = sut_cpu_convert,
    .scan_metric = sut_cpu_scan_metric,
    .gram = cpu_gram,
    .row_max = cpu_row_max,
    .find_nonfinite = cpu_find_nonfinite,
    .combine = cpu_combine,
    .cone_sums = cpu_cone_sums,
    .cone_apply = cpu_cone_apply,
    .cone_measure = cpu_cone_measure,
    .cone_factor = cpu_cone_factor,
    .step = cpu_step,
};
