/* The front end of llm.c's files, model_*.bin: a row of checkpoint/format.h. A
 * file is 256 numbers of 32 bits and then the elements of GPT-2, one parameter
 * of all layers after the other, all of one type. Source: llm.c of A. Karpathy,
 * train_gpt2.py, write_model(). Start at open_llmc() and plan_llmc().
 *
 * Nothing in the file has a name: places follow from the sizes in its head, and
 * the size of the file must be what follows from them. State of the optimizer
 * is in other files, state_*.bin, one a rank: state.h. */
#include "checkpoint/format.h"
#include "checkpoint/huggingface/huggingface.h"

#include "backend.h"
#include "base/num.h"
#include "checkpoint/fill.h"
#include "checkpoint/llmc/state.h"
#include "checkpoint/names.h"
#include "checkpoint/run_state.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    MAGIC = 20240326,
    HEAD_WORDS = 256,
    HEAD_BYTES = HEAD_WORDS * 4,
    PAD_ROWS = 128, /* the word table has a multiple of so many rows */
    MOST = 1 << 24, /* of any size in the head */
    NAME = 24,      /* bytes of a name in listings */
};

/* Version numbers are types. */
static const struct {
    enum gpt_dtype dtype;
    uint32_t version;
} versions[] = {{GPT_F32, 3}, {GPT_BF16, 5}};

/* In the order of the file. '%': one a layer, all layers in a row. */
#define RULE(role, order, name) {GPT_##role, GPT_HF_##order, name}
static const struct gpt_hf_rule rules[] = {
    RULE(WORD_EMBEDDING, SAME, "wte"),
    RULE(POSITION_EMBEDDING, SAME, "wpe"),
    RULE(NORM1_WEIGHT, SAME, "ln1w.%"),
    RULE(NORM1_BIAS, SAME, "ln1b.%"),
    RULE(QKV_WEIGHT, QKV, "qkvw.%"),
    RULE(QKV_BIAS, QKV, "qkvb.%"),
    RULE(PROJ_WEIGHT, SAME, "attprojw.%"),
    RULE(PROJ_BIAS, SAME, "attprojb.%"),
    RULE(NORM2_WEIGHT, SAME, "ln2w.%"),
    RULE(NORM2_BIAS, SAME, "ln2b.%"),
    RULE(FC1_WEIGHT, SAME, "fcw.%"),
    RULE(FC1_BIAS, SAME, "fcb.%"),
    RULE(FC2_WEIGHT, SAME, "fcprojw.%"),
    RULE(FC2_BIAS, SAME, "fcprojb.%"),
    RULE(FINAL_NORM_WEIGHT, SAME, "lnfw"),
    RULE(FINAL_NORM_BIAS, SAME, "lnfb"),
};
enum { N_RULES = sizeof(rules) / sizeof(rules[0]) };

struct llmc {
    struct gpt_in *in;
    enum gpt_dtype dtype;
    int64_t rows; /* of the word table in the file, dummies included */
    struct gpt_param_table table;
    struct gpt_llmc_state state;
    struct gpt_tensor *tensors; /* one a parameter, then moments of each */
    int64_t n;
    char *names; /* (table.n, NAME) as listings show them */
    cJSON *run;
    struct gpt_source_file files[1];
};

/* What the format means by a model: all else is in the head. */
static struct gpt_config base_config(void)
{
    return (struct gpt_config){.position_embedding = GPT_POSITION_LEARNED,
                               .activation = GPT_GELU,
                               .norm_epsilon = 1e-5,
                               .init_std = 0.02,
                               .tied_embeddings = true};
}

/* The suffix is that of many formats, the first number is that of this one
 * alone; llm.c's files of tokens and of the optimizer have others. */
static bool recognise_llmc(const char *path)
{
    struct gpt_in *in;
    uint8_t word[4] = {0};

    if (gpt_path_is_dir(path) || gpt_in_open(&in, path, NULL) != GPT_OK)
        return false;
    bool found = gpt_in_size(in) >= HEAD_BYTES &&
                 gpt_in_read(in, word, 0, sizeof(word), NULL) == GPT_OK &&
                 gpt_get_u32(word) == MAGIC;
    gpt_in_close(in);
    return found;
}

