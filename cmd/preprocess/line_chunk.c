/* A chunk of lines and what a worker makes of it; see line_chunk.h. Start at
 * gpt_line_chunk_encode(), at the end, and read upwards: chunk, line, document,
 * sequence. */
#include "cmd/preprocess/line_chunk.h"

#include "base/cpu.h"
#include "base/memory.h"

#include <assert.h>
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

/* Frees an array of more than `bytes` bytes. *array_pointer is a pointer of any
 * type, and read as bytes for that reason. */
static void trim_array(void *array_pointer, size_t *cap, size_t size,
                       size_t bytes)
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
    trim_array(&c->data, &c->cap, 1, bytes);
    for (size_t k = 0; k < n_keys; k++) {
        struct gpt_ids *ids = &c->keys[k].ids;

        trim_array(&ids->data, &ids->cap, sizeof(*ids->data), bytes);
    }
}

/* ---- encoding ---- */

/* Lengths are kept apart from tokens, as the data set has them in another
 * file. */
static int add_length(struct gpt_line_chunk_key *key, int32_t n,
                      struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&key->lengths, &key->lengths_cap, key->n_lengths + 1,
                     sizeof(*key->lengths), "sequence lengths", err));
    key->lengths[key->n_lengths++] = n;
    return GPT_OK;
}

/* A string that tokenizes to nothing is no sequence, as in Megatron-LM. */
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
        return gpt_fail(err, GPT_EDATA, "a sequence has %zu tokens, must have "
                        "at most %lld", n, (long long)w->max_sequence);
    return add_length(key, (int32_t)n, err);
}

/* The end-of-document token belongs to the last sequence: its length counts
 * it. */
static int add_eod(struct gpt_line_chunk_key *key, int32_t eod,
                   struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&key->ids.data, &key->ids.cap, key->ids.len + 1,
                     sizeof(*key->ids.data), "token ids", err));
    assert(key->n_lengths > 0);
    key->ids.data[key->ids.len++] = eod;
    key->lengths[key->n_lengths - 1]++;
    return GPT_OK;
}

/* Keeps where the document comes from. Called before the document is
 * counted. */
static int add_place(struct gpt_line_chunk_key *key,
                     const struct gpt_line_chunk *c, struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&key->places, &key->places_cap, key->n_documents + 1,
                     sizeof(*key->places), "places of documents", err));
    key->places[key->n_documents] =
        (struct gpt_line_chunk_place){c->lines, c->line_at};
    return GPT_OK;
}

/* What key k of the line becomes: a sequence for each of its strings, then the
 * end of the document. A document without a sequence is kept, dropped, or made
 * of the end alone, as the worker is set. */
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
    /* The scratch file of the writer counts sequences of a document in 31
     * bits. */
    if (sequences > INT32_MAX)
        return gpt_fail(err, GPT_EDATA, "a document has %zu sequences, must "
                        "have at most %d", sequences, INT32_MAX);
    GPT_TRY(gpt_grow(&key->document_sequences, &key->documents_cap,
                     key->n_documents + 1, sizeof(int32_t), "documents", err));
    if (w->places)
        GPT_TRY(add_place(key, c, err));
    key->document_sequences[key->n_documents++] = (int32_t)sequences;
    return GPT_OK;
}

/* Adds the documents of a line, one a key. *kind is the kind of bad line when
 * it fails with GPT_EDATA: before the scanner has returned it is the scanner's,
 * after it only a sequence can be too long. */
static int encode_line(struct gpt_line_chunk_worker *w,
                       struct gpt_line_chunk *c, struct gpt_str line, int *kind,
                       struct gpt_err *err)
{
    int status = gpt_jsonl_scan(w->scanner, line.data, line.len, err);

    *kind = (int)gpt_jsonl_bad(w->scanner);
    GPT_TRY(status);
    /* The scanner's strings are copies: the pages of a long line can be given
     * back before its tokens need as many. Not when a bad line is to be
     * kept. */
    if (line.len >= (size_t)w->long_line && !w->keep_bad)
        gpt_drop_pages(c->data + c->line_at, line.len);
    *kind = GPT_BAD_LONG;
    for (size_t k = 0; k < w->n_keys; k++)
        GPT_TRY(add_document(w, c, k, err));
    return GPT_OK;
}

