/*
 * suture-pinn: physics-informed networks trained with steps that hurt none of their losses. See suture-pinn --help.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

/* A descriptor that the caller closed would go to a file of the run, and messages with it. Unwritable: 1 is noticed. */
static void keep_standard_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
}

static int command(pinn_options *options)
{
    switch (options->command) {
    case PINN_LIST: pinn_options_list(); return 0;
    case PINN_HELP: pinn_options_help(); return 0;
    case PINN_VERSION: return pinn_version(options);
    case PINN_PLOT: return pinn_plot(options->directory, stdout, true);
    case PINN_RUN: return pinn_train(options);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static pinn_options options;
    keep_standard_descriptors();
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is a write that fails, not an end */
    const int error = pinn_options_parse(&options, argc, argv);
    if (error)
        return error;
    const int code = command(&options);
    errno = 0;
    /* A full disk under standard output does not end a run, but it is no success. */
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    pinn_error(0, "standard output: %s", errno ? strerror(errno) : "not all of it could be written");
    return code ? code : PINN_EXIT_FAILURE;
}