/* ---- places ---- */

/* A search of sixteen rows. Every parameter of GPT-2 has one, and a model that
 * has others is refused before. */
static const struct gpt_hf_rule *rule_of(const struct gpt_param *p)
{
    for (size_t i = 0; i < N_RULES; i++)
        if (rules[i].role == p->role)
            return &rules[i];
    return NULL;
}

/* Elements of one layer's part of a rule, or of the whole where it has no
 * layers. The word table has its dummy rows. */
static int64_t count_of(const struct gpt_config *c, const struct gpt_param *p,
                        int64_t rows)
{
    int64_t shape[2];

    gpt_hf_shape(c, rule_of(p), p, shape);
    return (p->vocab_rows ? rows : shape[0]) *
           (p->ndim == 2 ? shape[1] : 1);
}

/* Where each rule begins, in elements after the head, and how many elements it
 * has in a layer; from the rows of the first layer. */
struct place {
    int64_t begin, count;
};

/* A list of sixteen in place of a sum for each parameter: models have
 * hundreds of layers, and hostile heads claim thousands. */
static void find_places(struct place *places, const struct gpt_config *c,
                        const struct gpt_param_table *table, int64_t rows)
{
    int64_t at = 0;

    memset(places, 0, N_RULES * sizeof(*places));
    for (int64_t i = 0; i < table->n; i++)
        if (table->rows[i].layer <= 0)
            places[rule_of(&table->rows[i]) - rules].count =
                count_of(c, &table->rows[i], rows);
    for (size_t r = 0; r < N_RULES; r++) {
        places[r].begin = at;
        at += places[r].count *
              (strchr(rules[r].name, '%') ? c->num_layers : 1);
    }
}

/* Elements of the file, by the sizes in its head; false on overflow. Computed
 * before a table is built for as many layers as a hostile head claims. */
static bool total_of(const struct gpt_config *c, int64_t rows, int64_t *total)
{
    const int64_t w = c->hidden_size;
    int64_t words, layer, layers;

    return gpt_mul(rows + c->max_positions + 2, w, &words) &&
           gpt_mul(12 * w + 13, w, &layer) &&
           gpt_mul(layer, c->num_layers, &layers) &&
           gpt_add(words, layers, total);
}

/* ---- reading ---- */

/* Also after a failure halfway. */
static void close_llmc(struct gpt_source *s)
{
    struct llmc *m = s->data;

    if (!m)
        return;
    for (int64_t i = 0; i < m->n; i++)
        gpt_tensor_free(&m->tensors[i]);
    gpt_free(m->tensors);
    gpt_free(m->names);
    gpt_params_free(&m->table);
    gpt_llmc_state_close(&m->state);
    cJSON_Delete(m->run);
    gpt_in_close(m->in);
    gpt_free(m);
}

/* Sizes are in words 2 to 7. */
static int read_head(struct gpt_config *c, struct llmc *m, struct gpt_err *err)
{
    const struct {
        const char *name;
        int64_t *to;
    } sizes[] = {{"max_seq_len", &c->max_positions},
                 {"vocab_size", &c->vocab_size},
                 {"num_layers", &c->num_layers},
                 {"num_heads", &c->num_attention_heads},
                 {"channels", &c->hidden_size},
                 {"padded_vocab_size", &m->rows}};
    uint8_t head[HEAD_BYTES];
    size_t v = 0;

    GPT_TRY(gpt_in_read(m->in, head, 0, sizeof(head), err));
    const uint32_t version = gpt_get_u32(head + 4);
    while (v < GPT_COUNT(versions) && versions[v].version != version)
        v++;
    if (v == GPT_COUNT(versions))
        return gpt_fail(err, GPT_EDATA,
                        "%s: version %u: only 3 (fp32) and 5 (bf16) of llm.c's "
                        "files are supported",
                        gpt_in_path(m->in), version);
    m->dtype = versions[v].dtype;
    for (size_t i = 0; i < GPT_COUNT(sizes); i++) {
        const uint32_t n = gpt_get_u32(head + 4 * (2 + i));

        /* a negative number is a large one here */
        if (n == 0 || n > MOST)
            return gpt_fail(err, GPT_EDATA,
                            "%s: offset %zu: %s is %lld, out of range: 1 to %d",
                            gpt_in_path(m->in), 4 * (2 + i), sizes[i].name,
                            (long long)(int32_t)n, MOST);
        *sizes[i].to = n;
    }
    return GPT_OK;
}

