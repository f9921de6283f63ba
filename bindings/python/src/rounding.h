/* f32 rounded to the types of 16 bits, to nearest, ties to even: what the library does with a master copy. */
#ifndef SUTURE_PYTHON_ROUNDING_H
#define SUTURE_PYTHON_ROUNDING_H

#include <cstdint>
#include <cstring>

namespace suture_python
{

inline uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

inline uint16_t to_f16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    const uint32_t sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u >= 0x47800000u) /* 2^16 and more, infinite, NaN */
        return (uint16_t)(sign | (u > 0x7f800000u ? 0x7e00u : 0x7c00u));
    if (u < 0x38800000u) { /* subnormal: the sum with 1/2 is rounded where f16 ends */
        float f;
        memcpy(&f, &u, sizeof f);
        f += 0.5f;
        memcpy(&u, &f, sizeof u);
        return (uint16_t)(sign | (u - 0x3f000000u));
    }
    return (uint16_t)(sign | ((u - 0x38000000u + 0xfffu + (u >> 13 & 1u)) >> 13));
}

} // namespace suture_python

#endif
