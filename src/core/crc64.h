/*
 * CRC-64 as in xz (ECMA-182, reflected, inverted at both ends): the checksum of state files. It detects every change that
 * is confined to 64 consecutive bits, so each flipped byte is found for certain, and any other damage with a chance of
 * missing it of 2^-64.
 */
#ifndef SUT_CORE_CRC64_H
#define SUT_CORE_CRC64_H

#include <stddef.h>
#include <stdint.h>

typedef struct sut_crc64 {
    uint64_t table[8][256]; /* table[k][b]: byte b followed by k zero bytes */
    uint64_t value;
} sut_crc64;

/* 16 KiB of tables are filled in here, a few microseconds: nothing is shared between contexts. */
void sut_crc64_begin(sut_crc64 *crc);
void sut_crc64_add(sut_crc64 *crc, const void *bytes, size_t size);
uint64_t sut_crc64_end(const sut_crc64 *crc);

#endif /* SUT_CORE_CRC64_H */
