/* Generated texts onto a stream, in the order of the requests, however they
 * interleave. As text, the first that is not finished is written as it grows,
 * token by token, always valid UTF-8; those after it wait. As JSON Lines, one
 * object a text when it is finished. */
#ifndef GPT_CMD_GENERATE_WRITER_H
#define GPT_CMD_GENERATE_WRITER_H

#include "generate/generate.h"
#include "cmd/generate/prompts.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>

struct gpt_writer_options {
    FILE *file;
    bool jsonl;
    bool echo;     /* texts begin with their prompt */
    bool logits;   /* objects have all logits of each token ... */
    int64_t vocab; /* ... which are as many */
    const struct gpt_tokenizer *tokenizer;
    const struct gpt_list *stops;       /* strings that end a text */
    const struct gpt_prompts *prompts;  /* by request.number */
    const struct gpt_request *requests; /* (n_requests) */
    int64_t n_requests;
};

struct gpt_writer;

/* The options and what they point to outlive the writer. */
int gpt_writer_open(struct gpt_writer **w,
                    const struct gpt_writer_options *options,
                    struct gpt_err *err) GPT_MUST_USE;
void gpt_writer_close(struct gpt_writer *w); /* NULL is fine */

/* Callbacks of a sink, with a writer as `user`. A stop string stops its text.
 * GPT_EIO when the stream cannot be written. */
int gpt_writer_token(void *w, int64_t request, const struct gpt_chosen *chosen,
                     bool *stop, struct gpt_err *err);
/* The score of a text that a search has found, before its end. */
void gpt_writer_score(struct gpt_writer *w, int64_t request, double score);
int gpt_writer_finish(void *w, int64_t request, enum gpt_finish finish,
                      struct gpt_err *err);

#endif
