/* The configuration of a GGUF file: keys become struct gpt_config, and the
 * reverse, by the tables of arch.c. Start at gpt_gguf_read_config().
 *
 * Some keys are our own, and written only where a model is not as those of its
 * architecture. llama.cpp computes GELU by its tanh form whatever a model says,
 * so none of its keys names the activation. A model that turns neighbours is as
 * the files of Llama have it: ours says that it was made so. And of Llama 3's
 * scaling a file has the factors that its numbers give, and not the numbers. */
#include "checkpoint/gguf/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACTIVATION_KEY "gpt.activation"
#define PAIRS_KEY "gpt.rotary_interleaved"
#define POSITIONS_KEY "gpt.rotary_positions"
#define FACTOR_KEY "gpt.rotary_factor"
#define LOW_KEY "gpt.rotary_low_factor"
#define HIGH_KEY "gpt.rotary_high_factor"

#define YARN_KEY "rope.scaling.yarn_log_multiplier"

enum { PUBLISHED_POSITIONS = 8192 };

/* Keys of an architecture that are read otherwise, or say nothing about what
 * the model computes. */
static const char *const noted[] = {
    "rope.dimension_count", "rope.scaling.type", "use_parallel_residual",
    GPT_GGUF_WINDOW, "vocab_size", "rope.scaling.finetuned",
    GPT_GGUF_ALIBI, "tensor_data_layout", "rope.scaling.yarn_log_multiplier",
    GPT_GGUF_PATTERN, GPT_GGUF_LOCAL_BASE,
    /* which of a token's three positions a pair turns by; and in how many
     * layers what is seen is added */
    "rope.dimension_sections", "n_deepstack_layers",
    "attention.key_length_mla", "attention.value_length_mla",
};

double gpt_gguf_shortest(double v)
{
    char text[32];
    double d = v;

    for (int digits = 1; digits < 10; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        d = strtod(text, NULL);
        if (!((float)d < (float)v || (float)d > (float)v))
            break;
    }
    return d;
}

/* Architectures are the first part of their keys' names. A buffer of 96 bytes
 * holds the longest of both tables. */
static void key_name(char *buf, size_t cap, const struct gpt_gguf_arch *arch,
                     const char *name)
{
    snprintf(buf, cap, "%s.%s", arch->name, name);
}

/* How often pair i of n turns in the positions that a model had before its
 * rotary positions were scaled. */
static double turns_of(const struct gpt_config *c, int64_t i, int64_t n)
{
    const double wave = 2 * M_PI * pow(c->rotary_base, (double)i / (double)n);

    return (double)c->rotary_positions / wave;
}

/* ---- reading ---- */

/* The inverse of an inverse is a whole number, but for its last bits. */
static double inverse(double x)
{
    const double y = 1 / x, whole = round(y);

    return fabs(y - whole) <= 1e-6 * whole ? whole : gpt_gguf_shortest(y);
}

/* From the number of a key to that of its field, in place. */
static int read_form(double *x, enum gpt_gguf_form form, const char *name,
                     const struct gpt_gguf *g, struct gpt_err *err)
{
    /* absent, or written as absent by some converters */
    if (form == GPT_GGUF_SAME || *x == 0)
        return GPT_OK;
    if (!(*x > 0))
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is %g, must be above 0",
                        gpt_in_path(g->in), name, *x);
    if (form == GPT_GGUF_INVERSE)
        *x = inverse(*x);
    else if (form == GPT_GGUF_ROOT)
        *x = inverse(*x * *x);
    return GPT_OK;
}

static double write_form(const struct gpt_config *c, double x,
                         enum gpt_gguf_form form)
{
    if (form == GPT_GGUF_SAME)
        return x;
    if (form == GPT_GGUF_ROOT)
        return 1 / sqrt(x > 0 ? x : (double)c->head_size);
    return !(x > 0) ? 1 : form == GPT_GGUF_INVERSE ? 1 / x : x;
}

