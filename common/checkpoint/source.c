/* Opening a checkpoint of any format, and what is the same for all of them; see
 * source.h. Start at gpt_source_open(). */
#include "checkpoint/format.h"

#include "base/log.h"
#include "base/num.h"
#include "base/signals.h"

#include <stdlib.h>
#include <string.h>

/* What no front end recognises is left to the native one, whose messages say
 * what is missing in a directory; of a file they would say the wrong thing. */
static int look_for_format(const struct gpt_format **format, const char *path,
                           struct gpt_err *err)
{
    GPT_TRY(gpt_format_find(format, path, err));
    if (!*format && gpt_path_exists(path) && !gpt_path_is_dir(path))
        return gpt_fail(err, GPT_EDATA,
                        "%s: is no checkpoint by itself: no file of GGUF or "
                        "llm.c by its first bytes, nor ckpt.pt of nanoGPT",
                        path);
    if (!*format)
        *format = &gpt_format_native;
    return GPT_OK;
}

/* Rank 0 chooses for all: ranks that saw different files would otherwise open
 * different formats, and wait for each other in different protocols. */
static int choose_format(const struct gpt_format **format, const char *path,
                         struct gpt_agreement *peers, struct gpt_err *err)
{
    const struct gpt_format *own = &gpt_format_native;
    char *told = NULL;
    int status = gpt_agreement_first(peers) ? look_for_format(&own, path, err)
                                            : GPT_OK;

    GPT_TRY(gpt_agreement_settle(peers, status, own ? own->name : "", &told,
                                 err));
    *format = told ? gpt_format_named(told) : own;
    if (!*format) /* rank 0 is another version of this program */
        status = gpt_fail(err, GPT_EFAIL,
                          "rank 0 has chosen the format '%.40s', which this "
                          "rank's program does not have",
                          told);
    gpt_free(told);
    return status;
}

