/* A piece of advice, and how it is shown: for layouts_command.c alone. */
#ifndef GPT_CMD_TRAIN_LAYOUTS_PRINT_H
#define GPT_CMD_TRAIN_LAYOUTS_PRINT_H

#include "base/memory.h"
#include "cmd/train/layouts.h"

/* A part of a layout: its field of JSON, and the options that give it. The
 * first two say what it is; a third goes with them. */
struct gpt_layout_words {
    const char *key;
    const char *options[3];
};
extern const struct gpt_layout_words gpt_layout_words[GPT_N_PARTS];

/* Everything about one piece of advice. */
struct gpt_advice {
    const struct gpt_train_options *o; /* as typed */
    const struct gpt_args *args;
    struct gpt_hardware hardware;
    struct gpt_backend planned; /* where hardware is a GPU */
    struct gpt_train_options base; /* what is planned with, see layouts.h */
    struct gpt_layout_search search;
    double flops;  /* of the model, a step */
    double tokens; /* of a step */
    bool chose_batch, chose_bf16;         /* they were not given */
    const struct gpt_layout_choice *best; /* (n) the fastest first */
    size_t n;
};

/* A table, and below it the command line of the first; or an object, with a
 * command line for each. Both append to b, and fail when memory is out. */
int gpt_advice_text(struct gpt_buf *b, const struct gpt_advice *a);
int gpt_advice_json(struct gpt_buf *b, const struct gpt_advice *a);

/* Appends the command line of a run in that layout: what was typed of it, then
 * what differs from the defaults, without the program that starts the ranks. */
int gpt_advice_command(struct gpt_buf *b, const struct gpt_advice *a,
                       const struct gpt_layout_choice *c);

#endif
