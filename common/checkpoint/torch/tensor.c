/* Tensors in the tree of a pickle: calls of the functions that PyTorch rebuilds
 * tensors with. They are recognised by name, and what they would compute (a
 * shape, strides, a place in a storage) is taken from their arguments. Start at
 * gpt_torch_tensor(), and at gpt_torch_walk() for all of a file. */
#include "checkpoint/torch/internal.h"

#include "base/num.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRAPPERS = 4, VISITS_EACH = 16 };

/* ---- which values are tensors ---- */

/* Argument `i` of a call, or NULL. */
static const struct gpt_pickle_value *argument(const struct gpt_pickle_value *v,
                                               uint32_t i)
{
    return v->args->n > i ? v->args->items[i] : NULL;
}

/* A Parameter is its tensor with a flag; both have the tensor first. Wrappers
 * are not nested in honest files, hence the small limit. */
static const struct gpt_pickle_value *
unwrap(const struct gpt_pickle_value *v)
{
    for (int i = 0; v && i < WRAPPERS; i++) {
        if (!gpt_pickle_is_call(v, "torch._utils._rebuild_parameter") &&
            !gpt_pickle_is_call(v,
                                "torch._utils._rebuild_parameter_with_state"))
            break;
        v = argument(v, 0);
    }
    return v;
}

/* The arguments of each: storage, offset, size, stride, ...; `type` is the
 * index of an element type that is not the storage's, `marks` that of a dict
 * which says how elements differ from those of the storage. */
static const struct {
    const char *name;
    uint32_t type; /* 0: the storage's */
    uint32_t marks; /* 0: none */
} rebuilders[] = {
    {"torch._utils._rebuild_tensor_v2", 0, 6},
    {"torch._utils._rebuild_tensor", 0, 0},
    {"torch._utils._rebuild_tensor_v3", 6, 7},
};

/* The row of `rebuilders`, or -1. */
static int rebuilder_of(const struct gpt_pickle_value *v)
{
    for (size_t i = 0; v && i < GPT_COUNT(rebuilders); i++)
        if (gpt_pickle_is_call(v, rebuilders[i].name))
            return (int)i;
    return -1;
}

/* A tensor that a program gave attributes is a call with the name and the
 * arguments of another one: (function, type, arguments, state). Puts that other
 * call into *call, or what `v` is. NULL stays NULL. */
static const struct gpt_pickle_value *
plain_call(const struct gpt_pickle_value *v, struct gpt_pickle_value *call)
{
    v = unwrap(v);
    if (!gpt_pickle_is_call(v, "torch._tensor._rebuild_from_type_v2") ||
        v->args->n != 4 || v->args->items[2]->kind != GPT_PICKLE_TUPLE)
        return v;
    *call = *v;
    call->callee = v->args->items[0];
    call->args = v->args->items[2];
    return call;
}

/* Quantised and sparse tensors have other names, and stay opaque calls. */
bool gpt_torch_is_tensor(const struct gpt_pickle_value *v)
{
    struct gpt_pickle_value call;

    return rebuilder_of(plain_call(v, &call)) >= 0;
}

/* ---- a tensor ---- */

/* The offset is that in the pickle: pickletools.dis() shows it. */
static int GPT_PRINTF(5, 6)
    bad_tensor(const struct gpt_torch *t, const char *name,
               const struct gpt_pickle_value *v, struct gpt_err *err,
               const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    gpt_torch_vbad(t, v->at, name, err, fmt, args);
    va_end(args);
    return gpt_hint(err, "the file is damaged: copy it again");
}

/* By the key in the id; gpt_torch_list_storages() has checked its type and
 * size. */
static const struct gpt_torch_storage *
find_storage(const struct gpt_torch *t, const struct gpt_pickle_value *v)
{
    char text[GPT_TORCH_PATH];
    const struct gpt_torch_storage key = {.key = text};

    if (!v || v->kind != GPT_PICKLE_PERSISTENT || !t->n_storages ||
        v->args->kind != GPT_PICKLE_TUPLE || v->args->n < 5 ||
        v->args->items[2]->kind != GPT_PICKLE_STRING)
        return NULL;
    snprintf(text, sizeof(text), "%.*s", (int)v->args->items[2]->n,
             v->args->items[2]->text);
    return bsearch(&key, t->storages, (size_t)t->n_storages,
                   sizeof(*t->storages), gpt_torch_by_key);
}

