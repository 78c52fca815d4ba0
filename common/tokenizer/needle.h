/* What the steps of a tokenizer.json search for, its "pattern": a text, or what
 * the simplest regular expressions match: texts between bars; a character or
 * white space, once or in a row, anywhere or at an end of the text. Others are
 * refused where they are read. */
#ifndef GPT_TOKENIZER_NEEDLE_H
#define GPT_TOKENIZER_NEEDLE_H

#include "base/json.h"
#include "base/memory.h"
#include "tokenizer/needle_list.h"

enum gpt_needle_kind {
    GPT_NEEDLE_TEXT,
    GPT_NEEDLE_LIST,  /* one of `list` */
    GPT_NEEDLE_CHAR,  /* `text`, which is one character, in a row */
    GPT_NEEDLE_BLANK, /* white space in a row */
    GPT_NEEDLE_DIGIT, /* numbers in a row */
    GPT_NEEDLE_SIGN,  /* punctuation in a row */
    GPT_NEEDLE_WORD,  /* what '\w' matches, in a row */
};

struct gpt_needle {
    enum gpt_needle_kind kind;
    struct gpt_str text;
    const struct gpt_needle_list *list;
    size_t least;        /* so many in a row */
    bool all;            /* and all that follow; else each is a match */
    bool at_begin, at_end; /* of the text: only there, or at either */
};

/* From the member "pattern": {"String": ...} or {"Regex": ...}. False for an
 * expression that is not known, for an empty text, and when memory is out;
 * *shown is what the message quotes. Texts are copied to the arena. */
bool gpt_needle_read(struct gpt_needle *pattern, const cJSON *item,
                     struct gpt_arena *arena, const char **shown);
/* The first match from `at` on in text[0..len); false when there is none. */
bool gpt_needle_find(const struct gpt_needle *pattern, const char *text,
                     size_t len, size_t at, size_t *begin, size_t *end);

#endif