/* A number that is absent, or 0, is completed from others where it can be. */
static int read_key(struct gpt_config *c, const struct gpt_gguf_arch *arch,
                    const struct gpt_gguf *g, size_t i, struct gpt_err *err)
{
    char name[96];
    void *to = (char *)c + gpt_gguf_fields[i].offset;

    key_name(name, sizeof(name), arch, gpt_gguf_fields[i].name);
    if (gpt_gguf_fields[i].must && !gpt_gguf_find(g, name))
        return gpt_fail(err, GPT_EDATA, "%s: no key '%s'", gpt_in_path(g->in),
                        name);
    if (gpt_gguf_fields[i].form >= GPT_GGUF_EXPERTS_WIDE)
        return gpt_gguf_read_other(c, &gpt_gguf_fields[i], name, g, err);
    if (gpt_gguf_fields[i].whole)
        return gpt_gguf_int(g, name, 0, INT32_MAX, to, err);
    GPT_TRY(gpt_gguf_real(g, name, to, err));
    *(double *)to = gpt_gguf_shortest(*(double *)to);
    return read_form(to, gpt_gguf_fields[i].form, name, g, err);
}

/* Two keys give the size of a head, because llama.cpp lets values have
 * another size than keys. Here both have one size, so they are compared.
 * Files of models whose heads divide the width have neither. */
static int read_keys(struct gpt_config *c, const struct gpt_gguf_arch *arch,
                     const struct gpt_gguf *g, struct gpt_err *err)
{
    int64_t value_length;
    char name[96];

    for (size_t i = 0; i < gpt_gguf_n_fields; i++)
        if (gpt_gguf_is_used(arch, gpt_gguf_fields[i].use, c))
            GPT_TRY(read_key(c, arch, g, i, err));
    if (arch->latent) /* gpt_gguf_read_latent() takes them */
        return GPT_OK;
    /* the last of the two is what was read */
    value_length = c->head_size;
    key_name(name, sizeof(name), arch, "attention.key_length");
    GPT_TRY(gpt_gguf_int(g, name, 1, INT32_MAX, &c->head_size, err));
    if (c->head_size != value_length)
        return gpt_fail(err, GPT_EDATA,
                        "%s: keys of %lld and values of %lld elements: they "
                        "must be of one size",
                        gpt_in_path(g->in), (long long)c->head_size,
                        (long long)value_length);
    if (c->head_size == 0 && c->num_attention_heads > 0)
        c->head_size = c->hidden_size / c->num_attention_heads;
    if (arch->says_parallel) {
        key_name(name, sizeof(name), arch, "use_parallel_residual");
        c->parallel_blocks = true;
        GPT_TRY(gpt_gguf_bool(g, name, &c->parallel_blocks, err));
    }
    return GPT_OK;
}

/* The kind has to be known before its numbers are read. */
static int read_scaling(struct gpt_config *c, const struct gpt_gguf_arch *arch,
                        struct gpt_gguf *g, struct gpt_err *err)
{
    const char *type = "none";
    char name[96];

    key_name(name, sizeof(name), arch, "rope.scaling.type");
    GPT_TRY(gpt_gguf_text(g, name, &type, err));
    /* newer files name LongRoPE, older ones have its lists alone */
    if (strcmp(type, "none") == 0 || strcmp(type, "longrope") == 0)
        return GPT_OK;
    if (strcmp(type, "linear") == 0)
        c->rotary_scaling = GPT_SCALING_LINEAR;
    else if (strcmp(type, "yarn") == 0)
        c->rotary_scaling = GPT_SCALING_YARN;
    else
        return gpt_fail(err, GPT_EDATA,
                        "%s: '%s' is %.100s: only none, linear and yarn are "
                        "supported", gpt_in_path(g->in), name, type);
    return GPT_OK;
}

/* A share of the head turns: an even number of its elements. */
static int read_share(struct gpt_config *c, const struct gpt_gguf_arch *arch,
                      const struct gpt_gguf *g, struct gpt_err *err)
{
    int64_t turned = c->head_size;
    char name[96];

    key_name(name, sizeof(name), arch, "rope.dimension_count");
    GPT_TRY(gpt_gguf_int(g, name, 2, INT32_MAX, &turned, err));
    if (c->head_size == 0 || turned > c->head_size)
        return gpt_fail(err, GPT_EDATA,
                        "%s: '%s' is %lld, a head has %lld elements",
                        gpt_in_path(g->in), name, (long long)turned,
                        (long long)c->head_size);
    c->rotary_percent = (double)turned / (double)c->head_size;
    /* a quotient that is rounded down loses a pair */
    if (gpt_config_rotary(c) < turned)
        c->rotary_percent = nextafter(c->rotary_percent, 2);
    return GPT_OK;
}

