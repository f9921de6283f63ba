/**
 * @file context.h
 * The context: back end, threads, memory, random seed, and the text of the last error.
 *
 * Everything that other libraries keep in global variables lives here. Two contexts are independent and may be used from
 * two threads at once. One context, and all objects made from it, is used by one thread at a time.
 */
#ifndef SUTURE_CONTEXT_H
#define SUTURE_CONTEXT_H

#include "suture/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sut_context sut_context;

typedef enum sut_backend {
    SUT_BACKEND_AUTO = 0, /**< the CPU: memory of a GPU is for those who ask for it */
    SUT_BACKEND_CPU = 1,
    SUT_BACKEND_CUDA = 2 /**< NVIDIA GPUs; see sut_context_create() */
} sut_backend;

/** Element types. Parameters and gradients may be any of them; states are f64 for f64 parameters and f32 otherwise. */
typedef enum sut_dtype {
    SUT_DTYPE_F32 = 0,
    SUT_DTYPE_F64 = 1,
    SUT_DTYPE_BF16 = 2, /**< bfloat16: the upper half of an f32 */
    SUT_DTYPE_F16 = 3   /**< IEEE binary16 */
} sut_dtype;

/** Instruction sets of the CPU back end. Results are the same bit for bit on each of them. */
typedef enum sut_isa {
    SUT_ISA_AUTO = 0,     /**< the widest one that the processor and the build have */
    SUT_ISA_BASELINE = 1, /**< what the compiler targets by default (x86-64: SSE2) */
    SUT_ISA_AVX2 = 2,
    SUT_ISA_AVX512 = 3
} sut_isa;

/**
 * Memory hooks. All three are given, or none (then malloc, realloc and free serve).
 * `allocate` and `resize` return memory aligned for any C type, or NULL; `release` accepts NULL.
 * They are called by the thread that calls into the library, never by its workers, and never inside a step.
 */
typedef struct sut_allocator {
    void *(*allocate)(void *user, size_t size);
    void *(*resize)(void *user, void *pointer, size_t size);
    void (*release)(void *user, void *pointer);
    void *user; /**< handed back to each call */
} sut_allocator;

typedef enum sut_log_level { SUT_LOG_INFO = 0, SUT_LOG_WARNING = 1 } sut_log_level;

/** Receives one line without a newline. The library itself never prints. */
typedef void (*sut_log_function)(void *user, sut_log_level level, const char *message);

/** One thread per processor that this process may run on. */
#define SUT_THREADS_AUTO (-1)

typedef struct sut_context_config {
    size_t struct_size;
    sut_backend backend; /**< default SUT_BACKEND_AUTO */
    int n_threads;       /**< 1..1024, or SUT_THREADS_AUTO (default). Never changes a bit of a result. CUDA: ignored */
    sut_isa isa;         /**< default SUT_ISA_AUTO */
    uint64_t
        seed; /**< default 0; for methods that draw (PCGrad's order). An optimizer keeps the one of its creation. */
    sut_allocator allocator; /**< default all NULL */
    sut_log_function log;    /**< default NULL: silent */
    void *log_user;
    void *stream; /**< CUDA: a cudaStream_t, default NULL (the default stream); ignored by the CPU back end */
    /**
     * CUDA: where device memory comes from, `allocate` and `release` (`resize` is not called), both or neither; default NULL:
     * cudaMalloc. Called like `allocator`, with the context's device current. `allocate` returns memory aligned to 256 bytes;
     * `release` is called after the stream has been waited for.
     */
    sut_allocator device_allocator;
} sut_context_config;

/** Fill in every default. `struct_size` is sizeof *config as the caller compiled it; use sut_context_config_init(). */
SUT_API void sut_context_config_init_sized(sut_context_config *config, size_t struct_size);
static inline void sut_context_config_init(sut_context_config *config)
{
    sut_context_config_init_sized(config, sizeof *config);
}

/**
 * Create a context.
 *
 * With SUT_BACKEND_CUDA the library libsuture_cuda is opened: the file that the environment variable SUTURE_CUDA_LIBRARY names;
 * without it libsuture_cuda.so.0 beside libsuture, then where the system's loader looks. The context lives on the CUDA device
 * that is current for this thread now, to which `stream` must belong, and makes it current where it needs to. Everything it
 * does is queued on that stream. Arrays of elements that are given to it (parameters, gradients, outputs of the staged calls,
 * u, p, the metric) are memory of that device or managed memory: a pointer to anything else is refused by name. Everything
 * else (losses, weights, reports, pointers to pointers, state files and their extras) is host memory, as always. After an error
 * of the device that CUDA does not recover from (a kernel that failed) every call says that the context cannot be used any
 * more; it can still be destroyed.
 *
 * @param ctx_out  Out. Set to NULL on failure. Freed with sut_context_destroy().
 * @param config   Borrowed for the call; the allocator's and log's `user` must outlive the context. NULL: all defaults.
 * @return SUT_OK; SUT_ERROR_INVALID_ARGUMENT, SUT_ERROR_OUT_OF_RANGE, SUT_ERROR_OUT_OF_MEMORY; SUT_ERROR_BACKEND when the
 *         back end or instruction set asked for is not available (ask sut_capabilities() why).
 *
 * There is no context yet to keep the text of a refusal: it goes to `config->log`, as a warning, if one is given.
 *
 * Threads: worker threads are started at the first call that is large enough to need them. A process that forked goes on
 * in the child with workers of its own. OpenBLAS and OpenMP settings of the process are never changed.
 */
