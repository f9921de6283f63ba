/*
 * Whole files: what is replaced and how, what is refused, and that no failure leaves a trace. Everything happens in a
 * directory of its own below the current one.
 */
#define _XOPEN_SOURCE 700

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/file.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static sut_context *ctx;
static char directory[64];

static int enter_directory(void **state)
{
    (void)state;
    (void)strcpy(directory, "suture-file-XXXXXX");
    if (mkdtemp(directory) == NULL || chdir(directory) != 0)
        return -1;
    return sut_context_create(&ctx, NULL) == SUT_OK ? 0 : -1;
}

/* Removes what the tests made; a stray file makes rmdir fail, and with it the group. */
static int leave_directory(void **state)
{
    (void)state;
    sut_context_destroy(ctx);
    return chdir("..") == 0 && rmdir(directory) == 0 ? 0 : -1;
}

static int count_files(void)
{
    int n = 0;
    DIR *dir = opendir(".");
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return n;
}

static sut_status replace(const char *path, const char *text)
{
    sut_file_writer w;
    SUT_TRY(sut_file_begin(&w, ctx, path));
    SUT_TRY(sut_file_append(&w, text, strlen(text)));
    return sut_file_commit(&w);
}

static void holds(const char *path, const char *text)
{
    void *data;
    size_t size;
    assert_int_equal(sut_file_read(ctx, path, NULL, &data, &size), SUT_OK);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(data, text, size);
    sut_free(ctx, data);
}

static void failed_with(sut_status status, sut_status expected, const char *a, const char *b)
{
    assert_int_equal(status, expected);
    const char *text = sut_context_last_error(ctx);
    if (!strstr(text, a) || !strstr(text, b))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", text, a, b);
}

static void makes_and_replaces(void **state)
{
    (void)state;
    assert_int_equal(replace("x", "first"), SUT_OK);
    holds("x", "first");
    assert_int_equal(replace("./x", "the second, longer"), SUT_OK);
    holds("x", "the second, longer");
    assert_int_equal(replace("x", ""), SUT_OK);
    holds("x", "");
    assert_int_equal(count_files(), 1);
    assert_int_equal(unlink("x"), 0);
}

