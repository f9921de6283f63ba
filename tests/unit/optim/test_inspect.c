/*
 * Looking inside: settings, tensors, rates and names are given back as they are now, and nothing is changed by looking.
 */
#include "support/step.h"

#include <string.h>

static sut_context *context(void)
{
    return step_context(1, SUT_ISA_AUTO);
}

enum { M = 2 };

static float theta_a[3] = {1, 2, 3};
static double theta_b[2][2] = {{1, 2}, {3, 4}};

static const sut_tensor tensors[2] = {
    {.data = theta_a, .dtype = SUT_DTYPE_F32, .n_dims = 1, .shape = {3}, .group = 1, .name = "a"},
    {.data = theta_b, .dtype = SUT_DTYPE_F64, .n_dims = 2, .shape = {2, 2}, .group = 0},
};

static sut_optimizer *make(sut_optimizer_config *config, sut_hyper groups[2])
{
    static const double preference[M] = {1, 2};
    static const char *const names[M] = {"data", "boundary"};
    sut_optimizer *opt;
    sut_optimizer_config_init(config, SUT_OPTIMIZER_ADAMW);
    groups[0] = groups[1] = config->hyper;
    groups[0].lr = 0.25;
    groups[1].lr = 0.5;
    config->tensors = tensors;
    config->n_tensors = 2;
    config->groups = groups;
    config->n_groups = 2;
    config->n_losses = M;
    config->loss_names = names;
    config->maximize = 1;
    config->align = SUT_ALIGN_GUA;
    config->metric = SUT_METRIC_EUCLIDEAN;
    config->rho_m = 0.75;
    config->surgery.method = SUT_SURGERY_CONFIG;
    config->surgery.preference = preference;
    if (sut_optimizer_create(&opt, context(), config) != SUT_OK)
        fail_msg("%s", sut_context_last_error(context()));
    return opt;
}

static void settings_are_given_back(void **state)
{
    (void)state;
    sut_optimizer_config config, now;
    sut_hyper groups[2];
    sut_optimizer *const opt = make(&config, groups);
    sut_optimizer_config_init(&now, SUT_OPTIMIZER_SGD);
    assert_int_equal(sut_optimizer_get_config(opt, &now), SUT_OK);
    sut_optimizer_config expected = config;
    expected.tensors = NULL;
    expected.groups = NULL;
    expected.loss_names = NULL;
    expected.hyper = groups[0];
    assert_memory_equal(&now, &expected, sizeof now);

    /* Later changes are seen. */
    sut_schedule schedule;
    sut_schedule_init(&schedule, SUT_SCHEDULE_COSINE);
    schedule.total = 100;
    assert_int_equal(sut_optimizer_set_schedule(opt, &schedule), SUT_OK);
    assert_int_equal(sut_optimizer_set_align(opt, SUT_ALIGN_NONE, 0.5, 0.25), SUT_OK);
    assert_int_equal(sut_optimizer_set_lr(opt, 0, 0.125), SUT_OK);
    assert_int_equal(sut_optimizer_get_config(opt, &now), SUT_OK);
    assert_true(now.use_schedule == 1 && now.schedule.kind == SUT_SCHEDULE_COSINE && now.schedule.total == 100);
    assert_true(now.align == SUT_ALIGN_NONE && now.rho_m == 0.5 && now.rho_v == 0.25 && now.hyper.lr == 0.125);

    /* A caller with a shorter struct: no more is written. */
    sut_optimizer_config shorter;
    memset(&shorter, 0x5a, sizeof shorter);
    sut_optimizer_config_init_sized(&shorter, offsetof(sut_optimizer_config, n_losses), SUT_OPTIMIZER_SGD);
    assert_int_equal(sut_optimizer_get_config(opt, &shorter), SUT_OK);
    assert_int_equal(shorter.method, SUT_OPTIMIZER_ADAMW);
    for (size_t k = offsetof(sut_optimizer_config, n_losses); k < sizeof shorter; ++k)
        assert_int_equal(((unsigned char *)&shorter)[k], 0x5a);

    now.struct_size = 3;
    assert_int_equal(sut_optimizer_get_config(opt, &now), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_optimizer_get_config(opt, NULL), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_optimizer_get_config(NULL, &now), SUT_ERROR_INVALID_ARGUMENT);
    assert_ptr_equal(sut_optimizer_context(opt), context());
    assert_null(sut_optimizer_context(NULL));
    sut_optimizer_destroy(opt);
}

