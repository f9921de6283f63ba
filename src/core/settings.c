/*
 * Settings in state files, see settings.h.
 */
#define _XOPEN_SOURCE 700 /* uselocale */

#include "core/settings.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- numbers as texts ----------------------------------------------------------------------------------------------- */

/* Runs a conversion with a decimal point, whatever the process's locale; only this thread sees the change. */
typedef struct c_locale {
    locale_t own, before;
} c_locale;

static c_locale enter_c_locale(void)
{
    c_locale scope;
    scope.own = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    scope.before = scope.own != (locale_t)0 ? uselocale(scope.own) : (locale_t)0;
    return scope;
}

static void leave_c_locale(c_locale scope)
{
    if (scope.own == (locale_t)0)
        return;
    (void)uselocale(scope.before);
    freelocale(scope.own);
}

void sut_text_add(sut_text_list *list, const char *key, const char *value)
{
    sut_text_entry *entry = &list->entries[list->n++];
    (void)snprintf(entry->key, sizeof entry->key, "%s", key);
    (void)snprintf(entry->value, sizeof entry->value, "%s", value);
}

void sut_text_add_double(sut_text_list *list, const char *key, double value)
{
    char text[40];
    const c_locale scope = enter_c_locale();
    (void)snprintf(text, sizeof text, "%.17g", value);
    leave_c_locale(scope);
    sut_text_add(list, key, text);
}

void sut_text_add_int(sut_text_list *list, const char *key, int64_t value)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    sut_text_add(list, key, text);
}

void sut_text_add_unsigned(sut_text_list *list, const char *key, uint64_t value)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    sut_text_add(list, key, text);
}

sut_status sut_text_get(sut_context *ctx, const sut_safetensors *file, const char *key, const char **value_out)
{
    *value_out = sut_safetensors_metadata(file, key);
    if (*value_out == NULL)
        SUT_FAIL(ctx, SUT_ERROR_CORRUPT, "the state file is damaged: its metadata lack \"%s\"", key);
    return SUT_OK;
}

static sut_status bad_value(sut_context *ctx, const char *key, const char *text)
{
    SUT_FAIL(ctx, SUT_ERROR_CORRUPT,
             "the state file is damaged: its metadata give \"%s\" the impossible value \"%.60s\"", key, text);
}

sut_status sut_text_get_double(sut_context *ctx, const sut_safetensors *file, const char *key, double *value_out)
{
    const char *text;
    SUT_TRY(sut_text_get(ctx, file, key, &text));
    char *end;
    const c_locale scope = enter_c_locale();
    const double value = strtod(text, &end);
    leave_c_locale(scope);
    if (end == text || *end != '\0')
        return bad_value(ctx, key, text);
    *value_out = value;
    return SUT_OK;
}

sut_status sut_text_get_int(sut_context *ctx, const sut_safetensors *file, const char *key, int64_t minimum,
                            int64_t maximum, int64_t *value_out)
{
    const char *text;
    SUT_TRY(sut_text_get(ctx, file, key, &text));
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < minimum || value > maximum)
        return bad_value(ctx, key, text);
    *value_out = value;
    return SUT_OK;
}

sut_status sut_text_get_unsigned(sut_context *ctx, const sut_safetensors *file, const char *key, uint64_t *value_out)
{
    const char *text;
    SUT_TRY(sut_text_get(ctx, file, key, &text));
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return bad_value(ctx, key, text);
    *value_out = value;
    return SUT_OK;
}

/* --- the table ------------------------------------------------------------------------------------------------------ */

typedef enum setting_kind { DOUBLE, INT, INT64, NAME } setting_kind;

typedef struct setting {
    const char *key;
    setting_kind kind;
    size_t offset;
    const char *(*name)(int value); /* NAME: NULL past the last value */
} setting;

static const char *align_name(int value)
{
    return sut_align_name((sut_align)value);
}

static const char *metric_name(int value)
{
    return sut_metric_name((sut_metric)value);
}

static const char *schedule_name(int value)
{
    return sut_schedule_name((sut_schedule_kind)value);
}

static const char *cooldown_name(int value)
{
    return sut_cooldown_name((sut_cooldown)value);
}

static const char *surgery_name(int value)
{
    return sut_surgery_method_name((sut_surgery_method)value);
}

#define OF(member) offsetof(sut_optimizer_config, member)

/* Enumerations are read and written as ints. */
_Static_assert(sizeof(sut_align) == sizeof(int) && sizeof(sut_surgery_method) == sizeof(int), "enums are ints");

