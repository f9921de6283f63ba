/*
 * The CUDA back end lies in a shared library of its own, so that one build of libsuture serves machines with and without a
 * GPU. It is looked for when a CUDA context is created, in this order:
 *
 *   1. the file that the environment variable SUTURE_CUDA_LIBRARY names, and then nowhere else
 *   2. libsuture_cuda.so.<soversion> in the directory of libsuture (linked statically: of the program)
 *   3. the same name where the system's loader looks
 */
#ifndef SUT_BACKEND_CUDA_H
#define SUT_BACKEND_CUDA_H

#include "backend/backend.h"

/*
 * The entry of that library. Its name carries SUT_BACKEND_VERSION: libraries that do not understand each other do not find
 * each other. `probe` says whether a context could be opened on this machine: on which device, else why not (`text`, `size` bytes).
 */
typedef struct sut_cuda_library {
    const char *version; /* of the release, SUT_VERSION_MAJOR.MINOR.PATCH */
    const sut_backend_ops *ops;
    bool (*probe)(char *text, size_t size);
} sut_cuda_library;

#define SUT_CUDA_ENTRY_(version) sut_cuda_library_##version
#define SUT_CUDA_ENTRY_NAME(version) SUT_CUDA_ENTRY_(version)
#define SUT_CUDA_ENTRY SUT_CUDA_ENTRY_NAME(SUT_BACKEND_VERSION)
typedef const sut_cuda_library *(*sut_cuda_entry)(void);

/* Opens the library. *handle_out: for sut_backend_cuda_unload(); the text of a failure goes to `why` (`size` bytes). */
sut_status sut_backend_cuda_load(const sut_cuda_library **library_out, void **handle_out, char *why, size_t size);
/* The file that a handle was opened from, lent with it. */
const char *sut_backend_cuda_file(void *handle);
/* Gives the handle back; the library itself stays in memory, for CUDA cannot be unloaded safely. NULL is allowed. */
void sut_backend_cuda_unload(void *handle);

#endif /* SUT_BACKEND_CUDA_H */
