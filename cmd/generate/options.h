/* The options of gpt-generate. What this folder does: the table is options.c,
 * the model of a command loaded_model.h, the choice of tokens choice.h; the
 * front ends are the rows of a table in main.c: filter.h (prompts in, texts
 * out) and those beside it. */
#ifndef GPT_CMD_GENERATE_OPTIONS_H
#define GPT_CMD_GENERATE_OPTIONS_H

#include "base/options.h"
#include "tokenizer/tokenizer_options.h"

struct gpt_generate_options {
    struct gpt_common_options common;
    /* model */
    const char *load;
    int64_t iteration;
    bool verify, allow_vocab_mismatch;
    struct gpt_list adapters;
    struct gpt_tokenizer_options tokenizer;
    /* prompts and texts */
    struct gpt_list prompt, prompt_file;
    bool jsonl, echo, add_bos;
    int64_t tokens, num_samples;
    bool ignore_eod, stop_on_eol, stop_on_double_eol;
    struct gpt_list stop;
    int64_t logprobs; /* -1: none */
    bool return_logits;
    /* what is done in place of texts */
    bool interactive, chat, score, truncate_context;
    const char *chat_template, *chat_template_kwargs, *system_prompt;
    const char *perplexity, *detokenize, *data_path;
    int64_t window, overlapping_eval;
    /* choice of tokens */
    bool greedy;
    const char *semantics;
    double temperature, top_p, min_p, top_p_decay, top_p_bound;
    double repetition_penalty, presence_penalty, frequency_penalty;
    struct gpt_list logit_bias;
    bool prevent_newline_after_colon;
    int64_t num_beams;
    double length_penalty;
    const char *early_stopping;
    int64_t top_k, seed;
    /* server */
    const char *serve, *served_model_name, *api_key_file;
    int64_t max_queue, max_connections, max_request_size;
    int64_t request_timeout, client_timeout, stop_timeout; /* seconds */
    int64_t prefix_cache_size;
    /* machine */
    const char *device, *backend, *weights;
    const char *kv_cache_dtype;
    bool round_inputs;
    int64_t batch_size, max_positions, speculate;
    int64_t tp_size, pp_size;
    double timeout_mins;
    const char *stats_file;
};

extern const char *const gpt_generate_backends[]; /* job.c */
extern const struct gpt_opt gpt_generate_options[];
extern const size_t gpt_generate_n_options;

#endif
