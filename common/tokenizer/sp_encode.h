/* Pieces of a normalized text, as SentencePiece finds them: by merging the
 * neighbours of the best score (bpe_model.cc), or the path of the best sum
 * (unigram_model.cc). Scores are added as it adds them, so that ties fall the
 * same way. */
#ifndef GPT_TOKENIZER_SP_ENCODE_H
#define GPT_TOKENIZER_SP_ENCODE_H

#include "tokenizer/sp_model.h"
#include "tokenizer/tokenizer.h"

/* A trie of the pieces of a unigram model; children in a hash table. */
struct gpt_sp_trie {
    uint64_t *keys;     /* (mask + 1) parent << 8 | byte, plus 1; 0 = free */
    uint32_t *children; /* (mask + 1) */
    int32_t *ids;       /* of the piece that ends at a node, -1 = none */
    size_t mask;
    uint32_t n_nodes;
    float lowest; /* score of normal pieces */
    size_t longest;        /* bytes of a piece, or of a character */
};

int gpt_sp_trie_open(struct gpt_sp_trie *t, const struct gpt_sp_model *m,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_sp_trie_close(struct gpt_sp_trie *t);

/* A thread's memory. */
struct gpt_sp_scratch {
    struct gpt_sp_symbol *symbols;
    size_t symbols_cap;
    uint64_t *heap;
    size_t heap_cap;
    struct gpt_sp_path *paths;
    size_t paths_cap;
};
void gpt_sp_scratch_free(struct gpt_sp_scratch *s);

/* Append the ids of a normalized text of len > 0 bytes. A piece that is not
 * known is its bytes, or the unknown id, once for several in a row. GPT_EDATA
 * from 2 GiB on. */
int gpt_sp_encode_bpe(const struct gpt_sp_model *m, struct gpt_sp_scratch *s,
                      const char *text, size_t len, struct gpt_ids *ids,
                      struct gpt_err *err) GPT_MUST_USE;
int gpt_sp_encode_unigram(const struct gpt_sp_model *m,
                          const struct gpt_sp_trie *t,
                          struct gpt_sp_scratch *s, const char *text,
                          size_t len, struct gpt_ids *ids,
                          struct gpt_err *err) GPT_MUST_USE;

#endif
