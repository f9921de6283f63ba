/*
 * Looks for the library of the CUDA back end, see cuda.h. What is missing explains itself: what was looked for, what was
 * found, what to do.
 */
#include "backend/cuda.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SUT_SOVERSION comes from the build. */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define LIBRARY_NAME "libsuture_cuda.so." TEXT(SUT_SOVERSION)
#define ENTRY_NAME TEXT(SUT_CUDA_ENTRY)
#define VARIABLE "SUTURE_CUDA_LIBRARY"

/* The directory that this code was loaded from, with its final slash; "" where that is not known. */
static void own_directory(char *directory, size_t size)
{
    Dl_info info;
    directory[0] = '\0';
    const sut_backend_ops *(*const here)(sut_isa) = sut_backend_cpu;
    void *address;
    memcpy(&address, &here, sizeof address);
    if (dladdr(address, &info) == 0 || !info.dli_fname)
        return;
    const char *const slash = strrchr(info.dli_fname, '/');
    const size_t length = slash ? (size_t)(slash - info.dli_fname) + 1 : 0;
    if (length < size) {
        memcpy(directory, info.dli_fname, length);
        directory[length] = '\0';
    }
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

static sut_status find_library(void **handle_out, char *why, size_t size)
{
    const char *const named = secure_getenv(VARIABLE);
    if (named && *named) {
        *handle_out = open_file(named);
        if (!*handle_out)
            (void)snprintf(why, size,
                           "the library of the CUDA back end that " VARIABLE " names cannot be opened: %s: %s", named,
                           loader_said(named));
        return *handle_out ? SUT_OK : SUT_ERROR_BACKEND;
    }
    char directory[3800], path[4096];
    own_directory(directory, sizeof directory);
    (void)snprintf(path, sizeof path, "%s" LIBRARY_NAME, directory);
    const bool beside = directory[0] != '\0';
    FILE *const there = beside ? fopen(path, "rb") : NULL;
    if (there) {
        (void)fclose(there);
        *handle_out = open_file(path);
        if (!*handle_out)
            (void)snprintf(why, size, "%s cannot be opened: %s", path, loader_said(path));
        return *handle_out ? SUT_OK : SUT_ERROR_BACKEND;
    }
    *handle_out = open_file(LIBRARY_NAME);
    if (*handle_out)
        return SUT_OK;
    const char *const said = loader_said(LIBRARY_NAME);
    if (strstr(said, "No such file"))
        (void)snprintf(why, size,
                       LIBRARY_NAME
                       " was not found: build Suture with SUTURE_BUILD_CUDA=ON, or name the file in " VARIABLE
                       " (looked in %s and where the system's loader looks)",
                       beside ? directory : "no directory of libsuture");
    else
        (void)snprintf(why, size, LIBRARY_NAME " cannot be opened: %s", said);
    return SUT_ERROR_BACKEND;
}

const char *sut_backend_cuda_file(void *handle)
{
    struct link_map *map = NULL;
    return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : LIBRARY_NAME;
}

sut_status sut_backend_cuda_load(const sut_cuda_library **library_out, void **handle_out, char *why, size_t size)
{
    *library_out = NULL;
    *handle_out = NULL;
    SUT_TRY(find_library(handle_out, why, size));
    void *const symbol = dlsym(*handle_out, ENTRY_NAME);
    sut_cuda_entry entry = NULL;
    if (symbol)
        memcpy(&entry, &symbol, sizeof entry);
    const sut_cuda_library *const library = entry ? entry() : NULL;
    if (!library || strcmp(library->version, sut_version()) != 0 || library->ops->version != SUT_BACKEND_VERSION) {
        (void)snprintf(why, size,
                       "%s does not belong to this libsuture, which is version %s (interface %d)%s%s: use the two from "
                       "one build",
                       sut_backend_cuda_file(*handle_out), sut_version(), SUT_BACKEND_VERSION,
                       library ? "; it is version " : "", library ? library->version : "");
        sut_backend_cuda_unload(*handle_out);
        *handle_out = NULL;
        return SUT_ERROR_BACKEND;
    }
    *library_out = library;
    return SUT_OK;
}

void sut_backend_cuda_unload(void *handle)
{
    if (handle)
        (void)dlclose(handle);
}
