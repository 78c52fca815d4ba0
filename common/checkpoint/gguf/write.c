/* Writing GGUF files. The plan has the header whole, vocabulary included, and
 * the tensors as views of the source's; writing fills them, and packs those
 * that are asked for packed. Start at gpt_gguf_plan().
 *
 * As llama.cpp's converter has it, vectors and the table of positions are F32
 * whatever the matrices are, and a matrix whose rows do not fill blocks is F16
 * where packing was asked for. */
#include "checkpoint/gguf/internal.h"

#include "base/num.h"
#include "checkpoint/fill.h"

#include <stdio.h>
#include <string.h>

/* A parameter is in three tensors at most; three more are no parameters. */
enum { NAME = GPT_PARAM_NAME + 32, MOST_PARTS = 3, EXTRA = 3 };

struct planned {
    struct gpt_tensor t; /* of the type that is written, F32 where packed */
    const struct gpt_packing *packing; /* NULL: plain */
    const float *constant; /* what has no source; NULL: it has one */
    int64_t offset, bytes; /* in the data */
};

struct gguf_plan {
    const struct gpt_gguf_arch *arch;
    struct planned *list; /* in the order of the file */
    int64_t n;
    float *ropes; /* of tensors of rotary factors, which have no source */
    struct gpt_gguf_keys keys;
};

/* Names of tensors are in the target's arena, which outlives the plan. */
void gpt_gguf_free_plan(struct gpt_target *t)
{
    struct gguf_plan *p = t->data;

    if (!p)
        return;
    for (int64_t i = 0; i < p->n; i++)
        gpt_tensor_free(&p->list[i].t);
    gpt_free(p->list);
    gpt_free(p->ropes);
    gpt_buf_free(&p->keys.b);
    gpt_free(p);
}

/* ---- tensors ---- */

/* llama.cpp adds vectors in float and does not look at their type; a table of
 * positions is read as float by some of its backends alone. Routers are F32 in
 * its own files. */
static bool always_plain(const struct gpt_param *p)
{
    return !p->decay || p->role == GPT_POSITION_EMBEDDING ||
           p->role == GPT_ROUTER_WEIGHT || p->role == GPT_SHARED_ROUTER;
}

/* The type of a tensor that is written, which has that of its elements. */
static int choose_type(struct planned *to, const struct gpt_target *t,
                       const struct gpt_param *p, struct gpt_err *err)
{
    const struct gpt_packing *packing = t->o.packing;
    const struct gguf_plan *plan = t->data;

    if (t->o.dtype != GPT_N_DTYPES)
        to->t.dtype = t->o.dtype;
    if (to->t.dtype == GPT_F64) {
        gpt_fail(err, GPT_EDATA,
                 "tensor '%s' is of type F64, which programs that read GGUF "
                 "files do not compute with", p->name);
        return gpt_hint(err, "choose a smaller type of parameters");
    }
    if (always_plain(p)) {
        to->t.dtype = GPT_F32;
        to->packing = gpt_gguf_shifted(plan->arch, p);
    }
    else if (packing &&
             to->t.shape[to->t.ndim - 1] % packing->elements == 0) {
        to->packing = packing;
        to->t.dtype = GPT_F32;
    } else if (packing)
        to->t.dtype = GPT_F16;
    return GPT_OK;
}

/* The tensor of that name: the last one, where neighbours share it, or a new
 * one. */
static int plan_tensor(struct gpt_target *t, const struct gpt_param *p,
                       const struct gpt_hf_rule *rule, struct planned **out,
                       struct gpt_err *err)
{
    struct gguf_plan *plan = t->data;
    char name[NAME];
    int64_t shape[GPT_HF_DIMS];

    gpt_hf_name(name, sizeof(name), rule, p, 0, "");
    *out = plan->n ? &plan->list[plan->n - 1] : NULL;
    if (*out && strcmp((*out)->t.name, name) == 0)
        return GPT_OK;
    if (strlen(name) >= GPT_GGUF_NAME)
        return gpt_fail(err, GPT_EDATA, "tensor '%s': its name has %zu bytes, "
                        "limit %d", name, strlen(name), GPT_GGUF_NAME - 1);
    gpt_hf_shape(&t->o.config, rule, p, shape);
    char *kept = gpt_arena_strdup(&t->arena, name);
    if (!kept)
        return gpt_no_memory(err, "names of tensors");
    *out = &plan->list[plan->n++];
    (*out)->t = gpt_tensor_make(kept, GPT_F32, gpt_hf_ndim(rule, p), shape);
    return GPT_OK;
}

