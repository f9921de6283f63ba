/*
 * What a run leaves when it ends: metrics.json, solution.csv and a table. The numbers are those of section 1 and 2 of the
 * protocol; rates are null where no step was counted, r_p also without alignment.
 */
#include "run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Sum over n steps as a mean. */
static json_t *mean(double sum, double n)
{
    return real(n > 0 ? sum / n : NAN);
}

static const char *stop_name(pinn_stop stop)
{
    switch (stop) {
    case PINN_STOP_STEPS: return "steps";
    case PINN_STOP_TARGET_LOSS: return "target-loss";
    case PINN_STOP_PATIENCE: return "patience";
    case PINN_STOP_TIME_LIMIT: return "time-limit";
    case PINN_STOP_SIGNAL: return "signal";
    default: return "failure";
    }
}

static json_t *metrics(const pinn_run *run, const pinn_scores *kept, const pinn_scores *last)
{
    const pinn_statistics *const s = &run->progress.total;
    const bool aligned = run->options->align != SUT_ALIGN_NONE;
    json_t *const out = json_object();
    json_object_set_new(out, "format", json_string("suture-pinn-metrics/1"));
    json_object_set_new(out, "problem", json_string(run->problem->name));
    json_object_set_new(out, "relative_l2", real(kept->relative_l2));
    json_object_set_new(out, "relative_l2_final", real(last->relative_l2));
    json_object_set_new(out, "best_step", json_integer((json_int_t)run->progress.best_step));
    json_object_set_new(out, "mse", real(kept->mse));
    json_object_set_new(out, "mse_final", real(last->mse));
    json_object_set_new(out, "selection_mse", real(kept->selection_mse));
    json_object_set_new(out, "r_g", mean(s->g, s->steps));
    json_object_set_new(out, "r_g_pair", mean(s->g_pairs, s->steps));
    json_object_set_new(out, "r_a", mean(s->a, s->steps));
    json_object_set_new(out, "r_u", mean(s->u, s->steps));
    json_object_set_new(out, "r_p", aligned ? mean(s->p, s->steps) : json_null());
    json_object_set_new(out, "steps_counted", json_integer((json_int_t)s->steps));
    json_object_set_new(out, "projected_rate", mean(s->projected, s->steps));
    json_t *correction = json_object(), *all = json_object(), *projected = json_object();
    json_object_set_new(all, "relative_change", mean(s->change, s->steps));
    json_object_set_new(all, "cosine", mean(s->cosine, s->steps));
    json_object_set_new(all, "ratio", mean(s->ratio, s->steps));
    json_object_set_new(projected, "relative_change", mean(s->projected_change, s->projected));
    json_object_set_new(projected, "cosine", mean(s->projected_cosine, s->projected));
    json_object_set_new(projected, "ratio", mean(s->projected_ratio, s->projected));
    json_object_set_new(correction, "all_steps", all);
    json_object_set_new(correction, "projected_steps", projected);
    json_object_set_new(out, "correction", correction);
    json_t *losses = json_object();
    for (int i = 0; i < run->n_losses; i++)
        json_object_set_new(losses, run->losses[i].name, real(run->progress.loss[i]));
    json_object_set_new(out, "losses", losses);
    json_object_set_new(out, "steps", json_integer(run->steps));
    json_object_set_new(out, "stop_reason", json_string(stop_name(run->stop)));
    json_object_set_new(out, "seconds", real(run->seconds));
    json_object_set_new(out, "seed", json_integer(run->options->seed));
    json_object_set_new(out, "threads", json_integer(pinn_pool_threads(run->pool)));
    json_object_set_new(out, "backend", json_string(sut_backend_name(sut_context_backend(run->context))));
    json_object_set_new(out, "isa", run->device ? json_null() : json_string(run->kernels->isa));
    json_object_set_new(out, "evaluation_points", json_integer(pinn_evaluation_points(run->evaluation)));
    json_object_set_new(out, "version", json_string(sut_version()));
    json_object_set_new(out, "configuration", pinn_options_configuration(run->options));
    return out;
}

