/*
 * State files: resuming gives the same bits, and everything that does not fit is refused by name with nothing changed.
 *
 * The fixture is a run with tensors of all four types, two groups, two losses, and gradients that depend on the step and
 * the place alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/checkpoint.h"
#include "core/crc64.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_TENSORS = 4, N_LOSSES = 2, MAX_COUNT = 12 };

typedef struct place {
    const char *name;
    sut_dtype dtype;
    int n_dims;
    int64_t shape[2];
    int group;
} place;

static const place places[N_TENSORS] = {
    {"weight", SUT_DTYPE_F32, 2, {3, 4}, 0},
    {"half", SUT_DTYPE_BF16, 1, {5, 0}, 1},
    {"scale", SUT_DTYPE_F64, 0, {0, 0}, 1},
    {"other half", SUT_DTYPE_F16, 1, {7, 0}, 0},
};

typedef struct run {
    sut_context *ctx;
    sut_optimizer *opt;
    _Alignas(8) unsigned char data[N_TENSORS][MAX_COUNT * 8];
    _Alignas(8) unsigned char grad[N_LOSSES][N_TENSORS][MAX_COUNT * 8];
    sut_tensor tensors[N_TENSORS];
    sut_hyper groups[2];
} run;

/* Small numbers that all types hold exactly: multiples of 1/64 in (-1, 1). */
static double number(int64_t step, int loss, int tensor, int64_t k)
{
    uint64_t x =
        (uint64_t)step * 1000003 + (uint64_t)loss * 7919 + (uint64_t)tensor * 104729 + (uint64_t)k * 1299709 + 1;
    x *= UINT64_C(0x9E3779B97F4A7C15);
    x ^= x >> 29;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    return (double)((int64_t)(x >> 57) - 64) / 64.0;
}

static void put(void *data, sut_dtype dtype, int64_t k, double value)
{
    const float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    switch (dtype) {
    case SUT_DTYPE_F64: ((double *)data)[k] = value; break;
    case SUT_DTYPE_F32: ((float *)data)[k] = f; break;
    case SUT_DTYPE_BF16: ((uint16_t *)data)[k] = (uint16_t)(bits >> 16); break;
    case SUT_DTYPE_F16:
        ((uint16_t *)data)[k] =
            (uint16_t)((bits >> 16 & 0x8000u) | (value == 0 ? 0 : ((bits >> 13) - (112u << 10)) & 0x7fffu));
        break;
    }
}

