/* The network's shape and memory, and the choice of kernels at run time. */
#include "network.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern const net_kernels f32_kernels_baseline, f64_kernels_baseline;
#ifdef PINN_X86
extern const net_kernels f32_kernels_avx2, f64_kernels_avx2, f32_kernels_avx512, f64_kernels_avx512;
#endif

const net_kernels *net_kernels_find(net_real real, const char *isa)
{
#ifdef PINN_X86
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    if (avx512 && (!isa || !strcmp(isa, "avx512")))
        return real == NET_F32 ? &f32_kernels_avx512 : &f64_kernels_avx512;
    if (avx2 && (!isa || !strcmp(isa, "avx2")))
        return real == NET_F32 ? &f32_kernels_avx2 : &f64_kernels_avx2;
#endif
    if (!isa || !strcmp(isa, "baseline"))
        return real == NET_F32 ? &f32_kernels_baseline : &f64_kernels_baseline;
    return NULL;
}

net_tile *net_tile_create(const net_shape *shape, int channels)
{
    const size_t unit = (size_t)channels * NET_LINE, tile = NET_TILE_BLOCKS * unit;
    const size_t width = (size_t)shape->width;
    const size_t x = NET_TILE_BLOCKS * (size_t)shape->inputs * NET_LINE;
    const size_t output = (size_t)shape->outputs * tile, layer = width * tile, sums = width * NET_LINE;
    const size_t header = (sizeof(net_tile) + NET_LINE - 1) / NET_LINE * NET_LINE;
    char *memory = aligned_alloc(NET_LINE, header + x + output + ((size_t)shape->hidden + 1) * layer + sums);
    if (!memory)
        return NULL;
    net_tile *t = (net_tile *)memory;
    t->blocks = 0;
    t->channels = channels;
    memory += header;
    t->x = memory;
    t->output = memory += x;
    t->bar = memory += output;
    t->sums = memory += layer;
    t->tape = memory + sums;
    return t;
}

void net_tile_destroy(net_tile *tile)
{
    free(tile);
}

void net_store(net_real real, void *array, size_t first, const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (real == NET_F32)
            ((float *)array)[first + i] = (float)values[i];
        else
            ((double *)array)[first + i] = values[i];
}

void net_load(net_real real, const void *array, size_t first, double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = real == NET_F32 ? (double)((const float *)array)[first + i] : ((const double *)array)[first + i];
}
