/*
 * Disks that are full, directories that are taken, a standard output that takes nothing: exit code 1 and a sentence. What
 * was there stays whole, and no temporary file is left behind.
 */
#include "program.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define SHORT "burgers --points 200 --threads 1 --no-plots "

static void done(const char *line)
{
    expect(0, NULL, line);
}

/* Files that cannot grow, as on a full disk. A checkpoint takes 0.17 MB, solution.csv more than 1 MB. */
static void full_disk(void **state)
{
    (void)state;
    outcome o = run_limited(&(limits){.file_size = 50000}, SHORT "--steps 20 --out full");
    assert_int_equal(o.code, 1);
    assert_non_null(strstr(o.err, "checkpoint.safetensors"));
    assert_false(exists(in("full/checkpoint.safetensors")) || exists(in("full/history.csv")));
    assert_int_equal(leftovers(in("full")), 0);
    drop(&o);

    done(SHORT "--steps 20 --time-limit 0 --out run");
    size_t size = 0;
    char *const before = contents(in("run/checkpoint.safetensors"), &size);
    assert_non_null(before);
    o = run_limited(&(limits){.file_size = 50000}, SHORT "--resume run/checkpoint.safetensors --out run");
    assert_int_equal(o.code, 1);
    drop(&o);
    write_bytes(in("before"), before, size);
    free(before);
    assert_true(same_file(in("before"), in("run/checkpoint.safetensors")));
    assert_int_equal(leftovers(in("run")), 0);
    done(SHORT "--resume run/checkpoint.safetensors --out run");
    done(SHORT "--steps 20 --out whole");
    assert_true(same_file(in("whole/checkpoint.safetensors"), in("run/checkpoint.safetensors")));
    assert_true(same_history(in("whole/history.csv"), in("run/history.csv")));

    o = run_limited(&(limits){.file_size = 600000}, SHORT "--steps 2 --out results");
    assert_int_equal(o.code, 1);
    assert_non_null(strstr(o.err, "solution.csv"));
    assert_true(exists(in("results/checkpoint.safetensors")));
    assert_false(exists(in("results/solution.csv")));
    assert_int_equal(leftovers(in("results")), 0);
    drop(&o);
}

/* A new run replaces what is there only when its checkpoint has found its place. */
static void full_disk_under_an_old_run(void **state)
{
    (void)state;
    static const char *const files[] = {"checkpoint.safetensors", "history.csv", "metrics.json", "solution.csv"};
    done(SHORT "--steps 20 --out run");
    done(SHORT "--steps 20 --out same");
    outcome o = run_limited(&(limits){.file_size = 50000}, SHORT "--steps 20 --seed 1 --out run");
    assert_int_equal(o.code, 1);
    drop(&o);
    for (int i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof path, "run/%s", files[i]);
        assert_true(exists(in(path)));
    }
    assert_true(same_file(in("same/checkpoint.safetensors"), in("run/checkpoint.safetensors")));
    assert_true(same_history(in("same/history.csv"), in("run/history.csv")));
    assert_int_equal(leftovers(in("run")), 0);
}

/* The run goes on to its end, but it is no success. */
static void full_standard_output(void **state)
{
    (void)state;
    static const char *const lines[] = {SHORT "--steps 2 --out run", SHORT "--steps 2 --json --out run", "list",
                                        "version", "--help"};
    for (int i = 0; i < 5; i++) {
        if (exists("/dev/full")) {
            outcome o = run_limited(&(limits){.stdout_to = "/dev/full"}, "%s", lines[i]);
            assert_int_equal(o.code, 1);
            assert_int_equal(count_of(o.err, "suture-pinn: standard output: "), 1);
            drop(&o);
        }
        outcome o = run_limited(&(limits){.no_stdout = true}, "%s", lines[i]);
        assert_int_equal(o.code, 1);
        assert_int_equal(count_of(o.err, "suture-pinn: standard output: "), 1);
        drop(&o);
        if (i > 1)
            continue;
        json_t *m = read_metrics(in("run/metrics.json"));
        assert_true(metric(m, "steps") == 2);
        json_decref(m);
        history h = read_history(in("run/history.csv")); /* no line of the standard output's got into it */
        assert_true(h.n_rows == 1 && cell(&h, 0, "step") == 2);
        drop_history(&h);
        assert_int_equal(remove(in("run/metrics.json")), 0);
    }
}

/* gnuplot itself ends with 0 when a picture does not fit. */
static void full_disk_for_pictures(void **state)
{
    (void)state;
    if (system("gnuplot --version >/dev/null 2>&1") != 0)
        skip();
    done(SHORT "--steps 5 --out run");
    outcome o = run_limited(&(limits){.file_size = 8192}, "plot run");
    assert_int_equal(o.code, 1);
    assert_non_null(strstr(o.err, "run/solution.png: gnuplot did not write it whole"));
    assert_null(strstr(o.out, "pictures:"));
    assert_false(exists(in("run/solution.png")));
    drop(&o);
    o = run_limited(&(limits){.file_size = 1000}, "plot run");
    assert_int_equal(o.code, 1);
    assert_non_null(strstr(o.err, "plots.gnuplot: File too large"));
    assert_false(exists(in("run/plots.gnuplot")));
    drop(&o);
}

/* Two runs in one directory would write one history. */
static void taken_directory(void **state)
{
    (void)state;
    const pid_t process = start(&(limits){0}, SHORT "--steps 1000000 --checkpoint-every 1 --out run");
    for (int i = 0; i < 10000 && !exists(in("run/checkpoint.safetensors")); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    char *const out = contents(in(".out"), NULL);
    outcome o = run_limited(&(limits){.stdout_to = "/dev/null"}, SHORT "--steps 1 --out run");
    assert_int_equal(o.code, 1);
    assert_non_null(strstr(o.err, "--out run: another run is at work there"));
    drop(&o);
    kill(process, SIGTERM);
    o = finish(process);
    assert_int_equal(o.code, 128 + SIGTERM);
    drop(&o);
    free(out);
    done(SHORT "--steps 1 --out run");
}

/* Directories that cannot be made. The tests may run as root, to whom permissions do not apply. */
static void unwritable_directories(void **state)
{
    (void)state;
    write_bytes(in("file"), "x", 1);
    expect(1, "--out file/run: Not a directory", "burgers --steps 1 --out file/run");
    expect(1, "--out file: Not a directory", "burgers --steps 1 --out file");
    expect(1, "--out /proc/no", "burgers --steps 1 --out /proc/no/where");
    expect(1, "/proc/history.csv.new", "burgers --steps 1 --out /proc");
    assert_int_equal(mkdir(in("a"), 0777), 0);
    assert_int_equal(mkdir(in("a/checkpoint.safetensors"), 0777), 0);
    expect(1, "checkpoint.safetensors cannot be replaced: it is a directory", "burgers --steps 1 --out a");
    assert_int_equal(leftovers(in("a")), 0);
    expect(2, "--out: the path is empty", "burgers --steps 1 --out=");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(full_disk, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(full_disk_under_an_old_run, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(full_standard_output, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(full_disk_for_pictures, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(taken_directory, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(unwritable_directories, enter_directory, leave_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