SUT_API sut_status sut_context_create(sut_context **ctx_out, const sut_context_config *config);

/**
 * Free a context; NULL is allowed. Objects made from it (optimizers) must be destroyed before.
 */
SUT_API void sut_context_destroy(sut_context *ctx);

/**
 * CUDA: what comes from now on is queued on another stream, for programs that work on several (`with torch.cuda.stream(s)`, the
 * stream that a graph is captured on). The caller orders the work on the old stream and on the new one, as between any two
 * streams that touch the same memory: parameters and states are used on both.
 *
 * @param stream  A cudaStream_t of the context's device, NULL: the default stream. It is kept, and must live as long as the
 *                context or until the next call of this function. While it is captured it is not looked at; otherwise a
 *                stream of another device is refused. Where it is the stream in use nothing is done, which is cheap.
 * @return SUT_OK, or an error after which the context goes on on the old stream. On the CPU the stream is ignored.
 */
SUT_API sut_status sut_context_set_stream(sut_context *ctx, void *stream);

/**
 * Copy `size` bytes from host memory to memory of the back end, or back, for programs that have no other means to (state of
 * an optimizer, sut_optimizer_state()). Queued behind what is on the context's stream, and waits for it.
 *
 * @return SUT_OK; SUT_ERROR_INVALID_ARGUMENT with nothing written: NULL with a size above 0, or a pointer that is not memory of
 *         the context's device.
 */
SUT_API sut_status sut_context_upload(sut_context *ctx, void *to, const void *host, size_t size);
SUT_API sut_status sut_context_download(sut_context *ctx, void *host, const void *from, size_t size);

/** The back end in use, never SUT_BACKEND_AUTO (which is returned for NULL). */
SUT_API sut_backend sut_context_backend(const sut_context *ctx);

/** The instruction set in use, never SUT_ISA_AUTO (which is returned for NULL). */
SUT_API sut_isa sut_context_isa(const sut_context *ctx);

/** Number of threads in use, the caller's included (CUDA: 1); 0 for NULL. */
SUT_API int sut_context_threads(const sut_context *ctx);

/**
 * The sentence that explains the last failed call on this context or on an object made from it. Lent: valid until the
 * next call on the context. Always valid UTF-8 (bytes of names and paths that are not become '?'), at most 1023 bytes. Empty
 * before the first failure; look at it only after a failure. NULL gives "".
 */
SUT_API const char *sut_context_last_error(const sut_context *ctx);

/** What this build can do on this machine, and why not more. */
typedef struct sut_capability_report {
    size_t struct_size;
    const char *version;   /**< of the library, static */
    int has_cuda;          /**< 1 when a CUDA context can be created here */
    char cuda_reason[256]; /**< why not, when has_cuda is 0 */
    sut_isa best_isa;      /**< widest instruction set usable here */
    char blas[256];        /**< the BLAS library's own description */
    char blas_kernel[64];  /**< the kernel that it chose for this processor */
    int blas_integer_bits; /**< 32 or 64 */
    int processors;        /**< processors that this process may use */
    int max_losses;        /**< SUT_MAX_LOSSES of the library that runs */
    char cuda_found[512];  /**< the library of the CUDA back end, driver and device, when has_cuda is 1 */
} sut_capability_report;

/** Fill in the report; needs no context. Looks for libsuture_cuda and a GPU as sut_context_create() does. `struct_size` must be set (or use sut_capabilities_init()). */
SUT_API sut_status sut_capabilities(sut_capability_report *report);
static inline void sut_capabilities_init(sut_capability_report *report)
{
    report->struct_size = sizeof *report;
}

/** One setting of a method by name: a member of sut_hyper or sut_surgery_config, its default and its range. */
typedef struct sut_parameter_info {
    const char *name; /**< "beta1"; static */
    int is_flag;      /**< 1: an int that is 0 or 1 */
    double default_value, minimum, maximum;
    int minimum_open, maximum_open; /**< 1: the end point itself is not allowed (an infinite one never is) */
    int is_integer;                 /**< 1: an int (flags and choices too); 0: a double */
    int is_array;               /**< 1: a pointer to numbers of the caller; to be set in the struct itself, no range */
    const char *const *choices; /**< names of the values 0, 1, ..., NULL after the last; NULL: not a choice. Static. */
} sut_parameter_info;

/** "f32", "f64", "bf16", "f16"; NULL for an unknown value. Static memory. */
SUT_API const char *sut_dtype_name(sut_dtype dtype);
/** The value of that name; SUT_ERROR_INVALID_ARGUMENT for an unknown one (the output unchanged). Likewise below. */
SUT_API sut_status sut_dtype_from_name(const char *name, sut_dtype *dtype_out);
/** Bytes of one element; 0 for an unknown value. */
SUT_API size_t sut_dtype_size(sut_dtype dtype);
/** "cpu", "cuda", "auto"; NULL for an unknown value. */
SUT_API const char *sut_backend_name(sut_backend backend);
SUT_API sut_status sut_backend_from_name(const char *name, sut_backend *backend_out);
/** "baseline", "avx2", "avx512", "auto"; NULL for an unknown value. */
SUT_API const char *sut_isa_name(sut_isa isa);
SUT_API sut_status sut_isa_from_name(const char *name, sut_isa *isa_out);

#ifdef __cplusplus
}
#endif

#endif /* SUTURE_CONTEXT_H */
