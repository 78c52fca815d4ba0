/* Cutting and encoding of chunks. Start at gpt_line_chunk_encode(). */
#include "cmd/preprocess/lines.h"

#include "base/memory.h"
#include "base/num.h"

#include <string.h>

int gpt_line_chunk_init(struct gpt_line_chunk *c, size_t n_keys,
                        struct gpt_err *err)
{
    return gpt_new(&c->keys, n_keys, sizeof(*c->keys), "a chunk", err);
}

void gpt_line_chunk_free(struct gpt_line_chunk *c, size_t n_keys)
{
    for (size_t k = 0; c->keys && k < n_keys; k++) {
        gpt_free(c->keys[k].ids.data);
        gpt_free(c->keys[k].lengths);
        gpt_free(c->keys[k].document_sequences);
        gpt_free(c->keys[k].places);
    }
    gpt_free(c->keys);
    gpt_free(c->bad);
    gpt_free(c->data);
}

static void trim(void *array_pointer, size_t *cap, size_t size, size_t bytes)
{
    void *array, *none = NULL;

    if (*cap <= bytes / size)
        return;
    memcpy(&array, array_pointer, sizeof(array));
    gpt_free(array);
    memcpy(array_pointer, &none, sizeof(none));
    *cap = 0;
}

void gpt_line_chunk_trim(struct gpt_line_chunk *c, size_t n_keys, size_t bytes)
{
    trim(&c->data, &c->cap, 1, bytes);
    for (size_t k = 0; k < n_keys; k++) {
        struct gpt_ids *ids = &c->keys[k].ids;

        trim(&ids->data, &ids->cap, sizeof(*ids->data), bytes);
    }
}

/* ---- cutting ---- */

/* Can these bytes begin a good line? Input that is no JSON at all may have no
 * newline for long; this tells before all of it is in memory. */
static bool may_be_object(const char *p, size_t len)
{
    size_t i = 0;

    while (i < len && (p[i] == ' ' || p[i] == '\t' || p[i] == '\r'))
        i++;
    return i == len || p[i] == '{';
}

/* A line that does not lie in a file as long as itself has a limit: a few
 * kilobytes of compressed data can become any number of bytes. */
static int check_line(struct gpt_cutter *cut, const struct gpt_line_chunk *c)
{
    int64_t limit =
        gpt_max_i64(cut->max_line, gpt_input_size(cut->in) + 1);

    if ((int64_t)c->len >= limit)
        return gpt_fail(&cut->err, GPT_EDATA, "%s: a line of %lld bytes or "
                        "more", gpt_input_name(cut->in), (long long)limit);
    if ((int64_t)c->len >= cut->long_line)
        cut->wait_alone(cut->user);
    return GPT_OK;
}

/* Reads until c holds chunk_bytes and a newline, at most chunk_bytes behind
 * that; *lines is the length of the whole lines among them. */
static int read_lines(struct gpt_cutter *cut, struct gpt_line_chunk *c,
                      size_t *lines)
{
    size_t want = (size_t)cut->chunk_bytes;

    *lines = 0;
    do {
        size_t room = c->len < want ? want : c->len + want, got;

        if (!*lines)
            GPT_TRY(check_line(cut, c));
        GPT_TRY(gpt_grow(&c->data, &c->cap, room, 1, "a line", &cut->err));
        GPT_TRY(gpt_input_read(cut->in, c->data + c->len, room - c->len, &got,
                               &cut->err));
        const char *newline = memrchr(c->data + c->len, '\n', got);
        if (newline)
            *lines = (size_t)(newline - c->data) + 1;
        c->len += got;
        if (got == 0) {
            cut->at_end = true;
            *lines = c->len;
        }
    } while (!cut->at_end && (c->len < want || !*lines) &&
             (*lines || c->len < want || cut->whole_lines ||
              may_be_object(c->data, c->len)));
    return GPT_OK;
}

