/* A small data set for tests of training. */
#ifndef GPT_TESTS_DATASET_H
#define GPT_TESTS_DATASET_H

#include "tests/lib/writer.h"

/* 20 documents of 20 to 39 tokens below 50; token 0 ends each. */
static int make_dataset(const char *prefix, struct gpt_err *err)
{
    struct gpt_indexed_writer *w;

    GPT_TRY(writer_open(&w, prefix, GPT_U16, GPT_OUT_FORCE, err));
    for (int d = 0; d < 20; d++) {
        uint16_t tokens[40];
        int32_t length = 20 + d, one = 1;

        for (int i = 0; i < length; i++)
            tokens[i] = (uint16_t)(1 + (d * 31 + i * 7) % 49);
        tokens[length - 1] = 0;
        struct gpt_indexed_block block = {tokens, length, &length, 1, &one, 1};
        GPT_TRY(gpt_indexed_writer_add(w, &block, err));
    }
    return writer_commit(w, err);
}

#endif
