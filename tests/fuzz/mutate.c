/*
 * A small driver for the fuzz target, for compilers without libFuzzer and for the test suite: sound files are mutated at
 * random (always the same mutations) and given to the target.
 *
 * usage: fuzz_state_mutate [ITERATIONS [SEED]]        default: 3000 1
 *        fuzz_state_mutate --file FILE ...            give files to the target, e.g. those that libFuzzer found
 *        fuzz_state_mutate --seeds                    write the sound files seed0, seed1, ... as a first corpus
 */
#include "fuzz/fuzz_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZE = 65536 };

static uint64_t random_state;

static size_t below(size_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)((random_state >> 33) % n);
}

/* Pieces that headers are made of, and numbers at the edges. */
static const char *const words[] = {
    "0",
    "1",
    "-1",
    "4",
    "8",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "1e3",
    "0.5",
    "nan",
    "null",
    "true",
    "\"\"",
    "{}",
    "[]",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\u0000",
    "\\ud800",
    "\xff",
    "F32",
    "F64",
    "I64",
    "BF16",
    "U8",
    "adam",
    "sgd",
    "suture.format",
    "suture.method",
    "suture.state.m.a",
    "suture.param.b",
    "\"shape\"",
    "__metadata__",
    "      ",
    "1e308",
    "0.10000000000000001",
    "2",
};

static size_t insert(unsigned char *bytes, size_t size, size_t at, const void *piece, size_t n)
{
    if (size + n > MAX_SIZE)
        return size;
    memmove(bytes + at + n, bytes + at, size - at);
    memcpy(bytes + at, piece, n);
    return size + n;
}

static size_t erase(unsigned char *bytes, size_t size, size_t at, size_t n)
{
    memmove(bytes + at, bytes + at + n, size - at - n);
    return size - n;
}

/* Make the header length agree with the header again, so that mutations of the text are not all refused for their length. */
static void mend_length(unsigned char *bytes, size_t size, size_t data_size)
{
    if (size < 8 + data_size)
        return;
    const uint64_t length = size - 8 - data_size;
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(length >> (8 * i));
}

static size_t header_length(const unsigned char *bytes)
{
    return bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16;
}

static size_t mutate(unsigned char *bytes, size_t size, size_t data_size)
{
    if (size < 16)
        return size;
    /* Mostly the header, where the decisions are made. */
    const size_t length = header_length(bytes) < size - 8 ? header_length(bytes) : size - 8;
    const size_t at = below(8) == 0 || length == 0 ? below(size) : 8 + below(length);
    const char *word = words[below(sizeof words / sizeof *words)];
    switch (below(8)) {
    case 0: bytes[at] ^= (unsigned char)(1u << below(8)); break;
    case 1: bytes[at] = (unsigned char)below(256); break;
    case 2: size = insert(bytes, size, at, word, strlen(word)); break;
    case 3: { /* a digit or letter run is replaced by a word */
        size_t end = at;
        while (end < size && ((bytes[end] >= '0' && bytes[end] <= '9') || (bytes[end] >= 'a' && bytes[end] <= 'z')))
            end++;
        size = erase(bytes, size, at, end - at);
        size = insert(bytes, size, at, word, strlen(word));
        break;
    }
    case 4: { /* a piece is repeated */
        const size_t n = 1 + below(size - at < 80 ? size - at : 80);
        unsigned char piece[80];
        memcpy(piece, bytes + at, n);
        size = insert(bytes, size, below(size), piece, n);
        break;
    }
    case 5: {
        const size_t n = 1 + below(size - at < 40 ? size - at : 40);
        size = erase(bytes, size, at, n);
        break;
    }
    case 6: return below(2) ? at : erase(bytes, size, at, 1); /* cut; no mending */
    default:
        for (int i = 0; i < 8; i++)
            bytes[i] = below(3) ? 0 : (unsigned char)below(256);
        return size;
    }
    if (below(8))
        mend_length(bytes, size, data_size);
    return size;
}

static int give_files(int n, char **names)
{
    for (int k = 0; k < n; k++) {
        FILE *file = fopen(names[k], "rb");
        unsigned char *bytes = malloc(MAX_SIZE);
        if (!file || !bytes) {
            (void)fprintf(stderr, "%s cannot be read\n", names[k]);
            return 1;
        }
        const size_t size = fread(bytes, 1, MAX_SIZE, file);
        (void)fclose(file);
        (void)LLVMFuzzerTestOneInput(bytes, size);
        free(bytes);
    }
    return 0;
}

static int write_seeds(void)
{
    for (int k = 0; k < FUZZ_SUBJECTS; k++) {
        char name[16];
        unsigned char *bytes;
        const size_t size = fuzz_seed(k, &bytes);
        (void)snprintf(name, sizeof name, "seed%d", k);
        FILE *file = fopen(name, "wb");
        if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
            return 1;
        free(bytes);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--file") == 0)
        return give_files(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "--seeds") == 0)
        return write_seeds();
    const long iterations = argc > 1 ? strtol(argv[1], NULL, 10) : 3000;
    random_state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

    static unsigned char bytes[MAX_SIZE];
    unsigned char *seeds[FUZZ_SUBJECTS];
    size_t sizes[FUZZ_SUBJECTS];
    for (int k = 0; k < FUZZ_SUBJECTS; k++) {
        sizes[k] = fuzz_seed(k, &seeds[k]);
        const long before = fuzz_accepted;
        (void)LLVMFuzzerTestOneInput(seeds[k], sizes[k]);
        if (fuzz_accepted != before + 1) {
            (void)fprintf(stderr, "seed %d was accepted by %ld optimizers, 1 was expected\n", k,
                          fuzz_accepted - before);
            return 1;
        }
    }
    for (long i = 0; i < iterations; i++) {
        const size_t k = below(FUZZ_SUBJECTS);
        size_t size = sizes[k];
        memcpy(bytes, seeds[k], size);
        const size_t data_size = size - 8 - header_length(bytes);
        for (size_t n = 1 + below(3); n > 0; n--)
            size = mutate(bytes, size, data_size);
        unsigned char *exact = malloc(size ? size : 1);
        if (!exact)
            return 1;
        memcpy(exact, bytes, size);
        (void)LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    for (int k = 0; k < FUZZ_SUBJECTS; k++)
        free(seeds[k]);
    printf("%ld inputs; %ld repaired ones were loaded\n", iterations, fuzz_accepted);
    if (iterations >= 1000 && fuzz_accepted <= FUZZ_SUBJECTS) {
        (void)fprintf(stderr, "no mutation got past the checksum: the test does not reach the reader\n");
        return 1;
    }
    return 0;
}
