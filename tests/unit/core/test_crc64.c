/*
 * CRC-64/XZ: the published check value, the eight-byte path against the one-byte path, every cut of the input.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/crc64.h"

/* Bit by bit, straight from the polynomial. */
static uint64_t reference(const unsigned char *bytes, size_t size)
{
    uint64_t value = ~UINT64_C(0);
    for (size_t i = 0; i < size; i++) {
        value ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ UINT64_C(0xC96C5795D7870F42) : value >> 1;
    }
    return ~value;
}

static void check_value(void **state)
{
    (void)state;
    sut_crc64 crc;
    sut_crc64_begin(&crc);
    assert_true(sut_crc64_end(&crc) == 0);
    sut_crc64_add(&crc, "123456789", 9);
    assert_true(sut_crc64_end(&crc) == UINT64_C(0x995DC9BBDF1939FA)); /* catalogue value of CRC-64/XZ */
}

static void pieces_of_any_size(void **state)
{
    (void)state;
    unsigned char bytes[75];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * i * 7 + 3);
    sut_crc64 crc;
    for (size_t size = 0; size <= sizeof bytes; size++)
        for (size_t cut = 0; cut <= size; cut++) {
            sut_crc64_begin(&crc);
            sut_crc64_add(&crc, bytes, cut);
            sut_crc64_add(&crc, bytes + cut, size - cut);
            assert_true(sut_crc64_end(&crc) == reference(bytes, size));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(check_value), cmocka_unit_test(pieces_of_any_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
