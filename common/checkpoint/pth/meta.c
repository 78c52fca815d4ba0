/* The front end of checkpoints as Meta's code of Llama and Mistral's own code
 * have them: params.json beside consolidated.00.pth, .01.pth and so on, or
 * consolidated.safetensors; a row of checkpoint/format.h, read only. Several
 * files are ranks of tensor parallelism, each with its rows or columns of every
 * matrix, and a copy of every vector. Of more ranks than heads of keys and
 * values, as Llama 3.1 of 405B has them, neighbours have copies of a head.
 * Start at open_meta(). Source: llama-models of Meta, llama3/model.py and
 * checkpoint.py; mistral-inference, args.py. */
#include "checkpoint/format.h"
#include "checkpoint/huggingface/rows.h"
#include "checkpoint/pth/pth.h"

#include "base/log.h"
#include "base/num.h"
#include "checkpoint/safetensors/entry.h"

#include <string.h>

enum { PARAMS_LIMIT = 1 << 20, MOST_FILES = 100, MOST = 1 << 30 };

/* Elements that turn together are neighbours. */
static const struct gpt_hf_rule rules[] = {
    RULE(WORD_EMBEDDING, SAME, "tok_embeddings.weight"),
    RULE(NORM1_WEIGHT, SAME, "layers.%.attention_norm.weight"),
    RULE(QKV_WEIGHT, Q_PAIRS, "layers.%.attention.wq.weight"),
    RULE(QKV_WEIGHT, K_PAIRS, "layers.%.attention.wk.weight"),
    RULE(QKV_WEIGHT, V, "layers.%.attention.wv.weight"),
    RULE(PROJ_WEIGHT, SAME, "layers.%.attention.wo.weight"),
    RULE(NORM2_WEIGHT, SAME, "layers.%.ffn_norm.weight"),
    RULE(GATE_WEIGHT, SAME, "layers.%.feed_forward.w1.weight"),
    RULE(FC1_WEIGHT, SAME, "layers.%.feed_forward.w3.weight"),
    RULE(FC2_WEIGHT, SAME, "layers.%.feed_forward.w2.weight"),
    RULE(FINAL_NORM_WEIGHT, SAME, "norm.weight"),
    RULE(OUTPUT_WEIGHT, SAME, "/output.weight"),
};
static const struct gpt_hf_family family = {
    .model_type = "llama",
    .prefix = "",
    .rules = rules,
    .n_rules = GPT_COUNT(rules),
};

/* Either file says which code wrote it: others have a params.json, too. */
static bool recognise_meta(const char *path)
{
    return gpt_path_holds(path, GPT_META_PARAMS) &&
           (gpt_path_holds(path, GPT_META_FIRST_FILE) ||
            gpt_path_holds(path, GPT_META_ONE_FILE));
}

static bool explain_meta(const char *dir, struct gpt_err *err)
{
    const bool first = gpt_path_holds(dir, GPT_META_FIRST_FILE);

    if (gpt_path_holds(dir, GPT_META_PARAMS) ||
        (!first && !gpt_path_holds(dir, GPT_META_ONE_FILE)))
        return false;
    gpt_hint(err, "it has weights of %s code; " GPT_META_PARAMS " is missing "
                  "beside them", first ? "Meta's" : "Mistral's");
    return true;
}

/* ---- tensors ---- */

/* NULL when file k has none. */
static const struct gpt_safetensor *entry_of(const struct gpt_pth *p,
                                             int64_t k, const char *name)
{
    return gpt_safetensors_find(&p->files[k].weights, name);
}

/* Marks what files from k on have of that name as read. */
static void mark(struct gpt_pth *p, int64_t k, const char *name)
{
    for (; k < p->n_files; k++) {
        const struct gpt_safetensor *e = entry_of(p, k, name);

        if (e)
            p->files[k].used[e - p->files[k].weights.tensors] = true;
    }
}

/* A size of a part, of which each rank has one; a file may claim any. */
static int64_t of_all_ranks(const struct gpt_pth *p, int64_t size)
{
    return gpt_min_i64(size, MOST) * p->n_files;
}