void gpt_cutter_next(struct gpt_cutter *cut, struct gpt_line_chunk *c)
{
    size_t lines = 0;

    c->len = 0;
    c->status = cut->status;
    c->err = cut->err;
    c->in_line = false;
    if (cut->status != GPT_OK || cut->at_end)
        return;
    cut->status = gpt_grow(&c->data, &c->cap, cut->rest_len, 1, "a line",
                           &cut->err);
    if (cut->status == GPT_OK) {
        if (cut->rest_len)
            memcpy(c->data, cut->rest, cut->rest_len);
        c->len = cut->rest_len;
        cut->status = read_lines(cut, c, &lines);
    }
    if (lines == 0 && cut->status == GPT_OK)
        lines = c->len; /* cannot be JSON: to be refused as it is */
    size_t rest = c->len - lines;
    if (cut->status == GPT_OK)
        cut->status = gpt_grow(&cut->rest, &cut->rest_cap, rest, 1, "a line",
                               &cut->err);
    if (cut->status == GPT_OK && rest)
        memcpy(cut->rest, c->data + lines, rest);
    cut->rest_len = rest;
    c->len = lines;
    cut->offset += (int64_t)lines;
    c->end = cut->offset;
    if (lines == 0) {
        c->status = cut->status;
        c->err = cut->err;
    }
}

/* ---- encoding ---- */

static int add_length(struct gpt_line_chunk_key *key, int32_t n,
                      struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&key->lengths, &key->lengths_cap, key->n_lengths + 1,
                     sizeof(*key->lengths), "sequence lengths", err));
    key->lengths[key->n_lengths++] = n;
    return GPT_OK;
}

static int add_sequence(struct gpt_line_chunk_worker *w,
                        struct gpt_line_chunk_key *key, struct gpt_str text,
                        struct gpt_err *err)
{
    size_t before = key->ids.len;

    GPT_TRY(gpt_encode(w->encoder, text.data, text.len, &key->ids, err));
    size_t n = key->ids.len - before;
    if (n == 0)
        return GPT_OK;
    if (n > (size_t)w->max_sequence)
        return gpt_fail(err, GPT_EDATA, "a sequence of %zu tokens, limit %lld",
                        n, (long long)w->max_sequence);
    return add_length(key, (int32_t)n, err);
}

static int add_eod(struct gpt_line_chunk_key *key, int32_t eod,
                   struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&key->ids.data, &key->ids.cap, key->ids.len + 1,
                     sizeof(*key->ids.data), "token ids", err));
    key->ids.data[key->ids.len++] = eod;
    key->lengths[key->n_lengths - 1]++;
    return GPT_OK;
}

static int add_place(struct gpt_line_chunk_key *key,
                     const struct gpt_line_chunk *c, struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&key->places, &key->places_cap, key->n_documents + 1,
                     sizeof(*key->places), "places of documents", err));
    key->places[key->n_documents] =
        (struct gpt_line_chunk_place){c->lines, c->line_at};
    return GPT_OK;
}

static int add_document(struct gpt_line_chunk_worker *w,
                        struct gpt_line_chunk *c, size_t k, struct gpt_err *err)
{
    struct gpt_line_chunk_key *key = &c->keys[k];
    const struct gpt_str *strings;
    size_t n = gpt_jsonl_strings(w->scanner, k, &strings);
    size_t before = key->n_lengths;

    for (size_t i = 0; i < n; i++) {
        GPT_TRY(add_sequence(w, key, strings[i], err));
        key->text_bytes += (int64_t)strings[i].len;
    }
    if (key->n_lengths == before && w->empty == GPT_EMPTY_EOD)
        GPT_TRY(add_length(key, 0, err));
    size_t sequences = key->n_lengths - before;
    if (sequences && w->eod >= 0)
        GPT_TRY(add_eod(key, w->eod, err));
    if (!sequences && w->empty == GPT_EMPTY_DROP)
        return GPT_OK;
    if (sequences > INT32_MAX)
        return gpt_fail(err, GPT_EDATA, "a document of %zu sequences, limit %d",
                        sequences, INT32_MAX);
    GPT_TRY(gpt_grow(&key->document_sequences, &key->documents_cap,
                     key->n_documents + 1, sizeof(int32_t), "documents", err));
    if (w->places)
        GPT_TRY(add_place(key, c, err));
    key->document_sequences[key->n_documents++] = (int32_t)sequences;
    return GPT_OK;
}

/* *kind is that of a failure with GPT_EDATA. */
static int encode_line(struct gpt_line_chunk_worker *w,
                       struct gpt_line_chunk *c, struct gpt_str line, int *kind,
                       struct gpt_err *err)
{
    int status = gpt_jsonl_scan(w->scanner, line.data, line.len, err);

