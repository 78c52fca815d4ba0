/* The arguments in a Megatron checkpoint that is written. Megatron-LM compares
 * some of them with the options of the run that loads the file
 * (check_checkpoint_args), takes others from there when asked to, and
 * transformers' script builds a configuration from them. The names are those of
 * Megatron-LM's options with underscores, under which config.c reads them.
 * Start at gpt_megatron_put_args(). */
#include "checkpoint/format.h"
#include "checkpoint/megatron/megatron.h"
#include "checkpoint/run_state.h"
#include "checkpoint/torch/write.h"

/* Sizes, under all the names that readers of several years look for. */
static void put_sizes(struct gpt_pickle_out *o, const struct gpt_config *c)
{
    gpt_pickle_put_key_int(o, "num_layers", c->num_layers);
    gpt_pickle_put_key_int(o, "encoder_num_layers", c->num_layers);
    gpt_pickle_put_key_int(o, "hidden_size", c->hidden_size);
    gpt_pickle_put_key_int(o, "ffn_hidden_size", c->ffn_hidden_size);
    gpt_pickle_put_key_int(o, "seq_length", c->max_positions);
    gpt_pickle_put_key_int(o, "vocab_size", c->vocab_size);
    gpt_pickle_put_key_int(o, "orig_vocab_size", c->vocab_size);
    gpt_pickle_put_key_int(o, "padded_vocab_size", c->padded_vocab_size);
    gpt_pickle_put_key_bool(o, "untie_embeddings_and_output_weights",
                            !c->tied_embeddings);
}

/* Options of stages that are virtual or uneven, which Megatron-LM has to be
 * given again; a run without them has None. */
static void put_stages(struct gpt_pickle_out *o, const struct gpt_target *t)
{
    const struct {
        const char *name;
        int64_t value;
    } options[] = {
        {"virtual_pipeline_model_parallel_size", t->o.chunks},
        {"num_virtual_stages_per_pipeline_rank", t->o.chunks},
        {"decoder_first_pipeline_num_layers", t->o.first_layers},
        {"decoder_last_pipeline_num_layers", t->o.last_layers},
    };

    for (size_t i = 0; i < GPT_COUNT(options); i++)
        if (options[i].value > 0)
            gpt_pickle_put_key_int(o, options[i].name, options[i].value);
}

/* Modules of grouped products and others call experts by different names, so
 * the run that loads the file needs the same ones. */
static void put_expert_ranks(struct gpt_pickle_out *o,
                             const struct gpt_target *t)
{
    if (t->o.config.num_experts == 0)
        return;
    gpt_pickle_put_key_int(o, "expert_model_parallel_size", t->o.ep_size);
    gpt_pickle_put_key_int(o, "expert_tensor_parallel_size", t->o.tp_size);
    gpt_pickle_put_key_bool(o, "moe_grouped_gemm",
                            t->o.style == GPT_MEGATRON_TE);
}

/* Sizes of the layout are compared by Megatron-LM when it loads, world size and
 * rank are read by transformers' script. */
static void put_run(struct gpt_pickle_out *o, const struct gpt_target *t,
                    int64_t file, enum gpt_dtype dtype)
{
    const int64_t tp = t->o.tp_size, pp = t->o.pp_size;

    gpt_pickle_put_key_int(o, "tensor_model_parallel_size", tp);
    gpt_pickle_put_key_int(o, "pipeline_model_parallel_size", pp);
    put_stages(o, t);
    put_expert_ranks(o, t);
    /* Weights fit any number of replicas. The world is that of the files, in
     * which ranks are numbered as here: tensor ranks first, then stages. */
    gpt_pickle_put_key_int(o, "data_parallel_size", t->o.ep_size);
    gpt_pickle_put_key_int(o, "world_size", tp * pp * t->o.ep_size);
    gpt_pickle_put_key_int(o, "rank", file);
    gpt_pickle_put_key_int(o, "make_vocab_size_divisible_by",
                           t->o.divisible_by);
    /* compared when the run that loads has a vocabulary file of GPT-2 */
    gpt_pickle_put_key_string(o, "tokenizer_type", "GPT2BPETokenizer");
    gpt_pickle_put_string(o, "params_dtype");
    gpt_pickle_put_global(o, "torch",
                          dtype == GPT_BF16  ? "bfloat16"
                          : dtype == GPT_F16 ? "float16"
                                             : "float32");
    /* Megatron-LM reads these two, and not the type, to choose its optimizer */
    gpt_pickle_put_key_bool(o, "bf16", dtype == GPT_BF16);
    gpt_pickle_put_key_bool(o, "fp16", dtype == GPT_F16);
    gpt_pickle_put_key_int(o, "iteration", t->source->iteration);
    gpt_pickle_put_key_int(
        o, "consumed_train_samples",
        gpt_run_state_count(t->source->state, GPT_RUN_TRAIN_SAMPLES));
    gpt_pickle_put_key_int(
        o, "consumed_valid_samples",
        gpt_run_state_count(t->source->state, GPT_RUN_VALID_SAMPLES));
}

/* One Namespace a file. Options that are not among these get their defaults
 * where Megatron-LM reads them from a checkpoint. */
void gpt_megatron_put_args(struct gpt_pickle_out *o, const struct gpt_target *t,
                           int64_t file, enum gpt_dtype dtype)
{
    gpt_pickle_put_string(o, "args");
    gpt_pickle_put_namespace(o);
    put_sizes(o, &t->o.config);
    gpt_megatron_put_variants(o, &t->o.config);
    put_run(o, t, file, dtype);
    if (t->source->family)
        gpt_pickle_put_key_string(o, GPT_MEGATRON_FAMILY, t->source->family);
    gpt_pickle_end_namespace(o);
}