/* The dimension in which ranks share a matrix: rows, but for the matrices that
 * each rank's part of a layer ends with, and the word table of Llama 1 and 2.
 * Llama 3 shares its word table by rows, and only its width tells. */
static int split_of(const struct gpt_pth *p, const char *name,
                    const struct gpt_safetensor *e)
{
    const bool words = gpt_path_ends_in(name, "tok_embeddings.weight");

    if (words)
        return of_all_ranks(p, e->shape[1]) == p->model.config->hidden_size;
    return gpt_path_ends_in(name, "attention.wo.weight") ||
           gpt_path_ends_in(name, "feed_forward.w2.weight");
}

/* Appends the part of file k behind the first *at rows or columns. */
static int add_part(struct gpt_pth *p, int64_t k, const char *name, int split,
                    int64_t *at, struct gpt_tensor *whole, struct gpt_err *err)
{
    struct gpt_pth_file *f = &p->files[k];
    const struct gpt_safetensor *e = entry_of(p, k, name);
    struct gpt_map map = {.perm = {0, 1, 2, 3}};

    if (!e || e->ndim != 2 || e->dtype != whole->dtype ||
        e->shape[!split] != whole->shape[!split])
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%s' is %s", p->dir, f->name, name,
                        e ? "not as in " GPT_META_FIRST_FILE : "missing");
    f->used[e - f->weights.tensors] = true;
    struct gpt_tensor part = gpt_tensor_make(name, e->dtype, 2, e->shape);
    int status = gpt_stored_add(&part, f->in, e, err);
    map.to[split] = *at;
    map.shape[0] = e->shape[0];
    map.shape[1] = e->shape[1];
    *at += e->shape[split];
    if (status == GPT_OK)
        status = gpt_tensor_view(whole, &part, &map, 1, err);
    gpt_tensor_free(&part);
    return status;
}

/* How many ranks in a row have each part of a matrix: 1, but where each has one
 * head of keys or values, and there are fewer heads than ranks. */
static int64_t copies_of(const struct gpt_pth *p, const char *name,
                         const struct gpt_safetensor *e)
{
    const struct gpt_config *c = p->model.config;
    const bool heads = gpt_path_ends_in(name, "attention.wk.weight") ||
                       gpt_path_ends_in(name, "attention.wv.weight");

    return heads && e->ndim == 2 && e->shape[0] == c->head_size &&
                   p->n_files % c->num_query_groups == 0
               ? p->n_files / c->num_query_groups
               : 1;
}

/* True in *equal when file k has the same as file `first`. */
static int compare_copy(bool *equal, const struct gpt_pth *p, int64_t first,
                        int64_t k, const char *name, struct gpt_err *err)
{
    const struct gpt_safetensor *a = entry_of(p, first, name),
                                *b = entry_of(p, k, name);

    *equal = false;
    return a && b ? gpt_stored_equal(equal, p->files[first].in, a,
                                     p->files[k].in, b, err)
                  : GPT_OK;
}

/* Copies of heads of keys and values are equal, or the ranks have another order
 * than is taken here. */
static int check_heads(const struct gpt_pth *p, const char *name,
                       struct gpt_err *err)
{
    const int64_t copies = copies_of(p, name, entry_of(p, 0, name));

    for (int64_t k = 0; copies > 1 && k < p->n_files; k++) {
        const int64_t first = k - k % copies;
        bool equal;

        GPT_TRY(compare_copy(&equal, p, first, k, name, err));
        if (equal)
            continue;
        gpt_fail(err, GPT_EDATA,
                 "%s/%s: tensor '%s' is not that of %s: n_kv_heads is %lld, "
                 "and each of them has copies in %lld files, which differ",
                 p->dir, p->files[k].name, name, p->files[first].name,
                 (long long)p->model.config->num_query_groups,
                 (long long)copies);
        return gpt_hint(err, "a file may be of another model: copy all files "
                             "again");
    }
    return GPT_OK;
}

/* A gpt_hf_find: one matrix of the parts of all ranks. Vectors are the same on
 * each. */
static int find_whole(void *context, enum gpt_kind kind, const char *name,
                      struct gpt_hf_found *found, struct gpt_err *err)
{
    struct gpt_pth *p = context;
    const struct gpt_safetensor *first = entry_of(p, 0, name), *e;
    int64_t shape[2], at = 0;

