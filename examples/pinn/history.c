/*
 * history.csv. Columns: `step` (steps done), `seconds`, `lr`, `total` (sum of the losses), `term_<t>` for each term of the
 * problem (its own mean), then for each loss of the split `loss_`, `weight_` (of the surgery), `norm_` (of its gradient),
 * `cos_a_`, `cos_u_`, `cos_p_` (cosines of combined direction, proposal and applied update with its gradient), `lambda_`
 * (multiplier of the projection); `min_pair_cos`, `norm_a`, `norm_u`, `norm_p`, `relative_change` (|p - u|/|u|);
 * `conflict_g`, `_a`, `_u`, `_p`, `projected` (shares of the steps since the row before); `selection_mse`, `relative_l2`
 * (empty in rows without an evaluation). All but `seconds` are the same for the same seed.
 */
#include "run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "history.csv"
#define NEW_NAME FILE_NAME ".new"

static const char *const per_loss[] = {"loss_", "weight_", "norm_", "cos_a_", "cos_u_", "cos_p_", "lambda_"};
static const char *const single[] = {"min_pair_cos",    "norm_a",     "norm_u",        "norm_p",
                                     "relative_change", "conflict_g", "conflict_a",    "conflict_u",
                                     "conflict_p",      "projected",  "selection_mse", "relative_l2"};

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* The header, without its newline; long enough for the longest names. */
static void header(const pinn_problem *problem, const pinn_loss *losses, int n_losses, char *out, size_t size)
{
    int n = snprintf(out, size, "step,seconds,lr,total");
    for (int t = 0; t < problem->n_terms; t++)
        n += snprintf(out + n, size - (size_t)n, ",term_%s", problem->terms[t].name);
    for (int i = 0; i < n_losses; i++)
        for (int k = 0; k < COUNT(per_loss); k++)
            n += snprintf(out + n, size - (size_t)n, ",%s%s", per_loss[k], losses[i].name);
    for (int k = 0; k < COUNT(single); k++)
        n += snprintf(out + n, size - (size_t)n, ",%s", single[k]);
}

int pinn_history_column(const pinn_problem *problem, const pinn_loss *losses, int n_losses, const char *name)
{
    char text[2048];
    header(problem, losses, n_losses, text, sizeof text);
    char *rest = NULL;
    int column = 1;
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest), column++)
        if (!strcmp(word, name))
            return column;
    return 0;
}

static int failed(const char *path)
{
    return pinn_error(PINN_EXIT_FAILURE, "%s: %s", path, strerror(errno));
}

/*
 * A row of an older history on its way into this one. When there are steps to do, the last row becomes what it is in a run
 * that did not end there: none, or without the evaluation, where these were not due.
 */
static void copy_row(const pinn_run *run, int64_t step, char *line, FILE *to)
{
    const pinn_progress *const p = &run->progress;
    if (run->steps < run->options->steps && step == run->steps) {
        if (p->row_step < (double)step)
            return;
        if (p->evaluation_step < (double)step) { /* the last two columns */
            for (int k = 0; k < 2; k++)
                *strrchr(line, ',') = 0;
            fprintf(to, "%s,,\n", line);
            return;
        }
    }
    fputs(line, to);
}

/* Copy the rows up to run->steps of an older history; sets run->seconds. */
static int copy_rows(pinn_run *run, const char *resumed, const char *first_line, FILE *to)
{
    char path[PINN_PATH];
    const char *const slash = strrchr(resumed, '/');
    const int n = slash ? (int)(slash - resumed) + 1 : 0;
    if (snprintf(path, sizeof path, "%.*s%s", n, resumed, FILE_NAME) >= (int)sizeof path)
        return pinn_error(PINN_EXIT_FAILURE, "--resume: the path is too long");
    FILE *const from = fopen(path, "r");
    if (!from) {
        fprintf(stderr, "suture-pinn: %s: %s; the history begins at step %" PRId64 "\n", path, strerror(errno),
                run->steps);
        return 0;
    }
    char *line = NULL;
    size_t space = 0;
    bool matches = false;
    const size_t first_length = strlen(first_line);
    int n_columns = 1;
    for (const char *c = first_line; *c; c++)
        n_columns += *c == ',';
    for (int64_t row = 0; getline(&line, &space, from) > 0; row++) {
        const size_t length = strlen(line);
        if (row == 0)
            matches = length == first_length + 1 && !strncmp(line, first_line, first_length);
        if (!matches) {
            fprintf(stderr, "suture-pinn: %s has other columns; the history begins at step %" PRId64 "\n", path,
                    run->steps);
            break;
        }
        char *comma = NULL;
        const int64_t step = row ? strtoll(line, &comma, 10) : 0;
        if (!row)
            continue;
        int columns = 1;
        for (const char *c = line; *c; c++)
            columns += *c == ',';
        if (columns != n_columns || line[length - 1] != '\n' || *comma != ',' || step > run->steps)
            break; /* later rows will be computed again; the last one may be torn */
        run->seconds = strtod(comma + 1, NULL);
        copy_row(run, step, line, to);
    }
    free(line);
    fclose(from);
    return 0;
}

