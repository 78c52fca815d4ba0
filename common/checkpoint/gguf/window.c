/* What tokens see, in GGUF files: windows, whose layers the architecture has,
 * and ALiBi. Start at gpt_gguf_read_window(). */
#include "checkpoint/gguf/internal.h"

#include "model/layer_list.h"

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

/* The list of a file, a byte a layer, or the number that it repeats after. */
static int read_slides(const struct gpt_gguf *g, const struct gpt_gguf_key *key,
                       bool *slides, int64_t n, struct gpt_err *err)
{
    const bool list = key->type == GPT_GGUF_ARRAY;

    if (list ? key->element != GPT_GGUF_BOOL || key->n != n
             : key->type == GPT_GGUF_STRING || key->whole < 0)
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is no list of %lld layers",
                        gpt_in_path(g->in), key->name.data, (long long)n);
    for (int64_t l = 0; l < n; l++) {
        uint8_t byte = 0;

        if (list)
            GPT_TRY(gpt_in_read(g->in, &byte, key->offset + l, 1, err));
        slides[l] = list ? byte != 0
                         : key->whole == 0 || (l + 1) % key->whole != 0;
    }
    return GPT_OK;
}

/* Layers with the window where a key lists them, whatever the architecture has
 * otherwise. */
static int read_pattern(struct gpt_config *c, const struct gpt_gguf_arch *arch,
                        const struct gpt_gguf *g, struct gpt_err *err)
{
    const struct gpt_gguf_key *key;
    const int64_t n = c->num_layers;
    int64_t windows = 0;
    const char *path = gpt_in_path(g->in);
    bool *slides;
    char name[96], quoted[100];
    int status;

    snprintf(name, sizeof(name), "%s.%s", arch->name, GPT_GGUF_PATTERN);
    snprintf(quoted, sizeof(quoted), "'%s'", name);
    key = gpt_gguf_find(g, name);
    if (!key || n < 1 || n > g->n_tensors)
        return GPT_OK;
    GPT_TRY(gpt_new(&slides, (size_t)n, sizeof(*slides), "layers", err));
    GPT_TRY_GOTO(status, read_slides(g, key, slides, n, err), out);
    for (int64_t l = 0; l < n; l++)
        windows += slides[l];
    GPT_TRY_GOTO(status, gpt_layers_make(&c->window_attn_skip_freq, slides, n,
                                         false, path, quoted, err), out);
    if (windows == 0 || windows == n)
        c->window_attn_skip_freq = 0;
    if (windows == 0)
        c->window_size = 0;
    if (arch->unturned_full) {
        for (int64_t l = 0; l < n; l++)
            slides[l] = !slides[l];
        status = gpt_layers_make(&c->no_rope_freq, slides, n, true, path,
                                 quoted, err);
    }
out:
    gpt_free(slides);
    return status;
}

/* The base of layers with a window, where a key says it. */
static int read_local_base(struct gpt_config *c,
                           const struct gpt_gguf_arch *arch,
                           const struct gpt_gguf *g, struct gpt_err *err)
{
    double base = 0;
    char name[96];

    snprintf(name, sizeof(name), "%s.%s", arch->name, GPT_GGUF_LOCAL_BASE);
    GPT_TRY(gpt_gguf_real(g, name, &base, err));
    base = gpt_gguf_shortest(base);
    if (!(base > 0) || c->window_size == 0)
        return GPT_OK;
    const bool same = base == c->rotary_base;
    if (arch->local_base > 0 || arch->plain_local)
        c->rotary_local_base =
            same && c->rotary_scaling == GPT_SCALING_NONE ? 0 : base;
    else if (!same)
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is %g, and %g elsewhere: "
                        "bases that differ are not supported of architecture "
                        "%s", gpt_in_path(g->in), name, base, c->rotary_base,
                        arch->name);
    return GPT_OK;
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
    if ((arch->window_every > 0 || arch->says_window) && window > 1)
        c->window_size = window - 1;
    if (c->window_size > 0) {
        gpt_gguf_settle_window(c, arch);
        GPT_TRY(read_pattern(c, arch, g, err));
        GPT_TRY(read_local_base(c, arch, g, err));
        if (c->window_size == 0)
            c->rotary_local_base = 0;
    }
    if (c->window_size > 0 && window >= c->max_positions &&
        !arch->unturned_full && !(c->rotary_local_base > 0))
        c->window_size = c->window_attn_skip_freq = 0;
    if (arch->window_every > 0 || arch->says_window || window == 0 ||
        window >= c->max_positions)
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
