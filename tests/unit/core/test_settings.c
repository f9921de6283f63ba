/*
 * Settings in state files: every member of the configuration travels, numbers are exact, and the locale has no say.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/settings.h"
#include "optim/optimizer.h"

#include <float.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sut_context *ctx;
static float theta[3] = {1, 2, 3};

static sut_optimizer *create(const sut_optimizer_config *settings)
{
    const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {3}, .name = "theta"};
    sut_optimizer_config config = *settings;
    config.tensors = &tensor;
    config.n_tensors = 1;
    config.n_losses = 2;
    sut_optimizer *opt;
    if (sut_optimizer_create(&opt, ctx, &config) != SUT_OK)
        fail_msg("%s", sut_context_last_error(ctx));
    return opt;
}

/* Every setting at a value that is not its default; all 4-byte words of the numbers differ. */
static sut_optimizer_config changed_settings(void)
{
    sut_optimizer_config c;
    sut_optimizer_config_init(&c, SUT_OPTIMIZER_ADAM);
    c.maximize = 1;
    c.clip_norm = 0.7;
    c.align = SUT_ALIGN_GUA;
    c.metric = SUT_METRIC_EUCLIDEAN;
    c.rho_m = 0.3;
    c.rho_v = 0.7;
    c.realign_raw = 1;
    c.conflict_cos_tol = 3e-5;
    c.correction_distance_tol = 7e-4;
    c.strict = 1;
    c.check = SUT_CHECK_ALL;
    c.use_schedule = 1;
    c.schedule.kind = SUT_SCHEDULE_WSD;
    c.schedule.peak = 0.3;
    c.schedule.final_lr = 0.007;
    c.schedule.warmup = INT64_C(5) << 32 | 3;
    c.schedule.total = INT64_C(900) << 32 | 7;
    c.schedule.warmup_start = 0.3;
    c.schedule.cooldown_fraction = 0.7;
    c.schedule.cooldown = SUT_COOLDOWN_ONE_SQRT;
    c.surgery.method = SUT_SURGERY_CAGRAD;
    c.surgery.scale_to_sum = 1;
    c.surgery.pcgrad_identity_order = 1;
    c.surgery.pcgrad_mean = 1;
    c.surgery.config_length = SUT_CONFIG_SPECIFIC;
    c.surgery.config_row = 1;
    c.surgery.cagrad_c = 0.3;
    c.surgery.cagrad_rescale = 2;
    c.surgery.cagrad_eps = 0.007;
    c.surgery.cagrad_pareto = SUT_PARETO_MEAN;
    c.surgery.imtlg_abs_normaliser = 1;
    c.surgery.aligned_scale = SUT_ALIGNED_RMSE;
    c.surgery.aligned_rank_tol = 3e-5;
    c.surgery.norm_eps = 7e-3;
    c.surgery.reg_eps = 3e-3;
    c.surgery.mgda_normalisation = SUT_MGDA_LOSS_PLUS;
    c.surgery.mgda_frank_wolfe = 1;
    c.surgery.mgda_fw_epsilon = 0.07;
    c.surgery.mgda_fw_max_iterations = 12;
    c.surgery.nash_max_norm = 0.3;
    c.surgery.nash_update_every = 4;
    c.surgery.sdmgrad_lambda = 0.7;
    return c;
}

/* The whole of a member, and the four bytes that an int leaves free before a member aligned to eight. */
typedef struct range {
    size_t begin, end;
} range;
#define MEMBER(m)                                                                                                      \
    {                                                                                                                  \
        offsetof(sut_optimizer_config, m), offsetof(sut_optimizer_config, m) + sizeof((sut_optimizer_config *)NULL)->m \
    }
#define PADDING_AFTER(m)                                                             \
    {                                                                                \
        offsetof(sut_optimizer_config, m) + 4, offsetof(sut_optimizer_config, m) + 8 \
    }

/* What is no setting: sizes, what is compared instead of restored, what the caller lends. */
static const range no_settings[] = {
    MEMBER(struct_size),
    MEMBER(method),
    PADDING_AFTER(method),
    MEMBER(tensors),
    MEMBER(n_tensors),
    MEMBER(groups),
    MEMBER(n_groups),
    PADDING_AFTER(n_groups),
    MEMBER(hyper), /* kept per group */
    MEMBER(n_losses),
    MEMBER(loss_names),
    MEMBER(surgery.struct_size),
    MEMBER(surgery.preference),
    MEMBER(surgery.order),
    PADDING_AFTER(surgery.cagrad_rescale),
    PADDING_AFTER(surgery.aligned_scale),
    PADDING_AFTER(surgery.mgda_fw_max_iterations),
    PADDING_AFTER(surgery.nash_update_every),
    PADDING_AFTER(realign_raw),
    PADDING_AFTER(use_schedule),
    MEMBER(schedule.struct_size),
    PADDING_AFTER(schedule.kind),
    PADDING_AFTER(schedule.cooldown),
};

