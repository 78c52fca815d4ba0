/* LongRoPE in GGUF files: two lists of factors, which are tensors, and two
 * keys, as llama.cpp's converter writes them for Phi-3. llama.cpp takes the
 * list of long texts where its context is longer than texts of pretraining
 * were, whatever the length of a text. Start at gpt_gguf_read_longrope(). */
#include "checkpoint/gguf/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BEFORE_KEY "rope.scaling.original_context_length"

/* A list becomes one of the model, which is checked as a whole later: whether
 * there are as many numbers as pairs that turn, its rules know. One list
 * without the other is refused here. */
static int take_list(double *to, const struct gpt_gguf_list *list,
                     const char *name, const struct gpt_gguf *g,
                     struct gpt_err *err)
{
    if (!list->x || list->n > GPT_ROTARY_PAIRS)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s' has %lld elements: 1 to %d are "
                        "supported, where the other list of rotary factors is "
                        "there", gpt_in_path(g->in), name, (long long)list->n,
                        GPT_ROTARY_PAIRS);
    for (int64_t i = 0; i < list->n; i++) {
        /* written so that NaN is refused, too */
        if (!(list->x[i] > 0))
            return gpt_fail(err, GPT_EDATA,
                            "%s: element %lld of tensor '%s' is %g, must be "
                            "above 0", gpt_in_path(g->in), (long long)i, name,
                            (double)list->x[i]);
        to[i] = gpt_gguf_shortest((double)list->x[i]);
    }
    return GPT_OK;
}

/* A file has the number that a formula gives, in single precision: it is the
 * formula again where it is near enough. */
static int read_sharpness(struct gpt_config *c, const char *name,
                          const struct gpt_gguf *g, struct gpt_err *err)
{
    double x = 1, own = gpt_config_sharpness(c);

    GPT_TRY(gpt_gguf_real(g, name, &x, err));
    c->rotary_attention = fabs(x - own) <= 1e-6 * own ? 0
                                                      : gpt_gguf_shortest(x);
    return GPT_OK;
}

/* An architecture without such lists may have them in a file that its program
 * would not load either: passing over them would give a model that is wrong. */
int gpt_gguf_read_longrope(struct gpt_config *c,
                           const struct gpt_gguf_arch *arch, struct gpt_gguf *g,
                           const struct gpt_gguf_lists *lists,
                           struct gpt_err *err)
{
    const char *type = "none";
    char name[96];

    snprintf(name, sizeof(name), "%s.rope.scaling.type", arch->name);
    GPT_TRY(gpt_gguf_text(g, name, &type, err));
    if (!lists->many.x && !lists->few.x && strcmp(type, "longrope") != 0)
        return GPT_OK;
    if (!lists->many.x && !lists->few.x)
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is longrope, but there is no "
                        "tensor '%s'", gpt_in_path(g->in), name,
                        GPT_GGUF_LONG);
    if (!arch->has_lists)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s' is not known of architecture %s",
                        gpt_in_path(g->in),
                        lists->many.x ? GPT_GGUF_LONG : GPT_GGUF_SHORT,
                        arch->name);
    c->rotary_scaling = GPT_SCALING_LONGROPE;
    GPT_TRY(take_list(c->rotary_long_factors, &lists->many, GPT_GGUF_LONG, g,
                      err));
    GPT_TRY(take_list(c->rotary_short_factors, &lists->few, GPT_GGUF_SHORT, g,
                      err));
    snprintf(name, sizeof(name), "%s.%s", arch->name, BEFORE_KEY);
    GPT_TRY(gpt_gguf_int(g, name, 2, INT32_MAX, &c->rotary_positions, err));
    /* else the model's rules find that it is missing */
    if (c->rotary_positions < 2)
        return GPT_OK;
    snprintf(name, sizeof(name), "%s.%s", arch->name, GPT_GGUF_ATTN_FACTOR);
    return read_sharpness(c, name, g, err);
}

/* No key names the kind: older versions of llama.cpp do not know the word, and
 * the lists say it. */
void gpt_gguf_put_longrope(struct gpt_gguf_keys *k, const struct gpt_config *c,
                           const struct gpt_gguf_arch *arch)
{
    char name[96];

    if (c->rotary_scaling != GPT_SCALING_LONGROPE)
        return;
    snprintf(name, sizeof(name), "%s.%s", arch->name, BEFORE_KEY);
    gpt_gguf_put_int(k, name, GPT_GGUF_U32, c->rotary_positions);
    snprintf(name, sizeof(name), "%s.%s", arch->name, GPT_GGUF_ATTN_FACTOR);
    gpt_gguf_put_real(k, name, c->rotary_attention > 0
                                   ? c->rotary_attention
                                   : gpt_config_sharpness(c));
}
