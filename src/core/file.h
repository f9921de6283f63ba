/*
 * Whole files, read and replaced atomically. POSIX.
 *
 * Replacing: everything is written to a new file in the directory of the target, flushed to the disk, and renamed over
 * the target; then the directory is flushed. Whoever looks at the target at any moment, a reboot included, finds the old
 * file or the new one, complete. On any failure before the rename the new file is removed and the old one is as it was.
 * A process that is killed leaves at most a stray "<name>.tmp.<pid>.<k>" beside the target.
 */
#ifndef SUT_CORE_FILE_H
#define SUT_CORE_FILE_H

#include "core/internal.h"

#define SUT_PATH_MAX 4096

typedef struct sut_file_writer {
    sut_context *ctx;
    int fd;                    /* of the new file; -1 when there is none */
    char target[SUT_PATH_MAX]; /* symbolic links resolved: the file behind a link is replaced, not the link */
    char temporary[SUT_PATH_MAX];
    char *buffer; /* gathers small pieces: a state has several for each tensor */
    size_t buffered;
} sut_file_writer;

/* Begin to replace (or make) `path`. After success exactly one of commit and abandon must follow. */
sut_status sut_file_begin(sut_file_writer *writer, sut_context *ctx, const char *path);
/* Append; the bytes may reach the disk later, and so may an error. On failure the writer is abandoned already. */
sut_status sut_file_append(sut_file_writer *writer, const void *bytes, size_t size);
/* Put the new file in the place of the old one. On failure the writer is abandoned already. */
sut_status sut_file_commit(sut_file_writer *writer);
/* Remove the new file; the old one stays. Allowed after any failure, too. */
void sut_file_abandon(sut_file_writer *writer);

/*
 * Read a whole regular file. `accept` (NULL: none) sees the first bytes (at most 64) and the size before memory for the
 * rest is taken; the file is refused with what it returns. data_out: release with sut_free().
 */
sut_status sut_file_read(sut_context *ctx, const char *path,
                         sut_status (*accept)(sut_context *ctx, const char *path, const void *bytes, size_t n,
                                              uint64_t size),
                         void **data_out, size_t *size_out);

#endif /* SUT_CORE_FILE_H */
