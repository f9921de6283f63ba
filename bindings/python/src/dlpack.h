/*
 * The part of DLPack's C interface that this package uses (github.com/dmlc/dlpack, version 1): the description of a tensor,
 * and the table of functions that a library publishes as `__dlpack_c_exchange_api__` on its array type.
 */
#ifndef SUTURE_PYTHON_DLPACK_H
#define SUTURE_PYTHON_DLPACK_H

#include <cstdint>

namespace suture_python
{

enum { DLPACK_CPU = 1 };
enum { DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4 };

struct dlpack_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t n_dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row by row */
    uint64_t byte_offset;
};

/* What the table begins with stays the same in all versions. */
struct dlpack_exchange {
    uint32_t major, minor;
    dlpack_exchange *older;
    void *allocate, *export_managed, *import_managed; /* not used here */
    /* Fill in `out`; the memory stays the producer's. 0, or -1 with a Python exception set. May be NULL. */
    int (*describe)(void *object, dlpack_tensor *out);
    int (*stream)(int32_t device_type, int32_t device_id, void **out);
};

} // namespace suture_python

#endif