static int64_t count_of(const sut_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

/* Context, tensors and the defaults of a method; `config` is then the test's to change before start(). */
static void prepare(run *r, sut_optimizer_config *config, sut_optimizer_method method, uint64_t seed)
{
    memset(r, 0, sizeof *r);
    sut_context_config ctx_config;
    sut_context_config_init(&ctx_config);
    ctx_config.n_threads = 1;
    ctx_config.seed = seed;
    assert_int_equal(sut_context_create(&r->ctx, &ctx_config), SUT_OK);
    for (int k = 0; k < N_TENSORS; k++) {
        r->tensors[k] = (sut_tensor){.data = r->data[k],
                                     .dtype = places[k].dtype,
                                     .n_dims = places[k].n_dims,
                                     .shape = {places[k].shape[0], places[k].shape[1]},
                                     .group = places[k].group,
                                     .name = places[k].name};
        for (int64_t j = 0; j < count_of(&r->tensors[k]); j++)
            put(r->data[k], places[k].dtype, j, number(-1, 0, k, j));
    }
    sut_optimizer_config_init(config, method);
    r->groups[0] = r->groups[1] = config->hyper;
    config->tensors = r->tensors;
    config->n_tensors = N_TENSORS;
    config->groups = r->groups;
    config->n_groups = 2;
    config->n_losses = N_LOSSES;
}

static void start(run *r, const sut_optimizer_config *config)
{
    if (sut_optimizer_create(&r->opt, r->ctx, config) != SUT_OK)
        fail_msg("%s", sut_context_last_error(r->ctx));
}

static void create(run *r, sut_optimizer_method method)
{
    sut_optimizer_config config;
    prepare(r, &config, method, 0);
    start(r, &config);
}

static void destroy(run *r)
{
    sut_optimizer_destroy(r->opt);
    sut_context_destroy(r->ctx);
}

/* One step; in every third one the tensor "half" is absent, so that step counts differ. */
static void step(run *r)
{
    const int64_t t = sut_optimizer_steps(r->opt);
    const double losses[N_LOSSES] = {1.5, 0.25};
    const void *grads[N_LOSSES * N_TENSORS];
    for (int i = 0; i < N_LOSSES; i++)
        for (int k = 0; k < N_TENSORS; k++) {
            for (int64_t j = 0; j < count_of(&r->tensors[k]); j++)
                put(r->grad[i][k], r->tensors[k].dtype, j, number(t, i, k, j));
            grads[i * N_TENSORS + k] = k == 1 && t % 3 == 2 ? NULL : r->grad[i][k];
        }
    if (sut_optimizer_step(r->opt, grads, losses, NULL) != SUT_OK)
        fail_msg("step %lld: %s", (long long)t, sut_context_last_error(r->ctx));
}

static void steps(run *r, int n)
{
    for (int k = 0; k < n; k++)
        step(r);
}

typedef struct bytes {
    unsigned char *data;
    size_t size;
} bytes;

/* The state as a file in memory, in a block of malloc. */
static bytes save(run *r)
{
    void *data;
    bytes b;
    if (sut_optimizer_save_memory(r->opt, NULL, &data, &b.size) != SUT_OK)
        fail_msg("%s", sut_context_last_error(r->ctx));
    b.data = malloc(b.size);
    assert_non_null(b.data);
    memcpy(b.data, data, b.size);
    sut_buffer_free(r->ctx, data);
    return b;
}

static void load(run *r, bytes b)
{
    if (sut_optimizer_load_memory(r->opt, b.data, b.size, NULL) != SUT_OK)
        fail_msg("%s", sut_context_last_error(r->ctx));
}

static void same_bytes(bytes a, bytes b)
{
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
}

static void same_state(run *a, run *b)
{
    bytes x = save(a), y = save(b);
    same_bytes(x, y);
    free(x.data);
    free(y.data);
    assert_memory_equal(a->data, b->data, sizeof a->data);
}

/* The file is refused with this status and a text that says all of it; the optimizer, its parameters and the caller's own
 * things stay as they are. */
static void refused_with(run *r, bytes b, const sut_checkpoint_config *config, sut_status status, const char *word,
                         const char *second)
{
    bytes before = save(r);
    const sut_status given = sut_optimizer_load_memory(r->opt, b.data, b.size, config);
    char text[1024];
    (void)snprintf(text, sizeof text, "%s", sut_context_last_error(r->ctx));
    bytes after = save(r);
    same_bytes(before, after);
    free(before.data);
    free(after.data);
    if (given != status)
        fail_msg("status %d, expected %d (%s, %s); text: %s", given, status, word, second, text);
    if (!strstr(text, word) || !strstr(text, second))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", text, word, second);
}

/* --- changing files -------------------------------------------------------------------------------------------------- */

static void repair_checksum(bytes b)
{
    memset(b.data + SUT_CHECKSUM_AT, '0', SUT_CHECKSUM_DIGITS);
    sut_crc64 crc;
    sut_crc64_begin(&crc);
    sut_crc64_add(&crc, b.data, b.size);
    char digits[SUT_CHECKSUM_DIGITS + 1];
    (void)snprintf(digits, sizeof digits, "%016llx", (unsigned long long)sut_crc64_end(&crc));
    memcpy(b.data + SUT_CHECKSUM_AT, digits, SUT_CHECKSUM_DIGITS);
}

/* Replace a text in the header by one of the same length; the checksum is made right again. */
static void edit(bytes b, const char *from, const char *to)
{
    const size_t n = strlen(from);
    assert_int_equal(n, strlen(to));
    for (size_t k = 8; k + n <= b.size; k++)
        if (memcmp(b.data + k, from, n) == 0) {
            memcpy(b.data + k, to, n);
            repair_checksum(b);
            return;
        }
    fail_msg("%s is not in the file", from);
}

static bytes copy(bytes b)
{
    bytes c = {malloc(b.size), b.size};
    assert_non_null(c.data);
    memcpy(c.data, b.data, b.size);
    return c;
}

static void refused_after_edit(run *r, bytes good, const char *from, const char *to, sut_status status,
                               const char *word, const char *second)
{
    bytes b = copy(good);
    edit(b, from, to);
    refused_with(r, b, NULL, status, word, second);
    free(b.data);
}

/* --- resuming -------------------------------------------------------------------------------------------------------- */

/* C031: the published number. */
static void options_come_before_what_follows_from_them(void **state)
{
    (void)state;
    sut_context *ctx;
    assert_int_equal(sut_context_create(&ctx, NULL), SUT_OK);
    double p = 0, g;
    const void *grads[1] = {&g};
    const sut_tensor tensor = {.data = &p, .dtype = SUT_DTYPE_F64, .n_dims = 0, .name = "p"};
    sut_optimizer_config config;
    sut_optimizer *first, *second;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    config.tensors = &tensor;
    config.n_tensors = 1;
    config.hyper.beta1 = 0.8;
    config.hyper.beta2 = 0.99;
    config.hyper.lr = 0.1;
    assert_int_equal(sut_optimizer_create(&first, ctx, &config), SUT_OK);
    for (g = 1; g <= 3; g++)
        assert_int_equal(sut_optimizer_step(first, grads, NULL, NULL), SUT_OK);
    void *data;
    size_t size;
    assert_int_equal(sut_optimizer_save_memory(first, NULL, &data, &size), SUT_OK);
    sut_optimizer_destroy(first);

    p = 77;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    config.tensors = &tensor;
    config.n_tensors = 1;
    assert_int_equal(sut_optimizer_create(&second, ctx, &config), SUT_OK);
    assert_int_equal(sut_optimizer_load_memory(second, data, size, NULL), SUT_OK);
    g = 4;
    assert_int_equal(sut_optimizer_step(second, grads, NULL, NULL), SUT_OK);
    assert_true(fabs(p - -0.3982705968) < 1e-9);
    sut_buffer_free(ctx, data);
    sut_optimizer_destroy(second);
    sut_context_destroy(ctx);
}

/* A value of a hyper-parameter that is not its default. */
static double other_value(const sut_parameter_info *info)
{
    if (info->is_flag)
        return 1;
    return info->default_value == 0 ? 0.25 : info->default_value * 0.75;
}

/*
 * 16 steps in one go against 8, save, load into a fresh optimizer that knows nothing but the state's shape, 8 more.
 * `option`: the hyper-parameter that has another value in both groups (-1: none).
 */
static void resumes(sut_optimizer_method method, int option, const sut_surgery_config *surgery)
{
    run whole, first, second;
    run *const both[2] = {&whole, &first};
    sut_optimizer_config config;
    sut_parameter_info info = {.name = "no option"};
    for (int k = 0; k < 3; k++) {
        run *r = k < 2 ? both[k] : &second;
        prepare(r, &config, method, k < 2 ? 5 : 99); /* the seed is in the file */
        if (option >= 0) {
            assert_int_equal(sut_optimizer_parameter(method, option, &info), SUT_OK);
            const bool shapes_state = !strcmp(info.name, "momentum") || info.is_flag;
            for (int g = 0; g < 2; g++) {
                /* Nesterov demands momentum. */
                if (!strcmp(info.name, "nesterov"))
                    assert_int_equal(sut_hyper_set(&r->groups[g], method, "momentum", 0.9), SUT_OK);
                if (k < 2 || shapes_state)
                    assert_int_equal(sut_hyper_set(&r->groups[g], method, info.name, other_value(&info)), SUT_OK);
            }
        }
        if (surgery)
            config.surgery = *surgery;
        if (k < 2 || surgery) {
            config.align = SUT_ALIGN_GUA;
            config.use_schedule = 1;
            sut_schedule_init(&config.schedule, SUT_SCHEDULE_LINEAR);
            config.schedule.total = 30;
        }
        start(r, &config);
    }
    steps(&whole, 8);
    bytes middle = save(&whole); /* a save changes nothing */
    steps(&whole, 8);
    steps(&first, 8);
    bytes b = save(&first);
    same_bytes(middle, b);
    load(&second, b);
    same_state(&first, &second); /* C034: and saving again gives the same bytes */
    steps(&second, 8);
    same_state(&whole, &second);
    free(middle.data);
    free(b.data);
    destroy(&whole);
    destroy(&first);
    destroy(&second);
}

static void every_optimizer_resumes(void **state)
{
    (void)state;
    for (int method = 0; method < SUT_OPTIMIZER_COUNT; method++) {
        sut_parameter_info info;
        resumes((sut_optimizer_method)method, -1, NULL);
        for (int k = 0; sut_optimizer_parameter((sut_optimizer_method)method, k, &info) == SUT_OK; k++)
            resumes((sut_optimizer_method)method, k, NULL);
    }
}

static void every_surgery_resumes(void **state)
{
    (void)state;
    static const double preference[N_LOSSES] = {0.75, 0.5};
    for (int method = 0; method < SUT_SURGERY_COUNT; method++) {
        sut_surgery_config surgery;
        sut_surgery_config_init(&surgery, (sut_surgery_method)method);
        if (method == SUT_SURGERY_FIXED)
            surgery.preference = preference;
        surgery.nash_update_every = 5; /* the save falls between two updates */
        resumes(SUT_OPTIMIZER_ADAM, -1, &surgery);
    }
}

/* Weights that another surgery left behind are not taken over by one that stays. */
static void kept_weights_belong_to_their_surgery(void **state)
{
    (void)state;
    run nash, nash_too, sum;
    run *const both[2] = {&nash, &nash_too};
    sut_optimizer_config config;
    sut_checkpoint_config keep;
    sut_checkpoint_config_init(&keep);
    keep.restore_settings = 0;
    for (int k = 0; k < 2; k++) {
        prepare(both[k], &config, SUT_OPTIMIZER_ADAM, 0);
        sut_surgery_config_init(&config.surgery, SUT_SURGERY_NASH);
        config.surgery.nash_update_every = 5;
        start(both[k], &config);
    }
    create(&sum, SUT_OPTIMIZER_ADAM);
    steps(&nash, 2);
    steps(&sum, 2);
    bytes from_nash = save(&nash), from_sum = save(&sum);
    assert_int_equal(sut_optimizer_load_memory(nash_too.opt, from_nash.data, from_nash.size, &keep), SUT_OK);
    assert_int_equal(nash_too.opt->algebra.kept_for, 3);
    assert_int_equal(sut_optimizer_load_memory(sum.opt, from_nash.data, from_nash.size, &keep), SUT_OK);
    assert_int_equal(sum.opt->algebra.kept_for, 0);
    free(from_nash.data);
    free(from_sum.data);
    destroy(&nash);
    destroy(&nash_too);
    destroy(&sum);
}

/* Refused steps are counted on. */
static void skipped_steps_travel(void **state)
{
    (void)state;
    run a, b;
    create(&a, SUT_OPTIMIZER_SGD);
    create(&b, SUT_OPTIMIZER_SGD);
    steps(&a, 1);
    const float kept = ((float *)a.grad[0][0])[0];
    ((float *)a.grad[0][0])[0] = NAN;
    const void *grads[N_LOSSES * N_TENSORS] = {a.grad[0][0]};
    for (int k = 0; k < 3; k++)
        assert_int_equal(sut_optimizer_step(a.opt, grads, NULL, NULL), SUT_ERROR_NOT_FINITE);
    ((float *)a.grad[0][0])[0] = kept;
    bytes file = save(&a);
    load(&b, file);
    assert_int_equal(sut_optimizer_skipped_steps(b.opt), 3);
    same_state(&a, &b);
    free(file.data);
    destroy(&a);
    destroy(&b);
}

/* C033 */
static void state_follows_names(void **state)
{
    (void)state;
    run a, b;
    sut_optimizer_config config;
    create(&a, SUT_OPTIMIZER_ADAM);
    prepare(&b, &config, SUT_OPTIMIZER_ADAM, 0);
    for (int k = 0; k < N_TENSORS / 2; k++) { /* in reverse order */
        const sut_tensor t = b.tensors[k];
        b.tensors[k] = b.tensors[N_TENSORS - 1 - k];
        b.tensors[N_TENSORS - 1 - k] = t;
    }
    start(&b, &config);
    steps(&a, 3);
    bytes file = save(&a);
    load(&b, file);
    for (int k = 0; k < N_TENSORS; k++) {
        static const char *const slots[] = {"m", "v"};
        const int other = N_TENSORS - 1 - k;
        assert_int_equal(sut_optimizer_tensor_steps(b.opt, other), sut_optimizer_tensor_steps(a.opt, k));
        for (int s = 0; s < 2; s++) {
            void *x, *y;
            sut_dtype dtype;
            int64_t count;
            assert_int_equal(sut_optimizer_state(a.opt, slots[s], k, &x, &dtype, &count), SUT_OK);
            assert_int_equal(sut_optimizer_state(b.opt, slots[s], other, &y, NULL, NULL), SUT_OK);
            assert_memory_equal(x, y, (size_t)count * sut_dtype_size(dtype));
        }
    }
    assert_memory_equal(a.data, b.data, sizeof a.data);
    free(file.data);
    destroy(&a);
    destroy(&b);
}

/* C038: without a word the run goes on as if it had not stopped; what the caller sets after the load has the last word. */
static void rates_after_a_resume(void **state)
{
    (void)state;
    run whole, fresh;
    sut_optimizer_config config;
    prepare(&whole, &config, SUT_OPTIMIZER_SGD, 0);
    config.use_schedule = 1;
    sut_schedule_init(&config.schedule, SUT_SCHEDULE_COSINE);
    config.schedule.total = 20;
    config.schedule.peak = whole.groups[0].lr = whole.groups[1].lr = 0.5;
    start(&whole, &config);
    steps(&whole, 10);
    bytes b = save(&whole);

    create(&fresh, SUT_OPTIMIZER_SGD); /* another rate, no schedule */
    load(&fresh, b);
    steps(&whole, 1);
    steps(&fresh, 1);
    same_state(&whole, &fresh);

    sut_hyper hyper;
    sut_checkpoint_config keep;
    sut_checkpoint_config_init(&keep);
    keep.restore_settings = 0;
    destroy(&fresh);
    create(&fresh, SUT_OPTIMIZER_SGD);
    assert_int_equal(sut_optimizer_load_memory(fresh.opt, b.data, b.size, &keep), SUT_OK);
    assert_int_equal(sut_optimizer_get_hyper(fresh.opt, 1, &hyper), SUT_OK);
    assert_true(hyper.lr == 1e-2); /* its own */
    assert_int_equal(sut_optimizer_steps(fresh.opt), 10);
    assert_int_equal(fresh.opt->config.use_schedule, 0);

    load(&fresh, b);
    assert_int_equal(sut_optimizer_set_lr(fresh.opt, 1, 0.125), SUT_OK);
    sut_schedule longer = config.schedule;
    longer.total = 40;
    assert_int_equal(sut_optimizer_set_schedule(fresh.opt, &longer), SUT_OK);
    assert_int_equal(sut_optimizer_get_hyper(fresh.opt, 1, &hyper), SUT_OK);
    assert_true(hyper.lr == 0.125);
    assert_int_equal(fresh.opt->config.schedule.total, 40);
    assert_int_equal(sut_optimizer_steps(fresh.opt), 10);
    free(b.data);
    destroy(&whole);
    destroy(&fresh);
}

/* C039 */
static void a_snapshot_is_a_copy(void **state)
{
    (void)state;
    run r;
    create(&r, SUT_OPTIMIZER_NADAM);
    steps(&r, 4);
    void *data;
    size_t size;
    assert_int_equal(sut_optimizer_save_memory(r.opt, NULL, &data, &size), SUT_OK);
    bytes kept = copy((bytes){data, size});
    steps(&r, 3);
    bytes later = save(&r);
    assert_memory_equal(data, kept.data, size);
    assert_int_equal(sut_optimizer_load_memory(r.opt, data, size, NULL), SUT_OK);
    steps(&r, 3);
    bytes again = save(&r);
    same_bytes(later, again);
    sut_buffer_free(r.ctx, data);
    free(kept.data);
    free(later.data);
    free(again.data);
    destroy(&r);
}

static void file_and_memory_hold_the_same_bytes(void **state)
{
    (void)state;
    run r, other;
    char path[64];
    (void)snprintf(path, sizeof path, "suture-checkpoint-%ld.safetensors", (long)getpid());
    create(&r, SUT_OPTIMIZER_RADAM);
    create(&other, SUT_OPTIMIZER_RADAM);
    steps(&r, 5);
    if (sut_optimizer_save(r.opt, path, NULL) != SUT_OK)
        fail_msg("%s", sut_context_last_error(r.ctx));
    bytes b = save(&r), on_disk = {malloc(b.size + 1), 0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    on_disk.size = fread(on_disk.data, 1, b.size + 1, file);
    (void)fclose(file);
    same_bytes(b, on_disk);
    if (sut_optimizer_load(other.opt, path, NULL) != SUT_OK)
        fail_msg("%s", sut_context_last_error(other.ctx));
    same_state(&r, &other);

    /* Damage on the disk is told with the file's name. */
    file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    assert_int_equal(fputc(b.data[b.size - 1] ^ 1, file), b.data[b.size - 1] ^ 1);
    (void)fclose(file);
    assert_int_equal(sut_optimizer_load(other.opt, path, NULL), SUT_ERROR_CORRUPT);
    assert_non_null(strstr(sut_context_last_error(other.ctx), path));
    assert_non_null(strstr(sut_context_last_error(other.ctx), "checksum"));
    same_state(&r, &other);
    assert_int_equal(unlink(path), 0);
    free(b.data);
    free(on_disk.data);
    destroy(&r);
    destroy(&other);
}

/* --- what the caller adds -------------------------------------------------------------------------------------------- */

static void extras_travel_along(void **state)
{
    (void)state;
    run a, b;
    create(&a, SUT_OPTIMIZER_LION);
    create(&b, SUT_OPTIMIZER_LION);
    steps(&a, 2);
    double log[3] = {1, 2, 3}, log_back[3] = {0};
    uint16_t net[4] = {5, 6, 7, 8}, net_back[4] = {0};
    sut_extra_tensor tensors[] = {
        {.name = "log", .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {3}, .data = log},
        {.name = "n\xc3\xa9t/0", .dtype = SUT_DTYPE_F16, .n_dims = 2, .shape = {2, 2}, .data = net},
        {.name = "nothing", .dtype = SUT_DTYPE_F32, .n_dims = 2, .shape = {0, 9}, .data = NULL},
    };
    sut_extra_text texts[] = {{"configuration", "{\"steps\": 30000}\n"}, {"empty", ""}, {"generator", "12345"}};
    sut_checkpoint_config config;
    sut_checkpoint_config_init(&config);
    config.tensors = tensors, config.n_tensors = 3;
    config.texts = texts, config.n_texts = 3;
    void *data;
    size_t size;
    assert_int_equal(sut_optimizer_save_memory(a.opt, &config, &data, &size), SUT_OK);

    /* In another order, and not all of them. */
    sut_extra_tensor wanted[] = {tensors[1], tensors[0]};
    wanted[0].data = net_back, wanted[1].data = log_back;
    sut_extra_text wanted_texts[] = {{"generator", NULL}, {"configuration", NULL}};
    config.tensors = wanted, config.n_tensors = 2;
    config.texts = wanted_texts, config.n_texts = 2;
    if (sut_optimizer_load_memory(b.opt, data, size, &config) != SUT_OK)
        fail_msg("%s", sut_context_last_error(b.ctx));
    assert_memory_equal(log, log_back, sizeof log);
    assert_memory_equal(net, net_back, sizeof net);
    assert_string_equal(wanted_texts[0].value, "12345");
    assert_string_equal(wanted_texts[1].value, "{\"steps\": 30000}\n");
    same_state(&a, &b);

    /* Twice, so that the texts of the first load are released. */
    assert_int_equal(sut_optimizer_load_memory(b.opt, data, size, &config), SUT_OK);
    assert_string_equal(wanted_texts[0].value, "12345");

    steps(&b, 1);
    const bytes file = {data, size};
    const double kept = log_back[0] = 17;
    wanted[0].name = "absent";
    refused_with(&b, file, &config, SUT_ERROR_MISMATCH, "extra tensor \"absent\"", "is not in");
    wanted[0] = tensors[1], wanted[0].data = net_back;
    wanted[0].dtype = SUT_DTYPE_BF16;
    refused_with(&b, file, &config, SUT_ERROR_MISMATCH, "is F16 in", "BF16 here");
    wanted[0].dtype = SUT_DTYPE_F16, wanted[0].n_dims = 1, wanted[0].shape[0] = 4;
    refused_with(&b, file, &config, SUT_ERROR_MISMATCH, "[2, 2]", "[4] here");
    wanted[0] = tensors[1], wanted[0].data = net_back;
    wanted_texts[1].key = "absent";
    refused_with(&b, file, &config, SUT_ERROR_MISMATCH, "extra text \"absent\"", "is not in");
    assert_true(log_back[0] == kept);
    sut_buffer_free(a.ctx, data);
    destroy(&a);
    destroy(&b);
}

static void without_parameters(void **state)
{
    (void)state;
    run a, b;
    create(&a, SUT_OPTIMIZER_ADAM);
    create(&b, SUT_OPTIMIZER_ADAM);
    steps(&a, 3);
    sut_checkpoint_config config;
    sut_checkpoint_config_init(&config);
    config.include_parameters = 0;
    void *data;
    size_t size;
    assert_int_equal(sut_optimizer_save_memory(a.opt, &config, &data, &size), SUT_OK);
    const bytes bare = {data, size};
    bytes full = save(&a);
    assert_true(size < full.size);
    unsigned char before[sizeof b.data];
    memcpy(before, b.data, sizeof before);
    refused_with(&b, bare, NULL, SUT_ERROR_MISMATCH, "the parameter of tensor \"weight\" is missing",
                 "include_parameters");
    const bytes *files[2] = {&bare, &full}; /* parameters in a file are passed over */
    for (int k = 0; k < 2; k++) {
        assert_int_equal(sut_optimizer_load_memory(b.opt, files[k]->data, files[k]->size, &config), SUT_OK);
        assert_memory_equal(b.data, before, sizeof before);
        void *x, *y;
        assert_int_equal(sut_optimizer_state(a.opt, "v", 0, &x, NULL, NULL), SUT_OK);
        assert_int_equal(sut_optimizer_state(b.opt, "v", 0, &y, NULL, NULL), SUT_OK);
        assert_memory_equal(x, y, 12 * sizeof(float));
        assert_int_equal(sut_optimizer_steps(b.opt), 3);
    }
    sut_buffer_free(a.ctx, data);
    free(full.data);
    destroy(&a);
    destroy(&b);
}

/* Weights of one run for another, of whatever method: nothing but the parameters changes. */
static void only_parameters(void **state)
{
    (void)state;
    run from, to, smaller;
    sut_optimizer_config config;
    prepare(&from, &config, SUT_OPTIMIZER_ADAM, 5);
    config.align = SUT_ALIGN_GUA;
    start(&from, &config);
    prepare(&to, &config, SUT_OPTIMIZER_LION, 7);
    for (int k = 0; k < N_TENSORS; k++) /* the groups are others, too */
        to.tensors[k].group = 0;
    config.n_groups = 1;
    start(&to, &config);
    steps(&from, 3);
    steps(&to, 2);
    bytes file = save(&from);
    sut_hyper before, after;
    sut_checkpoint_config load_config;
    sut_checkpoint_config_init(&load_config);
    load_config.include_parameters = 0;
    void *state_only;
    size_t state_size;
    assert_int_equal(sut_optimizer_save_memory(to.opt, &load_config, &state_only, &state_size), SUT_OK);
    assert_int_equal(sut_optimizer_get_hyper(to.opt, 0, &before), SUT_OK);

    refused_with(&to, file, NULL, SUT_ERROR_MISMATCH, "adam", "lion");
    refused_with(&to, (bytes){state_only, state_size},
                 &(sut_checkpoint_config){sizeof load_config, 1, NULL, 0, NULL, 0, 1, 1}, SUT_ERROR_MISMATCH,
                 "the parameter of tensor", "is missing");
    load_config.include_parameters = 1;
    load_config.only_parameters = 1;
    if (sut_optimizer_load_memory(to.opt, file.data, file.size, &load_config) != SUT_OK)
        fail_msg("%s", sut_context_last_error(to.ctx));
    assert_memory_equal(to.data, from.data, sizeof to.data);
    for (int64_t k = 0; k < N_TENSORS; k++)
        if (from.opt->pass_tensor[k].theta != from.opt->pass_tensor[k].param)
            assert_memory_equal(from.opt->pass_tensor[k].theta, to.opt->pass_tensor[k].theta,
                                (size_t)count_of(&from.tensors[k]) * sizeof(float));

    void *state_after;
    size_t size_after;
    load_config.include_parameters = 0;
    load_config.only_parameters = 0;
    assert_int_equal(sut_optimizer_save_memory(to.opt, &load_config, &state_after, &size_after), SUT_OK);
    same_bytes((bytes){state_only, state_size}, (bytes){state_after, size_after});
    assert_int_equal(sut_optimizer_get_hyper(to.opt, 0, &after), SUT_OK);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(sut_optimizer_steps(to.opt), 2);

    /* More tensors in the file than here. */
    prepare(&smaller, &config, SUT_OPTIMIZER_SGD, 0);
    config.n_tensors = 1;
    start(&smaller, &config);
    load_config.include_parameters = 1;
    load_config.only_parameters = 1;
    assert_int_equal(sut_optimizer_load_memory(smaller.opt, file.data, file.size, &load_config), SUT_OK);
    assert_memory_equal(smaller.data[0], from.data[0], sizeof from.data[0]);

    load_config.include_parameters = 0;
    refused_with(&to, file, &load_config, SUT_ERROR_INVALID_ARGUMENT, "only_parameters", "include_parameters");
    sut_buffer_free(to.ctx, state_only);
    sut_buffer_free(to.ctx, state_after);
    free(file.data);
    destroy(&from);
    destroy(&to);
    destroy(&smaller);
}

/* A load brings its seed to the optimizer alone: one that shares its context, and surgery on plain arrays, draw as before. */
static void the_seed_belongs_to_the_optimizer(void **state)
{
    (void)state;
    run from, to;
    create(&from, SUT_OPTIMIZER_SGD);
    sut_optimizer_config config;
    prepare(&to, &config, SUT_OPTIMIZER_SGD, 7);
    start(&to, &config);
    sut_optimizer *const first = to.opt;
    static unsigned char other_data[N_TENSORS][MAX_COUNT * 8];
    for (int k = 0; k < N_TENSORS; k++)
        to.tensors[k].data = other_data[k];
    start(&to, &config);
    sut_optimizer *const second = to.opt;
    to.opt = first;
    bytes file = save(&from);
    load(&to, file);
    assert_int_equal(first->seed, 0);
    assert_int_equal(second->seed, 7);
    assert_int_equal(to.ctx->seed, 7);
    /* Created later from the same context: its own seed again. */
    sut_optimizer_destroy(second);
    start(&to, &config);
    assert_int_equal(to.opt->seed, 7);
    sut_optimizer_destroy(first);
    free(file.data);
    destroy(&from);
    destroy(&to);
}

/* --- refusals -------------------------------------------------------------------------------------------------------- */

/* C035: every cut, every flipped byte (one bit and all bits of it). */
static void every_damage_is_noticed(void **state)
{
    (void)state;
    run r;
    create(&r, SUT_OPTIMIZER_ADAM);
    steps(&r, 2);
    bytes good = save(&r);
    for (size_t n = 0; n < good.size; n++) {
        bytes cut = {malloc(n ? n : 1), n}; /* of its own size: a read behind the end is seen */
        memcpy(cut.data, good.data, n);
        assert_int_equal(sut_optimizer_load_memory(r.opt, cut.data, n, NULL), SUT_ERROR_CORRUPT);
        free(cut.data);
    }
    for (size_t k = 0; k < good.size; k++) {
        static const unsigned char masks[] = {0x01, 0x20, 0x80, 0xff};
        for (int j = 0; j < 4; j++) {
            good.data[k] ^= masks[j];
            const sut_status status = sut_optimizer_load_memory(r.opt, good.data, good.size, NULL);
            good.data[k] ^= masks[j];
            if (status != SUT_ERROR_CORRUPT)
                fail_msg("byte %zu ^ 0x%02x: status %d, %s", k, masks[j], status, sut_context_last_error(r.ctx));
        }
    }
    bytes after = save(&r);
    same_bytes(good, after); /* the handle never changed */
    free(good.data);
    free(after.data);
    destroy(&r);
}

/* C036: the container's own test has the whole list; here, that a load passes its refusals on. */
static void hostile_headers(void **state)
{
    (void)state;
    run r;
    create(&r, SUT_OPTIMIZER_SGD);
    bytes good = save(&r), bad = copy(good);
    const struct {
        uint64_t length;
        const char *word;
    } lengths[] = {
        {0, "header length"}, {7, "json"}, {good.size, "header length"}, {UINT64_C(1) << 63, "header length"}};
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < 8; i++)
            bad.data[i] = (unsigned char)(lengths[k].length >> (8 * i));
        refused_with(&r, bad, NULL, SUT_ERROR_CORRUPT, lengths[k].word, "the buffer");
    }
    refused_with(&r, (bytes){(unsigned char *)"PK\3\4 a zip", 10}, NULL, SUT_ERROR_CORRUPT, "header length", "");
    refused_with(&r, (bytes){(unsigned char *)"", 0}, NULL, SUT_ERROR_CORRUPT, "truncated", "");
    free(good.data);
    free(bad.data);
    destroy(&r);
}

