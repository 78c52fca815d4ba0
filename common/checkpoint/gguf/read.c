/* The front end of GGUF files: a row of checkpoint/format.h. A file becomes a
 * source here; write.c is the reverse. Packed tensors are seen as float,
 * whatever their blocks hold. Start at open_gguf().
 *
 * As with other formats, the match of tensors and parameters is exact in both
 * directions. */
#include "checkpoint/gguf/internal.h"

#include "base/log.h"
#include "base/num.h"
#include "tokenizer/gguf_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most values that rope_freqs.weight is read for. */
enum { MOST_ROPES = 1 << 16 };

/* A tensor of the file, its type resolved. */
struct entry {
    const struct gpt_gguf_tensor *t;
    enum gpt_dtype dtype; /* of what is read from it */
    struct gpt_packed *packed;
    int64_t bytes; /* in the file */
    bool used;
};

struct gguf {
    struct gpt_gguf file;
    const struct gpt_gguf_arch *arch;
    struct gpt_gguf_arch here; /* that one, as this file has its tensors */
    struct entry *entries; /* sorted by name */
    struct gpt_param_table table;
    struct gpt_tensor *tensors; /* one a parameter */
    int64_t n;
    struct gpt_source_file files[1];
    const char *attached[2];
};

/* By its first bytes and not by its name: files of hubs are often called by a
 * digest. */
static bool recognise_gguf(const char *path)
{
    return gpt_gguf_recognises(path);
}

/* Also after a failure halfway: what was not made yet is zero. */
static void close_gguf(struct gpt_source *s)
{
    struct gguf *g = s->data;

    if (!g)
        return;
    for (int64_t i = 0; i < g->n; i++)
        gpt_tensor_free(&g->tensors[i]);
    gpt_free(g->tensors);
    gpt_free(g->entries);
    gpt_params_free(&g->table);
    gpt_gguf_close(&g->file);
    gpt_free(g);
}

/* ---- tensors of the file ---- */

/* Blocks lie along the last dimension, and none is shared by two rows. */
static int set_packed(struct gguf *g, struct entry *e,
                      const struct gpt_packing *p, struct gpt_arena *arena,
                      struct gpt_err *err)
{
    const struct gpt_gguf_tensor *t = e->t;
    const int64_t row = t->ndim ? t->shape[t->ndim - 1] : 1;

    if (row % p->elements)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s': rows of %lld elements in blocks of "
                        "%lld",
                        gpt_in_path(g->file.in), t->name.data, (long long)row,
                        (long long)p->elements);
    e->packed = gpt_arena_alloc(arena, 1, sizeof(*e->packed));
    if (!e->packed)
        return gpt_no_memory(err, "tensors");
    *e->packed = (struct gpt_packed){
        .packing = p, .begin = t->offset, .elements = t->elements};
    e->dtype = GPT_F32;
    return GPT_OK;
}

/* The size follows from the type, and the end must be in the file. */
static int set_type(struct gguf *g, struct entry *e, struct gpt_arena *arena,
                    struct gpt_err *err)
{
    const struct gpt_gguf_tensor *t = e->t;
    const struct gpt_packing *p = gpt_packing_of_type(t->type);

    if (p)
        GPT_TRY(set_packed(g, e, p, arena, err));
    else if (!gpt_gguf_dtype(t->type, &e->dtype))
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s' is of ggml's type %u (%s), which is "
                        "not supported",
                        gpt_in_path(g->file.in), t->name.data, t->type,
                        gpt_gguf_other_type(t->type));
    if (!gpt_mul(p ? t->elements / p->elements : t->elements,
                 p ? p->bytes : (int64_t)gpt_dtype_bytes(e->dtype), &e->bytes))
        return gpt_fail(err, GPT_EDATA, "%s: tensor '%s': size overflows",
                        gpt_in_path(g->file.in), t->name.data);
    const int64_t size = gpt_in_size(g->file.in);
    if (t->offset > size || e->bytes > size - t->offset)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s': %lld bytes from %lld on are not in "
                        "the file, which has %lld: it is cut short",
                        gpt_in_path(g->file.in), t->name.data,
                        (long long)e->bytes, (long long)t->offset,
                        (long long)size);
    return GPT_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return (x->t->offset > y->t->offset) - (x->t->offset < y->t->offset);
}

