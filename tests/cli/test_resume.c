/*
 * Runs that are cut short: by a limit, by Ctrl-C, by a terminal that goes away, by kill -9. What was there stays whole, and
 * going on gives the bits of a run that was never stopped.
 */
#include "program.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define SHORT "burgers --points 200 --threads 2 --no-plots "
/* A course of the rate that does not depend on the number of steps. */
#define ENDLESS SHORT "--schedule constant --warmup 0 --log-every 1 --checkpoint-every 5 "

static void done(const char *line)
{
    expect(0, NULL, line);
}

static void assert_same_run(const char *a, const char *b)
{
    static const char *const files[] = {"checkpoint.safetensors", "solution.csv"};
    char x[64], y[64];
    for (int i = 0; i < 2; i++) {
        snprintf(x, sizeof x, "%s/%s", a, files[i]);
        snprintf(y, sizeof y, "%s/%s", b, files[i]);
        assert_true(same_file(in(x), in(y)));
    }
    snprintf(x, sizeof x, "%s/history.csv", a);
    snprintf(y, sizeof y, "%s/history.csv", b);
    assert_true(same_history(in(x), in(y)));
    snprintf(x, sizeof x, "%s/metrics.json", a);
    snprintf(y, sizeof y, "%s/metrics.json", b);
    assert_true(same_metrics(in(x), in(y)));
}

/* Stopped after every step for a while (a time limit of 0 lets one step through), in mid-schedule, then to the end. */
static void many_short_pieces(void **state)
{
    (void)state;
    done(SHORT "--steps 120 --seed 3 --log-every 7 --out whole");
    done(SHORT "--steps 120 --seed 3 --log-every 7 --time-limit 0 --out pieces");
    for (int i = 0; i < 8; i++)
        done(SHORT "--resume pieces/checkpoint.safetensors --time-limit 0 --out pieces");
    done(SHORT "--resume pieces/checkpoint.safetensors --out pieces");
    assert_same_run("whole", "pieces");
}

/*
 * Into a directory of its own, with more steps than planned. The first part ended with an evaluation and a row that may not
 * have been due: the kept parameters, the history and the scores are those of a run that did not end there.
 */
static void further_and_elsewhere(void **state)
{
    (void)state;
    static const struct {
        const char *every;
        int first;
    } cases[] = {{"--evaluate-every 4 --log-every 1", 12},
                 {"--evaluate-every 50 --log-every 1", 12},
                 {"--evaluate-every 4 --log-every 5", 13},
                 {"--evaluate-every 7 --log-every 5", 15},
                 {"--evaluate-every 3 --log-every 5", 12}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "--steps 20 instead of the checkpoint's %d", cases[i].first);
        outcome o = run(ENDLESS "%s --steps 20 --out whole", cases[i].every);
        assert_int_equal(o.code, 0);
        drop(&o);
        o = run(ENDLESS "%s --steps %d --out first", cases[i].every, cases[i].first);
        assert_int_equal(o.code, 0);
        drop(&o);
        history h = read_history(in("first/history.csv"));
        assert_true(cell(&h, h.n_rows - 1, "step") == cases[i].first && cell(&h, h.n_rows - 1, "relative_l2") > 0);
        drop_history(&h);
        expect(0, expected, SHORT "--resume first/checkpoint.safetensors --steps 20 --checkpoint-every 5 --out second");
        assert_same_run("whole", "second");
    }
}

/*
 * A run whose network is at its best where its first part ended, which a run that never ended there does not look at. Six
 * times the rate from there on, and the network only gets worse.
 */
static void last_parameters_are_no_candidates(void **state)
{
    (void)state;
    done(ENDLESS "--steps 5 --out first");
    expect(0, "--lr", SHORT "--resume first/checkpoint.safetensors --steps 9 --lr 10 --out second");
    json_t *m = read_metrics(in("second/metrics.json"));
    assert_true(metric(m, "best_step") == 9 && metric(m, "relative_l2") == metric(m, "relative_l2_final"));
    json_decref(m);
}

/* A run that is done is left as it was, in place and elsewhere. */
static void nothing_left_to_do(void **state)
{
    (void)state;
    static const char *const lines[] = {SHORT "--resume run/checkpoint.safetensors --out other",
                                        SHORT "--resume run/checkpoint.safetensors --steps 23 --out run",
                                        SHORT "--resume other/checkpoint.safetensors"}; /* into other */
    done(SHORT "--steps 23 --log-every 4 --out run");
    done(SHORT "--steps 23 --log-every 4 --out first");
    for (int i = 0; i < 3; i++) {
        outcome o = run("%s", lines[i]);
        assert_int_equal(o.code, 0);
        assert_non_null(strstr(o.out, "going on after step 23"));
        assert_null(strstr(o.out, "nan"));
        assert_string_equal(o.err, "");
        drop(&o);
        assert_same_run("first", i == 1 ? "run" : "other");
    }
    assert_false(exists(in("suture-pinn-burgers")));
}