/* C037, and every other way in which a sound file may not fit. */
static void files_that_do_not_fit(void **state)
{
    (void)state;
    run adam, sgd;
    create(&adam, SUT_OPTIMIZER_ADAM);
    create(&sgd, SUT_OPTIMIZER_SGD);
    steps(&adam, 2);
    steps(&sgd, 2);
    bytes good = save(&adam), momentum = save(&sgd);
    const sut_status mismatch = SUT_ERROR_MISMATCH, corrupt = SUT_ERROR_CORRUPT;

    refused_with(&adam, momentum, NULL, mismatch, "written by sgd", "this optimizer is adam");
    static const char foreign[] =
        "\x3b\0\0\0\0\0\0\0{\"weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}1234";
    refused_with(&adam, (bytes){(unsigned char *)foreign, sizeof foreign - 1}, NULL, mismatch, "no optimizer state",
                 "1 tensors");
    refused_after_edit(&adam, good, "\"suture.format\":\"1\"", "\"suture.format\":\"2\"", mismatch, "format 2",
                       "up to 1");
    refused_after_edit(&adam, good, "\"suture.format\":\"1\"", "\"suture.format\":\"0\"", corrupt, "suture.format", "");
    refused_after_edit(&adam, good, "\"suture.format\"", "\"suture.farmat\"", corrupt, "suture.format", "lack");
    refused_after_edit(&adam, good, "\"suture.n_losses\":\"2\"", "\"suture.n_losses\":\"3\"", mismatch, "3 losses",
                       "has 2");
    refused_after_edit(&adam, good, "\"suture.n_groups\":\"2\"", "\"suture.n_groups\":\"3\"", mismatch,
                       "3 parameter groups", "has 2");
    refused_after_edit(&adam, good, "suture.state.v.weight", "suture.stale.v.weight", mismatch,
                       "second moment v of tensor \"weight\"", "missing");
    refused_after_edit(&adam, good, "suture.state.m.half", "suture.stale.m.half", mismatch,
                       "first moment m of tensor \"half\"", "missing");
    refused_after_edit(&adam, good, "suture.state.step.scale", "suture.stale.step.scale", mismatch,
                       "step count step of tensor \"scale\"", "missing");
    refused_after_edit(&adam, good, "suture.param.weight", "suture.purim.weight", mismatch,
                       "parameter of tensor \"weight\"", "missing");
    refused_after_edit(&adam, good, "suture.master.half", "suture.monster.hal", mismatch,
                       "master copy of tensor \"half\"", "missing");
    refused_after_edit(&adam, good, "suture.state.layout.weight", "suture.stale.layout.weight", mismatch,
                       "tensor \"weight\" is not in", "");
    refused_after_edit(&adam, good, "suture.state.m.weight\":{\"dtype\":\"F32\",\"shape\":[3,4]",
                       "suture.state.m.weight\":{\"dtype\":\"F32\",\"shape\":[4,3]", mismatch, "[4, 3]", "[3, 4] here");
    refused_after_edit(&adam, good, "suture.state.m.weight\":{\"dtype\":\"F32\"",
                       "suture.state.m.weight\":{\"dtype\":\"I32\"", mismatch, "suture.state.m.weight", "is I32");
    refused_after_edit(&adam, good, "suture.surgery.kept_weights", "suture.surgery.lost_weights", corrupt,
                       "kept_weights", "");
    refused_after_edit(&adam, good, "\"suture.steps\":\"2\"", "\"suture.steps\":\"1\"", corrupt, "2 of 1 steps", "");
    refused_after_edit(&adam, good, "\"suture.rho_m\":\"0.1", "\"suture.rho_m\":\"7.1", mismatch, "settings", "rho_m");
    refused_after_edit(&adam, good, "\"suture.group.1.beta1\":\"0", "\"suture.group.1.beta1\":\"7", corrupt,
                       "suture.group.1.beta1", "range");
    refused_after_edit(&adam, good, "\"suture.surgery.method\":\"sum\"", "\"suture.surgery.method\":\"sun\"", corrupt,
                       "suture.surgery.method", "sun");
    refused_after_edit(&adam, good, "\"suture.seed\":\"0\"", "\"suture.seed\":\"x\"", corrupt, "suture.seed", "");
    free(good.data);
    free(momentum.data);
    destroy(&adam);
    destroy(&sgd);
}

