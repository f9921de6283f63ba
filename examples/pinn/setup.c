/* Making and freeing a run: network, points, library objects, directory. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

bool pinn_path(const pinn_run *run, const char *name, char path[PINN_PATH])
{
    if (snprintf(path, PINN_PATH, "%s/%s", run->directory, name) < PINN_PATH)
        return true;
    pinn_error(0, "%s/%s: the path is too long", run->directory, name);
    return false;
}

static void warn(void *user, sut_log_level level, const char *message)
{
    (void)level;
    fprintf(user, "suture: %s\n", message);
}

/* The library's refusals of settings are the user's to mend, the rest is failure. */
static int refused(const pinn_run *run, sut_status status)
{
    const bool usage = status == SUT_ERROR_INVALID_ARGUMENT || status == SUT_ERROR_OUT_OF_RANGE ||
                       status == SUT_ERROR_UNSUPPORTED || status == SUT_ERROR_BACKEND;
    const char *const text = run->context ? sut_context_last_error(run->context) : sut_status_string(status);
    return pinn_error(usage ? PINN_EXIT_USAGE : PINN_EXIT_FAILURE, "%s", text);
}

/* Weights and biases of each layer as tensors of their own, so that state files can be read by name. */
static int describe_tensors(pinn_run *run, sut_tensor *tensors, char (*names)[32])
{
    int n = 0;
    for (int layer = 0; layer <= run->shape.hidden; layer++) {
        const int in = net_layer_inputs(&run->shape, layer), out = net_layer_outputs(&run->shape, layer);
        const size_t weight = net_offset(&run->shape, layer), bias = weight + (size_t)in * (size_t)out;
        for (int part = 0; part < 2; part++, n++) {
            const size_t offset = (part ? bias : weight) * run->kernels->real_size;
            snprintf(names[n], sizeof names[n], "layer%d.%s", layer, part ? "bias" : "weight");
            tensors[n] = (sut_tensor){.data = (char *)run->theta + offset,
                                      .dtype = run->kernels->real == NET_F32 ? SUT_DTYPE_F32 : SUT_DTYPE_F64,
                                      .n_dims = part ? 1 : 2,
                                      .shape = {out, part ? 0 : in},
                                      .name = names[n]};
            for (int i = 0; i < run->n_losses; i++)
                run->gradient_tensors[i * PINN_MAX_TENSORS + n] = (char *)run->gradients[i] + offset;
        }
    }
    /* The library wants the rows without gaps. */
    for (int i = 1; i < run->n_losses; i++)
        memmove(&run->gradient_tensors[i * n], &run->gradient_tensors[i * PINN_MAX_TENSORS],
                (size_t)n * sizeof run->gradient_tensors[0]);
    run->n_tensors = n;
    return n;
}

/* The GPU: first what the library needs of it, then what the network does. */
static int open_device(pinn_run *run)
{
    sut_capability_report report;
    sut_capabilities_init(&report);
    if (sut_capabilities(&report) == SUT_OK && !report.has_cuda)
        return pinn_error(PINN_EXIT_USAGE, "--backend cuda: %s; --backend cpu runs without", report.cuda_reason);
    char why[4800];
    run->device = pinn_device_open(run->problem, &run->shape, run->kernels->real, why, sizeof why);
    return run->device ? 0 : pinn_error(PINN_EXIT_USAGE, "--backend cuda: %s; --backend cpu runs without", why);
}

int pinn_run_check_device(const pinn_run *run)
{
    const char *const text = pinn_device_error(run->device);
    return *text ? pinn_error(PINN_EXIT_FAILURE, "step %" PRId64 ": %s", run->steps + 1, text) : 0;
}

const char *pinn_run_kernels(const pinn_run *run)
{
    return run->device ? "cuda" : run->kernels->isa;
}

/* One array of the network's type in the memory of the back end. */
static void *allocate(const pinn_run *run)
{
    const size_t size = run->n_parameters * run->kernels->real_size;
    return run->device ? run->device->calls->allocate(run->device->network, size) : calloc(1, size);
}

static void release(const pinn_run *run, void *array)
{
    if (run->device && array)
        run->device->calls->release(run->device->network, array);
    else
        free(array);
}

