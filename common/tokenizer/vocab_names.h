/* The tokens of a vocabulary as a JSON object {"text": id, ...} writes them: in
 * vocab.json, and in tokenizer.json. Lives while a vocabulary is loaded: merges
 * are written in the same letters. */
#ifndef GPT_TOKENIZER_VOCAB_NAMES_H
#define GPT_TOKENIZER_VOCAB_NAMES_H

#include "tokenizer/token_map.h"

struct gpt_vocab_names {
    int64_t n;               /* ids */
    int64_t n_listed;        /* tokens in the file */
    struct gpt_str *texts; /* (n) by id; data = NULL in a gap */
    struct gpt_token_map map; /* over texts */
    char *letters; /* of all texts, one behind the other in the file's order */
    size_t n_letters;
};

struct gpt_vocab_ids {
    bool gaps;     /* between ids are allowed */
    int64_t least; /* number of ids, whatever the file says */
};

/* Reads `json`, which `file` names in errors. GPT_EDATA when it is not an
 * object, when an id is no integer, out of range, or another token's, or when a
 * token comes twice. gpt_vocab_names_close() frees, also after a failure. */
int gpt_vocab_names_read(struct gpt_vocab_names *names, struct gpt_str json,
                         const struct gpt_vocab_ids *ids, const char *file,
                         struct gpt_err *err) GPT_MUST_USE;
void gpt_vocab_names_close(struct gpt_vocab_names *names);

/* The id of a text, -1 when it is none's. */
static inline int32_t gpt_vocab_name_find(const struct gpt_vocab_names *names,
                                          const char *text, size_t len)
{
    return gpt_token_map_find(&names->map, text, len);
}

#endif