static void keeps_permissions(void **state)
{
    (void)state;
    struct stat info;
    const mode_t old = umask(027);
    assert_int_equal(replace("x", "1"), SUT_OK);
    assert_int_equal(stat("x", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640); /* a new file obeys the umask */
    assert_int_equal(chmod("x", 0604), 0);
    assert_int_equal(replace("x", "2"), SUT_OK);
    assert_int_equal(stat("x", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0604); /* an old one keeps what it had */
    umask(old);
    assert_int_equal(unlink("x"), 0);
}

static void follows_links(void **state)
{
    (void)state;
    struct stat info;
    assert_int_equal(mkdir("d", 0777), 0);
    assert_int_equal(replace("d/real", "1"), SUT_OK);
    assert_int_equal(symlink("d/real", "link"), 0);
    assert_int_equal(replace("link", "2"), SUT_OK);
    assert_int_equal(lstat("link", &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    holds("d/real", "2");
    assert_int_equal(unlink("link") | unlink("d/real") | rmdir("d"), 0);
}

static void a_half_written_file_leaves_no_trace(void **state)
{
    (void)state;
    assert_int_equal(replace("x", "old"), SUT_OK);
    sut_file_writer w;
    assert_int_equal(sut_file_begin(&w, ctx, "x"), SUT_OK);
    assert_int_equal(sut_file_append(&w, "new", 3), SUT_OK);
    holds("x", "old");
    assert_int_equal(count_files(), 2);
    sut_file_abandon(&w);
    sut_file_abandon(&w);
    assert_int_equal(count_files(), 1);
    holds("x", "old");
    assert_int_equal(unlink("x"), 0);
}

/* Files left behind by killed processes (or made by somebody else) are neither used nor removed. */
static void steps_over_strays(void **state)
{
    (void)state;
    char stray[2][64];
    for (int k = 0; k < 2; k++) {
        (void)snprintf(stray[k], sizeof stray[k], "x.tmp.%ld.%d", (long)getpid(), k);
        assert_int_equal(replace(stray[k], "stray"), SUT_OK);
    }
    assert_int_equal(replace("x", "1"), SUT_OK);
    holds("x", "1");
    for (int k = 0; k < 2; k++) {
        holds(stray[k], "stray");
        assert_int_equal(unlink(stray[k]), 0);
    }
    assert_int_equal(unlink("x"), 0);
}

static void long_names(void **state)
{
    (void)state;
    char name[300];
    memset(name, 'n', sizeof name);
    name[255] = '\0'; /* the longest that file systems take; the temporary name is cut */
    assert_int_equal(replace(name, "1"), SUT_OK);
    holds(name, "1");
    assert_int_equal(unlink(name), 0);
    name[255] = 'n', name[256] = '\0';
    failed_with(replace(name, "1"), SUT_ERROR_IO, "stat failed", "too long");
    char path[SUT_PATH_MAX + 10];
    memset(path, '/', sizeof path);
    path[sizeof path - 1] = '\0';
    failed_with(replace(path, "1"), SUT_ERROR_IO, "open failed", "too long");
}

static void refuses_what_is_no_file(void **state)
{
    (void)state;
    void *data = ctx;
    size_t size = 7;
    failed_with(replace("missing/x", "1"), SUT_ERROR_IO, "missing/x", "No such file");
    failed_with(replace("", "1"), SUT_ERROR_IO, "empty name", "No such file");
    failed_with(replace(".", "1"), SUT_ERROR_IO, ".", "a directory");
    failed_with(sut_file_read(ctx, "x", NULL, &data, &size), SUT_ERROR_IO, "open failed on x", "No such file");
    failed_with(sut_file_read(ctx, ".", NULL, &data, &size), SUT_ERROR_IO, ".", "a directory");
    assert_int_equal(mkfifo("pipe", 0666), 0);
    failed_with(replace("pipe", "1"), SUT_ERROR_IO, "pipe", "not a regular file");
    failed_with(sut_file_read(ctx, "pipe", NULL, &data, &size), SUT_ERROR_IO, "pipe", "not a regular file");
    assert_int_equal(unlink("pipe"), 0);
    /* A device is never replaced; that would be a disaster for a process that runs as root. */
    failed_with(replace("/dev/null", "1"), SUT_ERROR_IO, "/dev/null", "not a regular file");
    assert_int_equal(symlink("nowhere/x", "dangling"), 0);
    failed_with(sut_file_read(ctx, "dangling", NULL, &data, &size), SUT_ERROR_IO, "dangling", "No such file");
    assert_int_equal(unlink("dangling"), 0);
    assert_ptr_equal(data, ctx);
    assert_int_equal(size, 7);
    assert_int_equal(count_files(), 0);
}

/* A file may not grow beyond 64 KiB: write fails in the middle, as on a full disk. */
static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    assert_int_equal(replace("x", "old"), SUT_OK);
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 65536;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    char block[5000];
    memset(block, 'b', sizeof block);
    sut_file_writer w;
    assert_int_equal(sut_file_begin(&w, ctx, "x"), SUT_OK);
    sut_status status = SUT_OK;
    int blocks = 0;
    for (; status == SUT_OK && blocks < 100; blocks++)
        status = sut_file_append(&w, block, sizeof block);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    failed_with(status, SUT_ERROR_IO, "write failed on", "x.tmp.");
    assert_int_equal(blocks, 27); /* 13 blocks fill the buffer and fit; 26 do not, which the 27th learns */
    sut_file_abandon(&w);
    assert_int_equal(count_files(), 1);
    holds("x", "old");
    assert_int_equal(unlink("x"), 0);
}

static uint64_t seen_size;
static size_t seen_bytes;

static sut_status look(sut_context *context, const char *path, const void *bytes, size_t n, uint64_t size)
{
    (void)bytes;
    seen_size = size;
    seen_bytes = n;
    if (size == 100)
        SUT_FAIL(context, SUT_ERROR_CORRUPT, "%s is not wanted", path);
    return SUT_OK;
}

static void a_reader_may_refuse_early(void **state)
{
    (void)state;
    char text[101];
    memset(text, 't', sizeof text);
    text[100] = '\0';
    void *data = NULL;
    size_t size = 0;
    assert_int_equal(replace("x", text), SUT_OK);
    failed_with(sut_file_read(ctx, "x", look, &data, &size), SUT_ERROR_CORRUPT, "x is not wanted", "");
    assert_null(data);
    assert_int_equal(seen_bytes, 64);
    assert_int_equal(replace("x", "abc"), SUT_OK);
    assert_int_equal(sut_file_read(ctx, "x", look, &data, &size), SUT_OK);
    assert_int_equal(seen_bytes, 3);
    assert_int_equal(seen_size, 3);
    assert_memory_equal(data, "abc", 3);
    sut_free(ctx, data);
    assert_int_equal(unlink("x"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_and_replaces),
        cmocka_unit_test(keeps_permissions),
        cmocka_unit_test(follows_links),
        cmocka_unit_test(a_half_written_file_leaves_no_trace),
        cmocka_unit_test(steps_over_strays),
        cmocka_unit_test(long_names),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(a_reader_may_refuse_early),
    };
    return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
