/*
 * The last sums of a step: products over PINN_BLOCK columns each, in the network's type, become gradients. A block has 32
 * parameters; its eight warps take every eighth part each, in doubles, and are then added in order.
 */
#include "cuda/device.cuh"
#include "cuda/launch.h"

namespace
{

enum { PARAMETERS = 32, WARPS = 8 };

template <class Real>
__global__ void __launch_bounds__(PARAMETERS *WARPS)
    gradients_kernel(const __grid_constant__ pinn_columns columns, const net_shape shape, const Real *partial,
                     const __grid_constant__ pinn_rows rows)
{
    const int lane = (int)threadIdx.x % PARAMETERS, warp = (int)threadIdx.x / PARAMETERS;
    const int64_t p = (int64_t)blockIdx.x * PARAMETERS + lane, parts = columns.total / PINN_BLOCK;
    const int loss = (int)blockIdx.y;

    /* The layer, and the place in its parts: [output][input, then bias]; parameters have the biases behind. */
    int64_t offset = 0, size = 0, inputs = 0, outputs = 0;
    int layer = 0;
    for (; layer <= shape.hidden; ++layer, offset += size) {
        inputs = layer == 0 ? shape.inputs : shape.width;
        outputs = layer == shape.hidden ? shape.outputs : shape.width;
        size = (inputs + 1) * outputs;
        if (p < offset + size)
            break;
    }
    double mine = 0;
    if (layer <= shape.hidden) {
        const int64_t local = p - offset, weights = inputs * outputs;
        const int64_t o = local < weights ? local / inputs : local - weights;
        const int64_t i = local < weights ? local % inputs : inputs;
        const Real *const from = partial + parts * offset + o * (inputs + 1) + i;
        for (int r = 0; r < columns.n_regions; ++r) {
            const pinn_region &region = columns.region[r];
            if (region.loss != loss)
                continue;
            const int64_t first = region.column / PINN_BLOCK, n = region.channels * region.n_padded / PINN_BLOCK;
            for (int64_t part = warp; part < n; part += WARPS)
                mine += (double)from[(first + part) * size];
        }
    }

    SUT_SHARED(double, sums, WARPS *PARAMETERS);
    sums[threadIdx.x] = mine;
    __syncthreads();
    if (warp > 0 || layer > shape.hidden)
        return;
    double sum = sums[lane];
    for (int w = 1; w < WARPS; ++w)
        sum += sums[w * PARAMETERS + lane];
    static_cast<Real *>(rows.of[loss])[p] = (Real)sum;
}

template <class Real>
int launch(const pinn_columns *columns, const net_shape *shape, const void *partial, const pinn_rows *rows,
           int n_losses, cudaStream_t stream)
{
    pinn_columns columns_copy = *columns;
    net_shape shape_copy = *shape;
    pinn_rows rows_copy = *rows;
    const Real *from = static_cast<const Real *>(partial);
    void *arguments[] = {&columns_copy, &shape_copy, &from, &rows_copy};
    const size_t blocks = (net_parameters(shape) + PARAMETERS - 1) / PARAMETERS;
    return (int)cudaLaunchKernel(gradients_kernel<Real>, dim3((unsigned)blocks, (unsigned)n_losses),
                                 dim3(PARAMETERS * WARPS), arguments, 0, stream);
}

} // namespace

int pinn_launch_gradients(int f64, const pinn_columns *columns, const net_shape *shape, const void *partial,
                          const pinn_rows *rows, int n_losses, cudaStream_t stream)
{
    return f64 ? launch<double>(columns, shape, partial, rows, n_losses, stream)
               : launch<float>(columns, shape, partial, rows, n_losses, stream);
}
