/* Byte-pair merging of one piece of text: from its bytes, the pair of lowest
 * rank is merged, of equal ones the leftmost, until no pair of neighbours is
 * in the list. Source: Sennrich et al. 2016, section 3.2; the order is that of
 * Hugging Face tokenizers.
 *
 * The folder: this file merges one piece, many.h short ones some at a time,
 * both by the table of pairs.h; seams.h says where a piece may be cut before
 * that; cache.h remembers pieces, parts.h asks it for many, late.h has those of
 * a text that it lacks; wide.h has a shorter way for characters of three bytes;
 * encoder.h puts these together to encode a text. train.h makes a
 * vocabulary. */
#ifndef GPT_TOKENIZER_BPE_BPE_H
#define GPT_TOKENIZER_BPE_BPE_H

#include "tokenizer/bpe/pair_heap.h"
#include "tokenizer/bpe/seams.h"
#include "tokenizer/ids.h"
#include "tokenizer/vocab.h"

/* The merges, ready to be looked up; shared by threads, never written. */
struct gpt_bpe;
struct gpt_pairs;

/* GPT_EDATA when a pair is merged twice; `merge_file` names it. */
int gpt_bpe_open(struct gpt_bpe **bpe, const struct gpt_vocab *v,
                 const char *merge_file, struct gpt_err *err) GPT_MUST_USE;
void gpt_bpe_close(struct gpt_bpe *bpe);

/* Bytes of a token. */
size_t gpt_bpe_token_len(const struct gpt_bpe *bpe, int32_t id);

/* Ids are below it. */
int64_t gpt_bpe_vocab_size(const struct gpt_bpe *bpe);

/* The ranks of pairs, for many.h. */
const struct gpt_pairs *gpt_bpe_pairs(const struct gpt_bpe *bpe);

/* Where a piece may be cut and the parts merged apart. */
const struct gpt_seams *gpt_bpe_seams(const struct gpt_bpe *bpe);

/* Keeps a token that only a whole piece becomes from being a part of one, by
 * gpt_seams_fix(). To be called before threads share the merges. */
void gpt_bpe_fix(struct gpt_bpe *bpe, int32_t id);

/* A thread's memory for pieces that are too long for the stack. */
struct gpt_bpe_scratch {
    struct gpt_bpe_node *nodes;
    size_t nodes_cap;
    struct gpt_pair_heap heap;
};
void gpt_bpe_scratch_free(struct gpt_bpe_scratch *s);

/* Appends the ids of piece[0..len), len > 0. Time O(len log len), memory
 * about 40 len for long pieces. GPT_EDATA from 4 GiB on. */
int gpt_bpe_merge(const struct gpt_bpe *bpe, struct gpt_bpe_scratch *s,
                  const char *piece, size_t len, struct gpt_ids *ids,
                  struct gpt_err *err) GPT_MUST_USE;

#endif
