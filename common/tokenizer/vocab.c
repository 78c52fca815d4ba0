/* Reading of vocab.json and merges.txt, and of both in one file. Start at
 * gpt_vocab_load().
 *
 * The files write tokens in the letters of bytelevel.h, and merges refer to
 * tokens by that text. So while loading, tokens are looked up as text, through
 * vocab_names.h; what stays afterwards are bytes and ids. A merge is checked in
 * full: both halves and what they make must be tokens, or encoding would make
 * an id that is none. */
#include "tokenizer/vocab.h"

#include "base/io.h"
#include "text/json_scan.h"
#include "tokenizer/bytelevel.h"
#include "tokenizer/sp_model.h"
#include "tokenizer/sp_normalize.h"
#include "tokenizer/vocab_chars.h"
#include "tokenizer/vocab_names.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Files on their way to a vocabulary. */
struct loading {
    struct gpt_vocab *v;
    const char *vocab_file, *merge_file;
    bool chars; /* tokens are of characters, not of the letters of bytes */
    struct gpt_vocab_names names;
    size_t cap;            /* of v->merges */
    int32_t last;          /* what the merge before makes; -1 at first */
    struct gpt_buf joined; /* of a merge's result */
    struct gpt_err *err;
};

/* ---- tokens ---- */

/* Writes the bytes that a text stands for; returns how many. A text that is not
 * all byte letters is a special token: it stands for itself, and no merge can
 * make it. */
static size_t print_token(const struct loading *l, const struct gpt_str *text,
                          char *bytes)
{
    size_t len;

    if (l->chars)
        return gpt_chars_print(text->data, text->len, bytes);
    if (gpt_bytelevel_decode(text->data, text->len, bytes, &len))
        return len;
    memcpy(bytes, text->data, text->len);
    return text->len;
}

/* Finds the bytes that tokens stand for. */
static int add_tokens(struct loading *l)
{
    struct gpt_vocab *v = l->v;
    char *bytes = gpt_arena_alloc(&v->arena,
                                  l->names.n_letters + (size_t)v->n, 1);

    GPT_TRY(gpt_new(&v->tokens, (size_t)v->n, sizeof(*v->tokens),
                    "a vocabulary", l->err));
    if (!bytes)
        return gpt_no_memory(l->err, "a vocabulary");
    /* decoding never lengthens a text, so that one block holds them all */
    for (int64_t id = 0; id < v->n; id++) {
        const struct gpt_str *text = &l->names.texts[id];
        struct gpt_str *token = &v->tokens[id];

        if (!text->data)
            continue;
        token->data = bytes;
        token->len = print_token(l, text, bytes);
        if (token->len > GPT_TOKEN_MAX)
            return gpt_fail(l->err, GPT_EDATA, "%s: token %lld has %zu bytes, "
                            "must have at most %d", l->vocab_file,
                            (long long)id,
                            token->len, GPT_TOKEN_MAX);
        bytes += token->len + 1; /* NUL, for printing */
    }
    return GPT_OK;
}

/* Any text can be encoded because each byte is a token. */
static int check_bytes(struct loading *l)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[GPT_BYTELEVEL_MAX], c = (char)byte;
        size_t len = gpt_bytelevel_encode(&c, 1, text);
        int32_t id = gpt_vocab_name_find(&l->names, text, len);

        if (id < 0)
            return gpt_fail(l->err, GPT_EDATA,
                            "%s: no token for byte 0x%02x ('%.*s')",
                            l->vocab_file, (unsigned)byte, (int)len, text);
        l->v->byte_id[byte] = id;
    }
    return GPT_OK;
}

/* Any text can be encoded because a byte is that of a character's token, or has
 * a token of its own. The space is U+2581. */
static int check_chars(struct loading *l)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[8], c = (char)byte;
        const char *text = byte == ' ' ? GPT_SP_SPACE : &c;
        const size_t len = byte == ' ' ? strlen(GPT_SP_SPACE) : 1;
        /* beyond ASCII a byte is no character */
        int32_t id =
            byte < 128 ? gpt_vocab_name_find(&l->names, text, len) : -1;

        snprintf(name, sizeof(name), "<0x%02X>", (unsigned)byte);
        l->v->fallback_id[byte] =
            gpt_vocab_name_find(&l->names, name, strlen(name));
        if (id < 0 && byte != ' ')
            id = l->v->fallback_id[byte];
        if (id < 0)
            return gpt_fail(l->err, GPT_EDATA, "%s: no token '%s'",
                            l->vocab_file, byte == ' ' ? GPT_SP_SPACE : name);
        l->v->byte_id[byte] = id;
    }
    return GPT_OK;
}

static int load_tokens(struct loading *l, struct gpt_str json,
                       const struct gpt_vocab_ids *ids)
{
    GPT_TRY(gpt_vocab_names_read(&l->names, json, ids, l->vocab_file, l->err));
    l->v->n = l->names.n;
    GPT_TRY(add_tokens(l));
    /* by name: vocabularies that were made from GPT-2's have it elsewhere */
    l->v->eod = gpt_vocab_name_find(&l->names, "<|endoftext|>", 13);
    return l->chars ? check_chars(l) : check_bytes(l);
}