/* ---- marks: a bad line leaves no tokens ---- */

static void mark_key(struct gpt_line_chunk_key *key)
{
    key->mark = (struct gpt_line_chunk_mark){
        .n_ids = key->ids.len,
        .n_lengths = key->n_lengths,
        .n_documents = key->n_documents,
        .text_bytes = key->text_bytes,
    };
}

/* Drops what was added after the mark. Memory is kept: counts alone say what an
 * array holds. */
static void reset_key(struct gpt_line_chunk_key *key,
                      const struct gpt_line_chunk_mark *mark)
{
    assert(mark->n_ids <= key->ids.len && mark->n_lengths <= key->n_lengths);
    key->ids.len = mark->n_ids;
    key->n_lengths = mark->n_lengths;
    key->n_documents = mark->n_documents;
    key->text_bytes = mark->text_bytes;
}

/* ---- lines ---- */

/* Like encode_line(), but a bad line leaves only an entry in the list. A later
 * key of the line may be bad when an earlier one has been added: all keys go
 * back to their marks. */
static int encode_or_skip(struct gpt_line_chunk_worker *w,
                          struct gpt_line_chunk *c, struct gpt_str line,
                          struct gpt_err *err)
{
    /* Where the line is must be kept before it is scanned: a failure may be
     * anywhere in it. */
    struct gpt_bad_line bad = {
        .line = c->lines,
        .at = c->line_at,
    };

    for (size_t k = 0; k < w->n_keys; k++)
        mark_key(&c->keys[k]);
    int status = encode_line(w, c, line, &bad.kind, err);
    c->bad_kind = bad.kind;
    if (status != GPT_EDATA || !w->skip_bad)
        return status;
    for (size_t k = 0; k < w->n_keys; k++)
        reset_key(&c->keys[k], &c->keys[k].mark);
    /* Only the first bad lines of a run are named, and those of a chunk may be
     * these: the writer knows, a worker does not. */
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
        /* The last line of an input may lack its newline. */
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

/* Makes uint16 of int32 in place, eight at a time: writing is never ahead of
 * reading, as the results are half as long. The caller has checked that the
 * vocabulary fits. */
static void narrow_by(int32_t *ids, size_t n)
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

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* The same, 16 at a time by one instruction. */
static __attribute__((target("avx512f,avx512bw,avx512vl"))) void
narrow_avx512(int32_t *ids, size_t n)
{
    uint16_t *out = (uint16_t *)(void *)ids;
    size_t i = 0;

    for (; n - i >= 16; i += 16)
        _mm256_storeu_si256(
            (__m256i *)(void *)(out + i),
            _mm512_cvtepi32_epi16(_mm512_loadu_si512(ids + i)));
    const __mmask16 rest = (__mmask16)((1u << (n - i)) - 1);
    _mm256_mask_storeu_epi16(out + i, rest, _mm512_cvtepi32_epi16(
        _mm512_maskz_loadu_epi32(rest, ids + i)));
}
#else
#define narrow_avx512 narrow_by
#endif

static void narrow(int32_t *ids, size_t n)
{
    if (strcmp(gpt_cpu_isa(), "avx512") == 0)
        narrow_avx512(ids, n);
    else
        narrow_by(ids, n);
}

void gpt_line_chunk_encode(struct gpt_line_chunk_worker *w,
                           struct gpt_line_chunk *c)
{
    static const struct gpt_line_chunk_mark empty = {0};

    c->lines = 0;
    c->n_bad = 0;
    for (size_t k = 0; k < w->n_keys; k++)
        reset_key(&c->keys[k], &empty);
    if (c->status != GPT_OK)
        return;
    c->status = encode_lines(w, c, &c->err);
    c->in_line = c->status != GPT_OK;
    for (size_t k = 0; k < w->n_keys && w->dtype == GPT_U16; k++)
        narrow(c->keys[k].ids.data, c->keys[k].ids.len);
    /* The scanner keeps its buffers from line to line, but not those of a line
     * of megabytes. */
    if (c->len >= (size_t)w->long_line)
        gpt_jsonl_trim(w->scanner);
}
