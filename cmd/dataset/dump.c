/* Prints documents, a piece of a sequence at a time. Start at gpt_dump(), at
 * the end. */
#include "cmd/dataset/dump.h"

#include "base/num.h"
#include "base/signals.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <string.h>

/* ---- JSON strings in pieces ---- */

static int put_character(struct gpt_out *out, const char *p, size_t n,
                         struct gpt_err *err)
{
    unsigned char c = (unsigned char)*p;

    if (n == 0)
        return gpt_out_write(out, "\xef\xbf\xbd", 3, err); /* U+FFFD */
    if (c == '"' || c == '\\')
        return gpt_out_printf(out, err, "\\%c", c);
    if (c == '\n')
        return gpt_out_write(out, "\\n", 2, err);
    if (c < 0x20 || c == 0x7f)
        return gpt_out_printf(out, err, "\\u%04x", c);
    return gpt_out_write(out, p, n, err);
}

/* Bytes of a character that begins with p; 1 for what begins none. */
static size_t length_by_first(const char *p)
{
    unsigned char c = (unsigned char)*p;

    return c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
}

int gpt_json_text_add(struct gpt_json_text *t, struct gpt_out *out,
                      const char *bytes, size_t n, struct gpt_err *err)
{
    for (size_t i = 0; i < n; i++) {
        t->carry[t->n++] = bytes[i];
        while (t->n > 0) {
            size_t good = gpt_utf8_length(t->carry, t->n);

            if (good == 0 && t->n < length_by_first(t->carry))
                break; /* the rest may come */
            GPT_TRY(put_character(out, t->carry, good, err));
            size_t used = good ? good : 1;
            t->n -= used;
            memmove(t->carry, t->carry + used, t->n);
        }
    }
    return GPT_OK;
}

int gpt_json_text_end(struct gpt_json_text *t, struct gpt_out *out,
                      struct gpt_err *err)
{
    for (; t->n > 0; t->n--)
        GPT_TRY(put_character(out, "", 0, err));
    return GPT_OK;
}

/* ---- documents ---- */

struct dump {
    struct gpt_out *out;
    const struct gpt_indexed *set;
    const struct gpt_dump_options *o;
    struct gpt_json_text json;
};

static int put(const struct dump *d, const char *text, struct gpt_err *err)
{
    return gpt_out_write(d->out, text, strlen(text), err);
}

static int put_text(struct dump *d, int64_t sequence, int64_t at, int32_t id,
                    struct gpt_err *err)
{
    size_t n;
    const char *bytes = gpt_token_bytes(d->o->tokenizer, id, &n);

    if (n == 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s: token %" PRId64 " of sequence %" PRId64
                        " is %d, which is not in the vocabulary of %" PRId64,
                        gpt_indexed_prefix(d->set), at, sequence, id,
                        gpt_tokenizer_vocab_size(d->o->tokenizer));
    size_t skip = at == 0 ? gpt_first_space(d->o->tokenizer, id) : 0;
    bytes += skip;
    n -= skip;
    return d->o->jsonl ? gpt_json_text_add(&d->json, d->out, bytes, n, err)
                       : gpt_out_write(d->out, bytes, n, err);
}

/* Tokens [0, n) of a sequence. */
static int put_tokens(struct dump *d, int64_t sequence, int64_t n,
                      struct gpt_err *err)
{
    enum { PIECE = 4096 };
    int32_t ids[PIECE];
    const char *between = d->o->jsonl ? "," : " ";

    for (int64_t at = 0; at < n; at++) {
        int64_t k = at % PIECE;

        if (k == 0)
            GPT_TRY(gpt_indexed_read(d->set, sequence, at,
                                     gpt_min_i64(PIECE, n - at), ids, err));
        if (d->o->tokenizer)
            GPT_TRY(put_text(d, sequence, at, ids[k], err));
        else
            GPT_TRY(gpt_out_printf(d->out, err, "%s%d", at ? between : "",
                                   ids[k]));
    }
    return GPT_OK;
}

static int put_sequence(struct dump *d, int64_t i, bool last,
                        struct gpt_err *err)
{
    const struct gpt_tokenizer *tok = d->o->tokenizer;
    int64_t n = gpt_indexed_length(d->set, i);
    int32_t id;

    if (last && d->o->strip_eod && n > 0) {
        GPT_TRY(gpt_indexed_read(d->set, i, n - 1, 1, &id, err));
        n -= id == gpt_tokenizer_eod(tok);
    }
    if (d->o->jsonl)
        GPT_TRY(put(d, tok ? "\"" : "[", err));
    GPT_TRY(put_tokens(d, i, n, err));
    if (!d->o->jsonl)
        return GPT_OK;
    GPT_TRY(gpt_json_text_end(&d->json, d->out, err));
    return put(d, tok ? "\"" : "]", err);
}

/* "file":"...","line":17,"offset":1234, or file:17 and a tab. */
static int put_source(struct dump *d, int64_t document, struct gpt_err *err)
{
    struct gpt_source_record s;
    const char *path;

    GPT_TRY(gpt_sources_get(d->o->sources, document, &s, &path, err));
    if (!d->o->jsonl)
        return s.line ? gpt_out_printf(d->out, err, "%s:%u\t", path, s.line)
                      : gpt_out_printf(d->out, err, "%s@%" PRIu64 "\t", path,
                                       s.offset);
    GPT_TRY(put(d, "\"file\":\"", err));
    GPT_TRY(gpt_json_text_add(&d->json, d->out, path, strlen(path), err));
    GPT_TRY(gpt_json_text_end(&d->json, d->out, err));
    GPT_TRY(put(d, "\",", err));
    if (s.line)
        GPT_TRY(gpt_out_printf(d->out, err, "\"line\":%u,", s.line));
    return gpt_out_printf(d->out, err, "\"offset\":%" PRIu64 ",", s.offset);
}

static int put_document(struct dump *d, int64_t document, struct gpt_err *err)
{
    bool jsonl = d->o->jsonl, text = d->o->tokenizer != NULL;
    int64_t first = gpt_indexed_document(d->set, document);
    int64_t end = gpt_indexed_document(d->set, document + 1);
    bool list = jsonl && end - first > 1;

    if (jsonl)
        GPT_TRY(gpt_out_printf(d->out, err, "{\"document\":%" PRId64 ",",
                               document));
    if (d->o->sources)
        GPT_TRY(put_source(d, document, err));
    if (jsonl)
        GPT_TRY(gpt_out_printf(d->out, err, "\"%s\":%s", text ? "text" : "ids",
                               list ? "[" : ""));
    if (jsonl && first == end)
        GPT_TRY(put(d, text ? "\"\"" : "[]", err));
    for (int64_t i = first; i < end; i++) {
        if (i > first && (jsonl || !text))
            GPT_TRY(put(d, jsonl ? "," : "\t", err));
        GPT_TRY(put_sequence(d, i, i + 1 == end, err));
    }
    return put(d, list ? "]}\n" : jsonl ? "}\n" : "\n", err);
}

int gpt_dump(struct gpt_out *out, const struct gpt_indexed *set,
             const struct gpt_dump_options *options, struct gpt_err *err)
{
    struct dump d = {out, set, options, {{0}, 0}};

    for (int64_t i = options->begin; i < options->end; i++) {
        GPT_TRY(put_document(&d, i, err));
        if (gpt_signals_stop())
            return gpt_fail(err, GPT_EFAIL, "stopped");
    }
    return GPT_OK;
}
