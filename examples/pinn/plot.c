/*
 * Pictures, drawn by gnuplot into PNG files; no display is needed. The script stays in the directory, so that a picture can
 * be changed by hand: gnuplot plots.gnuplot.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

const char *const pinn_pictures[PINN_N_PICTURES] = {"solution.png", "reference.png", "error.png", "losses.png",
                                                    "conflicts.png"};

/* Three pictures of each output on the shown slice: columns of solution.csv are the inputs, then triples per output. */
static void solution_pictures(FILE *f, const pinn_problem *p)
{
    static const struct {
        const char *file, *title;
        int column;
    } kinds[] = {{"reference", "reference", 0}, {"solution", "network", 1}, {"error", "|network - reference|", 2}};
    const int across = p->shown[0], up = p->shown[1];
    fprintf(f, "set xlabel '%s'\nset ylabel '%s'\nset autoscale xfix\nset autoscale yfix\n", p->inputs[across],
            p->inputs[up]);
    for (int k = 0; k < 3; k++) {
        fprintf(f, "set output '%s.png'\nset multiplot layout 1,%d\n", kinds[k].file, p->n_outputs);
        for (int o = 0; o < p->n_outputs; o++)
            fprintf(f, "set title '%s, %s'\nplot 'solution.csv' skip 1 using %d:%d:%d with image notitle\n",
                    p->outputs[o], kinds[k].title, across + 1, up + 1, p->n_inputs + 3 * o + 1 + kinds[k].column);
        fprintf(f, "unset multiplot\n");
    }
    fprintf(f, "set autoscale\n");
}

static void loss_picture(FILE *f, const pinn_problem *p, const pinn_loss *losses, int n, int64_t steps)
{
    fprintf(f,
            "set output 'losses.png'\nset title 'losses and error'\nset xlabel 'step'\nset ylabel 'value'\n"
            "set xrange [0:%" PRId64 "]\nset logscale y\nset format y '10^{%%T}'\nplot ",
            steps);
    for (int t = 0; t < p->n_terms; t++) {
        char name[64];
        snprintf(name, sizeof name, "term_%s", p->terms[t].name);
        fprintf(f, "'history.csv' skip 1 using 1:%d with lines title '%s', ", pinn_history_column(p, losses, n, name),
                p->terms[t].name);
    }
    fprintf(f, "'history.csv' skip 1 using 1:%d with linespoints pt 7 ps 0.3 title 'relative L2 error'\n",
            pinn_history_column(p, losses, n, "relative_l2"));
    fprintf(f, "unset logscale y\nset format y\n");
}

/* Shares of conflicting steps, averaged over a hundredth of the run. */
static void conflict_picture(FILE *f, const pinn_problem *p, const pinn_loss *losses, int n, int64_t steps)
{
    static const struct {
        const char *column, *title;
    } curves[] = {{"conflict_g", "gradients"},
                  {"conflict_a", "combined direction"},
                  {"conflict_u", "proposal"},
                  {"conflict_p", "applied update"}};
    const double bin = steps < 100 ? 1 : (double)steps / 100;
    fprintf(f,
            "set output 'conflicts.png'\nset title 'steps that conflict with a loss'\nset xlabel 'step'\n"
            "set ylabel 'share of steps'\nset yrange [-0.02:1.02]\nbin(x) = (floor(x / %g) + 0.5) * %g\nplot ",
            bin, bin);
    for (int k = 0; k < 4; k++)
        fprintf(f, "'history.csv' skip 1 using (bin($1)):%d smooth unique with lines lw 2 title '%s'%s",
                pinn_history_column(p, losses, n, curves[k].column), curves[k].title, k < 3 ? ", " : "\n");
}

static int write_script(const char *path, const pinn_problem *p, const pinn_loss *losses, int n, int64_t steps)
{
    FILE *const f = fopen(path, "w");
    if (!f)
        return pinn_error(PINN_EXIT_FAILURE, "%s: %s", path, strerror(errno));
    fprintf(f, "# gnuplot plots.gnuplot, in this directory\n"
               "if (strstrt(GPVAL_TERMINALS, 'pngcairo')) {\n    set terminal pngcairo size 900,540\n"
               "} else {\n    set terminal png size 900,540\n}\n"
               "set datafile separator comma\nset grid\nset key outside bottom horizontal\n"
               "set palette defined (0 '#0d0887', 1 '#7e03a8', 2 '#cc4778', 3 '#f89540', 4 '#f0f921')\n");
    solution_pictures(f, p);
    loss_picture(f, p, losses, n, steps);
    conflict_picture(f, p, losses, n, steps);
    const bool written = !ferror(f), closed = fclose(f) == 0;
    if (written && closed)
        return 0;
    const int error = pinn_error(PINN_EXIT_FAILURE, "%s: %s", path, strerror(errno));
    (void)remove(path);
    return error;
}

