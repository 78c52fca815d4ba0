/* Reading of vocab.json and merges.txt, and of both in one file. While loading,
 * tokens are looked up by the text that the files write them in; what stays are
 * bytes and ids. Start at gpt_vocab_load(). */
#include "text/vocab.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "text/bytelevel.h"
#include "text/token_map.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_FILE = 1 << 28,
    MAX_SPREAD = 4,    /* ids a token, where they may leave gaps, */
    MIN_IDS = 1 << 16, /* and these */
};

struct loading {
    struct gpt_vocab *v;
    const char *vocab_file, *merge_file;
    int64_t n_listed;           /* tokens in the file */
    bool gaps;                  /* between ids are allowed */
    struct gpt_slice *texts;    /* (v->n) as the file writes them, by id */
    struct gpt_token_map names; /* over texts */
    struct gpt_buf joined;      /* of a merge's result */
    struct gpt_err *err;
};

static int32_t find_token(const struct loading *l, const char *text,
                          size_t len)
{
    return gpt_token_map_find(&l->names, text, len);
}

/* ---- vocab.json ---- */

static int read_id(struct loading *l, const cJSON *item, int32_t *id)
{
    double v = item->valuedouble;
    if (cJSON_IsNumber(item) && !(v >= 0 && v < (double)l->v->n))
        return gpt_fail(l->err, GPT_EDATA,
                        "%s: token '%s' has id %.0f; %lld tokens have the "
                        "ids 0 to %lld",
                        l->vocab_file, item->string, v,
                        (long long)l->n_listed, (long long)l->v->n - 1);
    if (!cJSON_IsNumber(item) || v != (double)(int32_t)v)
        return gpt_fail(l->err, GPT_EDATA,
                        "%s: token '%s' has no integer id", l->vocab_file,
                        item->string);
    *id = (int32_t)v;
    if (l->texts[*id].data)
        return gpt_fail(l->err, GPT_EDATA, "%s: tokens '%s' and '%s' are "
                        "both id %d", l->vocab_file,
                        l->texts[*id].data, item->string, (int)*id);
    return GPT_OK;
}

/* The bytes that a token stands for. A text that is not all byte letters is a
 * special token: it stands for itself, and no merge can make it. */
static int add_token(struct loading *l, int32_t id, const char *text)
{
    struct gpt_vocab *v = l->v;
    size_t len = strlen(text);
    char *bytes = gpt_arena_alloc(&v->arena, len + 1, 1);
    if (!bytes)
        return gpt_fail(l->err, GPT_EFAIL, "cannot allocate a vocabulary");
    l->texts[id] = (struct gpt_slice){text, len};
    gpt_token_map_add(&l->names, id);

    v->tokens[id].data = bytes;
    if (!gpt_bytelevel_decode(text, len, bytes, &v->tokens[id].len)) {
        memcpy(bytes, text, len);
        v->tokens[id].len = len;
    }
    return GPT_OK;
}

static int check_bytes(struct loading *l)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[GPT_BYTELEVEL_MAX], c = (char)byte;
        size_t len = gpt_bytelevel_encode(&c, 1, text);
        int32_t id = find_token(l, text, len);
        if (id < 0)
            return gpt_fail(l->err, GPT_EDATA,
                            "%s: no token for byte 0x%02x ('%.*s')",
                            l->vocab_file, (unsigned)byte, (int)len, text);
        l->v->byte_id[byte] = id;
    }
    return GPT_OK;
}

/* How many ids there are. Where they may leave gaps, no more than the number
 * of tokens can justify. */
static int64_t count_ids(const cJSON *root, int64_t n_listed)
{
    int64_t n = n_listed, limit = MAX_SPREAD * n_listed + MIN_IDS;
    for (const cJSON *i = root->child; i; i = i->next)
        if (i->valuedouble >= (double)n && i->valuedouble < (double)limit)
            n = (int64_t)i->valuedouble + 1;
    return n;
}

