/**
 * @file status.h
 * Status codes. Zero is success; numbers are never reused or renumbered.
 *
 * The code is for programs. The sentence for people is kept by the context on which the call failed:
 * sut_context_last_error() names the argument, tensor or loss, the value found and the value allowed.
 */
#ifndef SUTURE_STATUS_H
#define SUTURE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define SUT_API
#elif defined(__GNUC__)
#define SUT_API __attribute__((visibility("default")))
#else
#define SUT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SUT_VERSION_MAJOR 0
#define SUT_VERSION_MINOR 1
#define SUT_VERSION_PATCH 0

/** Largest number of losses (rows of G) that one optimizer or one surgery call takes. */
#define SUT_MAX_LOSSES 64

typedef enum sut_status {
    SUT_OK = 0,
    SUT_ERROR_INVALID_ARGUMENT = 1, /**< NULL, wrong size, overlapping memory, unknown name or enum value */
    SUT_ERROR_OUT_OF_RANGE = 2,     /**< a number outside its allowed range */
    SUT_ERROR_UNSUPPORTED = 3,      /**< a combination that this build or method does not offer; the text says why */
    SUT_ERROR_NOT_FINITE = 4,       /**< NaN or Inf in a gradient, a loss or a parameter */
    SUT_ERROR_OUT_OF_MEMORY = 5,
    SUT_ERROR_IO = 6,        /**< the operating system refused: file missing, disk full, no permission */
    SUT_ERROR_CORRUPT = 7,   /**< not a state file, or a damaged one */
    SUT_ERROR_MISMATCH = 8,  /**< a sound file of another method, layout, dtype or format number */
    SUT_ERROR_UNDEFINED = 9, /**< the method has no direction at this point (Nash-MTL at a stationary point) */
    SUT_ERROR_SEQUENCE = 10, /**< calls out of order, e.g. apply without propose */
    SUT_ERROR_BACKEND = 11,  /**< the back end asked for is not available here; the text says what was looked for */
    SUT_ERROR_INTERNAL = 12  /**< a bug in Suture: please report it with the text */
} sut_status;

/**
 * A short sentence for a code, in static memory, valid for ever. Unknown codes give "unknown status".
 * Serves where there is no context yet.
 */
SUT_API const char *sut_status_string(sut_status status);

/** The version of the library that runs, "major.minor.patch", static memory. */
SUT_API const char *sut_version(void);

#ifdef __cplusplus
}
#endif

#endif /* SUTURE_STATUS_H */