/* The size of the file is the only check that its head is of this data. */
static int check_size(const struct gpt_config *c, const struct llmc *m,
                      struct gpt_err *err)
{
    int64_t total = 0, bytes = 0;

    if (m->rows < c->vocab_size)
        return gpt_fail(err, GPT_EDATA,
                        "%s: padded_vocab_size is %lld, less than vocab_size "
                        "%lld",
                        gpt_in_path(m->in), (long long)m->rows,
                        (long long)c->vocab_size);
    if (total_of(c, m->rows, &total) &&
        gpt_mul(total, (int64_t)gpt_dtype_bytes(m->dtype), &bytes) &&
        bytes == gpt_in_size(m->in) - HEAD_BYTES)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: the sizes in its head make %lld bytes of elements, "
                    "the file has %lld",
                    gpt_in_path(m->in), (long long)bytes,
                    (long long)(gpt_in_size(m->in) - HEAD_BYTES));
}

/* The true rows of the word table. Dummy rows of this program's padding repeat
 * the last of them, as with other formats, and are zero in moments, as no step
 * has touched them. Weights in fp32 are those of the state, where it has
 * them. */
static int open_param(struct llmc *m, const struct gpt_config *c,
                      const struct gpt_param *p, const struct place *place,
                      enum gpt_kind kind, struct gpt_tensor *here,
                      struct gpt_err *err)
{
    static const int64_t zero[GPT_TENSOR_DIMS];
    const bool from_state = kind != GPT_KIND_PARAMETERS || m->state.masters;
    const enum gpt_dtype dtype = from_state ? GPT_F32 : m->dtype;
    const int64_t at =
        place->begin + place->count * gpt_max_i64(p->layer, 0);
    int64_t shape[2];
    int status;

    gpt_hf_shape(c, rule_of(p), p, shape);
    here->dtype = dtype;
    struct gpt_tensor there = gpt_tensor_make(p->name, dtype, p->ndim, shape);
    if (from_state)
        status = gpt_llmc_state_add(&m->state, &there,
                                    kind == GPT_KIND_EXP_AVG ? GPT_LLMC_M
                                    : kind == GPT_KIND_EXP_AVG_SQ
                                        ? GPT_LLMC_V
                                        : GPT_LLMC_MASTER,
                                    at, place->count, err);
    else
        status = gpt_tensor_add_rows(
            &there, m->in, HEAD_BYTES + at * (int64_t)gpt_dtype_bytes(dtype),
            dtype, zero, shape, err);
    if (status == GPT_OK)
        status = p->vocab_rows
                     ? gpt_tensor_resize(here, &there,
                                         kind == GPT_KIND_PARAMETERS, err)
                     : gpt_hf_import(here, &there, c, rule_of(p), p, 0,
                                     err);
    gpt_tensor_free(&there);
    return status;
}

/* The table has room for as many layers as the head says, which the size of
 * the file has borne out by now. */
static int open_params(struct gpt_source *s, struct gpt_err *err)
{
    struct llmc *m = s->data;
    const int kinds = m->state.n ? GPT_N_ADAM_KINDS : 1;
    struct place places[N_RULES];

    GPT_TRY(gpt_params_build(&m->table, &s->config, err));
    GPT_TRY(gpt_new(&m->tensors, (size_t)(m->table.n * kinds),
                    sizeof(*m->tensors), "tensors", err));
    GPT_TRY(gpt_new(&m->names, (size_t)m->table.n, NAME, "names", err));
    find_places(places, &s->config, &m->table, m->rows);
    for (int64_t i = 0; i < m->table.n * kinds; i++) {
        const struct gpt_param *p = &m->table.rows[i % m->table.n];
        const enum gpt_kind kind = (enum gpt_kind)(i / m->table.n);
        const char *name = gpt_arena_printf(&s->arena, "%s%s",
                                            gpt_kind_prefix(kind), p->name);

        if (!name)
            return gpt_no_memory(err, "names of tensors");
        if (kind == GPT_KIND_PARAMETERS)
            gpt_hf_name(m->names + i * NAME, NAME, rule_of(p), p, 0, "");
        m->tensors[m->n] = gpt_tensor_make(name, m->dtype, p->ndim, p->shape);
        GPT_TRY(open_param(m, &s->config, p, &places[rule_of(p) - rules], kind,
                           &m->tensors[m->n++], err));
    }
    return GPT_OK;
}

