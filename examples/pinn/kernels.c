/*
 * The network's arithmetic, compiled once per element type and instruction set (see vec.h; KERNELS is the table's name,
 * ISA_NAME that of the instruction set).
 *
 * Forward:   Z = W A (+ bias on the value channel), then with s = 1 - a^2, Q = sum_i kappa_i z_i^2
 *     a = tanh z        a_i = s z_i        a_q = s (z_q - 2 a Q)
 * Reverse, in terms of what came out of the layer (nothing cancels when units saturate, no pre-activation is kept):
 *     z'_q = s a'_q
 *     z'_i = s a'_i - 4 a kappa_i a_i a'_q
 *     z'   = s a' - 2 a sum_i a'_i a_i - 2 a'_q (a a_q + sum_i kappa_i a_i^2)
 *     W' += Z' A^T,   b' += row sums of z',   A' = W^T Z'
 *
 * The two matrix products are written for the shapes that occur: rows in groups of five (50 = 10 x 5) times two vectors
 * make ten independent sums, so the multiply-add units never wait. Measured (Zen 3, f32, one core): 90 to 98 GFLOP/s of
 * 104 whatever BLAS is installed, where OpenBLAS reaches 42 to 64 at these sizes, most of the rest being its packing.
 *
 * A tile's sums are taken in the element type and added to double totals.
 */
#include "network.h"
#include "vec.h"

#include <string.h>

#define LANES ((int)(NET_LINE / sizeof(real))) /* points of a block */
#define VPL ((int)(NET_LINE / VEC_BYTES))      /* vectors of a line */

/* Five rows and two vectors of a product by name: an array would live in memory when the loop ends. */
#define FIVE(row) row(0) row(1) row(2) row(3) row(4)