    if (!first || first->ndim != 2 || p->n_files == 1) {
        if (first)
            mark(p, 1, name);
        return gpt_pth_find(context, kind, name, found, err);
    }
    const int split = split_of(p, name, first);
    const int64_t copies = copies_of(p, name, first);
    memcpy(shape, first->shape, sizeof(shape));
    for (int64_t k = copies; k < p->n_files; k += copies)
        if ((e = entry_of(p, k, name)) && e->ndim == 2 &&
            !gpt_add(shape[split], e->shape[split], &shape[split]))
            return gpt_fail(err, GPT_EDATA, "%s: tensor '%s' is too large",
                            p->dir, name);
    /* the caller frees what was found, and not what failed */
    found->tensor = gpt_tensor_make(first->name, first->dtype, 2, shape);
    for (int64_t k = 0; k < p->n_files; k += copies) {
        const int status =
            add_part(p, k, name, split, &at, &found->tensor, err);

        if (status != GPT_OK) {
            gpt_tensor_free(&found->tensor);
            return status;
        }
    }
    found->owned = true;
    if (copies > 1)
        mark(p, 1, name);
    return GPT_OK;
}

/* ---- params.json ---- */

static const char *const known_keys[] = {
    "dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "head_dim",
    "hidden_dim", "norm_eps", "rope_theta", "use_scaled_rope",
    "rope_scaling_factor", "max_seq_len", "max_position_embeddings",
    "sliding_window", "tied_embeddings", "use_biases", "causal",
    /* not read: what concerns memory, or widths that tensors tell */
    "multiple_of", "ffn_dim_multiplier", "max_batch_size", "model_type",
};

/* A list of twenty words, and files of ten. */
static bool is_known(const char *key)
{
    for (size_t i = 0; i < GPT_COUNT(known_keys); i++)
        if (strcmp(known_keys[i], key) == 0)
            return true;
    return false;
}

/* Models with experts, or with quantized weights, say so by keys. */
static int check_keys(const cJSON *json, const char *what, struct gpt_err *err)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, json)
        if (!is_known(item->string))
            return gpt_fail(err, GPT_EDATA,
                            "%s: '%.200s' is not known, and may change what "
                            "the model computes", what, item->string);
    return GPT_OK;
}

/* Keys with null count as absent. */
static void drop_nulls(cJSON *json)
{
    for (cJSON *item = json->child, *next; item; item = next) {
        next = item->next;
        if (cJSON_IsNull(item))
            cJSON_Delete(cJSON_DetachItemViaPointer(json, item));
    }
}

/* Absent widths follow from others, or from tensors (read_shapes()). */
static int read_sizes(struct gpt_config *c, const cJSON *json, const char *what,
                      struct gpt_err *err)
{
    int64_t window;

    GPT_TRY(gpt_json_int(json, "dim", 1, MOST, &c->hidden_size, what, err));
    GPT_TRY(gpt_json_int(json, "n_layers", 1, MOST, &c->num_layers, what, err));
    GPT_TRY(gpt_json_int(json, "n_heads", 1, MOST, &c->num_attention_heads,
                         what, err));
    GPT_TRY(gpt_json_int_or(json, "n_kv_heads", c->num_attention_heads, 1, MOST,
                            &c->num_query_groups, what, err));
    GPT_TRY(gpt_json_int_or(json, "head_dim", 0, 1, MOST, &c->head_size, what,
                            err));
    GPT_TRY(gpt_json_int_or(json, "hidden_dim", 0, 1, MOST, &c->ffn_hidden_size,
                            what, err));
    GPT_TRY(gpt_json_int_or(json, "vocab_size", -1, -1, MOST, &c->vocab_size,
                            what, err));
    /* newer files of Mistral have the longer name */
    GPT_TRY(gpt_json_int_or(json, "max_seq_len", 0, 1, MOST, &c->max_positions,
                            what, err));
    GPT_TRY(gpt_json_int_or(json, "max_position_embeddings", c->max_positions,
                            1, MOST, &c->max_positions, what, err));
    GPT_TRY(gpt_json_int_or(json, "sliding_window", 0, 1, MOST, &window, what,
                            err));
    c->window_size = gpt_max_i64(window - 1, 0); /* a token counts itself */
    GPT_TRY(gpt_json_real_or(json, "norm_eps", 1e-5, &c->norm_epsilon, what,
                             err));
    return gpt_json_real_or(json, "rope_theta", 10000, &c->rotary_base, what,
                            err);
}

