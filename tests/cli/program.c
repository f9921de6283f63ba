/* Running suture-pinn from outside (see program.h). */
#include "program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[256];

int enter_directory(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/suture-pinn-test-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info, (void)type, (void)walk;
    return remove(path);
}

int leave_directory(void **state)
{
    (void)state;
    return nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *in(const char *name)
{
    static char paths[8][512];
    static int next;
    char *const path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static pid_t start_line(const limits *limits, const char *format, va_list arguments)
{
    char line[2048];
    vsnprintf(line, sizeof line, format, arguments);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child)
        return child;
    char *argv[48] = {"suture-pinn"};
    int argc = 1;
    char *rest = NULL;
    for (char *word = strtok_r(line, " ", &rest); word && argc < 47; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    const int out = open(limits->stdout_to ? limits->stdout_to : in(".out"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int err = open(in(".err"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0 || chdir(directory) != 0)
        _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody at work */
    /* Whoever started the tests may have these ignored, as nohup does. */
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, limits->no_hangup ? SIG_IGN : SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    if (limits->isa ? setenv("SUTURE_ISA", limits->isa, 1) : 0)
        _exit(126);
    if (limits->blas_kernel)
        setenv("OPENBLAS_CORETYPE", limits->blas_kernel, 1);
    if (limits->file_size) {
        const rlim_t size = (rlim_t)limits->file_size;
        if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){size, size}) != 0)
            _exit(126);
    }
    if (limits->no_stdout)
        close(STDOUT_FILENO);
    if (limits->path)
        setenv("PATH", limits->path, 1);
    execv(SUTURE_PINN, argv);
    _exit(127);
}

outcome finish(pid_t process)
{
    int status;
    while (waitpid(process, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    outcome o = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                 .out = contents(in(".out"), NULL),
                 .err = contents(in(".err"), NULL)};
    assert_true(o.code != 126 && o.code != 127);
    assert_true(o.out != NULL && o.err != NULL);
    return o;
}

pid_t start(const limits *limits, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const pid_t process = start_line(limits, format, arguments);
    va_end(arguments);
    return process;
}

static const limits none;

outcome run(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const pid_t process = start_line(&none, format, arguments);
    va_end(arguments);
    return finish(process);
}

outcome run_limited(const limits *limits, const char *format, ...)
{
    write_bytes(in(".out"), "", 0);
    va_list arguments;
    va_start(arguments, format);
    const pid_t process = start_line(limits, format, arguments);
    va_end(arguments);
    return finish(process);
}

void drop(outcome *o)
{
    free(o->out);
    free(o->err);
}

void expect(int code, const char *text, const char *line)
{
    outcome o = run("%s", line);
    if (o.code != code)
        fail_msg("suture-pinn %s: exit code %d instead of %d; it says: %s", line, o.code, code, o.err);
    if (text && !strstr(o.err, text))
        fail_msg("suture-pinn %s: no '%s' in: %s", line, text, o.err);
    drop(&o);
}

char *contents(const char *path, size_t *size)
{
    FILE *const f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t n = 0, space = 1 << 16;
    char *bytes = malloc(space);
    assert_non_null(bytes);
    for (size_t got; (got = fread(bytes + n, 1, space - n - 1, f)) > 0;) {
        n += got;
        if (space - n < 2) {
            bytes = realloc(bytes, space *= 2);
            assert_non_null(bytes);
        }
    }
    fclose(f);
    bytes[n] = 0;
    if (size)
        *size = n;
    return bytes;
}

bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool same_file(const char *a, const char *b)
{
    size_t n_a = 0, n_b = 0;
    char *const x = contents(a, &n_a), *const y = contents(b, &n_b);
    const bool same = x && y && n_a == n_b && !memcmp(x, y, n_a);
    free(x);
    free(y);
    return same;
}

int leftovers(const char *path)
{
    DIR *const listing = opendir(path);
    if (!listing)
        return -1;
    int n = 0;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        n += strstr(entry->d_name, ".new") || strstr(entry->d_name, ".tmp");
    closedir(listing);
    return n;
}

void write_bytes(const char *path, const void *bytes, size_t size)
{
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

history read_history(const char *path)
{
    history h = {.text = contents(path, NULL)};
    if (!h.text)
        fail_msg("there is no %s", path);
    int lines = 0, cells = 0;
    for (const char *p = h.text; *p; p++) {
        lines += *p == '\n';
        cells += *p == '\n' || *p == ',';
        h.n_columns += lines == 0 && *p == ',';
    }
    h.n_columns++;
    h.n_rows = lines - 1;
    assert_int_equal(cells, lines * h.n_columns); /* no row is torn */
    h.cells = calloc((size_t)cells + 1, sizeof *h.cells);
    assert_non_null(h.cells);
    char *p = h.text;
    for (int i = 0; i < cells; i++) {
        h.cells[i] = p;
        p += strcspn(p, ",\n");
        *p++ = 0;
    }
    return h;
}

static int column_of(const history *h, const char *name)
{
    for (int i = 0; i < h->n_columns; i++)
        if (!strcmp(h->cells[i], name))
            return i;
    fail_msg("history.csv has no column %s", name);
    return 0;
}

double cell(const history *h, int row, const char *column)
{
    assert_true(row >= 0 && row < h->n_rows);
    const char *const text = h->cells[(row + 1) * h->n_columns + column_of(h, column)];
    char *end;
    const double value = strtod(text, &end);
    assert_int_equal(*end, 0);
    return end == text ? NAN : value;
}

void drop_history(history *h)
{
    free(h->cells);
    free(h->text);
}

bool same_history(const char *a, const char *b)
{
    history x = read_history(a), y = read_history(b);
    bool same = x.n_columns == y.n_columns && x.n_rows == y.n_rows;
    const int seconds = column_of(&x, "seconds");
    for (int i = 0; same && i < (x.n_rows + 1) * x.n_columns; i++)
        same = i % x.n_columns == seconds || !strcmp(x.cells[i], y.cells[i]);
    drop_history(&x);
    drop_history(&y);
    return same;
}

json_t *read_metrics(const char *path)
{
    json_error_t error;
    json_t *const metrics = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!metrics)
        fail_msg("%s: %s", path, error.text);
    return metrics;
}

bool same_metrics(const char *a, const char *b)
{
    json_t *const x = read_metrics(a), *const y = read_metrics(b);
    json_object_del(x, "seconds");
    json_object_del(y, "seconds");
    const bool same = json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

int count_of(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p += strlen(word))
        n++;
    return n;
}

double metric(const json_t *metrics, const char *name)
{
    const json_t *const value = json_object_get(metrics, name);
    if (!json_is_number(value))
        fail_msg("metrics.json: %s is not a number", name);
    return json_number_value(value);
}
