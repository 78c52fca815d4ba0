/* Pieces of a normalized text, as SentencePiece finds them: by merging the
 * neighbours of the best score (sp_bpe.c), or by the path of the best sum
 * (sp_unigram.c). Scores are added as SentencePiece adds them, so that ties
 * fall the same way. */
#ifndef GPT_TOKENIZER_SP_ENCODE_H
#define GPT_TOKENIZER_SP_ENCODE_H

#include "tokenizer/bpe/pair_heap.h"
#include "tokenizer/ids.h"
#include "tokenizer/sp_model.h"

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

/* Makes it of the pieces that a text can have: normal ones, and a user's. */
int gpt_sp_trie_open(struct gpt_sp_trie *t, const struct gpt_sp_model *m,
                     struct gpt_err *err) GPT_MUST_USE;
/* Makes it of all texts; of two that are the same the last one counts. */
int gpt_sp_trie_of(struct gpt_sp_trie *t, const struct gpt_str *texts,
                   int64_t n, struct gpt_err *err) GPT_MUST_USE;
void gpt_sp_trie_close(struct gpt_sp_trie *t);

/* The slot of the child of `parent` by `byte`, or the free one where it
 * belongs. Children are in one hash table for the whole trie: nodes have few,
 * but those near the root hundreds. */
static inline size_t gpt_sp_trie_slot(const struct gpt_sp_trie *t,
                                      uint32_t parent, uint8_t byte)
{
    uint64_t key = ((uint64_t)parent << 8 | byte) + 1;
    size_t i = (size_t)((key * 0x9E3779B97F4A7C15u) >> 20) & t->mask;

    while (t->keys[i] && t->keys[i] != key)
        i = (i + 1) & t->mask;
    return i;
}

static inline uint32_t gpt_sp_trie_child(const struct gpt_sp_trie *t,
                                         uint32_t parent, uint8_t byte)
{
    return t->children[gpt_sp_trie_slot(t, parent, byte)]; /* 0 where free */
}

/* ---- the best path, for this model and for that of unigram.h ---- */

#define GPT_NO_PATH UINT32_MAX

/* The best way to a position of a text, by its last piece. */
struct gpt_best_path {
    double score; /* SentencePiece's are of single precision */
    int32_t id;
    uint32_t begin; /* GPT_NO_PATH: there is no way yet */
};

/* Takes the way to *end by a piece from `begin`, if it is better than what is
 * known. Of equal ways the one found first stays, which is that of the longest
 * last piece. */
static inline void gpt_best_offer(struct gpt_best_path *end, double score,
                                  int32_t id, size_t begin)
{
    if (end->begin == GPT_NO_PATH || score > end->score)
        *end = (struct gpt_best_path){score, id, (uint32_t)begin};
}

/* Makes room for the positions of a text of len bytes, without a way to any. */
int gpt_best_begin(struct gpt_best_path **paths, size_t *cap, size_t len,
                   struct gpt_err *err) GPT_MUST_USE;
/* Turns the chain of last pieces round, in place: paths[p].begin becomes where
 * the piece after position p ends, GPT_NO_PATH at the end of the text. */
void gpt_best_reverse(struct gpt_best_path *paths, size_t len);

/* A thread's memory. */
struct gpt_sp_scratch {
    struct gpt_sp_symbol *symbols;
    size_t symbols_cap;
    struct gpt_pair_heap heap;
    struct gpt_best_path *paths;
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

/* ---- for the two searches ---- */

/* GPT_EDATA when places in a text of len bytes do not fit. */
int gpt_sp_check_len(size_t len, struct gpt_err *err) GPT_MUST_USE;
/* Appends the id of a piece, or what stands for it where it is unknown. `first`
 * is where the ids of this text begin in the list. */
int gpt_sp_add_piece(const struct gpt_sp_model *m, const char *piece,
                     size_t len, int32_t id, size_t first,
                     struct gpt_ids *ids, struct gpt_err *err) GPT_MUST_USE;

#endif
