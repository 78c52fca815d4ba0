/* Pre-tokenizers of a tokenizer.json that has whole characters, as a list of
 * steps: each cuts a text into pieces, which go through the next one. */
#ifndef GPT_TOKENIZER_PIECE_STEPS_H
#define GPT_TOKENIZER_PIECE_STEPS_H

#include "base/memory.h"
#include "tokenizer/needle.h"

enum { GPT_PIECE_STEPS = 8 }; /* at most */

enum gpt_prepend { /* the scheme of Metaspace */
    GPT_PREPEND_NEVER,
    GPT_PREPEND_ALWAYS,
    GPT_PREPEND_FIRST, /* to the first piece of a text */
};

enum gpt_separated { /* what becomes of what separates pieces */
    GPT_SPLIT_REMOVED,
    GPT_SPLIT_ISOLATED,
    GPT_SPLIT_PREVIOUS,   /* is the end of the piece before it */
    GPT_SPLIT_NEXT,       /* is the beginning of the piece after it */
    GPT_SPLIT_CONTIGUOUS, /* several in a row are one piece */
};

struct gpt_piece_step {
    bool metaspace; /* spaces become `space`, before the step splits */
    bool splits;
    struct gpt_str space;
    enum gpt_prepend prepend;
    struct gpt_needle pattern;
    enum gpt_separated split;
    bool invert; /* what does not match separates pieces */
};

/* Is given each piece, which is not empty; `readable` bytes of it may be read.
 */
typedef int gpt_piece_fn(void *data, struct gpt_str piece, size_t readable,
                         struct gpt_err *err);

struct gpt_piece_steps {
    struct gpt_piece_step steps[GPT_PIECE_STEPS];
    size_t n;
};

/* Calls fn for each piece of a text in their order. The buffers, one a step,
 * are scratch. `first` bytes of the text are of the first character of a
 * document. */
int gpt_piece_steps_run(const struct gpt_piece_steps *steps,
                        struct gpt_buf buffers[GPT_PIECE_STEPS],
                        struct gpt_str text, size_t first, gpt_piece_fn *fn,
                        void *data, struct gpt_err *err) GPT_MUST_USE;

#endif
