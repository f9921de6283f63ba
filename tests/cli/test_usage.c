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
    expect(2, "--backend: there is no 'cuda'", "burgers --backend cuda");
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

/* Directories that cannot be made. The tests may run as root, to whom permissions do not apply. */
static void unwritable_directories(void **state)
{
    (void)state;
    write_bytes(in("file"), "x", 1);
    expect(1, "--out file/run: Not a directory", "burgers --steps 1 --out file/run");
    expect(1, "--out file: not a directory", "burgers --steps 1 --out file");
    expect(1, "--out /proc/no", "burgers --steps 1 --out /proc/no/where");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(words, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(options, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(values, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(help_and_list, enter_directory, leave_directory),
        cmocka_unit_test_setup_teardown(unwritable_directories, enter_directory, leave_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
