/* For tests of models: a tiny model with weights by formula, and goldens made
 * by tests/golden/make_model.py. */
#ifndef GPT_TESTS_MODEL_CASE_H
#define GPT_TESTS_MODEL_CASE_H

#include "base/json.h"
#include "base/memory.h"
#include "model/stage.h"
#include "train/replica.h"

#include "../lib/tap.h"

/* A case: the model, n microbatches, and what is expected of it. Arrays point
 * into one block. */
struct model_case {
    struct gpt_config config;
    int64_t b, t, n, steps;
    double lr, beta1, beta2, eps, weight_decay, clip_grad, loss;
    double losses[16], norms[16];
    const int32_t *input, *target, *position, *doc_start; /* (n, B, T) */
    const float *mask;
    const float *logits; /* (n, B, T, V) */
    const float *after;  /* gradients, then parameters; table order, tight */
    char *block;
    cJSON *head;
};

/* lowbias32 by C. Wellons: the same in make_model.py */
static inline uint32_t case_mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ (x >> 16);
}

static inline float case_value(int64_t param, int64_t i)
{
    uint32_t u = case_mix((uint32_t)(i + param * 1000003)) >> 16;

    return ((float)u - 32768.0F) / 65536.0F;
}

/* Fills the parameters of a replica (CPU) by the formula; layout-free. */
__attribute__((unused)) static void case_fill(struct gpt_replica *r)
{
    for (int64_t i = 0; i < r->flat.n; i++) {
        const struct gpt_slice *s = &r->flat.slices[i];
        int64_t number = s->param - r->table.rows;
        bool one = s->param->init == GPT_INIT_ONE;

        for (int64_t j = 0; j < s->count; j++)
            r->params[s->offset + j] =
                case_value(number, j) + (one ? 1.0F : 0.0F);
    }
}

__attribute__((unused)) static double case_number(const cJSON *o,
                                                  const char *key)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);

    return x ? x->valuedouble : (double)NAN;
}

static inline int64_t case_int(const cJSON *o, const char *key)
{
    return (int64_t)case_number(o, key);
}

/* The configuration is written with the names of a checkpoint's JSON. */
static inline void case_config(struct model_case *k)
{
    const cJSON *o = k->head;
    struct gpt_err err;

    ok(gpt_config_from_json(&k->config, o, "golden", &err) == GPT_OK,
       "the golden's configuration is one");
    k->b = case_int(o, "batch");
    k->t = case_int(o, "seq");
    k->n = case_int(o, "micro_batches");
    k->steps = case_int(o, "steps");
    k->lr = case_number(o, "lr");
    k->beta1 = case_number(o, "beta1");
    k->beta2 = case_number(o, "beta2");
    k->eps = case_number(o, "eps");
    k->weight_decay = case_number(o, "weight_decay");
    k->clip_grad = case_number(o, "clip_grad");
    k->loss = case_number(o, "loss");
    for (int i = 0; i < 16 && i < k->steps; i++) {
        k->losses[i] =
            cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(o, "losses"), i)
                ->valuedouble;
        k->norms[i] =
            cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(o, "norms"), i)
                ->valuedouble;
    }
}

/* False, with a TAP failure, when the file is not there. */
__attribute__((unused)) static bool case_read(struct model_case *k,
                                              const char *name)
{
    char path[512];
    const char *top = getenv("GPT_TEST_TOP");

    snprintf(path, sizeof(path), "%s/tests/golden/model/%s.golden",
             top ? top : ".", name);
    FILE *f = fopen(path, "rb");
    if (!ok(f != NULL, "%s can be opened", path))
        return false;
    fseek(f, 0, SEEK_END);
    size_t len = (size_t)ftell(f);
    rewind(f);
    /* the arrays become aligned when the line's length is padded in front */
    char *text = gpt_alloc(len + 1, 1);
    bool read = fread(text, 1, len, f) == len;
    fclose(f);
    char *line = memchr(text, '\n', len);
    if (!ok(read && line, "%s is a golden", path))
        return false;
    size_t head = (size_t)(line + 1 - text);
    k->head = cJSON_ParseWithLength(text, head);
    k->block = gpt_alloc(len - head + 1, 1);
    memcpy(k->block, text + head, len - head);
    gpt_free(text);
    case_config(k);
    int64_t rows = k->n * k->b * k->t;
    const void *at = k->block;
    k->input = at;
    k->target = k->input + rows;
    k->position = k->target + rows;
    k->doc_start = k->position + rows;
    at = k->doc_start + rows;
    k->mask = at;
    k->logits = k->mask + rows;
    k->after = k->logits + rows * k->config.padded_vocab_size;
    return true;
}

__attribute__((unused)) static void case_free(struct model_case *k)
{
    cJSON_Delete(k->head);
    gpt_free(k->block);
}

#endif
