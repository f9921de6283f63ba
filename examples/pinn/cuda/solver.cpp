/*
 * The host's side (solver.h): what a step and an evaluation queue. Per layer a matrix product over all columns and one
 * element-wise kernel; on the way back one more product, of PINN_BLOCK columns each, for the weights.
 */
#include "cuda/solver.h"
#include "cuda/blas.h"
#include "cuda/launch.h"

#include <new>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <vector>

/* Points that an evaluation takes at a time. */
static const int64_t grid_slab = 32768;

/* Columns of a step or of an evaluation, and their arrays in device memory. */
struct sweep {
    pinn_columns columns = {};
    std::vector<void *> layers; /* the input of each layer; an evaluation has two that take turns */
    void *output = NULL;
};

struct pinn_cuda {
    pinn_cuda_config config = {};
    bool f64 = false;
    size_t real = 0; /* bytes of an element */
    int problem = -1, device = 0;
    char name[96] = "", text[400] = "";
    cudaStream_t stream = NULL;
    cudaEvent_t ready = NULL; /* the squares are on the host */
    void *workspace = NULL;
    pinn_blas *blas = NULL;

    /* A step. */
    pinn_cuda_term terms[PINN_CUDA_TERMS] = {};
    int n_terms = 0, n_losses = 0;
    sweep step;
    void *adjoints[2] = {NULL, NULL}, *partial = NULL;
    size_t n_x = 0, n_targets = 0;      /* doubles of a slot */
    double *host[PINN_CUDA_SLOTS] = {}; /* points, then targets; pinned */
    double *x = NULL, *targets = NULL, *squares = NULL, *host_squares = NULL;

    /* An evaluation. */
    int64_t n_grid = 0;
    sweep grid;
    double *grid_x = NULL, *values = NULL;
    void *theta = NULL;
};

/* ---- errors and memory ---- */

__attribute__((format(printf, 2, 3))) static bool fail(pinn_cuda *n, const char *format, ...)
{
    if (n->text[0])
        return false; /* the first one is the cause */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(n->text, sizeof n->text, format, arguments);
    va_end(arguments);
    return false;
}

