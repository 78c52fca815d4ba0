/* A model with weights in memory, for tests and benchmarks of decoding. Every
 * parameter has an influence, also biases and norms, and dummy rows of the
 * vocabulary are enormous, so that any use of them shows. Failures end the
 * program. */
#ifndef GPT_TESTS_MODEL_H
#define GPT_TESTS_MODEL_H

#include "tests/lib/must.h"

#include "base/memory.h"
#include "model/decode.h"

#include <stdio.h>
#include <stdlib.h>

struct model {
    struct gpt_config c;
    struct gpt_param_table table;
    struct gpt_flat flat;
    float *w; /* flat, host */
    void *device;
    struct gpt_backend *be;
};

/* Weights with which every parameter has an influence; dummy rows are enormous.
 * The last weight is multiplied by `damage`. */
static void fill(struct model *m, float damage)
{
    for (int64_t i = 0; i < m->flat.n; i++) {
        const struct gpt_slice *s = &m->flat.slices[i];
        struct gpt_rng rng = gpt_rng_open(3, s->param->name);
        bool norm = s->param->init == GPT_INIT_ONE;

        for (int64_t k = 0; k < s->count; k++) {
            float x = gpt_rng_normal(rng, (uint64_t)k) * 0.3F;
            bool dummy = s->param->vocab_rows &&
                k / s->shape[1] >= m->c.vocab_size;

            m->w[s->offset + k] = dummy ? 1e6F : norm ? 1 + x : x;
        }
    }
    const struct gpt_slice *last = &m->flat.slices[m->flat.n - 1];
    m->w[last->offset + last->count - 1] *= damage;
}

__attribute__((unused)) static void
open_model_with(struct model *m, struct gpt_config c, float damage)
{
    struct gpt_err err = {0};
    struct gpt_queue *q = NULL;

    *m = (struct model){.c = c};
    must(gpt_config_complete(&m->c, 16, 1, &err), &err);
    struct gpt_layout layout = GPT_LAYOUT_SINGLE(&m->c);
    must(gpt_params_build(&m->table, &m->c, &err), &err);
    must(gpt_flat_build(&m->flat, &m->table, &layout, &err), &err);
    size_t bytes = (size_t)m->flat.elements * sizeof(float);
    must(gpt_new(&m->w, bytes, 1, "weights", &err), &err);
    fill(m, damage);
    must(gpt_backend_open(&m->be, "cpu", &err), &err);
    must(m->be->alloc(m->be, bytes, "weights", &m->device, &err), &err);
    must(m->be->queue_open(m->be, &q, &err), &err);
    m->be->copy_in(q, m->device, m->w, bytes);
    must(m->be->sync(q, &err), &err);
    m->be->queue_close(q);
}

__attribute__((unused)) static void open_model(struct model *m,
                                               struct gpt_config c)
{
    open_model_with(m, c, 1);
}

__attribute__((unused)) static void close_model(struct model *m)
{
    m->be->free(m->be, m->device);
    gpt_free(m->w);
    gpt_flat_free(&m->flat);
    gpt_params_free(&m->table);
}

__attribute__((unused)) static struct gpt_decoder *
decoder_of(struct model *m, int64_t slots, int64_t positions)
{
    struct gpt_err err = {0};
    struct gpt_decoder *d = NULL;
    struct gpt_decoder_options o = {
        .config = &m->c,
        .flat = &m->flat,
        .act = GPT_F32,
        .slots = slots,
        .positions = positions,
    };

    must(gpt_decoder_open(&d, m->be, &o, m->device, &err), &err);
    return d;
}

#endif