/* Z[r][0..2) = sum_k w[k * 5 + r] b[k][0..2) for five rows; `two` 0: one vector. Rows of b and z are `ld` apart. */
INLINE void product_five(const int two, int depth, const real *restrict w, const real *restrict b, real *restrict z,
                         size_t ld)
{
#define START(r) vec x##r = (vec){0}, y##r = (vec){0};
#define ADD(r)           \
    x##r += w[r] * left; \
    if (two)             \
        y##r += w[r] * right;
#define FINISH(r)            \
    store(z + r * ld, x##r); \
    if (two)                 \
        store(z + r * ld + VEC_LANES, y##r);
    FIVE(START)
    for (int k = 0; k < depth; k++, b += ld, w += 5) {
        const vec left = load(b), right = two ? load(b + VEC_LANES) : left;
        FIVE(ADD)
    }
    FIVE(FINISH)
#undef ADD
#undef FINISH
}

/* The rows that are left over, fewer than five, and the output layer: one row and four vectors at a time. */
static void product_few(int rows, int depth, const real *restrict w, const real *restrict b, real *restrict z,
                        size_t ld)
{
    for (int r = 0; r < rows; r++, w++, z += ld)
        for (size_t v = 0; v < ld;) {
            const real *row = b + v;
            if (ld - v >= 4 * VEC_LANES) {
                vec s0 = (vec){0}, s1 = s0, s2 = s0, s3 = s0;
                for (int k = 0; k < depth; k++, row += ld) {
                    const real weight = w[k * rows];
                    s0 += weight * load(row);
                    s1 += weight * load(row + VEC_LANES);
                    s2 += weight * load(row + 2 * VEC_LANES);
                    s3 += weight * load(row + 3 * VEC_LANES);
                }
                store(z + v, s0);
                store(z + v + VEC_LANES, s1);
                store(z + v + 2 * VEC_LANES, s2);
                store(z + v + 3 * VEC_LANES, s3);
                v += 4 * VEC_LANES;
            } else {
                vec sum = (vec){0};
                for (int k = 0; k < depth; k++, row += ld)
                    sum += w[k * rows] * load(row);
                store(z + v, sum);
                v += VEC_LANES;
            }
        }
}

/* Z = W B for one block: W is n_rows x depth, packed; B has `depth` rows of `ld` elements (all channels side by side). */
static void product(int n_rows, int depth, const real *packed, const real *b, real *z, size_t ld)
{
    const int full = n_rows / 5 * 5;
    for (size_t v = 0; v < ld; v += 2 * VEC_LANES) {
        const real *w = packed;
        for (int row = 0; row < full; row += 5, w += 5 * depth)
            if (ld - v > VEC_LANES)
                product_five(1, depth, w, b + v, z + (size_t)row * ld + v, ld);
            else
                product_five(0, depth, w, b + v, z + (size_t)row * ld + v, ld);
    }
    product_few(n_rows - full, depth, packed + full * depth, b, z + (size_t)full * ld, ld);
}

/* gradient[r][0..2) += sum over the tile's points and channels of z[r] a[0..2) for five rows. */
INLINE void outer_five(int blocks, size_t ld, const real *restrict z, size_t z_block, const real *restrict a,
                       size_t a_block, double *restrict gradient, size_t gradient_ld)
{
#define ADD(r)                          \
    {                                   \
        vec row = load(z + r * ld + k); \
        IN_REGISTER(row);               \
        x##r += row * left;             \
        y##r += row * right;            \
    }
    FIVE(START)
    for (int block = 0; block < blocks; block++, z += z_block, a += a_block)
        for (size_t k = 0; k < ld; k += VEC_LANES) {
            const vec left = load(a + k), right = load(a + ld + k);
            FIVE(ADD)
        }
#undef START
#undef ADD
    double last[4] = {0, 0, 0, 0};
    add_sums(x0, y0, x1, y1, gradient, gradient + gradient_ld);
    add_sums(x2, y2, x3, y3, gradient + 2 * gradient_ld, gradient + 3 * gradient_ld);
    add_sums(x4, y4, x4, y4, gradient + 4 * gradient_ld, last);
}

/* One row and four columns, or fewer. */
INLINE void outer_row(const int cols, int blocks, size_t ld, const real *z, size_t z_block, const real *a,
                      size_t a_block, double *gradient)
{
    vec s0 = (vec){0}, s1 = s0, s2 = s0, s3 = s0;
    for (int block = 0; block < blocks; block++, z += z_block, a += a_block)
        for (size_t k = 0; k < ld; k += VEC_LANES) {
            const vec row = load(z + k);
            s0 += row * load(a + k);
            if (cols == 1)
                continue;
            s1 += row * load(a + ld + k);
            s2 += row * load(a + 2 * ld + k);
            s3 += row * load(a + 3 * ld + k);
        }
    if (cols == 1)
        *gradient += sum_of(s0);
    else
        add_sums(s0, s1, s2, s3, gradient, gradient + 2);
}

/* The columns from..to - 1 of one row. */
static void outer_rest(int from, int to, int blocks, size_t ld, const real *z, size_t z_block, const real *a,
                       size_t a_block, double *gradient)
{
    for (; from + 4 <= to; from += 4)
        outer_row(4, blocks, ld, z, z_block, a + (size_t)from * ld, a_block, gradient + from);
    for (; from < to; from++)
        outer_row(1, blocks, ld, z, z_block, a + (size_t)from * ld, a_block, gradient + from);
}

/* W' += Z' A^T over a tile. Columns of W' go in groups of GROUP, so that their rows of A stay in the first-level cache
 * while all rows of Z' pass by. */
static void outer(int n_rows, int n_cols, int blocks, size_t ld, const real *z, const real *a, double *gradient)
{
    enum { GROUP = 16 };
    const size_t z_block = (size_t)n_rows * ld, a_block = (size_t)n_cols * ld, cols = (size_t)n_cols;
    for (int group = 0; group < n_cols; group += GROUP) {
        const int end = n_cols - group < GROUP ? n_cols : group + GROUP;
        for (int row = 0; row < n_rows;) {
            const real *zr = z + (size_t)row * ld;
            double *out = gradient + (size_t)row * cols;
            int col = group;
            if (n_rows - row >= 5) {
                for (; col + 2 <= end; col += 2)
                    outer_five(blocks, ld, zr, z_block, a + (size_t)col * ld, a_block, out + col, cols);
                for (int r = 0; r < 5 && col < end; r++)
                    outer_rest(col, end, blocks, ld, zr + (size_t)r * ld, z_block, a, a_block, out + (size_t)r * cols);
                row += 5;
            } else {
                outer_rest(col, end, blocks, ld, zr, z_block, a, a_block, out);
                row++;
            }
        }
    }
}

/* a = tanh(z + bias) in place, the value channel of the units of one block. A loop of its own: beside the derivatives the
 * processor would not look far enough ahead to keep several of these long chains of dependent operations going. */
static void tanh_values(int units, size_t ld, const real *bias, real *z)
{
    for (int unit = 0; unit < units; unit++, z += ld)
        for (int v = 0; v < LANES; v += VEC_LANES)
            store(z + v, tanh_vec(load(z + v) + bias[unit]));
}

/* The derivative channels' pre-activations -> activations in place, once the values are there. */
INLINE void tanh_derivatives(const int inputs, int units, const double *kappa, real *z)
{
    const size_t ld = (size_t)(inputs + 2) * (size_t)LANES;
    for (int unit = 0; unit < units; unit++, z += ld)
        for (int v = 0; v < LANES; v += VEC_LANES) {
            real *p = z + v;
            const vec a = load(p), s = 1 - a * a;
            vec Q = (vec){0};
            for (int i = 0; i < inputs; i++) {
                const vec zi = load(p + (1 + i) * LANES);
                Q += (real)kappa[i] * (zi * zi);
                store(p + (1 + i) * LANES, s * zi);
            }
            const vec zq = load(p + (1 + inputs) * LANES);
            store(p + (1 + inputs) * LANES, s * (zq - 2 * a * Q));
        }
}

/* Adjoints of activations -> adjoints of pre-activations in place; the value channel's row sums go to `sums`. */
INLINE void reverse_block(const int inputs, int units, const double *kappa, const real *activation, real *bar,
                          real *sums)
{
    const size_t ld = (size_t)(inputs ? inputs + 2 : 1) * (size_t)LANES;
    for (int unit = 0; unit < units; unit++, activation += ld, bar += ld, sums += LANES)
        for (int v = 0; v < VPL; v++) {
            const real *p = activation + v * VEC_LANES;
            real *q = bar + v * VEC_LANES;
            const vec a = load(p), s = 1 - a * a;
            vec zbar = s * load(q);
            if (inputs) {
                const vec qbar = load(q + (1 + inputs) * LANES), aq = load(p + (1 + inputs) * LANES);
                vec first = (vec){0}, second = a * aq;
                for (int i = 0; i < inputs; i++) {
                    const vec ai = load(p + (1 + i) * LANES), abar = load(q + (1 + i) * LANES);
                    const vec kai = (real)kappa[i] * ai;
                    first += abar * ai;
                    second += kai * ai;
                    store(q + (1 + i) * LANES, s * abar - 4 * (a * kai) * qbar);
                }
                zbar -= 2 * (a * first + qbar * second);
                store(q + (1 + inputs) * LANES, s * qbar);
            }
            store(q, zbar);
            store(sums + v * VEC_LANES, load(sums + v * VEC_LANES) + zbar);
        }
}

/* The same with the number of inputs as a constant, so that the inner loops are unrolled. */
#define PER_INPUTS(channels, call) \
    switch (channels) {            \
    case 1: call(0); break;        \
    case 3: call(1); break;        \
    case 4: call(2); break;        \
    case 5: call(3); break;        \
    case 6: call(4); break;        \
    default: call(5); break;       \
    }

static void tanh_units(int channels, int units, const double *kappa, const real *bias, real *z)
{
    tanh_values(units, (size_t)channels * (size_t)LANES, bias, z);
#define CALL(inputs) \
    if (inputs)      \
    tanh_derivatives(inputs, units, kappa, z)
    PER_INPUTS(channels, CALL)
#undef CALL
}

static void reverse_units(int channels, int units, const double *kappa, const real *activation, real *bar, real *sums)
{
#define CALL(inputs) reverse_block(inputs, units, kappa, activation, bar, sums)
    PER_INPUTS(channels, CALL)
#undef CALL
}

/* gradient[i * stride] += the sum of line i, for n lines. */
static void add_lines(int n, const real *lines, double *gradient, size_t stride)
{
    for (int i = 0; i < n; i++, lines += LANES) {
        double sum = 0;
        for (int l = 0; l < LANES; l++)
            sum += (double)lines[l];
        gradient[(size_t)i * stride] += sum;
    }
}

/* First layer of one block: z = W x + b, z_i = column i of W at every point, z_q = 0. */
static void first_layer(const net_shape *shape, int channels, const double *kappa, const real *w, const real *x,
                        real *z)
{
    const int d = shape->inputs;
    const size_t ld = (size_t)channels * (size_t)LANES;
    for (int unit = 0; unit < shape->width; unit++)
        for (int v = 0; v < LANES; v += VEC_LANES) {
            vec sum = (vec){0};
            for (int i = 0; i < d; i++)
                sum += w[unit * d + i] * load(x + i * LANES + v);
            store(z + (size_t)unit * ld + v, sum);
        }
    tanh_values(shape->width, ld, w + shape->width * d, z);
    for (int unit = 0; channels > 1 && unit < shape->width; unit++, w += d, z += ld) {
        real Q = 0;
        for (int i = 0; i < d; i++)
            Q += (real)kappa[i] * (w[i] * w[i]);
        for (int v = 0; v < LANES; v += VEC_LANES) {
            const vec a = load(z + v), s = 1 - a * a;
            for (int i = 0; i < d; i++)
                store(z + (1 + i) * LANES + v, s * w[i]);
            store(z + (1 + d) * LANES + v, s * (-2 * Q * a));
        }
    }
}

/* W' += z' x^T + (row sums of z'_i) in column i. */
static void first_layer_gradient(const net_shape *shape, const net_tile *tile, const real *bar, double *gradient)
{
    const int d = shape->inputs;
    const size_t ld = (size_t)tile->channels * (size_t)LANES, block_size = (size_t)shape->width * ld;
    for (int unit = 0; unit < shape->width; unit++)
        for (int i = 0; i < d; i++) {
            vec sum = (vec){0};
            for (int block = 0; block < tile->blocks; block++) {
                const real *q = bar + (size_t)block * block_size + (size_t)unit * ld;
                const real *x = (const real *)tile->x + (size_t)(block * d + i) * (size_t)LANES;
                for (int v = 0; v < VPL; v++) {
                    sum += load(q + v * VEC_LANES) * load(x + v * VEC_LANES);
                    if (tile->channels > 1)
                        sum += load(q + (1 + i) * LANES + v * VEC_LANES);
                }
            }
            gradient[unit * d + i] += sum_of(sum);
        }
}

static size_t packed_size(const net_shape *shape)
{
    const size_t square = (size_t)shape->width * (size_t)shape->width;
    return (2 * (size_t)(shape->hidden - 1) * square + 2 * (size_t)(shape->outputs * shape->width)) * sizeof(real);
}

/* One matrix with rows and columns `rs`, `cs` apart, into groups of 5 rows: [group][column][row of the group]. */
static real *pack_matrix(int n_rows, int n_cols, const real *w, int rs, int cs, real *packed)
{
    for (int row = 0; row < n_rows; row += 5) {
        const int rows = n_rows - row < 5 ? n_rows - row : 5;
        for (int col = 0; col < n_cols; col++)
            for (int r = 0; r < rows; r++)
                *packed++ = w[(row + r) * rs + col * cs];
    }
    return packed;
}

/* For each layer from the second on: W for the forward sweep, then W^T for the reverse one. */
static void pack(const net_shape *shape, const void *theta, void *packed)
{
    real *out = packed;
    for (int layer = 1; layer <= shape->hidden; layer++) {
        const real *w = (const real *)theta + net_offset(shape, layer);
        const int rows = net_layer_outputs(shape, layer), cols = shape->width;
        out = pack_matrix(rows, cols, w, cols, 1, out);
        out = pack_matrix(cols, rows, w, 1, cols, out);
    }
}

static const real *packed_layer(const net_shape *shape, const void *packed, int layer, bool transposed)
{
    const size_t square = (size_t)shape->width * (size_t)shape->width;
    return (const real *)packed + (size_t)(layer - 1) * 2 * square +
           (transposed ? (size_t)net_layer_outputs(shape, layer) * (size_t)shape->width : 0);
}

static void forward(const net_shape *shape, const double *kappa, const void *theta, const void *packed, net_tile *tile)
{
    const real *const parameters = theta;
    const size_t ld = (size_t)tile->channels * (size_t)LANES, block_size = (size_t)shape->width * ld;
    const int width = shape->width, outputs = shape->outputs, hidden = shape->hidden;
    for (int block = 0; block < tile->blocks; block++) {
        real *a = (real *)tile->tape + (size_t)block * block_size;
        const real *x = (const real *)tile->x + (size_t)(block * shape->inputs) * (size_t)LANES;
        first_layer(shape, tile->channels, kappa, parameters, x, a);
        for (int layer = 1; layer < hidden; layer++) {
            real *next = a + NET_TILE_BLOCKS * block_size;
            product(width, width, packed_layer(shape, packed, layer, false), a, next, ld);
            tanh_units(tile->channels, width, kappa,
                       parameters + net_offset(shape, layer) + (size_t)width * (size_t)width, next);
            a = next;
        }
        real *out = (real *)tile->output + (size_t)(block * outputs) * ld;
        product(outputs, width, packed_layer(shape, packed, hidden, false), a, out, ld);
        const real *bias = parameters + net_offset(shape, hidden) + (size_t)outputs * (size_t)width;
        for (int o = 0; o < outputs; o++)
            for (int l = 0; l < LANES; l++)
                out[(size_t)o * ld + (size_t)l] += bias[o];
    }
}

static void reverse(const net_shape *shape, const double *kappa, const void *packed, net_tile *tile, double *gradient)
{
    const int width = shape->width, outputs = shape->outputs, hidden = shape->hidden, blocks = tile->blocks;
    const size_t ld = (size_t)tile->channels * (size_t)LANES, block_size = (size_t)width * ld;
    const size_t layer_size = NET_TILE_BLOCKS * block_size;
    real *const sums = tile->sums;
    real *bar = tile->bar, *tape = (real *)tile->tape + (size_t)(hidden - 1) * layer_size;

    double *layer_gradient = gradient + net_offset(shape, hidden);
    outer(outputs, width, blocks, ld, tile->output, tape, layer_gradient);
    for (int block = 0; block < blocks; block++) {
        const real *out = (const real *)tile->output + (size_t)(block * outputs) * ld;
        product(width, outputs, packed_layer(shape, packed, hidden, true), out, bar + (size_t)block * block_size, ld);
        for (int o = 0; o < outputs; o++)
            add_lines(1, out + (size_t)o * ld, layer_gradient + outputs * width + o, 1);
    }
    for (int layer = hidden - 1; layer >= 0; layer--, tape -= layer_size) {
        layer_gradient = gradient + net_offset(shape, layer);
        memset(sums, 0, (size_t)width * NET_LINE);
        for (int block = 0; block < blocks; block++) {
            real *zbar = bar + (size_t)block * block_size, *a = tape + (size_t)block * block_size;
            reverse_units(tile->channels, width, kappa, a, zbar, sums);
            if (layer > 0) /* this layer's activations are spent: the adjoints of the one below take their place */
                product(width, width, packed_layer(shape, packed, layer, true), zbar, a, ld);
        }
        const int inputs = net_layer_inputs(shape, layer);
        add_lines(width, sums, layer_gradient + width * inputs, 1);
        if (layer > 0)
            outer(width, width, blocks, ld, bar, tape - layer_size, layer_gradient);
        else
            first_layer_gradient(shape, tile, bar, layer_gradient);
        bar = tape;
    }
}

static void put_points(const net_shape *shape, net_tile *tile, const double *points, int count, int stride)
{
    tile->blocks = (count + LANES - 1) / LANES;
    real *x = tile->x;
    for (int block = 0; block < tile->blocks; block++)
        for (int i = 0; i < shape->inputs; i++)
            for (int l = 0; l < LANES; l++) {
                const int k = block * LANES + l;
                *x++ = (real)points[i * stride + (k < count ? k : count - 1)];
            }
}

static void get_output(const net_shape *shape, const net_tile *tile, double *values, int count, int stride)
{
    const int rows = shape->outputs * tile->channels;
    const real *out = tile->output;
    for (int block = 0; block < tile->blocks; block++)
        for (int row = 0; row < rows; row++, out += LANES)
            for (int l = 0; l < LANES && block * LANES + l < count; l++)
                values[row * stride + block * LANES + l] = (double)out[l];
}

static void put_adjoint(const net_shape *shape, net_tile *tile, const double *adjoint, int count, int stride)
{
    const int rows = shape->outputs * tile->channels;
    real *out = tile->output;
    for (int block = 0; block < tile->blocks; block++)
        for (int row = 0; row < rows; row++, out += LANES)
            for (int l = 0; l < LANES; l++) {
                const int k = block * LANES + l;
                out[l] = k < count ? (real)adjoint[row * stride + k] : 0;
            }
}

static void tanh_lines(void *lines, int n)
{
    real *const x = lines;
    for (int i = 0; i < n * LANES; i += VEC_LANES)
        store(x + i, tanh_vec(load(x + i)));
}

extern const net_kernels KERNELS;
const net_kernels KERNELS = {
    .isa = ISA_NAME,
    .real = REAL_IS_F32 ? NET_F32 : NET_F64,
    .real_size = sizeof(real),
    .lanes = LANES,
    .pack = pack,
    .packed_size = packed_size,
    .forward = forward,
    .reverse = reverse,
    .put_points = put_points,
    .get_output = get_output,
    .put_adjoint = put_adjoint,
    .tanh = tanh_lines,
};
