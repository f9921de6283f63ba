/*
 * The context: allocation through the caller's hooks, choice of back end, and what this build can do.
 */
#include "core/internal.h"

#include "backend/cuda.h"
#include "core/pool.h"
#include "core/utf8.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

/* OpenBLAS's own description of itself; declared here because its header is not installed everywhere. */
extern char *openblas_get_config(void);
extern char *openblas_get_corename(void);

#define SUT_ALIGNMENT 64

/* Large states in huge pages: each of the streams that a step reads and writes would need another translation for every 4 KB.
 * (NumPy does the same from 4 MB on.) */
static void ask_for_huge_pages(void *memory, size_t size)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)memory + page - 1) & ~(page - 1),
                    end = ((uintptr_t)memory + size) & ~(page - 1);
    if (size >= (size_t)4 << 20)
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE); /* a wish */
#else
    (void)memory, (void)size;
#endif
}

static void *default_allocate(void *user, size_t size)
{
    (void)user;
    void *const memory = malloc(size);
    if (memory)
        ask_for_huge_pages(memory, size);
    return memory;
}

static void *default_resize(void *user, void *pointer, size_t size)
{
    (void)user;
    return realloc(pointer, size);
}

static void default_release(void *user, void *pointer)
{
    (void)user;
    free(pointer);
}

/* The hook's pointer is kept in the word before the aligned block. */
void *sut_alloc(sut_context *ctx, size_t count, size_t size)
{
    size_t bytes, total;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)SUT_ALIGNMENT + sizeof(void *), &total))
        return NULL;
    void *const raw = ctx->allocator.allocate(ctx->allocator.user, total);
    if (!raw)
        return NULL;
    const uintptr_t aligned = ((uintptr_t)raw + sizeof(void *) + SUT_ALIGNMENT - 1) & ~(uintptr_t)(SUT_ALIGNMENT - 1);
    memcpy((void *)(aligned - sizeof(void *)), &raw, sizeof raw);
    memset((void *)aligned, 0, bytes);
    return (void *)aligned;
}

void sut_free(sut_context *ctx, void *pointer)
{
    if (!pointer)
        return;
    void *raw;
    memcpy(&raw, (char *)pointer - sizeof(void *), sizeof raw);
    ctx->allocator.release(ctx->allocator.user, raw);
}

void sut_buffer_free(sut_context *ctx, void *data)
{
    if (ctx)
        sut_free(ctx, data);
}

static int processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

void sut_context_config_init_sized(sut_context_config *config, size_t struct_size)
{
    sut_context_config defaults;
    memset(&defaults, 0, sizeof defaults);
    defaults.struct_size = struct_size;
    defaults.backend = SUT_BACKEND_AUTO;
    defaults.n_threads = SUT_THREADS_AUTO;
    defaults.isa = SUT_ISA_AUTO;
    if (!config)
        return;
    memset(config, 0, struct_size);
    memcpy(config, &defaults, struct_size < sizeof defaults ? struct_size : sizeof defaults);
}

/* Before there is a context to keep it, the text of a refusal goes to the log callback. */
static sut_status refuse(const sut_context_config *config, sut_status status, const char *text)
{
    if (config->log)
        config->log(config->log_user, SUT_LOG_WARNING, text);
    return status;
}

/*
 * OpenBLAS before 0.3.22 does not know some processors of its own architecture and falls back to a kernel that is
 * several times slower. Nothing here can change that, but it can be said.
 */
static void warn_about_blas(sut_context *ctx)
{
    const char *const kernel = openblas_get_corename();
    /* Its kernels without wide vectors. */
    static const char *const narrow[] = {"Prescott", "Core2",     "Penryn", "Dunnington", "Nehalem", "Athlon",
                                         "Opteron",  "Barcelona", "Bobcat", "Atom",       "generic", "Unknown"};
    bool slow = false;
    for (size_t k = 0; k < sizeof narrow / sizeof *narrow; ++k)
        slow = slow || !strncasecmp(kernel, narrow[k], strlen(narrow[k]));
    if (slow && sut_backend_cpu_best_isa() >= SUT_ISA_AVX2)
        sut_log(ctx, SUT_LOG_WARNING,
                "OpenBLAS chose its kernel \"%s\" although this processor has AVX2: matrix products run several times "
                "slower. Set the environment variable OPENBLAS_CORETYPE (Haswell, Zen or SkylakeX) or use a newer "
                "OpenBLAS.",
                kernel);
}

/* What a failure says is in ctx->error. One thread: nothing n-dimensional is done on the host. */
static sut_status open_cuda(sut_context *ctx, const sut_context_config *config)
{
    static const sut_backend_host host = {sut_fail, sut_alloc, sut_free};
    const sut_cuda_library *library;
    char why[sizeof ctx->error];
    const sut_status status = sut_backend_cuda_load(&library, &ctx->library, why, sizeof why);
    if (status != SUT_OK)
        SUT_FAIL(ctx, status, "context: no CUDA back end: %s", why);
    ctx->n_threads = 1;
    ctx->ops = library->ops;
    return ctx->ops->open(ctx, &host, config);
}

