/* The order in which the elements of an array lie in memory. */
#ifndef SUTURE_PYTHON_LAYOUT_H
#define SUTURE_PYTHON_LAYOUT_H

#include "array.h"

namespace suture_python
{

/*
 * How a parameter lies in memory: without gaps, but not necessarily row by row (Fortran order, channels last). Suture sees
 * the dimensions in the order of their strides, so that memory runs straight.
 */
struct Layout {
    sut_dtype dtype = SUT_DTYPE_F32;
    int n_dims = 0;
    int64_t shape[SUT_MAX_DIMS] = {};  /* as the caller sees it */
    int64_t stride[SUT_MAX_DIMS] = {}; /* in bytes */
    int64_t memory_shape[SUT_MAX_DIMS] = {};
    int64_t count = 1;

    /* That of a view's shape without gaps, the last index running fastest. */
    static Layout row_by_row(const View &view);
    /* False when the view has gaps, overlaps itself or is not aligned. */
    bool from(const View &view);
    /* The view has this layout: its memory can be used as it is. */
    bool matches(const View &view) const;
    bool same_shape(const View &view) const;
    /* The same order of elements of another type. */
    Layout scaled(sut_dtype to) const;
    /* Copy the elements of a view of the same shape and type into `to`, in the order of this layout's memory. */
    void gather(const View &view, void *to) const;
};

} // namespace suture_python

#endif
