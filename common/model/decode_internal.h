/* What the files of the decoder share: decode.c (what callers ask for),
 * decode_pass.c (a block of rows through this rank's layers), decode_ranks.c
 * (what ranks tell and send each other) and decode_open.c (memory, opening and
 * closing). */
#ifndef GPT_MODEL_DECODE_INTERNAL_H
#define GPT_MODEL_DECODE_INTERNAL_H

#include "model/decode.h"
#include "model/layer.h"

/* Rows of logits at once when all are wanted. */
enum { GPT_DECODE_LOGIT_ROWS = 16 };
/* Texts of up to so many new tokens go through products for few rows
 * (GPT_SUMS_FEW): packing a weight for these would take as long. */
enum { GPT_DECODE_FEW = 16 };

enum { GPT_DECODE_MOST_RANKS = 64 }; /* of a tensor parallel group */

enum gpt_decode_buffer {
    GPT_DECODE_RESIDUAL,
    GPT_DECODE_NORMED,
    GPT_DECODE_BLOCK, /* a block's output, not yet added to the stream */
    GPT_DECODE_QKV,
    GPT_DECODE_ATTENTION,
    GPT_DECODE_FFN,    /* after the activation */
    GPT_DECODE_FFN_IN, /* before */
    GPT_DECODE_MEAN,
    GPT_DECODE_RSTD,
    GPT_DECODE_SQUARES,
    GPT_DECODE_TOKENS,
    GPT_DECODE_POSITIONS,
    GPT_DECODE_LOGITS,
    GPT_DECODE_EXPERTS,      /* of a layer's: the tables of the router, */
    GPT_DECODE_EXPERT_ROWS,  /* rows of tokens and of outputs, */
    GPT_DECODE_EXPERT_FFN,   /* and after and before the activation */
    GPT_DECODE_EXPERT_IN,
    GPT_DECODE_EXPERT_PAIRS, /* with tensor parallel ranks: of all ranks, */
    GPT_DECODE_EXPERT_SAME,  /* ... and their numbers, in order */
    GPT_DECODE_LATENT, /* of latent attention, all that it has */
    GPT_DECODE_KEYS,
    GPT_DECODE_VALUES,
    /* with other ranks */
    GPT_DECODE_GATHERED, /* columns of tensor parallel ranks, as they come */
    GPT_DECODE_WIDE,     /* the same, as rows */
    GPT_DECODE_OWN,      /* this rank's columns of a block's output */
    GPT_DECODE_MESSAGE,
    GPT_DECODE_BUFFERS
};

enum gpt_decode_kind { GPT_DECODE_ROWS, GPT_DECODE_COPY, GPT_DECODE_END };

/* New tokens of one text in a block. */
struct gpt_decode_part {
    int32_t slot, start, n; /* they go to positions start, ... */
    int32_t wants;          /* logits of the last so many of them */
};

/* What all ranks do next. The first one fills it in; the others get a copy, of
 * its whole room, so that one transfer carries it. */
struct gpt_decode_message {
    int32_t kind; /* enum gpt_decode_kind */
    int32_t n_parts, n_rows;
    int32_t few; /* tokens of each part: GPT_DECODE_FEW at most */
    int32_t from, to, length; /* of a copy */
    int32_t is_long; /* all parts are of texts that gpt_config_is_long() */
    struct gpt_decode_part parts[]; /* (slots), then tokens (rows) */
};

/* Device memory is in buffers[], allocated in a loop over their table; the host
 * arrays below describe one block of rows, and kernels read them during the
 * call that queues the block. */
struct gpt_decoder {
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_decoder_options o;
    struct gpt_layout layout;
    int64_t rank, n_ranks, step_bytes;
    bool opened; /* all of it: ranks can be told of its end */
    int64_t first_layer, n_layers;
    size_t layer_cache_bytes; /* of the keys of a layer */
    struct gpt_layer *layers;
    struct gpt_roles outer; /* what is outside layers */
    void *buffers[GPT_DECODE_BUFFERS];
    struct gpt_latent_acts latent; /* in them, of one layer at a time */
    struct gpt_latent_work latent_work;
    struct gpt_expert_acts experts;
    struct gpt_expert_work expert_work;
    int32_t *length; /* (slots) tokens held; of the first rank, as these: */
    /* (slots, positions) and (slots): all tokens of a text, and whether its
     * keys are turned as those of a long one. NULL where no text is. */
    int32_t *history;
    bool *is_long;
    struct gpt_decode_message *message; /* the block in work */
    int32_t *tokens;                    /* (rows), within the message */
    int32_t *rows_pos;                  /* (rows) */
    int32_t *pos, *len, *slot;          /* (slots): of the message's parts */
    struct gpt_pass_run *runs;          /* (slots) */
    struct gpt_decode_piece *pieces;    /* (slots): of a step */
};

/* Rows that the activation buffers hold: a block of a prompt, or one token of
 * every text. */
int64_t gpt_decoder_rows(const struct gpt_decoder_options *o);
/* Rows of logits at once. */
int64_t gpt_decoder_logit_rows(const struct gpt_decoder_options *o);
/* Rows whose logits the block of a message gives. */
int64_t gpt_decoder_count_wanted(const struct gpt_decode_message *m);
/* Bytes of a message. */
int64_t gpt_decoder_message_bytes(const struct gpt_decoder_options *o);

/* Does what d->message says, on this rank. logits: of the first rank; else
 * NULL. Returns when it is done. */
int gpt_decoder_obey(struct gpt_decoder *d, float *logits,
                     struct gpt_err *err) GPT_MUST_USE;

/* Sends d->message to the ranks after the first, or receives it there. Nothing
 * is sent where there is one rank. */
int gpt_decoder_tell(struct gpt_decoder *d, struct gpt_err *err) GPT_MUST_USE;
/* Waits for what is queued, and finds failures of other ranks. */
int gpt_decoder_sync(struct gpt_decoder *d, struct gpt_err *err) GPT_MUST_USE;

/* The residual stream (rows, C): from the stage before, to the next one. */
void gpt_decoder_receive_rows(struct gpt_decoder *d, int64_t rows);
void gpt_decoder_send_rows(struct gpt_decoder *d, int64_t rows);
/* Columns of the vocabulary, dummies left out, that a tensor parallel rank has
 * logits of. */
int64_t gpt_decoder_words(const struct gpt_decoder *d, int64_t tp_rank,
                          int64_t *first);
/* Logits of n rows, which the ranks of the last stage have in their buffers, to
 * the first rank's host memory (n, V). All ranks call it. */
void gpt_decoder_collect(struct gpt_decoder *d, int64_t n, float *logits);

#endif
