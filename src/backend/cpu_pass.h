/*
 * One chunk of a step's passes, for one SUT_REAL. A chunk is walked in blocks that stay in the first-level cache; each
 * block goes through short loops: combine the rows, run the rule, take the dot products. Memory is read and written once.
 *
 * Storage other than SUT_REAL (bf16, f16, and f32 in careful passes) is converted block by block on the way in and out.
 */

/* Everything a chunk needs, resolved once per chunk. */
typedef struct SUT_T(chunk) {
    const sut_step_pass *pass;
    const sut_pass_tensor *tensor;
    const SUT_T(kernels) *kernels;
    const void *constants;
    int64_t tensor_index, offset, count;
    sut_dtype row_dtype; /* as the rows are stored */
    sut_dtype own;       /* as theta and the state are stored */
    int n_rows;          /* rows that are present */
    int row[SUT_MAX_LOSSES];
    double (*lanes)[SUT_LANES]; /* SUT_SUM_ROWS + m + m(m+1)/2 */
    SUT_REAL *row_buffer;       /* m * SUT_BLOCK */
    bool wide;                  /* f32: products and sums in double */
} SUT_T(chunk);

/* A function of cpu_dots.h, of the kind that the pass asks for. */
#if SUT_HAS_WIDE
#define SUT_KIND(name) (c->wide ? name##_wide : name##_float)
#else
#define SUT_KIND(name) name##_double
#endif

/* n elements of `from` (of `dtype`) as SUT_REAL: in place when the types agree, else converted into `buffer`. */
static inline const SUT_REAL *SUT_T(load)(const void *from, sut_dtype dtype, int64_t offset, int64_t n,
                                          SUT_REAL *buffer)
{
    if (dtype == SUT_OWN_DTYPE)
        return (const SUT_REAL *)from + offset;
    if (dtype == SUT_DTYPE_F32) {
        const float *const x = (const float *)from + offset;
        for (int64_t k = 0; k < n; ++k)
            buffer[k] = (SUT_REAL)x[k];
    } else if (dtype == SUT_DTYPE_BF16) {
        const uint16_t *const x = (const uint16_t *)from + offset;
        for (int64_t k = 0; k < n; ++k)
            buffer[k] = (SUT_REAL)sut_from_bf16(x[k]);
    } else {
        const uint16_t *const x = (const uint16_t *)from + offset;
        for (int64_t k = 0; k < n; ++k)
            buffer[k] = (SUT_REAL)sut_from_f16(x[k]);
    }
    return buffer;
}

static inline void SUT_T(store)(void *to, sut_dtype dtype, int64_t offset, int64_t n, const SUT_REAL *from)
{
    if (dtype == SUT_OWN_DTYPE) {
        if ((SUT_REAL *)to + offset != from)
            memcpy((SUT_REAL *)to + offset, from, (size_t)n * sizeof *from);
    } else if (dtype == SUT_DTYPE_F32) {
        float *const x = (float *)to + offset;
        for (int64_t k = 0; k < n; ++k)
            x[k] = (float)from[k];
    } else if (dtype == SUT_DTYPE_BF16) {
        uint16_t *const x = (uint16_t *)to + offset;
        for (int64_t k = 0; k < n; ++k)
            x[k] = sut_to_bf16((float)from[k]);
    } else {
        uint16_t *const x = (uint16_t *)to + offset;
        for (int64_t k = 0; k < n; ++k)
            x[k] = sut_to_f16((float)from[k]);
    }
}