static int run_gnuplot(const char *directory, FILE *log, bool asked_for, bool *drawn)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO); /* stdout may be promised to JSON */
    posix_spawn_file_actions_addchdir_np(&actions, directory);
    pid_t child;
    char *const arguments[] = {"gnuplot", "plots.gnuplot", NULL};
    const int error = posix_spawnp(&child, "gnuplot", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    *drawn = error == 0;
    if (error && asked_for)
        return pinn_error(PINN_EXIT_FAILURE, "plot: gnuplot: %s; install gnuplot, or put it into the PATH",
                          strerror(error));
    if (error) {
        fprintf(log, "no pictures: gnuplot: %s; install gnuplot, then: suture-pinn plot %s\n", strerror(error),
                directory);
        return 0;
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return pinn_error(PINN_EXIT_FAILURE, "gnuplot: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return pinn_error(PINN_EXIT_FAILURE, "gnuplot could not draw the pictures of %s/plots.gnuplot", directory);
    return 0;
}

/* gnuplot ends as if nothing were wrong when a picture does not fit on the disk: what has no PNG trailer is removed. */
static int check_pictures(const char *directory)
{
    static const char trailer[] = "IEND\xae\x42\x60\x82";
    enum { LENGTH = sizeof trailer - 1 };
    int error = 0;
    for (int i = 0; i < PINN_N_PICTURES; i++) {
        char path[PINN_PATH], end[LENGTH];
        snprintf(path, sizeof path, "%s/%s", directory, pinn_pictures[i]);
        FILE *const f = fopen(path, "rb");
        const bool whole = f && fseek(f, -(long)LENGTH, SEEK_END) == 0 && fread(end, 1, LENGTH, f) == LENGTH &&
                           memcmp(end, trailer, LENGTH) == 0;
        if (f)
            fclose(f);
        if (!whole) {
            error = pinn_error(PINN_EXIT_FAILURE, "%s: gnuplot did not write it whole; is the disk full?", path);
            (void)remove(path);
        }
    }
    return error;
}

int pinn_plot(const char *directory, FILE *log, bool asked_for)
{
    char path[PINN_PATH];
    if (snprintf(path, sizeof path, "%s/metrics.json", directory) >= PINN_PATH - 16)
        return pinn_error(PINN_EXIT_FAILURE, "%s: the path is too long", directory);
    json_error_t where;
    json_t *const metrics = json_load_file(path, 0, &where);
    if (!metrics)
        return pinn_error(PINN_EXIT_FAILURE, "plot: %s%s%s", where.line < 0 ? "" : path, where.line < 0 ? "" : ": ",
                          where.text); /* without a line it is the file that is missing, and named in the text */
    const char *const name = json_string_value(json_object_get(metrics, "problem"));
    const pinn_problem *const problem = name ? pinn_problem_find(name) : NULL;
    json_t *const configuration = json_object_get(metrics, "configuration");
    pinn_loss losses[PINN_MAX_TERMS];
    const int n =
        problem ? pinn_problem_split(problem, (int)json_integer_value(json_object_get(configuration, "losses")), losses)
                : 0;
    const int64_t steps = json_integer_value(json_object_get(metrics, "steps"));
    json_decref(metrics);
    if (!n)
        return pinn_error(PINN_EXIT_FAILURE, "plot: %s: not the metrics of a run", path);
    snprintf(path, sizeof path, "%s/plots.gnuplot", directory);
    int error = write_script(path, problem, losses, n, steps);
    bool drawn = false;
    if (!error)
        error = run_gnuplot(directory, log, asked_for, &drawn);
    if (!error && drawn)
        error = check_pictures(directory);
    if (!error && drawn)
        fprintf(log, "pictures: %s/{solution,reference,error,losses,conflicts}.png\n", directory);
    return error;
}