sut_status sut_context_create(sut_context **ctx_out, const sut_context_config *config)
{
    if (!ctx_out)
        return SUT_ERROR_INVALID_ARGUMENT;
    *ctx_out = NULL;
    sut_context_config complete;
    sut_context_config_init(&complete);
    if (config)
        SUT_TRY(sut_read_struct(NULL, "sut_context_config", &complete, sizeof complete, config));

    if ((unsigned)complete.backend > SUT_BACKEND_CUDA)
        return refuse(&complete, SUT_ERROR_INVALID_ARGUMENT, "context: backend is not a value of sut_backend");
    if ((unsigned)complete.isa > SUT_ISA_AVX512)
        return refuse(&complete, SUT_ERROR_INVALID_ARGUMENT, "context: isa is not a value of sut_isa");
    if (complete.n_threads != SUT_THREADS_AUTO && (complete.n_threads < 1 || complete.n_threads > 1024))
        return refuse(&complete, SUT_ERROR_OUT_OF_RANGE,
                      "context: n_threads must lie in [1, 1024] or be SUT_THREADS_AUTO");
    const int hooks = !!complete.allocator.allocate + !!complete.allocator.resize + !!complete.allocator.release;
    if (hooks != 0 && hooks != 3)
        return refuse(&complete, SUT_ERROR_INVALID_ARGUMENT,
                      "context: allocator must give all of allocate, resize and release, or none");
    if (!complete.device_allocator.allocate != !complete.device_allocator.release)
        return refuse(&complete, SUT_ERROR_INVALID_ARGUMENT,
                      "context: device_allocator must give both of allocate and release, or neither");
    if (hooks == 0)
        complete.allocator = (sut_allocator){default_allocate, default_resize, default_release, NULL};

    const sut_isa isa = complete.isa == SUT_ISA_AUTO ? sut_backend_cpu_best_isa() : complete.isa;
    const struct sut_backend_ops *const ops = sut_backend_cpu(isa);
    if (!ops)
        return refuse(&complete, SUT_ERROR_BACKEND,
                      "context: the instruction set asked for is missing from this build or this processor");

    sut_context start;
    memset(&start, 0, sizeof start);
    start.allocator = complete.allocator;
    sut_context *const ctx = sut_alloc(&start, 1, sizeof *ctx);
    if (!ctx)
        return SUT_ERROR_OUT_OF_MEMORY;
    *ctx = start;
    ctx->backend = complete.backend == SUT_BACKEND_CUDA ? SUT_BACKEND_CUDA : SUT_BACKEND_CPU;
    ctx->isa = isa;
    ctx->n_threads = complete.n_threads == SUT_THREADS_AUTO ? processors() : complete.n_threads;
    if (ctx->n_threads > 1024)
        ctx->n_threads = 1024;
    ctx->seed = complete.seed;
    ctx->log = complete.log;
    ctx->log_user = complete.log_user;
    ctx->ops = ops;
    if (ctx->backend == SUT_BACKEND_CUDA) {
        const sut_status status = open_cuda(ctx, &complete);
        if (status != SUT_OK) {
            (void)refuse(&complete, status, ctx->error);
            sut_context_destroy(ctx);
            return status;
        }
        *ctx_out = ctx;
        return SUT_OK;
    }
    ctx->pool = sut_pool_create(ctx, ctx->n_threads);
    if (!ctx->pool) {
        sut_context_destroy(ctx);
        return SUT_ERROR_OUT_OF_MEMORY;
    }
    warn_about_blas(ctx);
    *ctx_out = ctx;
    return SUT_OK;
}

void sut_context_destroy(sut_context *ctx)
{
    if (!ctx)
        return;
    if (ctx->ops && ctx->ops->close)
        ctx->ops->close(ctx);
    sut_backend_cuda_unload(ctx->library);
    sut_pool_destroy(ctx, ctx->pool);
    sut_free(ctx, ctx->scratch);
    sut_free(ctx, ctx->loaded_text);
    const sut_context last = *ctx; /* the hooks are needed to release the context itself */
    sut_context bare = last;
    sut_free(&bare, ctx);
}

sut_status sut_context_set_stream(sut_context *ctx, void *stream)
{
    if (!ctx)
        return SUT_ERROR_INVALID_ARGUMENT;
    return ctx->ops->set_stream ? ctx->ops->set_stream(ctx, stream) : SUT_OK;
}

/* Both ends of a copy between the host and the back end's memory. */
static sut_status check_copy(sut_context *ctx, const char *call, const void *host, const void *own, size_t size)
{
    if (!ctx)
        return SUT_ERROR_INVALID_ARGUMENT;
    if (size > 0 && (!host || !own))
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "%s: a pointer is NULL", call);
    const char *const fault = size > 0 ? sut_pointer_fault(ctx, own) : NULL;
    if (fault)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT, "%s: the pointer to memory of the back end %s", call, fault);
    return SUT_OK;
}

