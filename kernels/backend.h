/*
 * The passes of backend/backend.h on a GPU. A context has one sut_cuda (a device and a stream); every layout has a plan: its
 * chunks, and room for the tables and sums of a pass, in device memory. Pointers in rows, tensors and outputs are device
 * memory; weights, multipliers and sums are the host's, as in the CPU's table.
 *
 * Functions return SUT_OK, or SUT_ERROR_BACKEND or SUT_ERROR_OUT_OF_MEMORY with a sentence in sut_cuda_error(). A pass whose
 * sums are asked for waits for them; the others are queued and return.
 */
#ifndef SUT_KERNELS_BACKEND_H
#define SUT_KERNELS_BACKEND_H

#include "kernels/host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sut_cuda sut_cuda;
typedef struct sut_cuda_plan sut_cuda_plan;

/*
 * The device that is current for this thread, and the caller's stream (NULL: the default stream). *out is NULL on failure;
 * `why` (why_size bytes) then says what is missing.
 */
sut_status sut_cuda_open(void *stream, sut_cuda **out, char *why, size_t why_size);
void sut_cuda_close(sut_cuda *cuda); /* NULL is allowed; plans are destroyed before */
const char *sut_cuda_error(const sut_cuda *cuda);

/* A plan for up to m rows over a layout, which is only read during this call. */
sut_status sut_cuda_plan_create(sut_cuda *cuda, const sut_layout *layout, int m, sut_cuda_plan **out);
void sut_cuda_plan_destroy(sut_cuda_plan *plan); /* waits for the stream; NULL is allowed */

/* The counterparts of sut_backend_ops, with the plan in place of context and layout. */
typedef struct sut_cuda_ops {
    int version;
    sut_status (*gram)(sut_cuda_plan *plan, const sut_rows *rows, bool strict, double *K);
    sut_status (*row_max)(sut_cuda_plan *plan, const sut_rows *rows, double *max_out);
    sut_status (*find_nonfinite)(sut_cuda_plan *plan, const void *x, int64_t n, sut_dtype dtype, int64_t *index_out);
    sut_status (*step)(sut_cuda_plan *plan, const sut_step_pass *pass);
} sut_cuda_ops;

extern const sut_cuda_ops sut_cuda_table;

#ifdef __cplusplus
}
#endif

#endif // SUT_KERNELS_BACKEND_H