static bool check(pinn_cuda *n, int error, const char *what)
{
    const cudaError_t e = (cudaError_t)error;
    if (e == cudaSuccess)
        return !n->text[0];
    (void)cudaGetLastError();
    return e == cudaErrorMemoryAllocation
               ? fail(n, "%s has no memory for %s; --points and --dtype decide how much it is", n->name, what)
               : fail(n, "CUDA: %s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

static bool check_blas(pinn_cuda *n, int status)
{
    return status == 0 || fail(n, "cuBLAS: a matrix product failed with status %d", status);
}

#define TRY(condition)    \
    do {                  \
        if (!(condition)) \
            return false; \
    } while (0)

template <class T> static bool allocate(pinn_cuda *n, T **out, size_t size, const char *what)
{
    void *memory = NULL;
    const bool ok = check(n, cudaMalloc(&memory, size ? size : 1), what);
    *out = static_cast<T *>(memory);
    return ok;
}

template <class T> static void release(T **memory)
{
    if (*memory)
        (void)cudaFree(*memory);
    *memory = NULL;
}

static void *offset(const pinn_cuda *n, void *array, size_t elements)
{
    return static_cast<char *>(array) + elements * n->real;
}
static const void *offset(const pinn_cuda *n, const void *array, size_t elements)
{
    return static_cast<const char *>(array) + elements * n->real;
}

static int layer_inputs(const pinn_cuda *n, int layer)
{
    return net_layer_inputs(&n->config.shape, layer);
}
static int layer_outputs(const pinn_cuda *n, int layer)
{
    return net_layer_outputs(&n->config.shape, layer);
}

/* A layer's part of theta: its weights, and the bias behind. */
static const void *weights_of(const pinn_cuda *n, const void *theta, int layer)
{
    return offset(n, theta, net_offset(&n->config.shape, layer));
}
static const void *bias_of(const pinn_cuda *n, const void *theta, int layer)
{
    return offset(n, weights_of(n, theta, layer), (size_t)layer_inputs(n, layer) * (size_t)layer_outputs(n, layer));
}

/* ---- sweeps ---- */

static void free_sweep(sweep *s)
{
    release(&s->output);
    for (size_t l = s->layers.size(); l-- > 0;)
        if (l < 2 || s->layers[l] != s->layers[l - 2])
            release(&s->layers[l]);
    s->layers.clear();
}

/* `keep`: every layer's input, for the way back. */
static bool make_sweep(pinn_cuda *n, sweep *s, bool keep)
{
    const net_shape &shape = n->config.shape;
    const size_t row = (size_t)s->columns.total * n->real;
    s->layers.assign((size_t)shape.hidden + 1, NULL);
    for (int l = 0; l <= shape.hidden; ++l) {
        if (!keep && l >= 3) {
            s->layers[(size_t)l] = s->layers[(size_t)l - 2];
            continue;
        }
        TRY(allocate(n, &s->layers[(size_t)l], ((size_t)layer_inputs(n, l) + 1) * row, "the network's layers"));
        TRY(check(n,
                  pinn_launch_constants(n->f64, &s->columns, layer_inputs(n, l), l == 0 ? shape.inputs : 0,
                                        s->layers[(size_t)l], n->stream),
                  "the layers' constants"));
    }
    return allocate(n, &s->output, (size_t)shape.outputs * row, "the network's output");
}

/* Adds a set of points behind those that are there. */
static pinn_region *add_region(pinn_columns *c, int64_t n_points, int channels)
{
    pinn_region *const r = &c->region[c->n_regions++];
    *r = {};
    r->column = c->total;
    r->block = c->blocks;
    r->n_points = n_points;
    r->n_padded = (n_points + PINN_BLOCK - 1) / PINN_BLOCK * PINN_BLOCK;
    r->channels = channels;
    c->total += channels * r->n_padded;
    c->blocks += r->n_padded / PINN_BLOCK;
    return r;
}

/* The first layer's values are there -> output, without its bias. */
static bool forward(pinn_cuda *n, const sweep *s, const void *theta)
{
    const int hidden = n->config.shape.hidden;
    const int64_t total = s->columns.total;
    for (int l = 0; l <= hidden; ++l) {
        const int in = layer_inputs(n, l), out = layer_outputs(n, l);
        void *const next = l < hidden ? s->layers[(size_t)l + 1] : s->output;
        TRY(check_blas(n, pinn_blas_product(n->blas, total, out, in, {s->layers[(size_t)l], total, 0, false},
                                            {weights_of(n, theta, l), in, 0, false}, {next, total, 0}, 1)));
        if (l < hidden)
            TRY(check(
                n, pinn_launch_tanh(n->f64, &s->columns, out, n->config.kappa, bias_of(n, theta, l), next, n->stream),
                "the activations"));
    }
    return true;
}

/* The output's adjoints are there -> the products that gradients are made of. */
static bool reverse(pinn_cuda *n, const void *theta)
{
    const sweep *const s = &n->step;
    const int64_t total = s->columns.total, parts = total / PINN_BLOCK;
    void *adjoint = s->output;
    for (int l = n->config.shape.hidden; l >= 0; --l) {
        const int in = layer_inputs(n, l), out = layer_outputs(n, l);
        void *const layer = s->layers[(size_t)l];
        void *const to = offset(n, n->partial, (size_t)parts * net_offset(&n->config.shape, l));
        const int64_t size = ((int64_t)in + 1) * out;
        TRY(check_blas(n, pinn_blas_product(n->blas, in + 1, out, PINN_BLOCK, {layer, total, PINN_BLOCK, true},
                                            {adjoint, total, PINN_BLOCK, false}, {to, in + 1, size}, parts)));
        if (l == 0)
            break;
        void *const below = n->adjoints[l % 2];
        TRY(check_blas(n, pinn_blas_product(n->blas, total, in, out, {adjoint, total, 0, false},
                                            {weights_of(n, theta, l), in, 0, true}, {below, total, 0}, 1)));
        TRY(check(n, pinn_launch_reverse(n->f64, &s->columns, in, n->config.kappa, layer, below, n->stream),
                  "the adjoints"));
        adjoint = below;
    }
    return true;
}

/* ---- making and freeing ---- */

static bool open_device(pinn_cuda *n)
{
    int major = 0, minor = 0;
    TRY(check(n, cudaGetDevice(&n->device), "the current device"));
    TRY(check(n, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, n->device), "the device"));
    TRY(check(n, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, n->device), "the device"));
    (void)snprintf(n->name, sizeof n->name, "CUDA device %d, compute capability %d.%d", n->device, major, minor);
    TRY(check(n, cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking), "a stream"));
    TRY(check(n, cudaEventCreateWithFlags(&n->ready, cudaEventDisableTiming), "an event"));
    TRY(allocate(n, &n->theta, net_parameters(&n->config.shape) * n->real, "parameters"));
    TRY(allocate(n, &n->workspace, pinn_blas_workspace, "cuBLAS"));
    n->blas = pinn_blas_open(n->f64, n->stream, n->workspace, n->text, sizeof n->text);
    return n->blas != NULL;
}