/* Names are unique: the header was refused otherwise. */
static int compare_names(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return strcmp(x->t->name.data, y->t->name.data);
}

/* Sorted by place to find overlaps, then by name to be found. */
static int list_entries(struct gpt_source *s, struct gguf *g,
                        struct gpt_err *err)
{
    const int64_t n = g->file.n_tensors;

    GPT_TRY(gpt_new(&g->entries, (size_t)n, sizeof(*g->entries), "tensors",
                    err));
    for (int64_t i = 0; i < n; i++) {
        g->entries[i].t = &g->file.tensors[i];
        GPT_TRY(set_type(g, &g->entries[i], &s->arena, err));
    }
    if (n)
        qsort(g->entries, (size_t)n, sizeof(*g->entries), compare_places);
    for (int64_t i = 1; i < n; i++)
        if (g->entries[i - 1].t->offset + g->entries[i - 1].bytes >
            g->entries[i].t->offset)
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensors '%s' and '%s' overlap",
                            gpt_in_path(g->file.in),
                            g->entries[i - 1].t->name.data,
                            g->entries[i].t->name.data);
    if (n)
        qsort(g->entries, (size_t)n, sizeof(*g->entries), compare_names);
    return GPT_OK;
}

/* A search, as names come from two tables and hostile files have many
 * tensors. */
static struct entry *find_entry(const struct gguf *g, const char *name)
{
    const struct gpt_gguf_tensor t = {.name = {name, strlen(name)}};
    const struct entry key = {.t = &t};

    return g->file.n_tensors ? bsearch(&key, g->entries,
                                       (size_t)g->file.n_tensors,
                                       sizeof(*g->entries), compare_names)
                             : NULL;
}

/* Appends to `t`, a tensor of its shape, all of an entry. */
static int add_entry(struct gpt_tensor *t, const struct gguf *g,
                     const struct entry *e, struct gpt_err *err)
{
    static const int64_t zero[GPT_TENSOR_DIMS];

    GPT_TRY(gpt_tensor_add_rows(t, g->file.in, e->packed ? 0 : e->t->offset,
                                e->dtype, zero, t->shape, err));
    t->pieces[t->n - 1].packed = e->packed;
    return GPT_OK;
}

/* ---- parameters ---- */

/* Vectors are of two dimensions in a parameter table, the second of size 1. */
static bool fits(const struct gpt_gguf_tensor *t, int ndim,
                 const int64_t *shape)
{
    return t->ndim == ndim && t->shape[0] == shape[0] &&
           (ndim == 1 || t->shape[1] == shape[1]) &&
           (ndim < 3 || t->shape[2] == shape[2]);
}

/* "4 x 24 x 16", of four numbers at most. */
static const char *show_shape(char text[96], int ndim, const int64_t *shape)
{
    int at = 0;

    *text = '\0';
    for (int i = 0; i < ndim && i < 4; i++)
        at += snprintf(text + at, 96 - (size_t)at, "%s%lld", i ? " x " : "",
                       (long long)shape[i]);
    return text;
}

/* Floats as they are stored become those of the model, as packed ones do. */
static int set_shifted(struct gguf *g, struct entry *e,
                       const struct gpt_packing *packing,
                       struct gpt_arena *arena, struct gpt_err *err)
{
    if (e->packed || e->dtype != GPT_F32)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s' is of ggml's type %u: only F32 is "
                        "supported of norms of architecture %s",
                        gpt_in_path(g->file.in), e->t->name.data, e->t->type,
                        g->arch->name);
    return set_packed(g, e, packing, arena, err);
}

/* The entry is marked, so that a tensor that no parameter uses is found at
 * the end. */
static int open_part(struct gguf *g, const struct gpt_config *c,
                     const struct gpt_param *p, const struct gpt_hf_rule *rule,
                     struct gpt_tensor *here, struct gpt_arena *arena,
                     struct gpt_err *err)
{
    char name[GPT_PARAM_NAME + 32];
    const int ndim = gpt_hf_ndim(rule, p);
    int64_t shape[GPT_HF_DIMS];

