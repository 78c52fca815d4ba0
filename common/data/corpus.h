/* What training reads: samples of seq_length + 1 tokens by number, for the
 * train, valid and test splits of one prefix or of a blend, in Megatron's
 * order bit for bit. Start at gpt_corpus_open(). */
#ifndef GPT_DATA_CORPUS_H
#define GPT_DATA_CORPUS_H

#include "data/data_stages.h"

enum gpt_split { GPT_TRAIN, GPT_VALID, GPT_TEST, GPT_N_SPLITS };
/* "train", "valid", "test": Megatron's words, also in names of its caches. */
extern const char *const gpt_split_names[GPT_N_SPLITS];

struct gpt_corpus_options {
    const char *const *data_path; /* "p", or "w1 p1 w2 p2 ...", or prefixes */
    int64_t n_data_path;
    bool mock;        /* data_path is the name of a set that is made up */
    int32_t mock_end; /* the last token of its documents, < 0: none */
    /* per split instead of data_path and split; unused ones have n = 0 */
    const char *const *split_path[GPT_N_SPLITS];
    int64_t n_split_path[GPT_N_SPLITS];
    struct gpt_data_stages *stages; /* training data, instead of those of
                                     * split_path; or NULL */
    const char *split;     /* "949,50,1"; NULL = "969,30,1" */
    const char *impl;      /* mmap, cached, lazy, infer */
    int64_t seq_length;
    uint64_t seed;
    int64_t n_samples[GPT_N_SPLITS]; /* wanted; 0 = split not used */
    bool in_order;  /* neither sequences nor samples are shuffled */
    bool documents; /* one sequence a sample, see below */
    int32_t begin, end; /* of documents: tokens before and after; < 0: none */
    int64_t vocab_size; /* true size: every token must be below it; 0 = any */
};

struct gpt_corpus;

/* GPT_EUSAGE when `split` has no share for training, of which samples are
 * wanted. GPT_EDATA when that split, or one data set of a blend, has no token,
 * with prefix, split and what is needed. Another split whose share holds no
 * sequence at all is left empty. A split of fewer tokens than one sample
 * repeats them: gpt_corpus_repeats(). */
int gpt_corpus_open(struct gpt_corpus **c,
                    const struct gpt_corpus_options *options,
                    struct gpt_err *err) GPT_MUST_USE;
void gpt_corpus_close(struct gpt_corpus *c);

/* Bytes of memory that a corpus needs beside its files, which are mapped: the
 * indices of its samples, 12 for each and, in a blend, 6 more; 4 for each visit
 * of a sequence; and the tokens where they are cached. Of one that is not open,
 * only what follows from the samples that are wanted. */
int64_t gpt_corpus_memory(const struct gpt_corpus *c);
int64_t gpt_corpus_predict(const struct gpt_corpus_options *o);

/* Samples that exist in a split: >= n_samples asked for, or 0 when the split is
 * not used or has no share in `split` or no split_path. */
int64_t gpt_corpus_size(const struct gpt_corpus *c, enum gpt_split split);

/* A data set whose sequences [begin, end) have fewer tokens than a sample. */
struct gpt_repeat {
    const char *prefix; /* borrowed from the corpus */
    int64_t begin, end, tokens;
};
/* Returns true when a split repeats a data set within each sample; *repeat is
 * the first of these. */
bool gpt_corpus_repeats(const struct gpt_corpus *c, enum gpt_split split,
                        struct gpt_repeat *repeat);

/* Whole samples of one epoch of a split, of which samples are wanted; -1 where
 * weights decide how often a data set is read. */
int64_t gpt_corpus_epoch(const struct gpt_corpus *c, enum gpt_split split);

/* True when a split has no more samples than one epoch, however many are
 * wanted: it draws from several data sets without weights. */
bool gpt_corpus_ends(const struct gpt_corpus *c, enum gpt_split split);

/* tokens (seq_length + 1) int32 of sample i; thread-safe. With `documents` it
 * is one sequence between the two tokens, clipped at the end or padded with -1;
 * no end is added to a sequence that has it. GPT_EDATA names prefix, sequence
 * and position of a token id >= vocab_size or < 0. */
int gpt_corpus_get(const struct gpt_corpus *c, enum gpt_split split,
                   int64_t i, int32_t *tokens, struct gpt_err *err)
    GPT_MUST_USE;

/* A digest of what fixes the order of the training samples: names, lengths and
 * weights of the data sets, epochs, sequence length, seed. Kept in checkpoints
 * so that a run resumed on other data is noticed; moving the data or training
 * longer without a further epoch does not change it. */
uint64_t gpt_corpus_digest(const struct gpt_corpus *c);

/* The same without epochs: where it is equal and the other is not, only the
 * length of the run changed the order. */
uint64_t gpt_corpus_sets_digest(const struct gpt_corpus *c);

#endif
