/*
 * Every system call of a save is made to fail, to be interrupted, to write short, and to be the moment of a kill. The
 * program is linked with --wrap, so that the library's calls arrive here first.
 *
 * fail       the call returns an error: the save fails with a sentence, the old file and the optimizer are as they were,
 *            no temporary file is left
 * interrupt  the call returns EINTR once: the save succeeds
 * kill       the process dies before, in the middle of (write) or after the call: the file is the old or the new one
 */
#define _XOPEN_SOURCE 700

#include "checkpoint/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAVED = 3, NEXT = 4 };

static const char *const path = "state.safetensors";

/* --- the faults ------------------------------------------------------------------------------------------------------ */

typedef enum fault { NO_FAULT, FAIL, INTERRUPT, SHORT, KILL_BEFORE, KILL_AFTER } fault;

static struct {
    bool armed;
    fault kind;
    int at;    /* which call it strikes: 0, 1, ... */
    int error; /* errno of FAIL */
    int calls; /* so far */
    const char *struck;
    char order[64]; /* first letters of the calls, in order */
} plan;

/* Whether the fault strikes the call that is just made. */
static bool strikes(const char *call)
{
    if (!plan.armed)
        return false;
    if (plan.calls < (int)sizeof plan.order - 1)
        plan.order[plan.calls] = call[0] == 'f' && call[1] == 'c' ? 'm' : call[0];
    if (plan.calls++ != plan.at || plan.kind == NO_FAULT)
        return false;
    plan.struck = call;
    if (plan.kind == KILL_BEFORE)
        (void)raise(SIGKILL);
    return true;
}

/* The result of a call that the fault strikes; -2 when the call is to be made. */
static int struck_result(void)
{
    if (plan.kind == FAIL || plan.kind == INTERRUPT) {
        errno = plan.kind == FAIL ? plan.error : EINTR;
        return -1;
    }
    return -2;
}

static void after(bool struck)
{
    if (struck && plan.kind == KILL_AFTER)
        (void)raise(SIGKILL);
}

int __real_open(const char *name, int flags, ...);
int __real_open64(const char *name, int flags, ...);
ssize_t __real_write(int fd, const void *bytes, size_t size);
int __real_fsync(int fd);
int __real_close(int fd);
int __real_fchmod(int fd, mode_t mode);
int __real_rename(const char *from, const char *to);

int __wrap_open(const char *name, int flags, ...);
int __wrap_open64(const char *name, int flags, ...);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
int __wrap_fsync(int fd);
int __wrap_close(int fd);
int __wrap_fchmod(int fd, mode_t mode);
int __wrap_rename(const char *from, const char *to);

static int open_either(int (*real)(const char *, int, ...), const char *name, int flags, mode_t mode)
{
    const bool struck = strikes("open");
    if (struck && struck_result() == -1)
        return -1;
    const int fd = real(name, flags, mode);
    after(struck);
    return fd;
}

#define OPEN(real)                   \
    mode_t mode = 0;                 \
    if (flags & O_CREAT) {           \
        va_list args;                \
        va_start(args, flags);       \
        mode = va_arg(args, mode_t); \
        va_end(args);                \
    }                                \
    return open_either((real), name, flags, mode)

int __wrap_open(const char *name, int flags, ...)
{
    OPEN(__real_open);
}

int __wrap_open64(const char *name, int flags, ...)
{
    OPEN(__real_open64);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t size)
{
    const bool struck = strikes("write");
    if (struck && struck_result() == -1)
        return -1;
    if (plan.armed && plan.kind == SHORT)
        return __real_write(fd, bytes, size > 1000 ? 1000 : size); /* every write, the better to mix up offsets */
    if (struck && plan.kind == KILL_AFTER) /* in the middle; the end of a write is the beginning of the next call */
        size = (size + 1) / 2;
    const ssize_t n = __real_write(fd, bytes, size);
    after(struck);
    return n;
}

int __wrap_fsync(int fd)
{
    const bool struck = strikes("fsync");
    const int result = struck ? struck_result() : -2;
    const int n = result == -1 ? -1 : __real_fsync(fd);
    after(struck);
    return n;
}

int __wrap_close(int fd)
{
    const bool struck = strikes("close");
    const int n = __real_close(fd); /* the descriptor is gone even when close fails */
    after(struck);
    return struck && struck_result() == -1 ? -1 : n;
}

