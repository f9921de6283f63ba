/*
 * Plans: a layout's chunks in device memory, and room for the tables and sums of a pass. Tables are written to pinned memory,
 * copied to the device in one piece, and read by the kernels from there. Everything is allocated when a plan is made.
 *
 * The plain plan serves arrays outside an optimizer, one tensor of any length: its kernels count chunks instead of listing
 * them, so that nothing in it depends on the length.
 */
#ifndef SUT_KERNELS_PLAN_H
#define SUT_KERNELS_PLAN_H

#include "kernels/context.h"
#include "kernels/tables.h"

/* Chunks that one launch walks. */
struct sut_cuda_chunks {
    int64_t first, count;
};

struct sut_cuda_plan {
    int m;
    bool listed; /* false: the plain plan */
    int64_t n_tensors;
    sut_cuda_chunks f32, f64, all; /* listed: those computed in f32, in f64, and both together */
    char *host, *device;           /* pinned, and its copy: tensors, rows, control, and as many settings as there are */
    size_t rows_at, control_at, settings_at, table_size;
    int64_t n_settings;
    char *work; /* device: chunks, partial sums, sums, results of searches, ticket */
    size_t partial_at, sums_at, found_at, ticket_at, work_size;
    double *host_sums;    /* pinned */
    cudaEvent_t uploaded; /* the device has read `host` */
};

/* The plan of a layout for m rows, the context's plain one where it has none. */
sut_status sut_cuda_find_plan(sut_context *ctx, const sut_layout *layout, int m, sut_cuda_plan **out);

/* Chunks of a layout: its f32 ones (0), f64 ones (1), or all (2). */
sut_cuda_chunks sut_cuda_chunks_of(const sut_cuda_plan *plan, const sut_layout *layout, int which);

/* Tables that the device has read may be filled in anew: tensors with their types, rows and scales. */
sut_status sut_cuda_begin_tables(sut_context *ctx, sut_cuda_plan *plan, const sut_layout *layout, const sut_rows *rows);
sut_status sut_cuda_upload_tables(sut_context *ctx, sut_cuda_plan *plan);

static inline sut_cuda_tensor *sut_cuda_tensors(sut_cuda_plan *plan)
{
    return reinterpret_cast<sut_cuda_tensor *>(plan->host);
}
static inline sut_cuda_setting *sut_cuda_settings(sut_cuda_plan *plan)
{
    return reinterpret_cast<sut_cuda_setting *>(plan->host + plan->settings_at);
}
static inline sut_cuda_control *sut_cuda_control_of(sut_cuda_plan *plan)
{
    return reinterpret_cast<sut_cuda_control *>(plan->host + plan->control_at);
}

/* Arguments of a launch over some chunks. */
sut_cuda_args sut_cuda_base_args(const sut_cuda_plan *plan, const sut_layout *layout, const sut_rows *rows,
                                 const sut_cuda_chunks *chunks, int n_sums);

/* Sums, the results of a search, or what lies at some place of `work`, in the host's memory: waits for them. */
sut_status sut_cuda_fetch(sut_context *ctx, sut_cuda_plan *plan, size_t at, size_t size, void *to);
sut_status sut_cuda_fetch_sums(sut_context *ctx, sut_cuda_plan *plan, int n_sums, double *sums);
sut_status sut_cuda_fetch_found(sut_context *ctx, sut_cuda_plan *plan, int count, unsigned long long *found);

/* The triangle of m + 1 columns in place of sums: arguments of its launch, and R, (m + 1)^2, from what that left. */
void sut_cuda_begin_triangle(sut_cuda_args *args);
sut_status sut_cuda_take_triangle(sut_context *ctx, sut_cuda_plan *plan, int m, double *R);

#endif // SUT_KERNELS_PLAN_H