static int load_tokens(struct loading *l, const cJSON *root, int64_t n_ids)
{
    struct gpt_vocab *v = l->v;
    if (!cJSON_IsObject(root))
        return gpt_fail(l->err, GPT_EDATA,
                        "%s: not an object of tokens and ids", l->vocab_file);
    for (const cJSON *i = root->child; i; i = i->next)
        l->n_listed++;
    v->n = l->gaps ? count_ids(root, l->n_listed) : l->n_listed;
    if (v->n < n_ids)
        v->n = n_ids;
    if (v->n > GPT_VOCAB_MAX)
        return gpt_fail(l->err, GPT_EDATA, "%s: %lld tokens, limit %d",
                        l->vocab_file, (long long)v->n, GPT_VOCAB_MAX);
    GPT_TRY(gpt_new(&v->tokens, (size_t)v->n, sizeof(*v->tokens),
                    "a vocabulary", l->err));
    GPT_TRY(gpt_new(&l->texts, (size_t)v->n, sizeof(*l->texts),
                    "a vocabulary", l->err));
    GPT_TRY(gpt_token_map_open(&l->names, l->texts, (size_t)l->n_listed,
                               l->err));
    for (const cJSON *i = root->child; i; i = i->next) {
        int32_t id = 0;
        GPT_TRY(read_id(l, i, &id));
        GPT_TRY(add_token(l, id, i->string));
    }
    v->eod = find_token(l, "<|endoftext|>", 13);
    return check_bytes(l);
}

/* ---- merges.txt ---- */

/* A merge in the making. `line` is its line, or its number in an array. */
struct halves {
    const char *left, *right;
    size_t left_len, right_len;
    long long line;
};

static int missing_token(struct loading *l, long long line, const char *text,
                         size_t len)
{
    return gpt_fail(l->err, GPT_EDATA, "%s:%lld: '%.*s' is not in %s",
                    l->merge_file, line, (int)(len < 200 ? len : 200), text,
                    l->vocab_file);
}

static int add_merge(struct loading *l, const struct halves *h,
                     struct gpt_merge *merge)
{
    merge->left = find_token(l, h->left, h->left_len);
    if (merge->left < 0)
        return missing_token(l, h->line, h->left, h->left_len);
    merge->right = find_token(l, h->right, h->right_len);
    if (merge->right < 0)
        return missing_token(l, h->line, h->right, h->right_len);

    l->joined.len = 0;
    if (gpt_buf_add(&l->joined, h->left, h->left_len) != GPT_OK ||
        gpt_buf_add(&l->joined, h->right, h->right_len) != GPT_OK)
        return gpt_fail(l->err, GPT_EFAIL, "cannot allocate a merge");
    merge->result = find_token(l, l->joined.data, l->joined.len);
    if (merge->result < 0)
        return missing_token(l, h->line, l->joined.data, l->joined.len);
    return GPT_OK;
}

/* "left right" */
static int add_merge_line(struct loading *l, const char *text, size_t len,
                          long long line, struct gpt_merge *merge)
{
    const char *space = memchr(text, ' ', len);
    size_t left = space ? (size_t)(space - text) : 0;
    size_t right = space ? len - left - 1 : 0;
    if (!left || !right || memchr(space + 1, ' ', right))
        return gpt_fail(l->err, GPT_EDATA,
                        "%s:%lld: not two tokens with one space between: "
                        "'%.*s'",
                        l->merge_file, line, (int)(len < 200 ? len : 200),
                        text);
    struct halves h = {text, space + 1, left, right, line};
    return add_merge(l, &h, merge);
}

static int load_merges(struct loading *l, const char *text, size_t len)
{
    struct gpt_vocab *v = l->v;
    const char *p = text, *end = text + len;
    size_t n_lines = 0, cap = 0;
    long long line = 0;
    for (const char *q = p; q < end; q++)
        n_lines += *q == '\n';
    GPT_TRY(gpt_grow(&v->merges, &cap, n_lines + 1, sizeof(*v->merges),
                     "merges", l->err));
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const char *stop = newline ? newline : end;
        size_t n = (size_t)(stop - p);
        if (n && p[n - 1] == '\r')
            n--;
        line++;
        if (n < 8 || memcmp(p, "#version", 8) != 0) {
            GPT_TRY(add_merge_line(l, p, n, line,
                                   &v->merges[v->n_merges]));
            v->n_merges++;
        }
        p = newline ? newline + 1 : end;
    }
    return GPT_OK;
}