/* sum_i w_i g_i in double, in the order of the rows. Rows of weight 0 are left out: they could only add zeros. */
static void SUT_T(combine)(const SUT_REAL *const *g, const double *w, int m, int64_t n, double *restrict out)
{
    int done = 0;
    for (int i = 0; i < m;) {
        /* Two rows at a time; the first pass starts from 0. */
        if (w[i] == 0) {
            ++i;
            continue;
        }
        int second = i + 1;
        while (second < m && w[second] == 0)
            ++second;
        const SUT_REAL *restrict const x = g[i];
        const double a = w[i];
        if (second < m) {
            const SUT_REAL *restrict const y = g[second];
            const double b = w[second];
            if (done == 0)
                for (int64_t k = 0; k < n; ++k)
                    out[k] = (0.0 + a * (double)x[k]) + b * (double)y[k];
            else
                for (int64_t k = 0; k < n; ++k)
                    out[k] = (out[k] + a * (double)x[k]) + b * (double)y[k];
        } else if (done == 0) {
            for (int64_t k = 0; k < n; ++k)
                out[k] = 0.0 + a * (double)x[k];
        } else {
            for (int64_t k = 0; k < n; ++k)
                out[k] += a * (double)x[k];
        }
        ++done;
        i = second + 1;
    }
    if (done == 0)
        memset(out, 0, (size_t)n * sizeof *out);
}

/*
 * The combined gradient as the rule takes it. Where the rows are well conditioned sums in SUT_REAL differ from the rounded
 * sum in double by a few roundings of sum |w_i g_i|; otherwise (`exact`) they may cancel and the sum is taken in double.
 */
static void SUT_T(direction)(const SUT_REAL *const *g, const double *w, int m, int64_t n, bool exact,
                             double *restrict sum, SUT_REAL *restrict out)
{
    if (exact || sizeof(SUT_REAL) == sizeof(double)) {
        SUT_T(combine)(g, w, m, n, sum);
        for (int64_t k = 0; k < n; ++k)
            out[k] = (SUT_REAL)sum[k];
        return;
    }
    const SUT_REAL *restrict const x = g[0];
    const SUT_REAL a = (SUT_REAL)w[0];
    if (m == 1) {
        for (int64_t k = 0; k < n; ++k)
            out[k] = a * x[k];
        return;
    }
    const SUT_REAL *restrict const y = g[1];
    const SUT_REAL b = (SUT_REAL)w[1];
    for (int64_t k = 0; k < n; ++k)
        out[k] = a * x[k] + b * y[k];
    int i = 2;
    for (; i + 2 <= m; i += 2) {
        const SUT_REAL *restrict const z = g[i], *restrict const t = g[i + 1];
        const SUT_REAL c = (SUT_REAL)w[i], d = (SUT_REAL)w[i + 1];
        for (int64_t k = 0; k < n; ++k)
            out[k] = (out[k] + c * z[k]) + d * t[k];
    }
    if (i < m) {
        const SUT_REAL *restrict const z = g[i];
        const SUT_REAL c = (SUT_REAL)w[i];
        for (int64_t k = 0; k < n; ++k)
            out[k] += c * z[k];
    }
}

/* Rows of a chunk that are present, at `offset` of the tensor. */
static void SUT_T(load_rows)(const SUT_T(chunk) *c, int64_t offset, int64_t n, const SUT_REAL **g)
{
    const sut_rows *const rows = &c->pass->rows;
    for (int r = 0; r < c->n_rows; ++r) {
        const void *const from = rows->data[(int64_t)c->row[r] * c->pass->layout->n_tensors + c->tensor_index];
        SUT_REAL *const buffer = c->row_buffer + (int64_t)r * SUT_BLOCK;
        g[r] = SUT_T(load)(from, c->row_dtype, offset, n, buffer);
        if (rows->scale) { /* careful passes only */
            const SUT_REAL scale = (SUT_REAL)rows->scale[c->row[r]];
            for (int64_t k = 0; k < n; ++k)
                buffer[k] = g[r][k] * scale;
            g[r] = buffer;
        }
    }
}

/* lanes of b or s: x against every row that is present. */
static void SUT_T(row_sums)(const SUT_T(chunk) *c, const SUT_REAL *x, const SUT_REAL *const *g, int64_t n)
{
    double(*const lanes)[SUT_LANES] = c->lanes + SUT_SUM_ROWS;
    if (c->n_rows == c->pass->rows.m) {
        SUT_KIND(sut_dots)(x, g, c->n_rows, n, lanes);
        return;
    }
    for (int r = 0; r < c->n_rows; ++r)
        SUT_KIND(sut_dots)(x, g + r, 1, n, lanes + c->row[r]);
}