/* The step is all that the files say of a run in words that others have. */
static int open_state(struct gpt_source *s, struct gpt_err *err)
{
    struct llmc *m = s->data;

    GPT_TRY(gpt_llmc_state_open(
        &m->state, s->dir,
        (gpt_in_size(m->in) - HEAD_BYTES) / (int64_t)gpt_dtype_bytes(m->dtype),
        err));
    if (!m->state.n)
        return GPT_OK;
    m->run = gpt_run_state_make(m->state.step, 0, 0);
    gpt_run_state_put_run(m->run, m->state.step, GPT_RUN_SEED_UNKNOWN, "llm.c");
    s->state = m->run;
    s->iteration = m->state.step;
    s->left_out = "state of random numbers, the loader's place in its data and "
                  "its permutations";
    return GPT_OK;
}

/* The head says less than a parameter table needs; the rest is GPT-2's. */
static int open_llmc(struct gpt_source *s, const char *path,
                     const struct gpt_source_options *o, struct gpt_err *err)
{
    struct gpt_err inner = {0};
    struct llmc *m;

    if (o->iteration >= 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "%s: a file of llm.c holds one model and no iterations; "
                 "iteration %lld is asked for",
                 path, (long long)o->iteration);
        return gpt_hint(err, "ask for no iteration");
    }
    GPT_TRY(gpt_new(&m, 1, sizeof(*m), "model", err));
    s->data = m;
    s->dir = gpt_arena_strdup(&s->arena, path);
    if (!s->dir)
        return gpt_no_memory(err, "names of files");
    GPT_TRY(gpt_in_open(&m->in, path, err));
    s->config = base_config();
    GPT_TRY(read_head(&s->config, m, err));
    GPT_TRY(check_size(&s->config, m, err));
    if (gpt_config_complete(&s->config, gpt_max_i64(o->divisible_by, 1),
                            gpt_max_i64(o->tp_size, 1), &inner) != GPT_OK)
        return gpt_fail(err, GPT_EDATA, "%s: %s", path, inner.text);
    if (o->optimizer)
        GPT_TRY(open_state(s, err));
    GPT_TRY(open_params(s, err));
    m->files[0] = (struct gpt_source_file){
        .name = gpt_path_name(s->dir),
        .bytes = gpt_in_size(m->in),
        .tensors = N_RULES,
    };
    /* the format names no tokens: which one ends a text is a matter of the
     * vocabulary that a user names */
    s->family = "gpt2";
    s->tensors = m->tensors;
    s->n_tensors = m->n;
    s->files = m->files;
    s->n_files = 1;
    s->weight_bytes = m->files[0].bytes;
    return GPT_OK;
}

/* Names are the fields of llm.c's struct, and a layer's number. */
static int list_llmc(const struct gpt_source *s, gpt_stored_visit *visit,
                     void *context, struct gpt_err *err)
{
    const struct llmc *m = s->data;

    for (int64_t i = 0; i < m->table.n; i++) {
        const struct gpt_param *p = &m->table.rows[i];
        struct gpt_stored stored = {.file = m->files[0].name,
                                    .dtype = m->dtype,
                                    .ndim = p->ndim,
                                    .slices = 1};

        stored.name = m->names + i * NAME;
        gpt_hf_shape(&s->config, rule_of(p), p, stored.shape);
        if (p->vocab_rows)
            stored.shape[0] = m->rows;
        GPT_TRY(visit(context, &stored, err));
    }
    return GPT_OK;
}

/* ---- writing ---- */

struct llmc_plan {
    struct gpt_param_table table;
    enum gpt_dtype dtype;
    int64_t rows;
    struct gpt_tensor *list; /* in the order of the file */
    int64_t n;
};

