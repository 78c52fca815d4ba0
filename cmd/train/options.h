/* The options of gpt-train as typed: the option table fills this struct. Names
 * follow Megatron-LM's arguments. plan.h turns it into a run.
 *
 * This folder is gpt-train: its options, the plan that follows from them
 * (plan.h), what a plan costs (estimate.h), the run itself (loop.h), and the
 * search for a layout (layouts.h). */
#ifndef GPT_CMD_TRAIN_OPTIONS_H
#define GPT_CMD_TRAIN_OPTIONS_H

#include "base/options.h"
#include "tokenizer/tokenizer.h"
#include "parallel/stage_options.h"
#include "model/config.h"

struct gpt_train_options {
    struct gpt_common_options common;

    /* model: the fields that an option gives as they are, then options that
     * more than one field follows from (plan_model.c) */
    struct gpt_config model;
    int64_t max_position_embeddings, vocab_size;
    bool group_query, multi_latent_attention;
    const char *head_type; /* multihead, multiquery */
    const char *position_embedding_type; /* of gpt_train_positions */
    int64_t rotary_base, rotary_positions;
    double rotary_percent, rotary_factor, rotary_low_factor;
    double rotary_high_factor, rotary_fast, rotary_slow, rotary_attention;
    double rotary_query_growth;
    bool rotary_interleaved;
    const char *rotary_scaling; /* of gpt_rotary_scalings */
    const char *rotary_short_factors, *rotary_long_factors; /* NULL: none */
    const char *normalization, *activation; /* of gpt_normalizations, ... */
    bool swiglu, geglu, squared_relu;
    const char *window_size; /* "N" or "N,0", NULL: none */
    const char *window_skip, *no_rope; /* "N" or a list, NULL: none */
    const char *moe_layers, *moe_score;
    int64_t rotary_local_base;
    int64_t make_vocab_size_divisible_by;
    bool untie_embeddings;

    /* layout over ranks */
    int64_t tp_size, pp_size;
    struct gpt_stage_layers stages;
    bool sequence_parallel, distributed_optimizer, overlap_reduce;
    bool overlap_gather, overlap_tensor;
    const char *sharding; /* data parallel */
    bool recompute_activations;
    const char *recompute_granularity, *recompute_method;
    int64_t recompute_layers;
    const char *backend; /* that carries bytes between ranks, or NULL */
    double timeout_mins, step_timeout_mins;

    /* data */
    bool mock_data;
    struct gpt_list data_path, train_path, valid_path, test_path;
    const char *split, *data_impl, *data_stages;
    struct gpt_tokenizer_options tokenizer; /* vocabulary size and end of
                                             * document; kept in checkpoints */
    bool allow_vocab_mismatch;
    int64_t seq_length;
    bool eod_mask_loss, reset_position_ids, reset_attention_mask;
    bool document_samples, shuffle, per_token_loss;
    const char *token_loss_weights, *loss_plugin, *loss_plugin_args;
    double label_smoothing, z_loss;
    int64_t bos_token, eos_token, pad_token; /* -1: none */

    /* precision */
    bool bf16, fp16, tf32;
    const char *fp8_format; /* NULL: no products of eight bits */
    const char *fp8_recipe; /* the only one there is; for --print-config */
    bool ends_in_bf16; /* the first and the last layers, as many as... */
    int64_t bf16_at_start, bf16_at_end;
    double loss_scale, initial_loss_scale, min_loss_scale;
    int64_t loss_scale_window, hysteresis;

    /* batches and length of the run */
    int64_t micro_batch_size, global_batch_size;
    struct gpt_list rampup, batch_steps;
    int64_t train_iters, train_samples, epochs;
    int64_t exit_interval;
    double exit_duration_mins;
    int64_t max_nan_iterations;