static int read_rotary(struct gpt_config *c, const struct gpt_gguf_arch *arch,
                       const struct gpt_gguf *g, struct gpt_err *err)
{
    char name[96];

    if (arch->base.position_embedding != GPT_POSITION_ROPE)
        return GPT_OK;
    if (!arch->latent)
        GPT_TRY(read_share(c, arch, g, err));
    if (c->rotary_base <= 0)
        c->rotary_base = 10000;
    if (c->rotary_scaling == GPT_SCALING_YARN) {
        c->rotary_fast = c->rotary_fast > 0 ? c->rotary_fast : 32;
        c->rotary_slow = c->rotary_slow > 0 ? c->rotary_slow : 1;
    }
    if (gpt_gguf_is_used(arch, GPT_GGUF_GROWTH, c)) {
        double multiplier = 0;

        /* two such numbers, of which the other is 1: 1 takes it back */
        key_name(name, sizeof(name), arch, YARN_KEY);
        GPT_TRY(gpt_gguf_real(g, name, &multiplier, err));
        if (fabs(multiplier - 1) > 1e-6)
            return gpt_fail(err, GPT_EDATA, "%s: '%s' is %g: only 1 is "
                            "supported", gpt_in_path(g->in), name, multiplier);
        c->rotary_attention = 1;
    }
    if (c->rotary_scaling == GPT_SCALING_LINEAR)
        c->rotary_positions = 0;
    return GPT_OK;
}

/* The numbers of Llama 3's scaling that all published models have. The factor
 * is the largest of all, where the slowest pair turns too slowly to be left as
 * it is. */
static bool is_published(const struct gpt_config *c)
{
    const double slowest =
        turns_of(c, gpt_config_rotary(c) / 2 - 1, gpt_config_rotary(c) / 2);

    return !(c->rotary_low_factor < 1 || c->rotary_low_factor > 1 ||
             c->rotary_high_factor < 4 || c->rotary_high_factor > 4) &&
           c->rotary_positions == PUBLISHED_POSITIONS &&
           slowest <= c->rotary_low_factor;
}

static int read_own_real(const struct gpt_gguf *g, const char *name, double *to,
                         struct gpt_err *err)
{
    GPT_TRY(gpt_gguf_real(g, name, to, err));
    *to = gpt_gguf_shortest(*to);
    return GPT_OK;
}

/* The factors are those of a formula; which numbers it had, only keys of our
 * own say. */
static int read_ropes(struct gpt_config *c, const struct gpt_gguf *g,
                      const float *ropes, int64_t n, struct gpt_err *err)
{
    float *own;
    bool same = true;

    if (!ropes)
        return GPT_OK;
    c->rotary_scaling = GPT_SCALING_LLAMA3;
    c->rotary_low_factor = 1;
    c->rotary_high_factor = 4;
    c->rotary_positions = PUBLISHED_POSITIONS;
    c->rotary_factor = 1;
    for (int64_t i = 0; i < n; i++)
        c->rotary_factor = fmax(c->rotary_factor, (double)ropes[i]);
    c->rotary_factor = gpt_gguf_shortest(c->rotary_factor);
    GPT_TRY(gpt_gguf_int(g, POSITIONS_KEY, 1, INT32_MAX, &c->rotary_positions,
                         err));
    GPT_TRY(read_own_real(g, FACTOR_KEY, &c->rotary_factor, err));
    GPT_TRY(read_own_real(g, LOW_KEY, &c->rotary_low_factor, err));
    GPT_TRY(read_own_real(g, HIGH_KEY, &c->rotary_high_factor, err));
    GPT_TRY(gpt_new(&own, (size_t)n, sizeof(*own), "rotary factors", err));
    gpt_gguf_ropes(c, own, n);
    for (int64_t i = 0; i < n; i++)
        same = same && fabsf(own[i] - ropes[i]) <= 1e-4F * own[i];
    gpt_free(own);
    if (same && n == gpt_config_rotary(c) / 2)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: '%s' is not what Llama 3's scaling of rotary "
                    "positions gives for %lld positions, %g and %g",
                    gpt_in_path(g->in), GPT_GGUF_FREQS,
                    (long long)c->rotary_positions, c->rotary_low_factor,
                    c->rotary_high_factor);
}

/* A key that is not known may change what the model computes; one that is 0 or
 * false switches something off. */
static int check_unknown(const struct gpt_gguf_arch *arch,
                         const struct gpt_config *c, const struct gpt_gguf *g,
                         struct gpt_err *err)
{
    const size_t prefix = strlen(arch->name);