int __wrap_fchmod(int fd, mode_t mode)
{
    const bool struck = strikes("fchmod");
    if (struck && struck_result() == -1)
        return -1;
    const int n = __real_fchmod(fd, mode);
    after(struck);
    return n;
}

int __wrap_rename(const char *from, const char *to)
{
    const bool struck = strikes("rename");
    if (struck && struck_result() == -1)
        return -1;
    const int n = __real_rename(from, to);
    after(struck);
    return n;
}

static void arm(fault kind, int at, int error)
{
    plan.kind = kind;
    plan.at = at;
    plan.error = error;
    plan.calls = 0;
    plan.struck = NULL;
    memset(plan.order, 0, sizeof plan.order);
    plan.armed = true;
}

/* --- the checks ------------------------------------------------------------------------------------------------------ */

static int count_files(void)
{
    int n = 0;
    DIR *dir = opendir(".");
    require(dir != NULL, "opendir", NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    (void)closedir(dir);
    return n;
}

static int remove_strays(void)
{
    int n = 0;
    DIR *dir = opendir(".");
    require(dir != NULL, "opendir", NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".tmp."))
            n += unlink(entry->d_name) == 0;
    (void)closedir(dir);
    return n;
}

static void describe(const char *what, int at)
{
    (void)fprintf(stderr, "at call %d (%s): %s\n", at, plan.struck ? plan.struck : "none", what);
}

/*
 * Number of system calls that one save makes. Their order is what the disk needs: open, the mode, writes, flush, close,
 * rename; then the directory is opened, flushed and closed.
 */
static int count_calls(run *r)
{
    arm(NO_FAULT, 0, 0);
    require(sut_optimizer_save(r->opt, path, NULL) == SUT_OK, "an undisturbed save", r);
    plan.armed = false;
    const char *p = plan.order;
    require(p[0] == 'o' && p[1] == 'm' && p[2] == 'w', "open, fchmod, write", NULL);
    p += 2;
    while (*p == 'w')
        p++;
    require(strcmp(p, "fcrofc") == 0, "fsync, close, rename, open, fsync, close", NULL);
    return plan.calls;
}

/*
 * An error that strikes after the rename cannot give the old file back; one that strikes the flush of the directory is
 * reported if it may lose the file. `old` and `new` are runs at the two steps.
 */
static void every_call_fails(run *old, run *new, int calls, int error)
{
    int failures = 0;
    for (int at = 0; at < calls; at++) {
        require(sut_optimizer_save(old->opt, path, NULL) == SUT_OK, "the old file", old);
        arm(FAIL, at, error);
        const sut_status status = sut_optimizer_save(new->opt, path, NULL);
        plan.armed = false;
        const bool renamed = run_matches_file(new, path);
        if (status == SUT_OK ? !renamed : status != SUT_ERROR_IO || !(renamed || run_matches_file(old, path))) {
            describe("status and file do not agree", at);
            exit(1);
        }
        if (status != SUT_OK && (strlen(sut_context_last_error(new->ctx)) < 20 ||
                                 !strstr(sut_context_last_error(new->ctx), "state.safetensors"))) {
            describe(sut_context_last_error(new->ctx), at);
            exit(1);
        }
        require(!renamed || at >= calls - 3, "only the flush of the directory may fail after the rename", new);
        require(count_files() == 1, "no temporary file is left", new);
        require(sut_optimizer_steps(new->opt) == NEXT, "the optimizer did not move", new);
        failures += status != SUT_OK;
    }
    require(failures >= 5, "open, write, fsync, close and rename all lead to a failure", new);
}

static void every_call_is_interrupted(run *old, run *new, int calls)
{
    for (int at = 0; at < calls; at++) {
        require(sut_optimizer_save(old->opt, path, NULL) == SUT_OK, "the old file", old);
        arm(INTERRUPT, at, 0);
        const sut_status status = sut_optimizer_save(new->opt, path, NULL);
        plan.armed = false;
        /* POSIX lets none of these two be interrupted. */
        if (plan.struck && (!strcmp(plan.struck, "rename") || !strcmp(plan.struck, "fchmod")))
            continue;
        if (status != SUT_OK || !run_matches_file(new, path) || count_files() != 1) {
            describe(sut_context_last_error(new->ctx), at);
            exit(1);
        }
    }
    arm(SHORT, -1, 0);
    require(sut_optimizer_save(new->opt, path, NULL) == SUT_OK, "short writes", new);
    plan.armed = false;
    require(plan.calls > calls + 100, "writes were short", NULL);
    require(run_matches_file(new, path), "short writes give the same file", NULL);
}

