/*
 * What the CUDA tests share: checks that count failures and go on, so that these programs need nothing but a compiler.
 */
#ifndef SUT_TEST_CUDA_CHECK_H
#define SUT_TEST_CUDA_CHECK_H

#include <cstdio>
#include <cstdlib>

namespace check
{

inline int &failures()
{
    static int count;
    return count;
}

inline long &checks()
{
    static long count;
    return count;
}

/* Ends a test program. */
inline int finish(const char *name)
{
    std::printf("%s: %ld checks, %d failed\n", name, checks(), failures());
    return failures() || checks() == 0 ? 1 : 0;
}

} // namespace check

/* CHECK(condition, format, ...): the text says what was found. */
#define CHECK(condition, ...)                                               \
    do {                                                                    \
        ++check::checks();                                                  \
        if (!(condition)) {                                                 \
            if (++check::failures() <= 20) {                                \
                std::printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
                std::printf(__VA_ARGS__);                                   \
                std::printf("\n");                                          \
            }                                                               \
        }                                                                   \
    } while (0)

/* A runtime call that has to succeed. */
#define CUDA(call)                                                                         \
    do {                                                                                   \
        const cudaError_t cuda_error = (call);                                             \
        CHECK(cuda_error == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cuda_error)); \
    } while (0)

#endif // SUT_TEST_CUDA_CHECK_H