/* ---- the two together ---- */

static int load_files(struct loading *l)
{
    cJSON *root;
    char *text = NULL;
    size_t len;
    GPT_TRY(gpt_json_read(&root, l->vocab_file, MAX_FILE, l->err));
    int status = load_tokens(l, root, 0);
    if (status == GPT_OK)
        status = gpt_read_file(l->merge_file, MAX_FILE, &text, &len, l->err);
    if (status == GPT_OK)
        status = load_merges(l, text, len);
    gpt_free(text);
    cJSON_Delete(root);
    return status;
}

static int add_merge_item(struct loading *l, const cJSON *item,
                          long long number, struct gpt_merge *merge)
{
    const cJSON *left = item->child, *right = left ? left->next : NULL;
    if (cJSON_IsString(item))
        return add_merge_line(l, item->valuestring, strlen(item->valuestring),
                              number, merge);
    if (!cJSON_IsArray(item) || !cJSON_IsString(left) ||
        !cJSON_IsString(right) || right->next)
        return gpt_fail(l->err, GPT_EDATA,
                        "%s: number %lld is no pair of tokens", l->merge_file,
                        number);
    struct halves h = {left->valuestring, right->valuestring,
                       strlen(left->valuestring), strlen(right->valuestring),
                       number};
    return add_merge(l, &h, merge);
}

static int load_merge_array(struct loading *l, const cJSON *merges)
{
    struct gpt_vocab *v = l->v;
    if (!cJSON_IsArray(merges))
        return gpt_fail(l->err, GPT_EDATA, "%s: not an array", l->merge_file);
    size_t n = (size_t)cJSON_GetArraySize(merges);
    GPT_TRY(gpt_new(&v->merges, n, sizeof(*v->merges), "merges", l->err));
    for (const cJSON *i = merges->child; i; i = i->next) {
        GPT_TRY(add_merge_item(l, i, (long long)v->n_merges + 1,
                               &v->merges[v->n_merges]));
        v->n_merges++;
    }
    return GPT_OK;
}

static void free_loading(struct loading *l)
{
    gpt_free(l->texts);
    gpt_token_map_close(&l->names);
    gpt_buf_free(&l->joined);
}

int gpt_vocab_load(struct gpt_vocab *v, const char *vocab_file,
                   const char *merge_file, struct gpt_err *err)
{
    struct loading l = {.v = v, .vocab_file = vocab_file,
                        .merge_file = merge_file, .err = err};
    *v = (struct gpt_vocab){.eod = -1};
    int status = load_files(&l);
    free_loading(&l);
    return status;
}

int gpt_vocab_load_json(struct gpt_vocab *v, const cJSON *vocab,
                        const cJSON *merges, int64_t n_ids, const char *what,
                        struct gpt_err *err)
{
    char vocab_name[4200], merges_name[4200];
    struct loading l = {.v = v, .vocab_file = vocab_name,
                        .merge_file = merges_name, .gaps = true, .err = err};
    snprintf(vocab_name, sizeof vocab_name, "%s: model.vocab", what);
    snprintf(merges_name, sizeof merges_name, "%s: model.merges", what);
    *v = (struct gpt_vocab){.eod = -1};
    int status = load_tokens(&l, vocab, n_ids);
    if (status == GPT_OK)
        status = load_merge_array(&l, merges);
    free_loading(&l);
    return status;
}

void gpt_vocab_free(struct gpt_vocab *v)
{
    gpt_free(v->tokens);
    gpt_free(v->merges);
    gpt_arena_free(&v->arena);
    memset(v, 0, sizeof(*v));
}