    *kind = (int)gpt_jsonl_bad(w->scanner);
    GPT_TRY(status);
    if (line.len >= (size_t)w->long_line && !w->keep_bad) /* texts are copies */
        gpt_drop_pages(c->data + c->line_at, line.len);
    *kind = GPT_BAD_LONG;
    for (size_t k = 0; k < w->n_keys; k++)
        GPT_TRY(add_document(w, c, k, err));
    return GPT_OK;
}

static void mark_keys(struct gpt_line_chunk *c, size_t n_keys)
{
    for (size_t k = 0; k < n_keys; k++) {
        struct gpt_line_chunk_key *key = &c->keys[k];

        key->mark_ids = key->ids.len;
        key->mark_lengths = key->n_lengths;
        key->mark_documents = key->n_documents;
        key->mark_text_bytes = key->text_bytes;
    }
}

static void reset_keys(struct gpt_line_chunk *c, size_t n_keys)
{
    for (size_t k = 0; k < n_keys; k++) {
        struct gpt_line_chunk_key *key = &c->keys[k];

        key->ids.len = key->mark_ids;
        key->n_lengths = key->mark_lengths;
        key->n_documents = key->mark_documents;
        key->text_bytes = key->mark_text_bytes;
    }
}

/* Like encode_line(); a bad line leaves only an entry in the list. */
static int encode_or_skip(struct gpt_line_chunk_worker *w,
                          struct gpt_line_chunk *c, struct gpt_str line,
                          struct gpt_err *err)
{
    struct gpt_bad_line bad = {
        .line = c->lines,
        .at = c->line_at,
    };

    mark_keys(c, w->n_keys);
    int status = encode_line(w, c, line, &bad.kind, err);
    if (status != GPT_EDATA || !w->skip_bad)
        return status;
    reset_keys(c, w->n_keys);
    if (c->n_bad < GPT_BAD_NAMED)
        c->named[c->n_bad] = *err;
    GPT_TRY(gpt_grow(&c->bad, &c->bad_cap, c->n_bad + 1, sizeof(*c->bad),
                     "bad lines", err));
    c->bad[c->n_bad++] = bad;
    return GPT_OK;
}

static int encode_lines(struct gpt_line_chunk_worker *w,
                        struct gpt_line_chunk *c, struct gpt_err *err)
{
    const char *p = c->data, *end = p + c->len;

    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const char *stop = newline ? newline : end;

        c->lines++;
        c->line_at = (size_t)(p - c->data);
        struct gpt_str line = {p, (size_t)(stop - p)};
        GPT_TRY(encode_or_skip(w, c, line, err));
        p = newline ? newline + 1 : end;
    }
    return GPT_OK;
}

/* int32 to uint16 in place, eight at a time: each eight are read before they
 * are written over. */
static void narrow(int32_t *ids, size_t n)
{
    typedef int32_t wide __attribute__((vector_size(32)));
    typedef uint16_t slim __attribute__((vector_size(16)));
    char *out = (char *)ids;
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        wide w;

        memcpy(&w, ids + i, sizeof(w));
        slim s = __builtin_convertvector(w, slim);
        memcpy(out + i * sizeof(uint16_t), &s, sizeof(s));
    }
    for (; i < n; i++) {
        uint16_t v = (uint16_t)ids[i];

        memcpy(out + i * sizeof(v), &v, sizeof(v));
    }
}

void gpt_line_chunk_encode(struct gpt_line_chunk_worker *w,
                           struct gpt_line_chunk *c)
{
    c->lines = 0;
    c->n_bad = 0;
    for (size_t k = 0; k < w->n_keys; k++) {
        c->keys[k].ids.len = 0;
        c->keys[k].n_lengths = 0;
        c->keys[k].n_documents = 0;
        c->keys[k].text_bytes = 0;
    }
    if (c->status != GPT_OK)
        return;
    c->status = encode_lines(w, c, &c->err);
    c->in_line = c->status != GPT_OK;
    for (size_t k = 0; k < w->n_keys && w->dtype == GPT_U16; k++)
        narrow(c->keys[k].ids.data, c->keys[k].ids.len);
    if (c->len >= (size_t)w->long_line)
        gpt_jsonl_trim(w->scanner);
}
