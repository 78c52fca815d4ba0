/* For targets whose reader opens a directory: files in one of their own, which
 * goes when the process ends, and a look at the tensors that were read. */
#ifndef GPT_TESTS_FUZZ_FILES_H
#define GPT_TESTS_FUZZ_FILES_H

#include "checkpoint/source.h"
#include "tests/lib/tree.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char fuzz_top[64]; /* the directory */

static void fuzz_remove(void)
{
    remove_tree(fuzz_top);
}

/* In TMPDIR, as memory is faster than a disk. */
static void fuzz_make_top(void)
{
    const char *tmp = getenv("TMPDIR");

    if (*fuzz_top)
        return;
    snprintf(fuzz_top, sizeof(fuzz_top), "%.32s/gpt-fuzz.%d",
             tmp && strlen(tmp) <= 32 ? tmp : "/tmp", (int)getpid());
    if (mkdir(fuzz_top, 0700) != 0)
        exit(1);
    atexit(fuzz_remove);
}

/* Writes a file of it; the name may have directories. */
static void fuzz_write(const char *name, const uint8_t *data, size_t size)
{
    char path[160];

    fuzz_make_top();
    for (const char *at = name; (at = strchr(at, '/')) != NULL; at++) {
        snprintf(path, sizeof(path), "%s/%.*s", fuzz_top, (int)(at - name),
                 name);
        (void)mkdir(path, 0700); /* it may be there */
    }
    snprintf(path, sizeof(path), "%s/%s", fuzz_top, name);
    /* a new file each time: some file systems write a truncated one to disk */
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || (size && write(fd, data, size) < 0))
        exit(1);
    close(fd);
}

/* The same, but no bytes are no file. */
__attribute__((unused)) static void
fuzz_write_some(const char *name, const uint8_t *data, size_t size)
{
    char path[160];

    if (size > 0) {
        fuzz_write(name, data, size);
        return;
    }
    fuzz_make_top();
    snprintf(path, sizeof(path), "%s/%s", fuzz_top, name);
    unlink(path);
}

/* Cuts input into `n` files, with a NUL after each but the last. */
__attribute__((unused)) static void
fuzz_cut(const char *const *names, size_t n, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *nul =
            size && i + 1 < n ? memchr(data, '\0', size) : NULL;
        const size_t len = nul ? (size_t)(nul - data) : size;

        fuzz_write_some(names[i], data, len);
        data += len + (nul != NULL);
        size -= len + (nul != NULL);
    }
}

/* A reader takes its input, or refuses it as bad data with a message. */
__attribute__((unused)) static void fuzz_check(int status,
                                               const struct gpt_err *err)
{
    if (status != GPT_OK && (status != GPT_EDATA || !err->text[0]))
        abort(); /* a fuzzer keeps the input */
}

/* Reads the last element; GPT_OK where there is none. */
__attribute__((unused)) static int fuzz_read_last(const struct gpt_tensor *t,
                                                  struct gpt_err *err)
{
    int64_t begin[GPT_TENSOR_DIMS] = {0}, shape[GPT_TENSOR_DIMS] = {1, 1, 1, 1};
    uint8_t element[8];

    for (int d = 0; d < t->ndim; d++)
        if ((begin[d] = t->shape[d] - 1) < 0)
            return GPT_OK;
    return gpt_tensor_gather(t, begin, shape, t->dtype, element, err);
}

/* Reads the last element of each tensor of an open source. */
__attribute__((unused)) static void
fuzz_read_tensors(const struct gpt_source *s, struct gpt_err *err)
{
    for (int64_t i = 0; i < s->n_tensors; i++)
        fuzz_check(fuzz_read_last(&s->tensors[i], err), err);
}

/* A source is refused, or opened and read so. */
__attribute__((unused)) static void
fuzz_use_source(const char *path, const struct gpt_source_options *options)
{
    struct gpt_source s;
    struct gpt_err err = {0};
    const int status = gpt_source_open(&s, path, options, &err);

    fuzz_check(status, &err);
    if (status != GPT_OK)
        return;
    fuzz_read_tensors(&s, &err);
    gpt_source_close(&s);
}

#endif