static bool is_setting(size_t byte)
{
    for (size_t k = 0; k < sizeof no_settings / sizeof *no_settings; k++)
        if (byte >= no_settings[k].begin && byte < no_settings[k].end)
            return false;
    return true;
}

/*
 * Saved with every setting changed, loaded into an optimizer with the defaults. Whoever adds a member to the configuration
 * meets this test: each word of it must be changed above, come back, or be listed as no setting.
 */
static void every_setting_travels(void **state)
{
    (void)state;
    sut_optimizer_config defaults;
    sut_optimizer_config_init(&defaults, SUT_OPTIMIZER_ADAM);
    const sut_optimizer_config changed = changed_settings();
    for (size_t byte = 0; byte < sizeof changed; byte += 4)
        if (is_setting(byte) && memcmp((const char *)&changed + byte, (const char *)&defaults + byte, 4) == 0)
            fail_msg("bytes %zu to %zu of sut_optimizer_config are not changed by this test", byte, byte + 3);

    sut_optimizer *from = create(&changed), *to = create(&defaults);
    void *bytes;
    size_t size;
    assert_int_equal(sut_optimizer_save_memory(from, NULL, &bytes, &size), SUT_OK);
    if (sut_optimizer_load_memory(to, bytes, size, NULL) != SUT_OK)
        fail_msg("%s", sut_context_last_error(ctx));
    for (size_t byte = 0; byte < sizeof changed; byte++)
        if (is_setting(byte) && ((const char *)&to->config)[byte] != ((const char *)&from->config)[byte])
            fail_msg("byte %zu of sut_optimizer_config did not come back", byte);
    sut_buffer_free(ctx, bytes);

    /* With restore_settings = 0 everything stays as it is here. */
    sut_optimizer *own = create(&defaults);
    const sut_optimizer_config before = own->config;
    sut_checkpoint_config config;
    sut_checkpoint_config_init(&config);
    config.restore_settings = 0;
    assert_int_equal(sut_optimizer_save_memory(from, NULL, &bytes, &size), SUT_OK);
    assert_int_equal(sut_optimizer_load_memory(own, bytes, size, &config), SUT_OK);
    assert_memory_equal(&own->config, &before, sizeof before);
    sut_buffer_free(ctx, bytes);
    sut_optimizer_destroy(from);
    sut_optimizer_destroy(to);
    sut_optimizer_destroy(own);
}

/* --- numbers --------------------------------------------------------------------------------------------------------- */

/* A container whose metadata are the list. */
static sut_safetensors *as_file(const sut_text_list *list, unsigned char **bytes)
{
    sut_safetensors_text texts[16];
    size_t size;
    uint64_t data_size;
    sut_safetensors *file;
    assert_true(list->n <= 16);
    for (size_t k = 0; k < list->n; k++)
        texts[k] = (sut_safetensors_text){list->entries[k].key, list->entries[k].value};
    assert_int_equal(sut_safetensors_header(ctx, NULL, 0, texts, (int64_t)list->n, bytes, &size, &data_size), SUT_OK);
    assert_int_equal(sut_safetensors_open(ctx, "test", *bytes, size, &file), SUT_OK);
    return file;
}

static void numbers_are_exact(void **state)
{
    (void)state;
    const double numbers[] = {0,
                              -0.0,
                              1e-3,
                              0.1,
                              1.0 / 3,
                              DBL_MAX,
                              DBL_MIN,
                              5e-324,
                              0.99999999999999989,
                              1e22,
                              6.02214076e23,
                              -1.5,
                              2.2250738585072011e-308};
    sut_text_entry entries[16];
    sut_text_list list = {entries, 0, 16};
    char key[16];
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        (void)snprintf(key, sizeof key, "%zu", k);
        sut_text_add_double(&list, key, numbers[k]);
        assert_null(strchr(entries[k].value, ','));
    }
    sut_text_add_int(&list, "least", INT64_MIN);
    sut_text_add_int(&list, "most", INT64_MAX);
    sut_text_add_unsigned(&list, "seed", UINT64_MAX);
    unsigned char *bytes;
    sut_safetensors *file = as_file(&list, &bytes);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        double number;
        (void)snprintf(key, sizeof key, "%zu", k);
        assert_int_equal(sut_text_get_double(ctx, file, key, &number), SUT_OK);
        assert_memory_equal(&number, &numbers[k], sizeof number); /* the sign of zero, too */
    }
    int64_t n;
    uint64_t u;
    assert_int_equal(sut_text_get_int(ctx, file, "least", INT64_MIN, INT64_MAX, &n), SUT_OK);
    assert_true(n == INT64_MIN);
    assert_int_equal(sut_text_get_int(ctx, file, "most", INT64_MIN, INT64_MAX, &n), SUT_OK);
    assert_true(n == INT64_MAX);
    assert_int_equal(sut_text_get_int(ctx, file, "most", 0, 7, &n), SUT_ERROR_CORRUPT);
    assert_int_equal(sut_text_get_unsigned(ctx, file, "seed", &u), SUT_OK);
    assert_true(u == UINT64_MAX);
    sut_safetensors_close(file);
    sut_free(ctx, bytes);
}

