/*
 * Passes over plain arrays (a layout of one tensor, f32 or f64): directions and projections outside an optimizer, with
 * products in double throughout. Sums go through the same slices and lanes as everything else.
 */

typedef struct plain_walk {
    const sut_layout *layout;
    const sut_rows *rows;
    const void *u, *delta, *p;
    void *out;
    const double *weights; /* of the rows: a direction, or multipliers */
    double u_scale, delta_scale;
    bool metric;                    /* cone_sums: K too */
    double *lanes, *buffers, *sums; /* per worker, per worker, per slice */
    int n_sums, n_slices, n_lanes;
} plain_walk;

static void scale_block(const double *x, double scale, int64_t n, double *out)
{
    for (int64_t k = 0; k < n; ++k)
        out[k] = x[k] * scale;
}

/* Rows of one block as doubles, scaled. */
static void plain_rows(const plain_walk *w, int64_t offset, int64_t n, double *buffer, const double **g)
{
    for (int i = 0; i < w->rows->m; ++i) {
        double *const own = buffer + (int64_t)i * SUT_BLOCK;
        g[i] = sut_load_double(w->rows->data[i], w->layout->dtype[0], offset, n, own);
        if (w->rows->scale) {
            scale_block(g[i], w->rows->scale[i], n, own);
            g[i] = own;
        }
    }
}

/* M^-1 of one block; 0 where delta is Inf. */
static void plain_inverse(const plain_walk *w, int64_t offset, int64_t n, double *out)
{
    double own[SUT_BLOCK];
    const double *const delta = sut_load_double(w->delta, w->layout->dtype[0], offset, n, own);
    for (int64_t k = 0; k < n; ++k)
        out[k] = 1.0 / (delta[k] * w->delta_scale);
}

static void sums_block(const plain_walk *w, int64_t offset, int64_t n, double (*lanes)[SUT_LANES], double *buffer)
{
    const int m = w->rows->m;
    const double *g[SUT_MAX_LOSSES];
    double own[SUT_BLOCK], u[SUT_BLOCK], inverse[SUT_BLOCK], x[SUT_BLOCK];
    plain_rows(w, offset, n, buffer, g);
    scale_block(sut_load_double(w->u, w->layout->dtype[0], offset, n, own), w->u_scale, n, u);
    const double *const one = u;
    sut_dots_double(u, &one, 1, n, lanes);
    if (w->delta) {
        plain_inverse(w, offset, n, inverse);
        for (int64_t k = 0; k < n; ++k)
            x[k] = inverse[k] > 0 ? u[k] / inverse[k] : 0.0;
        sut_dots_double(x, &one, 1, n, lanes + 1);
    } else {
        sut_dots_double(u, &one, 1, n, lanes + 1);
    }
    sut_dots_double(u, g, m, n, lanes + 2);
    for (int i = 0; i < m; ++i) {
        const double *row = g[i];
        if (w->delta) {
            for (int64_t k = 0; k < n; ++k)
                x[k] = g[i][k] * inverse[k];
            row = x;
        }
        sut_dots_double(row, g, i + 1, n, lanes + 2 + m + i * (i + 1) / 2);
    }
}

/* u + M^-1 G^T lambda of one block, in double. */
static void update_block(const plain_walk *w, const double *const *g, int64_t offset, int64_t n, double *u, double *p)
{
    double chi[SUT_BLOCK], inverse[SUT_BLOCK];
    sut_combine_double(g, w->weights, w->rows->m, n, chi);
    if (w->delta) {
        plain_inverse(w, offset, n, inverse);
        for (int64_t k = 0; k < n; ++k)
            chi[k] *= inverse[k];
    }
    for (int64_t k = 0; k < n; ++k)
        p[k] = u[k] + chi[k];
}

