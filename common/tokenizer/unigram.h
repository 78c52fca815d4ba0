/* The unigram model of a tokenizer.json: tokens with scores, of which a piece
 * of text becomes those whose scores have the largest sum. The model is that of
 * SentencePiece (sp_unigram.c); the library's sums are of double precision,
 * every token of the file takes part, control ones, too, and an unknown
 * character costs 10 more than the worst of all. */
#ifndef GPT_TOKENIZER_UNIGRAM_H
#define GPT_TOKENIZER_UNIGRAM_H

#include "tokenizer/sp_encode.h"

struct gpt_unigram {
    int64_t n;             /* tokens of model.vocab */
    struct gpt_str *texts; /* (n) as the file has them */
    double *scores;        /* (n) */
    double lowest;
    struct gpt_token_map map; /* of two with one text the last */
    struct gpt_sp_trie trie;
    int32_t unk;           /* -1: a text of unknown characters fails */
    bool byte_fallback; /* and there is a token for each byte */
    int32_t byte_id[256];
    struct gpt_arena arena; /* owns the texts */
};

/* From model.vocab, a list of lists of a text and a score; `what` names the
 * file. unk is not known yet. gpt_unigram_close() frees, also after a failure.
 */
int gpt_unigram_read(struct gpt_unigram *u, struct gpt_str vocab,
                     const char *what, struct gpt_err *err) GPT_MUST_USE;
void gpt_unigram_close(struct gpt_unigram *u);

/* A thread's memory: freed with gpt_free(). */
struct gpt_unigram_scratch {
    struct gpt_best_path *paths;
    size_t cap;
};

/* Appends the ids of a piece, which is UTF-8; GPT_EDATA from 2 GiB on, and for
 * a character that has no token where unknown ones have none. */
int gpt_unigram_encode(const struct gpt_unigram *u,
                       struct gpt_unigram_scratch *s, const char *piece,
                       size_t len, struct gpt_ids *ids, struct gpt_err *err)
    GPT_MUST_USE;

#endif
