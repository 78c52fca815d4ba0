/* A file of numbers, of which tests make tensors. */
#ifndef GPT_TESTS_TENSOR_FILE_H
#define GPT_TESTS_TENSOR_FILE_H

#include "base/dtype.h"
#include "base/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A file that holds element(0) to element(n - 1) in the type. It has no name
 * any more, and ends with the handle. */
static inline struct gpt_in *tensor_file(enum gpt_dtype type, int64_t n,
                                         double (*element)(int64_t i))
{
    struct gpt_err err = {0};
    char path[300];
    struct gpt_out *out;
    struct gpt_in *in;
    double *x = malloc((size_t)n * sizeof(*x));
    char *bytes = malloc((size_t)n * sizeof(*x));

    if (!x || !bytes)
        abort();
    snprintf(path, sizeof(path), "%s/gpt-tensors-%d",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    for (int64_t i = 0; i < n; i++)
        x[i] = element(i);
    if (!gpt_convert(bytes, type, x, GPT_F64, (size_t)n) ||
        gpt_out_open(&out, path, GPT_OUT_FORCE | GPT_OUT_NOSYNC, 0, &err) ||
        gpt_out_write(out, bytes, (size_t)n * gpt_dtype_bytes(type), &err) ||
        gpt_out_commit(out, &err) || gpt_in_open(&in, path, &err))
        abort();
    unlink(path);
    free(x);
    free(bytes);
    return in;
}

#endif
