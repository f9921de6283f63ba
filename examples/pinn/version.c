/* What this build can do here. */
#include "run.h"

#include <string.h>
#include <strings.h>

int pinn_version(void)
{
    sut_capability_report report;
    sut_capabilities_init(&report);
    if (sut_capabilities(&report) != SUT_OK)
        return pinn_error(PINN_EXIT_FAILURE, "the library does not say what it can do");
    printf("suture-pinn, Suture %s\n", report.version);
    printf("  library     %s kernels, %d processors\n", sut_isa_name(report.best_isa), report.processors);
    printf("  network     %s kernels\n", net_kernels_find(NET_F32, NULL)->isa);
    printf("  BLAS        %s, kernel %s\n", report.blas, report.blas_kernel);
    printf("  CUDA        %s\n", report.has_cuda ? "yes" : report.cuda_reason);
    pinn_warn_about_blas(stdout);
    return 0;
}

/* OpenBLAS names its choice; these are the ones without wide vectors. */
void pinn_warn_about_blas(FILE *log)
{
    static const char *const narrow[] = {"Prescott", "Core2",     "Penryn", "Dunnington", "Nehalem", "Athlon",
                                         "Opteron",  "Barcelona", "Bobcat", "Atom",       "generic"};
    sut_capability_report report;
    sut_capabilities_init(&report);
    if (sut_capabilities(&report) != SUT_OK || report.best_isa < SUT_ISA_AVX2)
        return;
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++)
        if (!strncasecmp(report.blas_kernel, narrow[i], strlen(narrow[i])))
            fprintf(
                log,
                "warning: OpenBLAS took its kernel for %s, a quarter of this processor's speed; a newer OpenBLAS, or "
                "OPENBLAS_CORETYPE=%s in the environment, helps (the network does not use it, the library does)\n",
                report.blas_kernel, report.best_isa == SUT_ISA_AVX512 ? "SkylakeX" : "Haswell");
}