static void measure_block(const plain_walk *w, int64_t offset, int64_t n, double (*lanes)[SUT_LANES], double *buffer)
{
    const double *g[SUT_MAX_LOSSES];
    double u[SUT_BLOCK], p[SUT_BLOCK], x[SUT_BLOCK], y[SUT_BLOCK], own[SUT_BLOCK];
    plain_rows(w, offset, n, buffer, g);
    scale_block(sut_load_double(w->u, w->layout->dtype[0], offset, n, own), w->u_scale, n, u);
    if (w->p)
        scale_block(sut_load_double(w->p, w->layout->dtype[0], offset, n, own), w->u_scale, n, p);
    else
        update_block(w, g, offset, n, u, p);
    for (int64_t k = 0; k < n; ++k)
        x[k] = p[k] - u[k];
    const double *const difference = x, *const update = p;
    sut_dots_double(p, &update, 1, n, lanes);
    sut_dots_double(x, &difference, 1, n, lanes + 1);
    if (w->delta) {
        const double *const delta = sut_load_double(w->delta, w->layout->dtype[0], offset, n, own);
        for (int64_t k = 0; k < n; ++k)
            y[k] = x[k] != 0 ? x[k] * (delta[k] * w->delta_scale) : 0.0;
        sut_dots_double(y, &difference, 1, n, lanes + 2);
    } else {
        sut_dots_double(x, &difference, 1, n, lanes + 2);
    }
    sut_dots_double(p, g, w->rows->m, n, lanes + 3);
}

/* Rounded once to the storage type. */
static void apply_plain_block(const plain_walk *w, int64_t offset, int64_t n, double *buffer)
{
    const double *g[SUT_MAX_LOSSES];
    double own[SUT_BLOCK], p[SUT_BLOCK];
    plain_rows(w, offset, n, buffer, g);
    if (w->u) {
        const double *const u = sut_load_double(w->u, w->layout->dtype[0], offset, n, own);
        if (u != own)
            memcpy(own, u, (size_t)n * sizeof *own);
        update_block(w, g, offset, n, own, p);
    } else
        sut_combine_double(g, w->weights, w->rows->m, n, p);
    sut_store_double(w->out, w->layout->dtype[0], offset, n, p);
}

/*
 * f32 directions need no double copies of the rows: up to four rows at a time, in the order of the rows, the sum in registers.
 * It begins at 0 (`first`), or in `sum` where more rows came before, and goes there where more follow. n: whole strips.
 */
#define SUT_STRIP 16
SUT_INLINE void combine_strips(const float *const *g, const double *w, int rows, bool first, bool last, int64_t n,
                               int64_t ahead, double *restrict sum, float *restrict out)
{
    enum { W = SUT_VECTOR / sizeof(double) };
    sut_vector_double weight[4];
    for (int i = 0; i < rows; ++i)
        weight[i] = (sut_vector_double){0} + w[i];
    for (int64_t k = 0; k < n; k += SUT_STRIP) {
        if (ahead)
            SUT_UNROLL(4) for (int i = 0; i < rows; ++i) __builtin_prefetch(g[i] + k + ahead);
        SUT_UNROLL(8) for (int64_t at = k; at < k + SUT_STRIP; at += W)
        {
            sut_vector_double x = first ? (sut_vector_double){0} : *(const sut_vector_double *)(sum + at);
            SUT_UNROLL(4) for (int i = 0; i < rows; ++i) x += weight[i] * sut_read_wide(g[i] + at);
            if (last)
                *(sut_half_vector *)(out + at) = sut_narrow(x);
            else
                *(sut_vector_double *)(sum + at) = x;
        }
    }
}

#define COMBINE_STRIPS(rows)                                                        \
    (first && last ? combine_strips(x, a, rows, true, true, full, ahead, sum, out)  \
     : last        ? combine_strips(x, a, rows, false, true, full, ahead, sum, out) \
                   : combine_strips(x, a, rows, first, false, full, ahead, sum, out))

static void combine_block_float(const plain_walk *w, int64_t offset, int64_t n)
{
    const float *g[SUT_MAX_LOSSES];
    double weight[SUT_MAX_LOSSES], sum[SUT_BLOCK];
    float *const out = (float *)w->out + offset;
    const int64_t ahead = w->layout->n_elements >= SUT_PREFETCH_ELEMENTS ? SUT_AHEAD : 0;
    const int64_t full = n - n % SUT_STRIP;
    int rows = 0;
    for (int i = 0; i < w->rows->m; ++i) {
        g[rows] = (const float *)w->rows->data[i] + offset;
        weight[rows] = w->weights[i];
        rows += weight[rows] != 0; /* rows of weight 0 could only add zeros */
    }
    if (rows == 0) {
        memset(out, 0, (size_t)n * sizeof *out);
        return;
    }
    for (int i = 0; i < rows; i += 4) {
        const float *const *const x = g + i;
        const double *const a = weight + i;
        const bool first = i == 0, last = i + 4 >= rows;
        switch (last ? rows - i : 4) {
        case 1: COMBINE_STRIPS(1); break;
        case 2: COMBINE_STRIPS(2); break;
        case 3: COMBINE_STRIPS(3); break;
        default: COMBINE_STRIPS(4); break;
        }
    }
    for (int64_t k = full; k < n; ++k) {
        double x = 0.0;
        for (int i = 0; i < rows; ++i)
            x += weight[i] * (double)g[i][k];
        out[k] = (float)x;
    }
}

