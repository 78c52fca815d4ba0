/* Sizes that follow from a configuration and a cut; see geometry.h. A variant
 * of the architecture that changes a width changes it in gpt_widths_of(). */
#include "model/geometry.h"

#include "base/num.h"

/* Division comes before multiplication by the head size: a rank holds whole
 * heads and whole groups, whatever the head size divides by. */
struct gpt_widths gpt_widths_of(const struct gpt_config *c, int64_t tp)
{
    struct gpt_widths w = {
        .hidden = c->hidden_size,
        .heads = c->num_attention_heads / tp,
        .groups = c->num_query_groups / tp,
        .ffn = c->ffn_hidden_size / tp,
        .vocab = c->padded_vocab_size / tp,
        .experts = c->num_experts / tp,
        .expert = c->moe_ffn_hidden_size, /* each expert is one rank's */
        .shared = c->moe_shared_expert_intermediate_size / tp,
    };

    w.attention = w.heads * c->head_size;
    w.keys = w.groups * c->head_size;
    w.qkv = w.attention + 2 * w.keys;
    w.values = w.heads * gpt_config_value_size(c);
    w.q_rank = c->q_lora_rank;
    w.kv_rank = c->kv_lora_rank;
    w.turned = c->qk_pos_emb_head_dim;
    w.kv_up = w.heads * (c->qk_head_dim + c->v_head_dim);
    w.ffn_in = gpt_widths_before(c, w.ffn);
    w.expert_in = gpt_widths_before(c, w.expert);
    w.shared_in = gpt_widths_before(c, w.shared);
    return w;
}

/* A plain activation has one input an output; a gated one has two, whose rows
 * of weights are parameters of their own, but in experts (params.c). */
int64_t gpt_widths_before(const struct gpt_config *c, int64_t ffn)
{
    return c->gated ? 2 * ffn : ffn;
}

double gpt_widths_attention_weights(const struct gpt_widths *w)
{
    const double c = (double)w->hidden, attention = (double)w->attention;
    const double output = c * (double)w->values;

    if (w->kv_rank == 0)
        return c * (double)w->qkv + output;
    return output + c * (double)(w->kv_rank + w->turned) +
           (double)w->kv_rank * (double)w->kv_up +
           (w->q_rank > 0 ? (double)w->q_rank * (c + attention)
                          : c * attention);
}

/* A model may have experts in every layer: its dense width is then only what a
 * shared feed-forward has. */
int64_t gpt_widths_widest(const struct gpt_config *c,
                          const struct gpt_widths *w)
{
    int64_t most = 0;

    for (int64_t l = 0; l < c->num_layers; l++)
        most = gpt_max_i64(most, gpt_config_has_experts(c, l) ? w->shared
                                                              : w->ffn);
    return most;
}

/* The router is counted, too, as Megatron does not: its products are real. */
int64_t gpt_widths_feed_forward(const struct gpt_config *c, int64_t layer)
{
    const struct gpt_widths w = gpt_widths_of(c, 1);

    if (!gpt_config_has_experts(c, layer))
        return w.ffn_in + w.ffn;
    return w.experts + c->moe_router_topk * (w.expert_in + w.expert) +
           w.shared_in + w.shared + c->moe_shared_expert_gate;
}

int64_t gpt_widths_feed_forwards(const struct gpt_config *c)
{
    int64_t sum = 0;

    for (int64_t l = 0; l < c->num_layers; l++)
        sum += gpt_widths_feed_forward(c, l);
    return sum;
}

/* The residual stream is not in the list: its width is never cut. Layers are
 * cut by gpt_topology_layers(). */
bool gpt_widths_divide(const struct gpt_config *c, int64_t tp,
                       struct gpt_undivided *first)
{
    const struct gpt_undivided cut[] = {
        {"num_attention_heads", c->num_attention_heads},
        {"num_query_groups", c->num_query_groups},
        {"ffn_hidden_size",
         gpt_config_has_dense(c) ? c->ffn_hidden_size : 0},
        {"num_experts", c->num_experts},
        {"moe_shared_expert_intermediate_size",
         c->moe_shared_expert_intermediate_size},
        {"padded_vocab_size", c->padded_vocab_size},
    };

    for (size_t i = 0; i < GPT_COUNT(cut); i++) {
        if (tp >= 1 && cut[i].value % tp == 0)
            continue;
        *first = cut[i];
        return false;
    }
    return true;
}

int gpt_widths_check(const struct gpt_config *c, int64_t tp,
                     struct gpt_err *err)
{
    struct gpt_undivided first;

    if (gpt_widths_divide(c, tp, &first))
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE,
                    "%s (%lld) does not divide by the tensor model parallel "
                    "size (%lld)",
                    first.field, (long long)first.value, (long long)tp);
}

struct gpt_rows gpt_rows_of(int64_t micro_batch, int64_t seq_length,
                            int64_t tp, bool sequence_parallel)
{
    /* rows are cut without regard to samples: a rank may keep the end of one
     * and the beginning of the next */
    const int64_t n = micro_batch * seq_length;

    return (struct gpt_rows){.n = n, .kept = sequence_parallel ? n / tp : n};
}

int gpt_rows_check(int64_t micro_batch, int64_t seq_length, int64_t tp,
                   struct gpt_err *err)
{
    if (micro_batch * seq_length % tp == 0)
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE,
                    "sequence parallelism: a micro batch of %lld x %lld tokens "
                    "does not divide by the tensor model parallel size (%lld)",
                    (long long)micro_batch, (long long)seq_length,
                    (long long)tp);
}

int64_t gpt_message_bytes(const struct gpt_config *c, struct gpt_rows rows,
                          enum gpt_dtype act)
{
    return rows.kept * c->hidden_size * (int64_t)gpt_dtype_bytes(act);
}

/* The mean number of keys that a token sees: half of the text, as it is causal.
 * With a window the first tokens of a text see fewer, all others the whole
 * window. */
static double mean_keys(int64_t window, int64_t seq_length)
{
    const double t = (double)seq_length;
    const double most = window > 0 ? (double)(window + 1) : t;

    return most - most * most / (2 * t);
}

double gpt_flops_per_token(const struct gpt_config *c, int64_t seq_length)
{
    const struct gpt_widths w = gpt_widths_of(c, 1);
    const double h = (double)w.hidden;
    const double layers =
        (double)c->num_layers * gpt_widths_attention_weights(&w) +
        h * (double)gpt_widths_feed_forwards(c);
    double keys = 0;

    /* layers may have a window in turns */
    for (int64_t l = 0; l < c->num_layers; l++)
        keys += mean_keys(gpt_config_window(c, l, seq_length), seq_length);
    /* scores are one product, sums of values another; a product is
     * multiplications and additions; backward is two products */
    return 3 * 2 * (layers + (double)(w.attention + w.values) * keys +
                    h * (double)w.vocab);
}