sut_status sut_context_upload(sut_context *ctx, void *to, const void *host, size_t size)
{
    SUT_TRY(check_copy(ctx, "sut_context_upload", host, to, size));
    return ctx->ops->upload(ctx, to, host, size);
}

sut_status sut_context_download(sut_context *ctx, void *host, const void *from, size_t size)
{
    SUT_TRY(check_copy(ctx, "sut_context_download", host, from, size));
    return ctx->ops->download(ctx, host, from, size);
}

sut_backend sut_context_backend(const sut_context *ctx)
{
    return ctx ? ctx->backend : SUT_BACKEND_AUTO;
}

sut_isa sut_context_isa(const sut_context *ctx)
{
    return ctx ? ctx->isa : SUT_ISA_AUTO;
}

int sut_context_threads(const sut_context *ctx)
{
    return ctx ? ctx->n_threads : 0;
}

const char *sut_context_last_error(const sut_context *ctx)
{
    return ctx ? ctx->error : "";
}

static void look_for_cuda(sut_capability_report *report)
{
    const sut_cuda_library *library;
    void *handle;
    char text[1024] = "";
    report->has_cuda =
        sut_backend_cuda_load(&library, &handle, text, sizeof text) == SUT_OK && library->probe(text, sizeof text);
    if (report->has_cuda)
        (void)snprintf(report->cuda_found, sizeof report->cuda_found, "%.300s, %.200s", sut_backend_cuda_file(handle),
                       text);
    else
        (void)snprintf(report->cuda_reason, sizeof report->cuda_reason, "%s", text);
    sut_backend_cuda_unload(handle);
    sut_utf8_repair(report->cuda_reason);
    sut_utf8_repair(report->cuda_found);
}

sut_status sut_capabilities(sut_capability_report *report)
{
    if (!report)
        return SUT_ERROR_INVALID_ARGUMENT;
    const size_t size = report->struct_size;
    if (size < sizeof size || size > sizeof *report)
        return SUT_ERROR_INVALID_ARGUMENT;
    sut_capability_report full;
    memset(&full, 0, sizeof full);
    full.struct_size = size;
    full.version = sut_version();
    look_for_cuda(&full);
    full.best_isa = sut_backend_cpu_best_isa();
    (void)snprintf(full.blas, sizeof full.blas, "%s", openblas_get_config());
    (void)snprintf(full.blas_kernel, sizeof full.blas_kernel, "%s", openblas_get_corename());
    full.blas_integer_bits = strstr(full.blas, "USE64BITINT") ? 64 : 32;
    full.processors = processors();
    full.max_losses = SUT_MAX_LOSSES;
    memcpy(report, &full, size);
    return SUT_OK;
}

static const char *const dtype_names[] = {"f32", "f64", "bf16", "f16"};
static const char *const backend_names[] = {"auto", "cpu", "cuda"};
static const char *const isa_names[] = {"auto", "baseline", "avx2", "avx512"};
#define COUNT(names) ((int)(sizeof(names) / sizeof *(names)))

/* Index of `name` in a table, or -1. */
static int find_name(const char *name, const char *const *names, int count)
{
    for (int k = 0; name && k < count; ++k)
        if (!strcmp(name, names[k]))
            return k;
    return -1;
}

const char *sut_dtype_name(sut_dtype dtype)
{
    return (int)dtype >= 0 && (int)dtype < COUNT(dtype_names) ? dtype_names[dtype] : NULL;
}

sut_status sut_dtype_from_name(const char *name, sut_dtype *dtype_out)
{
    const int k = find_name(name, dtype_names, COUNT(dtype_names));
    if (k < 0 || !dtype_out)
        return SUT_ERROR_INVALID_ARGUMENT;
    *dtype_out = (sut_dtype)k;
    return SUT_OK;
}

size_t sut_dtype_size(sut_dtype dtype)
{
    static const size_t sizes[] = {4, 8, 2, 2};
    return sut_dtype_name(dtype) ? sizes[dtype] : 0;
}

const char *sut_backend_name(sut_backend backend)
{
    return (int)backend >= 0 && (int)backend < COUNT(backend_names) ? backend_names[backend] : NULL;
}

sut_status sut_backend_from_name(const char *name, sut_backend *backend_out)
{
    const int k = find_name(name, backend_names, COUNT(backend_names));
    if (k < 0 || !backend_out)
        return SUT_ERROR_INVALID_ARGUMENT;
    *backend_out = (sut_backend)k;
    return SUT_OK;
}

const char *sut_isa_name(sut_isa isa)
{
    return (int)isa >= 0 && (int)isa < COUNT(isa_names) ? isa_names[isa] : NULL;
}

sut_status sut_isa_from_name(const char *name, sut_isa *isa_out)
{
    const int k = find_name(name, isa_names, COUNT(isa_names));
    if (k < 0 || !isa_out)
        return SUT_ERROR_INVALID_ARGUMENT;
    *isa_out = (sut_isa)k;
    return SUT_OK;
}