/* ---- merges.txt ---- */

/* A merge in the making. `line` is its line, or its number in an array. */
struct halves {
    const char *left, *right;
    size_t left_len, right_len;
    long long line;
};

/* Reports a text of a merge that is no token. */
static int missing_token(struct loading *l, long long line, const char *text,
                         size_t len)
{
    return gpt_fail(l->err, GPT_EDATA, "%s:%lld: '%.*s' is not in %s",
                    l->merge_file, line, gpt_str_shown(len), text,
                    l->vocab_file);
}

/* Finds the token that two texts make. Most files list merges in the order of
 * what they make, some with all merges of a token in a row: so the last result
 * and the one after it are tried first, which saves joining the text and a
 * search for it. */
static int find_result(struct loading *l, const struct halves *h, int32_t *id)
{
    const struct gpt_vocab_names *names = &l->names;
    size_t len = h->left_len + h->right_len;

    for (int32_t i = l->last; i >= 0 && i <= l->last + 1 && i < names->n; i++) {
        const struct gpt_str *text = &names->texts[i];

        *id = i;
        if (text->data && text->len == len &&
            memcmp(text->data, h->left, h->left_len) == 0 &&
            memcmp(text->data + h->left_len, h->right, h->right_len) == 0)
            return GPT_OK;
    }
    l->joined.len = 0;
    if (gpt_buf_add(&l->joined, h->left, h->left_len) != GPT_OK ||
        gpt_buf_add(&l->joined, h->right, h->right_len) != GPT_OK)
        return gpt_no_memory(l->err, "a merge");
    *id = gpt_vocab_name_find(names, l->joined.data, len);
    return *id >= 0 ? GPT_OK : missing_token(l, h->line, l->joined.data, len);
}

/* A token of a byte takes no part in merges here: it stands for what has no
 * token, and its text for that byte. */
static int check_merge(struct loading *l, const struct gpt_merge *merge,
                       long long line)
{
    const int32_t ids[] = {merge->left, merge->right, merge->result};

    for (size_t i = 0; i < GPT_COUNT(ids); i++) {
        const struct gpt_str *text = &l->names.texts[ids[i]];

        if (gpt_sp_byte_of(*text) >= 0)
            return gpt_fail(l->err, GPT_EDATA, "%s:%lld: a merge with '%.*s', "
                            "which is a byte, is not supported", l->merge_file,
                            line, gpt_str_shown(text->len), text->data);
    }
    return GPT_OK;
}

static int add_merge(struct loading *l, const struct halves *h)
{
    struct gpt_vocab *v = l->v;
    struct gpt_merge merge;

    merge.left = gpt_vocab_name_find(&l->names, h->left, h->left_len);
    if (merge.left < 0)
        return missing_token(l, h->line, h->left, h->left_len);
    merge.right = gpt_vocab_name_find(&l->names, h->right, h->right_len);
    if (merge.right < 0)
        return missing_token(l, h->line, h->right, h->right_len);
    GPT_TRY(find_result(l, h, &merge.result));
    if (l->chars)
        GPT_TRY(check_merge(l, &merge, h->line));
    l->last = merge.result;
    GPT_TRY(gpt_grow(&v->merges, &l->cap, v->n_merges + 1, sizeof(*v->merges),
                     "merges", l->err));
    v->merges[v->n_merges++] = merge;
    return GPT_OK;
}

/* "left right" */
static int add_merge_line(struct loading *l, const char *text, size_t len,
                          long long line)
{
    const char *space = memchr(text, ' ', len);
    size_t left = space ? (size_t)(space - text) : 0;
    size_t right = space ? len - left - 1 : 0;

    if (!left || !right || memchr(space + 1, ' ', right))
        return gpt_fail(l->err, GPT_EDATA,
                        "%s:%lld: not two tokens with one space between: "
                        "'%.*s'",
                        l->merge_file, line, gpt_str_shown(len),
                        text);
    struct halves h = {text, space + 1, left, right, line};
    return add_merge(l, &h);
}

static int load_merges(struct loading *l, const char *text, size_t len)
{
    struct gpt_str rest = {text, len}, line;

    for (long long number = 1; gpt_str_next_line(&rest, &line); number++)
        if (line.len < 8 || memcmp(line.data, "#version", 8) != 0)
            GPT_TRY(add_merge_line(l, line.data, line.len, number));
    return GPT_OK;
}

/* ---- merges of a tokenizer.json ---- */

static int no_pair(struct loading *l, long long number)
{
    return gpt_fail(l->err, GPT_EDATA, "%s: merge number %lld is not a pair of "
                    "tokens", l->merge_file, number);
}

struct merge_list {
    struct loading *l;
    struct gpt_scan scan;
    char *room; /* for the letters of a merge, which each overwrites */
};

