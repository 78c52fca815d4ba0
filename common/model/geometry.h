/* Every width, row count and message size that follows from a model's
 * configuration and its cut over tensor parallel ranks. Layers, memory, traffic
 * and operation counts read these; no other file multiplies heads by head
 * sizes, or divides by the number of ranks.
 *
 * Letters as in kernels/backend.h. */
#ifndef GPT_MODEL_GEOMETRY_H
#define GPT_MODEL_GEOMETRY_H

#include "base/dtype.h"
#include "model/config.h"

/* Elements of a row, of what one of tp equal ranks holds. */
struct gpt_widths {
    int64_t hidden;    /* C, which is never cut */
    int64_t heads;     /* query heads */
    int64_t groups;    /* key and value heads */
    int64_t attention; /* heads * D: attention's output */
    int64_t keys;      /* groups * D: keys, and as many values */
    int64_t qkv;       /* attention + 2 keys: output of linear_qkv */
    int64_t values;    /* heads * the size of a value: input of linear_proj,
                        * smaller than attention's output where a value is
                        * smaller than a key */
    int64_t q_rank;    /* of latent attention, else 0: the row that queries are
                        * made of, 0 where that is C; never cut, as the next */
    int64_t kv_rank;   /* ... keys and values */
    int64_t turned;    /* what all heads' keys share */
    int64_t kv_up;     /* heads * what a key and a value have of their own:
                        * output of linear_kv_up_proj */
    int64_t ffn_in;    /* output of linear_fc1, before the activation */
    int64_t ffn;       /* what the activation makes of it: input of fc2 */
    int64_t vocab;     /* rows of the word table, dummies included */
    int64_t experts;   /* of a layer; 0: no layer has any, and so the next */
    int64_t expert_in; /* output of an expert's linear_fc1 */
    int64_t expert;    /* input of its linear_fc2 */
    int64_t shared_in; /* the same two of the feed-forward beside experts */
    int64_t shared;
};

/* What a feed-forward's first product gives, where `ffn` elements are left of
 * it by the activation. */
int64_t gpt_widths_before(const struct gpt_config *c, int64_t ffn);
/* The widest feed-forward of all tokens in any layer, as one rank holds it. */
int64_t gpt_widths_widest(const struct gpt_config *c,
                          const struct gpt_widths *w);

/* c is complete. tp divides what gpt_widths_check() asks for; 1: the whole. */
struct gpt_widths gpt_widths_of(const struct gpt_config *c, int64_t tp);

/* Elements of a layer's matrices of attention, which a token meets once each.
 */
double gpt_widths_attention_weights(const struct gpt_widths *w);

/* Rows of C that a token meets in the feed-forward of a layer (its global
 * number), those of both products of its experts alone: what its operations and
 * their time follow from. */
int64_t gpt_widths_feed_forward(const struct gpt_config *c, int64_t layer);
/* Those of all layers together. */
int64_t gpt_widths_feed_forwards(const struct gpt_config *c);

/* What of the model tp ranks cannot share equally: a field of gpt_config. */
struct gpt_undivided {
    const char *field; /* "num_attention_heads" */
    int64_t value;
};

/* Returns false, with the first such field, when the model does not divide. */
bool gpt_widths_divide(const struct gpt_config *c, int64_t tp,
                       struct gpt_undivided *first);
/* The same as a status: GPT_EUSAGE names field, value and tp. */
int gpt_widths_check(const struct gpt_config *c, int64_t tp,
                     struct gpt_err *err) GPT_MUST_USE;

/* The rows of a microbatch, flattened over (B, T). */
struct gpt_rows {
    int64_t n;    /* B * T */
    int64_t kept; /* rows of the residual stream on one rank: n, or with
                   * sequence parallelism n / tp consecutive ones */
};

struct gpt_rows gpt_rows_of(int64_t micro_batch, int64_t seq_length,
                            int64_t tp, bool sequence_parallel);
/* GPT_EUSAGE when sequence parallel ranks cannot share the rows equally. */
int gpt_rows_check(int64_t micro_batch, int64_t seq_length, int64_t tp,
                   struct gpt_err *err) GPT_MUST_USE;

/* Bytes that a pipeline stage hands to the next for a microbatch, and gets
 * back as their gradient: (kept, C) in `act`. */
int64_t gpt_message_bytes(const struct gpt_config *c, struct gpt_rows rows,
                          enum gpt_dtype act);

/* Floating point operations a token, forward and backward, by Megatron's
 * num_floating_point_operations (training/training.py): matrix products and
 * causal attention, in layers with a window to that alone. */
double gpt_flops_per_token(const struct gpt_config *c, int64_t seq_length);

#endif