/* Shapes are compared here too: the source may be of a format that does not
 * compare its tensors with its configuration. */
static int plan_param(struct gpt_target *t, const struct gpt_param *p,
                      struct gpt_err *err)
{
    struct gguf_plan *plan = t->data;
    const struct gpt_tensor *here = gpt_source_find(t->source, p->name);
    const struct gpt_hf_rule *rule;
    struct planned *there;
    bool ruled = false;
    size_t at = 0;

    if (!here)
        return gpt_fail(err, GPT_EDATA, "no tensor '%s'", p->name);
    /* the header has it */
    if (gpt_gguf_xielu_key(p->role))
        return GPT_OK;
    if (here->ndim != p->ndim || here->shape[0] != p->shape[0] ||
        (p->ndim == 2 && here->shape[1] != p->shape[1]))
        return gpt_fail(err, GPT_EDATA,
                        "tensor '%s' is %lld x %lld, its model says %lld x "
                        "%lld", p->name, (long long)here->shape[0],
                        (long long)here->shape[1], (long long)p->shape[0],
                        (long long)p->shape[1]);
    while ((rule = gpt_gguf_next_rule(plan->arch, &t->o.config, p, &at))) {
        GPT_TRY(plan_tensor(t, p, rule, &there, err));
        gpt_tensor_widen(&there->t, here->dtype);
        GPT_TRY(choose_type(there, t, p, err));
        GPT_TRY(gpt_hf_export(&there->t, here, &t->o.config, rule, p, 0,
                              err));
        ruled = true;
    }
    if (!ruled) /* a mistake in the architecture's table: it would be lost */
        return gpt_fail(err, GPT_EFAIL, "architecture %s has no tensor for "
                        "'%s'", plan->arch->name, p->name);
    return GPT_OK;
}

/* The output layer of a tied model: the word table under the other name. */
static int plan_head(struct gpt_target *t, const struct gpt_param_table *table,
                     struct gpt_err *err)
{
    struct gguf_plan *plan = t->data;

    if (!t->o.config.tied_embeddings || !plan->arch->needs_head)
        return GPT_OK;
    for (int64_t i = 0; i < table->n; i++)
        if (table->rows[i].role == GPT_WORD_EMBEDDING) {
            struct planned *head = &plan->list[plan->n];

            GPT_TRY(plan_param(t, &table->rows[i], err));
            head->t.name = GPT_GGUF_HEAD;
        }
    return GPT_OK;
}

/* A tensor whose elements are in memory, and no parameter of the model. */
static void plan_constant(struct gguf_plan *plan, const char *name,
                          const float *x, int64_t n)
{
    struct planned *p = &plan->list[plan->n++];

    p->t = gpt_tensor_make(name, GPT_F32, 1, &n);
    p->constant = x;
}

/* llama.cpp has no keys for Llama 3's scaling, only what follows from it: a
 * factor for each rate. Of LongRoPE it has both lists. */
static int plan_ropes(struct gpt_target *t, struct gpt_err *err)
{
    struct gguf_plan *plan = t->data;
    const struct gpt_config *c = &t->o.config;
    const int64_t n = gpt_config_rotary(c) / 2;

    if (c->rotary_scaling != GPT_SCALING_LLAMA3 &&
        c->rotary_scaling != GPT_SCALING_LONGROPE)
        return GPT_OK;
    GPT_TRY(gpt_new(&plan->ropes, 2 * (size_t)n, sizeof(*plan->ropes),
                    "rotary factors", err));
    if (c->rotary_scaling == GPT_SCALING_LLAMA3) {
        gpt_gguf_ropes(c, plan->ropes, n);
        plan_constant(plan, GPT_GGUF_FREQS, plan->ropes, n);
        return GPT_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        plan->ropes[i] = (float)c->rotary_long_factors[i];
        plan->ropes[n + i] = (float)c->rotary_short_factors[i];
    }
    plan_constant(plan, GPT_GGUF_LONG, plan->ropes, n);
    plan_constant(plan, GPT_GGUF_SHORT, plan->ropes + n, n);
    return GPT_OK;
}

