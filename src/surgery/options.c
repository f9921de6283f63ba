/*
 * Options of surgery methods: one row each. Defaults, range checks, the queries by name and the documentation of ranges all
 * come from this table; a test holds it against the struct.
 *
 * Numbers are checked whatever the method is, so that a config with rubbish in it never gets in; preference and order, which
 * point to the caller's memory, are read only by the methods that use them (validate.c).
 */
#include "surgery/options.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#define M(method) (1u << SUT_SURGERY_##method)
#define EVERY ((1u << SUT_SURGERY_COUNT) - 1)

static const char *const lengths[] = {"projection", "minimum",   "maximum",  "harmonic",
                                      "arithmetic", "geometric", "specific", NULL};
static const char *const pareto[] = {"project", "zero", "mean", NULL};
static const char *const scales[] = {"min", "median", "rmse", NULL};
static const char *const normalisations[] = {"none", "l2", "loss", "loss_plus", NULL};

/* The value of the last name. */
#define LAST(names) ((int)(sizeof(names) / sizeof *(names)) - 2)
#define AT(member) #member, offsetof(sut_surgery_config, member)
#define FLAG(methods, member)                                             \
    {                                                                     \
        methods, AT(member), SUT_OPTION_FLAG, 0, 0, 1, false, false, NULL \
    }
#define CHOICE(methods, member, names)                                                  \
    {                                                                                   \
        methods, AT(member), SUT_OPTION_INTEGER, 0, 0, LAST(names), false, false, names \
    }
#define INTEGER(methods, member, value, minimum, maximum)                                    \
    {                                                                                        \
        methods, AT(member), SUT_OPTION_INTEGER, value, minimum, maximum, false, false, NULL \
    }
#define REAL(methods, member, value)                                                \
    {                                                                               \
        methods, AT(member), SUT_OPTION_REAL, value, 0, HUGE_VAL, false, true, NULL \
    }
#define REAL_INSIDE(methods, member, value, maximum)                              \
    {                                                                             \
        methods, AT(member), SUT_OPTION_REAL, value, 0, maximum, true, true, NULL \
    }
#define ARRAY(methods, member)                                             \
    {                                                                      \
        methods, AT(member), SUT_OPTION_ARRAY, 0, 0, 0, false, false, NULL \
    }

/* clang-format off */
const sut_surgery_option_row sut_surgery_options[] = {
    FLAG(EVERY, scale_to_sum),
    ARRAY(M(FIXED) | M(CONFIG) | M(ALIGNED_MTL) | M(UPGRAD) | M(DUALPROJ), preference),
    ARRAY(M(PCGRAD), order),
    FLAG(M(PCGRAD), pcgrad_identity_order),
    FLAG(M(PCGRAD), pcgrad_mean),
    CHOICE(M(CONFIG), config_length, lengths),
    INTEGER(M(CONFIG), config_row, 0, 0, SUT_MAX_LOSSES - 1),
    REAL(M(CAGRAD), cagrad_c, 0.5),
    INTEGER(M(CAGRAD), cagrad_rescale, 1, 0, 2),
    REAL(M(CAGRAD), cagrad_eps, 0),
    CHOICE(M(CAGRAD), cagrad_pareto, pareto),
    FLAG(M(IMTLG), imtlg_abs_normaliser),
    CHOICE(M(ALIGNED_MTL), aligned_scale, scales),
    REAL_INSIDE(M(ALIGNED_MTL), aligned_rank_tol, 0x1p-23, 1),
    REAL(M(UPGRAD) | M(DUALPROJ), norm_eps, 1e-4),
    REAL(M(UPGRAD) | M(DUALPROJ), reg_eps, 1e-4),
    CHOICE(M(MGDA), mgda_normalisation, normalisations),
    FLAG(M(MGDA), mgda_frank_wolfe),
    REAL_INSIDE(M(MGDA), mgda_fw_epsilon, 1e-3, HUGE_VAL),
    INTEGER(M(MGDA), mgda_fw_max_iterations, 100, 1, INT_MAX),
    REAL(M(NASH), nash_max_norm, 1),
    INTEGER(M(NASH), nash_update_every, 1, 1, INT_MAX),
    REAL(M(SDMGRAD), sdmgrad_lambda, 0.3),
};
/* clang-format on */
const int sut_surgery_n_options = sizeof sut_surgery_options / sizeof *sut_surgery_options;