/* The numbers are constants of Meta's code, not keys. */
static int read_scaling(struct gpt_config *c, const cJSON *json,
                        const char *what, struct gpt_err *err)
{
    bool scaled;

    GPT_TRY(gpt_json_bool_or(json, "use_scaled_rope", false, &scaled, what,
                             err));
    if (!scaled)
        return GPT_OK;
    c->rotary_scaling = GPT_SCALING_LLAMA3;
    c->rotary_low_factor = 1;
    c->rotary_high_factor = 4;
    c->rotary_positions = 8192;
    GPT_TRY(gpt_json_real_or(json, "rope_scaling_factor", 8, &c->rotary_factor,
                             what, err));
    if (!cJSON_GetObjectItemCaseSensitive(json, "rope_scaling_factor"))
        gpt_warn("%s: use_scaled_rope without rope_scaling_factor: positions "
                 "are scaled by 8, as the code of Llama 3.1 does; Hugging "
                 "Face's files of Llama 3.2 have 32", what);
    return GPT_OK;
}

/* Whether the output layer is the word table is mostly told by the tensors. */
static int read_switches(struct gpt_config *c, const cJSON *json,
                         const char *what, struct gpt_err *err)
{
    bool biases, causal;

    GPT_TRY(gpt_json_bool_or(json, "tied_embeddings", c->tied_embeddings,
                             &c->tied_embeddings, what, err));
    GPT_TRY(gpt_json_bool_or(json, "use_biases", false, &biases, what, err));
    GPT_TRY(gpt_json_bool_or(json, "causal", true, &causal, what, err));
    if (biases || !causal)
        return gpt_fail(err, GPT_EDATA, "%s: %s is not read", what,
                        biases ? "a model with use_biases"
                               : "a model that is not causal");
    return GPT_OK;
}

/* Llama 1 and 2 say -1 for the vocabulary, and Meta's say nothing of the width
 * of the feed-forward: both are those of tensors. */
static int read_shapes(struct gpt_source *s, struct gpt_err *err)
{
    static const char words[] = "tok_embeddings.weight",
                      gate[] = "layers.0.feed_forward.w1.weight";
    struct gpt_pth *p = s->data;
    struct gpt_config *c = &s->config;
    const struct gpt_safetensor *w = entry_of(p, 0, words);
    const struct gpt_safetensor *g = entry_of(p, 0, gate);

    /* other shapes are compared with the configuration by the importer */
    if (!w || !g || w->ndim != 2 || g->ndim != 2)
        return gpt_fail(err, GPT_EDATA, "%s/%s: no matrix '%s'", p->dir,
                        p->files[0].name, w && w->ndim == 2 ? gate : words);
    p->model.config = c; /* split_of() looks at the width */
    if (c->vocab_size < 0)
        c->vocab_size =
            split_of(p, words, w) ? w->shape[0] : of_all_ranks(p, w->shape[0]);
    if (c->ffn_hidden_size == 0)
        c->ffn_hidden_size = of_all_ranks(p, g->shape[0]);
    return GPT_OK;
}

/* How long a text may be is nowhere said. Llama 3.1 scales positions, Llama 3
 * has a larger base than Llama 2. */
static void guess_positions(struct gpt_config *c, const char *what)
{
    if (c->max_positions)
        return;
    c->max_positions = c->rotary_scaling      ? 131072
                       : c->rotary_base > 1e5 ? 8192
                                              : 4096;
    gpt_warn("%s: no max_seq_len: texts are taken to have at most %lld tokens",
             what, (long long)c->max_positions);
}