/* Tensors are views of the source's, which is closed later. */
static void free_llmc_plan(struct gpt_target *t)
{
    struct llmc_plan *p = t->data;

    if (!p)
        return;
    for (int64_t i = 0; i < p->n; i++)
        gpt_tensor_free(&p->list[i]);
    gpt_free(p->list);
    gpt_params_free(&p->table);
    gpt_free(p);
}

/* The type that holds the values of all tensors, unless one is asked for. Norms
 * of fp32 beside matrices of bf16 are usual. */
static int choose_type(struct gpt_target *t, struct llmc_plan *plan,
                       struct gpt_err *err)
{
    plan->dtype = t->o.dtype;
    for (int64_t i = 0; t->o.dtype == GPT_N_DTYPES && i < plan->table.n; i++) {
        const struct gpt_tensor *here =
            gpt_source_find(t->source, plan->table.rows[i].name);

        if (here)
            plan->dtype = i ? gpt_dtype_join(plan->dtype, here->dtype)
                            : here->dtype;
    }
    for (size_t i = 0; i < GPT_COUNT(versions); i++)
        if (versions[i].dtype == plan->dtype)
            return GPT_OK;
    gpt_fail(err, GPT_EDATA,
             "llm.c's files hold fp32 or bf16, and no %s",
             gpt_dtype_name(plan->dtype));
    return gpt_hint(err, "choose one of them as the type of parameters");
}

/* The reader assumes all of these. */
static int check_model(const struct gpt_config *c, struct gpt_err *err)
{
    struct gpt_config gpt2 = base_config();
    const char *field;

    /* a width of the feed-forward layer or of heads that is not GPT-2's, or an
     * output layer of its own, shows as a difference */
    gpt2.num_layers = c->num_layers;
    gpt2.hidden_size = c->hidden_size;
    gpt2.num_attention_heads = c->num_attention_heads;
    gpt2.max_positions = c->max_positions;
    gpt2.vocab_size = c->vocab_size;
    GPT_TRY(gpt_config_complete(&gpt2, 1, 1, err));
    field = gpt_config_difference(c, &gpt2);
    if (!field)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "llm.c's files hold GPT-2 alone; this model differs in %s",
                    field);
}

/* The word table is filled up with rows of zeros. */
static int plan_param(struct gpt_target *t, const struct gpt_param *p,
                      struct gpt_err *err)
{
    struct llmc_plan *plan = t->data;
    const struct gpt_tensor *here = gpt_source_find(t->source, p->name);
    int64_t shape[2];
    int status;

    if (!here || here->ndim != p->ndim || here->shape[0] != p->shape[0] ||
        (p->ndim == 2 && here->shape[1] != p->shape[1]))
        return gpt_fail(err, GPT_EDATA, "tensor '%s' is absent, or not of its "
                        "model's shape", p->name);
    gpt_hf_shape(&t->o.config, rule_of(p), p, shape);
    struct gpt_tensor there =
        gpt_tensor_make(p->name, here->dtype, p->ndim, shape);
    struct gpt_tensor *to = &plan->list[plan->n++];
    GPT_TRY_GOTO(status,
                 gpt_hf_export(&there, here, &t->o.config, rule_of(p), p, 0,
                               err),
                 out);
    /* llm.c computes logits of all rows and leaves those beyond V out of the
     * softmax, so zeros are as good as anything, and what its script writes */
    if (p->vocab_rows)
        shape[0] = plan->rows;
    *to = gpt_tensor_make(p->name, plan->dtype, p->ndim, shape);
    status = gpt_tensor_resize(to, &there, false, err);
out:
    gpt_tensor_free(&there);
    return status;
}

/* Rule after rule, and the layers of each. */
static int plan_params(struct gpt_target *t, struct gpt_err *err)
{
    struct llmc_plan *plan = t->data;

    GPT_TRY(gpt_new(&plan->list, (size_t)plan->table.n, sizeof(*plan->list),
                    "tensors", err));
    for (size_t r = 0; r < N_RULES; r++)
        for (int64_t i = 0; i < plan->table.n; i++)
            if (rule_of(&plan->table.rows[i]) == &rules[r])
                GPT_TRY(plan_param(t, &plan->table.rows[i], err));
    /* check_model() has seen to it that each parameter has a rule */
    assert(plan->n == plan->table.n);
    t->n_tensors = plan->n;
    return GPT_OK;
}

