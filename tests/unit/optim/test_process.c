/*
 * Optimizers among threads and processes: contexts side by side in threads of their own (for the thread sanitizer to look
 * at), the same run again and again, and a fork in the middle of a run. Same bits everywhere, and no hang.
 */
#include "support/pool.h"
#include "support/step.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* FNV-1a over parameters and state. */
static uint64_t fingerprint(const step_run *run)
{
    const step_snapshot s = step_snapshot_take(run);
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t k = 0; k < s.size; ++k)
        hash = (hash ^ s.bytes[k]) * UINT64_C(1099511628211);
    free(s.bytes);
    return hash;
}

static sut_context *new_context(int n_threads)
{
    sut_context_config config;
    sut_context *ctx;
    sut_context_config_init(&config);
    config.n_threads = n_threads;
    return sut_context_create(&ctx, &config) == SUT_OK ? ctx : NULL;
}

static void problem(step_spec *spec)
{
    step_spec_init(spec, SUT_OPTIMIZER_ADAM, 3);
    spec->dtype = SUT_DTYPE_F32;
    spec->config.n_losses = 3;
    spec->n_tensors = 2;
    spec->length[0] = 45001; /* large enough for the pool */
    spec->length[1] = 33;
}

/* `steps` steps on gradients of their own; the last fingerprint. */
static uint64_t go_on(step_run *run, step_grads *g, test_random *r, int steps)
{
    for (int t = 0; t < steps; ++t) {
        step_grads_conflict(g, r);
        step_do(run, g, NULL);
    }
    return fingerprint(run);
}

static uint64_t whole_run(sut_context *ctx, int steps)
{
    step_spec spec;
    problem(&spec);
    step_run *const run = step_open(ctx, &spec);
    step_grads *const g = step_grads_new(&spec);
    test_random r = {41};
    const uint64_t hash = go_on(run, g, &r, steps);
    step_grads_free(g);
    step_close(run);
    return hash;
}

/* --- threads --------------------------------------------------------------------------------------------------------- */

enum { N_THREADS = 4, STEPS = 6 };

typedef struct job {
    step_run *run;
    step_grads *g;
    int n_threads, rounds;
    bool good;
} job;

/* cmocka's checks belong to the main thread: here everything ends in `good`. */
static void *side_by_side(void *argument)
{
    job *const j = argument;
    j->good = true;
    for (int t = 0; t < j->rounds; ++t) {
        sut_report report;
        sut_report_init(&report);
        j->good = j->good && sut_optimizer_step(j->run->opt, j->g->pointer, NULL, &report) == SUT_OK;
        j->good = j->good && sut_optimizer_set_lr(j->run->opt, -1, 0.01 / (1 + t)) == SUT_OK;
        j->good = j->good && sut_optimizer_step(j->run->opt, NULL, NULL, NULL) == SUT_ERROR_INVALID_ARGUMENT;
        j->good = j->good && sut_context_last_error(j->run->ctx)[0] != '\0';
        void *bytes = NULL;
        size_t size;
        j->good = j->good && sut_optimizer_save_memory(j->run->opt, NULL, &bytes, &size) == SUT_OK;
        sut_buffer_free(j->run->ctx, bytes);
    }
    return NULL;
}

static void contexts_side_by_side(void **state)
{
    (void)state;
    job jobs[N_THREADS];
    pthread_t thread[N_THREADS];
    for (int k = 0; k < N_THREADS; ++k) {
        step_spec spec;
        test_random r = {42};
        problem(&spec);
        jobs[k] = (job){.n_threads = 1 + k % 3, .rounds = STEP_ROUNDS(20, 4)};
        sut_context *const ctx = new_context(jobs[k].n_threads);
        assert_non_null(ctx);
        jobs[k].run = step_open(ctx, &spec);
        jobs[k].g = step_grads_new(&spec);
        step_grads_conflict(jobs[k].g, &r);
    }
    for (int k = 0; k < N_THREADS; ++k)
        assert_int_equal(pthread_create(&thread[k], NULL, side_by_side, &jobs[k]), 0);
    for (int k = 0; k < N_THREADS; ++k)
        assert_int_equal(pthread_join(thread[k], NULL), 0);
    for (int k = 0; k < N_THREADS; ++k) {
        assert_true(jobs[k].good);
        step_assert_same(jobs[0].run, jobs[k].run, "a context beside others");
    }
    for (int k = 0; k < N_THREADS; ++k) {
        sut_context *const ctx = jobs[k].run->ctx;
        step_grads_free(jobs[k].g);
        step_close(jobs[k].run);
        sut_context_destroy(ctx);
    }
}