static bool copy_to(const pinn_run *run, void *to, const void *host)
{
    const size_t size = run->n_parameters * run->kernels->real_size;
    if (run->device)
        return run->device->calls->upload(run->device->network, to, host, size);
    memcpy(to, host, size);
    return true;
}

const void *pinn_run_parameters(pinn_run *run)
{
    const size_t size = run->n_parameters * run->kernels->real_size;
    if (!run->device)
        memcpy(run->copy, run->theta, size);
    else if (!run->device->calls->download(run->device->network, run->copy, run->theta, size))
        return NULL;
    return run->copy;
}

static int create_optimizer(pinn_run *run)
{
    const pinn_options *const o = run->options;
    sut_context_config context;
    sut_context_config_init(&context);
    context.backend = (sut_backend)o->backend;
    if (run->device)
        context.stream = run->device->calls->stream(run->device->network);
    context.n_threads = pinn_pool_threads(run->pool);
    context.isa = (sut_isa)o->isa;
    context.seed = (uint64_t)o->seed;
    context.log = warn;
    context.log_user = stderr;
    sut_status status = sut_context_create(&run->context, &context);
    if (status != SUT_OK)
        return refused(run, status);

    sut_tensor tensors[PINN_MAX_TENSORS];
    char names[PINN_MAX_TENSORS][32];
    const char *loss_names[PINN_MAX_TERMS];
    for (int i = 0; i < run->n_losses; i++)
        loss_names[i] = run->losses[i].name;
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, (sut_optimizer_method)o->optimizer);
    config.n_tensors = describe_tensors(run, tensors, names);
    config.tensors = tensors;
    config.n_losses = run->n_losses;
    config.loss_names = loss_names;
    sut_surgery_config_init(&config.surgery, (sut_surgery_method)o->surgery);
    config.align = (sut_align)o->align;
    config.metric = (sut_metric)o->metric;
    config.rho_m = o->rho_m;
    config.rho_v = o->rho_v;
    config.conflict_cos_tol = o->conflict_tol;
    config.hyper.lr = o->lr;
    config.use_schedule = 1;
    sut_schedule_init(&config.schedule, (sut_schedule_kind)o->schedule);
    config.schedule.peak = o->lr;
    config.schedule.final_lr = o->final_lr;
    config.schedule.warmup = o->warmup;
    config.schedule.total = o->steps;
    const int error = pinn_settings_apply(o, &config, run->preference);
    if (error)
        return error;
    status = sut_optimizer_create(&run->optimizer, run->context, &config);
    return status == SUT_OK ? 0 : refused(run, status);
}

void pinn_run_remove_results(const pinn_run *run)
{
    static const char *const names[] = {"metrics.json", "solution.csv", "plots.gnuplot"};
    enum { N_NAMES = sizeof names / sizeof *names };
    for (int k = 0; k < N_NAMES + PINN_N_PICTURES; k++) {
        char path[PINN_PATH];
        if (pinn_path(run, k < N_NAMES ? names[k] : pinn_pictures[k - N_NAMES], path))
            (void)remove(path); /* there is nothing to remove where the old run did not end */
    }
}

bool pinn_run_replaces(const pinn_run *run)
{
    struct stat here, resumed;
    char path[PINN_PATH];
    if (!pinn_path(run, PINN_CHECKPOINT, path) || stat(path, &here) != 0)
        return false;
    const char *const file = run->options->resume;
    return !file || stat(file, &resumed) != 0 || here.st_dev != resumed.st_dev || here.st_ino != resumed.st_ino;
}

/* --out; the directory of the checkpoint of a run that goes on; or one named after the problem. */
static int name_directory(pinn_run *run)
{
    const pinn_options *const o = run->options;
    const char *const slash = o->resume ? strrchr(o->resume, '/') : NULL;
    int n;
    if (o->out)
        n = snprintf(run->directory, sizeof run->directory, "%s", o->out);
    else if (o->resume)
        n = snprintf(run->directory, sizeof run->directory, "%.*s",
                     slash ? (int)(slash - o->resume) + (slash == o->resume) : 1, slash ? o->resume : ".");
    else
        n = snprintf(run->directory, sizeof run->directory, "suture-pinn-%s", run->problem->name);
    if (n <= 0 || n >= PINN_PATH)
        return pinn_error(PINN_EXIT_USAGE, "--out: the path is %s", n <= 0 ? "empty" : "too long");
    return 0;
}

