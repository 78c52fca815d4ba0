/* The model of a command: the checkpoint, its tokenizer, and, once it is known
 * how long texts are and how many, its weights and a decoder. */
#ifndef GPT_CMD_GENERATE_LOADED_MODEL_H
#define GPT_CMD_GENERATE_LOADED_MODEL_H

#include "base/io.h"
#include "checkpoint/source.h"
#include "cmd/generate/job.h"
#include "generate/generate.h"
#include "tokenizer/chat.h"
#include "tokenizer/tokenizer.h"

/* Members are in the order in which they are made; those not yet made are
 * zero. */
struct gpt_loaded {
    const struct gpt_generate_options *o;
    struct gpt_job job;
    struct gpt_out *stats; /* NULL: no statistics are wanted */
    struct gpt_source source;
    struct gpt_config own_config;
    const struct gpt_config *config; /* of the source, as ranks cut it */
    int64_t positions; /* of a text: the model's, or fewer; first rank alone */
    struct gpt_tokenizer *tokenizer;
    struct gpt_backend *be;
    struct gpt_param_table params;
    struct gpt_flat flat;
    void *weights;                 /* one of the two */
    struct gpt_quant_store *quant;
    struct gpt_decoder *decoder;
    /* of gpt_loaded_open_chat(), or NULL: the model has none */
    struct gpt_chat *chat;
    struct gpt_tokenizer *chat_tokenizer;
};

/* The words for forms of matrices, NULL-terminated: choices of --weights. */
extern const char *const gpt_weight_names[];
/* The words for types of keys and values: choices of --kv-cache-dtype. */
extern const char *const gpt_cache_names[];

/* Meets the other ranks, opens checkpoint and tokenizer, which is cheap: *m is
 * zero but for the options. */
int gpt_loaded_open(struct gpt_loaded *m, struct gpt_err *err) GPT_MUST_USE;

/* Reads the weights, and opens a decoder for `slots` texts of `positions`
 * tokens each, at most as many as the model has. */
int gpt_loaded_open_decoder(struct gpt_loaded *m, int64_t slots,
                            int64_t positions,
                            struct gpt_err *err) GPT_MUST_USE;

/* On ranks after the first: computes what the first one's command needs, until
 * that has ended. */
int gpt_loaded_follow(struct gpt_loaded *m, struct gpt_err *err) GPT_MUST_USE;

/* Opens the template of chats, and a tokenizer for its texts: names of special
 * tokens are the tokens there, and nothing is put around a text, which the
 * template does itself. */
int gpt_loaded_open_chat(struct gpt_loaded *m, struct gpt_err *err)
    GPT_MUST_USE;

/* Frees whatever is there. Returns `status`, or that of the rank that failed
 * first. */
int gpt_loaded_close(struct gpt_loaded *m, int status, struct gpt_err *err);

/* The type of keys and values that the options ask for. */
enum gpt_dtype gpt_loaded_cache_type(const struct gpt_loaded *m);

/* The token that begins a text, and that ends a document: the tokenizer's, or
 * the checkpoint's first end; -1: there is none. */
int32_t gpt_loaded_eod(const struct gpt_loaded *m);

/* Tokens of which each ends a text; returns how many. Where the checkpoint
 * names ends, they are the model's; else the tokenizer's end of a document is.
 * An answer of a chat ends with either: the tokenizer's is often the end of a
 * message, which the configuration of the model does not name. */
enum { GPT_LOADED_ENDS = 17 };
int gpt_loaded_ends(const struct gpt_loaded *m, bool chat,
                    int32_t ends[GPT_LOADED_ENDS]);

/* Tokens and speed of both kinds of work, at the end: as a message, and as a
 * JSON object in the file that an option names. */
int gpt_loaded_report_speed(struct gpt_loaded *m,
                            const struct gpt_speed *speed,
                            struct gpt_err *err) GPT_MUST_USE;

#endif