static inline void SUT_T(sum)(const SUT_T(chunk) *c, int which, const SUT_REAL *x, const SUT_REAL *y, int64_t n)
{
    SUT_KIND(sut_dots)(x, &y, 1, n, c->lanes + which);
}

/* u times the ratio of rates (and the scale that keeps sums in range). */
static const SUT_REAL *SUT_T(scaled)(const SUT_REAL *x, SUT_REAL factor, int64_t n, SUT_REAL *buffer)
{
    if (factor == 1)
        return x;
    for (int64_t k = 0; k < n; ++k)
        buffer[k] = x[k] * factor;
    return buffer;
}

/* Every loss has a gradient here and there are 2 or 3 of them: loops that take all sums of a pass at once exist. */
static bool SUT_T(few)(const SUT_T(chunk) *c)
{
    return c->n_rows == c->pass->rows.m && (c->n_rows == 2 || c->n_rows == 3);
}

/* The lanes of those sums: u.u, u.(M u), then b and the packed triangle. */
static void SUT_T(proposal_lanes)(const SUT_T(chunk) *c, double **to)
{
    const int m = c->n_rows;
    to[0] = c->lanes[SUT_SUM_UU];
    to[1] = c->lanes[SUT_SUM_UMU];
    for (int k = 0; k < m + m * (m + 1) / 2; ++k)
        to[2 + k] = c->lanes[SUT_SUM_ROWS + k];
}

/* p.p, p.u, |p - u|^2, then G p. */
static void SUT_T(update_lanes)(const SUT_T(chunk) *c, double **to)
{
    to[0] = c->lanes[SUT_SUM_PP];
    to[1] = c->lanes[SUT_SUM_PU];
    to[2] = c->lanes[SUT_SUM_DD];
    for (int i = 0; i < c->n_rows && i < 3; ++i)
        to[3 + i] = c->lanes[SUT_SUM_ROWS + i];
}

/*
 * Sums of a proposal: u, D and 1/D in. Over groups of different rates u and 1/M are scaled by the ratio r: u r, M u unchanged.
 */
static void SUT_T(proposal_sums)(const SUT_T(chunk) *c, const SUT_REAL *u, const SUT_REAL *d, const SUT_REAL *inverse,
                                 const SUT_REAL *const *g, int64_t n)
{
    const sut_step_pass *const pass = c->pass;
    const int m = pass->rows.m;
    const SUT_REAL ratio = (SUT_REAL)c->tensor->ratio, scale = (SUT_REAL)pass->u_scale;
    if (ratio == 0)
        return; /* a group that does not move has no share in anything */
    const bool euclidean = pass->update == SUT_UPDATE_EUCLIDEAN;
    if (pass->want_metric && !euclidean && ratio == 1 && scale == 1 && SUT_T(few)(c)) {
        double *to[2 + 3 + 6];
        SUT_T(proposal_lanes)(c, to);
        const SUT_REAL *const in[6] = {u, d, inverse, g[0], g[1], g[m - 1]};
        (m == 2 ? SUT_KIND(sut_proposal_sums_2) : SUT_KIND(sut_proposal_sums_3))(in, n, 0, to);
        return;
    }
    SUT_REAL v_buffer[SUT_BLOCK], u_buffer[SUT_BLOCK], w_buffer[SUT_BLOCK];
    const SUT_REAL *const v = SUT_T(scaled)(u, ratio * scale, n, v_buffer);
    SUT_T(row_sums)(c, v, g, n);
    if (!pass->want_metric) {
        SUT_T(sum)(c, SUT_SUM_UU, v, v, n);
        return;
    }
    const SUT_REAL *const Mv = SUT_T(scaled)(u, scale, n, u_buffer); /* euclidean; otherwise D times it */
    const SUT_REAL *w = SUT_T(scaled)(inverse, ratio, n, w_buffer);
    if (euclidean) {
        SUT_T(sum)(c, SUT_SUM_UU, v, v, n);
        SUT_T(sum)(c, SUT_SUM_UMU, v, Mv, n);
        for (int64_t k = 0; k < n; ++k)
            w_buffer[k] = ratio;
        w = w_buffer;
    } else {
        /* A coordinate with D = Inf does not move and has no share. */
        const SUT_REAL *const in[3] = {v, d, Mv};
        double *const to[2] = {c->lanes[SUT_SUM_UU], c->lanes[SUT_SUM_UMU]};
        SUT_KIND(sut_lengths)(in, n, 0, to);
    }
    SUT_KIND(sut_triangle)(g, w, c->row, c->n_rows, n, 0, c->lanes + SUT_SUM_ROWS + m);
}