static void every_call_is_the_last(run *old, run *new, int calls, fault kind)
{
    int found_old = 0, found_new = 0;
    for (int at = 0; at < calls; at++) {
        require(sut_optimizer_save(old->opt, path, NULL) == SUT_OK, "the old file", old);
        const pid_t pid = fork();
        require(pid >= 0, "fork", NULL);
        if (pid == 0) {
            arm(kind, at, 0);
            (void)sut_optimizer_save(new->opt, path, NULL);
            _exit(3); /* never reached */
        }
        int status;
        require(waitpid(pid, &status, 0) == pid, "waitpid", NULL);
        require(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the child was killed", NULL);
        const bool is_old = run_matches_file(old, path), is_new = run_matches_file(new, path);
        if (is_old == is_new) {
            describe("the file is neither the old nor the new one", at);
            exit(1);
        }
        require(is_old || found_new > 0 || at > 0, "the first call comes before the rename", NULL);
        require(!(is_old && found_new > 0), "once there, the new file stays", NULL);
        found_old += is_old;
        found_new += is_new;
        require(remove_strays() <= 1, "at most one stray file", NULL);
    }
    require(found_old > 0 && found_new > 0, "kills struck before and after the rename", NULL);
}

/* A real limit instead of an injected one. */
static void the_disk_is_full(run *old, run *new)
{
    require(sut_optimizer_save(old->opt, path, NULL) == SUT_OK, "the old file", old);
    struct stat info;
    require(stat(path, &info) == 0, "stat", NULL);
    struct rlimit before, limit;
    require(getrlimit(RLIMIT_FSIZE, &before) == 0, "getrlimit", NULL);
    (void)signal(SIGXFSZ, SIG_IGN);
    for (int k = 0; k < 8; k++) {
        limit = before;
        limit.rlim_cur = (rlim_t)((info.st_size - 1) * k / 7);
        require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit", NULL);
        const sut_status status = sut_optimizer_save(new->opt, path, NULL);
        require(setrlimit(RLIMIT_FSIZE, &before) == 0, "setrlimit", NULL);
        require(status == SUT_ERROR_IO, "a save that does not fit fails", new);
        require(strstr(sut_context_last_error(new->ctx), "write failed on state.safetensors") ||
                    strstr(sut_context_last_error(new->ctx), "/state.safetensors.tmp."),
                "the sentence names call and file", new);
        require(run_matches_file(old, path), "the old file is as it was", NULL);
        require(count_files() == 1, "no temporary file is left", NULL);
    }
    require(sut_optimizer_save(new->opt, path, NULL) == SUT_OK, "with room again it works", new);
    require(run_matches_file(new, path), "and the file is the new one", NULL);
}

int main(void)
{
    char directory[] = "suture-faults-XXXXXX";
    require(mkdtemp(directory) != NULL && chdir(directory) == 0, "a directory of its own", NULL);
    run old, new;
    run_create(&old);
    run_create(&new);
    run_until(&old, SAVED);
    run_until(&new, NEXT);
    require(sut_optimizer_save(old.opt, path, NULL) == SUT_OK, "the first save", &old);
    const int calls = count_calls(&new);
    printf("%d system calls in a save\n", calls);
    require(calls >= 8, "the calls of a save arrive here", NULL);

    every_call_fails(&old, &new, calls, EIO);
    every_call_fails(&old, &new, calls, ENOSPC);
    every_call_is_interrupted(&old, &new, calls);
    every_call_is_the_last(&old, &new, calls, KILL_BEFORE);
    every_call_is_the_last(&old, &new, calls, KILL_AFTER);
    the_disk_is_full(&old, &new);

    run_destroy(&old);
    run_destroy(&new);
    require(unlink(path) == 0 && chdir("..") == 0 && rmdir(directory) == 0, "nothing else was left behind", NULL);
    return 0;
}
