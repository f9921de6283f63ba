/* What a run leaves: metrics, history, pictures; and that it is a function of its seed. */
#include "program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT "burgers --points 300 --threads 2 "

static const char *const rates[] = {"r_g", "r_g_pair", "r_a", "r_u", "projected_rate"};

static void metrics_are_complete(void **state)
{
    (void)state;
    outcome o = run(SHORT "--steps 130 --out run --no-plots");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, "relative L2 error"));
    json_t *m = read_metrics(in("run/metrics.json"));
    assert_string_equal(json_string_value(json_object_get(m, "format")), "suture-pinn-metrics/1");
    assert_string_equal(json_string_value(json_object_get(m, "problem")), "burgers");
    assert_string_equal(json_string_value(json_object_get(m, "stop_reason")), "steps");
    const double l2 = metric(m, "relative_l2"), last = metric(m, "relative_l2_final");
    assert_true(l2 > 0 && l2 <= last && last < 2);
    assert_true(metric(m, "mse") == metric(m, "selection_mse"));
    assert_true(metric(m, "best_step") == 100 || metric(m, "best_step") == 130);
    assert_true(metric(m, "steps") == 130 && metric(m, "steps_counted") == 129); /* the first has rate 0 */
    assert_true(metric(m, "evaluation_points") == 25600 && metric(m, "seconds") > 0);
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        assert_true(metric(m, rates[i]) >= 0 && metric(m, rates[i]) <= 1);
    assert_true(metric(m, "r_p") == 0); /* what alignment promises */
    assert_true(metric(m, "r_g") == metric(m, "r_g_pair"));
    json_t *losses = json_object_get(m, "losses"), *configuration = json_object_get(m, "configuration");
    assert_true(metric(losses, "interior") > 0 && metric(losses, "boundary_initial") > 0);
    static const char *const keys[] = {"optimizer", "surgery", "align",    "losses",  "dtype", "steps",
                                       "points",    "seed",    "lr",       "warmup",  "rho-m", "rho-v",
                                       "schedule",  "metric",  "final-lr", "problem", "set",   "fixed-points"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!json_object_get(configuration, keys[i]))
            fail_msg("metrics.json: the configuration has no %s", keys[i]);
    json_decref(m);
    assert_true(exists(in("run/checkpoint.safetensors")) && exists(in("run/solution.csv")));
    drop(&o);
}

static void without_alignment(void **state)
{
    (void)state;
    outcome o = run(SHORT "--steps 20 --align none --losses 3 --out run --no-plots");
    assert_int_equal(o.code, 0);
    json_t *m = read_metrics(in("run/metrics.json"));
    assert_true(json_is_null(json_object_get(m, "r_p")) && metric(m, "projected_rate") == 0);
    assert_int_equal(json_object_size(json_object_get(m, "losses")), 3);
    json_decref(m);
    drop(&o);
}

/* The rate of every step, by the formula of the protocol; the sums and shares in each row. */
static void history_follows_the_schedule(void **state)
{
    (void)state;
    outcome o = run(SHORT "--steps 250 --log-every 1 --evaluate-every 50 --out run --no-plots");
    assert_int_equal(o.code, 0);
    history h = read_history(in("run/history.csv"));
    assert_string_equal(h.cells[0], "step");
    assert_int_equal(h.n_rows, 250);
    for (int k = 0; k < 250; k++) {
        const double e = 250, w = 2;
        const double cosine = 1e-4 + (1e-3 - 1e-4) * 0.5 * (1 + cos(M_PI * (k - w) / (e - w)));
        assert_true(cell(&h, k, "step") == k + 1);
        assert_true(fabs(cell(&h, k, "lr") - (k < w ? 1e-3 * k / w : cosine)) < 1e-12);
        const double interior = cell(&h, k, "loss_interior"), data = cell(&h, k, "loss_boundary_initial");
        assert_true(fabs(cell(&h, k, "total") - interior - data) <= 1e-8 * (interior + data));
        assert_true(fabs(data - (cell(&h, k, "term_boundary") + cell(&h, k, "term_initial")) / 2) <= 1e-8 * data);
        assert_true(k == 0 || cell(&h, k, "seconds") >= cell(&h, k - 1, "seconds"));
        assert_true(isnan(cell(&h, k, "relative_l2")) == ((k + 1) % 50 != 0));
        if (k == 0)
            assert_true(isnan(cell(&h, 0, "conflict_g"))); /* rate 0: no step was counted */
        else
            assert_true(cell(&h, k, "conflict_p") == 0 && cell(&h, k, "cos_p_interior") >= -1e-6);
    }
    drop_history(&h);
    drop(&o);
}

