/* Native checkpoints read tensor by tensor, for tests. */
#ifndef GPT_TESTS_CHECKPOINT_H
#define GPT_TESTS_CHECKPOINT_H

#include "checkpoint/native/native.h"

#include <string.h>

/* gpt_checkpoint_open_all() of one rank. */
__attribute__((unused)) static int
checkpoint_open(struct gpt_checkpoint **c, const char *path, int64_t iteration,
                bool verify, struct gpt_err *err)
{
    const struct gpt_source_options o = {.iteration = iteration,
                                         .verify = verify};

    return gpt_checkpoint_open_all(c, path, &o, err);
}

__attribute__((unused)) static const struct gpt_tensor *
checkpoint_find(const struct gpt_checkpoint *c, const char *name)
{
    int64_t n;
    const struct gpt_tensor *t = gpt_checkpoint_tensors(c, &n);

    for (int64_t i = 0; i < n; i++)
        if (strcmp(t[i].name, name) == 0)
            return &t[i];
    return NULL;
}

/* The slice described by *want into dst; want->global is not read. */
__attribute__((unused)) static int
checkpoint_read(const struct gpt_checkpoint *c,
                const struct gpt_tensor_slice *want, void *dst,
                struct gpt_err *err)
{
    const struct gpt_tensor *t = checkpoint_find(c, want->name);

    if (!t || t->ndim != want->ndim)
        return gpt_fail(err, GPT_EDATA, "%s: no tensor '%s' of %d dimensions",
                        gpt_checkpoint_dir(c), want->name, want->ndim);
    return gpt_tensor_gather(t, want->begin, want->shape, want->dtype, dst,
                             err);
}

#endif