    gpt_hf_name(name, sizeof(name), rule, p, 0, "");
    gpt_hf_shape(c, rule, p, shape);
    struct entry *e = find_entry(g, name);
    /* a bias that this model does not have is not asked for */
    if (!e)
        return gpt_fail(err, GPT_EDATA, "%s: no tensor '%s'",
                        gpt_in_path(g->file.in), name);
    if (!fits(e->t, ndim, shape)) {
        char there[96], wanted[96];

        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s' is %s; its keys say %s",
                        gpt_in_path(g->file.in), name,
                        show_shape(there, e->t->ndim, e->t->shape),
                        show_shape(wanted, ndim, shape));
    }
    e->used = true;
    if (gpt_gguf_shifted(g->arch, p))
        GPT_TRY(set_shifted(g, e, gpt_gguf_shifted(g->arch, p), arena, err));
    struct gpt_tensor there = gpt_tensor_make(name, e->dtype, ndim, shape);
    gpt_tensor_widen(here, e->dtype);
    int status;
    GPT_TRY_GOTO(status, add_entry(&there, g, e, err), out);
    status = gpt_hf_import(here, &there, c, rule, p, 0, err);
out:
    gpt_tensor_free(&there);
    return status;
}

static int open_param(struct gguf *g, const struct gpt_config *c,
                      const struct gpt_param *p, struct gpt_tensor *here,
                      struct gpt_arena *arena, struct gpt_err *err)
{
    const struct gpt_hf_rule *rule;
    size_t at = 0;

    *here = gpt_tensor_make(p->name, GPT_F32, p->ndim, p->shape);
    if (gpt_gguf_xielu_key(p->role))
        return gpt_gguf_read_alpha(here, &g->file, c, p, err);
    while ((rule = gpt_gguf_next_rule(g->arch, c, p, &at)))
        GPT_TRY(open_part(g, c, p, rule, here, arena, err));
    if (here->n == 0)
        return gpt_fail(err, GPT_EDATA, "%s: architecture %s has no tensor for "
                        "'%s'", gpt_in_path(g->file.in), g->arch->name,
                        p->name);
    return GPT_OK;
}

/* The number of layers is compared with that of tensors first: the parameter
 * table has rows for as many layers as a key claims. */
static int open_params(struct gguf *g, const struct gpt_config *c,
                       struct gpt_arena *arena, struct gpt_err *err)
{
    if (c->num_layers > g->file.n_tensors)
        return gpt_fail(err, GPT_EDATA,
                        "%s: its keys say %lld layers, it has %lld tensors",
                        gpt_in_path(g->file.in), (long long)c->num_layers,
                        (long long)g->file.n_tensors);
    GPT_TRY(gpt_params_build(&g->table, c, err));
    GPT_TRY(gpt_new(&g->tensors, (size_t)g->table.n, sizeof(*g->tensors),
                    "tensors", err));
    for (int64_t i = 0; i < g->table.n; i++)
        GPT_TRY(open_param(g, c, &g->table.rows[i], &g->tensors[g->n++], arena,
                           err));
    for (int64_t i = 0; i < g->file.n_tensors; i++)
        if (!g->entries[i].used)
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensor '%s' is not one of architecture %s",
                            gpt_in_path(g->file.in),
                            g->entries[i].t->name.data, g->arch->name);
    return GPT_OK;
}

/* ---- the configuration ---- */

/* A file of a tied model may hold the word table a second time, because
 * llama.cpp wants an output layer. True in *tied when it is that or none. */
static int settle_head(struct gguf *g, const struct entry *words, bool *tied,
                       struct gpt_err *err)
{
    enum { BLOCK = 1 << 20 };
    struct entry *head = find_entry(g, GPT_GGUF_HEAD);
    uint8_t *blocks;
    int status = GPT_OK;

    /* of another type or size, or packed alone, it is a layer of its own */
    *tied = !head;
    if (!head || head->bytes != words->bytes || head->t->type != words->t->type)
        return GPT_OK;
    GPT_TRY(gpt_new(&blocks, 2, BLOCK, "tensors", err));
    *tied = true;
    for (int64_t at = 0; *tied && status == GPT_OK && at < head->bytes;
         at += BLOCK) {
        const size_t n = (size_t)gpt_min_i64(BLOCK, head->bytes - at);

        GPT_TRY_GOTO(status, gpt_in_read(g->file.in, blocks,
                                         words->t->offset + at, n, err), out);
        GPT_TRY_GOTO(status, gpt_in_read(g->file.in, blocks + BLOCK,
                                         head->t->offset + at, n, err), out);
        *tied = memcmp(blocks, blocks + BLOCK, n) == 0;
    }
    head->used = *tied;
out:
    gpt_free(blocks);
    return status;
}