/* Through pointers: the front end's array keeps its order. */
static int compare_names(const void *a, const void *b)
{
    const struct gpt_tensor *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* A configuration is believed only as far as the files go: a parameter table
 * has rows for every layer, and a hostile file may claim a billion of them. */
static int check_layers(const struct gpt_source *s, struct gpt_err *err)
{
    if (s->config.num_layers > s->n_tensors)
        return gpt_fail(err, GPT_EDATA,
                        "%s: its model has %lld layers, its files %lld "
                        "tensors",
                        s->dir, (long long)s->config.num_layers,
                        (long long)s->n_tensors);
    return GPT_OK;
}

/* Front ends give tensors in whatever order suits them. Programs look them up
 * by name, so the index is made here, once for all formats. */
int gpt_source_index(struct gpt_source *s, struct gpt_err *err)
{
    GPT_TRY(check_layers(s, err));
    gpt_free(s->by_name);
    s->by_name = NULL;
    GPT_TRY(gpt_new(&s->by_name, (size_t)s->n_tensors, sizeof(*s->by_name),
                    "tensors", err));
    for (int64_t i = 0; i < s->n_tensors; i++)
        s->by_name[i] = &s->tensors[i];
    if (s->n_tensors)
        qsort(s->by_name, (size_t)s->n_tensors, sizeof(*s->by_name),
              compare_names);
    return GPT_OK;
}

/* Each list is a new text: a file that has thousands of names would make it
 * large, and all of them together far larger than the file. */
int gpt_source_leave_out(struct gpt_source *s, const char *name, int n,
                         struct gpt_err *err)
{
    enum { LONGEST = 60, MOST = 1000 };
    const char *list = s->left_out ? s->left_out : "";
    const size_t len = strlen(list);
    const int shown = n < LONGEST ? n : LONGEST;

    if (len >= MOST)
        return GPT_OK;
    s->left_out = gpt_arena_printf(
        &s->arena, "%s%s%.*s%s%s", list, len ? ", " : "", shown, name,
        shown < n ? "..." : "",
        len + 2 + (size_t)shown < MOST ? "" : ", and others");
    return s->left_out ? GPT_OK : gpt_no_memory(err, "what is left out");
}

/* Ranks open the files each for itself. One that cannot, or that sees others,
 * must not leave the others waiting, so that all of them fail with it. */
static int open_and_index(struct gpt_source *s, const char *path,
                          const struct gpt_source_options *options,
                          struct gpt_err *err)
{
    static const struct gpt_source_options newest = {.iteration = -1};
    const struct gpt_source_options *o = options ? options : &newest;
    int status;

    *s = (struct gpt_source){
        .tp_size = 1,
        .pp_size = 1,
        .bos_token_id = GPT_TOKEN_UNKNOWN,
        .eos_token_id = GPT_TOKEN_UNKNOWN,
    };
    GPT_TRY_GOTO(status, choose_format(&s->format, path, o->peers, err), fail);
    if (s->format->agree)
        GPT_TRY_GOTO(status, s->format->agree(s, path, o, err), fail);
    status = s->format->open(s, path, o, err);
    if (!s->at)
        s->at = s->dir;
    if (status == GPT_OK)
        status = gpt_source_index(s, err);
    GPT_TRY_GOTO(status, gpt_agreement_settle(o->peers, status, "", NULL, err),
                 fail);
    return GPT_OK;
fail:
    gpt_source_close(s);
    gpt_source_explain(path, err);
    return status;
}

/* gpt-train looks at a checkpoint before it plans, and loads it later. */
int gpt_source_open(struct gpt_source *s, const char *path,
                    const struct gpt_source_options *options,
                    struct gpt_err *err)
{
    const bool was = gpt_log_once(true);
    const int status = open_and_index(s, path, options, err);

    gpt_log_once(was);
    return status;
}

/* The front end's part goes first: it may refer to what is in the arena. */
void gpt_source_close(struct gpt_source *s)
{
    if (s->free_merged)
        s->free_merged(s->merged);
    if (s->format)
        s->format->close(s);
    gpt_free(s->by_name);
    gpt_arena_free(&s->arena);
    *s = (struct gpt_source){0};
}

int gpt_source_check(const struct gpt_source *s, struct gpt_err *err)
{
    return s->format->check ? s->format->check(s, err) : GPT_OK;
}

int gpt_source_exists(bool *exists, const char *path, struct gpt_err *err)
{
    const struct gpt_format *format;

    GPT_TRY(gpt_format_find(&format, path, err));
    *exists = format != NULL;
    return GPT_OK;
}

const struct gpt_tensor *gpt_source_find(const struct gpt_source *s,
                                         const char *name)
{
    const struct gpt_tensor key = {.name = name}, *k = &key;
    const struct gpt_tensor **found =
        s->n_tensors ? bsearch(&k, s->by_name, (size_t)s->n_tensors,
                               sizeof(*s->by_name), compare_names)
                     : NULL;

    return found ? *found : NULL;
}

/* Its pieces may be anywhere, so it has no file. */
struct gpt_stored gpt_stored_tensor(const struct gpt_tensor *t)
{
    struct gpt_stored stored = {.name = t->name,
                                .dtype = t->dtype,
                                .ndim = t->ndim,
                                .slices = (int64_t)t->n};

    memcpy(stored.shape, t->shape, sizeof(t->shape));
    return stored;
}

enum { BLOCK = 1 << 20 };

/* Block by block: whole rows, or parts of one that is longer than a block. Both
 * are read in the order of rows, whatever order their files have. */
static int compare_blocks(bool *equal, const struct gpt_tensor *a,
                          const struct gpt_tensor *b, char *blocks,
                          struct gpt_err *err)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(a->dtype);
    const int64_t width = a->ndim > 1 ? a->shape[1] : 1;
    const int64_t columns = gpt_min_i64(width, BLOCK / size);
    const int64_t rows = columns ? BLOCK / size / columns : a->shape[0];
    int64_t begin[GPT_TENSOR_DIMS] = {0};

    while (*equal && begin[0] < a->shape[0]) {
        const int64_t box[GPT_TENSOR_DIMS] = {
            gpt_min_i64(rows, a->shape[0] - begin[0]),
            gpt_min_i64(columns, width - begin[1])};

        GPT_TRY(gpt_signals_check(err)); /* a table has gigabytes */
        GPT_TRY(gpt_tensor_gather(a, begin, box, a->dtype, blocks, err));
        GPT_TRY(
            gpt_tensor_gather(b, begin, box, a->dtype, blocks + BLOCK, err));
        *equal = memcmp(blocks, blocks + BLOCK,
                        (size_t)(box[0] * box[1] * size)) == 0;
        begin[1] += box[1];
        if (begin[1] == width) {
            begin[1] = 0;
            begin[0] += box[0];
        }
    }
    return GPT_OK;
}

int gpt_tensor_equal(bool *equal, const struct gpt_tensor *a,
                     const struct gpt_tensor *b, struct gpt_err *err)
{
    char *blocks;

    *equal = a->dtype == b->dtype && a->ndim == b->ndim &&
             (a->ndim == 1 || a->ndim == 2) &&
             memcmp(a->shape, b->shape,
                    (size_t)a->ndim * sizeof(*a->shape)) == 0;
    if (!*equal)
        return GPT_OK;
    GPT_TRY(gpt_new(&blocks, 2, BLOCK, "tensors", err));
    int status = compare_blocks(equal, a, b, blocks, err);
    gpt_free(blocks);
    return status;
}

int gpt_source_list(const struct gpt_source *s, gpt_stored_visit *visit,
                    void *context, struct gpt_err *err)
{
    return s->format->list(s, visit, context, err);
}
