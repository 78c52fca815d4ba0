/* What the files of the decoder share: decode.c (the passes) and decode_open.c
 * (memory, opening and closing). */
#ifndef GPT_MODEL_DECODE_INTERNAL_H
#define GPT_MODEL_DECODE_INTERNAL_H

#include "model/decode.h"
#include "model/layer.h"

/* Rows of logits at once when all are wanted. */
enum { GPT_DECODE_LOGIT_ROWS = 16 };

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
    GPT_DECODE_KEYS,
    GPT_DECODE_VALUES,
    GPT_DECODE_BUFFERS
};

/* Device memory is in buffers[], allocated in a loop over their table; the host
 * arrays below describe one block of rows, and kernels read them during the
 * call that queues the block. */
struct gpt_decoder {
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_decoder_options o;
    struct gpt_layout layout;
    int64_t step_bytes;
    size_t layer_cache_bytes; /* of the keys of a layer */
    struct gpt_layer *layers;
    struct gpt_roles outer; /* what is outside layers */
    void *buffers[GPT_DECODE_BUFFERS];
    int32_t *length; /* (slots) tokens held */
    /* the block of rows in work, host: (rows) or (slots) */
    int32_t *tokens, *rows_pos, *pos, *len, *slot;
};

/* Rows that the activation buffers hold: a block of a prompt, or one token of
 * every text. */
int64_t gpt_decoder_rows(const struct gpt_decoder_options *o);

#endif