/* An optimizer like that of `places`, but with one thing changed by `change`. */
static void other_layout(bytes good, void (*change)(run *r, sut_optimizer_config *config), const char *word,
                         const char *second)
{
    run r;
    sut_optimizer_config config;
    prepare(&r, &config, SUT_OPTIMIZER_ADAM, 0);
    change(&r, &config);
    start(&r, &config);
    refused_with(&r, good, NULL, SUT_ERROR_MISMATCH, word, second);
    destroy(&r);
}

static void change_name(run *r, sut_optimizer_config *config)
{
    (void)config;
    r->tensors[0].name = "wait";
}
static void change_shape(run *r, sut_optimizer_config *config)
{
    (void)config;
    r->tensors[0].shape[0] = 4, r->tensors[0].shape[1] = 3;
}
static void change_dimensions(run *r, sut_optimizer_config *config)
{
    (void)config;
    r->tensors[0].n_dims = 1, r->tensors[0].shape[0] = 12;
}
static void change_dtype(run *r, sut_optimizer_config *config)
{
    (void)config;
    r->tensors[1].dtype = SUT_DTYPE_F16;
}
static void change_group(run *r, sut_optimizer_config *config)
{
    (void)config;
    r->tensors[2].group = 0;
}
static void drop_tensor(run *r, sut_optimizer_config *config)
{
    (void)r;
    config->n_tensors = 3;
}
static void use_amsgrad(run *r, sut_optimizer_config *config)
{
    (void)config;
    r->groups[0].amsgrad = 1;
}
static void change_losses(run *r, sut_optimizer_config *config)
{
    (void)r;
    config->n_losses = 1;
}
static void one_group(run *r, sut_optimizer_config *config)
{
    for (int k = 0; k < N_TENSORS; k++)
        r->tensors[k].group = 0;
    config->groups = NULL;
    config->n_groups = 0;
}

