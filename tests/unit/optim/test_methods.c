/*
 * The table of methods against what it promises: names and enum, ranges at creation and at every later change, defaults,
 * state slots; and every hyper-parameter and setting has an effect. Generated from the library's own lists.
 */
#include "support/step.h"

#include "optim/optimizer.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

static sut_context *context(void)
{
    return step_context(1, SUT_ISA_AUTO);
}

static void names(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method) {
        const sut_method_row *const row = &sut_method_table[method];
        assert_int_equal(row->method, method);
        assert_string_equal(sut_optimizer_method_name((sut_optimizer_method)method), row->name);
        sut_optimizer_method found = SUT_OPTIMIZER_COUNT;
        assert_int_equal(sut_optimizer_method_from_name(row->name, &found), SUT_OK);
        assert_int_equal(found, method);
        for (int other = 0; other < method; ++other)
            assert_string_not_equal(row->name, sut_method_table[other].name);
        assert_true(row->source && row->source[0]);
        assert_string_equal(row->parameter[0].name, "lr");
    }
    assert_null(sut_optimizer_method_name(SUT_OPTIMIZER_COUNT));
}

/* The list ends where it says, its entries are members of sut_hyper, and get gives back what set took. */
static void parameters(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method) {
        sut_parameter_info p;
        sut_hyper h, other;
        int n = 0;
        assert_int_equal(sut_hyper_init(&h, (sut_optimizer_method)method), SUT_OK);
        for (; sut_optimizer_parameter((sut_optimizer_method)method, n, &p) == SUT_OK; ++n) {
            double value;
            assert_int_equal(sut_hyper_get(&h, (sut_optimizer_method)method, p.name, &value), SUT_OK);
            assert_true(value == p.default_value);
            assert_true(p.is_flag ? p.minimum == 0 && p.maximum == 1 : p.minimum < p.maximum);
            assert_true(p.default_value >= p.minimum && p.default_value <= p.maximum);
            const double wanted = p.is_flag ? 1 : 0.25;
            other = h;
            assert_int_equal(sut_hyper_set(&other, (sut_optimizer_method)method, p.name, wanted), SUT_OK);
            assert_int_equal(sut_hyper_get(&other, (sut_optimizer_method)method, p.name, &value), SUT_OK);
            assert_true(value == wanted);
            assert_int_equal(sut_hyper_set(&other, (sut_optimizer_method)method, p.name, p.default_value), SUT_OK);
            assert_memory_equal(&other, &h, sizeof h); /* nothing else was touched */
        }
        assert_true(n >= 3);
        for (int past = n; past < n + 20; ++past)
            assert_int_equal(sut_optimizer_parameter((sut_optimizer_method)method, past, &p), SUT_ERROR_OUT_OF_RANGE);
        assert_int_equal(sut_optimizer_parameter((sut_optimizer_method)method, -1, &p), SUT_ERROR_OUT_OF_RANGE);
        assert_int_equal(sut_optimizer_parameter((sut_optimizer_method)method, 0, NULL), SUT_ERROR_INVALID_ARGUMENT);
        assert_int_equal(sut_hyper_set(&h, (sut_optimizer_method)method, "no such thing", 1),
                         SUT_ERROR_INVALID_ARGUMENT);
        assert_int_equal(sut_hyper_get(&h, (sut_optimizer_method)method, "lr", NULL), SUT_ERROR_INVALID_ARGUMENT);
        assert_int_equal(sut_hyper_set(NULL, (sut_optimizer_method)method, "lr", 1), SUT_ERROR_INVALID_ARGUMENT);
        assert_int_equal(sut_hyper_init(NULL, (sut_optimizer_method)method), SUT_ERROR_INVALID_ARGUMENT);
    }
    sut_hyper h;
    assert_int_equal(sut_hyper_init(&h, SUT_OPTIMIZER_COUNT), SUT_ERROR_INVALID_ARGUMENT);
}

