/* Looks for libsuture_pinn_cuda (see device.h). */
#include "device.h"

#include "suture/context.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* SUT_SOVERSION comes from the build. */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define LIBRARY_NAME "libsuture_pinn_cuda.so." TEXT(SUT_SOVERSION)
#define VARIABLE "SUTURE_PINN_CUDA_LIBRARY"

/* The directory of the program, with its final slash; "" where that is not known. */
static void own_directory(char *directory, size_t size)
{
    const ssize_t length = readlink("/proc/self/exe", directory, size - 1);
    directory[length > 0 ? length : 0] = '\0';
    char *const slash = strrchr(directory, '/');
    if (slash)
        slash[1] = '\0';
}

/* dlerror() says "path: what"; the path is in our sentence already. */
static const char *loader_said(const char *path)
{
    const char *const text = dlerror();
    if (!text)
        return "the loader does not say why";
    const size_t length = strlen(path);
    return strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0 ? text + length + 2 : text;
}

/* NODELETE: CUDA registers its kernels and its end of the program once and for all. */
static void *open_file(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static void *find_library(char *why, size_t size)
{
    void *handle;
    const char *const named = getenv(VARIABLE);
    if (named && *named) {
        handle = open_file(named);
        if (!handle)
            snprintf(why, size, "the library that " VARIABLE " names cannot be opened: %s: %s", named,
                     loader_said(named));
        return handle;
    }
    char directory[3800], path[4096];
    own_directory(directory, sizeof directory);
    snprintf(path, sizeof path, "%s" LIBRARY_NAME, directory);
    if (directory[0] && access(path, R_OK) == 0) {
        handle = open_file(path);
        if (!handle)
            snprintf(why, size, "%s cannot be opened: %s", path, loader_said(path));
        return handle;
    }
    handle = open_file(LIBRARY_NAME);
    if (handle)
        return handle;
    const char *const said = loader_said(LIBRARY_NAME);
    if (strstr(said, "No such file"))
        snprintf(why, size,
                 LIBRARY_NAME " was not found: build Suture with SUTURE_BUILD_CUDA=ON, or name the file in " VARIABLE
                              " (looked in %s and where the system's loader looks)",
                 directory[0] ? directory : "no directory of the program");
    else
        snprintf(why, size, LIBRARY_NAME " cannot be opened: %s", said);
    return NULL;
}

static const pinn_cuda_library *find_calls(void *handle, char *why, size_t size)
{
    void *const symbol = dlsym(handle, TEXT(PINN_CUDA_ENTRY));
    pinn_cuda_entry entry = NULL;
    if (symbol)
        memcpy(&entry, &symbol, sizeof entry);
    const pinn_cuda_library *const calls = entry ? entry() : NULL;
    if (calls && calls->version == PINN_CUDA_VERSION && !strcmp(calls->suture, sut_version()))
        return calls;
    snprintf(why, size,
             LIBRARY_NAME " does not belong to this suture-pinn, which is version %s (interface %d)%s%s: use the two "
                          "from one build",
             sut_version(), PINN_CUDA_VERSION, calls ? "; it is version " : "", calls ? calls->suture : "");
    return NULL;
}

pinn_device *pinn_device_open(const pinn_problem *problem, const net_shape *shape, net_real real, char *why,
                              size_t size)
{
    pinn_device *const d = calloc(1, sizeof *d);
    if (!d) {
        snprintf(why, size, "out of memory");
        return NULL;
    }
    pinn_cuda_config config = {.problem = problem->name, .shape = *shape, .real = real};
    memcpy(config.kappa, problem->kappa, sizeof config.kappa);
    d->handle = find_library(why, size);
    if (d->handle)
        d->calls = find_calls(d->handle, why, size);
    if (d->calls)
        d->network = d->calls->create(&config, why, size);
    if (d->network)
        return d;
    pinn_device_close(d);
    return NULL;
}

void pinn_device_close(pinn_device *d)
{
    if (!d)
        return;
    if (d->network)
        d->calls->destroy(d->network);
    if (d->handle)
        dlclose(d->handle);
    free(d);
}

const char *pinn_device_error(const pinn_device *d)
{
    return d ? d->calls->error(d->network) : "";
}