/* Wait until the checkpoint has been replaced twice: the run is under way. */
static void wait_for_checkpoints(pid_t process, const char *path)
{
    ino_t last = 0;
    for (int seen = 0; seen < 3;) {
        struct stat info;
        if (stat(path, &info) == 0 && info.st_ino != last) {
            last = info.st_ino;
            seen++;
        }
        int status;
        if (waitpid(process, &status, WNOHANG) != 0)
            fail_msg("the run ended by itself");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* The step of the last row; rows may be torn, as the program may have died while it wrote. */
static long last_step(const char *path)
{
    char *const text = contents(path, NULL);
    assert_non_null(text);
    long step = 0;
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const long value = strtol(line, NULL, 10);
        step = value > step ? value : step;
    }
    free(text);
    return step;
}

static void finish_and_compare(long steps)
{
    outcome o = run(SHORT "--resume cut/checkpoint.safetensors --steps %ld --out cut", steps);
    if (o.code)
        fail_msg("resume: %s", o.err);
    assert_non_null(strstr(o.out, "going on after step"));
    drop(&o);
    o = run(ENDLESS "--steps %ld --out whole", steps);
    assert_int_equal(o.code, 0);
    drop(&o);
    assert_same_run("whole", "cut");
}

static void killed(void **state)
{
    (void)state;
    const pid_t process = start(&(limits){0}, ENDLESS "--steps 1000000 --out cut");
    wait_for_checkpoints(process, in("cut/checkpoint.safetensors"));
    kill(process, SIGKILL);
    outcome o = finish(process);
    assert_int_equal(o.code, 128 + SIGKILL);
    drop(&o);
    assert_false(exists(in("cut/metrics.json")));
    finish_and_compare(last_step(in("cut/history.csv")) + 20);
}

static void interrupted(void **state)
{
    (void)state;
    const pid_t process = start(&(limits){0}, ENDLESS "--steps 1000000 --out cut");
    wait_for_checkpoints(process, in("cut/checkpoint.safetensors"));
    kill(process, SIGINT);
    outcome o = finish(process);
    assert_int_equal(o.code, 128 + SIGINT);
    const char *const said = strstr(o.out, "interrupted after step ");
    assert_non_null(said);
    const long step = strtol(said + strlen("interrupted after step "), NULL, 10);
    assert_true(step > 0 && strstr(said, "--resume cut/checkpoint.safetensors") != NULL);
    drop(&o);
    json_t *m = read_metrics(in("cut/metrics.json"));
    assert_string_equal(json_string_value(json_object_get(m, "stop_reason")), "signal");
    assert_true(metric(m, "steps") == (double)step);
    json_decref(m);
    assert_int_equal(last_step(in("cut/history.csv")), step); /* every row is on the disk */
    finish_and_compare(step + 20);
}

/* A terminal that goes away ends a run like Ctrl-C, unless nohup said otherwise. */
static void hung_up(void **state)
{
    (void)state;
    pid_t process = start(&(limits){0}, ENDLESS "--steps 1000000 --out cut");
    wait_for_checkpoints(process, in("cut/checkpoint.safetensors"));
    kill(process, SIGHUP);
    outcome o = finish(process);
    assert_int_equal(o.code, 128 + SIGHUP);
    assert_non_null(strstr(o.out, "interrupted after step"));
    drop(&o);
    process = start(&(limits){.no_hangup = true}, ENDLESS "--steps 1000000 --out held");
    wait_for_checkpoints(process, in("held/checkpoint.safetensors"));
    kill(process, SIGHUP);
    kill(process, SIGTERM);
    o = finish(process);
    assert_int_equal(o.code, 128 + SIGTERM);
    drop(&o);
}

static void damaged_and_foreign_files(void **state)
{
    (void)state;
    done(SHORT "--steps 3 --out run");
    size_t size = 0;
    char *const good = contents(in("run/checkpoint.safetensors"), &size);
    assert_non_null(good);
    static const char *const line = SHORT "--resume bad --out run";
    expect(1, "--resume bad: No such file", line);
    write_bytes(in("bad"), good, 0);
    expect(1, "--resume bad: not a checkpoint of suture-pinn", line);
    write_bytes(in("bad"), good, 5);
    expect(1, "not a checkpoint of suture-pinn", line);
    write_bytes(in("bad"), "step,seconds\n1,2\n", 17);
    expect(1, "not a checkpoint of suture-pinn", line);
    write_bytes(in("bad"), good, size - 1); /* the header is whole */
    expect(1, "--resume bad: ", line);
    good[size - 1000] ^= 4; /* one bit of a tensor */
    write_bytes(in("bad"), good, size);
    expect(1, "--resume bad: ", line);
    good[size - 1000] ^= 4;
    char empty[10] = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'}; /* a safetensors file of something else */
    write_bytes(in("bad"), empty, sizeof empty);
    expect(1, "not a checkpoint of suture-pinn", line);
    expect(1, NULL, SHORT "--resume run --out run"); /* a directory */

    char *const method = strstr(good + 8, "\\\"surgery\\\":\\\"config"); /* in the header: the user made no mistake */
    assert_non_null(method);
    method[14] = 'k';
    write_bytes(in("bad"), good, size);
    expect(1, "--resume bad: a damaged checkpoint", line);
    method[14] = 'c';
    write_bytes(in("good"), good, size);
    assert_true(same_file(in("good"), in("run/checkpoint.safetensors"))); /* no refusal touched the run */
    free(good);
}

static void loss_that_is_not_finite(void **state)
{
    (void)state;
    outcome o = run(SHORT "--steps 50 --optimizer sgd --surgery sum --align none --schedule constant --warmup 0 "
                          "--lr 1e30 --out run");
    assert_int_equal(o.code, 1);
    assert_non_null(strstr(o.err, "step "));
    assert_non_null(strstr(o.err, "run/checkpoint.safetensors holds the last good state"));
    drop(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_short_pieces, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(further_and_elsewhere, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(last_parameters_are_no_candidates, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(nothing_left_to_do, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(killed, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(interrupted, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(damaged_and_foreign_files, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(hung_up, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(loss_that_is_not_finite, enter_directory, leave_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