static void other_layouts(void **state)
{
    (void)state;
    run r;
    create(&r, SUT_OPTIMIZER_ADAM);
    steps(&r, 2);
    bytes good = save(&r);
    other_layout(good, change_name, "tensor \"wait\" is not in", "");
    other_layout(good, change_shape, "tensor \"weight\" has shape [3, 4]", "[4, 3] here");
    other_layout(good, change_dimensions, "tensor \"weight\" has shape [3, 4]", "[12] here");
    other_layout(good, change_dtype, "tensor \"half\" is bf16", "f16 here");
    other_layout(good, change_group, "tensor \"scale\" is in group 1", "group 0 here");
    other_layout(good, drop_tensor, "tensor \"other half\"", "not among those of this optimizer");
    other_layout(good, use_amsgrad, "largest second moment vmax of tensor \"weight\"", "missing");
    other_layout(good, change_losses, "2 losses", "has 1");
    other_layout(good, one_group, "group 1", "");
    free(good.data);
    destroy(&r);

    /* The other way round: the file has state that there is no room for. */
    sut_optimizer_config config;
    prepare(&r, &config, SUT_OPTIMIZER_ADAM, 0);
    r.groups[0].amsgrad = 1;
    start(&r, &config);
    good = save(&r);
    destroy(&r);
    create(&r, SUT_OPTIMIZER_ADAM);
    refused_with(&r, good, NULL, SUT_ERROR_MISMATCH, "\"vmax\"", "created without");
    free(good.data);
    destroy(&r);

    /* Weights that the caller lends are not in the file: they must be there already. */
    static const double preference[N_LOSSES] = {0.75, 0.5};
    prepare(&r, &config, SUT_OPTIMIZER_ADAM, 0);
    config.surgery.method = SUT_SURGERY_FIXED;
    config.surgery.preference = preference;
    start(&r, &config);
    good = save(&r);
    destroy(&r);
    create(&r, SUT_OPTIMIZER_ADAM);
    refused_with(&r, good, NULL, SUT_ERROR_MISMATCH, "settings", "preference");
    free(good.data);
    destroy(&r);
}