/* The files are open: their shapes are a part of what the model is. */
static int read_params(struct gpt_source *s, struct gpt_err *err)
{
    struct gpt_pth *p = s->data;
    struct gpt_config *c = &s->config;
    char path[GPT_PATH_BYTES];
    cJSON *json;
    int status;

    *c = (struct gpt_config){LLAMA_BASE, .activation = GPT_SILU,
                             .init_std = 0.02};
    c->tied_embeddings = !entry_of(p, 0, "output.weight");
    GPT_TRY(gpt_path_join(path, sizeof(path), p->dir, GPT_META_PARAMS, err));
    GPT_TRY(gpt_json_read(&json, path, PARAMS_LIMIT, err));
    drop_nulls(json);
    GPT_TRY_GOTO(status, check_keys(json, path, err), out);
    GPT_TRY_GOTO(status, read_sizes(c, json, path, err), out);
    GPT_TRY_GOTO(status, read_scaling(c, json, path, err), out);
    GPT_TRY_GOTO(status, read_switches(c, json, path, err), out);
    GPT_TRY_GOTO(status, read_shapes(s, err), out);
    guess_positions(c, path); /* last: a failure tells nothing of a guess */
out:
    cJSON_Delete(json);
    return status;
}

/* ---- the source ---- */

/* As many files as follow each other by their numbers. */
static int open_files(struct gpt_source *s, struct gpt_err *err)
{
    struct gpt_pth *p = s->data;

    if (!gpt_path_holds(p->dir, GPT_META_FIRST_FILE))
        return gpt_pth_add(p, GPT_META_ONE_FILE, NULL, err);
    for (int k = 0; k < MOST_FILES; k++) {
        const char *name =
            gpt_arena_printf(&s->arena, "consolidated.%02d.pth", k);

        if (!name)
            return gpt_no_memory(err, "names of files");
        if (!gpt_path_holds(p->dir, name))
            break;
        GPT_TRY(gpt_in_allow(k + 2, err));
        GPT_TRY(gpt_pth_add(p, name, NULL, err));
    }
    return GPT_OK;
}

/* There is no run: these files are weights alone. */
static int open_meta(struct gpt_source *s, const char *path,
                     const struct gpt_source_options *o, struct gpt_err *err)
{
    GPT_TRY(gpt_pth_begin(s, path, o, "a directory of Meta's", err));
    s->at = s->dir;
    ((struct gpt_pth *)s->data)->checks_copies = o->verify_later;
    GPT_TRY(open_files(s, err));
    GPT_TRY(read_params(s, err));
    /* the rates of positions, which Llama 1 and 2 keep, are constants */
    mark(s->data, 0, "rope.freqs");
    GPT_TRY(gpt_pth_import(s, &family, find_whole, GPT_META_PARAMS, o, err));
    s->family = "llama";
    /* the first layer tells whether ranks have the order that is taken here */
    GPT_TRY(check_heads(s->data, "layers.0.attention.wk.weight", err));
    return check_heads(s->data, "layers.0.attention.wv.weight", err);
}

/* What ranks have copies of: vectors may drift apart in honest runs. */
static int check_meta(const struct gpt_source *s, struct gpt_err *err)
{
    const struct gpt_pth *p = s->data;
    const struct gpt_safetensors *w = &p->files[0].weights;
    const char *name = NULL, *file = NULL;
    int64_t differ = 0;

    for (int64_t i = 0; p->checks_copies && i < w->n; i++) {
        GPT_TRY(check_heads(p, w->tensors[i].name, err));
        for (int64_t k = 1; w->tensors[i].ndim == 1 && k < p->n_files; k++) {
            bool equal;

            GPT_TRY(compare_copy(&equal, p, 0, k, w->tensors[i].name, err));
            if (equal || differ++)
                continue;
            name = w->tensors[i].name;
            file = p->files[k].name;
        }
    }
    if (differ)
        gpt_warn("%s: files have copies of one tensor that differ, %lld in "
                 "all, first '%s' of %s: a file may be of another model; "
                 "those of the first file are used",
                 p->dir, (long long)differ, name, file);
    return GPT_OK;
}

const struct gpt_format gpt_format_meta = {
    .name = "meta",
    .title = "Meta's",
    .recognises = recognise_meta,
    .open = open_meta,
    .close = gpt_pth_close,
    .check = check_meta,
    .list = gpt_pth_list,
    .explain = explain_meta,
};