/* One block of the triangle of [M^-1/2 G^T, M^1/2 u], u the proposal or the update. Groups of different rates: u r and r/M, as in the sums. */
static void SUT_T(factor_block)(const SUT_T(chunk) *c, const SUT_REAL *u, const SUT_REAL *inverse,
                                const SUT_REAL *const *g, int64_t n)
{
    const sut_step_pass *const pass = c->pass;
    const int m = pass->rows.m;
    const double ratio = c->tensor->ratio;
    double block[(SUT_MAX_LOSSES + 1) * SUT_FACTOR_ROWS];
    for (int64_t start = 0; start < n; start += SUT_FACTOR_ROWS) {
        const int64_t rows = n - start < SUT_FACTOR_ROWS ? n - start : SUT_FACTOR_ROWS;
        memset(block, 0, (size_t)(m + 1) * SUT_FACTOR_ROWS * sizeof *block);
        for (int64_t k = 0; k < rows; ++k) {
            const double w = ratio * (pass->update == SUT_UPDATE_EUCLIDEAN ? 1.0 : (double)inverse[start + k]);
            const double root = sqrt(w);
            for (int r = 0; r < c->n_rows; ++r)
                block[c->row[r] * SUT_FACTOR_ROWS + k] = (double)g[r][start + k] * pass->factor_scale[c->row[r]] * root;
            if (root > 0)
                block[m * SUT_FACTOR_ROWS + k] = (double)u[start + k] * pass->factor_scale[m] * (ratio / root);
        }
        sut_factor_add(pass->factor, m + 1, block, (int)rows);
    }
}

/* Sums of an update p beside its proposal u. */
static void SUT_T(update_sums)(const SUT_T(chunk) *c, const SUT_REAL *u, const SUT_REAL *p, const SUT_REAL *const *g,
                               int64_t n)
{
    const int m = c->pass->rows.m;
    const SUT_REAL ratio = (SUT_REAL)(c->tensor->ratio * c->pass->u_scale);
    SUT_REAL u_buffer[SUT_BLOCK], p_buffer[SUT_BLOCK];
    const SUT_REAL *in[5];
    in[0] = SUT_T(scaled)(u, ratio, n, u_buffer);
    in[1] = SUT_T(scaled)(p, ratio, n, p_buffer);
    double *to[3 + 3];
    SUT_T(update_lanes)(c, to);
    if (SUT_T(few)(c)) {
        memcpy(in + 2, g, (size_t)m * sizeof *g);
        (m == 2 ? SUT_KIND(sut_update_sums_2) : SUT_KIND(sut_update_sums_3))(in, n, 0, to);
    } else {
        SUT_KIND(sut_update_sums_0)(in, n, 0, to);
        SUT_T(row_sums)(c, in[1], g, n);
    }
}

static void SUT_T(output)(void *const *out, int64_t tensor, sut_dtype own, int64_t offset, int64_t n, const SUT_REAL *x)
{
    if (out && out[tensor])
        SUT_T(store)(out[tensor], own, offset, n, x);
}

