/* A checkpoint of any format as gpt-reshape sees it: a configuration and
 * tensors under this project's names. */
#ifndef GPT_CHECKPOINT_SOURCE_H
#define GPT_CHECKPOINT_SOURCE_H

#include "checkpoint/huggingface.h"
#include "checkpoint/native.h"

struct gpt_source {
    struct gpt_checkpoint *native; /* one of the two */
    struct gpt_hf *hf;
    const char *dir; /* the iteration's, or the model's */
    struct gpt_config config;
    int64_t iteration, tp, pp;
    const struct gpt_tensor *tensors;
    int64_t n;
};

/* Is `path` a Hugging Face directory (config.json, no manifest or tracker)? */
bool gpt_source_is_hf(const char *path);

/* verify: check the CRC-32C of a native checkpoint's files (the other format
 * has none). Hugging Face's vocabulary is padded to divisible_by x tp. */
int gpt_source_open(struct gpt_source *s, const char *path, bool verify,
                    int64_t divisible_by, int64_t tp, struct gpt_err *err)
    GPT_MUST_USE;
void gpt_source_close(struct gpt_source *s);
/* A gpt_tensor_lookup. */
const struct gpt_tensor *gpt_source_find(const void *source, const char *name);

/* Vocabulary and other small files beside the weights: the i-th, NULL behind
 * the last. */
const char *gpt_source_attached(const struct gpt_source *s, int64_t i);

/* Bytes of all files that hold weights. */
int64_t gpt_source_bytes(const struct gpt_source *s);

#endif
