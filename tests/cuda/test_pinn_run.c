/*
 * suture-pinn --backend cuda on the execution layer, from outside: a short run against the same one on the CPU, state files
 * that go from one back end to the other, and what is left where CUDA is missing.
 */
#include "program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHORT "burgers --points 40 --threads 2 --no-plots --log-every 1 "

static json_t *run_of(const char *line, const char *metrics)
{
    outcome o = run("%s", line);
    if (o.code)
        fail_msg("suture-pinn %s: exit code %d: %s", line, o.code, o.err);
    drop(&o);
    return read_metrics(in(metrics));
}

/* In f64 rounding errors of 1e-13 or so are all that five steps can differ by. */
static void as_on_the_cpu(void **state)
{
    (void)state;
    json_t *cpu = run_of(SHORT "--dtype f64 --losses 3 --steps 5 --backend cpu --out cpu", "cpu/metrics.json");
    json_t *cuda = run_of(SHORT "--dtype f64 --losses 3 --steps 5 --backend cuda --out cuda", "cuda/metrics.json");
    assert_string_equal(json_string_value(json_object_get(cpu, "backend")), "cpu");
    assert_string_equal(json_string_value(json_object_get(cuda, "backend")), "cuda");
    assert_true(json_is_null(json_object_get(cuda, "isa")));
    static const char *const same[] = {"relative_l2", "mse",           "relative_l2_final",
                                       "steps",       "steps_counted", "best_step"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        const double a = metric(cpu, same[i]), b = metric(cuda, same[i]);
        if (!(fabs(a - b) <= 1e-9 * fabs(a)))
            fail_msg("%s: %.17g on the CPU, %.17g with CUDA", same[i], a, b);
    }
    assert_true(json_equal(json_object_get(cpu, "configuration"), json_object_get(cuda, "configuration")));
    json_decref(cpu);
    json_decref(cuda);
    history a = read_history(in("cpu/history.csv")), b = read_history(in("cuda/history.csv"));
    assert_int_equal(a.n_rows, 5);
    assert_int_equal(b.n_rows, 5);
    static const char *const columns[] = {"lr", "total", "loss_interior", "loss_boundary", "loss_initial"};
    for (int row = 0; row < 5; row++)
        for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
            const double x = cell(&a, row, columns[i]), y = cell(&b, row, columns[i]);
            if (!(fabs(x - y) <= 1e-8 * fabs(x)))
                fail_msg("row %d, %s: %.10g on the CPU, %.10g with CUDA", row, columns[i], x, y);
        }
    drop_history(&a);
    drop_history(&b);
}

/* Begun on one back end, ended on the other. */
static void state_files_are_the_same(void **state)
{
    (void)state;
    json_decref(run_of(SHORT "--schedule constant --steps 4 --backend cpu --out whole", "whole/metrics.json"));
    json_t *whole = read_metrics(in("whole/metrics.json"));
    static const char *const order[2][2] = {{"cpu", "cuda"}, {"cuda", "cpu"}};
    for (int i = 0; i < 2; i++) {
        outcome o = run(SHORT "--schedule constant --steps 2 --backend %s --out part", order[i][0]);
        assert_int_equal(o.code, 0);
        drop(&o);
        o = run("burgers --resume %s --steps 4 --threads 2 --no-plots --backend %s", in("part/checkpoint.safetensors"),
                order[i][1]);
        if (o.code)
            fail_msg("from %s to %s: %s", order[i][0], order[i][1], o.err);
        assert_non_null(strstr(o.err, "results differ by rounding errors"));
        drop(&o);
        json_t *part = read_metrics(in("part/metrics.json"));
        assert_true(metric(part, "steps") == 4);
        assert_true(fabs(metric(part, "relative_l2_final") - metric(whole, "relative_l2_final")) <= 1e-4);
        json_decref(part);
    }
    json_decref(whole);
}

static void same_bits_again(void **state)
{
    (void)state;
    json_decref(run_of(SHORT "--steps 3 --backend cuda --out a", "a/metrics.json"));
    json_decref(run_of(SHORT "--steps 3 --backend cuda --threads 1 --out b", "b/metrics.json"));
    assert_true(same_file(in("a/checkpoint.safetensors"), in("b/checkpoint.safetensors")));
    assert_true(same_file(in("a/solution.csv"), in("b/solution.csv")));
}

/* Each library may be missing. */
static void nothing_is_written(void **state)
{
    (void)state;
    static const char *const variables[] = {"SUTURE_CUDA_LIBRARY", "SUTURE_PINN_CUDA_LIBRARY"};
    for (int i = 0; i < 2; i++) {
        char before[1024];
        snprintf(before, sizeof before, "%s", getenv(variables[i]));
        setenv(variables[i], "/nonexistent.so", 1);
        expect(2, variables[i], "burgers --backend cuda --out run");
        expect(2, "/nonexistent.so", "burgers --backend cuda --out run");
        expect(2, "--backend cpu runs without", "burgers --backend cuda --out run");
        setenv(variables[i], before, 1);
    }
    assert_false(exists(in("run")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(as_on_the_cpu, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(state_files_are_the_same, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(same_bits_again, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(nothing_is_written, enter_directory, leave_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