pinn_cuda *pinn_cuda_create(const pinn_cuda_config *config, char *why, size_t size)
{
    pinn_cuda *const n = new (std::nothrow) pinn_cuda();
    if (!n) {
        (void)snprintf(why, size, "out of memory");
        return NULL;
    }
    n->config = *config;
    n->f64 = config->real == NET_F64;
    n->real = n->f64 ? sizeof(double) : sizeof(float);
    n->problem = pinn_find_problem(config->problem, &config->shape);
    n->config.problem = NULL; /* lent */
    if (n->problem < 0)
        (void)fail(n, "the library has no residual of %s", config->problem);
    else if (open_device(n))
        return n;
    (void)snprintf(why, size, "%s", n->text);
    pinn_cuda_destroy(n);
    return NULL;
}

static void free_terms(pinn_cuda *n)
{
    free_sweep(&n->step);
    for (int i = 0; i < 2; ++i)
        release(&n->adjoints[i]);
    release(&n->partial);
    release(&n->x);
    release(&n->targets);
    release(&n->squares);
    for (int slot = 0; slot < PINN_CUDA_SLOTS; ++slot) {
        if (n->host[slot])
            (void)cudaFreeHost(n->host[slot]);
        n->host[slot] = NULL;
    }
    if (n->host_squares)
        (void)cudaFreeHost(n->host_squares);
    n->host_squares = NULL;
}

static void free_grid(pinn_cuda *n)
{
    free_sweep(&n->grid);
    release(&n->grid_x);
    release(&n->values);
}

void pinn_cuda_destroy(pinn_cuda *n)
{
    if (!n)
        return;
    if (n->stream)
        (void)cudaStreamSynchronize(n->stream);
    pinn_blas_close(n->blas);
    free_terms(n);
    free_grid(n);
    release(&n->theta);
    release(&n->workspace);
    if (n->ready)
        (void)cudaEventDestroy(n->ready);
    if (n->stream)
        (void)cudaStreamDestroy(n->stream);
    delete n;
}

const char *pinn_cuda_error(const pinn_cuda *n)
{
    return n->text;
}

const char *pinn_cuda_device_name(const pinn_cuda *n)
{
    return n->name;
}

void *pinn_cuda_stream(const pinn_cuda *n)
{
    return n->stream;
}

void *pinn_cuda_allocate(pinn_cuda *n, size_t size)
{
    void *memory = NULL;
    if (allocate(n, &memory, size, "parameters and gradients"))
        (void)check(n, cudaMemsetAsync(memory, 0, size, n->stream), "clearing memory");
    return memory;
}

void pinn_cuda_release(pinn_cuda *n, void *memory)
{
    if (n->stream)
        (void)cudaStreamSynchronize(n->stream);
    release(&memory);
}

