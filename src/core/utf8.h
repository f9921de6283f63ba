/*
 * UTF-8 (RFC 3629): names of tensors and losses, texts in state files, error texts.
 */
#ifndef SUT_CORE_UTF8_H
#define SUT_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the well-formed UTF-8 sequence at p, or 0. */
size_t sut_utf8_sequence(const unsigned char *p, const unsigned char *end);

bool sut_is_utf8(const char *text);

/* Replace every byte that belongs to no well-formed sequence by '?'. */
void sut_utf8_repair(char *text);

#endif /* SUT_CORE_UTF8_H */
