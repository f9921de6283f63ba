/*
 * Whole files, see file.h. Every error text says which call failed on which file and why.
 */
#undef _GNU_SOURCE /* it would change strerror_r() */
#define _XOPEN_SOURCE 700
#define _FILE_OFFSET_BITS 64

#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A single read or write of more than 2^31 - 4096 bytes is cut short by Linux and refused by others. */
#define MAX_TRANSFER ((size_t)1 << 30)

#define BUFFER_SIZE ((size_t)1 << 16)

/* The reason for errno, without strerror(), whose buffer is shared by all threads. */
static sut_status io_error(sut_context *ctx, const char *call, const char *path, int error)
{
    char reason[128] = "unknown reason";
    (void)strerror_r(error, reason, sizeof reason);
    SUT_FAIL(ctx, SUT_ERROR_IO, "%s failed on %.400s: %s", call, path, reason);
}

/* Length of the directory part of a path, its last slash included; 0 when there is none. */
static size_t directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/*
 * Where the file goes, and the permissions that it keeps. A target that exists must be a regular file: renaming over a
 * device or a pipe would destroy it.
 */
static sut_status resolve_target(sut_file_writer *w, const char *path, mode_t *mode)
{
    struct stat info;
    *mode = 0;
    if (path[0] == '\0')
        return io_error(w->ctx, "open", "a file with an empty name", ENOENT);
    if (strlen(path) >= SUT_PATH_MAX)
        return io_error(w->ctx, "open", path, ENAMETOOLONG);
    if (stat(path, &info) != 0) {
        if (errno != ENOENT)
            return io_error(w->ctx, "stat", path, errno);
        (void)strcpy(w->target, path);
        return SUT_OK;
    }
    if (!S_ISREG(info.st_mode))
        SUT_FAIL(w->ctx, SUT_ERROR_IO, "%.400s cannot be replaced: it is %s", path,
                 S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
    *mode = info.st_mode & 0777;
    if (realpath(path, w->target) == NULL)
        return io_error(w->ctx, "realpath", path, errno);
    return SUT_OK;
}

static void release_buffer(sut_file_writer *w)
{
    sut_free(w->ctx, w->buffer);
    w->buffer = NULL;
}

/* Make the new file under a name that nobody uses; a file left behind by a killed process is stepped over. */
static sut_status open_temporary(sut_file_writer *w, mode_t mode)
{
    const size_t directory = directory_length(w->target);
    for (int k = 0; k < 10000; k++) {
        /* The name is cut so that the ending fits into the 255 bytes that file systems allow. */
        const int n = snprintf(w->temporary, sizeof w->temporary, "%.*s%.200s.tmp.%ld.%d", (int)directory, w->target,
                               w->target + directory, (long)getpid(), k);
        if (n < 0 || (size_t)n >= sizeof w->temporary)
            return io_error(w->ctx, "open", w->target, ENAMETOOLONG);
        do
            w->fd =
                open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode ? mode : 0666); /* less the umask */
        while (w->fd < 0 && errno == EINTR);
        if (w->fd >= 0)
            break;
        if (errno != EEXIST)
            return io_error(w->ctx, "open", w->temporary, errno);
    }
    if (w->fd < 0)
        return io_error(w->ctx, "open", w->temporary, EEXIST);
    if (mode != 0 && fchmod(w->fd, mode) != 0) {
        const int error = errno;
        sut_file_abandon(w);
        return io_error(w->ctx, "fchmod", w->temporary, error);
    }
    return SUT_OK;
}

sut_status sut_file_begin(sut_file_writer *w, sut_context *ctx, const char *path)
{
    w->ctx = ctx;
    w->fd = -1;
    w->buffered = 0;
    mode_t mode;
    SUT_TRY(resolve_target(w, path, &mode));
    w->buffer = sut_alloc(ctx, BUFFER_SIZE, 1);
    if (w->buffer == NULL)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory to write %.400s", path);
    const sut_status status = open_temporary(w, mode);
    if (status != SUT_OK)
        release_buffer(w);
    return status;
}

/* Abandon the new file because `call` failed with `error`. */
static sut_status give_up(sut_file_writer *w, const char *call, int error)
{
    sut_file_abandon(w);
    return io_error(w->ctx, call, w->temporary, error);
}

static sut_status write_fully(sut_file_writer *w, const void *bytes, size_t size)
{
    const char *p = bytes;
    while (size > 0) {
        const ssize_t n = write(w->fd, p, size < MAX_TRANSFER ? size : MAX_TRANSFER);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return give_up(w, "write", n < 0 ? errno : EIO);
        p += n;
        size -= (size_t)n;
    }
    return SUT_OK;
}

