/*
 * Entries of the CPU's table that are the same for every instruction set.
 */
#ifndef SUT_BACKEND_CPU_H
#define SUT_BACKEND_CPU_H

#include "backend/backend.h"

sut_status sut_cpu_reserve(sut_context *ctx, int m);
sut_status sut_cpu_synchronize(sut_context *ctx);
sut_status sut_cpu_allocate(sut_context *ctx, size_t size, void **out);
void sut_cpu_release(sut_context *ctx, void *memory);
sut_status sut_cpu_copy(sut_context *ctx, void *to, const void *from, size_t size);
sut_status sut_cpu_clear(sut_context *ctx, void *to, size_t size);
sut_status sut_cpu_fill(sut_context *ctx, void *to, int64_t n, sut_dtype dtype, double value);
sut_status sut_cpu_convert(sut_context *ctx, void *to, sut_dtype to_dtype, const void *from, sut_dtype from_dtype,
                           int64_t n);
sut_status sut_cpu_scan_metric(sut_context *ctx, const void *delta, const void *u, int64_t n, sut_dtype dtype,
                               sut_metric_scan *scan);

#endif /* SUT_BACKEND_CPU_H */