/* Rotary factors are constants of the model, so they are read here and now. */
static int read_list(struct gguf *g, const char *name,
                     struct gpt_gguf_list *list, struct gpt_err *err)
{
    struct entry *e = find_entry(g, name);

    if (!e)
        return GPT_OK;
    if (e->t->type != gpt_gguf_number(GPT_F32) || e->t->ndim != 1 ||
        e->t->elements > MOST_ROPES)
        return gpt_fail(err, GPT_EDATA, "%s: tensor '%s' is no list of F32",
                        gpt_in_path(g->file.in), name);
    e->used = true;
    list->n = e->t->elements;
    GPT_TRY(gpt_new(&list->x, (size_t)list->n, sizeof(*list->x),
                    "rotary factors", err));
    return gpt_in_read(g->file.in, list->x, e->t->offset,
                       (size_t)list->n * sizeof(*list->x), err);
}

/* In any layer: those at the beginning may have no experts. */
static bool has_router_bias(const struct gguf *g)
{
    for (int64_t i = 0; i < g->file.n_tensors; i++)
        if (gpt_path_ends_in(g->entries[i].t->name.data, ".exp_probs_b.bias"))
            return true;
    return false;
}

/* The word table tells the number of tokens, even where a key does: it is
 * what ids are looked up in. */
static int read_config(struct gpt_source *s, struct gguf *g,
                       struct gpt_err *err)
{
    const struct entry *words = find_entry(g, GPT_GGUF_WORDS);
    struct gpt_gguf_seen seen = {
        .biases = {find_entry(g, "blk.0.attn_q.bias") ||
                       find_entry(g, "blk.0.attn_qkv.bias"),
                   find_entry(g, "blk.0.attn_output.bias") != NULL,
                   find_entry(g, "blk.0.ffn_down.bias") != NULL}};
    const struct entry *norms = find_entry(g, "blk.0.attn_q_norm.weight");
    struct gpt_gguf_lists *lists = &seen.lists;
    int status;

    seen.norms = norms != NULL;
    seen.router_bias = has_router_bias(g);
    seen.norms_each = norms && norms->t->ndim == 2;
    if (!words || words->t->ndim != 2)
        return gpt_fail(err, GPT_EDATA, "%s: no tensor '%s' of two dimensions",
                        gpt_in_path(g->file.in), GPT_GGUF_WORDS);
    GPT_TRY(settle_head(g, words, &seen.tied, err));
    GPT_TRY_GOTO(status, read_list(g, GPT_GGUF_FREQS, &lists->freqs, err), out);
    GPT_TRY_GOTO(status, read_list(g, GPT_GGUF_LONG, &lists->many, err), out);
    GPT_TRY_GOTO(status, read_list(g, GPT_GGUF_SHORT, &lists->few, err), out);
    seen.words = words->t->shape[0];
    GPT_TRY_GOTO(status, gpt_gguf_read_config(&s->config, &g->arch, &g->file,
                                              &seen, err), out);
    g->here = *g->arch;
    if (find_entry(g, "blk.0.attn_q.weight"))
        gpt_gguf_take_apart(&g->here);
    if (find_entry(g, "blk.0.attn_kv_b.weight"))
        gpt_gguf_take_together(&g->here);
    g->arch = &g->here;
out:
    gpt_free(lists->freqs.x);
    gpt_free(lists->many.x);
    gpt_free(lists->few.x);
    return status;
}

/* ---- the source ---- */

/* A part of several is refused: which files the others are, no key says. */
static int check_split(const struct gpt_gguf *g, struct gpt_err *err)
{
    int64_t parts = 0;

    GPT_TRY(gpt_gguf_int(g, "split.count", 0, INT32_MAX, &parts, err));
    /* 0 and 1 are written for whole files by some versions */
    if (parts <= 1)
        return GPT_OK;
    gpt_fail(err, GPT_EDATA, "%s: it is one of %lld files of a model",
             gpt_in_path(g->in), (long long)parts);
    return gpt_hint(err, "join them with llama.cpp's llama-gguf-split");
}