static void tensors_are_given_back(void **state)
{
    (void)state;
    sut_optimizer_config config;
    sut_hyper groups[2];
    sut_optimizer *const opt = make(&config, groups);
    for (int k = 0; k < 2; ++k) {
        sut_tensor t;
        memset(&t, 0x5a, sizeof t);
        assert_int_equal(sut_optimizer_get_tensor(opt, k, &t), SUT_OK);
        assert_ptr_equal(t.data, tensors[k].data);
        assert_int_equal(t.dtype, tensors[k].dtype);
        assert_int_equal(t.n_dims, tensors[k].n_dims);
        assert_memory_equal(t.shape, tensors[k].shape, sizeof t.shape);
        assert_int_equal(t.group, tensors[k].group);
        assert_string_equal(t.name, k == 0 ? "a" : "param.1");
    }
    sut_tensor t;
    assert_int_equal(sut_optimizer_get_tensor(opt, 2, &t), SUT_ERROR_OUT_OF_RANGE);
    assert_int_equal(sut_optimizer_get_tensor(opt, -1, &t), SUT_ERROR_OUT_OF_RANGE);
    assert_int_equal(sut_optimizer_get_tensor(opt, 0, NULL), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_optimizer_get_tensor(NULL, 0, &t), SUT_ERROR_INVALID_ARGUMENT);
    sut_optimizer_destroy(opt);
}

/* The rate of the coming step is the one that the step reports; the largest of all groups, that is. */
static void the_rate_of_the_coming_step(void **state)
{
    (void)state;
    sut_optimizer_config config;
    sut_hyper groups[2];
    sut_optimizer *const opt = make(&config, groups);
    const float ga[M][3] = {{1, 0, 1}, {0, 1, 1}};
    const double gb[M][4] = {{1, 0, 1, 0}, {0, 1, 1, 1}};
    const void *grads[M * 2] = {ga[0], gb[0], ga[1], gb[1]};
    double lr[2];
    for (int scheduled = 0; scheduled < 2; ++scheduled) {
        sut_schedule schedule;
        sut_schedule_init(&schedule, SUT_SCHEDULE_LINEAR);
        schedule.peak = 0.25;
        schedule.final_lr = 0.0625;
        schedule.total = 6;
        schedule.warmup = 2;
        assert_int_equal(sut_optimizer_set_schedule(opt, scheduled ? &schedule : NULL), SUT_OK);
        for (int k = 0; k < 8; ++k) {
            sut_report report;
            double expected = 0.25;
            sut_report_init(&report);
            for (int group = 0; group < 2; ++group)
                assert_int_equal(sut_optimizer_get_lr(opt, group, &lr[group]), SUT_OK);
            if (scheduled)
                assert_int_equal(sut_schedule_lr(NULL, &schedule, sut_optimizer_steps(opt), &expected), SUT_OK);
            assert_true(lr[0] == expected && lr[1] == 2 * expected);
            assert_int_equal(sut_optimizer_step(opt, grads, NULL, &report), SUT_OK);
            assert_true(report.lr == lr[1]);
        }
    }
    assert_int_equal(sut_optimizer_get_lr(opt, 2, lr), SUT_ERROR_OUT_OF_RANGE);
    assert_int_equal(sut_optimizer_get_lr(opt, -1, lr), SUT_ERROR_OUT_OF_RANGE);
    assert_int_equal(sut_optimizer_get_lr(opt, 0, NULL), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_optimizer_get_lr(NULL, 0, lr), SUT_ERROR_INVALID_ARGUMENT);
    sut_optimizer_destroy(opt);
}

