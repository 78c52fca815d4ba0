/* Products with factors of eight bits: their layers, rules and scratch; see
 * fp8.h. linear.c makes the products. */
#include "model/fp8.h"

struct gpt_fp8_types gpt_fp8_of_layer(const struct gpt_fp8_layers *layers,
                                      int64_t layer)
{
    if (layer < layers->first || layer >= layers->end)
        return (struct gpt_fp8_types){GPT_FP8_NONE, GPT_FP8_NONE};
    return layers->types;
}

/* Checks the sizes for the narrowest device, whichever device is used: a run is
 * the same everywhere. Tensor cores read 16 bytes of a row at a time. Every
 * size is a row's length in one of the three products of its layer. */
int gpt_fp8_check(const struct gpt_config *c, int64_t tp, int64_t n,
                  enum gpt_dtype act, struct gpt_err *err)
{
    const struct gpt_widths of = gpt_widths_of(c, tp), *w = &of;
    /* where all layers have experts no product has the dense width */
    const bool dense = gpt_config_has_dense(c);
    const struct {
        const char *what;
        int64_t size;
    } sizes[] = {
        {"tokens in a micro batch", n},
        {"columns of the residual stream", w->hidden},
        {"columns of queries, keys and values", w->qkv},
        {"columns of attention's output", w->values},
        {"columns of a row that queries are made of", w->q_rank},
        {"columns of queries", w->kv_rank > 0 ? w->attention : 0},
        {"columns of a row that keys and values are made of", w->kv_rank},
        {"columns of keys and values", w->kv_up},
        {"columns of a key that turn", w->turned},
        {"columns of the feed-forward's first product", dense ? w->ffn_in : 0},
        {"columns of the feed-forward", dense ? w->ffn : 0},
        {"columns of the shared expert's first product", w->shared_in},
        {"columns of the shared expert", w->shared},
    };

    if (act != GPT_BF16)
        return gpt_fail(err, GPT_EUSAGE,
                        "products of eight bits round factors of %s: they "
                        "need activations of %s",
                        gpt_dtype_name(act), gpt_dtype_name(GPT_BF16));
    for (size_t i = 0; i < GPT_COUNT(sizes); i++)
        if (sizes[i].size % 16 != 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "products of eight bits need multiples of 16, and "
                            "a rank has %lld %s",
                            (long long)sizes[i].size, sizes[i].what);
    return GPT_OK;
}

size_t gpt_fp8_scratch(const struct gpt_backend *be,
                       const struct gpt_widths *w, int64_t n)
{
    const int64_t layers[][2] = {
        {w->hidden, w->qkv},
        {w->values, w->hidden},
        {w->hidden, w->q_rank},
        {w->q_rank, w->attention},
        {w->hidden, w->attention},
        {w->hidden, w->kv_rank},
        {w->kv_rank, w->kv_up},
        {w->hidden, w->turned},
        {w->hidden, w->ffn_in},
        {w->ffn, w->hidden},
        {w->hidden, w->shared_in},
        {w->shared, w->hidden},
    };
    size_t most = 0;

    for (size_t i = 0; i < GPT_COUNT(layers); i++) {
        const int64_t in = layers[i][0], out = layers[i][1];
        /* forward, and the gradients of input and weight */
        const size_t needs[] = {
            be->fp8_scratch(n, out, in),
            be->fp8_scratch(n, in, out),
            be->fp8_scratch(out, in, n),
        };

        for (size_t k = 0; k < GPT_COUNT(needs); k++)
            most = needs[k] > most ? needs[k] : most;
    }
    return most;
}
