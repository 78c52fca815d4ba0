/* See derived.h. A quotient of doubles may miss the number of a file by its
 * last bits: what is written is one of which the same model is read again. */
#include "checkpoint/huggingface/derived.h"

#include "base/memory.h"
#include "base/num.h"
#include "checkpoint/huggingface/reader.h"

#include <math.h>

enum { ROTARY_UNIT = 10000 };

/* What the number of the key is multiplied by. Ranges of layers and width are
 * checked with the model, later: here 0 must divide nothing. */
static double factor_of(const struct gpt_config *c, enum gpt_hf_formula formula)
{
    switch (formula) {
    case GPT_HF_BASE_RATIO:
        return ROTARY_UNIT;
    case GPT_HF_BOTH_HALVES:
        return 0.5;
    case GPT_HF_DEPTH:
        return 1 / sqrt((double)gpt_max_i64(c->num_layers, 1));
    case GPT_HF_BASE_WIDTH:
        break;
    }
    return 1 / (double)gpt_max_i64(c->hidden_size, 1);
}

static double value_of(const struct gpt_config *c, enum gpt_hf_formula formula)
{
    switch (formula) {
    case GPT_HF_BASE_RATIO:
        return c->rotary_base;
    case GPT_HF_BOTH_HALVES:
        return (double)c->ffn_hidden_size;
    case GPT_HF_DEPTH:
        return c->residual_multiplier > 0 ? c->residual_multiplier : 1;
    case GPT_HF_BASE_WIDTH:
        break;
    }
    return c->logit_multiplier > 0 ? c->logit_multiplier : 1;
}

static int read_value(struct gpt_hf_reader *r, const struct gpt_hf_key *key,
                      const cJSON *item, struct gpt_err *err)
{
    const enum gpt_hf_formula formula = (enum gpt_hf_formula)key->offset;
    double x = 0;
    int64_t size;

    if (formula == GPT_HF_BOTH_HALVES) {
        GPT_TRY(gpt_hf_read_size(r, key->name, item, &size, err));
        r->c->ffn_hidden_size = size / 2;
        return size % 2 == 0 ? GPT_OK
                             : gpt_hf_refuse(r, key->name, item,
                                             "an even number", err);
    }
    GPT_TRY(gpt_hf_read_number(r, key->name, item, &x, err));
    if (!(x > 0))
        return gpt_hf_refuse(r, key->name, item, "a number above 0", err);
    x *= factor_of(r->c, formula);
    if (formula == GPT_HF_BASE_RATIO)
        r->c->rotary_base = x;
    else if (formula == GPT_HF_DEPTH)
        r->c->residual_multiplier = x;
    else
        r->c->logit_multiplier = x;
    return GPT_OK;
}

int gpt_hf_read_derived(struct gpt_hf_reader *r, const struct gpt_hf_key *key,
                        const cJSON *item, struct gpt_err *err)
{
    cJSON *def = item ? NULL : cJSON_Parse(key->def);
    int status = item || def ? read_value(r, key, item ? item : def, err)
                             : gpt_no_memory(err, r->what);

    cJSON_Delete(def);
    return status;
}

/* The number that gives the field again when it is read: the quotient, one that
 * has fewer digits, or a neighbour. */
double gpt_hf_derived_value(const struct gpt_hf_key *key,
                            const struct gpt_config *c)
{
    const enum gpt_hf_formula formula = (enum gpt_hf_formula)key->offset;
    const double value = value_of(c, formula), factor = factor_of(c, formula);
    const double x = value / factor;
    const double tries[] = {rint(x * 1e6) / 1e6, x, nextafter(x, 0),
                            nextafter(x, INFINITY)};

    for (size_t i = 0; i < GPT_COUNT(tries); i++)
        if (tries[i] * factor <= value && tries[i] * factor >= value)
            return tries[i];
    return x;
}

/* ---- factors ---- */

/* The inverse of an inverse is a number that was whole, but for its last
 * bits. */
static double inverse(double x)
{
    const double y = 1 / x, whole = round(y);

    return fabs(y - whole) <= 1e-12 * whole ? whole : y;
}

/* 0 would make nothing of all that is multiplied, and means "none" in the
 * fields: it is refused. */
int gpt_hf_read_factor(const struct gpt_hf_reader *r,
                       const struct gpt_hf_key *key, const cJSON *item,
                       struct gpt_err *err)
{
    double x = 0;

    GPT_TRY(gpt_hf_read_number(r, key->name, item, &x, err));
    if (!(x > 0))
        return gpt_hf_refuse(r, key->name, item, "a number above 0", err);
    if (key->kind == GPT_HF_SCORE_SCALE)
        r->c->query_pre_attn_scalar = inverse(x * x);
    else
        *(double *)(void *)((char *)r->c + key->offset) =
            key->kind == GPT_HF_DIVISOR ? inverse(x) : x;
    return GPT_OK;
}