/* In a stream a storage may be a part of the one that is stored: (key, offset,
 * elements), in elements. */
static bool take_part(const struct gpt_pickle_value *id,
                      const struct gpt_torch_storage *s, int64_t *first,
                      int64_t *count)
{
    const struct gpt_pickle_value *view = id->n > 5 ? id->items[5] : NULL;

    *first = 0;
    *count = s->count;
    if (!view || view->kind == GPT_PICKLE_NONE)
        return true;
    return view->kind == GPT_PICKLE_TUPLE && view->n == 3 &&
           gpt_pickle_int(view->items[1], first) &&
           gpt_pickle_int(view->items[2], count) && *first >= 0 &&
           *count >= 0 && *first <= s->count && *count <= s->count - *first;
}

/* The type that rebuilding names itself: of storages without one. */
static void take_type(const struct gpt_pickle_value *v, int64_t *element,
                      struct gpt_torch_tensor *out)
{
    enum gpt_dtype dtype;

    if (!v || v->kind != GPT_PICKLE_GLOBAL)
        return;
    out->type = v->text;
    out->dtype = GPT_N_DTYPES;
    if (strcmp(v->text, "torch.uint16") == 0)
        out->dtype = GPT_U16;
    else if (strcmp(v->text, "torch.uint32") == 0)
        out->dtype = GPT_U32;
    else if (strcmp(v->text, "torch.uint64") == 0)
        out->dtype = GPT_U64;
    else if (strncmp(v->text, "torch.", 6) == 0 &&
             gpt_dtype_parse(v->text + 6, &dtype))
        out->dtype = dtype;
    if (out->dtype != GPT_N_DTYPES)
        *element = (int64_t)gpt_dtype_bytes(out->dtype);
}

/* Elements that are the negative or the conjugate of what is stored are of no
 * type that is read here. */
static void take_marks(const struct gpt_pickle_value *marks,
                       struct gpt_torch_tensor *out)
{
    static const struct {
        const char *key, *type;
    } views[] = {{"neg", "a negative view (call resolve_neg())"},
                 {"conj", "a conjugate view (call resolve_conj())"}};
    int64_t yes;

    for (size_t i = 0; i < GPT_COUNT(views); i++)
        if (gpt_pickle_int(gpt_pickle_find(marks, views[i].key), &yes) && yes) {
            out->type = views[i].type;
            out->dtype = GPT_N_DTYPES;
        }
}

/* Turns strides of elements into bytes, and finds the end of the last element.
 * False when anything overflows, as only a hostile file can make it. */
static bool measure(struct gpt_torch_tensor *out, int64_t first,
                    int64_t element)
{
    int64_t tight = element, span = element, step;
    bool empty = false;

    out->tight = true;
    for (int d = out->ndim - 1; d >= 0; d--) {
        const int64_t n = out->shape[d];

        if (!gpt_mul(out->stride[d], element, &out->stride[d]) ||
            (n > 1 && (!gpt_mul(n - 1, out->stride[d], &step) ||
                       !gpt_add(span, step, &span))))
            return false;
        /* the stride of a dimension of one element is never used */
        if (n != 1 && out->stride[d] != tight)
            out->tight = false;
        empty = empty || n == 0;
        if (!gpt_mul(tight, n > 0 ? n : 1, &tight))
            return false;
    }
    out->tight = out->tight || empty;
    return gpt_mul(first, element, &out->begin) &&
           gpt_add(out->begin, empty ? 0 : span, &out->end);
}

/* Strides are not assumed: transformers' converters save transposed matrices,
 * whose elements are in another order than a reader of rows would take. */
int gpt_torch_tensor(const struct gpt_torch *t, const char *name,
                     const struct gpt_pickle_value *v,
                     struct gpt_torch_tensor *out, struct gpt_err *err)
{
    int64_t first, part, count, element;
    struct gpt_pickle_value call;
    int n_stride;

