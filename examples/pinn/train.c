/*
 * Training, to the letter of the protocol: each step draws its points, computes one gradient per loss and hands them to
 * the library, which combines them, updates, projects, applies and realigns; every 100 steps and after the last one the
 * network is evaluated and the best parameters so far are kept.
 */
#include "run.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t caught_signal;

static void on_signal(int signal)
{
    caught_signal = signal; /* a second one ends the process at once: SA_RESETHAND */
}

double pinn_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int pinn_error(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("suture-pinn: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return code;
}

/* Where a run's progress is written: on a terminal one line that is written over, in a file a line now and then. */
typedef struct ticker {
    bool terminal;
    double next;   /* clock */
    int64_t first; /* steps done before */
} ticker;

static void print_header(const pinn_run *run)
{
    const pinn_options *const o = run->options;
    fprintf(run->log,
            "%s: %s\n%s, surgery %s, alignment %s, %d losses, %s, seed %" PRId64 ", %" PRId64 " steps of %" PRId64
            " interior points; back end %s, %d threads, %s%s; ",
            run->problem->name, run->problem->title, sut_optimizer_method_name((sut_optimizer_method)o->optimizer),
            sut_surgery_method_name((sut_surgery_method)o->surgery), o->align == SUT_ALIGN_GUA ? "gua" : "none",
            run->n_losses, o->dtype == NET_F32 ? "f32" : "f64", o->seed, o->steps, o->points,
            sut_backend_name(sut_context_backend(run->context)), pinn_pool_threads(run->pool),
            run->device ? run->device->calls->device_name(run->device->network) : run->kernels->isa,
            run->device ? "" : " kernels");
    pinn_print_blas(run->log);
    if (run->steps)
        fprintf(run->log, "going on after step %" PRId64 " of %s\n", run->steps, o->resume);
    fflush(run->log);
}

static void print_progress(const pinn_run *run, ticker *t)
{
    const double now = pinn_clock();
    if (now < t->next && run->stop == PINN_STOP_NOT)
        return;
    t->next = now + (t->terminal ? 0.2 : 5);
    const int64_t done = run->steps - t->first, to_do = run->options->steps - run->steps;
    const double per_step = done ? (run->seconds - run->earlier) / (double)done : 0, left = per_step * (double)to_do;
    double total = 0;
    for (int i = 0; i < run->n_losses; i++)
        total += run->progress.loss[i];
    fprintf(run->log, "%sstep %" PRId64 "/%" PRId64 "  lr %.2e  loss %.3e  ", t->terminal ? "\r\033[K" : "", run->steps,
            run->options->steps, run->report.lr, total);
    if (run->scores.reference_norm > 0)
        fprintf(run->log, "relative L2 %.3e  ", run->scores.relative_l2);
    fprintf(run->log, "%.1f ms a step  %d:%02d left%s", 1e3 * per_step, (int)(left / 60), (int)fmod(left, 60),
            t->terminal && run->stop == PINN_STOP_NOT ? "" : "\n");
    fflush(run->log);
}

/* Scores of the parameters as they are. */
static int evaluate_now(pinn_run *run, pinn_scores *scores)
{
    const void *const parameters = pinn_run_parameters(run);
    if (parameters)
        *scores = pinn_evaluate(run->evaluation, parameters);
    return pinn_run_check_device(run);
}

/* An evaluation that is due: the parameters are kept if they are the best so far. */
static int evaluate(pinn_run *run)
{
    const int error = evaluate_now(run, &run->scores);
    if (error)
        return error;
    run->evaluated = true;
    run->progress.evaluation_step = (double)run->steps;
    if (run->scores.selection_mse < run->progress.best_selection) {
        run->progress.best_selection = run->scores.selection_mse;
        run->progress.best_step = (double)run->steps;
        memcpy(run->best, run->copy, run->n_parameters * run->kernels->real_size);
    }
    return 0;
}

/* The gradients of the next step, and the step. */
static int step(pinn_run *run)
{
    const pinn_options *const o = run->options;
    if (!pinn_batch_gradients(run->batch, run->theta, (uint64_t)o->seed, o->fixed_points ? 0 : run->steps,
                              run->progress.terms, run->progress.loss, run->gradients))
        return pinn_run_check_device(run);
    for (int i = 0; i < run->n_losses; i++)
        if (!isfinite(run->progress.loss[i]))
            return pinn_error(PINN_EXIT_FAILURE,
                              "step %" PRId64
                              ": the loss '%s' is not finite; %s/checkpoint.safetensors holds the last good state",
                              run->steps + 1, run->losses[i].name, run->directory);
    sut_report_init(&run->report);
    const sut_status status =
        sut_optimizer_step(run->optimizer, run->gradient_tensors, run->progress.loss, &run->report);
    if (status != SUT_OK)
        return pinn_error(PINN_EXIT_FAILURE,
                          "step %" PRId64 ": %s; %s/checkpoint.safetensors holds the last good state", run->steps + 1,
                          sut_context_last_error(run->context), run->directory);
    run->steps++;
    run->seconds = pinn_clock() - run->started;
    run->evaluated = false;
    pinn_statistics_add(&run->progress.total, &run->report);
    pinn_statistics_add(&run->progress.window, &run->report);
    return 0;
}

static pinn_stop reason_to_stop(const pinn_run *run)
{
    const pinn_options *const o = run->options;
    double total = 0;
    for (int i = 0; i < run->n_losses; i++)
        total += run->progress.loss[i];
    if (run->steps >= o->steps)
        return PINN_STOP_STEPS;
    if (total <= o->target_loss)
        return PINN_STOP_TARGET_LOSS;
    if (o->patience > 0 && (double)run->steps - run->progress.best_step >= (double)o->patience &&
        isfinite(run->progress.best_selection))
        return PINN_STOP_PATIENCE;
    if (run->seconds - run->earlier >= o->time_limit)
        return PINN_STOP_TIME_LIMIT;
    return caught_signal ? PINN_STOP_SIGNAL : PINN_STOP_NOT;
}

static int train(pinn_run *run)
{
    const pinn_options *const o = run->options;
    ticker ticker = {.terminal = isatty(fileno(run->log)), .first = run->steps};
    int error = 0;
    run->stop = run->steps >= o->steps ? PINN_STOP_STEPS : PINN_STOP_NOT;
    while (!error && run->stop == PINN_STOP_NOT) {
        error = step(run);
        if (error)
            return error;
        if (run->steps % o->evaluate_every == 0)
            error = evaluate(run);
        if (error)
            return error;
        run->stop = reason_to_stop(run);
        if (run->steps % o->log_every == 0)
            error = pinn_history_row(run);
        if (!error && (run->stop != PINN_STOP_NOT || run->steps % o->checkpoint_every == 0))
            error = pinn_checkpoint_save(run);
        /*
         * The checkpoint knows nothing of an evaluation or a row that was not due, so that a run which goes on, with more
         * steps, too, is one that never stopped. A run that was only cut short does without them.
         */
        const bool over =
            run->stop != PINN_STOP_NOT && run->stop != PINN_STOP_SIGNAL && run->stop != PINN_STOP_TIME_LIMIT;
        if (!error && over && !run->evaluated) {
            error = evaluate_now(run, &run->scores);
            run->evaluated = true;
        }
        if (!error && over)
            error = pinn_history_last_row(run);
        print_progress(run, &ticker);
    }
    return error;
}

static int finish(pinn_run *run)
{
    pinn_scores last;
    int error = evaluate_now(run, &last);
    if (error)
        return error;
    if (!(run->progress.best_selection <= last.selection_mse)) {
        run->progress.best_selection = last.selection_mse;
        run->progress.best_step = (double)run->steps;
        memcpy(run->best, run->copy, run->n_parameters * run->kernels->real_size);
    }
    const pinn_scores kept = pinn_evaluate(run->evaluation, run->best);
    error = pinn_run_check_device(run);
    if (!error)
        error = pinn_report(run, &kept, &last);
    if (!error && run->stop == PINN_STOP_SIGNAL) {
        fprintf(run->log,
                "interrupted after step %" PRId64 "; to go on: suture-pinn %s --resume %s/checkpoint.safetensors"
                " --out %s\n",
                run->steps, run->problem->name, run->directory, run->directory);
        return 128 + (int)caught_signal;
    }
    if (!error && !run->options->no_plots)
        error = pinn_plot(run->directory, run->log, false);
    return error;
}

/*
 * The directory is made and looked at last, when nothing else can be wrong; what it holds is replaced only when the new
 * checkpoint, the larger part of what a run needs on the disk, has found its place.
 */
static int open_results(pinn_run *run)
{
    int error = pinn_run_open_directory(run);
    if (!error)
        error = pinn_history_open(run, run->options->resume);
    const bool replaces = !error && pinn_run_replaces(run);
    if (!error)
        error = pinn_checkpoint_save(run); /* so that there always is a last good one */
    if (!error)
        error = pinn_history_replace(run);
    if (!error && replaces) {
        fprintf(run->log, "replacing the run in %s\n", run->directory);
        pinn_run_remove_results(run);
    }
    run->earlier = run->seconds;
    return error;
}

/* Ctrl-C, kill and a terminal that goes away end a run with a checkpoint, unless they are to be ignored (nohup). */
static void catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction action;
        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            continue;
        action = (struct sigaction){.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
        sigaction(signals[i], &action, NULL);
    }
}

int pinn_train(pinn_options *options)
{
    pinn_run *const run = calloc(1, sizeof *run);
    if (!run)
        return pinn_error(PINN_EXIT_FAILURE, "out of memory");
    run->options = options;
    run->lock = -1;
    json_t *configuration = NULL;
    int error = 0;
    if (options->resume) {
        error = pinn_checkpoint_configuration(options->resume, &configuration);
        if (!error)
            error = pinn_options_continue(options, configuration);
    }
    if (!error)
        error = pinn_run_create(run);
    if (!error && options->resume)
        error = pinn_checkpoint_load(run, options->resume, configuration);
    json_decref(configuration);
    if (!error)
        error = open_results(run);
    if (!error) {
        catch_signals();
        print_header(run);
        run->started = pinn_clock() - run->seconds;
        error = train(run);
    }
    if (!error)
        error = finish(run);
    pinn_run_destroy(run);
    free(run);
    return error;
}
