/* What a corpus is made of, for the files that make one: corpus_open.c builds
 * it, corpus_stages.c the training split of a staged run, corpus.c reads it. */
#ifndef GPT_DATA_CORPUS_INTERNAL_H
#define GPT_DATA_CORPUS_INTERNAL_H

#include "data/blend.h"
#include "data/corpus.h"
#include "data/indexed.h"
#include "data/sample_index.h"

/* A data set's part in one split. */
struct gpt_corpus_member {
    const struct gpt_indexed *set;
    double weight; /* normalized once; 0 when no weights were given */
    int64_t begin, end; /* sequences */
    struct gpt_samples samples;
};

/* A split that is one data set has no blend: its sample i is the set's own. */
struct gpt_corpus_split {
    int64_t n_members;
    struct gpt_corpus_member *member; /* (n_members) */
    struct gpt_blend blend; /* only when blended */
    bool blended, weighted;
    int64_t size; /* samples */
};

struct gpt_corpus {
    int64_t seq_length, vocab_size;
    uint32_t seed;
    bool in_order, documents;
    int32_t begin, end; /* tokens around documents, < 0: none */
    bool mock;
    int32_t mock_end;
    const char *impl;   /* the caller's, while sets are opened; then NULL */
    int64_t n_sets;
    size_t cap_sets;
    struct gpt_indexed **set; /* each prefix once */
    struct gpt_corpus_split split[GPT_N_SPLITS];
    uint64_t digest, sets_digest; /* with epochs, and without */
    uint64_t stages; /* a digest, 0: there are none */
};

/* Opens a data set. A prefix that several splits or parts name is opened once:
 * descriptors and address space are shared. The corpus closes it. */
int gpt_corpus_open_set(struct gpt_corpus *c, const char *prefix,
                        const struct gpt_indexed **set,
                        struct gpt_err *err) GPT_MUST_USE;
/* Builds the index of at least `wanted` samples of m->set, from its sequences
 * [m->begin, m->end). GPT_EDATA when they have no token. */
int gpt_corpus_build_member(const struct gpt_corpus *c,
                            struct gpt_corpus_member *m, enum gpt_split split,
                            int64_t wanted, struct gpt_err *err) GPT_MUST_USE;
/* Opens the training split of a staged run. */
int gpt_corpus_open_stages(struct gpt_corpus *c,
                           const struct gpt_data_stages *stages, int64_t wanted,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