int pinn_run_open_directory(pinn_run *run)
{
    const int error = name_directory(run);
    if (error)
        return error;
    for (char *slash = run->directory;;) {
        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = 0;
        if (mkdir(run->directory, 0777) != 0 && errno != EEXIST)
            return pinn_error(PINN_EXIT_FAILURE, "--out %s: %s", run->directory, strerror(errno));
        if (!slash)
            break;
        *slash = '/';
    }
    run->lock = open(run->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run->lock < 0)
        return pinn_error(PINN_EXIT_FAILURE, "--out %s: %s", run->directory, strerror(errno));
    /* Two runs in one directory would write one history. File systems without locks have to do without. */
    if (flock(run->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return pinn_error(PINN_EXIT_FAILURE, "--out %s: another run is at work there", run->directory);
    return 0;
}

/* The device says more where it is its memory, or something else of it. */
static int out_of_memory(const pinn_run *run)
{
    const char *const text = pinn_device_error(run->device);
    return pinn_error(PINN_EXIT_FAILURE, "%s", *text ? text : "out of memory");
}

int pinn_run_create(pinn_run *run)
{
    const pinn_options *const o = run->options;
    run->problem = o->problem;
    run->shape = pinn_problem_shape(run->problem);
    run->n_parameters = net_parameters(&run->shape);
    run->n_losses = pinn_problem_split(run->problem, (int)o->losses, run->losses);
    run->log = o->json ? stderr : stdout;
    run->progress.best_selection = INFINITY;
    for (int i = 0; i < run->n_losses; i++)
        run->progress.loss[i] = NAN; /* until there is a step */
    const char *const isa = o->isa ? sut_isa_name((sut_isa)o->isa) : NULL;
    run->kernels = net_kernels_find((net_real)o->dtype, isa);
    if (!run->kernels)
        return pinn_error(PINN_EXIT_USAGE, "--isa %s: this processor or build does not have it", isa);
    run->pool = pinn_pool_create(o->threads > 0 ? (int)o->threads : pinn_processors());
    if (!run->pool)
        return pinn_error(PINN_EXIT_FAILURE, "threads: %s", strerror(errno));
    int error = o->backend == SUT_BACKEND_CUDA ? open_device(run) : 0;
    if (error)
        return error;
    run->theta = allocate(run);
    run->best = calloc(run->n_parameters, run->kernels->real_size);
    run->copy = calloc(run->n_parameters, run->kernels->real_size);
    bool ok = run->theta && run->best && run->copy;
    for (int i = 0; i < run->n_losses; i++)
        ok &= (run->gradients[i] = allocate(run)) != NULL;
    double *const start = malloc(run->n_parameters * sizeof *start);
    if (ok && start) {
        pinn_initialise(&run->shape, (uint64_t)o->seed, start);
        net_store(run->kernels->real, run->copy, 0, start, run->n_parameters);
        ok = copy_to(run, run->theta, run->copy);
    }
    ok &= start != NULL;
    free(start);
    if (!ok)
        return out_of_memory(run);
    error = create_optimizer(run);
    if (error)
        return error;
    run->batch = pinn_batch_create(run->pool, run->kernels, &run->shape, run->problem, run->losses, run->n_losses,
                                   (int)o->points);
    run->evaluation = pinn_evaluation_create(run->pool, run->kernels, &run->shape, run->problem);
    if (!run->batch || !run->evaluation)
        return out_of_memory(run);
    if (run->device &&
        (!pinn_batch_use_device(run->batch, run->device) || !pinn_evaluation_use_device(run->evaluation, run->device)))
        return out_of_memory(run);
    return 0;
}

void pinn_run_destroy(pinn_run *run)
{
    pinn_history_close(run);
    if (run->lock >= 0)
        close(run->lock); /* and so unlocked */
    sut_optimizer_destroy(run->optimizer);
    sut_context_destroy(run->context);
    pinn_evaluation_destroy(run->evaluation);
    pinn_batch_destroy(run->batch);
    pinn_pool_destroy(run->pool);
    release(run, run->theta);
    free(run->best);
    free(run->copy);
    for (int i = 0; i < PINN_MAX_TERMS; i++)
        release(run, run->gradients[i]);
    pinn_device_close(run->device);
}