static inline void SUT_T(prefetch)(const void *base, int64_t offset, int64_t n, size_t size)
{
    const char *const from = (const char *)base + (size_t)offset * size;
    for (size_t byte = 0; byte < (size_t)n * size; byte += 64)
        __builtin_prefetch(from + byte);
}

/* The fused pass when the proposal is to be measured: the same bits as kernels->fused. */
static void SUT_T(fused_with_sums)(const SUT_T(chunk) *c, SUT_T(block) *b, const SUT_REAL *const *g, int64_t n)
{
    c->kernels->propose(b);
    SUT_T(proposal_sums)(c, b->u, b->d, b->r, g, n);
    if (sut_rule_is_deferred(c->tensor->setting->rule)) {
        c->kernels->apply(b);
        return;
    }
    const SUT_REAL lr = *(const SUT_REAL *)c->constants; /* every rule's constants begin with it */
    SUT_REAL *restrict const theta = b->theta;
    const SUT_REAL *restrict const u = b->u;
    for (int64_t k = 0; k < n; ++k)
        theta[k] = theta[k] - lr * u[k];
}

/* p = (u + chi/D) + chi'/D: what is left of the cancellation in the first sum is repaired by the second. */
static void SUT_T(corrected_update)(const SUT_T(chunk) *c, SUT_T(block) *b, const SUT_REAL *const *g, const double *chi,
                                    int64_t n)
{
    const bool natural = c->pass->update == SUT_UPDATE_NATURAL;
    double correction[SUT_MAX_LOSSES], more[SUT_BLOCK];
    for (int r = 0; r < c->n_rows; ++r)
        correction[r] = c->pass->correction[c->row[r]];
    SUT_T(combine)(g, correction, c->n_rows, n, more);
    c->kernels->terms(b);
    for (int64_t k = 0; k < n; ++k) {
        const double inverse = natural ? (double)b->r[k] : 1.0;
        b->p[k] = (SUT_REAL)(((double)b->u[k] + chi[k] * inverse) + more[k] * inverse);
    }
}

/* The last pass of one block. `chi` holds SUT_BLOCK doubles of scratch. */
static void SUT_T(apply_block)(const SUT_T(chunk) *c, SUT_T(block) *b, const SUT_REAL *const *g, double *chi, int64_t n,
                               int64_t offset)
{
    const sut_step_pass *const pass = c->pass;
    const SUT_T(kernels) *const kernels = c->kernels;
    const bool writes = pass->kind == SUT_PASS_APPLY;
    if (c->tensor->lr == 0) {
        if (pass->p_out && pass->p_out[c->tensor_index]) {
            kernels->terms(b);
            SUT_T(output)(pass->p_out, c->tensor_index, c->own, offset, n, b->u);
        }
        if (writes && sut_rule_is_deferred(c->tensor->setting->rule))
            kernels->advance(b);
        return;
    }
    const void *const given = pass->update == SUT_UPDATE_GIVEN ? pass->p_in[c->tensor_index] : NULL;
    if (pass->update == SUT_UPDATE_PROPOSAL || (pass->update == SUT_UPDATE_GIVEN && !given)) {
        if (pass->want_sums || (pass->p_out && pass->p_out[c->tensor_index])) {
            kernels->terms(b);
            if (pass->want_sums)
                SUT_T(update_sums)(c, b->u, b->u, g, n);
            SUT_T(output)(pass->p_out, c->tensor_index, c->own, offset, n, b->u);
        }
        if (writes)
            kernels->apply(b);
        return;
    }
    if (pass->update == SUT_UPDATE_NATURAL || pass->update == SUT_UPDATE_EUCLIDEAN) {
        double lambda[SUT_MAX_LOSSES];
        for (int r = 0; r < c->n_rows; ++r)
            lambda[r] = pass->lambda[c->row[r]];
        SUT_T(combine)(g, lambda, c->n_rows, n, chi);
    }
    const bool p_wanted = pass->p_out && pass->p_out[c->tensor_index];
    if (pass->update == SUT_UPDATE_NATURAL && !pass->correction) {
        if (pass->want_sums && !c->wide && !p_wanted && c->tensor->ratio * pass->u_scale == 1 && SUT_T(few)(c) &&
            kernels->apply_few[0][0]) {
            double *to[3 + 3];
            SUT_T(update_lanes)(c, to);
            b->lanes = to;
            kernels->apply_few[c->n_rows - 2][pass->realign](b);
            return;
        }
        kernels->apply_chi[pass->realign](b);
    } else {
        if (pass->correction && pass->update <= SUT_UPDATE_EUCLIDEAN) {
            SUT_T(corrected_update)(c, b, g, chi, n);
            if (pass->factor)
                SUT_T(factor_block)(c, b->p, b->r, g, n);
        } else if (pass->update == SUT_UPDATE_EUCLIDEAN) {
            kernels->terms(b);
            for (int64_t k = 0; k < n; ++k)
                b->p[k] = (SUT_REAL)((double)b->u[k] + chi[k]);
        } else if (pass->update == SUT_UPDATE_ZERO) {
            memset(b->p, 0, (size_t)n * sizeof *b->p);
        } else {
            const SUT_REAL *const from = SUT_T(load)(given, c->own, offset, n, b->p);
            if (from != b->p)
                memcpy(b->p, from, (size_t)n * sizeof *from);
        }
        kernels->apply_given[pass->realign](b);
    }
    if (pass->want_sums)
        SUT_T(update_sums)(c, b->u, b->p, g, n);
    SUT_T(output)(pass->p_out, c->tensor_index, c->own, offset, n, b->p);
}