/* Values that must be refused: beyond either end, the end itself where it is open, NaN, Inf. */
static int bad_values(const sut_parameter_info *p, double *out)
{
    int n = 0;
    out[n++] = NAN;
    out[n++] = INFINITY;
    out[n++] = -INFINITY;
    out[n++] = p->minimum - 0.1;
    out[n++] = -DBL_MIN - p->minimum;
    if (p->minimum_open)
        out[n++] = p->minimum;
    if (isfinite(p->maximum)) {
        out[n++] = p->maximum + 0.1;
        out[n++] = 1e300;
        if (p->maximum_open)
            out[n++] = p->maximum;
    }
    return n;
}

/* By the name of the parameter, at creation and at a later change, and nothing is changed. */
static void ranges(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method) {
        step_spec spec;
        sut_parameter_info p;
        step_spec_init(&spec, (sut_optimizer_method)method, 0);
        step_run *const run = step_open(context(), &spec);
        for (int index = 0; sut_optimizer_parameter((sut_optimizer_method)method, index, &p) == SUT_OK; ++index) {
            double bad[12];
            const sut_method_parameter *const row = &sut_method_table[method].parameter[index];
            const int n = p.is_flag ? 2 : bad_values(&p, bad);
            for (int k = 0; k < n; ++k) {
                sut_hyper h = spec.config.hyper;
                if (p.is_flag) {
                    const int value = k ? -1 : 2;
                    memcpy((char *)&h + row->offset, &value, sizeof value);
                } else {
                    assert_int_equal(sut_hyper_set(&h, (sut_optimizer_method)method, p.name, bad[k]),
                                     SUT_ERROR_OUT_OF_RANGE);
                    memcpy((char *)&h + row->offset, &bad[k], sizeof bad[k]);
                }
                for (int call = 0; call < (strcmp(p.name, "lr") ? 2 : 3); ++call) {
                    sut_status status = SUT_OK;
                    step_snapshot before = step_snapshot_take(run);
                    if (call == 0)
                        status = sut_optimizer_set_hyper(run->opt, 0, &h);
                    if (call == 1) {
                        sut_optimizer_config config = run->spec.config;
                        sut_optimizer *opt;
                        config.hyper = h;
                        status = sut_optimizer_create(&opt, run->ctx, &config);
                        assert_null(opt);
                    }
                    if (call == 2)
                        status = sut_optimizer_set_lr(run->opt, -1, h.lr);
                    if (status != SUT_ERROR_OUT_OF_RANGE || !strstr(sut_context_last_error(run->ctx), p.name))
                        fail_msg("%s: %s = %g gave status %d, \"%s\"", sut_optimizer_method_name(spec.config.method),
                                 p.name, p.is_flag ? k : bad[k], status, sut_context_last_error(run->ctx));
                    step_assert_unchanged(run, &before, "a setting outside its range");
                }
            }
            /* The ends themselves, where they belong to the range. */
            sut_hyper h = spec.config.hyper;
            if (!p.is_flag && !p.minimum_open)
                assert_int_equal(sut_hyper_set(&h, (sut_optimizer_method)method, p.name, p.minimum), SUT_OK);
            if (!p.is_flag && !p.maximum_open && isfinite(p.maximum))
                assert_int_equal(sut_hyper_set(&h, (sut_optimizer_method)method, p.name, p.maximum), SUT_OK);
        }
        step_close(run);
    }
}

static void refused(const step_run *run, sut_status status, sut_status expected, const char *word)
{
    if (status != expected || !strstr(sut_context_last_error(run->ctx), word))
        fail_msg("status %d, expected %d with \"%s\": %s", status, expected, word, sut_context_last_error(run->ctx));
}