/* One context may be handed from thread to thread, as long as they take turns. */
static void *one_turn(void *argument)
{
    job *const j = argument;
    j->good = sut_optimizer_step(j->run->opt, j->g->pointer, NULL, NULL) == SUT_OK;
    return NULL;
}

static void a_context_changes_hands(void **state)
{
    (void)state;
    step_spec spec;
    test_random r = {43};
    problem(&spec);
    sut_context *const ctx = new_context(3), *const other = new_context(1);
    job j = {.run = step_open(ctx, &spec), .g = step_grads_new(&spec)};
    step_run *const alone = step_open(other, &spec);
    for (int t = 0; t < 6; ++t) {
        pthread_t thread;
        step_grads_conflict(j.g, &r);
        assert_int_equal(pthread_create(&thread, NULL, one_turn, &j), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(j.good);
        step_do(j.run, j.g, NULL);
        step_do(alone, j.g, NULL);
        step_do(alone, j.g, NULL);
    }
    step_assert_same(j.run, alone, "a context that changes hands");
    step_grads_free(j.g);
    step_close(alone);
    step_close(j.run);
    sut_context_destroy(other);
    sut_context_destroy(ctx);
}

/* The same run five times, on 1, 2 and 4 threads and on more than there are processors. */
static void same_run_same_bits(void **state)
{
    (void)state;
    const int threads[] = {1, 2, 4, 9};
    uint64_t first = 0;
    for (int k = 0; k < 4; ++k) {
        sut_context *const ctx = new_context(threads[k]);
        for (int again = 0; again < STEP_ROUNDS(5, 1); ++again) {
            const uint64_t hash = whole_run(ctx, STEPS);
            first = k + again == 0 ? hash : first;
            assert_true(hash == first);
        }
        sut_context_destroy(ctx);
    }
}

/* --- processes ------------------------------------------------------------------------------------------------------- */

/* Parent and child go on from the same state with the same gradients; the child tells its fingerprint through a pipe. */
static void fork_in_the_middle_of_a_run(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* the thread sanitizer does not follow threads of a forked process */
#else
    for (int n_threads = 1; n_threads <= 4; n_threads *= 2)
        for (int used = 0; used < 2; ++used) { /* forked before and after the workers were started */
            step_spec spec;
            test_random r = {44};
            problem(&spec);
            sut_context *const ctx = new_context(n_threads);
            step_run *const run = step_open(ctx, &spec);
            step_grads *const g = step_grads_new(&spec);
            if (used)
                (void)go_on(run, g, &r, 2);
            int fd[2];
            assert_int_equal(pipe(fd), 0);
            if (used)
                test_pool_before_fork(ctx->pool, n_threads);
            const pid_t child = fork();
            if (child == 0) {
                (void)alarm(60); /* a hang ends the child */
                const uint64_t hash = go_on(run, g, &r, STEPS);
                const bool told = write(fd[1], &hash, sizeof hash) == sizeof hash;
                step_grads_free(g);
                step_close(run);
                sut_context_destroy(ctx);
                _exit(told ? 0 : 1);
            }
            assert_true(child > 0);
            const uint64_t own = go_on(run, g, &r, STEPS);
            uint64_t theirs = 0;
            int status = -1;
            (void)close(fd[1]);
            assert_int_equal(read(fd[0], &theirs, sizeof theirs), sizeof theirs);
            (void)close(fd[0]);
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_int_equal(status, 0);
            assert_true(own == theirs);
            step_grads_free(g);
            step_close(run);
            sut_context_destroy(ctx);
        }
#endif
}

int main(void)
{
    (void)alarm(400);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_side_by_side),
        cmocka_unit_test(a_context_changes_hands),
        cmocka_unit_test(same_run_same_bits),
        cmocka_unit_test(fork_in_the_middle_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