static void rubbish_is_refused_by_name(void **state)
{
    (void)state;
    const char *rubbish[] = {"", "x", "1x", "1,5", " ", "1 ", "--1", "0x", "1e"};
    for (size_t k = 0; k < sizeof rubbish / sizeof *rubbish; k++) {
        sut_text_entry entries[1];
        sut_text_list list = {entries, 0, 1};
        sut_text_add(&list, "suture.rho_m", rubbish[k]);
        unsigned char *bytes;
        sut_safetensors *file = as_file(&list, &bytes);
        double number = 42;
        int64_t n = 42;
        uint64_t u = 42;
        assert_int_equal(sut_text_get_double(ctx, file, "suture.rho_m", &number), SUT_ERROR_CORRUPT);
        assert_non_null(strstr(sut_context_last_error(ctx), "suture.rho_m"));
        assert_int_equal(sut_text_get_int(ctx, file, "suture.rho_m", -100, 100, &n), SUT_ERROR_CORRUPT);
        assert_int_equal(sut_text_get_unsigned(ctx, file, "suture.rho_m", &u), SUT_ERROR_CORRUPT);
        assert_int_equal(sut_text_get_double(ctx, file, "suture.lr", &number), SUT_ERROR_CORRUPT);
        assert_non_null(strstr(sut_context_last_error(ctx), "suture.lr"));
        assert_true(number == 42 && n == 42 && u == 42);
        sut_safetensors_close(file);
        sut_free(ctx, bytes);
    }
    sut_text_entry entries[1];
    sut_text_list list = {entries, 0, 1};
    sut_text_add(&list, "minus", "-1");
    unsigned char *bytes;
    sut_safetensors *file = as_file(&list, &bytes);
    uint64_t u;
    assert_int_equal(sut_text_get_unsigned(ctx, file, "minus", &u), SUT_ERROR_CORRUPT);
    sut_safetensors_close(file);
    sut_free(ctx, bytes);
}

/* A locale with a decimal comma: one that is installed, or a small one made for the occasion. */
static bool enter_comma_locale(char directory[64])
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "it_IT.UTF-8", "nl_NL.UTF-8"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (setlocale(LC_NUMERIC, names[k]) && localeconv()->decimal_point[0] == ',')
            return true;
    (void)strcpy(directory, "suture-locale-XXXXXX");
    if (mkdtemp(directory) == NULL)
        return false;
    char command[512], path[256], cwd[128];
    (void)snprintf(command, sizeof command,
                   "printf 'LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n"
                   "LC_CTYPE\ncopy \"POSIX\"\nEND LC_CTYPE\n' > %s/source && "
                   "localedef -c -i %s/source -f UTF-8 %s/comma >%s/log 2>&1",
                   directory, directory, directory, directory);
    (void)!system(command); /* it warns about what the source leaves out */
    if (getcwd(cwd, sizeof cwd) == NULL)
        return false;
    (void)snprintf(path, sizeof path, "%s/%s", cwd, directory);
    (void)setenv("LOCPATH", path, 1);
    return setlocale(LC_NUMERIC, "comma") && localeconv()->decimal_point[0] == ',';
}

static void the_locale_has_no_say(void **state)
{
    char directory[64] = "", command[128];
    if (!enter_comma_locale(directory)) {
        print_message("no locale with a decimal comma here, and none could be made\n");
        skip();
    }
    numbers_are_exact(state);
    rubbish_is_refused_by_name(state);
    every_setting_travels(state);
    assert_int_equal(localeconv()->decimal_point[0], ','); /* and it was left as it is */
    (void)setlocale(LC_NUMERIC, "C");
    if (directory[0]) {
        (void)snprintf(command, sizeof command, "rm -rf %s", directory);
        (void)!system(command);
    }
}

static int open_context(void **state)
{
    (void)state;
    return sut_context_create(&ctx, NULL) == SUT_OK ? 0 : -1;
}

static int close_context(void **state)
{
    (void)state;
    sut_context_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_travels),
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(rubbish_is_refused_by_name),
        cmocka_unit_test(the_locale_has_no_say),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