static void empty_tensors_and_default_names(void **state)
{
    (void)state;
    run a, b;
    run *const both[2] = {&a, &b};
    for (int k = 0; k < 2; k++) {
        sut_optimizer_config config;
        prepare(both[k], &config, SUT_OPTIMIZER_ADAMW, 0);
        both[k]->tensors[1].shape[0] = 0, both[k]->tensors[1].data = NULL;
        both[k]->tensors[0].name = NULL;
        start(both[k], &config);
    }
    steps(&a, 4);
    bytes file = save(&a);
    load(&b, file);
    same_state(&a, &b);
    steps(&a, 2);
    steps(&b, 2);
    same_state(&a, &b);
    refused_after_edit(&b, file, "suture.state.m.param.0", "suture.stale.m.param.0", SUT_ERROR_MISMATCH, "\"param.0\"",
                       "");
    free(file.data);
    destroy(&a);
    destroy(&b);
}

/* --- format 1, as released ------------------------------------------------------------------------------------------- */

#define GOLDEN SUT_TEST_DATA "/checkpoint_format_1.safetensors"

/*
 * A small Adam state that the first version wrote (--write below): three steps from (1, 2, 3) with g_k = k (1, -2, 1/2),
 * lr 0.1, betas 0.8 and 0.99. The moments are checked against their sums written out.
 */
