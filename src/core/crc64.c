/*
 * CRC-64, eight bytes at a time ("slicing": Kounavis, Berry 2005). One byte at a time it would be slower than the disk.
 */
#include "core/crc64.h"

#define POLYNOMIAL UINT64_C(0xC96C5795D7870F42)

void sut_crc64_begin(sut_crc64 *crc)
{
    for (int b = 0; b < 256; b++) {
        uint64_t value = (uint64_t)b;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ POLYNOMIAL : value >> 1;
        crc->table[0][b] = value;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++) {
            const uint64_t before = crc->table[k - 1][b];
            crc->table[k][b] = before >> 8 ^ crc->table[0][before & 0xff];
        }
    crc->value = ~UINT64_C(0);
}

void sut_crc64_add(sut_crc64 *crc, const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    uint64_t value = crc->value;
    for (; size >= 8; size -= 8, p += 8) {
        for (int k = 0; k < 8; k++)
            value ^= (uint64_t)p[k] << (8 * k);
        uint64_t next = 0;
        for (int k = 0; k < 8; k++)
            next ^= crc->table[7 - k][value >> (8 * k) & 0xff];
        value = next;
    }
    for (; size > 0; size--, p++)
        value = value >> 8 ^ crc->table[0][(value ^ *p) & 0xff];
    crc->value = value;
}

uint64_t sut_crc64_end(const sut_crc64 *crc)
{
    return ~crc->value;
}
