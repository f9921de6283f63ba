/*
 * bfloat16 and IEEE binary16 to and from f32, round to nearest even, without branches so that loops over them vectorise.
 * NaN stays NaN, overflow becomes Inf.
 */
#ifndef SUT_BACKEND_HALF_H
#define SUT_BACKEND_HALF_H

#include <stdint.h>
#include <string.h>

static inline float sut_bits_to_f32(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t sut_f32_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float sut_from_bf16(uint16_t x)
{
    return sut_bits_to_f32((uint32_t)x << 16);
}

static inline uint16_t sut_to_bf16(float x)
{
    const uint32_t bits = sut_f32_to_bits(x);
    const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    const uint32_t quiet = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

static inline float sut_from_f16(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, rest = x & 0x7FFFu;
    /* Exponent and mantissa in place, then rebiased by a multiplication that also normalises denormals (exact). */
    const uint32_t scaled = sut_f32_to_bits(sut_bits_to_f32(rest << 13) * 0x1p112f);
    const uint32_t special = 0x7F800000u | rest << 13;
    return sut_bits_to_f32(sign | (rest >= 0x7C00u ? special : scaled));
}

static inline uint16_t sut_to_f16(float x)
{
    const uint32_t bits = sut_f32_to_bits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    /* Normal range: rebias by -112 and round at bit 13. */
    const uint32_t normal = (magnitude - (112u << 23) + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
    /* Below 2^-14: adding 0.5 lets the hardware round at 2^-24, the denormals' unit. */
    const uint32_t small =
        sut_f32_to_bits(sut_bits_to_f32(magnitude < 0x38800000u ? magnitude : 0u) + 0.5f) - 0x3F000000u;
    const uint32_t finite = magnitude < 0x38800000u ? small : normal;
    const uint32_t nan = 0x7E00u, inf = 0x7C00u;
    const uint32_t large = magnitude > 0x7F800000u ? nan : inf;
    return (uint16_t)(sign | (magnitude >= 0x477FF000u ? large : finite)); /* 65520 and above round to Inf */
}

#endif /* SUT_BACKEND_HALF_H */