    for (int64_t k = 0; k < g->n_keys; k++) {
        const struct gpt_gguf_key *key = &g->keys[k];
        const char *name = key->name.data;
        bool known = false;

        if (strncmp(name, arch->name, prefix) != 0 || name[prefix] != '.')
            continue;
        for (size_t i = 0; !known && i < gpt_gguf_n_fields; i++)
            known = strcmp(name + prefix + 1, gpt_gguf_fields[i].name) == 0;
        for (size_t i = 0; !known && i < GPT_COUNT(noted); i++)
            known = strcmp(name + prefix + 1, noted[i]) == 0;
        known = known ||
                (c->rotary_scaling == GPT_SCALING_LONGROPE &&
                 strcmp(name + prefix + 1, GPT_GGUF_ATTN_FACTOR) == 0);
        const bool off = key->type != GPT_GGUF_STRING &&
                         key->type != GPT_GGUF_ARRAY && key->whole == 0 &&
                         !(key->real > 0 || key->real < 0);
        if (!known && !off)
            return gpt_fail(err, GPT_EDATA,
                            "%s: the key '%.200s' is not known: its model may "
                            "compute something that this program does not",
                            gpt_in_path(g->in), name);
    }
    return GPT_OK;
}

/* Programs that do not know these keys pass over them: what they compute is
 * right for pairs, and near for the activation. */
static int read_own(struct gpt_config *c, const struct gpt_gguf_arch *arch,
                    struct gpt_gguf *g, struct gpt_err *err)
{
    const char *name = NULL;

    if (arch->pairs)
        GPT_TRY(gpt_gguf_bool(g, PAIRS_KEY, &c->rotary_interleaved, err));
    GPT_TRY(gpt_gguf_text(g, ACTIVATION_KEY, &name, err));
    for (int i = 0; name && gpt_activations[i]; i++)
        if (strcmp(gpt_activations[i], name) == 0) {
            c->activation = i;
            return GPT_OK;
        }
    if (!name)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "%s: '%s' is '%.100s', no activation",
                    gpt_in_path(g->in), ACTIVATION_KEY, name);
}

/* The kind of scaling is read before the numbers, since it decides which of
 * them count; what turns is read after them, since it is a share of a head.
 * The model's own checks come last, and see a complete configuration. */
int gpt_gguf_read_config(struct gpt_config *c,
                         const struct gpt_gguf_arch **arch, struct gpt_gguf *g,
                         const struct gpt_gguf_seen *seen,
                         struct gpt_err *err)
{
    const struct gpt_gguf_lists *lists = &seen->lists;
    struct gpt_err inner = {0};

    GPT_TRY(gpt_gguf_find_arch(arch, g, err));
    *c = (*arch)->base;
    c->vocab_size = seen->words;
    c->tied_embeddings = seen->tied;
    gpt_gguf_free_biases(c, *arch, &seen->biases);
    if ((*arch)->each_norm_layers > 0)
        c->qk_norm = c->qk_norm_each = seen->norms_each;
    if ((*arch)->free_norm)
        c->qk_norm = seen->norms;
    c->init_std = gpt_config_default().init_std;
    GPT_TRY(read_scaling(c, *arch, g, err));
    GPT_TRY(read_keys(c, *arch, g, err));
    GPT_TRY(read_rotary(c, *arch, g, err));
    GPT_TRY(gpt_gguf_read_latent(c, *arch, g, seen, err));
    GPT_TRY(read_ropes(c, g, lists->freqs.x, lists->freqs.n, err));
    GPT_TRY(gpt_gguf_read_longrope(c, *arch, g, lists, err));
    GPT_TRY(read_own(c, *arch, g, err));
    GPT_TRY(gpt_gguf_read_window(c, *arch, g, err));
    GPT_TRY(gpt_gguf_check_alibi(*arch, g, err));
    GPT_TRY(gpt_gguf_check_xielu(c, g, err));
    if ((*arch)->wide_layers > 0 && (*arch)->wide_layers == c->num_layers)
        c->query_pre_attn_scalar =
            (double)c->hidden_size / (double)c->num_attention_heads;
    GPT_TRY(check_unknown(*arch, c, g, err));
    gpt_config_settle_experts(c);
    if (gpt_config_complete(c, 1, 1, &inner) != GPT_OK)
        return gpt_fail(err, GPT_EDATA, "%s: %s", gpt_in_path(g->in),
                        inner.text);
    c->padded_vocab_size = 0;
    return GPT_OK;
}

/* ---- writing ---- */

