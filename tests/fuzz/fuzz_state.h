/*
 * The fuzz target of the state reader, shared by libFuzzer and by mutate.c.
 */
#ifndef TESTS_FUZZ_FUZZ_STATE_H
#define TESTS_FUZZ_FUZZ_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Optimizers that every input is given to. */
enum { FUZZ_SUBJECTS = 3 };

/* A sound file of subject k; release with free(). */
size_t fuzz_seed(int k, unsigned char **bytes_out);

/* Loads of repaired bytes that succeeded so far: shows that mutations get past the checksum. */
extern long fuzz_accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif /* TESTS_FUZZ_FUZZ_STATE_H */