/* The fused pass of one loss where there is nothing to sum, to combine or to convert: false where there is. */
static bool SUT_T(run_plain_chunk)(const sut_step_pass *pass, int64_t tensor_index, int64_t offset, int64_t count)
{
    const sut_pass_tensor *const tensor = &pass->tensors[tensor_index];
    const sut_rule_setting *const setting = tensor->setting;
    if (pass->kind != SUT_PASS_FUSED || !pass->direct || pass->want_sums || tensor->lr == 0 ||
        pass->layout->dtype[tensor_index] != SUT_OWN_DTYPE || (setting->flags & SUT_RULE_COUPLED))
        return false;
    SUT_T(block) b;
    const SUT_REAL *const g = (const SUT_REAL *)pass->rows.data[tensor_index] + offset;
    b.n = count;
    b.constants = sizeof(SUT_REAL) == 4 ? setting->f32 : setting->f64;
    for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
        b.state[slot] = tensor->state[slot] ? (SUT_REAL *)tensor->state[slot] + offset : NULL;
    b.a = g;
    b.theta = (SUT_REAL *)tensor->theta + offset;
    b.u = b.d = b.r = b.p = NULL;
    b.chi = NULL;
    b.ahead = pass->prefetch ? SUT_AHEAD : 0;
    b.g = &g;
    b.n_rows = 1;
    b.lanes = NULL;
    SUT_T(select)(setting->rule, setting->flags)->fused(&b);
    return true;
}