/* Written beside and renamed, so that a reader never sees half a file. */
static int write_file(const pinn_run *run, const char *name, int (*write)(FILE *, const pinn_run *, const void *),
                      const void *what)
{
    char path[PINN_PATH], temporary[PINN_PATH], new_name[64];
    snprintf(new_name, sizeof new_name, "%s.new", name);
    if (!pinn_path(run, name, path) || !pinn_path(run, new_name, temporary))
        return PINN_EXIT_FAILURE;
    FILE *const f = fopen(temporary, "w");
    const bool written = f && write(f, run, what) == 0 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    const bool closed = f && fclose(f) == 0;
    if (written && closed && rename(temporary, path) == 0)
        return 0;
    const int error = pinn_error(PINN_EXIT_FAILURE, "%s: %s", path, strerror(errno));
    if (f)
        (void)remove(temporary);
    return error;
}

static int write_json(FILE *f, const pinn_run *run, const void *what)
{
    (void)run;
    const int error = json_dumpf(what, f, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    return error || fputc('\n', f) == EOF;
}

/* Coordinates, reference and prediction of the kept parameters on the slice that the problem shows in pictures. */
static int write_solution(FILE *f, const pinn_run *run, const void *what)
{
    (void)what;
    const pinn_problem *const p = run->problem;
    const int64_t n = pinn_evaluation_points(run->evaluation);
    const double *const reference = pinn_evaluation_reference(run->evaluation);
    const double *const prediction = pinn_evaluation_prediction(run->evaluation);
    for (int i = 0; i < p->n_inputs; i++)
        fprintf(f, "%s%s", i ? "," : "", p->inputs[i]);
    for (int o = 0; o < p->n_outputs; o++)
        fprintf(f, ",%s_reference,%s,%s_error", p->outputs[o], p->outputs[o], p->outputs[o]);
    fputc('\n', f);
    for (int64_t k = 0; k < n; k++) {
        if (!pinn_grid_shown(p, k))
            continue;
        double x[NET_MAX_INPUTS];
        pinn_grid_at(p, k, x);
        for (int i = 0; i < p->n_inputs; i++)
            fprintf(f, "%s%.10g", i ? "," : "", x[i]);
        for (int o = 0; o < p->n_outputs; o++) {
            const double r = reference[o * n + k], v = prediction[o * n + k];
            fprintf(f, ",%.9g,%.9g,%.6g", r, v, fabs(v - r));
        }
        fputc('\n', f);
    }
    return 0;
}

static void print_table(const pinn_run *run, const pinn_scores *kept, const pinn_scores *last)
{
    const pinn_statistics *const s = &run->progress.total;
    const bool aligned = run->options->align != SUT_ALIGN_NONE;
    printf("\n%" PRId64 " steps in %.1f s (ended by: %s)\n", run->steps, run->seconds, stop_name(run->stop));
    printf("  relative L2 error      %.4e   kept parameters, step %.0f\n", kept->relative_l2, run->progress.best_step);
    printf("                         %.4e   last step\n", last->relative_l2);
    printf("  mean squared error     %.4e\n", kept->mse);
    for (int i = 0; i < run->n_losses; i++)
        printf("  loss %-17s %.4e   last step\n", run->losses[i].name, run->progress.loss[i]);
    printf("  conflicts, share of %.0f steps\n", s->steps);
    if (s->steps > 0) {
        printf("    gradients       r_g  %6.2f %%   pairs  %.2f %%\n", 100 * s->g / s->steps,
               100 * s->g_pairs / s->steps);
        printf("    combined        r_a  %6.2f %%\n", 100 * s->a / s->steps);
        printf("    proposal        r_u  %6.2f %%\n", 100 * s->u / s->steps);
        if (aligned)
            printf("    applied update  r_p  %6.2f %%\n", 100 * s->p / s->steps);
    }
    if (s->projected > 0)
        printf("  projected              %6.2f %% of the steps; then |p-u|/|u| %.3f, cosine %.4f, |p|/|u| %.4f\n",
               100 * s->projected / s->steps, s->projected_change / s->projected, s->projected_cosine / s->projected,
               s->projected_ratio / s->projected);
    printf("  results in %s\n", run->directory);
    fflush(stdout);
}

int pinn_report(pinn_run *run, const pinn_scores *kept, const pinn_scores *last)
{
    json_t *const out = metrics(run, kept, last);
    int error = write_file(run, "metrics.json", write_json, out);
    if (!error)
        error = write_file(run, "solution.csv", write_solution, NULL);
    if (!error && run->options->json)
        (void)write_json(stdout, run, out); /* main() looks at stdout when all is done */
    if (!error && !run->options->json)
        print_table(run, kept, last);
    json_decref(out);
    return error;
}