static void golden_optimizer(sut_context *ctx, double *theta, sut_optimizer **opt)
{
    const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {3}, .name = "theta"};
    sut_optimizer_config config;
    sut_optimizer_config_init(&config, SUT_OPTIMIZER_ADAM);
    config.tensors = &tensor;
    config.n_tensors = 1;
    config.hyper.lr = 0.1;
    config.hyper.beta1 = 0.8;
    config.hyper.beta2 = 0.99;
    assert_int_equal(sut_optimizer_create(opt, ctx, &config), SUT_OK);
}

static void golden_step(sut_optimizer *opt, int k)
{
    const double g[3] = {1.0 * k, -2.0 * k, 0.5 * k};
    const void *grads[1] = {g};
    assert_int_equal(sut_optimizer_step(opt, grads, NULL, NULL), SUT_OK);
}

static void format_1_is_read(void **state)
{
    (void)state;
    sut_context *ctx;
    sut_optimizer *opt;
    double theta[3] = {9, 9, 9};
    sut_extra_text text = {.key = "note", .value = NULL};
    sut_checkpoint_config config;
    sut_checkpoint_config_init(&config);
    config.texts = &text, config.n_texts = 1;
    assert_int_equal(sut_context_create(&ctx, NULL), SUT_OK);
    const sut_tensor tensor = {.data = theta, .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {3}, .name = "theta"};
    sut_optimizer_config fresh;
    sut_optimizer_config_init(&fresh, SUT_OPTIMIZER_ADAM);
    fresh.tensors = &tensor;
    fresh.n_tensors = 1;
    assert_int_equal(sut_optimizer_create(&opt, ctx, &fresh), SUT_OK);
    if (sut_optimizer_load(opt, GOLDEN, &config) != SUT_OK)
        fail_msg("%s", sut_context_last_error(ctx));
    assert_string_equal(text.value, "format 1");
    assert_int_equal(sut_optimizer_steps(opt), 3);
    assert_int_equal(sut_optimizer_tensor_steps(opt, 0), 3);
    sut_hyper hyper;
    assert_int_equal(sut_optimizer_get_hyper(opt, 0, &hyper), SUT_OK);
    assert_true(hyper.lr == 0.1 && hyper.beta1 == 0.8 && hyper.beta2 == 0.99 && hyper.eps == 1e-8);

    const double factor[3] = {1, -2, 0.5};
    const double m = 0.2 * (0.64 * 1 + 0.8 * 2 + 3), v = 0.01 * (0.9801 * 1 + 0.99 * 4 + 9);
    double *slot;
    assert_int_equal(sut_optimizer_state(opt, "m", 0, (void **)&slot, NULL, NULL), SUT_OK);
    for (int k = 0; k < 3; k++)
        assert_true(fabs(slot[k] - factor[k] * m) < 4e-15); /* a handful of roundings */
    assert_int_equal(sut_optimizer_state(opt, "v", 0, (void **)&slot, NULL, NULL), SUT_OK);
    for (int k = 0; k < 3; k++)
        assert_true(fabs(slot[k] - factor[k] * factor[k] * v) < 4e-15);

    /* Today's library makes the same of the same run, up to the pow() of another machine, and goes on in the same way. */
    sut_optimizer *again;
    double theta_again[3] = {1, 2, 3};
    golden_optimizer(ctx, theta_again, &again);
    for (int k = 1; k <= 3; k++)
        golden_step(again, k);
    for (int k = 0; k < 3; k++)
        assert_true(fabs(theta[k] - theta_again[k]) < 1e-14);
    golden_step(opt, 4);
    golden_step(again, 4);
    for (int k = 0; k < 3; k++)
        assert_true(fabs(theta[k] - theta_again[k]) < 1e-14);
    sut_optimizer_destroy(opt);
    sut_optimizer_destroy(again);
    sut_context_destroy(ctx);
}