static void SUT_T(run_chunk)(const SUT_T(chunk) *c)
{
    const sut_step_pass *const pass = c->pass;
    const sut_pass_tensor *const tensor = c->tensor;
    const SUT_T(kernels) *const kernels = c->kernels;
    const bool moving = tensor->lr != 0;
    const bool writes = pass->kind != SUT_PASS_TERMS && pass->kind != SUT_PASS_MEASURE;
    const bool converted = c->own != SUT_OWN_DTYPE;
    SUT_REAL a[SUT_BLOCK], u[SUT_BLOCK], d[SUT_BLOCK], r[SUT_BLOCK], p[SUT_BLOCK], theta[SUT_BLOCK];
    SUT_REAL state[SUT_MAX_SLOTS][SUT_BLOCK];
    double sum[SUT_BLOCK];
    const SUT_REAL *g[SUT_MAX_LOSSES];

    const bool needs_rows = pass->kind <= SUT_PASS_TERMS || pass->want_sums || pass->direct || pass->weights ||
                            pass->update == SUT_UPDATE_NATURAL || pass->update == SUT_UPDATE_EUCLIDEAN;
    /* Few losses: the proposal with its sums in one loop, unless someone wants u or 1/M. */
    const bool few = kernels->propose_few[0] && pass->want_sums && pass->want_metric && !c->wide && SUT_T(few)(c) &&
                     pass->update == SUT_UPDATE_NATURAL && tensor->ratio * pass->u_scale == 1 &&
                     !(pass->u_out && pass->u_out[c->tensor_index]) &&
                     !(pass->inverse_out && pass->inverse_out[c->tensor_index]);
    double *to[2 + 3 + 6];
    if (few)
        SUT_T(proposal_lanes)(c, to);

    for (int64_t start = 0; start < c->count; start += SUT_BLOCK) {
        const int64_t n = c->count - start < SUT_BLOCK ? c->count - start : SUT_BLOCK;
        const int64_t offset = c->offset + start;
        if (pass->prefetch && converted && needs_rows && start + n < c->count)
            for (int r = 0; r < c->n_rows; ++r) /* the loops fetch what they read in place */
                SUT_T(prefetch)(pass->rows.data[(int64_t)c->row[r] * pass->layout->n_tensors + c->tensor_index],
                                offset + n, SUT_BLOCK, sut_dtype_size(c->row_dtype));

        if (needs_rows)
            SUT_T(load_rows)(c, offset, n, g);
        SUT_T(block) b; /* field by field: small tensors feel the clearing of a struct */
        b.n = n;
        b.constants = c->constants;
        b.a = a;
        b.u = u;
        b.d = d;
        b.r = r;
        b.p = p;
        b.chi = sum;
        b.ahead = pass->prefetch && !converted && writes ? SUT_AHEAD : 0;
        b.g = g;
        b.n_rows = needs_rows ? c->n_rows : 0;
        b.lanes = to;
        b.state[0] = b.state[1] = b.state[2] = NULL;
        for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot) {
            if (!tensor->state[slot])
                continue;
            /* Copies in converted passes and where nothing may be written. */
            if (converted || !writes) {
                const SUT_REAL *const from = SUT_T(load)(tensor->state[slot], c->own, offset, n, state[slot]);
                if (from != state[slot])
                    memcpy(state[slot], from, (size_t)n * sizeof *from);
                b.state[slot] = state[slot];
            } else {
                b.state[slot] = (SUT_REAL *)tensor->state[slot] + offset;
            }
        }
        if (converted || !writes) {
            const SUT_REAL *const from = SUT_T(load)(tensor->theta, c->own, offset, n, theta);
            if (from != theta)
                memcpy(theta, from, (size_t)n * sizeof *from);
            b.theta = theta;
        } else {
            b.theta = (SUT_REAL *)tensor->theta + offset;
        }

        if (pass->direct && needs_rows) {
            b.a = g[0];
        } else if (pass->weights && needs_rows) {
            double w[SUT_MAX_LOSSES];
            for (int r = 0; r < c->n_rows; ++r)
                w[r] = pass->weights[c->row[r]];
            SUT_T(direction)(g, w, c->n_rows, n, pass->exact_sum, sum, a);
        }

        if ((tensor->setting->flags & SUT_RULE_COUPLED) && (pass->direct || pass->weights) && needs_rows) {
            /* Coupled decay; the second constant of every rule is its weight. */
            const SUT_REAL wd = ((const SUT_REAL *)c->constants)[1];
            const SUT_REAL *restrict const from = b.a;
            const SUT_REAL *restrict const at = b.theta;
            for (int64_t k = 0; k < n; ++k)
                a[k] = from[k] + wd * at[k];
            b.a = a;
        }

        switch (pass->kind) {
        case SUT_PASS_FUSED:
            if (!moving) {
                kernels->advance(&b);
            } else if (pass->want_sums) {
                SUT_T(fused_with_sums)(c, &b, g, n);
            } else {
                kernels->fused(&b);
            }
            break;
        case SUT_PASS_PROPOSE:
            if (few) {
                kernels->propose_few[c->n_rows - 2](&b);
                break;
            }
            /* fall through */
        case SUT_PASS_TERMS:
            (pass->kind == SUT_PASS_PROPOSE ? kernels->propose : kernels->terms)(&b);
            if (pass->want_sums)
                SUT_T(proposal_sums)(c, u, d, r, g, n);
            if (pass->factor)
                SUT_T(factor_block)(c, u, r, g, n);
            if (pass->update == SUT_UPDATE_EUCLIDEAN && pass->inverse_out && pass->inverse_out[c->tensor_index])
                for (int64_t k = 0; k < n; ++k)
                    r[k] = 1; /* M = I */
            SUT_T(output)(pass->u_out, c->tensor_index, c->own, offset, n, u);
            SUT_T(output)(pass->inverse_out, c->tensor_index, c->own, offset, n, r);
            break;
        case SUT_PASS_APPLY:
        case SUT_PASS_MEASURE: SUT_T(apply_block)(c, &b, g, sum, n, offset); break;
        }

        if (writes && converted) {
            for (int slot = 0; slot < SUT_MAX_SLOTS; ++slot)
                if (tensor->state[slot])
                    SUT_T(store)(tensor->state[slot], c->own, offset, n, state[slot]);
            SUT_T(store)(tensor->theta, c->own, offset, n, theta);
        }
        /* The caller's low-precision parameter is the rounding of its master copy. */
        if (writes && moving && tensor->param != tensor->theta &&
            (pass->kind == SUT_PASS_FUSED || pass->kind == SUT_PASS_APPLY)) {
            const float *const master = (const float *)tensor->theta + offset;
            uint16_t *const to = (uint16_t *)tensor->param + offset;
            if (c->row_dtype == SUT_DTYPE_BF16)
                for (int64_t k = 0; k < n; ++k)
                    to[k] = sut_to_bf16(master[k]);
            else
                for (int64_t k = 0; k < n; ++k)
                    to[k] = sut_to_f16(master[k]);
        }
    }
}