static sut_status write_buffer(sut_file_writer *w)
{
    const size_t n = w->buffered;
    w->buffered = 0;
    return write_fully(w, w->buffer, n);
}

sut_status sut_file_append(sut_file_writer *w, const void *bytes, size_t size)
{
    if (size > BUFFER_SIZE - w->buffered)
        SUT_TRY(write_buffer(w));
    if (size > BUFFER_SIZE)
        return write_fully(w, bytes, size);
    if (size > 0)
        memcpy(w->buffer + w->buffered, bytes, size);
    w->buffered += size;
    return SUT_OK;
}

static int flush(int fd)
{
    int result;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

/*
 * Flush the directory, so that the rename survives a power failure. A directory that may be written but not read cannot be
 * opened, and some file systems know no flush of directories: the file is then as safe as it can be made.
 */
static sut_status flush_directory(const sut_file_writer *w)
{
    char path[SUT_PATH_MAX];
    const size_t length = directory_length(w->target);
    if (length == 0)
        (void)strcpy(path, ".");
    else
        (void)snprintf(path, sizeof path, "%.*s", (int)length, w->target);
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return SUT_OK;
    const int error = flush(fd) == 0 ? 0 : errno;
    (void)close(fd);
    if (error == EIO)
        SUT_FAIL(w->ctx, SUT_ERROR_IO,
                 "%.400s was replaced, but fsync failed on its directory: a power failure may undo it", w->target);
    return SUT_OK;
}

sut_status sut_file_commit(sut_file_writer *w)
{
    SUT_TRY(write_buffer(w));
    if (flush(w->fd) != 0)
        return give_up(w, "fsync", errno);
    const int fd = w->fd;
    w->fd = -1;
    release_buffer(w);
    /* Network file systems report a full disk here. After EINTR the descriptor is gone all the same. */
    if (close(fd) != 0 && errno != EINTR) {
        const int error = errno;
        (void)unlink(w->temporary);
        return io_error(w->ctx, "close", w->temporary, error);
    }
    if (rename(w->temporary, w->target) != 0) {
        const int error = errno;
        (void)unlink(w->temporary);
        return io_error(w->ctx, "rename", w->target, error);
    }
    return flush_directory(w);
}

void sut_file_abandon(sut_file_writer *w)
{
    if (w->fd < 0)
        return;
    (void)close(w->fd);
    (void)unlink(w->temporary);
    w->fd = -1;
    release_buffer(w);
}

static sut_status read_exactly(sut_context *ctx, int fd, const char *path, char *bytes, size_t size)
{
    while (size > 0) {
        const ssize_t n = read(fd, bytes, size < MAX_TRANSFER ? size : MAX_TRANSFER);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_error(ctx, "read", path, errno);
        if (n == 0)
            SUT_FAIL(ctx, SUT_ERROR_IO, "%.400s became shorter while it was read", path);
        bytes += n;
        size -= (size_t)n;
    }
    return SUT_OK;
}

static sut_status read_open_file(sut_context *ctx, int fd, const char *path,
                                 sut_status (*accept)(sut_context *ctx, const char *path, const void *bytes, size_t n,
                                                      uint64_t size),
                                 void **data_out, size_t *size_out)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return io_error(ctx, "fstat", path, errno);
    if (!S_ISREG(info.st_mode))
        SUT_FAIL(ctx, SUT_ERROR_IO, "%.400s cannot be read: it is %s", path,
                 S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
    const uint64_t size = (uint64_t)info.st_size;
    char head[64];
    const size_t n_head = size < sizeof head ? (size_t)size : sizeof head;
    SUT_TRY(read_exactly(ctx, fd, path, head, n_head));
    if (accept)
        SUT_TRY(accept(ctx, path, head, n_head, size));
    char *data = size > SIZE_MAX ? NULL : sut_alloc(ctx, (size_t)size + (size == 0), 1);
    if (data == NULL)
        SUT_FAIL(ctx, SUT_ERROR_OUT_OF_MEMORY, "no memory for the %llu bytes of %.400s", (unsigned long long)size,
                 path);
    memcpy(data, head, n_head);
    const sut_status status = read_exactly(ctx, fd, path, data + n_head, (size_t)size - n_head);
    if (status != SUT_OK) {
        sut_free(ctx, data);
        return status;
    }
    *data_out = data;
    *size_out = (size_t)size;
    return SUT_OK;
}

sut_status sut_file_read(sut_context *ctx, const char *path,
                         sut_status (*accept)(sut_context *ctx, const char *path, const void *bytes, size_t n,
                                              uint64_t size),
                         void **data_out, size_t *size_out)
{
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer would block for ever */
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return io_error(ctx, "open", path, errno);
    const sut_status status = read_open_file(ctx, fd, path, accept, data_out, size_out);
    (void)close(fd);
    return status;
}
