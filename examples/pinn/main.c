/*
 * suture-pinn: physics-informed networks trained with steps that hurt none of their losses. See suture-pinn --help.
 */
#include "run.h"

int main(int argc, char **argv)
{
    static pinn_options options;
    const int error = pinn_options_parse(&options, argc, argv);
    if (error)
        return error;
    switch (options.command) {
    case PINN_LIST: pinn_options_list(); return 0;
    case PINN_HELP: pinn_options_help(); return 0;
    case PINN_VERSION: return pinn_version();
    case PINN_PLOT: return pinn_plot(options.directory, stdout);
    case PINN_RUN: return pinn_train(&options);
    }
    return 0;
}
