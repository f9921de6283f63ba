/*
 * A program that saves in a loop is killed at random moments. Whatever the moment, the file must be complete: the state of
 * the last save that finished or of the one that was going on, equal byte for byte to an undisturbed run at that step.
 * Each child also takes the run up from the file that the kill before it left behind.
 */
#define _XOPEN_SOURCE 700

#include "checkpoint/run.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 40 };

static const char *const path = "state.safetensors";

/* Writes a byte before each save, so that the moment of the kill depends on the child's progress and not on the machine. */
static void child(int progress)
{
    run r;
    run_create(&r);
    require(sut_optimizer_load(r.opt, path, NULL) == SUT_OK, "load in the child", &r);
    for (;;) {
        run_step(&r);
        require(write(progress, "s", 1) == 1, "write to the pipe", NULL);
        require(sut_optimizer_save(r.opt, path, NULL) == SUT_OK, "save in the child", &r);
    }
}

/* Kill the child a while after it has begun its save number `saves`. */
static void kill_in_save(pid_t pid, int progress, int saves, long microseconds)
{
    char byte;
    for (int k = 0; k < saves; k++)
        require(read(progress, &byte, 1) == 1, "the child makes progress", NULL);
    struct timespec time = {.tv_sec = 0, .tv_nsec = microseconds * 1000};
    (void)nanosleep(&time, NULL);
    (void)kill(pid, SIGKILL);
    int status;
    require(waitpid(pid, &status, 0) == pid, "waitpid", NULL);
    require(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the child ran until it was killed", NULL);
}

/* Remove the temporary files that the kills left; their number tells how many kills came in the middle of a save. */
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

int main(void)
{
    char directory[] = "suture-kill-XXXXXX";
    require(mkdtemp(directory) != NULL && chdir(directory) == 0, "a directory of its own", NULL);
    run r;
    run_create(&r);
    require(sut_optimizer_save(r.opt, path, NULL) == SUT_OK, "first save", &r);

    uint64_t random = 20240117;
    int strays = 0;
    int64_t reached = 0;
    for (int round = 0; round < ROUNDS; round++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const int saves = 1 + (int)(random >> 33) % 3;
        int ends[2];
        require(pipe(ends) == 0, "pipe", NULL);
        const pid_t pid = fork();
        require(pid >= 0, "fork", NULL);
        if (pid == 0)
            child(ends[1]);
        (void)close(ends[1]); /* a child that ends early is then seen */
        kill_in_save(pid, ends[0], saves, (long)(random >> 40) % 2000);
        (void)close(ends[0]);
        run found;
        run_create(&found);
        require(sut_optimizer_load(found.opt, path, NULL) == SUT_OK, "the file is complete after a kill", &found);
        const int64_t t = sut_optimizer_steps(found.opt);
        require(t >= reached + saves - 1, "saves that were finished are never lost", NULL);
        run_until(&r, t);
        require(run_matches_file(&r, path), "the file is that of an undisturbed run", NULL);
        run_destroy(&found);
        reached = t;
        strays += remove_strays();
    }
    run_destroy(&r);
    require(unlink(path) == 0 && chdir("..") == 0 && rmdir(directory) == 0, "nothing else was left behind", NULL);
    printf("%d kills, %d of them during a save; step %lld reached\n", ROUNDS, strays, (long long)reached);
    return 0;
}
