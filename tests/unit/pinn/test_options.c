/*
 * The command line: defaults of the protocol, what follows from what, and the configuration's way into a checkpoint and
 * back. Messages are tested from outside (tests/cli).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "options.h"

#include "suture/schedule.h"

#include <stdio.h>
#include <string.h>

/* Parse the words of one line; returns the code. */
static int parse(pinn_options *o, const char *line)
{
    static char text[512]; /* options borrow it */
    char *argv[40] = {"suture-pinn"};
    int argc = 1;
    snprintf(text, sizeof text, "%s", line);
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    return pinn_options_parse(o, argc, argv);
}

static void defaults_are_the_protocol(void **state)
{
    (void)state;
    pinn_options o;
    assert_int_equal(parse(&o, "burgers"), 0);
    assert_true(o.command == PINN_RUN && o.steps == 30000 && o.points == 10000 && o.losses == 2 && o.seed == 0);
    assert_true(o.lr == 1e-3 && o.final_lr == 1e-4 && o.warmup == 100 && o.rho_m == 0.1 && o.rho_v == 0.03);
    assert_true(o.conflict_tol == 1e-6 && o.dtype == NET_F32 && o.evaluate_every == 100 && !o.fixed_points);
    assert_true(o.optimizer == SUT_OPTIMIZER_ADAM && o.surgery == SUT_SURGERY_CONFIG && o.align == SUT_ALIGN_GUA);
    assert_true(o.schedule == SUT_SCHEDULE_COSINE && o.metric == SUT_METRIC_NATURAL);
}

static void what_follows_from_what(void **state)
{
    (void)state;
    pinn_options o;
    assert_int_equal(parse(&o, "burgers --steps 250"), 0);
    assert_true(o.warmup == 2);
    assert_int_equal(parse(&o, "burgers --steps 99"), 0);
    assert_true(o.warmup == 0);
    assert_int_equal(parse(&o, "--lr 2e-3 burgers --lr=5e-3"), 0); /* the last one counts */
    assert_true(o.lr == 5e-3 && o.final_lr == 5e-3 * (1e-4 / 1e-3));
    assert_int_equal(parse(&o, "burgers --preset quick"), 0);
    assert_true(o.steps == o.problem->quick.steps && o.points == o.problem->quick.points);
    assert_true(o.lr == o.problem->quick.lr && o.final_lr == o.problem->quick.final_lr);
    assert_int_equal(parse(&o, "burgers --preset quick --steps 7 --points 9 --lr 1 --final-lr 2"), 0);
    assert_true(o.steps == 7 && o.points == 9 && o.lr == 1 && o.final_lr == 2);
    assert_int_equal(parse(&o, "burgers --set beta1=0.8 --set eps=1e-6 --set beta1=0.7"), 0);
    assert_true(o.n_settings == 2 && !strcmp(o.settings[0].value, "0.7"));
}

static void commands(void **state)
{
    (void)state;
    pinn_options o;
    assert_int_equal(parse(&o, "list"), 0);
    assert_int_equal(o.command, PINN_LIST);
    assert_int_equal(parse(&o, "plot DIR"), 0);
    assert_true(o.command == PINN_PLOT && !strcmp(o.directory, "DIR"));
    assert_int_equal(parse(&o, "version"), 0);
    assert_int_equal(o.command, PINN_VERSION);
    assert_int_equal(parse(&o, "burgers --steps 3 --help"), 0);
    assert_int_equal(o.command, PINN_HELP);
}

static void refusals(void **state)
{
    (void)state;
    static const char *const lines[] = {"",
                                        "burger",
                                        "burgers two",
                                        "plot",
                                        "plot a b",
                                        "burgers --nonsense",
                                        "burgers --seed",
                                        "burgers --json=1",
                                        "burgers -x",
                                        "burgers --seed -1",
                                        "burgers --seed 1.5",
                                        "burgers --seed 1e3",
                                        "burgers --steps 0",
                                        "burgers --points 0",
                                        "burgers --lr nan",
                                        "burgers --lr -1",
                                        "burgers --lr 1x",
                                        "burgers --rho-m 1.01",
                                        "burgers --losses 4",
                                        "burgers --threads 0",
                                        "burgers --steps 10 --warmup 10",
                                        "burgers --dtype f16",
                                        "burgers --set beta1",
                                        "burgers --set =1"};
    pinn_options o;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (parse(&o, lines[i]) != PINN_EXIT_USAGE)
            fail_msg("not refused: %s", lines[i]);
}

/* A run that goes on has the configuration of the one it continues, but for what the command line says. */
static void configuration_survives(void **state)
{
    (void)state;
    pinn_options first, second;
    assert_int_equal(parse(&first, "burgers --surgery pcgrad --lr 0.0123456789 --steps 77 --points 321 --seed 5 "
                                   "--fixed-points --set beta1=0.7 --warmup 3 --dtype f64 --final-lr 3e-5"),
                     0);
    json_t *configuration = pinn_options_configuration(&first);
    char *dump = json_dumps(configuration, JSON_REAL_PRECISION(17));
    json_decref(configuration);
    configuration = json_loads(dump, 0, NULL);
    assert_int_equal(parse(&second, "burgers --resume FILE"), 0);
    assert_int_equal(pinn_options_continue(&second, configuration), 0);
    json_t *again = pinn_options_configuration(&second);
    json_t *expected = json_loads(dump, 0, NULL);
    assert_true(json_equal(again, expected));
    json_decref(again);

    assert_int_equal(parse(&second, "burgers --resume FILE --steps 99 --set beta1=0.6 --align none"), 0);
    assert_int_equal(pinn_options_continue(&second, configuration), 0);
    assert_true(second.steps == 99 && second.align == SUT_ALIGN_NONE && !strcmp(second.settings[0].value, "0.6"));
    assert_true(second.lr == first.lr && second.surgery == first.surgery && second.points == 321);

    static const char *const fixed[] = {"--dtype f32", "--seed 6", "--losses 3", "--optimizer sgd"};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "burgers --resume FILE %s", fixed[i]);
        assert_int_equal(parse(&second, line), 0);
        assert_int_equal(pinn_options_continue(&second, configuration), PINN_EXIT_USAGE);
    }
    json_object_set_new(configuration, "problem", json_string("heat"));
    assert_int_equal(parse(&second, "burgers --resume FILE"), 0);
    assert_int_equal(pinn_options_continue(&second, configuration), PINN_EXIT_USAGE);
    json_decref(configuration);
    json_decref(expected);
    free(dump);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_protocol),
        cmocka_unit_test(what_follows_from_what),
        cmocka_unit_test(commands),
        cmocka_unit_test(refusals),
        cmocka_unit_test(configuration_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