typedef void (*plain_block)(const plain_walk *w, int64_t offset, int64_t n, double (*lanes)[SUT_LANES], double *buffer);

typedef struct plain_task {
    const plain_walk *walk;
    plain_block block; /* NULL: no sums, `out` is written */
} plain_task;

static void plain_slice(void *argument, int slice, int worker)
{
    const plain_task *const task = argument;
    const plain_walk *const w = task->walk;
    double(*const lanes)[SUT_LANES] = (double(*)[SUT_LANES])w->lanes + (size_t)worker * (size_t)w->n_lanes;
    double *const buffer = w->buffers + (size_t)worker * (size_t)w->rows->m * SUT_BLOCK;
    if (w->n_sums)
        memset(lanes, 0, (size_t)w->n_sums * sizeof *lanes);
    const int64_t begin = sut_slice_begin(w->layout->n_chunks, w->n_slices, slice) * SUT_CHUNK;
    int64_t end = sut_slice_begin(w->layout->n_chunks, w->n_slices, slice + 1) * SUT_CHUNK;
    if (end > w->layout->n_elements)
        end = w->layout->n_elements;
    for (int64_t offset = begin; offset < end; offset += SUT_BLOCK) {
        const int64_t n = end - offset < SUT_BLOCK ? end - offset : SUT_BLOCK;
        if (task->block)
            task->block(w, offset, n, lanes, buffer);
        else if (!w->u && !w->rows->scale && w->layout->dtype[0] == SUT_DTYPE_F32)
            combine_block_float(w, offset, n);
        else
            apply_plain_block(w, offset, n, buffer);
    }
    for (int k = 0; k < w->n_sums; ++k)
        w->sums[(size_t)slice * (size_t)w->n_sums + (size_t)k] = sut_fold(lanes[k]);
}

static void run_plain(sut_context *ctx, plain_walk *w, plain_block block, int n_sums, double *sums)
{
    const int m = w->rows->m;
    w->n_lanes = SUT_SUM_ROWS + m + m * (m + 1) / 2;
    w->n_sums = n_sums;
    w->n_slices = sut_n_slices(w->layout);
    w->lanes = ctx->scratch;
    w->buffers = w->lanes + (size_t)ctx->n_threads * (size_t)w->n_lanes * SUT_LANES;
    w->sums = w->buffers + (size_t)ctx->n_threads * (size_t)m * SUT_BLOCK;
    plain_task task = {w, block};
    sut_pool_run(ctx->pool, w->n_slices, w->layout->n_elements > SUT_SERIAL_ELEMENTS, plain_slice, &task);
    for (int k = 0; k < n_sums; ++k)
        sums[k] = 0;
    for (int slice = 0; slice < w->n_slices; ++slice)
        for (int k = 0; k < n_sums; ++k)
            sums[k] += w->sums[(size_t)slice * (size_t)n_sums + (size_t)k];
}

static sut_status cpu_combine(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const double *weights,
                              void *out)
{
    plain_walk w = {.layout = layout, .rows = rows, .weights = weights, .out = out};
    run_plain(ctx, &w, NULL, 0, NULL);
    return SUT_OK;
}

static sut_status cpu_cone_sums(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                                double u_scale, const void *delta, double delta_scale, sut_cone_sums *sums)
{
    const int m = rows->m;
    double all[2 + SUT_MAX_LOSSES + SUT_MAX_LOSSES * (SUT_MAX_LOSSES + 1) / 2];
    plain_walk w = {
        .layout = layout, .rows = rows, .u = u, .delta = delta, .u_scale = u_scale, .delta_scale = delta_scale};
    run_plain(ctx, &w, sums_block, 2 + m + m * (m + 1) / 2, all);
    sums->uu = all[0];
    sums->uMu = all[1];
    memcpy(sums->b, all + 2, (size_t)m * sizeof *sums->b);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j <= i; ++j)
            sums->K[i * m + j] = sums->K[j * m + i] = all[2 + m + i * (i + 1) / 2 + j];
    return SUT_OK;
}

