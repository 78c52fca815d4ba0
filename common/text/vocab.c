/* Reading of vocab.json and merges.txt. While loading, tokens are looked up by
 * the text that the files write them in; what stays are bytes and ids. Start at
 * gpt_vocab_load(). */
#include "text/vocab.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "text/bytelevel.h"

#include <string.h>

enum { MAX_FILE = 1 << 28 };

/* Token texts to ids: open addressing, at most half full. */
struct names {
    struct gpt_slice *text; /* (n) borrowed, by id */
    int32_t *slots;         /* id + 1, 0 = free */
    size_t mask;
};

struct loading {
    struct gpt_vocab *v;
    const char *vocab_file, *merge_file;
    struct names names;
    struct gpt_buf joined; /* of a merge's result */
    struct gpt_err *err;
};

static int32_t *names_slot(const struct names *names, const char *text,
                           size_t len)
{
    size_t i = (size_t)gpt_hash64(text, len, 0) & names->mask;
    for (;; i = (i + 1) & names->mask) {
        int32_t id = names->slots[i] - 1;
        if (id < 0 || (names->text[id].len == len &&
                       memcmp(names->text[id].data, text, len) == 0))
            return &names->slots[i];
    }
}

static int32_t find_token(const struct loading *l, const char *text,
                          size_t len)
{
    return *names_slot(&l->names, text, len) - 1;
}

/* ---- vocab.json ---- */

static int read_id(struct loading *l, const cJSON *item, int32_t *id)
{
    double v = item->valuedouble;
    if (cJSON_IsNumber(item) && !(v >= 0 && v < (double)l->v->n))
        return gpt_fail(l->err, GPT_EDATA,
                        "%s: token '%s' has id %.0f; %lld tokens have the "
                        "ids 0 to %lld",
                        l->vocab_file, item->string, v, (long long)l->v->n,
                        (long long)l->v->n - 1);
    if (!cJSON_IsNumber(item) || v != (double)(int32_t)v)
        return gpt_fail(l->err, GPT_EDATA,
                        "%s: token '%s' has no integer id", l->vocab_file,
                        item->string);
    *id = (int32_t)v;
    if (l->names.text[*id].data)
        return gpt_fail(l->err, GPT_EDATA, "%s: tokens '%s' and '%s' are "
                        "both id %d", l->vocab_file,
                        l->names.text[*id].data, item->string, (int)*id);
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
    l->names.text[id] = (struct gpt_slice){text, len};
    *names_slot(&l->names, text, len) = id + 1;

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

static int load_tokens(struct loading *l, const cJSON *root)
{
    struct gpt_vocab *v = l->v;
    if (!cJSON_IsObject(root))
        return gpt_fail(l->err, GPT_EDATA,
                        "%s: not an object of tokens and ids", l->vocab_file);
    for (const cJSON *i = root->child; i; i = i->next)
        v->n++;
    if (v->n > GPT_VOCAB_MAX)
        return gpt_fail(l->err, GPT_EDATA, "%s: %lld tokens, limit %d",
                        l->vocab_file, (long long)v->n, GPT_VOCAB_MAX);
    size_t n_slots = 512;
    while (n_slots < (size_t)v->n * 2)
        n_slots *= 2;
    l->names.mask = n_slots - 1;
    GPT_TRY(gpt_new(&v->tokens, (size_t)v->n, sizeof(*v->tokens),
                    "a vocabulary", l->err));
    GPT_TRY(gpt_new(&l->names.text, (size_t)v->n, sizeof(*l->names.text),
                    "a vocabulary", l->err));
    GPT_TRY(gpt_new(&l->names.slots, n_slots, sizeof(*l->names.slots),
                    "a vocabulary", l->err));
    for (const cJSON *i = root->child; i; i = i->next) {
        int32_t id = 0;
        GPT_TRY(read_id(l, i, &id));
        GPT_TRY(add_token(l, id, i->string));
    }
    v->eod = find_token(l, "<|endoftext|>", 13);
    return check_bytes(l);
}

/* ---- merges.txt ---- */

static int missing_token(struct loading *l, long long line, const char *text,
                         size_t len)
{
    return gpt_fail(l->err, GPT_EDATA, "%s:%lld: '%.*s' is not in %s",
                    l->merge_file, line, (int)(len < 200 ? len : 200), text,
                    l->vocab_file);
}

static int add_merge(struct loading *l, const char *text, size_t len,
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
    merge->left = find_token(l, text, left);
    if (merge->left < 0)
        return missing_token(l, line, text, left);
    merge->right = find_token(l, space + 1, right);
    if (merge->right < 0)
        return missing_token(l, line, space + 1, right);

    l->joined.len = 0;
    if (gpt_buf_add(&l->joined, text, left) != GPT_OK ||
        gpt_buf_add(&l->joined, space + 1, right) != GPT_OK)
        return gpt_fail(l->err, GPT_EFAIL, "cannot allocate a merge");
    merge->result = find_token(l, l->joined.data, l->joined.len);
    if (merge->result < 0)
        return missing_token(l, line, l->joined.data, l->joined.len);
    return GPT_OK;
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
            GPT_TRY(add_merge(l, p, n, line, &v->merges[v->n_merges]));
            v->n_merges++;
        }
        p = newline ? newline + 1 : end;
    }
    return GPT_OK;
}

int gpt_vocab_load(struct gpt_vocab *v, const char *vocab_file,
                   const char *merge_file, struct gpt_err *err)
{
    struct loading l = {.v = v, .vocab_file = vocab_file,
                        .merge_file = merge_file, .err = err};
    cJSON *root = NULL;
    char *text = NULL;
    size_t len;
    memset(v, 0, sizeof(*v));
    v->eod = -1;
    int status = gpt_json_read(&root, vocab_file, MAX_FILE, err);
    if (status == GPT_OK)
        status = load_tokens(&l, root);
    if (status == GPT_OK)
        status = gpt_read_file(merge_file, MAX_FILE, &text, &len, err);
    if (status == GPT_OK)
        status = load_merges(&l, text, len);
    gpt_free(text);
    gpt_free(l.names.text);
    gpt_free(l.names.slots);
    gpt_buf_free(&l.joined);
    cJSON_Delete(root);
    return status;
}

void gpt_vocab_free(struct gpt_vocab *v)
{
    gpt_free(v->tokens);
    gpt_free(v->merges);
    gpt_arena_free(&v->arena);
    memset(v, 0, sizeof(*v));
}
