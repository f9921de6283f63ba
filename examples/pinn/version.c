/* What this build can do here. */
#include "run.h"

#include <string.h>
#include <strings.h>

int pinn_version(const pinn_options *options)
{
    sut_capability_report report;
    sut_capabilities_init(&report);
    if (sut_capabilities(&report) != SUT_OK)
        return pinn_error(PINN_EXIT_FAILURE, "the library does not say what it can do");
    printf("suture-pinn, Suture %s\n", report.version);
    printf("  library     %s kernels, %d processors\n", sut_isa_name(report.best_isa), report.processors);
    const net_kernels *const kernels =
        net_kernels_find(NET_F32, options->isa ? sut_isa_name((sut_isa)options->isa) : NULL);
    printf("  network     %s kernels\n", kernels ? kernels->isa : "no such");
    printf("  BLAS        %s\n              ", report.blas);
    pinn_print_blas(stdout);
    printf("  CUDA        %s\n", report.has_cuda ? "yes" : report.cuda_reason);
    return 0;
}

/* The library warns once through the log when it is one of these, the kernels without wide vectors. */
static bool is_narrow(const char *kernel)
{
    static const char *const narrow[] = {"Prescott", "Core2",     "Penryn", "Dunnington", "Nehalem", "Athlon",
                                         "Opteron",  "Barcelona", "Bobcat", "Atom",       "generic", "Unknown"};
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++)
        if (!strncasecmp(kernel, narrow[i], strlen(narrow[i])))
            return true;
    return false;
}

void pinn_print_blas(FILE *to)
{
    sut_capability_report report;
    sut_capabilities_init(&report);
    if (sut_capabilities(&report) != SUT_OK)
        return;
    fprintf(to, "OpenBLAS kernel %s", report.blas_kernel);
    if (report.best_isa >= SUT_ISA_AVX2 && is_narrow(report.blas_kernel))
        fprintf(to, ", slow on this processor: set OPENBLAS_CORETYPE=%s in the environment or use a newer OpenBLAS",
                report.best_isa == SUT_ISA_AVX512 ? "SkylakeX" : "Haswell");
    fputc('\n', to);
}