static sut_status cpu_cone_factor(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                                  double u_scale, const void *delta, double delta_scale, const double *lambda,
                                  double *R)
{
    const int m = rows->m;
    plain_walk w = {.layout = layout,
                    .rows = rows,
                    .u = u,
                    .delta = delta,
                    .weights = lambda,
                    .u_scale = u_scale,
                    .delta_scale = delta_scale};
    double block[(SUT_MAX_LOSSES + 1) * SUT_FACTOR_ROWS], v[SUT_FACTOR_ROWS], own[SUT_FACTOR_ROWS], inverse[SUT_BLOCK];
    memset(R, 0, (size_t)(m + 1) * (size_t)(m + 1) * sizeof *R);
    for (int64_t offset = 0; offset < layout->n_elements; offset += SUT_FACTOR_ROWS) {
        const int64_t left = layout->n_elements - offset, n = left < SUT_FACTOR_ROWS ? left : SUT_FACTOR_ROWS;
        const double *g[SUT_MAX_LOSSES];
        plain_rows(&w, offset, n, ctx->scratch, g);
        scale_block(sut_load_double(u, layout->dtype[0], offset, n, own), u_scale, n, v);
        if (lambda)
            update_block(&w, g, offset, n, v, v);
        for (int64_t k = 0; k < n; ++k)
            inverse[k] = 1;
        if (delta)
            plain_inverse(&w, offset, n, inverse);
        for (int64_t k = 0; k < n; ++k) {
            const double root = sqrt(inverse[k]); /* 0: a frozen coordinate, which has no share */
            for (int i = 0; i < m; ++i)
                block[i * SUT_FACTOR_ROWS + k] = g[i][k] * root;
            block[m * SUT_FACTOR_ROWS + k] = root > 0 ? v[k] / root : 0.0;
        }
        sut_factor_add(R, m + 1, block, (int)n);
    }
    return SUT_OK;
}

static sut_status cpu_cone_apply(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                                 const void *delta, const double *lambda, void *p)
{
    plain_walk w = {
        .layout = layout, .rows = rows, .u = u, .delta = delta, .weights = lambda, .out = p, .delta_scale = 1};
    run_plain(ctx, &w, NULL, 0, NULL);
    return SUT_OK;
}

static sut_status cpu_cone_measure(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                                   double u_scale, const void *delta, double delta_scale, const void *p,
                                   const double *lambda, sut_cone_measure *measure)
{
    const int m = rows->m;
    double all[3 + SUT_MAX_LOSSES];
    plain_walk w = {.layout = layout,
                    .rows = rows,
                    .u = u,
                    .delta = delta,
                    .p = p,
                    .weights = lambda,
                    .u_scale = u_scale,
                    .delta_scale = delta_scale};
    run_plain(ctx, &w, measure_block, 3 + m, all);
    measure->pp = all[0];
    measure->dist2 = all[1];
    measure->dist2_M = all[2];
    memcpy(measure->s, all + 3, (size_t)m * sizeof *measure->s);
    return SUT_OK;
}

/*
 * The largest absolute value of a row. As integers, numbers without their sign are ordered like their values, NaN beyond Inf
 * beyond the rest. An array is read in four places at once: one stream alone leaves memory waiting.
 */
typedef int16_t sut_bits_16 __attribute__((may_alias));
typedef int32_t sut_bits_32 __attribute__((may_alias));
typedef int64_t sut_bits_64 __attribute__((may_alias));

#define SUT_LARGEST_BITS(bits, MAX)                                                                     \
    static int##bits##_t largest_bits_##bits(const sut_bits_##bits *x, int64_t n)                       \
    {                                                                                                   \
        const int64_t quarter = n / 4;                                                                  \
        const sut_bits_##bits *const y = x + quarter, *const z = y + quarter, *const t = z + quarter;   \
        int##bits##_t a = 0, b = 0, c = 0, d = 0;                                                       \
        for (int64_t k = 0; k < quarter; ++k) {                                                         \
            const int##bits##_t xk = x[k] & MAX, yk = y[k] & MAX, zk = z[k] & MAX, tk = t[k] & MAX;     \
            a = xk > a ? xk : a;                                                                        \
            b = yk > b ? yk : b;                                                                        \
            c = zk > c ? zk : c;                                                                        \
            d = tk > d ? tk : d;                                                                        \
        }                                                                                               \
        for (int64_t k = 4 * quarter; k < n; ++k) {                                                     \
            const int##bits##_t xk = x[k] & MAX;                                                        \
            a = xk > a ? xk : a;                                                                        \
        }                                                                                               \
        a = b > a ? b : a;                                                                              \
        c = d > c ? d : c;                                                                              \
        return c > a ? c : a;                                                                           \
    }
