/*
 * Every test obeys the environment variables SUTURE_ISA and SUTURE_BACKEND: test programs are linked with
 * --wrap=sut_context_create, so a context that leaves the choice to the library (SUT_ISA_AUTO, SUT_BACKEND_AUTO) gets the
 * instruction set and the back end that the variables name. The library itself does not read them.
 */
#include "suture/suture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names that the linker gives; see --wrap in ld(1). */
sut_status __real_sut_context_create(sut_context **ctx_out, const sut_context_config *config);
sut_status __wrap_sut_context_create(sut_context **ctx_out, const sut_context_config *config);

static void unknown(const char *variable, const char *value)
{
    (void)fprintf(stderr, "%s is %s, which the library does not know\n", variable, value);
    exit(2);
}

sut_status __wrap_sut_context_create(sut_context **ctx_out, const sut_context_config *config)
{
    const char *const isa = getenv("SUTURE_ISA"), *const backend = getenv("SUTURE_BACKEND");
    sut_context_config own;
    sut_context_config_init(&own);
    /* A config of another size is a test of its own, and goes through as it is. */
    if ((!isa && !backend) || (config && config->struct_size != sizeof own))
        return __real_sut_context_create(ctx_out, config);
    if (config)
        own = *config;
    if (isa && own.isa == SUT_ISA_AUTO && sut_isa_from_name(isa, &own.isa) != SUT_OK)
        unknown("SUTURE_ISA", isa);
    if (backend && own.backend == SUT_BACKEND_AUTO && sut_backend_from_name(backend, &own.backend) != SUT_OK)
        unknown("SUTURE_BACKEND", backend);
    return __real_sut_context_create(ctx_out, &own);
}