/* Reads "left right" or ["left", "right"]. */
static int take_merge(void *context)
{
    struct merge_list *list = context;
    struct loading *l = list->l;
    struct gpt_scan *s = &list->scan;
    char *room = list->room;
    long long number = (long long)l->v->n_merges + 1;
    struct gpt_str half[2];
    size_t n = 0, len;

    if (gpt_scan_at(s, '"')) {
        GPT_TRY(gpt_scan_text(s, room, &len));
        return add_merge_line(l, room, len, number);
    }
    if (!gpt_scan_at(s, '['))
        return no_pair(l, number);
    s->p++;
    gpt_scan_space(s);
    do {
        if (n == GPT_COUNT(half) || !gpt_scan_at(s, '"'))
            return no_pair(l, number);
        assert(n < GPT_COUNT(half));
        half[n].data = room;
        GPT_TRY(gpt_scan_text(s, room, &half[n].len));
        room += half[n++].len;
    } while (gpt_scan_more(s));
    GPT_TRY(gpt_scan_expect(s, ']', "',' or ']'"));
    if (n < GPT_COUNT(half))
        return no_pair(l, number);
    const struct halves h = {half[0].data, half[1].data, half[0].len,
                             half[1].len, number};
    return add_merge(l, &h);
}

/* An array in tokenizer.json, of either form of merges. */
static int load_merge_list(struct loading *l, struct gpt_str json)
{
    struct merge_list list = {l, gpt_scan_of(json, l->err), NULL};

    gpt_scan_space(&list.scan);
    if (!gpt_scan_at(&list.scan, '['))
        return gpt_fail(l->err, GPT_EDATA, "%s: not an array", l->merge_file);
    GPT_TRY(gpt_new(&list.room, json.len + GPT_SCAN_SLACK, 1, "merges",
                    l->err));
    int status = gpt_scan_items(&list.scan, '[', "a list of merges", take_merge,
                                &list);
    gpt_free(list.room);
    return status;
}

/* ---- the two together ---- */

/* The text of a file is freed before the next is read: both are megabytes. */
static int load_files(struct loading *l)
{
    const struct gpt_vocab_ids ids = {0};
    char *text;
    size_t len;

    GPT_TRY(gpt_read_file(l->vocab_file, GPT_VOCAB_FILE_MAX, &text, &len,
                          l->err));
    int status = load_tokens(l, (struct gpt_str){text, len}, &ids);
    gpt_free(text);
    GPT_TRY(status);
    GPT_TRY(gpt_read_file(l->merge_file, GPT_VOCAB_FILE_MAX, &text, &len,
                          l->err));
    status = load_merges(l, text, len);
    gpt_free(text);
    return status;
}

static void free_loading(struct loading *l)
{
    gpt_vocab_names_close(&l->names);
    gpt_buf_free(&l->joined);
}

int gpt_vocab_load(struct gpt_vocab *v, const char *vocab_file,
                   const char *merge_file, struct gpt_err *err)
{
    struct loading l = {.v = v, .vocab_file = vocab_file, .last = -1,
                        .merge_file = merge_file, .err = err};

    *v = (struct gpt_vocab){.eod = -1};
    int status = load_files(&l);
    free_loading(&l);
    return status;
}

static int load_json(struct gpt_vocab *v, bool chars, struct gpt_str vocab,
                     struct gpt_str merges, int64_t n_ids, const char *what,
                     struct gpt_err *err)
{
    char vocab_name[GPT_JOINED_BYTES], merges_name[GPT_JOINED_BYTES];
    const struct gpt_vocab_ids ids = {.gaps = true, .least = n_ids};
    struct loading l = {.v = v, .chars = chars, .vocab_file = vocab_name,
                        .last = -1, .merge_file = merges_name, .err = err};
    int status;

    snprintf(vocab_name, sizeof(vocab_name), "%s: model.vocab", what);
    snprintf(merges_name, sizeof(merges_name), "%s: model.merges", what);
    *v = (struct gpt_vocab){.eod = -1};
    GPT_TRY_GOTO(status, load_tokens(&l, vocab, &ids), out);
    status = load_merge_list(&l, merges);
out:
    free_loading(&l);
    return status;
}

int gpt_vocab_load_json(struct gpt_vocab *v, struct gpt_str vocab,
                        struct gpt_str merges, int64_t n_ids,
                        const char *what, struct gpt_err *err)
{
    return load_json(v, false, vocab, merges, n_ids, what, err);
}

int gpt_vocab_load_chars(struct gpt_vocab *v, struct gpt_str vocab,
                         struct gpt_str merges, int64_t n_ids,
                         const char *what, struct gpt_err *err)
{
    GPT_TRY(load_json(v, true, vocab, merges, n_ids, what, err));
    return gpt_chars_join(v, what, err);
}

void gpt_vocab_free(struct gpt_vocab *v)
{
    gpt_free(v->tokens);
    gpt_free(v->merges);
    gpt_arena_free(&v->arena);
    memset(v, 0, sizeof(*v));
}
