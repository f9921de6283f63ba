/*
 * The network: inputs -> `hidden` layers of `width` tanh units -> linear outputs, with its derivatives in the inputs and
 * the reverse sweep for the gradient in the parameters (hand-derived; no automatic differentiation).
 *
 * Channels. Each unit carries its value and, where derivatives are asked for, one first derivative per input and one
 * second-order combination q = sum_i kappa_i d^2/dx_i^2, so 2 + inputs channels; otherwise the value alone.
 *
 * Layout. Points are cut into blocks of as many as fill one 64-byte line (16 in f32, 8 in f64) and an array of a layer is
 *     [block][unit][channel][point in the block]
 * so that every (unit, channel) of a block is one aligned line, a linear layer is one matrix product per block whose
 * operands fit the first-level cache, and every element-wise loop runs over whole vectors. Some blocks form a tile, which
 * goes through the forward sweep, the residual and the reverse sweep before the next: its activations stay in the
 * second-level cache. Block and tile sizes are fixed, so results do not depend on the number of threads.
 *
 * Parameters: layer after layer, the weight matrix row by row ([out][in]), then the bias. Gradients use the same order.
 */
#ifndef PINN_NETWORK_H
#define PINN_NETWORK_H

#include <stdbool.h>
#include <stddef.h>

enum {
    NET_MAX_INPUTS = 5,
    NET_MAX_OUTPUTS = 5,
    NET_MAX_CHANNELS = NET_MAX_INPUTS + 2,
    NET_MAX_WIDTH = 256,
    NET_LINE = 64,       /* bytes of a line */
    NET_TILE_BLOCKS = 4, /* lines side by side in a tile: 0.26 MB of activations for four channels and width 50 */
    NET_MAX_TILE_POINTS = NET_TILE_BLOCKS * NET_LINE / (int)sizeof(float)
};

typedef enum net_real { NET_F32, NET_F64 } net_real;

typedef struct net_shape {
    int inputs, width, hidden, outputs; /* hidden >= 1 */
} net_shape;

/* Layers are numbered 0 .. hidden; layer `hidden` is the output layer. */
static inline int net_layer_inputs(const net_shape *s, int layer)
{
    return layer == 0 ? s->inputs : s->width;
}
static inline int net_layer_outputs(const net_shape *s, int layer)
{
    return layer == s->hidden ? s->outputs : s->width;
}

/* Position of a layer's weights in the parameter vector; the bias follows the weights. `layer` hidden + 1: the total. */
static inline size_t net_offset(const net_shape *shape, int layer)
{
    size_t offset = 0;
    for (int l = 0; l < layer; l++)
        offset += ((size_t)net_layer_inputs(shape, l) + 1) * (size_t)net_layer_outputs(shape, l);
    return offset;
}
static inline size_t net_parameters(const net_shape *shape)
{
    return net_offset(shape, shape->hidden + 1);
}

/* One thread's working memory for one tile. */
typedef struct net_tile {
    int blocks;   /* in use, 1 .. NET_TILE_BLOCKS; lanes past the last point repeat it */
    int channels; /* 1 or inputs + 2 */
    void *x;      /* [block][input] lines */
    void *tape;   /* [layer][block][unit][channel] lines: activations of the hidden layers */
    void *output; /* [block][output][channel] lines: the network's values, then their adjoints */
    void *bar;    /* [block][unit][channel] lines: adjoints of the topmost hidden layer */
    void *sums;   /* row sums, one line each */
} net_tile;

/* The kernels of one instruction set and element type. `theta`, `packed` point to elements of that type. */
typedef struct net_kernels {
    const char *isa;
    net_real real;
    size_t real_size;
    int lanes; /* points of a block */

    /* Rearrange the hidden layers' weights into the order in which the products read them. */
    void (*pack)(const net_shape *shape, const void *theta, void *packed);
    size_t (*packed_size)(const net_shape *shape);

    /* x (lines) -> output. The activations stay in the tape for reverse. */
    void (*forward)(const net_shape *shape, const double *kappa, const void *theta, const void *packed, net_tile *tile);

    /* output (adjoints) -> gradient += d/dtheta. Consumes the tile. */
    void (*reverse)(const net_shape *shape, const double *kappa, const void *packed, net_tile *tile, double *gradient);

    /* Points, outputs and adjoints in double, as [row][points]: rows are inputs, or (output, channel) pairs. */
    void (*put_points)(const net_shape *shape, net_tile *tile, const double *points, int count, int stride);
    void (*get_output)(const net_shape *shape, const net_tile *tile, double *values, int count, int stride);
    void (*put_adjoint)(const net_shape *shape, net_tile *tile, const double *adjoint, int count, int stride);

    /* tanh of n whole lines in place: the function alone, for benchmarks. */
    void (*tanh)(void *lines, int n);
} net_kernels;

/* The best kernels for this processor, or those of the instruction set named ("baseline", "avx2", "avx512"); NULL when
 * the processor or the build does not have them. */
const net_kernels *net_kernels_find(net_real real, const char *isa);

/* Memory for tiles of up to `channels` channels; NULL when there is none. */
net_tile *net_tile_create(const net_shape *shape, int channels);
void net_tile_destroy(net_tile *tile);

/* array[first + i] = values[i] and back, for an array of that type. */
void net_store(net_real real, void *array, size_t first, const double *values, size_t count);
void net_load(net_real real, const void *array, size_t first, double *values, size_t count);

#endif