static const setting settings[] = {
    {"suture.maximize", INT, OF(maximize), NULL},
    {"suture.clip_norm", DOUBLE, OF(clip_norm), NULL},
    {"suture.strict", INT, OF(strict), NULL},
    {"suture.check", INT, OF(check), NULL},
    {"suture.align", NAME, OF(align), align_name},
    {"suture.metric", NAME, OF(metric), metric_name},
    {"suture.rho_m", DOUBLE, OF(rho_m), NULL},
    {"suture.rho_v", DOUBLE, OF(rho_v), NULL},
    {"suture.realign_raw", INT, OF(realign_raw), NULL},
    {"suture.conflict_cos_tol", DOUBLE, OF(conflict_cos_tol), NULL},
    {"suture.correction_distance_tol", DOUBLE, OF(correction_distance_tol), NULL},
    {"suture.use_schedule", INT, OF(use_schedule), NULL},
    {"suture.schedule.kind", NAME, OF(schedule.kind), schedule_name},
    {"suture.schedule.peak", DOUBLE, OF(schedule.peak), NULL},
    {"suture.schedule.final_lr", DOUBLE, OF(schedule.final_lr), NULL},
    {"suture.schedule.warmup", INT64, OF(schedule.warmup), NULL},
    {"suture.schedule.total", INT64, OF(schedule.total), NULL},
    {"suture.schedule.warmup_start", DOUBLE, OF(schedule.warmup_start), NULL},
    {"suture.schedule.cooldown_fraction", DOUBLE, OF(schedule.cooldown_fraction), NULL},
    {"suture.schedule.cooldown", NAME, OF(schedule.cooldown), cooldown_name},
    {"suture.surgery.method", NAME, OF(surgery.method), surgery_name},
    {"suture.surgery.scale_to_sum", INT, OF(surgery.scale_to_sum), NULL},
    {"suture.surgery.pcgrad_identity_order", INT, OF(surgery.pcgrad_identity_order), NULL},
    {"suture.surgery.pcgrad_mean", INT, OF(surgery.pcgrad_mean), NULL},
    {"suture.surgery.config_length", INT, OF(surgery.config_length), NULL},
    {"suture.surgery.config_row", INT, OF(surgery.config_row), NULL},
    {"suture.surgery.cagrad_c", DOUBLE, OF(surgery.cagrad_c), NULL},
    {"suture.surgery.cagrad_rescale", INT, OF(surgery.cagrad_rescale), NULL},
    {"suture.surgery.cagrad_eps", DOUBLE, OF(surgery.cagrad_eps), NULL},
    {"suture.surgery.cagrad_pareto", INT, OF(surgery.cagrad_pareto), NULL},
    {"suture.surgery.imtlg_abs_normaliser", INT, OF(surgery.imtlg_abs_normaliser), NULL},
    {"suture.surgery.aligned_scale", INT, OF(surgery.aligned_scale), NULL},
    {"suture.surgery.aligned_rank_tol", DOUBLE, OF(surgery.aligned_rank_tol), NULL},
    {"suture.surgery.norm_eps", DOUBLE, OF(surgery.norm_eps), NULL},
    {"suture.surgery.reg_eps", DOUBLE, OF(surgery.reg_eps), NULL},
    {"suture.surgery.mgda_normalisation", INT, OF(surgery.mgda_normalisation), NULL},
    {"suture.surgery.mgda_frank_wolfe", INT, OF(surgery.mgda_frank_wolfe), NULL},
    {"suture.surgery.mgda_fw_epsilon", DOUBLE, OF(surgery.mgda_fw_epsilon), NULL},
    {"suture.surgery.mgda_fw_max_iterations", INT, OF(surgery.mgda_fw_max_iterations), NULL},
    {"suture.surgery.nash_max_norm", DOUBLE, OF(surgery.nash_max_norm), NULL},
    {"suture.surgery.nash_update_every", INT, OF(surgery.nash_update_every), NULL},
    {"suture.surgery.sdmgrad_lambda", DOUBLE, OF(surgery.sdmgrad_lambda), NULL},
};

enum { N_SETTINGS = sizeof settings / sizeof *settings };

size_t sut_settings_count(void)
{
    return N_SETTINGS;
}

void sut_settings_add(sut_text_list *list, const sut_optimizer_config *given)
{
    /* A schedule that is not in use need not be sound. */
    sut_optimizer_config copy = *given;
    const sut_optimizer_config *config = &copy;
    if (!copy.use_schedule)
        sut_schedule_init(&copy.schedule, SUT_SCHEDULE_CONSTANT);
    for (int k = 0; k < N_SETTINGS; k++) {
        const setting *s = &settings[k];
        const void *member = (const char *)config + s->offset;
        double number;
        int64_t large;
        int small;
        switch (s->kind) {
        case DOUBLE:
            memcpy(&number, member, sizeof number);
            sut_text_add_double(list, s->key, number);
            break;
        case INT64:
            memcpy(&large, member, sizeof large);
            sut_text_add_int(list, s->key, large);
            break;
        case INT:
            memcpy(&small, member, sizeof small);
            sut_text_add_int(list, s->key, small);
            break;
        case NAME:
            memcpy(&small, member, sizeof small);
            sut_text_add(list, s->key, s->name(small));
            break;
        }
    }
}

static sut_status get_name(sut_context *ctx, const sut_safetensors *file, const setting *s, int *value_out)
{
    const char *text;
    SUT_TRY(sut_text_get(ctx, file, s->key, &text));
    for (int value = 0; s->name(value) != NULL; value++)
        if (strcmp(s->name(value), text) == 0) {
            *value_out = value;
            return SUT_OK;
        }
    return bad_value(ctx, s->key, text);
}

sut_status sut_settings_get(sut_context *ctx, const sut_safetensors *file, sut_optimizer_config *config)
{
    for (int k = 0; k < N_SETTINGS; k++) {
        const setting *s = &settings[k];
        void *member = (char *)config + s->offset;
        double number;
        int64_t large;
        int small = 0;
        switch (s->kind) {
        case DOUBLE:
            SUT_TRY(sut_text_get_double(ctx, file, s->key, &number));
            memcpy(member, &number, sizeof number);
            break;
        case INT64:
            SUT_TRY(sut_text_get_int(ctx, file, s->key, INT64_MIN, INT64_MAX, &large));
            memcpy(member, &large, sizeof large);
            break;
        case INT:
            SUT_TRY(sut_text_get_int(ctx, file, s->key, INT_MIN, INT_MAX, &large));
            small = (int)large;
            memcpy(member, &small, sizeof small);
            break;
        case NAME:
            SUT_TRY(get_name(ctx, file, s, &small));
            memcpy(member, &small, sizeof small);
            break;
        }
    }
    return SUT_OK;
}
