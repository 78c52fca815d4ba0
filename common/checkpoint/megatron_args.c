/* The arguments in a Megatron checkpoint that is written. Megatron-LM compares
 * some of them with the options of the run that loads the file
 * (check_checkpoint_args), takes others from there when asked to, and
 * transformers' script builds a configuration from them. The names are those of
 * Megatron-LM's options with underscores, under which megatron_config.c reads
 * them. Start at gpt_megatron_put_args(). */
#include "checkpoint/format.h"
#include "checkpoint/megatron.h"
#include "checkpoint/torch_write.h"

/* Keys and values of the dict or Namespace that is open. */
static void put_int(struct gpt_pickle_out *o, const char *key, int64_t value)
{
    gpt_pickle_put_string(o, key);
    gpt_pickle_put_int(o, value);
}

static void put_real(struct gpt_pickle_out *o, const char *key, double value)
{
    gpt_pickle_put_string(o, key);
    gpt_pickle_put_real(o, value);
}

/* A flag of store_true or store_false: the value that the option leaves. */
static void put_flag(struct gpt_pickle_out *o, const char *key, bool value)
{
    gpt_pickle_put_string(o, key);
    gpt_pickle_put_bool(o, value);
}

/* A choice, as the user would write it. */
static void put_word(struct gpt_pickle_out *o, const char *key,
                     const char *value)
{
    gpt_pickle_put_string(o, key);
    gpt_pickle_put_string(o, value);
}

/* 0 where the source has no run, or the run did not count it. */
static int64_t state_number(const struct gpt_source *s, const char *key)
{
    int64_t value = 0;

    if (gpt_json_int(s->state, key, 0, 1LL << 53, &value, "state", NULL))
        value = 0;
    return value;
}

/* Sizes, under all the names that readers of several years look for. */
static void put_sizes(struct gpt_pickle_out *o, const struct gpt_config *c)
{
    put_int(o, "num_layers", c->num_layers);
    put_int(o, "encoder_num_layers", c->num_layers);
    put_int(o, "hidden_size", c->hidden_size);
    put_int(o, "ffn_hidden_size", c->ffn_hidden_size);
    put_int(o, "num_attention_heads", c->num_attention_heads);
    put_int(o, "kv_channels", c->head_size);
    put_flag(o, "group_query_attention",
             c->num_query_groups != c->num_attention_heads);
    put_int(o, "num_query_groups", c->num_query_groups);
    put_int(o, "max_position_embeddings", c->max_positions);
    put_int(o, "seq_length", c->max_positions);
    put_int(o, "vocab_size", c->vocab_size);
    put_int(o, "orig_vocab_size", c->vocab_size);
    put_int(o, "padded_vocab_size", c->padded_vocab_size);
}

/* The variants of a model that Megatron-LM has options for. */
static void put_variants(struct gpt_pickle_out *o, const struct gpt_config *c)
{
    put_word(o, "position_embedding_type",
             gpt_position_embeddings[c->position_embedding]);
    put_flag(o, "add_position_embedding",
             c->position_embedding == GPT_POSITION_LEARNED);
    if (c->position_embedding == GPT_POSITION_ROPE) {
        put_real(o, "rotary_base", c->rotary_base);
        put_real(o, "rotary_percent", c->rotary_percent);
    }
    put_flag(o, "untie_embeddings_and_output_weights", !c->tied_embeddings);
    put_real(o, "layernorm_epsilon", c->norm_epsilon);
    put_real(o, "norm_epsilon", c->norm_epsilon);
    put_real(o, "init_method_std", c->init_std);
    put_real(o, "hidden_dropout", c->hidden_dropout);
    put_real(o, "attention_dropout", c->attention_dropout);
    /* what GPT-2 has; newer options, which readers of old files do not know */
    put_word(o, "normalization", "LayerNorm");
    put_flag(o, "apply_layernorm_1p", false);
    put_flag(o, "swiglu", false);
    put_flag(o, "add_bias_linear", true);
    /* the tanh form, in the words of any year */
    put_flag(o, "bias_gelu_fusion", true);
    put_flag(o, "openai_gelu", false);
    put_flag(o, "onnx_safe", false);
}

/* Sizes of the layout are compared by Megatron-LM when it loads, world size and
 * rank are read by transformers' script. */
static void put_run(struct gpt_pickle_out *o, const struct gpt_target *t,
                    int64_t file, enum gpt_dtype dtype)
{
    const int64_t tp = t->o.tp_size, pp = t->o.pp_size;

    put_int(o, "tensor_model_parallel_size", tp);
    put_int(o, "pipeline_model_parallel_size", pp);
    /* Weights fit any number of replicas. The world is that of the files, in
     * which ranks are numbered as here: tensor ranks first, then stages. */
    put_int(o, "data_parallel_size", 1);
    put_int(o, "world_size", tp * pp);
    put_int(o, "rank", file);
    put_int(o, "make_vocab_size_divisible_by", t->o.divisible_by);
    /* compared when the run that loads has a vocabulary file of GPT-2 */
    put_word(o, "tokenizer_type", "GPT2BPETokenizer");
    gpt_pickle_put_string(o, "params_dtype");
    gpt_pickle_put_global(o, "torch",
                          dtype == GPT_BF16  ? "bfloat16"
                          : dtype == GPT_F16 ? "float16"
                                             : "float32");
    /* Megatron-LM reads these two, and not the type, to choose its optimizer */
    put_flag(o, "bf16", dtype == GPT_BF16);
    put_flag(o, "fp16", dtype == GPT_F16);
    put_int(o, "iteration", t->source->iteration);
    put_int(o, "consumed_train_samples",
            state_number(t->source, "consumed_train_samples"));
    put_int(o, "consumed_valid_samples",
            state_number(t->source, "consumed_valid_samples"));
}

/* One Namespace a file. Options that are not among these get their defaults
 * where Megatron-LM reads them from a checkpoint. */
void gpt_megatron_put_args(struct gpt_pickle_out *o, const struct gpt_target *t,
                           int64_t file, enum gpt_dtype dtype)
{
    gpt_pickle_put_string(o, "args");
    gpt_pickle_put_namespace(o);
    put_sizes(o, &t->o.config);
    put_variants(o, &t->o.config);
    put_run(o, t, file, dtype);
    gpt_pickle_end_namespace(o);
}
