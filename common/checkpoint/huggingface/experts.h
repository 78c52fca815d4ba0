/* Experts in config.json: which layers have them, and the width of the
 * feed-forward that all tokens share. Files say it in several ways, of which
 * each class has some. */
#ifndef GPT_CHECKPOINT_HF_EXPERTS_H
#define GPT_CHECKPOINT_HF_EXPERTS_H

#include "base/json.h"
#include "checkpoint/huggingface/family.h"

/* What a key is. Layers have experts when they are */
enum gpt_hf_expert_key {
    GPT_HF_EVERY,  /* every so many-th, counted from 1, */
    GPT_HF_FROM,   /* from this one on, counted from 0, */
    GPT_HF_UPTO,   /* ... to this one; -1: the last, */
    GPT_HF_BUT,    /* not in a list, or null; */
    GPT_HF_TYPES,  /* or a list says "sparse" of each, and not "dense". */
    GPT_HF_SHARED, /* The width of the shared feed-forward over an expert's, */
    GPT_HF_SHARED_OR_NONE, /* ... where there may be none. */
    GPT_HF_GROUPS,    /* groups of experts, and how many a token's are of: 1 or
                       * null where there are none; */
    GPT_HF_GROUP_TOP,
    GPT_HF_METHOD,    /* whether these count. */
};

/* What keys have said so far; zero is that of a class without such keys. */
struct gpt_hf_experts {
    int64_t every;      /* 0: 1 */
    int64_t from, upto; /* layers, from 0 on; upto is beyond the last, 0: all */
    const cJSON *without, *types; /* lists, or NULL */
    int64_t shared;               /* times the width of an expert */
    bool greedy;                  /* groups do not count */
};

struct gpt_hf_reader;
/* Takes the value of a key of these kinds, and later makes fields of them. */
int gpt_hf_read_experts(struct gpt_hf_reader *r, const struct gpt_hf_key *key,
                        const cJSON *item, struct gpt_err *err) GPT_MUST_USE;
int gpt_hf_settle_experts(struct gpt_hf_reader *r,
                          struct gpt_err *err) GPT_MUST_USE;
/* What is written for such a key. */
cJSON *gpt_hf_experts_value(const struct gpt_hf_key *key,
                            const struct gpt_config *c);

#endif
