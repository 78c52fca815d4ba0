/* Training of a byte-pair vocabulary: from distinct pieces of text and how
 * often each occurs, the list of merges. The merges equal those of Hugging
 * Face's BpeTrainer for the same pieces; see gpt_bpe_train(). Pieces come from
 * cmd/vocab/piece_count.h, files are made by tokenizer/vocab_write.h. */
#ifndef GPT_TOKENIZER_BPE_TRAIN_H
#define GPT_TOKENIZER_BPE_TRAIN_H

#include "base/status.h"

enum { GPT_BPE_BYTES = 256 }; /* ids 0..255: bytes, in gpt_byte_of_rank order */

/* A distinct piece; merges never cross its ends. */
struct gpt_word {
    const char *data;
    size_t len;    /* < 2^32 */
    int64_t count; /* > 0 */
};

/* Tokens `left` and `right` become token GPT_BPE_BYTES + (number of merge). */
struct gpt_bpe_merge {
    int32_t left, right;
};

struct gpt_progress;

struct gpt_bpe_train_options {
    int64_t max_merges;            /* < 2^31 - 256 */
    int64_t min_frequency;         /* stop at pairs seen less often; >= 1 */
    struct gpt_progress *progress; /* counts merges; may be NULL */
};

struct gpt_bpe_trained {
    struct gpt_bpe_merge *merges; /* (n_merges) */
    int64_t n_merges;         /* < max_merges when the pairs ran out */
    int64_t n_bytes;          /* of the text counted */
    int64_t n_tokens;         /* that the text makes with these merges */
};

/* Repeats: merge the pair of neighbours that occurs most often, of equally
 * frequent ones that with the smallest left, then right id. In a run of one
 * token ("aaa") every position counts, and merging goes from left to right.
 * The order of the pieces does not matter, their counts are exact.
 *
 * Time is about proportional to the bytes of the distinct pieces, whatever the
 * length of a single one; memory is about 30 bytes for each of them.
 * GPT_EDATA when there are 2^32 pieces or one is 2^32 bytes long; GPT_EFAIL
 * when a signal asked to stop. *model is filled only on success, and is freed
 * with gpt_bpe_trained_free(). The pieces are borrowed.
 *
 * Source: Sennrich et al. 2016, algorithm 1; ties as in huggingface/tokenizers
 * bpe/trainer.rs (which counts in 32 bits, this in 64). */
int gpt_bpe_train(struct gpt_bpe_trained *model, const struct gpt_word *pieces,
                  size_t n_pieces, const struct gpt_bpe_train_options *options,
                  struct gpt_err *err) GPT_MUST_USE;
void gpt_bpe_trained_free(struct gpt_bpe_trained *model);

#endif
