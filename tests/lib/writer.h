/* Data sets written in one go, for tests. */
#ifndef GPT_TESTS_WRITER_H
#define GPT_TESTS_WRITER_H

#include "base/io.h"
#include "data/indexed.h"

static int writer_open(struct gpt_indexed_writer **w, const char *prefix,
                       enum gpt_dtype dtype, unsigned flags,
                       struct gpt_err *err)
{
    const struct gpt_indexed_writer_options o = {
        .prefix = prefix, .dtype = dtype, .flags = flags};

    return gpt_indexed_writer_open_with(w, &o, err);
}

/* Publishes both files, the .idx last; frees w whatever happens. */
static int writer_commit(struct gpt_indexed_writer *w, struct gpt_err *err)
{
    struct gpt_out *files[2];

    GPT_TRY(gpt_indexed_writer_release(w, &files[0], &files[1], err));
    return gpt_out_commit_all(files, GPT_COUNT(files), err);
}

#endif