SUT_LARGEST_BITS(16, INT16_MAX)
SUT_LARGEST_BITS(32, INT32_MAX)
SUT_LARGEST_BITS(64, INT64_MAX)

static double largest_of(const void *x, sut_dtype dtype, int64_t offset, int64_t n)
{
    switch (dtype) {
    case SUT_DTYPE_F64: {
        const int64_t bits = largest_bits_64((const sut_bits_64 *)x + offset, n);
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    case SUT_DTYPE_F32: {
        const int32_t bits = largest_bits_32((const sut_bits_32 *)x + offset, n);
        float value;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    case SUT_DTYPE_BF16:
        return (double)sut_from_bf16((uint16_t)largest_bits_16((const sut_bits_16 *)x + offset, n));
    default: return (double)sut_from_f16((uint16_t)largest_bits_16((const sut_bits_16 *)x + offset, n));
    }
}

/* NaN stays. */
static double larger_or_nan(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

typedef struct largest_task {
    const sut_layout *layout;
    const sut_rows *rows;
    int n_slices;
    double *largest; /* of each slice, m each */
} largest_task;

static void largest_slice(void *argument, int slice, int worker)
{
    const largest_task *const task = argument;
    const sut_layout *const layout = task->layout;
    const int m = task->rows->m;
    double *const largest = task->largest + (size_t)slice * (size_t)m;
    int64_t chunk = sut_slice_begin(layout->n_chunks, task->n_slices, slice);
    const int64_t end = sut_slice_begin(layout->n_chunks, task->n_slices, slice + 1);
    (void)worker;
    memset(largest, 0, (size_t)m * sizeof *largest);
    for (int64_t tensor = chunk < end ? find_tensor(layout, chunk) : 0; chunk < end; ++tensor) {
        const int64_t next = layout->first_chunk[tensor + 1] < end ? layout->first_chunk[tensor + 1] : end;
        const int64_t offset = (chunk - layout->first_chunk[tensor]) * SUT_CHUNK;
        const int64_t whole = (next - chunk) * SUT_CHUNK, left = layout->count[tensor] - offset;
        for (int i = 0; i < m && next > chunk; ++i) {
            const void *const x = task->rows->data[(int64_t)i * layout->n_tensors + tensor];
            if (x)
                largest[i] = larger_or_nan(
                    largest[i], largest_of(x, layout->dtype[tensor], offset, left < whole ? left : whole));
        }
        chunk = next;
    }
}

static sut_status cpu_row_max(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, double *max_out)
{
    const int m = rows->m;
    largest_task task = {layout, rows, sut_n_slices(layout), ctx->scratch}; /* its sums are more than m for each slice */
    sut_pool_run(ctx->pool, task.n_slices, layout->n_elements > SUT_SERIAL_ELEMENTS, largest_slice, &task);
    for (int i = 0; i < m; ++i)
        max_out[i] = 0;
    for (int slice = 0; slice < task.n_slices; ++slice)
        for (int i = 0; i < m; ++i)
            max_out[i] = larger_or_nan(max_out[i], task.largest[(size_t)slice * (size_t)m + (size_t)i]);
    return SUT_OK;
}

static sut_status cpu_find_nonfinite(sut_context *ctx, const void *x, int64_t n, sut_dtype dtype, int64_t *index_out)
{
    (void)ctx;
    for (int64_t offset = 0; offset < n; offset += SUT_BLOCK) {
        const int64_t left = n - offset, count = left < SUT_BLOCK ? left : SUT_BLOCK;
        double own[SUT_BLOCK];
        const double *const g = sut_load_double(x, dtype, offset, count, own);
        /* x - x is 0 for a finite number and NaN otherwise. */
        double bad = 0;
        for (int64_t k = 0; k < count; ++k)
            bad += g[k] - g[k];
        if (bad == 0)
            continue;
        for (int64_t k = 0; k < count; ++k)
            if (!isfinite(g[k])) {
                *index_out = offset + k;
                return SUT_OK;
            }
    }
    *index_out = -1;
    return SUT_OK;
}
