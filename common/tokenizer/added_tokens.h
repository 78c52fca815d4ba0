/* Added tokens: literal texts that are cut out before a text is cut into
 * pieces, each being one token ("<|endoftext|>"). The rules are those of
 * Hugging Face tokenizers: the leftmost match, of several the longest. */
#ifndef GPT_TOKENIZER_ADDED_TOKENS_H
#define GPT_TOKENIZER_ADDED_TOKENS_H

#include "base/status.h"

struct gpt_added_token {
    const char *text; /* borrowed, for gpt_added_open() only */
    size_t len;
    int32_t id;
    bool special;     /* found only when special tokens are asked for */
    bool lstrip, rstrip; /* takes the white space before it, after it */
    bool single_word; /* not inside or beside a word */
};

/* A set of them; NULL is the empty one. Shared by threads, never written. */
struct gpt_added;

/* GPT_EDATA when two tokens have one text, or one has none; `what` names the
 * file. No tokens give NULL. */
int gpt_added_open(struct gpt_added **a, const struct gpt_added_token *tokens,
                   size_t n, const char *what, struct gpt_err *err)
    GPT_MUST_USE;
void gpt_added_close(struct gpt_added *a);
/* True when a special token of the set has this id. */
bool gpt_added_is_special(const struct gpt_added *a, int32_t id);

/* The state of a search in a text; begins as zeros. */
struct gpt_added_search {
    size_t at;        /* where the next match may begin */
    size_t done;      /* end of the last token; the text between is no token */
    size_t blank_end; /* white space is known to reach here */
};

/* A token found at text[start..end). start may lie before `done` of the search
 * it came from, after a token that took white space. */
struct gpt_added_span {
    size_t start, end;
    int32_t id;
};

/* Finds the next token of text[0..len), and moves the search past it; false
 * when there is none. With `special` false a special token is a text like any
 * other, but none of the others is found inside it. */
bool gpt_added_next(const struct gpt_added *a, bool special, const char *text,
                    size_t len, struct gpt_added_search *search,
                    struct gpt_added_span *span);

#endif