/* A name leads back to its value; what has no name ends the list, and an unknown name leaves the output alone. */
static void names_and_values(void **state)
{
    (void)state;
#define ROUND_TRIP(type, expected)                                                                                    \
    do {                                                                                                              \
        int n = 0;                                                                                                    \
        sut_##type value = (sut_##type)0;                                                                             \
        for (; sut_##type##_name((sut_##type)n); ++n) {                                                               \
            assert_int_equal(sut_##type##_from_name(sut_##type##_name((sut_##type)n), &value), SUT_OK);               \
            assert_int_equal(value, n);                                                                               \
        }                                                                                                             \
        assert_int_equal(n, expected);                                                                                \
        assert_null(sut_##type##_name((sut_##type) - 1));                                                             \
        assert_int_equal(sut_##type##_from_name("", &value), SUT_ERROR_INVALID_ARGUMENT);                             \
        assert_int_equal(sut_##type##_from_name(NULL, &value), SUT_ERROR_INVALID_ARGUMENT);                           \
        assert_int_equal(sut_##type##_from_name(sut_##type##_name((sut_##type)0), NULL), SUT_ERROR_INVALID_ARGUMENT); \
        assert_int_equal(value, n - 1);                                                                               \
    } while (0)
    ROUND_TRIP(align, 2);
    ROUND_TRIP(metric, 2);
    ROUND_TRIP(dtype, 4);
    ROUND_TRIP(backend, 3);
    ROUND_TRIP(isa, 4);
    ROUND_TRIP(cooldown, SUT_COOLDOWN_COUNT);
    ROUND_TRIP(surgery_method, SUT_SURGERY_COUNT);
    ROUND_TRIP(optimizer_method, SUT_OPTIMIZER_COUNT);
}

/* Nash-MTL with nash_update_every = 3: every third step asks the surgery, the two after it use its weights. */
static void kept_weights_of_nash(void **state)
{
    (void)state;
    enum { N = 4, EVERY = 3 };
    double theta[N] = {0}, g[2][N], kept[2] = {0, 0};
    const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {N}};
    sut_optimizer_config config;
    sut_optimizer *opt;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_SGD);
    config.tensors = &tensor;
    config.n_tensors = 1;
    config.n_losses = 2;
    sut_surgery_config_init(&config.surgery, SUT_SURGERY_NASH);
    config.surgery.nash_update_every = EVERY;
    assert_int_equal(sut_optimizer_create(&opt, context(), &config), SUT_OK);
    test_random r = {7};
    for (int t = 0; t < 3 * EVERY + 1; ++t) {
        for (int i = 0; i < 2; ++i)
            for (int k = 0; k < N; ++k)
                g[i][k] = test_normal(&r) + (k == i ? 3 : 0);
        const void *grads[2] = {g[0], g[1]};
        sut_surgery_report fresh;
        sut_report report;
        sut_surgery_report_init(&fresh);
        sut_report_init(&report);
        assert_int_equal(
            sut_surgery_direction(context(), &config.surgery, grads, 2, N, SUT_DTYPE_F64, NULL, 0, NULL, &fresh),
            SUT_OK);
        assert_int_equal(sut_optimizer_step(opt, grads, NULL, &report), SUT_OK);
        if (t % EVERY == 0)
            memcpy(kept, fresh.weights, sizeof kept);
        else
            assert_true(fabs(fresh.weights[0] - kept[0]) > 1e-3); /* asking again would have shown */
        assert_memory_equal(report.weights, kept, sizeof kept);
    }
    sut_optimizer_destroy(opt);
}

/* A surgery that stops at its limit of iterations gives a step, and the step's report says so. */
static void a_surgery_that_did_not_converge(void **state)
{
    (void)state;
    const double G[3][3] = {{1, 0.2, 0}, {0, 1, 0.1}, {0.3, 0, 1}};
    double theta[3] = {0, 0, 0};
    const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {3}};
    const void *grads[3] = {G[0], G[1], G[2]};
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_SGD);
    config.tensors = &tensor;
    config.n_tensors = 1;
    config.n_losses = 3;
    config.surgery.method = SUT_SURGERY_MGDA;
    config.surgery.mgda_frank_wolfe = 1;
    for (int limit = 2; limit <= 200000; limit *= 100) {
        sut_optimizer *opt;
        sut_report report;
        sut_report_init(&report);
        config.surgery.mgda_fw_max_iterations = limit;
        config.surgery.mgda_fw_epsilon = limit == 2 ? 1e-12 : 1e-3;
        assert_int_equal(sut_optimizer_create(&opt, context(), &config), SUT_OK);
        assert_int_equal(sut_optimizer_step(opt, grads, NULL, &report), SUT_OK);
        assert_int_equal(report.surgery_converged, limit > 2);
        assert_true(theta[0] < 0);
        sut_optimizer_destroy(opt);
    }
}

/* Two tensors, two losses that conflict in the second step, staged. */
typedef struct pair {
    double x[2][3], g[2][2][3], u[2][3], w[2][3];
    const void *grads[4];
    sut_optimizer *opt;
} pair;

static void pair_open(pair *p, sut_metric metric)
{
    memset(p, 0, sizeof *p);
    sut_tensor tensor[2];
    for (int t = 0; t < 2; ++t) {
        tensor[t] = (sut_tensor){.data = p->x[t], .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {3}};
        for (int i = 0; i < 2; ++i) {
            p->grads[i * 2 + t] = p->g[i][t];
            for (int k = 0; k < 3; ++k)
                p->g[i][t][k] = (i ? -1 : 1) * (1 + k + t) + 0.5 * (k == 1);
        }
    }
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    config.tensors = tensor;
    config.n_tensors = 2;
    config.n_losses = 2;
    config.align = SUT_ALIGN_GUA;
    config.metric = metric;
    assert_int_equal(sut_optimizer_create(&p->opt, context(), &config), SUT_OK);
}

/* 1/M is that of the metric that was chosen: ones for the Euclidean. */
static void the_metric_is_given_back(void **state)
{
    (void)state;
    for (int metric = 0; metric < 2; ++metric) {
        pair p;
        pair_open(&p, (sut_metric)metric);
        void *const w[2] = {p.w[0], p.w[1]};
        assert_int_equal(sut_optimizer_propose(p.opt, p.grads, NULL, NULL, w), SUT_OK);
        for (int t = 0; t < 2; ++t)
            for (int k = 0; k < 3; ++k)
                assert_int_equal(p.w[t][k] == 1, metric == SUT_METRIC_EUCLIDEAN);
        sut_optimizer_destroy(p.opt);
    }
}

/* Outputs overlap neither each other nor the gradient of another tensor; nothing has been written where they would. */
static void outputs_lie_apart(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, SUT_METRIC_NATURAL);
    void *const fine[2] = {p.u[0], p.u[1]}, *const also[2] = {p.w[0], p.w[1]};
    void *const other_gradient[2] = {p.g[1][1], p.u[1]}, *const twice[2] = {p.u[0], p.u[0]};
    void *const by_one[2] = {p.u[0], p.u[0] + 2}, *const mixed[2] = {p.w[0], p.u[1]};
    const double before = p.g[1][1][0];
    assert_int_equal(sut_optimizer_propose(p.opt, p.grads, NULL, other_gradient, NULL), SUT_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(sut_context_last_error(context()), "overlaps the gradient of loss 1 in tensor \"param.1\""));
    assert_int_equal(sut_optimizer_propose(p.opt, p.grads, NULL, NULL, other_gradient), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_optimizer_propose(p.opt, p.grads, NULL, twice, NULL), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_optimizer_propose(p.opt, p.grads, NULL, by_one, NULL), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_optimizer_propose(p.opt, p.grads, NULL, fine, fine), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_optimizer_propose(p.opt, p.grads, NULL, fine, mixed), SUT_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(sut_context_last_error(context()), "overlaps"));
    assert_int_equal(sut_optimizer_direction(p.opt, p.grads, NULL, NULL, other_gradient), SUT_ERROR_INVALID_ARGUMENT);
    assert_true(p.g[1][1][0] == before && sut_optimizer_steps(p.opt) == 0);
    assert_int_equal(sut_optimizer_propose(p.opt, p.grads, NULL, fine, also), SUT_OK);
    assert_int_equal(sut_optimizer_project(p.opt, p.grads, other_gradient, NULL), SUT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(sut_optimizer_apply(p.opt, p.grads, NULL, NULL), SUT_OK);
    sut_optimizer_destroy(p.opt);
}

/* A p that is given and is the proposal is no projection; a step without a gradient moves nothing. */
static void reports_of_steps_that_change_nothing(void **state)
{
    (void)state;
    pair p;
    sut_report report;
    pair_open(&p, SUT_METRIC_NATURAL);
    sut_report_init(&report);
    const void *const same[2] = {NULL, NULL}, *const absent[4] = {NULL, NULL, NULL, NULL};
    assert_int_equal(sut_optimizer_propose(p.opt, p.grads, NULL, NULL, NULL), SUT_OK);
    assert_int_equal(sut_optimizer_apply(p.opt, p.grads, same, &report), SUT_OK);
    assert_int_equal(report.projected, 0);
    assert_int_equal(report.realigned, 0);
    assert_int_equal(report.moved, 1);
    assert_int_equal(sut_optimizer_step(p.opt, absent, NULL, &report), SUT_OK);
    assert_int_equal(report.moved, 0);
    sut_optimizer_destroy(p.opt);
}

/* Gradients that were written to between the stages, NaN among them, are noticed: nothing is written, and the proposal waits. */
static void other_gradients_than_those_of_the_proposal(void **state)
{
    (void)state;
    for (int with_p = 0; with_p < 2; ++with_p) {
        pair p, twin;
        pair_open(&p, SUT_METRIC_NATURAL);
        pair_open(&twin, SUT_METRIC_NATURAL);
        static const double given[3] = {1, 2, 3};
        const void *const own[2] = {given, NULL}, *const *const step = with_p ? own : NULL;
        assert_int_equal(sut_optimizer_propose(p.opt, p.grads, NULL, NULL, NULL), SUT_OK);
        assert_int_equal(sut_optimizer_propose(twin.opt, twin.grads, NULL, NULL, NULL), SUT_OK);
        const double kept = p.g[1][1][2], wrong[3] = {NAN, INFINITY, 1e6};
        for (int k = 0; k < 3; ++k) {
            const sut_status status = k < 2 ? SUT_ERROR_NOT_FINITE : SUT_ERROR_INVALID_ARGUMENT;
            p.g[1][1][2] = wrong[k];
            assert_int_equal(sut_optimizer_project(p.opt, p.grads, NULL, NULL), status);
            assert_int_equal(sut_optimizer_apply(p.opt, p.grads, step, NULL), status);
            assert_non_null(strstr(sut_context_last_error(context()),
                                   "the gradient of loss 1 is not the one that sut_optimizer_propose() was given"));
        }
        p.g[1][1][2] = kept;
        assert_int_equal(sut_optimizer_apply(p.opt, p.grads, step, NULL), SUT_OK);
        assert_int_equal(sut_optimizer_apply(twin.opt, twin.grads, step, NULL), SUT_OK);
        assert_memory_equal(p.x, twin.x, sizeof p.x);
        sut_optimizer_destroy(p.opt);
        sut_optimizer_destroy(twin.opt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_given_back),
        cmocka_unit_test(tensors_are_given_back),
        cmocka_unit_test(the_rate_of_the_coming_step),
        cmocka_unit_test(names_and_values),
        cmocka_unit_test(kept_weights_of_nash),
        cmocka_unit_test(a_surgery_that_did_not_converge),
        cmocka_unit_test(the_metric_is_given_back),
        cmocka_unit_test(outputs_lie_apart),
        cmocka_unit_test(reports_of_steps_that_change_nothing),
        cmocka_unit_test(other_gradients_than_those_of_the_proposal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
