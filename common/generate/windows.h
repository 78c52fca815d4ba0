/* How a long text is cut into windows that a model can read, so that its
 * perplexity is that of a convention. Every convention is a rule for the next
 * window; what differs is how much each token can see. */
#ifndef GPT_GENERATE_WINDOWS_H
#define GPT_GENERATE_WINDOWS_H

#include "base/status.h"

enum gpt_windows_rule {
    /* Megatron's tasks (WIKITEXT103): windows of `length` inputs begin `stride`
     * tokens after each other; after the first one only the last `stride`
     * targets count. Every token but the first is scored. */
    GPT_WINDOWS_MEGATRON,
    /* lm-eval's rolling windows: a token before the text (gpt_window.prefix),
     * then windows of `length` that do not overlap; the last one is moved back
     * so that it is full, and only what is new counts. Every token is scored.
     */
    GPT_WINDOWS_LM_EVAL,
    /* llama.cpp's: whole windows of `length` tokens, of which the second half
     * is scored; what is left at the end is not. */
    GPT_WINDOWS_LLAMA_CPP,
    /* Training's samples: windows of `length` inputs and as many targets, all
     * of which count; what is left at the end is not scored. */
    GPT_WINDOWS_TRAINING,
};

struct gpt_windows {
    enum gpt_windows_rule rule;
    int64_t length;   /* >= 1; llama.cpp's >= 3 */
    int64_t stride;   /* of Megatron's; 1..length */
    int64_t n_tokens; /* of the text */
    int64_t done;     /* start with 0: windows so far */
};

/* Tokens [begin, end) of the text, of which [scored, end) are scored. */
struct gpt_window {
    int64_t begin, scored, end;
    bool prefix; /* a token that is not of the text comes before them */
};

/* True and the next window; false at the end. */
bool gpt_windows_next(struct gpt_windows *w, struct gpt_window *window);

#endif