/* The step with rate 0 moves nothing. */
static void first_step_stands_still(void **state)
{
    (void)state;
    outcome o = run(SHORT "--steps 100 --time-limit 0 --out one --no-plots");
    assert_int_equal(o.code, 0);
    drop(&o);
    o = run(SHORT "--steps 1 --lr 1e-300 --out zero --no-plots");
    assert_int_equal(o.code, 0);
    drop(&o);
    json_t *one = read_metrics(in("one/metrics.json")), *zero = read_metrics(in("zero/metrics.json"));
    assert_string_equal(json_string_value(json_object_get(one, "stop_reason")), "time-limit");
    assert_true(metric(one, "steps") == 1 && metric(one, "steps_counted") == 0);
    assert_true(json_is_null(json_object_get(one, "r_u")));
    assert_true(metric(one, "relative_l2") == metric(zero, "relative_l2"));
    json_decref(one);
    json_decref(zero);
}

static void same_seed_same_bits(void **state)
{
    (void)state;
    static const char *const lines[] = {"--seed 7 --threads 1 --out a", "--seed 7 --threads 3 --out b",
                                        "--seed 8 --threads 1 --out c"};
    for (int i = 0; i < 3; i++) {
        outcome o = run("burgers --points 2000 --steps 30 --no-plots %s", lines[i]);
        assert_int_equal(o.code, 0);
        drop(&o);
    }
    assert_true(same_file(in("a/checkpoint.safetensors"), in("b/checkpoint.safetensors")));
    assert_true(same_file(in("a/solution.csv"), in("b/solution.csv")));
    assert_true(same_history(in("a/history.csv"), in("b/history.csv")));
    assert_false(same_file(in("a/checkpoint.safetensors"), in("c/checkpoint.safetensors")));
    assert_false(same_history(in("a/history.csv"), in("c/history.csv")));
}

static void json_and_nothing_else(void **state)
{
    (void)state;
    outcome o = run(SHORT "--steps 5 --json --out run");
    assert_int_equal(o.code, 0);
    json_t *printed = json_loads(o.out, JSON_REJECT_DUPLICATES, NULL);
    json_t *written = read_metrics(in("run/metrics.json"));
    assert_non_null(printed);
    assert_true(json_equal(printed, written));
    json_decref(printed);
    json_decref(written);
    drop(&o);
}

/* Where gnuplot is installed the pictures are PNG files; where it is not, the run says so and is no failure. */
static void pictures(void **state)
{
    (void)state;
    static const char *const names[] = {"solution", "reference", "error", "losses", "conflicts"};
    outcome o = run_limited(&(limits){.path = "/nonexistent"}, SHORT "--steps 5 --out run");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, "no pictures: gnuplot"));
    assert_false(exists(in("run/solution.png")));
    drop(&o);
    o = run_limited(&(limits){.path = "/nonexistent"}, "plot run"); /* where they were asked for it is one */
    assert_int_equal(o.code, 1);
    assert_non_null(strstr(o.err, "plot: gnuplot: No such file or directory; install gnuplot"));
    drop(&o);
    if (system("gnuplot --version >/dev/null 2>&1") != 0)
        return;
    o = run("plot run");
    if (o.code)
        fail_msg("plot: %s", o.err);
    assert_string_equal(o.err, "");
    for (int i = 0; i < 5; i++) {
        char path[64];
        snprintf(path, sizeof path, "run/%s.png", names[i]);
        size_t size = 0;
        char *bytes = contents(in(path), &size);
        assert_non_null(bytes);
        assert_true(size > 1000 && !memcmp(bytes, "\x89PNG\r\n\x1a\n", 8));
        free(bytes);
    }
    drop(&o);
}

/* Other methods, types and ways to stop, each a few steps. */
static void other_settings(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "--dtype f64 --losses 3 --surgery upgrad",
        "--optimizer sgd --lr 1e-3 --set momentum=0.9 --surgery sum",
        "--optimizer lion --surgery imtlg --schedule wsd",
        "--surgery aligned_mtl --set aligned_scale=median --metric euclidean",
        "--surgery fixed --set preference=1,10 --align none --schedule linear",
        "--fixed-points --isa baseline --target-loss 1e9",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        outcome o = run(SHORT "--steps 6 --out run --no-plots %s", lines[i]);
        if (o.code)
            fail_msg("%s: %s", lines[i], o.err);
        drop(&o);
    }
    json_t *m = read_metrics(in("run/metrics.json"));
    assert_string_equal(json_string_value(json_object_get(m, "stop_reason")), "target-loss");
    assert_true(metric(m, "steps") == 1);
    json_decref(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(metrics_are_complete, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(without_alignment, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(history_follows_the_schedule, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(first_step_stands_still, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(same_seed_same_bits, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(json_and_nothing_else, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(pictures, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(other_settings, enter_directory, leave_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
