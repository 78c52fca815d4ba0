/* gpt-train advise: which layout of a model over given ranks is fastest, of
 * those that fit into their memory. Nothing is started; memory is predicted as
 * --dry-run does it, and time as layout_time.h does. */
#ifndef GPT_CMD_TRAIN_LAYOUTS_H
#define GPT_CMD_TRAIN_LAYOUTS_H

#include "cmd/train/layout_time.h"

/* What a layout chooses. */
enum gpt_layout_part {
    GPT_PART_TENSOR,    /* ranks that share layers */
    GPT_PART_PIPELINE,  /* stages */
    GPT_PART_CHUNKS,    /* virtual stages a rank */
    GPT_PART_MICRO,     /* samples of a microbatch */
    GPT_PART_SHARDING,  /* enum gpt_zero */
    GPT_PART_RECOMPUTE, /* 0 none, 1 selective, 2 full */
    GPT_PART_SEQUENCE,  /* 1: sequence parallel */
    GPT_N_PARTS
};

struct gpt_layout_choice {
    int64_t part[GPT_N_PARTS];
    struct gpt_layout_time time;
    double memory; /* bytes of the rank that needs most */
};

struct gpt_layout_search {
    const struct gpt_train_options *base; /* of the model and a schedule */
    const struct gpt_args *args;
    struct gpt_backend *be; /* that predicts memory */
    const struct gpt_hardware *hardware; /* .memory is the limit */
    int64_t ranks;
    int64_t batch; /* samples of a step, of the largest of a schedule */
    int64_t part[GPT_N_PARTS]; /* that are given; -1: free */
};

/* The plan of a choice's parts; `options` becomes what a user would type, and
 * must outlive the plan. A status without a message: there is no such
 * layout. */
int gpt_layout_plan(const struct gpt_layout_search *s, const int64_t *part,
                    struct gpt_train_options *options,
                    struct gpt_train_plan *plan);

/* The fastest layouts that fit, the fastest first, at most `cap`; *n of them.
 * Where none fits *least is the one that needs least. Every layout is looked
 * at but those that rules of thumb leave out: tensor parallel ranks of several
 * machines, micro batches above 64, more than 16 virtual stages, and tensor
 * parallelism without sequence parallelism. */
int gpt_layouts_find(const struct gpt_layout_search *s,
                     struct gpt_layout_choice *best, size_t cap, size_t *n,
                     struct gpt_layout_choice *least,
                     struct gpt_err *err) GPT_MUST_USE;

/* The command: prints a table, or JSON, and the command line of the best.
 * GPT_EDEVICE names what would fit where nothing does. */
int gpt_train_layouts(const struct gpt_train_options *o,
                      const struct gpt_args *args,
                      struct gpt_err *err) GPT_MUST_USE;

#endif
