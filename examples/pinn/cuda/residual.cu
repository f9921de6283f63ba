/*
 * Residuals, losses, and where the reverse sweep begins: one thread is one point. Residuals are doubles, as on the CPU, from
 * the functions that the CPU calls. A problem is one struct here and one line in the table.
 */
#include "cuda/device.cuh"
#include "cuda/launch.h"

#define POINT static __host__ __device__ inline
#include "burgers.h"

#include <string.h>

namespace
{

struct burgers {
    enum { INPUTS = 2, OUTPUTS = 1, COMPONENTS = 1 };
    static __device__ void residual(const double *x, const double *value, double *r)
    {
        burgers_residual(1, x, value, r);
    }
    static __device__ void adjoint(const double *x, const double *value, const double *e, double *to)
    {
        burgers_adjoint(1, x, value, e, to);
    }
};

/* Row by row, channel by channel: value[output * channels + channel]. The squares of one point. */
template <class Problem, class Real>
static __device__ double interior(const pinn_columns &columns, const pinn_region &region, const Real *bias,
                                  const double *x_array, int64_t k, Real *output)
{
    enum { CHANNELS = Problem::INPUTS + 2, ROWS = Problem::OUTPUTS * CHANNELS };
    double x[Problem::INPUTS], value[ROWS], r[Problem::COMPONENTS], adjoint[ROWS], squares = 0;
    for (int i = 0; i < Problem::INPUTS; ++i)
        x[i] = x_array[region.x_at + i * region.n_points + k];
    for (int o = 0; o < Problem::OUTPUTS; ++o)
        for (int c = 0; c < CHANNELS; ++c) {
            const Real z = output[o * columns.total + region.column + c * region.n_padded + k];
            value[o * CHANNELS + c] = (double)(c == 0 ? z + bias[o] : z);
        }
    Problem::residual(x, value, r);
    for (int c = 0; c < Problem::COMPONENTS; ++c) {
        squares += r[c] * r[c];
        r[c] *= 2 * region.scale; /* from here on d loss / d r */
    }
    Problem::adjoint(x, value, r, adjoint);
    for (int o = 0; o < Problem::OUTPUTS; ++o)
        for (int c = 0; c < CHANNELS; ++c)
            output[o * columns.total + region.column + c * region.n_padded + k] = (Real)adjoint[o * CHANNELS + c];
    return squares;
}

/* value - target of each output. */
template <class Real>
static __device__ double data(const pinn_columns &columns, const pinn_region &region, int outputs, const Real *bias,
                              const double *targets, int64_t k, Real *output)
{
    double squares = 0;
    for (int o = 0; o < outputs; ++o) {
        Real *const at = output + o * columns.total + region.column + k;
        const double r = (double)(*at + bias[o]) - targets[region.target_at + o * region.n_points + k];
        squares += r * r;
        *at = (Real)(2 * region.scale * r);
    }
    return squares;
}

/* Points that only fill up the last block have no share. */
template <class Problem, class Real>
__global__ void __launch_bounds__(PINN_BLOCK)
    residual_kernel(const __grid_constant__ pinn_columns columns, const Real *bias, const double *x,
                    const double *targets, Real *output, double *squares)
{
    const pinn_region &region = columns.region[region_of_block(columns)];
    const int64_t k = point_of_thread(region);
    double mine = 0;
    if (k >= region.n_points) {
        for (int o = 0; o < Problem::OUTPUTS; ++o)
            for (int c = 0; c < region.channels; ++c)
                output[o * columns.total + region.column + c * region.n_padded + k] = 0;
    } else if (region.channels > 1) {
        mine = interior<Problem>(columns, region, bias, x, k, output);
    } else {
        mine = data(columns, region, Problem::OUTPUTS, bias, targets, k, output);
    }

    /* A tree of fixed shape. */
    SUT_SHARED(double, sum, PINN_BLOCK);
    const int t = (int)threadIdx.x;
    sum[t] = mine;
    __syncthreads();
    for (int half = PINN_BLOCK / 2; half > 0; half /= 2) {
        if (t < half)
            sum[t] += sum[t + half];
        __syncthreads();
    }
    if (t == 0)
        squares[blockIdx.x] = sum[0];
}

template <class Problem, class Real>
int launch(const pinn_columns *columns, const void *bias, const double *x, const double *targets, void *output,
           double *squares, cudaStream_t stream)
{
    pinn_columns copy = *columns;
    const Real *typed_bias = static_cast<const Real *>(bias);
    Real *typed_output = static_cast<Real *>(output);
    void *arguments[] = {&copy, &typed_bias, &x, &targets, &typed_output, &squares};
    return (int)cudaLaunchKernel(residual_kernel<Problem, Real>, dim3((unsigned)columns->blocks), dim3(PINN_BLOCK),
                                 arguments, 0, stream);
}

typedef int (*launcher)(const pinn_columns *, const void *, const double *, const double *, void *, double *,
                        cudaStream_t);

const struct {
    const char *name;
    int inputs, outputs;
    launcher f32, f64;
} problems[] = {
    {"burgers", burgers::INPUTS, burgers::OUTPUTS, launch<burgers, float>, launch<burgers, double>},
};

} // namespace

int pinn_find_problem(const char *name, const net_shape *shape)
{
    for (int i = 0; i < (int)(sizeof problems / sizeof problems[0]); ++i)
        if (!strcmp(problems[i].name, name))
            return problems[i].inputs == shape->inputs && problems[i].outputs == shape->outputs ? i : -1;
    return -1;
}

int pinn_launch_residual(int f64, int problem, const pinn_columns *columns, const void *bias, const double *x,
                         const double *targets, void *output, double *squares, cudaStream_t stream)
{
    const launcher call = f64 ? problems[problem].f64 : problems[problem].f32;
    return call(columns, bias, x, targets, output, squares, stream);
}