/* Settings that need each other, or state that is not there. */
static void settings_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        sut_optimizer_method method;
        const char *name, *slot;
        double value;
    } missing[] = {{SUT_OPTIMIZER_SGD, "momentum", "\"b\"", 0.9},
                   {SUT_OPTIMIZER_RMSPROP, "momentum", "\"b\"", 0.9},
                   {SUT_OPTIMIZER_RMSPROP, "centered", "\"ga\"", 1},
                   {SUT_OPTIMIZER_ADAM, "amsgrad", "\"vmax\"", 1},
                   {SUT_OPTIMIZER_ADAMW, "amsgrad", "\"vmax\"", 1}};
    for (size_t k = 0; k < sizeof missing / sizeof *missing; ++k) {
        step_spec spec;
        step_spec_init(&spec, missing[k].method, 0);
        step_run *const run = step_open(context(), &spec);
        sut_hyper h = spec.config.hyper;
        assert_int_equal(sut_hyper_set(&h, missing[k].method, missing[k].name, missing[k].value), SUT_OK);
        refused(run, sut_optimizer_set_hyper(run->opt, 0, &h), SUT_ERROR_UNSUPPORTED, missing[k].slot);
        step_close(run);
    }

    /* State that is there for one group serves all. */
    step_spec spec;
    step_spec_init(&spec, SUT_OPTIMIZER_SGD, 0);
    sut_hyper groups[2] = {spec.config.hyper, spec.config.hyper};
    groups[1].momentum = 0.9;
    groups[1].dampening = 0;
    spec.config.groups = groups;
    spec.config.n_groups = 2;
    step_run *const run = step_open(context(), &spec);
    assert_int_equal(sut_optimizer_set_hyper(run->opt, 0, &groups[1]), SUT_OK);
    sut_hyper h = groups[1];
    h.nesterov = 1;
    assert_int_equal(sut_optimizer_set_hyper(run->opt, 0, &h), SUT_OK);
    h.momentum = 0;
    refused(run, sut_optimizer_set_hyper(run->opt, 0, &h), SUT_ERROR_OUT_OF_RANGE, "nesterov");
    h = groups[1];
    h.nesterov = 1;
    h.dampening = 0.1;
    refused(run, sut_optimizer_set_hyper(run->opt, 1, &h), SUT_ERROR_OUT_OF_RANGE, "nesterov");
    h.dampening = 0;
    h.momentum = 0.04; /* realignment would divide by it */
    refused(run, sut_optimizer_set_hyper(run->opt, 1, &h), SUT_ERROR_UNSUPPORTED, "momentum");
    assert_int_equal(sut_optimizer_set_align(run->opt, SUT_ALIGN_GUA, 0, 0.5), SUT_OK);
    assert_int_equal(sut_optimizer_set_hyper(run->opt, 1, &h), SUT_OK);
    refused(run, sut_optimizer_set_align(run->opt, SUT_ALIGN_GUA, 0.1, 0), SUT_ERROR_UNSUPPORTED, "momentum");
    assert_int_equal(sut_optimizer_set_align(run->opt, SUT_ALIGN_NONE, 0.1, 0), SUT_OK);

    for (int k = 0; k < 5; ++k) {
        static const double bad[] = {-0.1, 1.1, NAN, INFINITY, -INFINITY};
        step_snapshot before = step_snapshot_take(run);
        refused(run, sut_optimizer_set_align(run->opt, SUT_ALIGN_NONE, bad[k], 0), SUT_ERROR_OUT_OF_RANGE, "rho_m");
        refused(run, sut_optimizer_set_align(run->opt, SUT_ALIGN_NONE, 0, bad[k]), SUT_ERROR_OUT_OF_RANGE, "rho_v");
        refused(run, sut_optimizer_set_align(run->opt, (sut_align)(k + 2), 0, 0), SUT_ERROR_INVALID_ARGUMENT, "align");
        step_assert_unchanged(run, &before, "a refused alignment");
    }
    for (int group = -2; group <= 2; group += 4)
        refused(run, sut_optimizer_set_lr(run->opt, group, 1), SUT_ERROR_OUT_OF_RANGE, "group");
    assert_int_equal(sut_optimizer_set_lr(run->opt, -1, 0.5), SUT_OK);
    for (int group = 0; group < 2; ++group) {
        assert_int_equal(sut_optimizer_get_hyper(run->opt, group, &h), SUT_OK);
        assert_true(h.lr == 0.5);
    }

    sut_schedule schedule;
    sut_schedule_init(&schedule, SUT_SCHEDULE_LINEAR); /* total is not set */
    step_snapshot before = step_snapshot_take(run);
    refused(run, sut_optimizer_set_schedule(run->opt, &schedule), SUT_ERROR_OUT_OF_RANGE, "total");
    schedule.total = 10;
    schedule.peak = 0;
    refused(run, sut_optimizer_set_schedule(run->opt, &schedule), SUT_ERROR_OUT_OF_RANGE, "peak");
    schedule.peak = 1;
    schedule.struct_size = 3;
    refused(run, sut_optimizer_set_schedule(run->opt, &schedule), SUT_ERROR_INVALID_ARGUMENT, "struct_size");
    step_assert_unchanged(run, &before, "a refused schedule");
    step_close(run);

    step_spec_init(&spec, SUT_OPTIMIZER_LION, 0);
    step_run *const lion = step_open(context(), &spec);
    h = spec.config.hyper;
    h.beta1 = 0;
    refused(lion, sut_optimizer_set_hyper(lion->opt, 0, &h), SUT_ERROR_UNSUPPORTED, "beta1");
    step_close(lion);
}

