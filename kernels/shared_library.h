/*
 * NVIDIA's libraries at run time: what is used of each is declared where it is used, so that neither its header nor the library
 * is needed to build, and a machine without it can do all the rest.
 */
#ifndef SUT_KERNELS_SHARED_LIBRARY_H
#define SUT_KERNELS_SHARED_LIBRARY_H

#include <dlfcn.h>
#include <string.h>

/* NULL: it is not installed. It stays loaded: handles of other owners may be its. */
static inline void *sut_open_library(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

template <class Function> static bool sut_find_function(void *library, const char *name, Function *out)
{
    void *const symbol = dlsym(library, name);
    memcpy(out, &symbol, sizeof symbol);
    return symbol != NULL;
}

#endif // SUT_KERNELS_SHARED_LIBRARY_H
