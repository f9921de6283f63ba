/*
 * Error texts, log lines, range checks and the reading of caller-sized structs.
 */
#include "core/internal.h"
#include "core/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *sut_status_string(sut_status status)
{
    switch (status) {
    case SUT_OK: return "success";
    case SUT_ERROR_INVALID_ARGUMENT: return "invalid argument";
    case SUT_ERROR_OUT_OF_RANGE: return "value outside its range";
    case SUT_ERROR_UNSUPPORTED: return "not supported";
    case SUT_ERROR_NOT_FINITE: return "NaN or Inf in the input";
    case SUT_ERROR_OUT_OF_MEMORY: return "out of memory";
    case SUT_ERROR_IO: return "input or output failed";
    case SUT_ERROR_CORRUPT: return "damaged file, or not a state file";
    case SUT_ERROR_MISMATCH: return "state of another method, layout or dtype";
    case SUT_ERROR_UNDEFINED: return "the method has no direction at this point";
    case SUT_ERROR_SEQUENCE: return "calls out of order";
    case SUT_ERROR_BACKEND: return "back end not available";
    case SUT_ERROR_INTERNAL: return "internal error, please report it";
    }
    return "unknown status";
}

#define SUT_STRING_(x) #x
#define SUT_STRING(x) SUT_STRING_(x)

const char *sut_version(void)
{
    return SUT_STRING(SUT_VERSION_MAJOR) "." SUT_STRING(SUT_VERSION_MINOR) "." SUT_STRING(SUT_VERSION_PATCH);
}

sut_status sut_fail(sut_context *ctx, sut_status status, const char *format, ...)
{
    if (ctx) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(ctx->error, sizeof ctx->error, format, args);
        va_end(args);
        sut_utf8_repair(ctx->error); /* names are cut to fit, paths are any bytes */
    }
    return status;
}

void sut_log(sut_context *ctx, sut_log_level level, const char *format, ...)
{
    if (!ctx || !ctx->log)
        return;
    char line[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    sut_utf8_repair(line);
    ctx->log(ctx->log_user, level, line);
}

sut_status sut_read_struct(sut_context *ctx, const char *what, void *defaults, size_t own_size, const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > own_size)
        SUT_FAIL(ctx, SUT_ERROR_INVALID_ARGUMENT,
                 "%s: struct_size is %zu; fill the struct in with its _init function (%zu..%zu bytes are understood by "
                 "version %s)",
                 what, size, sizeof size, own_size, sut_version());
    memcpy(defaults, given, size);
    memcpy(defaults, &own_size, sizeof own_size);
    return SUT_OK;
}

sut_status sut_check_range(sut_context *ctx, const char *name, double value, double minimum, bool minimum_open,
                           double maximum, bool maximum_open)
{
    const bool low = minimum_open ? value > minimum : value >= minimum;
    const bool high = maximum_open ? value < maximum : value <= maximum;
    if (low && high && isfinite(value))
        return SUT_OK;
    if (isinf(maximum))
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "%s is %g; it must be finite and %s %g", name, value,
                 minimum_open ? ">" : ">=", minimum);
    SUT_FAIL(ctx, SUT_ERROR_OUT_OF_RANGE, "%s is %g; it must lie in %c%g, %g%c", name, value, minimum_open ? '(' : '[',
             minimum, maximum, maximum_open ? ')' : ']');
}
