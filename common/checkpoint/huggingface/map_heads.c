/* See map_heads.h. A head's rows here are those of its key, then those of its
 * value. */
#include "checkpoint/huggingface/map_heads.h"

#include "checkpoint/huggingface/map_dims.h"

void gpt_hf_heads_shape(const struct gpt_config *c, bool keys, int64_t *shape)
{
    shape[0] = c->num_attention_heads;
    shape[1] = keys ? c->kv_lora_rank : c->v_head_dim;
    shape[2] = keys ? c->qk_head_dim : c->kv_lora_rank;
}

/* Rows of head h that its key or value has. */
static int view_head(struct gpt_tensor *out, const struct gpt_tensor *in,
                     const struct gpt_config *c, int64_t h, bool keys,
                     bool import, struct gpt_err *err)
{
    const int64_t key = c->qk_head_dim, value = c->v_head_dim;
    const int64_t here = h * (key + value) + (keys ? 0 : key);
    const int64_t rows = keys ? key : value;
    int64_t shape[GPT_PARAM_DIMS + 1];
    struct gpt_map m = {.perm = {keys, !keys, 2, 3}};

    gpt_hf_heads_shape(c, keys, shape);
    m.to[0] = import ? here : h * shape[1];
    m.from[0] = import ? h * shape[1] : here;
    m.shape[0] = import ? rows : shape[1];
    m.shape[1] = import ? c->kv_lora_rank : shape[2];
    return gpt_tensor_view(out, in, &m, 1, err);
}

int gpt_hf_view_heads(struct gpt_tensor *out, const struct gpt_tensor *in,
                      const struct gpt_config *c, bool keys, bool import,
                      struct gpt_err *err)
{
    int64_t shape[GPT_PARAM_DIMS + 1];
    int status = GPT_OK;

    gpt_hf_heads_shape(c, keys, shape);
    const int64_t flat[] = {shape[0] * shape[1], shape[2]};
    struct gpt_tensor between = gpt_tensor_make(in->name, in->dtype, 2, flat);
    if (import)
        status = gpt_hf_flatten(&between, in, err);
    for (int64_t h = 0; status == GPT_OK && h < shape[0]; h++)
        status = view_head(import ? out : &between, import ? &between : in, c,
                           h, keys, import, err);
    if (status == GPT_OK && !import)
        status = gpt_hf_stack(out, &between, err);
    gpt_tensor_free(&between);
    return status;
}
