/* Files of ranks, as TikTokenizer reads them: a .tiktoken has a line
 * "base64(bytes) rank" a token; Megatron's JSON is a list of objects with
 * "rank" and "token_bytes", in base64. Which one a file is, is seen from its
 * first character. */
#ifndef GPT_TOKENIZER_TIKTOKEN_FILE_H
#define GPT_TOKENIZER_TIKTOKEN_FILE_H

#include "base/memory.h"
#include "text/str.h"

struct gpt_ranks {
    bool json;
    int64_t n; /* ranks there are: the highest plus one */
    struct gpt_str *tokens; /* (n) by rank; data == NULL in gaps */
    struct gpt_arena arena;   /* owns the bytes */
};

/* Fills *ranks, which gpt_ranks_free() empties, also after a failure. GPT_EDATA
 * with path:line, or the number in the list, for what is malformed, a rank that
 * comes twice, and ranks that leave more gaps than there are tokens. */
int gpt_ranks_read(struct gpt_ranks *ranks, const char *path,
                   struct gpt_err *err) GPT_MUST_USE;
void gpt_ranks_free(struct gpt_ranks *ranks);

/* True for a text whose first line may be that of a .tiktoken. */
bool gpt_ranks_begin(const char *text, size_t len);

#endif