/* The size is exact before a byte is written: nothing in the file depends on
 * values. */
static int plan_llmc(struct gpt_target *t, struct gpt_err *err)
{
    const struct gpt_config *c = &t->o.config;
    struct llmc_plan *plan;
    int64_t total = 0;

    snprintf(t->path, sizeof(t->path), "%s", t->o.save);
    /* before anything is planned: the table of rules lacks what other models
     * have */
    GPT_TRY(check_model(c, err));
    GPT_TRY(gpt_new(&plan, 1, sizeof(*plan), "plan", err));
    t->data = plan;
    GPT_TRY(gpt_params_build(&plan->table, c, err));
    GPT_TRY(choose_type(t, plan, err));
    plan->rows = gpt_round_up(c->vocab_size, PAD_ROWS);
    GPT_TRY(plan_params(t, err));
    GPT_TRY(gpt_target_files(t, 1, err));
    snprintf(t->files[0].name, sizeof(t->files[0].name), "%s",
             gpt_path_name(t->o.save));
    if (!total_of(c, plan->rows, &total) ||
        !gpt_mul(total, (int64_t)gpt_dtype_bytes(plan->dtype), &total))
        return gpt_fail(err, GPT_EDATA, "the model's size overflows");
    t->files[0].bytes = HEAD_BYTES + total;
    t->files[0].tensors = N_RULES;
    return GPT_OK;
}

/* All other words are 0 in llm.c's files, too. */
static void fill_head(uint8_t *head, const struct gpt_config *c,
                      const struct llmc_plan *plan)
{
    const int64_t words[] = {
        MAGIC,         plan->dtype == GPT_F32 ? 3 : 5, c->max_positions,
        c->vocab_size, c->num_layers,                  c->num_attention_heads,
        c->hidden_size, plan->rows};

    for (size_t i = 0; i < GPT_COUNT(words); i++)
        gpt_put_u32(head + 4 * i, (uint32_t)words[i]);
}

/* The head, and the tensors one after the other: nothing is between them, and
 * the plan has them in the order of the file. */
static int make_parts(const struct llmc_plan *plan, const uint8_t *head,
                      struct gpt_part **parts, struct gpt_err *err)
{
    int64_t at = HEAD_BYTES;

    GPT_TRY(gpt_new(parts, (size_t)plan->n + 1, sizeof(**parts), "parts", err));
    (*parts)[0] = (struct gpt_part){.data = head, .bytes = HEAD_BYTES};
    for (int64_t i = 0; i < plan->n; i++) {
        const struct gpt_tensor *t = &plan->list[i];
        struct gpt_part *p = &(*parts)[i + 1];

        *p = (struct gpt_part){.tensor = t, .dtype = plan->dtype, .offset = at};
        memcpy(p->shape, t->shape, sizeof(t->shape));
        /* the plan has counted the bytes of all */
        p->bytes = (int64_t)gpt_dtype_bytes(plan->dtype);
        for (int d = 0; d < t->ndim; d++)
            p->bytes *= t->shape[d];
        at += p->bytes;
    }
    return GPT_OK;
}

static int write_llmc(struct gpt_target *t, struct gpt_fill *fill,
                      struct gpt_err *err)
{
    const struct llmc_plan *plan = t->data;
    struct gpt_part *parts = NULL;
    uint8_t head[HEAD_BYTES] = {0};
    int status;

    fill_head(head, &t->o.config, plan);
    status = make_parts(plan, head, &parts, err);
    if (status == GPT_OK)
        status = gpt_fill_file(fill, t->path, t->files[0].name,
                               t->files[0].bytes, parts, plan->n + 1, err);
    gpt_free(parts);
    return status;
}

const struct gpt_format gpt_format_llmc = {
    .name = "llmc",
    .title = "llm.c",
    .is_file = true,
    .recognises = recognise_llmc,
    .open = open_llmc,
    .close = close_llmc,
    .list = list_llmc,
    .plan = plan_llmc,
    .free_plan = free_llmc_plan,
    .write = write_llmc,
};