/* Sizes and places; each begins at a multiple of the alignment. */
static int place_tensors(struct gpt_target *t, struct gpt_err *err)
{
    struct gguf_plan *plan = t->data;
    int64_t at = 0, bytes;

    for (int64_t i = 0; i < plan->n; i++) {
        struct planned *p = &plan->list[i];
        int64_t n = 1;
        bool fits = true;

        for (int d = 0; d < p->t.ndim; d++)
            fits = fits && gpt_mul(n, p->t.shape[d], &n);
        bytes = p->packing ? n / p->packing->elements * p->packing->bytes : n;
        if (!p->packing)
            fits = fits && gpt_mul(n, (int64_t)gpt_dtype_bytes(p->t.dtype),
                                   &bytes);
        /* half of the range leaves room for the header and the padding */
        if (!fits || bytes > INT64_MAX / 2 - at)
            return gpt_fail(err, GPT_EDATA, "tensor '%s': size overflows",
                            p->t.name);
        p->bytes = bytes;
        p->offset = at;
        at = gpt_round_up(at + bytes, GPT_GGUF_ALIGN);
        t->files[0].bytes += bytes;
        t->files[0].tensors++;
    }
    return GPT_OK;
}

/* In the order of the forward pass, in which programs that map the file read
 * it. */
static int plan_tensors(struct gpt_target *t, struct gpt_err *err)
{
    struct gguf_plan *plan = t->data;
    struct gpt_param_table table;
    int status = GPT_OK;

    GPT_TRY(gpt_params_build(&table, &t->o.config, err));
    GPT_TRY_GOTO(status,
                 gpt_new(&plan->list, (size_t)table.n * MOST_PARTS + EXTRA,
                         sizeof(*plan->list), "tensors", err),
                 out);
    for (int64_t i = 0; i < table.n; i++)
        GPT_TRY_GOTO(status, plan_param(t, &table.rows[i], err), out);
    GPT_TRY_GOTO(status, plan_head(t, &table, err), out);
    GPT_TRY_GOTO(status, plan_ropes(t, err), out);
    t->n_tensors = table.n;
out:
    gpt_params_free(&table);
    return status;
}

/* ---- the header ---- */

/* The type that most of the file's bytes have, as readers show it. */
static uint32_t file_type(const struct gguf_plan *plan)
{
    const struct planned *most = &plan->list[0];

    /* the largest tensor is a matrix in any model, and of the type that was
     * asked for if its rows fill blocks */
    for (int64_t i = 1; i < plan->n; i++)
        if (plan->list[i].bytes > most->bytes)
            most = &plan->list[i];
    return most->packing ? most->packing->file_type
                         : gpt_gguf_file_type(most->t.dtype);
}

/* The name of the model is that of its file, without the ending. */
static void put_general(struct gpt_gguf_keys *k, const struct gpt_target *t)
{
    const struct gguf_plan *plan = t->data;
    char name[256];

    snprintf(name, sizeof(name), "%s", gpt_path_name(t->o.save));
    if (gpt_path_ends_in(name, ".gguf"))
        name[strlen(name) - strlen(".gguf")] = '\0';
    gpt_gguf_put_text(k, "general.architecture", plan->arch->name);
    gpt_gguf_put_text(k, "general.type", "model");
    gpt_gguf_put_text(k, "general.name", name);
    gpt_gguf_put_int(k, "general.file_type", GPT_GGUF_U32, file_type(plan));
    if (t->o.packing)
        gpt_gguf_put_int(k, "general.quantization_version", GPT_GGUF_U32, 2);
}

/* Everything that can be wrong is found here, the vocabulary included, before
 * a gigabyte is written in vain. */
int gpt_gguf_plan(struct gpt_target *t, struct gpt_err *err)
{
    struct gguf_plan *plan;

    snprintf(t->path, sizeof(t->path), "%s", t->o.save);
    GPT_TRY(gpt_new(&plan, 1, sizeof(*plan), "plan", err));
    t->data = plan;
    GPT_TRY(gpt_gguf_choose(&t->o.config, t->source->family, &plan->arch,
                            err));
    GPT_TRY(gpt_target_files(t, 1, err));
    snprintf(t->files[0].name, sizeof(t->files[0].name), "%s",
             gpt_path_name(t->o.save));
    GPT_TRY(plan_tensors(t, err));
    GPT_TRY(place_tensors(t, err));
    put_general(&plan->keys, t);
    gpt_gguf_put_config(&plan->keys, &t->o.config, plan->arch);
    GPT_TRY(gpt_gguf_put_xielu(&plan->keys, t, err));
    GPT_TRY(gpt_gguf_put_vocabulary(&plan->keys, t, err));
    return plan->keys.failed ? gpt_no_memory(err, "a header") : GPT_OK;
}

