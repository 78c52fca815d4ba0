/* A SentencePiece model: the parts of its ModelProto that say how text becomes
 * ids. Source: sentencepiece_model.proto; field numbers are its. */
#ifndef GPT_TOKENIZER_SP_MODEL_H
#define GPT_TOKENIZER_SP_MODEL_H

#include "tokenizer/token_map.h"

enum gpt_sp_type { /* of a piece */
    GPT_SP_NORMAL = 1,
    GPT_SP_UNKNOWN,
    GPT_SP_CONTROL,
    GPT_SP_USER,
    GPT_SP_UNUSED,
    GPT_SP_BYTE,
};

struct gpt_sp_piece {
    float score;
    uint8_t type;
};

struct gpt_sp_model {
    char *file;    /* the whole file; strings below point into it */
    size_t len;
    int64_t n;     /* pieces */
    struct gpt_str *texts;     /* (n) */
    struct gpt_sp_piece *pieces; /* (n) */
    struct gpt_token_map normal; /* normal, user-defined and unused pieces */
    struct gpt_token_map reserved; /* the others */
    bool unigram; /* else BPE */
    bool byte_fallback;
    bool dummy_prefix, remove_spaces, escape_spaces;
    struct gpt_str charsmap, unk_surface;
    int32_t unk, eos; /* eos: -1 = none */
    int32_t byte_id[256];
    size_t longest_user; /* bytes of a user-defined piece */
};

/* Fills *m, which gpt_sp_model_free() empties, also after a failure. GPT_EDATA
 * with the offset for a malformed file, and by name for what is not supported:
 * word and character models, white space as a suffix, a denormalizer. */
int gpt_sp_model_read(struct gpt_sp_model *m, const char *path,
                      struct gpt_err *err) GPT_MUST_USE;
void gpt_sp_model_free(struct gpt_sp_model *m);

/* The id of a piece, the model's unknown one if there is none. */
int32_t gpt_sp_find(const struct gpt_sp_model *m, const char *piece,
                    size_t len);
/* The byte that a piece such as <0x0A> is for; -1 for any other text. */
int gpt_sp_byte_of(struct gpt_str text);
/* Bytes of the longest user-defined piece that text[0..len) begins with. */
size_t gpt_sp_user_prefix(const struct gpt_sp_model *m, const char *text,
                          size_t len);

/* The character that a byte begins, in bytes, by that byte alone. */
static inline size_t gpt_sp_char_len(const char *text, size_t len)
{
    static const uint8_t of_high[16] = {1, 1, 1, 1, 1, 1, 1, 1,
                                        1, 1, 1, 1, 2, 2, 3, 4};
    size_t n = of_high[(uint8_t)text[0] >> 4];

    return n < len ? n : len;
}

#endif