/* Slots: those of the table that the settings need, and no others; their memory is what sut_optimizer_memory() says. */
static void slots(void **state)
{
    (void)state;
    static const char *const all[] = {"m", "v", "vmax", "b", "ga", "master", "mu_prod", "", "M", "theta"};
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method)
        for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant)
            for (int dtype = SUT_DTYPE_F32; dtype <= SUT_DTYPE_F16; ++dtype) {
                step_spec spec;
                sut_hyper h;
                if (!step_variant((sut_optimizer_method)method, variant, &h))
                    break;
                step_spec_init(&spec, (sut_optimizer_method)method, variant);
                spec.dtype = (sut_dtype)dtype;
                step_run *const run = step_open(context(), &spec);
                const unsigned needed = sut_method_table[method].slots(&h);
                const bool low = dtype >= SUT_DTYPE_BF16;
                int n_arrays = 0;
                for (size_t k = 0; k < sizeof all / sizeof *all; ++k) {
                    bool expected = low && !strcmp(all[k], "master");
                    for (int s = 0; s < SUT_MAX_SLOTS; ++s) {
                        const char *const slot = sut_method_table[method].slot[s];
                        expected = expected || (slot && !strcmp(slot, all[k]) && (needed >> s & 1));
                    }
                    n_arrays += expected;
                    expected = expected || (method == SUT_OPTIMIZER_NADAM && !strcmp(all[k], "mu_prod"));
                    bool listed = false;
                    const char *name;
                    for (int s = 0; (name = sut_optimizer_state_name(run->opt, s)) != NULL; ++s)
                        listed = listed || !strcmp(name, all[k]);
                    assert_int_equal(listed, expected);
                    void *data = NULL;
                    int64_t count;
                    sut_dtype own;
                    const sut_status status = sut_optimizer_state(run->opt, all[k], 0, &data, &own, &count);
                    assert_int_equal(status, expected ? SUT_OK : SUT_ERROR_INVALID_ARGUMENT);
                    if (!expected) {
                        assert_null(data);
                        if (sut_optimizer_state_name(run->opt, 0)) /* the text lists those there are */
                            assert_non_null(
                                strstr(sut_context_last_error(run->ctx), sut_optimizer_state_name(run->opt, 0)));
                        continue;
                    }
                    assert_int_equal(own, strcmp(all[k], "mu_prod") ? step_compute_type(spec.dtype) : SUT_DTYPE_F64);
                    assert_int_equal(count, strcmp(all[k], "mu_prod") ? spec.length[0] : 1);
                }
                size_t bytes, workspace;
                assert_int_equal(sut_optimizer_memory(run->opt, &bytes, &workspace), SUT_OK);
                const size_t each = (40 * sut_dtype_size(step_compute_type(spec.dtype)) + 63) / 64 * 64;
                assert_int_equal(bytes, (size_t)n_arrays * each);
                assert_true(workspace > 0);
                assert_int_equal(sut_optimizer_memory(run->opt, NULL, NULL), SUT_OK);
                for (int64_t tensor = -1; tensor <= 1; tensor += 2)
                    assert_int_equal(sut_optimizer_state(run->opt, "m", tensor, &(void *){NULL}, NULL, NULL),
                                     SUT_ERROR_OUT_OF_RANGE);
                step_close(run);
            }
}

