/* What the two files of tokenizers of pieces share: family_hf_pieces.c, and
 * family_hf_printed.c, which makes the texts of their tokens and finds places
 * for added ones. */
#ifndef GPT_TOKENIZER_FAMILY_HF_PIECES_H
#define GPT_TOKENIZER_FAMILY_HF_PIECES_H

#include "tokenizer/family_hf.h"
#include "tokenizer/tokenizer_json_pieces.h"
#include "tokenizer/unigram.h"
#include "tokenizer/words.h"

struct gpt_hf_pieces;
struct gpt_pieces_encoder;

/* A model, by the type that the file gives it. */
struct gpt_piece_model {
    const char *type;
    bool joined; /* without a decoder, tokens have spaces between them */
    int (*load)(struct gpt_hf_pieces *t, const struct gpt_hf_load *f);
    int (*encode)(struct gpt_pieces_encoder *e, struct gpt_str piece,
                  struct gpt_err *err);
};

struct gpt_hf_pieces {
    struct gpt_tokenizer base;
    const struct gpt_piece_model *model;
    struct gpt_unigram unigram; /* empty unless the model is that one */
    struct gpt_words words;
    int64_t n, n_listed; /* ids of model.vocab; tokens, where it has gaps */
    const struct gpt_str *texts; /* (n) of these; data NULL in a gap */
    const struct gpt_token_map *map;
    struct gpt_hf_piece_steps steps;
    struct gpt_added *added;            /* searched for in the text as it is */
    struct gpt_added *added_normalized; /* and in what normalization makes */
    bool parse_special;
    struct gpt_str *tokens; /* (vocab_size) as they are printed */
    struct gpt_str *firsts; /* and as the first of a text; NULL: the same */
    size_t printed;         /* bytes of these, and of replaced ones */
    struct gpt_arena arena; /* owns their bytes, and what the steps refer to */
};

/* Fills tokens and firsts for model.vocab. GPT_EDATA where they become too
 * long. */
int gpt_hf_print_tokens(struct gpt_hf_pieces *t, const struct gpt_hf_load *f)
    GPT_MUST_USE;
/* The same for the added tokens of the file, which it lists for the search.
 * GPT_EDATA when the library would give them other ids. */
int gpt_hf_add_tokens(struct gpt_hf_pieces *t, const struct gpt_hf_load *f,
                      const cJSON *added) GPT_MUST_USE;

#endif
