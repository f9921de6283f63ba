/*
 * Well-formed sequences of UTF-8, see utf8.h.
 */
#include "core/utf8.h"

#include <string.h>

size_t sut_utf8_sequence(const unsigned char *p, const unsigned char *end)
{
    if (p == end)
        return 0;
    const unsigned char c = p[0];
    const size_t n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (n == 0 || (size_t)(end - p) < n)
        return 0;
    /* The second byte excludes overlong forms, surrogates, and what is beyond U+10FFFF. */
    const unsigned char least = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    const unsigned char most = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (n > 1 && (p[1] < least || p[1] > most))
        return 0;
    for (size_t k = 2; k < n; k++)
        if (p[k] < 0x80 || p[k] > 0xbf)
            return 0;
    return n;
}

bool sut_is_utf8(const char *text)
{
    const unsigned char *p = (const unsigned char *)text, *const end = p + strlen(text);
    while (p < end) {
        const size_t n = sut_utf8_sequence(p, end);
        if (n == 0)
            return false;
        p += n;
    }
    return true;
}

void sut_utf8_repair(char *text)
{
    const size_t length = strlen(text);
    for (size_t at = 0; at < length;) {
        const size_t n = sut_utf8_sequence((unsigned char *)text + at, (unsigned char *)text + length);
        if (n == 0)
            text[at] = '?';
        at += n ? n : 1;
    }
}