/* --- every option has an effect -------------------------------------------------------------------------------------- */

/* What nine aligned steps lead to. */
static double outcome(const step_spec *spec)
{
    step_run *const run = step_open(context(), spec);
    step_grads *const g = step_grads_new(spec);
    test_random r = {17};
    double sum = 0;
    for (int t = 0; t < 9; ++t) {
        step_grads_conflict(g, &r);
        step_do(run, g, NULL);
    }
    for (int64_t k = 0; k < spec->length[0]; ++k)
        sum += (double)(k + 1) * step_theta(run, 0, k);
    step_grads_free(g);
    step_close(run);
    return sum;
}

static void every_parameter_has_an_effect(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; ++method) {
        sut_parameter_info p;
        for (int index = 0; sut_optimizer_parameter((sut_optimizer_method)method, index, &p) == SUT_OK; ++index) {
            int n_effects = 0;
            for (int variant = 0; variant < step_n_variants((sut_optimizer_method)method); ++variant) {
                step_spec spec, other;
                sut_hyper unused;
                if (!step_variant((sut_optimizer_method)method, variant, &unused))
                    continue;
                step_spec_init(&spec, (sut_optimizer_method)method, variant);
                other = spec;
                double value;
                assert_int_equal(sut_hyper_get(&spec.config.hyper, spec.config.method, p.name, &value), SUT_OK);
                const double changed = p.is_flag ? 1 - value : value == 0 ? 0.07 : 0.9 * value;
                assert_int_equal(sut_hyper_set(&other.config.hyper, spec.config.method, p.name, changed), SUT_OK);
                if (sut_hyper_check(NULL, sut_method_find(spec.config.method), &other.config.hyper, 0) != SUT_OK)
                    continue;
                n_effects += outcome(&spec) != outcome(&other);
            }
            if (n_effects == 0)
                fail_msg("%s: %s has no effect", sut_optimizer_method_name((sut_optimizer_method)method), p.name);
        }
    }
}