/* As transformers' Llama 3 has it, in single precision at the end alone. */
void gpt_gguf_ropes(const struct gpt_config *c, float *to, int64_t n)
{
    const double low = c->rotary_low_factor, high = c->rotary_high_factor;

    for (int64_t i = 0; i < n; i++) {
        const double share =
            fmin(1, fmax(0, (turns_of(c, i, n) - low) / (high - low)));

        to[i] = (float)(1 / ((1 - share) / c->rotary_factor + share));
    }
}

/* What "alpha" makes of the base: see rotary.c of the model. A file has the
 * result alone. */
static double folded_base(const struct gpt_config *c)
{
    const double n = (double)gpt_config_rotary(c);

    return c->rotary_scaling == GPT_SCALING_NTK_ALPHA
               ? c->rotary_base * pow(c->rotary_factor, n / (n - 2))
               : c->rotary_base;
}

/* Keys that have their default are written as well, as llama.cpp's converter
 * does: older versions of llama.cpp want some of them. Only the size of heads
 * is left out where it follows from the width, for the same reason. */
void gpt_gguf_put_config(struct gpt_gguf_keys *k, const struct gpt_config *c,
                         const struct gpt_gguf_arch *arch)
{
    const bool plain = c->head_size * c->num_attention_heads == c->hidden_size;
    char name[96];

    for (size_t i = 0; i < gpt_gguf_n_fields; i++) {
        const void *at = (const char *)c + gpt_gguf_fields[i].offset;

        if (!gpt_gguf_is_used(arch, gpt_gguf_fields[i].use, c) ||
            (plain && gpt_gguf_fields[i].offset ==
                          offsetof(struct gpt_config, head_size)))
            continue;
        key_name(name, sizeof(name), arch, gpt_gguf_fields[i].name);
        const double x = gpt_gguf_fields[i].whole ? 0 : *(const double *)at;
        if (gpt_gguf_fields[i].form >= GPT_GGUF_EXPERTS_WIDE)
            gpt_gguf_put_other(k, c, &gpt_gguf_fields[i], name);
        else if (at == &c->rotary_base)
            gpt_gguf_put_real(k, name, folded_base(c));
        else if (!gpt_gguf_fields[i].whole)
            gpt_gguf_put_real(k, name,
                              write_form(c, x, gpt_gguf_fields[i].form));
        else if (*(const int64_t *)at)
            gpt_gguf_put_int(k, name, GPT_GGUF_U32, *(const int64_t *)at);
    }
    gpt_gguf_put_window(k, c, arch);
    if (gpt_gguf_is_used(arch, GPT_GGUF_GROWTH, c)) {
        key_name(name, sizeof(name), arch, YARN_KEY);
        gpt_gguf_put_real(k, name, 1);
    }
    key_name(name, sizeof(name), arch, "vocab_size");
    gpt_gguf_put_int(k, name, GPT_GGUF_U32, c->vocab_size);
    if (arch->base.position_embedding == GPT_POSITION_ROPE) {
        key_name(name, sizeof(name), arch, "rope.dimension_count");
        gpt_gguf_put_int(k, name, GPT_GGUF_U32, gpt_config_rotary(c));
    }
    if (gpt_gguf_is_used(arch, GPT_GGUF_SCALED, c)) {
        key_name(name, sizeof(name), arch, "rope.scaling.type");
        gpt_gguf_put_text(k, name, gpt_rotary_scalings[c->rotary_scaling]);
    }
    gpt_gguf_put_longrope(k, c, arch);
    gpt_gguf_put_latent(k, c, arch);
    if (arch->says_parallel) {
        key_name(name, sizeof(name), arch, "use_parallel_residual");
        gpt_gguf_put_int(k, name, GPT_GGUF_BOOL, c->parallel_blocks);
    }
    if (c->activation != arch->base.activation)
        gpt_gguf_put_text(k, ACTIVATION_KEY, gpt_activations[c->activation]);
    if (arch->pairs && c->rotary_interleaved)
        gpt_gguf_put_int(k, PAIRS_KEY, GPT_GGUF_BOOL, true);
    if (c->rotary_scaling == GPT_SCALING_LLAMA3 && !is_published(c)) {
        gpt_gguf_put_int(k, POSITIONS_KEY, GPT_GGUF_U32, c->rotary_positions);
        gpt_gguf_put_real(k, FACTOR_KEY, c->rotary_factor);
        gpt_gguf_put_real(k, LOW_KEY, c->rotary_low_factor);
        gpt_gguf_put_real(k, HIGH_KEY, c->rotary_high_factor);
    }
}
