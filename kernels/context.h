/*
 * The host's side of the CUDA back end: what a context keeps for its device, and how errors of the runtime become a status and
 * a sentence.
 *
 * An error of the runtime is returned by the call that finds it. Some errors (a kernel that failed, a device that is lost)
 * leave the device unusable for this process: the context then remembers the sentence and every later call is refused with it.
 */
#ifndef SUT_KERNELS_CONTEXT_H
#define SUT_KERNELS_CONTEXT_H

#include "kernels/host.h"

#include <cuda_runtime.h>

struct sut_cuda_plan;   /* plan.h */
struct sut_cuda_blas;   /* blas.h */
struct sut_cuda_solver; /* solver.h */

/* Addresses that were found to be this device's, by a hash of the address: a driver is not asked twice about a gradient. */
enum { SUT_CUDA_KNOWN = 4096 };

struct sut_cuda {
    const sut_backend_host *host;
    sut_allocator allocator; /* of device memory; NULLs: cudaMalloc */
    int device;
    cudaStream_t stream;
    bool opened;
    bool lost;
    char lost_text[400];
    sut_cuda_plan *plain;    /* for arrays that have no plan of their own */
    sut_cuda_blas *blas;     /* NULL until it is asked for */
    sut_cuda_solver *solver; /* likewise */
    char fault[96];          /* what pointer_fault() says last */
    const void *known[SUT_CUDA_KNOWN];
};

static inline sut_cuda *cuda_of(sut_context *ctx)
{
    return static_cast<sut_cuda *>(ctx->device);
}

#define SUT_CUDA_FAIL(ctx, status, ...) return cuda_of(ctx)->host->fail((ctx), (status), __VA_ARGS__)

/* SUT_OK, or an error of the runtime with a sentence in the context: what was done, what the runtime calls it. */
sut_status sut_cuda_report(sut_context *ctx, int error, const char *what);

#define SUT_CUDA_TRY(ctx, call, what) SUT_TRY(sut_cuda_report((ctx), (int)(call), (what)))

/* Device memory through the context's hooks, not zeroed; NULL where there is none (the text is in the context then). */
sut_status sut_cuda_allocate(sut_context *ctx, size_t size, void **out);
void sut_cuda_release(sut_context *ctx, void *memory);

/*
 * Around the work of a call: the context's device is current for this thread, and afterwards the one that was before. `status`
 * says whether the context can be used.
 */
class sut_cuda_scope
{
  public:
    explicit sut_cuda_scope(sut_context *ctx);
    ~sut_cuda_scope();
    sut_cuda_scope(const sut_cuda_scope &) = delete;
    sut_cuda_scope &operator=(const sut_cuda_scope &) = delete;

    sut_status status;

  private:
    int before_, own_;
};

#define SUT_CUDA_ENTER(ctx)               \
    const sut_cuda_scope cuda_scope(ctx); \
    SUT_TRY(cuda_scope.status)

/* ---- entries of the table, by file ---- */

/* context.cpp */
sut_status sut_cuda_open(sut_context *ctx, const sut_backend_host *host, const sut_context_config *config);
void sut_cuda_close(sut_context *ctx);
sut_status sut_cuda_set_stream(sut_context *ctx, void *stream);
const char *sut_cuda_pointer_fault(sut_context *ctx, const void *p);
sut_status sut_cuda_synchronize(sut_context *ctx);
bool sut_cuda_probe(char *text, size_t size);

/* memory.cu */
sut_status sut_cuda_allocate_zeroed(sut_context *ctx, size_t size, void **out);
void sut_cuda_release_memory(sut_context *ctx, void *memory);
sut_status sut_cuda_upload(sut_context *ctx, void *to, const void *host, size_t size);
sut_status sut_cuda_download(sut_context *ctx, void *host, const void *from, size_t size);
sut_status sut_cuda_copy(sut_context *ctx, void *to, const void *from, size_t size);
sut_status sut_cuda_clear(sut_context *ctx, void *to, size_t size);
sut_status sut_cuda_fill(sut_context *ctx, void *to, int64_t n, sut_dtype dtype, double value);
sut_status sut_cuda_convert(sut_context *ctx, void *to, sut_dtype to_dtype, const void *from, sut_dtype from_dtype,
                            int64_t n);

/* plan.cpp */
sut_status sut_cuda_plan_create(sut_context *ctx, const sut_layout *layout, int m, void **plan_out, size_t *bytes_out);
void sut_cuda_plan_destroy(sut_context *ctx, void *plan);
sut_status sut_cuda_reserve(sut_context *ctx, int m);

/* passes.cpp */
sut_status sut_cuda_gram(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, bool strict, double *K);
sut_status sut_cuda_row_max(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, double *max_out);
sut_status sut_cuda_find_nonfinite(sut_context *ctx, const void *x, int64_t n, sut_dtype dtype, int64_t *index_out);
sut_status sut_cuda_step(sut_context *ctx, const sut_step_pass *pass);

/* cone.cpp */
sut_status sut_cuda_scan_metric(sut_context *ctx, const void *delta, const void *u, int64_t n, sut_dtype dtype,
                                sut_metric_scan *scan);
sut_status sut_cuda_combine(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const double *weights,
                            void *out);
sut_status sut_cuda_cone_sums(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                              double u_scale, const void *delta, double delta_scale, sut_cone_sums *sums);
sut_status sut_cuda_cone_apply(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                               const void *delta, const double *lambda, void *p);
sut_status sut_cuda_cone_measure(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                                 double u_scale, const void *delta, double delta_scale, const void *p,
                                 const double *lambda, sut_cone_measure *measure);
sut_status sut_cuda_cone_factor(sut_context *ctx, const sut_layout *layout, const sut_rows *rows, const void *u,
                                double u_scale, const void *delta, double delta_scale, const double *lambda, double *R);

#endif // SUT_KERNELS_CONTEXT_H
