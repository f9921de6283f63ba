/*
 * Pass 1: K = G G^T, the packed lower triangle. Reads the rows once where there are few of them.
 */
#ifndef SUT_KERNELS_GRAM_CUH
#define SUT_KERNELS_GRAM_CUH

#include "kernels/rows.cuh"

namespace
{

/* One slice. */
template <class Real, bool FEW> SUT_GPU void gram_body(const sut_cuda_args &args, int slice, const block_memory memory)
{
    double *const total = memory.total, *const scratch = memory.scratch;
    const bool strict = args.strict != 0;
    clear_totals(total, args.n_sums);
    const int64_t end = slice_begin(args.n_chunks, args.n_slices, slice + 1);
    double sum[TILE] = {0};
    for (int64_t c = slice_begin(args.n_chunks, args.n_slices, slice); c < end; ++c) {
        const sut_cuda_chunk chunk = chunk_of(args, c);
        if constexpr (FEW) {
            for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
                few_rows<Real> g;
                load_few(args, piece_of(args, chunk, strip), &g);
                add_triangle(g, args.m, strict, sum);
            }
        } else {
            for (int row = 0; row < args.m; row += SUT_CUDA_FEW)
                for (int column = 0; column <= row; column += SUT_CUDA_FEW) {
#pragma unroll
                    for (int k = 0; k < TILE; ++k)
                        sum[k] = 0;
                    for (int strip = 0; strip < chunk.count; strip += SUT_CUDA_STRIP) {
                        const piece p = piece_of(args, chunk, strip);
                        four<Real> x[SUT_CUDA_FEW];
#pragma unroll
                        for (int i = 0; i < SUT_CUDA_FEW; ++i)
                            x[i] = row + i < args.m ? load_row<Real>(args, p, row + i) : zeros<Real>();
#pragma unroll
                        for (int j = 0; j < SUT_CUDA_FEW; ++j) {
                            const four<Real> y =
                                column + j < args.m ? load_row<Real>(args, p, column + j) : zeros<Real>();
#pragma unroll
                            for (int i = 0; i < SUT_CUDA_FEW; ++i)
                                sum[i * SUT_CUDA_FEW + j] += dot(x[i], y, strict);
                        }
                    }
                    add_to_block(sum, place_tile{0, row, column, args.m}, scratch, total);
                }
        }
    }
    if constexpr (FEW)
        add_to_block(sum, place_tile{0, 0, 0, args.m}, scratch, total);
    finish_sums(args, slice, memory);
}

} // namespace

#endif // SUT_KERNELS_GRAM_CUH
