/* Keys of GGUF files whose number is not that of a field as it is: those of
 * experts that count from another number, in experts, or say the opposite. */
#include "checkpoint/gguf/internal.h"

#include "base/num.h"

/* Where a key is absent, the architecture's number stays; a flag is off. */
int gpt_gguf_read_other(struct gpt_config *c,
                        const struct gpt_gguf_field *field, const char *name,
                        const struct gpt_gguf *g, struct gpt_err *err)
{
    void *to = (char *)c + field->offset;
    int64_t n = 0;
    bool on = false;

    /* llama.cpp makes no weights add up where a file says nothing */
    if (field->form == GPT_GGUF_OPPOSITE) {
        GPT_TRY(gpt_gguf_bool(g, name, &on, err));
        *(bool *)to = !on;
        return GPT_OK;
    }
    if (!gpt_gguf_find(g, name))
        return GPT_OK;
    GPT_TRY(gpt_gguf_int(g, name, 0, INT32_MAX, &n, err));
    if (field->form == GPT_GGUF_EXPERTS_WIDE) {
        /* ranges are checked with the model: the product is below 2^62 */
        *(int64_t *)to = n * gpt_min_i64(c->moe_ffn_hidden_size, INT32_MAX);
        return GPT_OK;
    }
    if (n < 1 || n > (field->form == GPT_GGUF_NEXT ? GPT_SCORE_SIGMOID + 1 : 1))
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is %lld: only %s is "
                        "supported", gpt_in_path(g->in), name, (long long)n,
                        field->form == GPT_GGUF_NEXT ? "1 or 2" : "1");
    *(int64_t *)to = n - 1;
    return GPT_OK;
}

/* Always there, also where the number is the one that absence means: several
 * architectures of llama.cpp want the key, whatever it says. */
void gpt_gguf_put_other(struct gpt_gguf_keys *k, const struct gpt_config *c,
                        const struct gpt_gguf_field *field, const char *name)
{
    const void *at = (const char *)c + field->offset;

    if (field->form == GPT_GGUF_OPPOSITE)
        gpt_gguf_put_int(k, name, GPT_GGUF_BOOL, !*(const bool *)at);
    else if (field->form == GPT_GGUF_EXPERTS_WIDE)
        gpt_gguf_put_int(k, name, GPT_GGUF_U32,
                         *(const int64_t *)at /
                             gpt_max_i64(c->moe_ffn_hidden_size, 1));
    else
        gpt_gguf_put_int(k, name, GPT_GGUF_U32, *(const int64_t *)at + 1);
}