static bool copy(pinn_cuda *n, void *to, const void *from, size_t size, cudaMemcpyKind kind)
{
    return size == 0 || check(n, cudaMemcpyAsync(to, from, size, kind, n->stream), "a copy");
}

static bool wait_for(pinn_cuda *n)
{
    return check(n, cudaStreamSynchronize(n->stream), "what was queued");
}

bool pinn_cuda_upload(pinn_cuda *n, void *to, const void *from, size_t size)
{
    return copy(n, to, from, size, cudaMemcpyHostToDevice) && wait_for(n);
}

bool pinn_cuda_download(pinn_cuda *n, void *to, const void *from, size_t size)
{
    return copy(n, to, from, size, cudaMemcpyDeviceToHost) && wait_for(n);
}

/* ---- steps ---- */

template <class T> static bool allocate_pinned(pinn_cuda *n, T **out, size_t count, const char *what)
{
    void *memory = NULL;
    const bool ok = check(n, cudaMallocHost(&memory, count * sizeof(T) + 1), what);
    *out = static_cast<T *>(memory);
    return ok;
}

static bool make_terms(pinn_cuda *n)
{
    const net_shape &shape = n->config.shape;
    n->n_x = n->n_targets = 0;
    n->step.columns = {};
    for (int t = 0; t < n->n_terms; ++t) {
        const pinn_cuda_term &term = n->terms[t];
        pinn_region *const r = add_region(&n->step.columns, term.n_points, term.derivatives ? shape.inputs + 2 : 1);
        r->loss = term.loss;
        r->scale = term.scale;
        r->x_at = (int64_t)n->n_x;
        r->target_at = (int64_t)n->n_targets;
        n->n_x += (size_t)shape.inputs * (size_t)term.n_points;
        n->n_targets += term.derivatives ? 0 : (size_t)shape.outputs * (size_t)term.n_points;
    }
    const pinn_columns &c = n->step.columns;
    TRY(make_sweep(n, &n->step, true));
    const size_t layer = (size_t)shape.width * (size_t)c.total * n->real;
    for (int i = 0; i < 2; ++i)
        TRY(allocate(n, &n->adjoints[i], layer, "the network's adjoints"));
    TRY(allocate(n, &n->partial, (size_t)(c.total / PINN_BLOCK) * net_parameters(&shape) * n->real,
                 "the gradients' parts"));
    TRY(allocate(n, &n->x, n->n_x * sizeof(double), "points"));
    TRY(allocate(n, &n->targets, n->n_targets * sizeof(double), "targets"));
    TRY(allocate(n, &n->squares, (size_t)c.blocks * sizeof(double), "losses"));
    TRY(allocate_pinned(n, &n->host_squares, (size_t)c.blocks, "losses on the host"));
    for (int slot = 0; slot < PINN_CUDA_SLOTS; ++slot)
        TRY(allocate_pinned(n, &n->host[slot], n->n_x + n->n_targets, "points on the host"));
    return true;
}

bool pinn_cuda_set_terms(pinn_cuda *n, const pinn_cuda_term *terms, int n_terms, int n_losses)
{
    TRY(wait_for(n));
    free_terms(n);
    memcpy(n->terms, terms, (size_t)n_terms * sizeof *terms);
    n->n_terms = n_terms;
    n->n_losses = n_losses;
    return make_terms(n);
}

double *pinn_cuda_points(pinn_cuda *n, int slot, int term)
{
    return n->host[slot] + n->step.columns.region[term].x_at;
}

double *pinn_cuda_targets(pinn_cuda *n, int slot, int term)
{
    return n->host[slot] + n->n_x + n->step.columns.region[term].target_at;
}

