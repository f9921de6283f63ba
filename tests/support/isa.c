/*
 * Every test obeys the environment variable SUTURE_ISA: test programs are linked with --wrap=sut_context_create, so a
 * context that leaves the choice to the library (SUT_ISA_AUTO) gets the instruction set that the variable names. The
 * library itself reads no environment.
 */
#include "suture/suture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names that the linker gives; see --wrap in ld(1). */
sut_status __real_sut_context_create(sut_context **ctx_out, const sut_context_config *config);
sut_status __wrap_sut_context_create(sut_context **ctx_out, const sut_context_config *config);

static sut_isa isa_of_name(const char *name)
{
    for (int isa = SUT_ISA_AUTO; sut_isa_name((sut_isa)isa); isa++)
        if (!strcmp(sut_isa_name((sut_isa)isa), name))
            return (sut_isa)isa;
    (void)fprintf(stderr, "SUTURE_ISA names no instruction set: %s\n", name);
    exit(2);
}

sut_status __wrap_sut_context_create(sut_context **ctx_out, const sut_context_config *config)
{
    const char *const name = getenv("SUTURE_ISA");
    sut_context_config own;
    sut_context_config_init(&own);
    /* A config of another size is a test of its own, and goes through as it is. */
    if (!name || (config && (config->struct_size != sizeof own || config->isa != SUT_ISA_AUTO)))
        return __real_sut_context_create(ctx_out, config);
    if (config)
        own = *config;
    own.isa = isa_of_name(name);
    return __real_sut_context_create(ctx_out, &own);
}
