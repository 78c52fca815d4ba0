/* Stages of the training data: from which sample of a run on which data sets
 * are read, with which weights. gpt-train(1), DATA STAGES, describes the
 * file. */
#ifndef GPT_DATA_DATA_STAGES_H
#define GPT_DATA_DATA_STAGES_H

#include "base/memory.h"

struct gpt_data_stage {
    int64_t first;      /* sample of the run from which it holds */
    const char *const *words; /* (n) weights and data sets in turns, or a
                               * single set */
    int64_t n;
};

struct gpt_data_stages {
    struct gpt_data_stage *stage; /* (n), by ascending samples from 0 on */
    int64_t n;
    struct gpt_arena arena; /* of the words */
};

/* Reads a file; GPT_EDATA names file, line and rule. {0} may be freed. */
int gpt_data_stages_read(struct gpt_data_stages *s, const char *path,
                         struct gpt_err *err) GPT_MUST_USE;
void gpt_data_stages_free(struct gpt_data_stages *s);

/* The number of the stage of a sample, from 0 on. */
int64_t gpt_data_stages_at(const struct gpt_data_stages *s, int64_t sample);

#endif