/* test_checkpoint --write FILE: how the golden file was made. */
static int write_golden(const char *path)
{
    sut_context *ctx;
    sut_optimizer *opt;
    double theta[3] = {1, 2, 3};
    sut_extra_text text = {.key = "note", .value = "format 1"};
    sut_checkpoint_config config;
    sut_checkpoint_config_init(&config);
    config.texts = &text, config.n_texts = 1;
    if (sut_context_create(&ctx, NULL) != SUT_OK)
        return 1;
    golden_optimizer(ctx, theta, &opt);
    for (int k = 1; k <= 3; k++)
        golden_step(opt, k);
    const sut_status status = sut_optimizer_save(opt, path, &config);
    sut_optimizer_destroy(opt);
    sut_context_destroy(ctx);
    return status != SUT_OK;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_golden(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_come_before_what_follows_from_them),
        cmocka_unit_test(every_optimizer_resumes),
        cmocka_unit_test(every_surgery_resumes),
        cmocka_unit_test(kept_weights_belong_to_their_surgery),
        cmocka_unit_test(skipped_steps_travel),
        cmocka_unit_test(state_follows_names),
        cmocka_unit_test(rates_after_a_resume),
        cmocka_unit_test(a_snapshot_is_a_copy),
        cmocka_unit_test(file_and_memory_hold_the_same_bytes),
        cmocka_unit_test(extras_travel_along),
        cmocka_unit_test(without_parameters),
        cmocka_unit_test(only_parameters),
        cmocka_unit_test(the_seed_belongs_to_the_optimizer),
        cmocka_unit_test(every_damage_is_noticed),
        cmocka_unit_test(hostile_headers),
        cmocka_unit_test(files_that_do_not_fit),
        cmocka_unit_test(other_layouts),
        cmocka_unit_test(empty_tensors_and_default_names),
        cmocka_unit_test(format_1_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
