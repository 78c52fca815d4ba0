/* For targets whose reader opens a directory: files in one of their own, which
 * goes when the process ends, and a look at the tensors that were read. */
#ifndef GPT_TESTS_FUZZ_FILES_H
#define GPT_TESTS_FUZZ_FILES_H

#include "checkpoint/plan.h"
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

/* Writes a file of it; the name may have one directory. */
static void fuzz_write(const char *name, const uint8_t *data, size_t size)
{
    char path[160];
    const char *slash = strchr(name, '/');

    if (!*fuzz_top) {
        snprintf(fuzz_top, sizeof(fuzz_top), "/tmp/gpt-fuzz.%d", (int)getpid());
        if (mkdir(fuzz_top, 0700) != 0)
            exit(1);
        atexit(fuzz_remove);
    }
    if (slash) {
        snprintf(path, sizeof(path), "%s/%.*s", fuzz_top, (int)(slash - name),
                 name);
        (void)mkdir(path, 0700); /* it may be there */
    }
    snprintf(path, sizeof(path), "%s/%s", fuzz_top, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || (size && write(fd, data, size) < 0))
        exit(1);
    close(fd);
}

/* Reads the last element; GPT_OK where there is none. */
static int fuzz_read_last(const struct gpt_tensor *t, struct gpt_err *err)
{
    int64_t begin[GPT_TENSOR_DIMS] = {0}, shape[GPT_TENSOR_DIMS] = {1, 1, 1, 1};
    uint8_t element[8];

    for (int d = 0; d < t->ndim; d++)
        if ((begin[d] = t->shape[d] - 1) < 0)
            return GPT_OK;
    return gpt_tensor_gather(t, begin, shape, t->dtype, element, err);
}

#endif
