/* Numbers of xIELU in GGUF files, as llama.cpp's converter writes them for
 * Apertus: lists of F32 among the keys, with an element a layer. Two are
 * parameters here, and tensors elsewhere; the other two are constants of the
 * formula. Start at gpt_gguf_xielu_key(). */
#include "checkpoint/gguf/internal.h"

#include "backend.h"

#include <math.h>

static const struct {
    enum gpt_param_role role; /* GPT_N_ROLES: none */
    const char *name;
    float value; /* of one that is none */
} lists[] = {
    {GPT_ALPHA_P, "xielu.alpha_p", 0},
    {GPT_ALPHA_N, "xielu.alpha_n", 0},
    {GPT_N_ROLES, "xielu.beta", 0.5F},
    /* below it e^x - 1 - x is taken as it is there: nothing changes here */
    {GPT_N_ROLES, "xielu.eps", -1e-6F},
};

const char *gpt_gguf_xielu_key(enum gpt_param_role role)
{
    for (size_t i = 0; i < GPT_COUNT(lists); i++)
        if (lists[i].role == role)
            return lists[i].name;
    return NULL;
}

/* ---- reading ---- */

/* The elements stay where they are: a parameter is read from the header, as
 * others are from the data. */
int gpt_gguf_read_alpha(struct gpt_tensor *here, const struct gpt_gguf *g,
                        const struct gpt_config *c, const struct gpt_param *p,
                        struct gpt_err *err)
{
    const int64_t begin = 0, one = 1;
    const char *name = gpt_gguf_xielu_key(p->role);
    const struct gpt_gguf_key *key = gpt_gguf_find(g, name);

    if (!key || key->type != GPT_GGUF_ARRAY || key->element != GPT_GGUF_F32 ||
        key->n != c->num_layers)
        return gpt_fail(err, GPT_EDATA,
                        "%s: key '%s' is no list of %lld numbers of F32, one a "
                        "layer", gpt_in_path(g->in), name,
                        (long long)c->num_layers);
    return gpt_tensor_add_rows(here, g->in,
                               key->offset + p->layer * (int64_t)sizeof(float),
                               GPT_F32, &begin, &one, err);
}

int gpt_gguf_check_xielu(const struct gpt_config *c, const struct gpt_gguf *g,
                         struct gpt_err *err)
{
    if (c->activation != GPT_XIELU)
        return GPT_OK;
    for (size_t i = 0; i < GPT_COUNT(lists); i++) {
        void *list;
        int64_t n;

        if (lists[i].role != GPT_N_ROLES)
            continue;
        GPT_TRY(gpt_gguf_words(g, lists[i].name, GPT_GGUF_F32, &list, &n, err));
        const float *x = list;
        int64_t at = 0;
        /* written so that NaN is refused */
        while (at < n && fabsf(x[at] - lists[i].value) <= 1e-7F)
            at++;
        const double wrong = at < n ? (double)x[at] : 0;
        gpt_free(list);
        if (at < n)
            return gpt_fail(err, GPT_EDATA, "%s: element %lld of key '%s' is "
                            "%g: only %g is supported", gpt_in_path(g->in),
                            (long long)at, lists[i].name, wrong,
                            (double)lists[i].value);
    }
    return GPT_OK;
}

/* ---- writing ---- */

/* One element a layer, from the source's tensors. */
static int put_alphas(struct gpt_gguf_keys *k, const struct gpt_target *t,
                      const struct gpt_param_table *table,
                      enum gpt_param_role role, struct gpt_err *err)
{
    const int64_t begin = 0, one = 1;

    for (int64_t i = 0; i < table->n; i++) {
        const struct gpt_param *p = &table->rows[i];
        const struct gpt_tensor *here;
        float x;

        if (p->role != role)
            continue;
        here = gpt_source_find(t->source, p->name);
        if (!here)
            return gpt_fail(err, GPT_EDATA, "no tensor '%s'", p->name);
        GPT_TRY(gpt_tensor_gather(here, &begin, &one, GPT_F32, &x, err));
        gpt_gguf_add_real(k, x);
    }
    return GPT_OK;
}

int gpt_gguf_put_xielu(struct gpt_gguf_keys *k, const struct gpt_target *t,
                       struct gpt_err *err)
{
    const struct gpt_config *c = &t->o.config;
    struct gpt_param_table table;
    int status = GPT_OK;

    if (c->activation != GPT_XIELU)
        return GPT_OK;
    GPT_TRY(gpt_params_build(&table, c, err));
    for (size_t i = 0; status == GPT_OK && i < GPT_COUNT(lists); i++) {
        gpt_gguf_put_array(k, lists[i].name, GPT_GGUF_F32, c->num_layers);
        if (lists[i].role != GPT_N_ROLES)
            status = put_alphas(k, t, &table, lists[i].role, err);
        for (int64_t l = 0;
             lists[i].role == GPT_N_ROLES && l < c->num_layers; l++)
            gpt_gguf_add_real(k, lists[i].value);
    }
    gpt_params_free(&table);
    return status;
}
