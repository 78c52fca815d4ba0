/* Normalizers of a tokenizer.json, as a list of steps of which each makes a new
 * text of the one before it. Texts are UTF-8. */
#ifndef GPT_TOKENIZER_TEXT_STEPS_H
#define GPT_TOKENIZER_TEXT_STEPS_H

#include "text/unicode_forms.h"
#include "tokenizer/sp_normalize.h"
#include "tokenizer/needle.h"

enum { GPT_TEXT_STEPS = 24 }; /* at most */

enum gpt_text_step_kind {
    GPT_STEP_FORM,
    GPT_STEP_MAP,     /* Precompiled */
    GPT_STEP_REPLACE, /* each match by `content` */
    GPT_STEP_STRIP,   /* white space at the beginning and the end */
    GPT_STEP_UNMARK,  /* StripAccents */
    GPT_STEP_LOWER,
    GPT_STEP_PREPEND, /* `content`, but to no empty text */
    GPT_STEP_NMT,     /* control characters go, others become spaces */
    GPT_STEP_CLEAN,   /* this and the next two are BertNormalizer's: the same */
    GPT_STEP_HAN,     /* spaces around each Chinese character */
    GPT_STEP_UNFLAT,  /* marks without width go */
};

struct gpt_text_step {
    enum gpt_text_step_kind kind;
    enum gpt_form form;
    bool left, right; /* of GPT_STEP_STRIP */
    struct gpt_needle pattern;
    struct gpt_str content;
    struct gpt_sp_map map;
    bool plain[128]; /* ASCII that `map` has no rule for */
};

/* A text, and how many of its bytes the library takes for a part of the first
 * character of the text that it was made of. */
struct gpt_step_text {
    struct gpt_str s;
    size_t first;
    size_t most; /* bytes that it may become, set by gpt_text_steps_run() */
};

/* Does the steps one after the other; the result is in a buffer, or where it
 * was if there are none. GPT_EDATA when the steps would make more than 256
 * bytes of each, and 1 MiB more: a few rules can ask for more than any memory.
 */
int gpt_text_steps_run(const struct gpt_text_step *steps, size_t n,
                       struct gpt_buf buffers[2], struct gpt_step_text *text,
                       struct gpt_err *err) GPT_MUST_USE;

/* Adds a step of the rules of a map; GPT_EDATA when `blob` is malformed. It is
 * borrowed. */
int gpt_text_step_map(struct gpt_text_step *step, struct gpt_str blob,
                      const char *what, struct gpt_err *err) GPT_MUST_USE;

#endif