bool pinn_cuda_gradients(pinn_cuda *n, int slot, const void *theta, void *const *gradients)
{
    const sweep *const s = &n->step;
    const net_shape &shape = n->config.shape;
    TRY(!n->text[0]);
    TRY(copy(n, n->x, n->host[slot], n->n_x * sizeof(double), cudaMemcpyHostToDevice));
    TRY(copy(n, n->targets, n->host[slot] + n->n_x, n->n_targets * sizeof(double), cudaMemcpyHostToDevice));
    TRY(check(n, pinn_launch_points(n->f64, &s->columns, shape.inputs, n->x, s->layers[0], n->stream), "the points"));
    TRY(forward(n, s, theta));
    TRY(check(n,
              pinn_launch_residual(n->f64, n->problem, &s->columns, bias_of(n, theta, shape.hidden), n->x, n->targets,
                                   s->output, n->squares, n->stream),
              "the residuals"));
    TRY(copy(n, n->host_squares, n->squares, (size_t)s->columns.blocks * sizeof(double), cudaMemcpyDeviceToHost));
    TRY(check(n, cudaEventRecord(n->ready, n->stream), "an event"));
    TRY(reverse(n, theta));
    pinn_rows rows = {};
    for (int i = 0; i < n->n_losses; ++i)
        rows.of[i] = gradients[i];
    return check(n, pinn_launch_gradients(n->f64, &s->columns, &shape, n->partial, &rows, n->n_losses, n->stream),
                 "the gradients");
}

bool pinn_cuda_squares(pinn_cuda *n, double *squares)
{
    TRY(check(n, cudaEventSynchronize(n->ready), "losses and what they are made of"));
    for (int t = 0; t < n->n_terms; ++t) {
        const pinn_region &r = n->step.columns.region[t];
        squares[t] = 0;
        for (int64_t b = 0; b < r.n_padded / PINN_BLOCK; ++b)
            squares[t] += n->host_squares[r.block + b];
    }
    return true;
}

/* ---- evaluations ---- */

bool pinn_cuda_set_grid(pinn_cuda *n, int64_t count, const double *x)
{
    const net_shape &shape = n->config.shape;
    TRY(wait_for(n));
    free_grid(n);
    n->n_grid = count;
    n->grid.columns = {};
    (void)add_region(&n->grid.columns, count < grid_slab ? count : grid_slab, 1);
    TRY(make_sweep(n, &n->grid, false));
    TRY(allocate(n, &n->values, (size_t)shape.outputs * (size_t)count * sizeof(double), "the solution"));
    TRY(allocate(n, &n->grid_x, (size_t)shape.inputs * (size_t)count * sizeof(double), "the evaluation's points"));
    /* Slab by slab, as the kernels want them: [slab][input][point]. */
    std::vector<double> slabs;
    for (int64_t first = 0; first < count; first += grid_slab)
        for (int i = 0; i < shape.inputs; ++i)
            slabs.insert(slabs.end(), x + i * count + first,
                         x + i * count + (count - first < grid_slab ? count : first + grid_slab));
    return pinn_cuda_upload(n, n->grid_x, slabs.data(), slabs.size() * sizeof(double));
}

bool pinn_cuda_evaluate(pinn_cuda *n, const void *theta, double *value)
{
    const net_shape &shape = n->config.shape;
    sweep *const s = &n->grid;
    pinn_columns *const c = &s->columns;
    TRY(copy(n, n->theta, theta, net_parameters(&shape) * n->real, cudaMemcpyHostToDevice));
    for (int64_t first = 0; first < n->n_grid; first += grid_slab) {
        c->region[0].n_points = n->n_grid - first < grid_slab ? n->n_grid - first : grid_slab;
        TRY(check(
            n, pinn_launch_points(n->f64, c, shape.inputs, n->grid_x + first * shape.inputs, s->layers[0], n->stream),
            "the evaluation's points"));
        TRY(forward(n, s, n->theta));
        TRY(check(n,
                  pinn_launch_values(n->f64, c, shape.outputs, bias_of(n, n->theta, shape.hidden), s->output, n->values,
                                     first, n->n_grid, n->stream),
                  "the solution"));
    }
    return pinn_cuda_download(n, value, n->values, (size_t)shape.outputs * (size_t)n->n_grid * sizeof(double));
}
