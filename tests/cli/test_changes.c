/*
 * --resume with other settings: each difference is said in a line of its own, on stderr; what the state cannot be carried
 * over to, and what makes no sense, is refused before anything is touched.
 */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT "burgers --points 200 --threads 1 --no-plots "
#define RESUME "burgers --threads 1 --no-plots --resume run/checkpoint.safetensors --out other "

static void make(const char *words)
{
    outcome o = run(SHORT "--steps 6 --out run %s", words);
    if (o.code)
        fail_msg("%s: %s", words, o.err);
    drop(&o);
}

static void every_difference_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *words, *said;
        int lines;
    } cases[] = {
        {"", "", 0},
        {"--points 200 --steps 6 --lr 1e-3 --seed 0 --losses 2 --set beta1=0.8 --set beta1=0.85", "", 0},
        {"--threads 2 --checkpoint-every 3 --json --backend cpu --time-limit 100", "", 0},
        {"--set beta1=0.5", "--set beta1=0.5 instead of the checkpoint's 0.85", 1},
        {"--set beta2=0.9", "--set beta2=0.9 instead of the default that the checkpoint was made with", 1},
        {"--lr 0.002", "--lr 0.002 instead of the checkpoint's 0.001", 1},
        {"--final-lr 1e-5", "--final-lr 1e-5 instead of the checkpoint's 0.0001", 1},
        {"--steps 9", "the rate now takes its course (cosine) over 9 steps", 2},
        {"--steps 9 --schedule constant", "--schedule constant instead of the checkpoint's cosine", 2},
        {"--points 300", "--points 300 instead of the checkpoint's 200", 1},
        {"--surgery pcgrad --align none", "--surgery pcgrad instead of the checkpoint's config", 2},
        {"--metric euclidean --rho-m 0.5 --rho-v 0", "--rho-m 0.5 instead of the checkpoint's 0.1", 3},
        {"--conflict-tol 0", "--conflict-tol 0.0 instead of the checkpoint's 1e-6", 1},
        {"--fixed-points", "--fixed-points true instead of the checkpoint's false", 1},
        {"--log-every 3 --evaluate-every 2", "--log-every 3 instead of the checkpoint's 10", 2},
        {"--warmup 2", "--warmup 2 instead of the checkpoint's 0", 1},
        {"--preset quick --time-limit 0", "--points 2500 instead of the checkpoint's 200", 4},
        {"--preset quick --points 200 --steps 6", "--lr 0.002 instead of the checkpoint's 0.001", 1},
    };
    make("--set beta1=0.85");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        outcome o = run(RESUME "%s", cases[i].words);
        if (o.code)
            fail_msg("%s: exit code %d: %s", cases[i].words, o.code, o.err);
        if (!strstr(o.err, cases[i].said) || count_of(o.err, "suture-pinn: ") != cases[i].lines)
            fail_msg("%s: expected %d lines with '%s' in: %s", cases[i].words, cases[i].lines, cases[i].said, o.err);
        drop(&o);
    }
}

/* What is said is also done: the settings are in metrics.json and in the next checkpoint. */
static void differences_are_taken(void **state)
{
    (void)state;
    make("--set beta1=0.85");
    expect(0, "beta2", RESUME "--steps 9 --lr 0.002 --set beta2=0.9");
    expect(0, NULL, "burgers --threads 1 --no-plots --resume other/checkpoint.safetensors --out third");
    static const char *const files[] = {"other/metrics.json", "third/metrics.json"};
    for (int i = 0; i < 2; i++) {
        json_t *m = read_metrics(in(files[i])), *c = json_object_get(m, "configuration"),
               *set = json_object_get(c, "set");
        assert_true(metric(m, "steps") == 9 && metric(c, "steps") == 9 && metric(c, "lr") == 0.002);
        assert_string_equal(json_string_value(json_object_get(set, "beta1")), "0.85");
        assert_string_equal(json_string_value(json_object_get(set, "beta2")), "0.9");
        json_decref(m);
    }
}

static void what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *words, *said;
    } cases[] = {
        {"--seed 1", "--seed 1: the checkpoint was made with 0, which cannot be changed"},
        {"--dtype f64", "--dtype f64: the checkpoint was made with f32, which cannot be changed"},
        {"--losses 3", "--losses 3: the checkpoint was made with 2, which cannot be changed"},
        {"--optimizer adam", "--optimizer adam: the checkpoint was made with sgd, which cannot be changed"},
        {"--set momentum=0.9", "momentum"}, /* a state that the checkpoint does not hold */
        {"--set beta1=0.9", "neither sgd nor its surgery has a setting 'beta1'"},
        {"--steps 5",
         "--steps 5: the run in run/checkpoint.safetensors has 6 steps behind it; it cannot become shorter"},
        {"--warmup 6", "--warmup 6: it must be shorter than the run of 6 steps"},
        {"--lr 0", "--lr 0: the rate at the start must be above 0"},
    };
    make("--optimizer sgd");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, RESUME "%s", cases[i].words);
        expect(2, cases[i].said, line);
    }
    assert_false(exists(in("other")));
}

/* Another processor, another rounding. */
static void other_kernels(void **state)
{
    (void)state;
    outcome version = run("version");
    const bool others = strstr(version.out, "network     avx") != NULL;
    drop(&version);
    if (!others)
        skip();
    make("");
    expect(0, "baseline kernels instead of the checkpoint's avx", RESUME "--steps 8 --isa baseline");
}

/* Without --out a run goes on where it was; a run that is in the way is replaced as a new one would replace it. */
static void where_it_goes(void **state)
{
    (void)state;
    make("");
    outcome o = run(SHORT "--steps 4 --seed 1 --out other");
    assert_int_equal(o.code, 0);
    drop(&o);
    o = run("burgers --no-plots --resume run/checkpoint.safetensors --steps 8");
    assert_int_equal(o.code, 0);
    assert_null(strstr(o.out, "replacing"));
    drop(&o);
    assert_false(exists(in("suture-pinn-burgers")));
    json_t *m = read_metrics(in("run/metrics.json"));
    assert_true(metric(m, "steps") == 8);
    json_decref(m);
    o = run(RESUME "--time-limit 0 --steps 100000");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, "replacing the run in other"));
    drop(&o);
    history h = read_history(in("other/history.csv"));
    assert_int_equal(h.n_rows, 0); /* step 8 was not due */
    drop_history(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_difference_is_said, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(differences_are_taken, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(what_is_refused, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(other_kernels, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(where_it_goes, enter_directory, leave_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