/* Enumerations are read and written as ints. */
_Static_assert(sizeof(sut_config_length) == sizeof(int) && sizeof(sut_mgda_normalisation) == sizeof(int),
               "enums are ints");

double sut_surgery_option_get(const sut_surgery_config *config, const sut_surgery_option_row *option)
{
    const char *const at = (const char *)config + option->offset;
    if (option->kind == SUT_OPTION_REAL) {
        double value;
        memcpy(&value, at, sizeof value);
        return value;
    }
    int whole;
    memcpy(&whole, at, sizeof whole);
    return whole;
}

void sut_surgery_option_put(sut_surgery_config *config, const sut_surgery_option_row *option, double value)
{
    char *const at = (char *)config + option->offset;
    const int whole = option->kind == SUT_OPTION_REAL ? 0 : (int)value;
    if (option->kind == SUT_OPTION_REAL)
        memcpy(at, &value, sizeof value);
    else
        memcpy(at, &whole, sizeof whole);
}

static bool is_read(const sut_surgery_option_row *option, sut_surgery_method method)
{
    return (int)method >= 0 && method < SUT_SURGERY_COUNT && (option->methods >> method & 1);
}

sut_status sut_surgery_option(sut_surgery_method method, int index, sut_parameter_info *info_out)
{
    if (!info_out || !sut_surgery_method_name(method))
        return SUT_ERROR_INVALID_ARGUMENT;
    for (int k = 0; k < sut_surgery_n_options; ++k) {
        const sut_surgery_option_row *const o = &sut_surgery_options[k];
        if (index < 0 || !is_read(o, method) || index-- > 0)
            continue;
        *info_out = (sut_parameter_info){.name = o->name,
                                         .is_flag = o->kind == SUT_OPTION_FLAG,
                                         .default_value = o->default_value,
                                         .minimum = o->minimum,
                                         .maximum = o->maximum,
                                         .minimum_open = o->minimum_open,
                                         .maximum_open = o->maximum_open,
                                         .is_integer = o->kind == SUT_OPTION_FLAG || o->kind == SUT_OPTION_INTEGER,
                                         .is_array = o->kind == SUT_OPTION_ARRAY,
                                         .choices = o->choices};
        return SUT_OK;
    }
    return SUT_ERROR_OUT_OF_RANGE;
}

/* The option of that name which config->method reads and which is a number. */
static const sut_surgery_option_row *find(const sut_surgery_config *config, const char *name)
{
    for (int k = 0; k < sut_surgery_n_options; ++k) {
        const sut_surgery_option_row *const o = &sut_surgery_options[k];
        const size_t size = o->kind == SUT_OPTION_REAL ? sizeof(double) : sizeof(int);
        if (strcmp(o->name, name) == 0)
            return is_read(o, config->method) && o->kind != SUT_OPTION_ARRAY && o->offset + size <= config->struct_size
                       ? o
                       : NULL;
    }
    return NULL;
}

sut_status sut_surgery_config_set(sut_surgery_config *config, const char *name, double value)
{
    const sut_surgery_option_row *const o = config && name ? find(config, name) : NULL;
    if (!o)
        return SUT_ERROR_INVALID_ARGUMENT;
    SUT_TRY(sut_check_range(NULL, name, value, o->minimum, o->minimum_open, o->maximum, o->maximum_open));
    if (o->kind != SUT_OPTION_REAL && value != floor(value))
        return SUT_ERROR_OUT_OF_RANGE;
    sut_surgery_option_put(config, o, value);
    return SUT_OK;
}

sut_status sut_surgery_config_get(const sut_surgery_config *config, const char *name, double *value_out)
{
    const sut_surgery_option_row *const o = config && name && value_out ? find(config, name) : NULL;
    if (!o)
        return SUT_ERROR_INVALID_ARGUMENT;
    *value_out = sut_surgery_option_get(config, o);
    return SUT_OK;
}
