/* What tokens see, in GGUF files: windows, whose layers the architecture has,
 * and ALiBi. Start at gpt_gguf_read_window(). */
#include "checkpoint/gguf/internal.h"

#include <math.h>
#include <stdio.h>

enum { ALIBI_BIAS = 8 };

/* What follows of a window, in a model whose positions and window are known. */
void gpt_gguf_settle_window(struct gpt_config *c,
                            const struct gpt_gguf_arch *arch)
{
    c->window_attn_skip_freq =
        arch->window_every > c->num_layers ? 0 : arch->window_every;
    if (arch->unturned_full)
        c->no_rope_freq = c->window_attn_skip_freq;
    if (arch->local_base > 0)
        c->rotary_local_base = arch->local_base;
    if (arch->plain_local)
        c->rotary_local_base = c->rotary_base;
    if (c->rotary_local_base == c->rotary_base &&
        c->rotary_scaling == GPT_SCALING_NONE)
        c->rotary_local_base = 0;
}

/* ALiBi is there by its number, and a file without it is of a model with
 * learned positions. */
int gpt_gguf_check_alibi(const struct gpt_gguf_arch *arch,
                         const struct gpt_gguf *g, struct gpt_err *err)
{
    double bias = 0;
    char name[96];

    if (!arch->says_alibi)
        return GPT_OK;
    snprintf(name, sizeof(name), "%s.%s", arch->name, GPT_GGUF_ALIBI);
    GPT_TRY(gpt_gguf_real(g, name, &bias, err));
    return fabs(bias - ALIBI_BIAS) < 1e-6
               ? GPT_OK
               : gpt_fail(err, GPT_EDATA, "%s: '%s' is %g: only %d is "
                          "supported", gpt_in_path(g->in), name, bias,
                          ALIBI_BIAS);
}

/* A window that no text of the model leaves is none, unless layers without one
 * do not turn, or have other angles. It counts the token itself. */
int gpt_gguf_read_window(struct gpt_config *c,
                         const struct gpt_gguf_arch *arch,
                         const struct gpt_gguf *g, struct gpt_err *err)
{
    int64_t window = 0;
    char name[96];

    snprintf(name, sizeof(name), "%s.%s", arch->name, GPT_GGUF_WINDOW);
    GPT_TRY(gpt_gguf_int(g, name, 0, INT32_MAX, &window, err));
    if (arch->must_window && window == 0)
        return gpt_fail(err, GPT_EDATA, "%s: no key '%s'", gpt_in_path(g->in),
                        name);
    if (arch->window_every > 0 && window > 1)
        c->window_size = window - 1;
    if (c->window_size > 0)
        gpt_gguf_settle_window(c, arch);
    if (c->window_size > 0 && window >= c->max_positions &&
        !arch->unturned_full && !(c->rotary_local_base > 0))
        c->window_size = c->window_attn_skip_freq = 0;
    if (arch->window_every > 0 || window == 0 || window >= c->max_positions)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: '%s' is %lld and the model has %lld positions: "
                    "attention to a window is not supported of architecture "
                    "%s", gpt_in_path(g->in), name, (long long)window,
                    (long long)c->max_positions, arch->name);
}

void gpt_gguf_put_window(struct gpt_gguf_keys *k, const struct gpt_config *c,
                         const struct gpt_gguf_arch *arch)
{
    char name[96];

    if (arch->must_window || c->window_size > 0) {
        snprintf(name, sizeof(name), "%s.%s", arch->name, GPT_GGUF_WINDOW);
        gpt_gguf_put_int(k, name, GPT_GGUF_U32,
                         c->window_size > 0 ? c->window_size + 1
                                            : c->max_positions);
    }
    if (arch->says_alibi) {
        snprintf(name, sizeof(name), "%s.%s", arch->name, GPT_GGUF_ALIBI);
        gpt_gguf_put_real(k, name, ALIBI_BIAS);
    }
}
