/*
 * The element-wise kernels: one thread is one unit at one point, with all channels. Formulas as in ../kernels.c:
 *     a = tanh z        a_i = s z_i        a_q = s (z_q - 2 a Q),   s = 1 - a^2, Q = sum_i kappa_i z_i^2
 *     z'_q = s a'_q     z'_i = s a'_i - 4 a kappa_i a_i a'_q
 *     z'   = s a' - 2 a sum_i a'_i a_i - 2 a'_q (a a_q + sum_i kappa_i a_i^2)
 */
#include "cuda/device.cuh"
#include "cuda/launch.h"

namespace
{

PINN_GPU float tanh_of(float x)
{
    return tanhf(x);
}
PINN_GPU double tanh_of(double x)
{
    return tanh(x);
}

template <class Real>
__global__ void __launch_bounds__(PINN_BLOCK)
    constants_kernel(const __grid_constant__ pinn_columns columns, int units, int inputs, Real *layer)
{
    const pinn_region &region = columns.region[region_of_block(columns)];
    Real *const at = layer + region.column + point_of_thread(region);
    for (int channel = 0; channel < region.channels; ++channel)
        at[units * columns.total + channel * region.n_padded] = channel == 0 ? 1 : 0;
    for (int input = 0; input < inputs; ++input)
        for (int channel = 1; channel < region.channels; ++channel)
            at[input * columns.total + channel * region.n_padded] = channel == 1 + input ? 1 : 0;
}

template <class Real>
__global__ void __launch_bounds__(PINN_BLOCK)
    points_kernel(const __grid_constant__ pinn_columns columns, int inputs, const double *x, Real *layer)
{
    const pinn_region &region = columns.region[region_of_block(columns)];
    const int64_t k = point_of_thread(region), from = k < region.n_points ? k : region.n_points - 1;
    for (int input = 0; input < inputs; ++input)
        layer[input * columns.total + region.column + k] = (Real)x[region.x_at + input * region.n_points + from];
}

template <class Real>
__global__ void __launch_bounds__(PINN_BLOCK) tanh_kernel(const __grid_constant__ pinn_columns columns,
                                                          const pinn_kappa<Real> kappa, const Real *bias, Real *layer)
{
    const pinn_region &region = columns.region[region_of_block(columns)];
    const int64_t unit = blockIdx.y, step = region.n_padded;
    Real *const z = layer + unit * columns.total + region.column + point_of_thread(region);
    const Real a = tanh_of(z[0] + bias[unit]), s = 1 - a * a;
    z[0] = a;
    if (region.channels == 1)
        return;
    Real Q = 0;
    int channel = 1;
    for (; channel + 1 < region.channels; ++channel) {
        const Real zi = z[channel * step];
        Q += kappa.of[channel - 1] * (zi * zi);
        z[channel * step] = s * zi;
    }
    z[channel * step] = s * (z[channel * step] - 2 * a * Q);
}

template <class Real>
__global__ void __launch_bounds__(PINN_BLOCK)
    reverse_kernel(const __grid_constant__ pinn_columns columns, const pinn_kappa<Real> kappa, const Real *activations,
                   Real *adjoints)
{
    const pinn_region &region = columns.region[region_of_block(columns)];
    const int64_t step = region.n_padded;
    const int64_t at = (int64_t)blockIdx.y * columns.total + region.column + point_of_thread(region);
    const Real *const p = activations + at;
    Real *const q = adjoints + at;
    const Real a = p[0], s = 1 - a * a;
    Real zbar = s * q[0];
    if (region.channels > 1) {
        const int last = region.channels - 1;
        const Real qbar = q[last * step];
        Real first = 0, second = a * p[last * step];
        for (int channel = 1; channel < last; ++channel) {
            const Real ai = p[channel * step], abar = q[channel * step], kai = kappa.of[channel - 1] * ai;
            first += abar * ai;
            second += kai * ai;
            q[channel * step] = s * abar - 4 * (a * kai) * qbar;
        }
        zbar -= 2 * (a * first + qbar * second);
        q[last * step] = s * qbar;
    }
    q[0] = zbar;
}

template <class Real>
__global__ void __launch_bounds__(PINN_BLOCK)
    values_kernel(const __grid_constant__ pinn_columns columns, const Real *bias, const Real *output, double *values,
                  int64_t first, int64_t n)
{
    const pinn_region &region = columns.region[0];
    const int64_t k = point_of_thread(region), o = blockIdx.y;
    if (k < region.n_points)
        values[o * n + first + k] = (double)(output[o * columns.total + region.column + k] + bias[o]);
}

template <class... P>
int launch(void (*kernel)(P...), const pinn_columns &columns, int rows, cudaStream_t stream, P... arguments)
{
    void *list[] = {&arguments...};
    return (int)cudaLaunchKernel(kernel, dim3((unsigned)columns.blocks, (unsigned)rows), dim3(PINN_BLOCK), list, 0,
                                 stream);
}

template <class Real> pinn_kappa<Real> typed(const double *kappa)
{
    pinn_kappa<Real> k;
    for (int i = 0; i < NET_MAX_INPUTS; ++i)
        k.of[i] = (Real)kappa[i];
    return k;
}

} // namespace

int pinn_launch_constants(int f64, const pinn_columns *columns, int units, int inputs, void *layer, cudaStream_t stream)
{
    if (f64)
        return launch(constants_kernel<double>, *columns, 1, stream, *columns, units, inputs,
                      static_cast<double *>(layer));
    return launch(constants_kernel<float>, *columns, 1, stream, *columns, units, inputs, static_cast<float *>(layer));
}

int pinn_launch_points(int f64, const pinn_columns *columns, int inputs, const double *x, void *layer,
                       cudaStream_t stream)
{
    if (f64)
        return launch(points_kernel<double>, *columns, 1, stream, *columns, inputs, x, static_cast<double *>(layer));
    return launch(points_kernel<float>, *columns, 1, stream, *columns, inputs, x, static_cast<float *>(layer));
}

int pinn_launch_tanh(int f64, const pinn_columns *columns, int units, const double *kappa, const void *bias,
                     void *layer, cudaStream_t stream)
{
    if (f64)
        return launch(tanh_kernel<double>, *columns, units, stream, *columns, typed<double>(kappa),
                      static_cast<const double *>(bias), static_cast<double *>(layer));
    return launch(tanh_kernel<float>, *columns, units, stream, *columns, typed<float>(kappa),
                  static_cast<const float *>(bias), static_cast<float *>(layer));
}

int pinn_launch_reverse(int f64, const pinn_columns *columns, int units, const double *kappa, const void *activations,
                        void *adjoints, cudaStream_t stream)
{
    if (f64)
        return launch(reverse_kernel<double>, *columns, units, stream, *columns, typed<double>(kappa),
                      static_cast<const double *>(activations), static_cast<double *>(adjoints));
    return launch(reverse_kernel<float>, *columns, units, stream, *columns, typed<float>(kappa),
                  static_cast<const float *>(activations), static_cast<float *>(adjoints));
}

int pinn_launch_values(int f64, const pinn_columns *columns, int outputs, const void *bias, const void *output,
                       double *values, int64_t first, int64_t n, cudaStream_t stream)
{
    if (f64)
        return launch(values_kernel<double>, *columns, outputs, stream, *columns, static_cast<const double *>(bias),
                      static_cast<const double *>(output), values, first, n);
    return launch(values_kernel<float>, *columns, outputs, stream, *columns, static_cast<const float *>(bias),
                  static_cast<const float *>(output), values, first, n);
}