    *out = (struct gpt_torch_tensor){0};
    v = plain_call(v, &call);
    const int kind = rebuilder_of(v);
    if (kind < 0)
        return bad_tensor(t, name, v, err, "a value that is no tensor");
    const struct gpt_torch_storage *s = find_storage(t, argument(v, 0));
    if (!s)
        return bad_tensor(t, name, v, err, "no storage");
    element = s->element;
    out->dtype = s->dtype;
    out->type = s->type;
    if (rebuilders[kind].type)
        take_type(argument(v, rebuilders[kind].type), &element, out);
    if (rebuilders[kind].marks)
        take_marks(argument(v, rebuilders[kind].marks), out);
    if (!gpt_pickle_int(argument(v, 1), &first) || first < 0 ||
        !gpt_pickle_sizes(argument(v, 2), GPT_TORCH_DIMS, out->shape,
                          &out->ndim) ||
        !gpt_pickle_sizes(argument(v, 3), GPT_TORCH_DIMS, out->stride,
                          &n_stride) ||
        n_stride != out->ndim)
        return bad_tensor(t, name, v, err,
                          "offset, size or strides are no "
                          "numbers of at most %d dimensions",
                          GPT_TORCH_DIMS);
    if (!take_part(v->args->items[0]->args, s, &part, &count))
        return bad_tensor(t, name, v, err,
                          "a part of storage '%.99s' that "
                          "leaves it",
                          s->key);
    if (!measure(out, first, element) || out->end > count * s->element)
        return bad_tensor(t, name, v, err,
                          "its elements end after storage "
                          "'%.99s' of %lld bytes",
                          s->key, (long long)(count * s->element));
    out->begin += s->begin + part * s->element;
    out->end += s->begin + part * s->element;
    return GPT_OK;
}

const char *const gpt_torch_adam_keys[GPT_N_ADAM_KINDS] = {
    [GPT_KIND_EXP_AVG] = "exp_avg",
    [GPT_KIND_EXP_AVG_SQ] = "exp_avg_sq",
};

bool gpt_torch_is_adam(const struct gpt_pickle_value *state,
                       struct gpt_arena *arena, const char **others)
{
    static const char *const step[] = {"step", NULL};
    static const char *const known[] = {"step", "exp_avg", "exp_avg_sq", NULL};
    bool both = true;

    for (int k = GPT_KIND_EXP_AVG; k < GPT_N_ADAM_KINDS; k++) {
        const struct gpt_pickle_value *v =
            gpt_pickle_find(state, gpt_torch_adam_keys[k]);

        both = both && v && gpt_torch_is_tensor(v);
    }
    *others = gpt_pickle_others(state, both ? known : step, arena);
    return both;
}

const char *gpt_torch_not_adam(const char *others, struct gpt_arena *arena)
{
    const char *why =
        others ? gpt_arena_printf(arena, "it is not that of Adam, but has "
                                         "%.200s", others)
               : "it is not that of Adam";

    return why ? why : "it is not that of Adam";
}

int gpt_torch_count(const struct gpt_torch *t, const struct gpt_pickle_value *v,
                    int64_t *count, struct gpt_err *err)
{
    struct gpt_torch_tensor tensor;
    float value;

    /* PyTorch has Adam's step as a tensor of fp32, older versions as a
     * number */
    *count = -1;
    if (gpt_pickle_int(v, count) || !v || !gpt_torch_is_tensor(v))
        return GPT_OK;
    GPT_TRY(gpt_torch_tensor(t, "a count", v, &tensor, err));
    if (tensor.dtype != GPT_F32 ||
        tensor.end - tensor.begin != (int64_t)sizeof(value))
        return GPT_OK;
    GPT_TRY(gpt_in_read(t->in, &value, tensor.begin, sizeof(value), err));
    if (value >= 0 && value < 0x1p53F)
        *count = (int64_t)value;
    return GPT_OK;
}

int gpt_torch_step(const struct gpt_torch *t,
                   const struct gpt_pickle_value *state, bool first,
                   int64_t *step, const char **why, struct gpt_err *err)
{
    const int64_t before = *step;

    GPT_TRY(gpt_torch_count(t, gpt_pickle_find(state, "step"), step, err));
    if (!first && *step != before)
        *why = GPT_TORCH_STEPS_DIFFER;
    return GPT_OK;
}

/* ---- all of a file ---- */

/* A walk in progress. `left` bounds it: shared values are visited at each
 * place, which a hostile file could make exponential. */
struct walk {
    const struct gpt_torch *t;
    struct gpt_buf path;
    int64_t left;
    gpt_torch_visit *visit;
    void *context;
    struct gpt_err *err;
};