/* Settings of the optimizer itself, each with two values that must differ somewhere. */
static void every_setting_has_an_effect(void **state)
{
    (void)state;
    step_spec spec;
    step_spec_init(&spec, SUT_OPTIMIZER_ADAMW, 1);
    assert_true(spec.config.hyper.weight_decay > 0);
    spec.config.n_losses = 3;
    const double base = outcome(&spec);
    for (int k = 0; k < 12; ++k) {
        step_spec other = spec;
        sut_optimizer_config *const c = &other.config;
        switch (k) {
        case 0: c->maximize = 1; break;
        case 1: c->align = SUT_ALIGN_NONE; break;
        case 2: c->metric = SUT_METRIC_EUCLIDEAN; break;
        case 3: c->rho_m = 0.5; break;
        case 4: c->rho_v = 0.5; break;
        case 5: c->realign_raw = 1; break;
        case 6: c->conflict_cos_tol = 0.9; break;
        case 7: c->correction_distance_tol = 10; break;
        case 8: c->clip_norm = 0.01; break;
        case 9: sut_surgery_config_init(&c->surgery, SUT_SURGERY_UPGRAD); break;
        case 10:
            c->use_schedule = 1;
            sut_schedule_init(&c->schedule, SUT_SCHEDULE_COSINE);
            c->schedule.total = 20;
            break;
        case 11: /* takes other sums; shows in f32 only */
            other.dtype = SUT_DTYPE_F32;
            c->strict = 1;
            break;
        }
        step_spec same = k == 11 ? other : spec;
        same.config.strict = 0;
        if (outcome(&other) == (k == 11 ? outcome(&same) : base))
            fail_msg("setting %d has no effect", k);
    }
    /* The seed of the context: draws of PCGrad. */
    double seeds[2];
    for (int k = 0; k < 2; ++k) {
        sut_context_config config;
        sut_context_config_init(&config);
        config.seed = 1 + (uint64_t)k;
        config.n_threads = 1;
        sut_context *ctx;
        assert_int_equal(sut_context_create(&ctx, &config), SUT_OK);
        sut_surgery_config_init(&spec.config.surgery, SUT_SURGERY_PCGRAD);
        step_run *const run = step_open(ctx, &spec);
        step_grads *const g = step_grads_new(&spec);
        test_random r = {18};
        for (int t = 0; t < 6; ++t) {
            step_grads_conflict(g, &r);
            step_do(run, g, NULL);
        }
        seeds[k] = step_theta(run, 0, 0);
        step_grads_free(g);
        step_close(run);
        sut_context_destroy(ctx);
    }
    assert_true(seeds[0] != seeds[1]);
}

/* A step of one loss takes the weight that the surgery gives it, whether the gradient is checked, reported or neither. */
static void one_loss(void **state)
{
    (void)state;
    static const float scales[] = {1e-6f, 0.3f, 1e6f};
    for (int method = 0; method < SUT_SURGERY_COUNT; ++method)
        for (int scale = 0; scale < 3; ++scale) {
            const double preference = 0.7;
            float found[3][2];
            for (int kind = 0; kind < 3; ++kind) {
                float *const theta = found[kind], g[2] = {3 * scales[scale], -4 * scales[scale]};
                const void *const grads[1] = {g};
                const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {2}};
                sut_optimizer_config config;
                sut_optimizer *opt;
                sut_report report;
                theta[0] = theta[1] = 0;
                sut_optimizer_config_init(&config, SUT_OPTIMIZER_SGD);
                config.tensors = &tensor;
                config.n_tensors = 1;
                config.surgery.method = (sut_surgery_method)method;
                config.surgery.preference = method == SUT_SURGERY_FIXED ? &preference : NULL;
                config.check = kind == 0 ? SUT_CHECK_NONE : SUT_CHECK_GRADIENTS;
                assert_int_equal(sut_optimizer_create(&opt, context(), &config), SUT_OK);
                sut_report_init(&report);
                assert_int_equal(sut_optimizer_step(opt, grads, NULL, kind == 2 ? &report : NULL), SUT_OK);
                if (kind == 2 && fabs(theta[0] + config.hyper.lr * report.weights[0] * g[0]) > 1e-6 * fabs(theta[0]))
                    fail_msg("%s: moved %g, weight %g", sut_surgery_method_name((sut_surgery_method)method), theta[0],
                             report.weights[0]);
                sut_optimizer_destroy(opt);
            }
            if (memcmp(found[0], found[1], sizeof found[0]) != 0 || memcmp(found[0], found[2], sizeof found[0]) != 0)
                fail_msg("%s, gradient %g: %g unchecked, %g checked, %g reported",
                         sut_surgery_method_name((sut_surgery_method)method), 5 * scales[scale], found[0][0],
                         found[1][0], found[2][0]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_loss),
        cmocka_unit_test(names),
        cmocka_unit_test(parameters),
        cmocka_unit_test(ranges),
        cmocka_unit_test(settings_that_do_not_fit),
        cmocka_unit_test(slots),
        cmocka_unit_test(every_parameter_has_an_effect),
        cmocka_unit_test(every_setting_has_an_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
