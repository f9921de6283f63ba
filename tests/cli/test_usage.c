/* Misuse: exit code 2 and a sentence that names what was given and what is there; nothing is left behind. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

static void words(void **state)
{
    (void)state;
    expect(2, "which problem?", "");
    expect(2, "did you mean burgers?", "burgars");
    expect(2, "did you mean list?", "lisp");
    expect(2, "there is no problem 'navier'; known are burgers", "navier");
    expect(2, "'two' is one word too many", "burgers two");
    expect(2, "which directory?", "plot");
    expect(1, "nowhere/metrics.json", "plot nowhere");
    expect(2, "list takes no options; --steps is one of a run", "list --steps 3");
    expect(2, "plot takes no options; --out is one of a run", "plot run --out run");
}

static void options(void **state)
{
    (void)state;
    expect(2, "--surgary; did you mean surgery?", "burgers --surgary config");
    expect(2, "--seed needs a value", "burgers --seed");
    expect(2, "--json takes no value", "burgers --json=yes");
    expect(2, "unknown option -q", "burgers -q");
    expect(2, "--surgery: there is no 'cofnig'; did you mean config?", "burgers --surgery cofnig");
    expect(2, "--surgery: there is no 'x'; known are sum", "burgers --surgery x");
    expect(2, "--optimizer: there is no 'adan'; did you mean adam?", "burgers --optimizer adan");
    expect(2, "--align: there is no 'yes'", "burgers --align yes");
    expect(2, "--dtype: there is no 'f16'", "burgers --dtype f16");
    expect(2, "--backend: there is no 'opencl'; known are auto, cpu, cuda", "burgers --backend opencl");
}

static void values(void **state)
{
    (void)state;
    expect(2, "--steps 0: a whole number from 1", "burgers --steps 0");
    expect(2, "--seed 1.5: a whole number", "burgers --seed 1.5");
    expect(2, "--seed 99999999999999999999", "burgers --seed 99999999999999999999");
    expect(2, "--losses 4: a whole number from 2 to 3", "burgers --losses 4");
    expect(2, "--lr nan: a number of at least 0", "burgers --lr nan");
    expect(2, "--lr 0: the rate at the start must be above 0", "burgers --lr 0");
    expect(2, "--rho-m 2: a number from 0 to 1", "burgers --rho-m 2");
    expect(2, "--conflict-tol 1: a number from 0 to 0.999999", "burgers --conflict-tol 1");
    expect(2, "--time-limit -1: a number of at least 0", "burgers --time-limit -1");
    expect(2, "--target-loss inf: a number of at least 0", "burgers --target-loss inf");
    expect(2, "--patience 0: a whole number from 1", "burgers --patience 0");
    expect(2, "--threads 1025: a whole number from 1 to 1024", "burgers --threads 1025");
    expect(2, "--points 10000001: a whole number from 1 to 10000000", "burgers --points 10000001");
    expect(2, "--warmup 5: it must be shorter", "burgers --steps 5 --warmup 5");
    expect(2, "--set beta1: NAME=VALUE", "burgers --set beta1");
    expect(2, "--set beta1=1.5: the value must be in [0, 1)", "burgers --set beta1=1.5");
    expect(2, "--set beta1=x: the value must be a finite number", "burgers --set beta1=x");
    expect(2, "has a setting 'betta1'; did you mean beta1?", "burgers --set betta1=0.5");
    expect(2, "one of: min median rmse", "burgers --surgery aligned_mtl --set aligned_scale=mean");
    expect(2, "one number per loss", "burgers --surgery fixed --set preference=1,2,3");
    expect(2, "given as --lr", "burgers --set lr=1");
    assert_false(exists(in("suture-pinn-burgers"))); /* refused before anything was written */
}