/* ---- writing ---- */

/* Dimensions go innermost first. */
static void add_tensor(struct gpt_gguf_keys *h, const struct planned *p)
{
    gpt_gguf_add_string(h, p->t.name, strlen(p->t.name));
    gpt_gguf_add_u32(h, (uint32_t)p->t.ndim);
    for (int d = p->t.ndim - 1; d >= 0; d--)
        gpt_gguf_add_u64(h, (uint64_t)p->t.shape[d]);
    gpt_gguf_add_u32(h, p->packing ? p->packing->ggml_type
                                   : gpt_gguf_number(p->t.dtype));
    gpt_gguf_add_u64(h, (uint64_t)p->offset);
}

/* Places of tensors count from the end of the header, so they are known
 * before its length is. */
static int make_header(struct gpt_gguf_keys *h, const struct gguf_plan *plan,
                       struct gpt_err *err)
{
    static const char zeros[GPT_GGUF_ALIGN];

    h->failed = gpt_buf_add(&h->b, "GGUF", 4) != GPT_OK;
    gpt_gguf_add_u32(h, GPT_GGUF_VERSION);
    gpt_gguf_add_u64(h, (uint64_t)plan->n);
    gpt_gguf_add_u64(h, (uint64_t)plan->keys.n);
    if (gpt_buf_add(&h->b, plan->keys.b.data, plan->keys.b.len) != GPT_OK)
        h->failed = true;
    for (int64_t i = 0; i < plan->n; i++)
        add_tensor(h, &plan->list[i]);
    const size_t pad = (GPT_GGUF_ALIGN - h->b.len % GPT_GGUF_ALIGN) %
                       GPT_GGUF_ALIGN;
    if (h->failed || gpt_buf_add(&h->b, zeros, pad) != GPT_OK)
        return gpt_no_memory(err, "a header");
    return GPT_OK;
}

/* The parts of the file, as the plan has placed them: the header, and each
 * tensor. What is between them and behind the last, which llama.cpp wants
 * padded, too, is never written, and so is zero. The factors of rotary rates
 * have no source: they follow from the configuration, and are in memory. A tile
 * is whole rows, or a part of one that is a multiple of every block, so that no
 * block is cut. */
static int make_parts(const struct gguf_plan *plan,
                      const struct gpt_gguf_keys *header,
                      struct gpt_part **parts, struct gpt_err *err)
{
    const int64_t start = (int64_t)header->b.len;

    GPT_TRY(gpt_new(parts, (size_t)plan->n + 1, sizeof(**parts), "parts", err));
    (*parts)[0] = (struct gpt_part){.data = header->b.data, .bytes = start};
    for (int64_t i = 0; i < plan->n; i++) {
        const struct planned *from = &plan->list[i];
        struct gpt_part *p = &(*parts)[i + 1];

        *p = (struct gpt_part){.offset = start + from->offset,
                               .bytes = from->bytes,
                               .dtype = from->t.dtype,
                               .packing = from->packing};
        memcpy(p->shape, from->t.shape, sizeof(p->shape));
        if (from->constant)
            p->data = from->constant;
        else
            p->tensor = &from->t;
    }
    return GPT_OK;
}

int gpt_gguf_write(struct gpt_target *t, struct gpt_fill *fill,
                   struct gpt_err *err)
{
    const struct gguf_plan *plan = t->data;
    const struct planned *last = &plan->list[plan->n - 1];
    struct gpt_gguf_keys header = {0};
    struct gpt_part *parts = NULL;
    int status;

    GPT_TRY_GOTO(status, make_header(&header, plan, err), done);
    GPT_TRY_GOTO(status, make_parts(plan, &header, &parts, err), done);
    const int64_t end = gpt_round_up(last->offset + last->bytes,
                                     GPT_GGUF_ALIGN);
    status = gpt_fill_file(fill, t->path, t->files[0].name,
                           (int64_t)header.b.len + end, parts, plan->n + 1,
                           err);
done:
    gpt_buf_free(&header.b);
    gpt_free(parts);
    return status;
}