/* K += G G^T over one chunk. `ahead`: elements ahead of which rows are fetched, or 0. */
static void SUT_T(gram_chunk)(const sut_rows *rows, const sut_layout *layout, int64_t tensor, int64_t offset,
                              int64_t count, bool wide, int64_t ahead, double (*lanes)[SUT_LANES], SUT_REAL *row_buffer)
{
    const struct {
        bool wide;
    } kind = {wide}, *const c = &kind; /* for SUT_KIND */
    const sut_dtype dtype = layout->dtype[tensor];
    const void *data[SUT_MAX_LOSSES];
    int row[SUT_MAX_LOSSES], n_rows = 0;
    (void)c;
    for (int i = 0; i < rows->m; ++i)
        if (rows->data[(int64_t)i * layout->n_tensors + tensor]) {
            row[n_rows] = i;
            data[n_rows++] = rows->data[(int64_t)i * layout->n_tensors + tensor];
        }
    for (int64_t start = 0; start < count; start += SUT_BLOCK) {
        const int64_t n = count - start < SUT_BLOCK ? count - start : SUT_BLOCK;
        const SUT_REAL *g[SUT_MAX_LOSSES];
        for (int r = 0; r < n_rows; ++r) {
            SUT_REAL *const buffer = row_buffer + (int64_t)r * SUT_BLOCK;
            g[r] = SUT_T(load)(data[r], dtype, offset + start, n, buffer);
            if (rows->scale) {
                const SUT_REAL scale = (SUT_REAL)rows->scale[row[r]];
                for (int64_t k = 0; k < n; ++k)
                    buffer[k] = g[r][k] * scale;
                g[r] = buffer;
            }
        }
        SUT_KIND(sut_triangle)(g, NULL, row, n_rows, n, ahead, lanes);
    }
}

#undef SUT_KIND