/* Names in listings are without directories, as for other formats. */
static void fill_file(struct gpt_source *s, struct gguf *g)
{
    g->files[0] = (struct gpt_source_file){
        .name = gpt_path_name(s->dir),
        .bytes = gpt_in_size(g->file.in),
        .tensors = g->file.n_tensors,
    };
    s->files = g->files;
    s->n_files = 1;
    s->weight_bytes = g->files[0].bytes;
}

/* The vocabulary is attached under the name of the file that it stands for, and
 * with it what else is said of tokens: their ends, a template of chats. One
 * that cannot be read is left out, as weights do not need it. */
static int list_vocabulary(struct gpt_source *s, struct gguf *g,
                           struct gpt_err *err)
{
    const char *model = "none", *name;

    GPT_TRY(gpt_gguf_vocabulary_name(&name, s->dir, err));
    GPT_TRY(gpt_gguf_text(&g->file, "tokenizer.ggml.model", &model, err));
    if (!name && strcmp(model, "none") != 0 && strcmp(model, "no_vocab") != 0)
        gpt_warn("%s: its vocabulary, of the model '%.60s', is not supported, "
                 "and left out", s->dir, model);
    g->attached[0] = name;
    s->attached = g->attached;
    g->attached[1] = GPT_HF_TOKENIZER_CONFIG;
    s->n_attached = name ? 2 : 0;
    return GPT_OK;
}

/* Padding is applied when the parameters become views, as for Hugging Face's
 * directories. */
static int open_gguf(struct gpt_source *s, const char *path,
                     const struct gpt_source_options *o, struct gpt_err *err)
{
    struct gguf *g;

    if (o->iteration >= 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "%s: a GGUF file holds one model and no iterations; iteration "
                 "%lld is asked for",
                 path, (long long)o->iteration);
        return gpt_hint(err, "ask for no iteration");
    }
    GPT_TRY(gpt_new(&g, 1, sizeof(*g), "model", err));
    s->data = g;
    s->dir = gpt_arena_strdup(&s->arena, path);
    if (!s->dir)
        return gpt_no_memory(err, "names of files");
    GPT_TRY(gpt_gguf_open(&g->file, path, err));
    /* a part would fail for a tensor that it lacks, which is no explanation */
    GPT_TRY(check_split(&g->file, err));
    GPT_TRY(list_entries(s, g, err));
    GPT_TRY(read_config(s, g, err));
    GPT_TRY(gpt_config_complete(&s->config, gpt_max_i64(o->divisible_by, 1),
                                gpt_max_i64(o->tp_size, 1), err));
    GPT_TRY(open_params(g, &s->config, &s->arena, err));
    GPT_TRY(gpt_gguf_read_ends(s, &g->file, err));
    s->family = g->arch->family;
    s->tensors = g->tensors;
    s->n_tensors = g->n;
    fill_file(s, g);
    return list_vocabulary(s, g, err);
}

/* Types are those that are read: F32 for packed ones, whose own name stands
 * beside the file's. */
static int list_gguf(const struct gpt_source *s, gpt_stored_visit *visit,
                     void *context, struct gpt_err *err)
{
    const struct gguf *g = s->data;

    for (int64_t i = 0; i < g->file.n_tensors; i++) {
        const struct entry *e = &g->entries[i];
        struct gpt_stored stored = {.name = e->t->name.data,
                                    .file = g->files[0].name,
                                    .dtype = e->dtype,
                                    .ndim = e->t->ndim,
                                    .slices = 1};

        if (e->packed) {
            stored.packing = e->packed->packing->name;
            stored.bytes = e->bytes;
        }
        memcpy(stored.shape, e->t->shape, sizeof(e->t->shape));
        GPT_TRY(visit(context, &stored, err));
    }
    return GPT_OK;
}

const struct gpt_format gpt_format_gguf = {
    .name = "gguf",
    .title = "gguf",
    .keeps_ends = 2,
    .is_file = true,
    .has_packings = true,
    .recognises = recognise_gguf,
    .open = open_gguf,
    .close = close_gguf,
    .list = list_gguf,
    .plan = gpt_gguf_plan,
    .free_plan = gpt_gguf_free_plan,
    .write = gpt_gguf_write,
};