    /* learning rate, weight decay, optimizer */
    double lr, min_lr, decoupled_lr, decoupled_min_lr;
    double lr_warmup_init, lr_warmup_fraction;
    const char *lr_decay_style, *lr_wsd_decay_style;
    const char *lr_warmup_style; /* or NULL */
    int64_t lr_decay_iters, lr_decay_samples;
    int64_t lr_warmup_iters, lr_warmup_samples;
    int64_t lr_wsd_decay_iters, lr_wsd_decay_samples;
    double weight_decay, start_weight_decay, end_weight_decay;
    const char *weight_decay_incr_style;
    double adam_beta1, adam_beta2, adam_eps, clip_grad;
    const char *optimizer; /* of gpt_optimizer_names */
    bool decoupled_decay;
    double sgd_momentum, muon_momentum, muon_extra_scale;
    double moe_bias_rate;
    bool muon_nesterov, muon_whole_qkv;
    const char *muon_scale, *muon_coefficients, *muon_tp_mode;
    int64_t muon_steps;
    int64_t seed;

    /* checkpoints */
    const char *save, *load;
    int64_t save_interval, keep_checkpoints;
    bool async_save, no_save_optim, no_load_optim, finetune;
    bool override_scheduler, use_checkpoint_scheduler, use_checkpoint_args;

    /* evaluation */
    int64_t eval_interval, eval_iters, score_interval, sample_interval;
    struct gpt_list valid_set, score_set; /* NAME=... and what follows it */
    bool multiple_valid, eval_only, save_best;
    const char *data_args_path, *per_split_paths;
    const char *sample_prompts;
    int64_t sample_tokens, sample_top_k, sample_seed; /* seed -1: the run's */
    double sample_temperature, sample_top_p;
    int64_t patience; /* 0: never stop early */
    double min_delta;

    /* reports */
    int64_t log_interval, timing_level;
    bool log_throughput, log_noise_scale, dry_run;
    int64_t world_size, memory_limit;
    const char *simulate, *simulate_svg;
    const char *metrics, *tensorboard_dir, *log_metrics_command, *device;
    const char *graph_impl;
    bool enable_graph;

    /* advice: what ranks are made of, 0 = as the hardware's row says */
    const char *hardware; /* of gpt_hardware_names */
    double device_peak, memory_bandwidth, product_efficiency;
    double near_bandwidth, far_bandwidth, near_latency, far_latency;
    int64_t gpus_per_node, top;
    bool json;
};

/* Choices of options, each in the order of an enum, so that a choice's place is
 * the enum's value: NULL-terminated. */
enum gpt_train_granularity { GPT_GRANULARITY_FULL, GPT_GRANULARITY_SELECTIVE };
enum gpt_train_method { GPT_METHOD_UNIFORM, GPT_METHOD_BLOCK };
enum gpt_train_fp8_format { GPT_FORMAT_E4M3, GPT_FORMAT_HYBRID };
enum gpt_train_muon_mode { GPT_MUON_BLOCKWISE = 2 }; /* others: the same */
enum gpt_train_heads { GPT_HEADS_OF_EACH, GPT_HEADS_MULTIQUERY };
enum gpt_train_graph { GPT_GRAPH_NONE }; /* all others mean the same */
/* gpt_position_embeddings[], then other words for the second and the first. */
extern const char *const gpt_train_positions[];
extern const char *const gpt_train_shardings[];     /* enum gpt_zero */
extern const char *const gpt_train_backends[];      /* enum gpt_carrier */
extern const char *const gpt_train_granularities[]; /* the enums above */
extern const char *const gpt_train_methods[];
extern const char *const gpt_train_fp8_formats[];
extern const char *const gpt_train_muon_modes[];
extern const char *const gpt_train_heads[];
extern const char *const gpt_train_graphs[];

/* The place of a choice among its names; the option table has checked that it
 * is one of them. -1 for NULL: not given. */
int gpt_train_choice(const char *const *names, const char *choice);
/* What a word of --position-embedding-type means: some words are two names of
 * one kind. */
enum gpt_position_embedding gpt_train_position(const char *name);
/* The window of attention in "N" or, as Megatron-LM has it, "N,0" or "(N, 0)":
 * *window becomes N, 0 where text is NULL. False for another text. */
bool gpt_train_window(const char *text, int64_t *window);

extern const struct gpt_opt gpt_train_option_table[];
extern const size_t gpt_train_n_options;

#endif