static void help_and_list(void **state)
{
    (void)state;
    static const char *const in_help[] = {"usage:", "--preset", "--resume FILE", "--points N", "128 + signal"};
    static const char *const in_list[] = {"burgers", "u_t + u u_x", "aligned_mtl", "nadam", "wsd"};
    outcome help = run("--help"), list = run("list"), version = run("version");
    assert_true(help.code == 0 && list.code == 0 && version.code == 0);
    for (int i = 0; i < 5; i++) {
        assert_non_null(strstr(help.out, in_help[i]));
        assert_non_null(strstr(list.out, in_list[i]));
    }
    assert_non_null(strstr(version.out, "BLAS"));
    assert_string_equal(help.err, "");
    drop(&help);
    drop(&list);
    drop(&version);
}

/* Every option with a value says what it is without one; presets are spelt out. */
static void defaults_in_help(void **state)
{
    (void)state;
    outcome help = run("--help"), list = run("list");
    int n = 0;
    for (char *line = strstr(help.out, "\n  --"); line; line = strstr(line, "\n  --")) {
        line += 3;
        const int length = (int)strcspn(line, "\n"), name = (int)strcspn(line, " ");
        char text[256];
        snprintf(text, sizeof text, "%.*s", length, line);
        const bool has_value = line[name + 1] != ' ';
        const bool needs_none = !strncmp(text, "--set ", 6) || !strncmp(text, "--resume ", 9);
        if ((strstr(text, "default") != NULL) != (has_value && !needs_none))
            fail_msg("--help: %s", text);
        n++;
    }
    assert_int_equal(n, 32);
    assert_non_null(strstr(help.out, "--optimizer NAME") && strstr(help.out, "(default: adam)"));
    assert_non_null(strstr(list.out, "paper: 30000 steps of 10000 points, rate 0.001 to 0.0001; quick: 6000 steps"));
    drop(&help);
    drop(&list);
}

/* A test suite is run on another instruction set by the environment; the command line has the last word. */
static void instruction_set(void **state)
{
    (void)state;
    outcome o = run_limited(&(limits){.isa = "baseline"}, "burgers --points 50 --steps 1 --no-plots --out run");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, "baseline kernels"));
    drop(&o);
    o = run_limited(&(limits){.isa = "mmx"}, "burgers --points 50 --steps 1 --no-plots --out run --isa baseline");
    assert_int_equal(o.code, 0);
    drop(&o);
    o = run_limited(&(limits){.isa = "mmx"}, "burgers --points 50 --steps 1 --no-plots --out run");
    assert_int_equal(o.code, 2);
    assert_non_null(strstr(o.err, "SUTURE_ISA in the environment, as --isa: there is no 'mmx'"));
    drop(&o);
}

/* OpenBLAS on a kernel that does not suit the processor: once through the library's log, and in the header with the remedy. */
static void slow_blas(void **state)
{
    (void)state;
    outcome o = run_limited(&(limits){.blas_kernel = "Prescott"}, "version");
    const bool slow = strstr(o.out, "avx") && strstr(o.out, "kernel Prescott"); /* else OpenBLAS did not obey */
    assert_int_equal(o.code, 0);
    if (slow)
        assert_int_equal(count_of(o.out, "OPENBLAS_CORETYPE"), 1);
    drop(&o);
    o = run_limited(&(limits){.blas_kernel = "Prescott"}, "burgers --points 50 --steps 1 --no-plots --out run");
    assert_int_equal(o.code, 0);
    if (slow) {
        assert_int_equal(count_of(o.err, "OPENBLAS_CORETYPE"), 1);
        assert_int_equal(count_of(o.out, "OPENBLAS_CORETYPE"), 1);
        assert_non_null(
            strstr(o.out, "kernels; OpenBLAS kernel Prescott, slow on this processor: set OPENBLAS_CORETYPE="));
    }
    drop(&o);
    if (!slow)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(words, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(options, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(values, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(help_and_list, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(defaults_in_help, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(instruction_set, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(slow_blas, enter_directory, leave_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