/* Both failures mean that the tree is deeper or wider than its file. */
static int bad_walk(const struct walk *w, const char *what)
{
    gpt_fail(w->err, GPT_EDATA, "%s: '%.200s': %s", gpt_in_path(w->t->in),
             w->path.data ? w->path.data : "", what);
    return gpt_hint(w->err, "no checkpoint is like this: the file was made to "
                            "harm");
}

/* False for a plain value, which is only shown. */
static bool holds_others(const struct gpt_pickle_value *v)
{
    struct gpt_pickle_value **items;
    int64_t n;

    return gpt_torch_is_tensor(v) || gpt_pickle_mapping(v) ||
           gpt_pickle_sequence(v, &items, &n);
}

static int walk_value(struct walk *w, const struct gpt_pickle_value *v,
                      int depth);

/* Visits a value under a key, and takes the key off the path again. */
static int walk_key(struct walk *w, const struct gpt_pickle_value *key,
                    int64_t number, const struct gpt_pickle_value *v, int depth)
{
    const size_t len = w->path.len;

    if (len)
        GPT_TRY(gpt_buf_add(&w->path, ".", 1));
    if (key)
        GPT_TRY(gpt_pickle_print(&w->path, key, 2, 4));
    else
        GPT_TRY(gpt_buf_printf(&w->path, "%lld", (long long)number));
    if (w->path.len > GPT_TORCH_PATH)
        return bad_walk(w, "keys that are too long");
    /* the path is one buffer: each level adds its key and cuts it off again */
    int status = walk_value(w, v, depth + 1);
    w->path.len = len;
    w->path.data[len] = '\0';
    return status;
}

/* Lists of plain values are values: RNG states have hundreds of numbers. */
static int walk_sequence(struct walk *w, const struct gpt_pickle_value *v,
                         struct gpt_pickle_value **items, int64_t n, int depth)
{
    bool plain = true;

    /* if one item holds others, all items are values of their own */
    for (int64_t i = 0; i < n && plain; i++)
        plain = !holds_others(items[i]);
    if (plain)
        return w->visit(w->context, w->path.data ? w->path.data : "", v, NULL,
                        w->err);
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(walk_key(w, NULL, i, items[i], depth));
    return GPT_OK;
}

/* The tensor is measured before the visitor sees it, so that no visitor can
 * read outside its storage. */
static int walk_tensor(struct walk *w, const struct gpt_pickle_value *v)
{
    const char *path = w->path.data ? w->path.data : "";
    struct gpt_torch_tensor tensor;

    GPT_TRY(gpt_torch_tensor(w->t, path, v, &tensor, w->err));
    return w->visit(w->context, path, v, &tensor, w->err);
}

/* Depth first, in the order of the file. The order of the tests matters: a
 * tensor is an object, and a Namespace is one with keys. */
static int walk_value(struct walk *w, const struct gpt_pickle_value *v,
                      int depth)
{
    const struct gpt_pickle_value *map, *key, *value;
    struct gpt_pickle_value **items;
    int64_t n;

    if (depth > GPT_TORCH_DEPTH)
        return bad_walk(w, "containers are nested too deep");
    if (--w->left < 0)
        return bad_walk(w, "values are inside each other too often");
    if (gpt_torch_is_tensor(v))
        return walk_tensor(w, v);
    if (gpt_pickle_sequence(v, &items, &n))
        return walk_sequence(w, v, items, n, depth);
    map = gpt_pickle_mapping(v);
    n = map ? gpt_pickle_pairs(map) : 0;
    if (n == 0)
        return w->visit(w->context, w->path.data ? w->path.data : "", v, NULL,
                        w->err);
    for (int64_t i = 0; i < n; i++) {
        gpt_pickle_pair(map, i, &key, &value);
        GPT_TRY(walk_key(w, key, 0, value, depth));
    }
    return GPT_OK;
}

/* Honest files visit each value a few times at most, when RNG states or ties
 * are shared. */
int gpt_torch_walk(const struct gpt_torch *t,
                   const struct gpt_pickle_value *from, gpt_torch_visit *visit,
                   void *context, struct gpt_err *err)
{
    struct walk w = {
        .t = t,
        .left = VISITS_EACH * (t->pickle.n_values + 64),
        .visit = visit,
        .context = context,
        .err = err,
    };

    int status = walk_value(&w, from, 0);
    gpt_buf_free(&w.path);
    if (status != GPT_OK && err && !err->status)
        return gpt_no_memory(err, "a path of keys");
    return status;
}