int pinn_history_open(pinn_run *run, const char *resumed)
{
    char path[PINN_PATH], first_line[2048];
    if (!pinn_path(run, NEW_NAME, path))
        return PINN_EXIT_FAILURE;
    FILE *const f = run->history = fopen(path, "w");
    if (!f)
        return failed(path);
    header(run->problem, run->losses, run->n_losses, first_line, sizeof first_line);
    fprintf(f, "%s\n", first_line);
    const int error = resumed ? copy_rows(run, resumed, first_line, f) : 0;
    if (error)
        return error;
    return fflush(f) || ferror(f) ? failed(path) : 0;
}

int pinn_history_replace(pinn_run *run)
{
    char path[PINN_PATH], new_path[PINN_PATH];
    if (!pinn_path(run, FILE_NAME, path) || !pinn_path(run, NEW_NAME, new_path))
        return PINN_EXIT_FAILURE;
    if (rename(new_path, path))
        return failed(path);
    run->history_renamed = true; /* the stream goes on under the new name */
    return 0;
}

void pinn_history_close(pinn_run *run)
{
    char path[PINN_PATH];
    if (!run->history)
        return;
    fclose(run->history);
    run->history = NULL;
    if (!run->history_renamed && pinn_path(run, NEW_NAME, path))
        (void)remove(path);
}

static void number(FILE *f, double value)
{
    if (isfinite(value))
        fprintf(f, ",%.10g", value);
    else
        fputc(',', f);
}

static int write_row(pinn_run *run)
{
    FILE *const f = run->history;
    const sut_report *const r = &run->report;
    const pinn_statistics *const w = &run->progress.window;
    double total = 0;
    for (int i = 0; i < run->n_losses; i++)
        total += run->progress.loss[i];
    fprintf(f, "%" PRId64 ",%.3f", run->steps, run->seconds);
    number(f, r->lr);
    number(f, total);
    for (int t = 0; t < run->problem->n_terms; t++)
        number(f, run->progress.terms[t]);
    for (int i = 0; i < run->n_losses; i++) {
        const double values[] = {run->progress.loss[i], r->weights[i], r->norms[i], r->cos_a[i],
                                 r->cos_u[i],           r->cos_p[i],   r->lambda[i]};
        for (int k = 0; k < COUNT(per_loss); k++)
            number(f, values[k]);
    }
    const double n = w->steps, selection = run->evaluated ? run->scores.selection_mse : NAN;
    const double values[] = {r->min_pair_cos,  r->norm_a,          r->norm_u,
                             r->norm_p,        r->relative_change, w->g / n,
                             w->a / n,         w->u / n,           w->p / n,
                             w->projected / n, selection,          run->evaluated ? run->scores.relative_l2 : NAN};
    for (int k = 0; k < COUNT(single); k++)
        number(f, values[k]);
    fputc('\n', f);
    return ferror(f) ? failed(FILE_NAME) : 0;
}

int pinn_history_row(pinn_run *run)
{
    const int error = write_row(run);
    run->progress.window = (pinn_statistics){0};
    run->progress.row_step = (double)run->steps;
    return error;
}

int pinn_history_last_row(pinn_run *run)
{
    const double step = (double)run->steps;
    int error = 0;
    if (run->progress.row_step < step) {
        error = write_row(run);
    } else if (run->progress.evaluation_step < step) { /* the row is there and ends in two empty cells */
        if (fseek(run->history, -(long)strlen(",,\n"), SEEK_END))
            return failed(FILE_NAME);
        number(run->history, run->scores.selection_mse);
        number(run->history, run->scores.relative_l2);
        fputc('\n', run->history);
    }
    return error ? error : pinn_history_flush(run);
}

int pinn_history_flush(pinn_run *run)
{
    if (fflush(run->history) || fsync(fileno(run->history)))
        return failed(FILE_NAME);
    return 0;
}
