/* gpt-dataset cat: documents as text or ids, or as JSON lines. Start at
 * run_cat(), at the end, and read upwards.
 *
 * Plain: a document and a line end; ids have blanks between them, and a tab
 * between sequences. JSON lines: {"document":N,"text":"..."}, or "ids":[...],
 * and a list of those when the document has several sequences. With sources the
 * file, the line (when it is known) and the offset come before that, as fields
 * or as one word and a tab. Tokens are read a piece at a time, so that memory
 * does not depend on the length of a document. */
#include "cmd/dataset/command.h"

#include "base/num.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "cmd/dataset/json_text.h"
#include "data/document_sources.h"

#include <inttypes.h>
#include <string.h>

/* ---- documents ---- */

/* What is printed of a set, and where. */
struct dump {
    struct gpt_out *out;
    const struct gpt_indexed *set;
    int64_t begin, end; /* documents */
    const struct gpt_tokenizer *tokenizer; /* NULL: ids */
    const struct gpt_sources *sources; /* NULL: they are not printed */
    bool jsonl;
    bool strip_eod; /* without the end-of-document token, where it is last */
    struct gpt_stream json;
    bool begins; /* no text of the sequence is printed yet */
};

/* Writes a word. The output is buffered, so that this costs no system call. */
static int put_string(const struct dump *d, const char *text,
                      struct gpt_err *err)
{
    return gpt_out_write(d->out, text, strlen(text), err);
}

static int put_text(struct dump *d, int64_t sequence, int64_t at, int32_t id,
                    struct gpt_err *err)
{
    size_t n;

    if (!gpt_token_exists(d->tokenizer, id))
        return gpt_fail(err, GPT_EDATA,
                        "%s: token %" PRId64 " of sequence %" PRId64
                        " is %d, which is not in the vocabulary of %" PRId64,
                        gpt_indexed_prefix(d->set), at, sequence, id,
                        gpt_tokenizer_vocab_size(d->tokenizer));
    /* Families that put a space before a text drop the one of the first token,
     * and some those of all tokens until there is text. */
    const char *bytes = gpt_next_bytes(d->tokenizer, id, &d->begins, &n);
    return d->jsonl ? gpt_json_text_add(&d->json, d->out, bytes, n, err)
                    : gpt_out_write(d->out, bytes, n, err);
}

/* Tokens [0, n) of a sequence. At most PIECE ids are in memory, however long
 * the sequence is. */
static int put_tokens(struct dump *d, int64_t sequence, int64_t n,
                      struct gpt_err *err)
{
    enum { PIECE = 4096 };
    int32_t ids[PIECE];
    const char *between = d->jsonl ? "," : " ";

    d->begins = true;
    for (int64_t at = 0; at < n; at++) {
        int64_t k = at % PIECE;

        if (k == 0)
            GPT_TRY(gpt_indexed_read(d->set, sequence, at,
                                     gpt_min_i64(PIECE, n - at), ids, err));
        if (d->tokenizer)
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
    const struct gpt_tokenizer *tok = d->tokenizer;
    int64_t n = gpt_indexed_length(d->set, i);
    int32_t id;

    /* The token is dropped only where it ends the document: the same token in
     * the middle is text. */
    if (last && d->strip_eod && n > 0) {
        GPT_TRY(gpt_indexed_read(d->set, i, n - 1, 1, &id, err));
        n -= id == gpt_tokenizer_eod(tok);
    }
    if (d->jsonl)
        GPT_TRY(put_string(d, tok ? "\"" : "[", err));
    GPT_TRY(put_tokens(d, i, n, err));
    if (!d->jsonl)
        return GPT_OK;
    GPT_TRY(gpt_json_text_end(&d->json, d->out, err));
    return put_string(d, tok ? "\"" : "]", err);
}

/* A name with a line end would make two lines of one. */
static int put_place(struct dump *d, const char *path,
                     const struct gpt_source_record *s, struct gpt_err *err)
{
    struct gpt_buf shown = {0};
    int status = gpt_buf_add_shown(&shown, path, "");

    if (status != GPT_OK)
        status = gpt_no_memory(err, "a file name");
    else if (s->line)
        status = gpt_out_printf(d->out, err, "%s:%u\t", shown.data, s->line);
    else
        status = gpt_out_printf(d->out, err, "%s@%" PRIu64 "\t", shown.data,
                                s->offset);
    gpt_buf_free(&shown);
    return status;
}

/* "file":"...","line":17,"offset":1234, or file:17 and a tab. */
static int put_source(struct dump *d, int64_t document, struct gpt_err *err)
{
    /* A line that is not known is not printed; the offset always is. */
    struct gpt_source_record s;
    const char *path;

    GPT_TRY(gpt_sources_get(d->sources, document, &s, &path, err));
    if (!d->jsonl)
        return put_place(d, path, &s, err);
    GPT_TRY(put_string(d, "\"file\":\"", err));
    GPT_TRY(gpt_json_text_add(&d->json, d->out, path, strlen(path), err));
    GPT_TRY(gpt_json_text_end(&d->json, d->out, err));
    GPT_TRY(put_string(d, "\",", err));
    if (s.line)
        GPT_TRY(gpt_out_printf(d->out, err, "\"line\":%u,", s.line));
    return gpt_out_printf(d->out, err, "\"offset\":%" PRIu64 ",", s.offset);
}

static int put_document(struct dump *d, int64_t document, struct gpt_err *err)
{
    bool jsonl = d->jsonl, text = d->tokenizer != NULL;
    int64_t first = gpt_indexed_document(d->set, document);
    int64_t end = gpt_indexed_document(d->set, document + 1);
    /* A document of one sequence is a string, as most are, not a list of
     * one. */
    bool list = jsonl && end - first > 1;

    if (jsonl)
        GPT_TRY(gpt_out_printf(d->out, err, "{\"document\":%" PRId64 ",",
                               document));
    if (d->sources)
        GPT_TRY(put_source(d, document, err));
    if (jsonl)
        GPT_TRY(gpt_out_printf(d->out, err, "\"%s\":%s", text ? "text" : "ids",
                               list ? "[" : ""));
    if (jsonl && first == end)
        GPT_TRY(put_string(d, text ? "\"\"" : "[]", err));
    for (int64_t i = first; i < end; i++) {
        if (i > first && (jsonl || !text))
            GPT_TRY(put_string(d, jsonl ? "," : "\t", err));
        GPT_TRY(put_sequence(d, i, i + 1 == end, err));
    }
    return put_string(d, list ? "]}\n" : jsonl ? "}\n" : "\n", err);
}

/* A signal is looked at after a whole document, so that output that was stopped
 * ends with a whole line. */
static int put_documents(struct dump *d, struct gpt_err *err)
{
    for (int64_t i = d->begin; i < d->end; i++) {
        GPT_TRY(put_document(d, i, err));
        GPT_TRY(gpt_signals_check(err));
    }
    return GPT_OK;
}

/* ---- the command ---- */

static int open_sources(struct gpt_sources **sources, const char *prefix,
                        int64_t n, struct gpt_err *err)
{
    int status = gpt_sources_open(sources, prefix, n, err);

    if (status == GPT_EIO)
        gpt_hint(err, "gpt-preprocess --sources writes it, and gpt-dataset "
                      "merge where all parts have one");
    return status;
}

static int print_set(const struct gpt_dataset_options *o, const char *prefix,
                     const struct gpt_tokenizer *tok, struct gpt_err *err)
{
    struct dump d = {.out = o->out,
                     .tokenizer = tok,
                     .jsonl = o->jsonl,
                     .strip_eod = o->strip_eod};
    struct gpt_sources *sources = NULL;
    struct gpt_indexed *set;
    int status;

    GPT_TRY(gpt_dataset_open_set(&set, prefix, err));
    int64_t n = gpt_indexed_n_documents(set);
    GPT_TRY_GOTO(status, gpt_dataset_parse_range(o->documents, n, prefix,
                                                 &d.begin, &d.end, err), out);
    if (o->tail >= 0) /* of the range, where both are given */
        d.begin = gpt_max_i64(d.begin, d.end - o->tail);
    if (o->sources)
        GPT_TRY_GOTO(status, open_sources(&sources, prefix, n, err), out);
    d.set = set;
    d.sources = sources;
    status = put_documents(&d, err);
out:
    gpt_sources_close(sources);
    gpt_indexed_close(set);
    return status;
}

static int run_cat(const struct gpt_dataset_options *o,
                   const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_tokenizer *tok;
    int status = GPT_OK;

    GPT_TRY(gpt_dataset_open_tokenizer(&tok, o, err));
    if (o->strip_eod && !tok)
        return gpt_fail(err, GPT_EUSAGE, "--strip-eod needs a vocabulary, "
                        "which tells the end-of-document token");
    for (int i = 0; i < n; i++)
        GPT_TRY_GOTO(status, print_set(o, sets[i], tok, err), out);
out:
    gpt_tokenizer_close(tok);
    return status;
}

static const struct gpt_opt options[] = {
    GPT_DATASET_DOCUMENTS,
    {.kind = GPT_OPT_INT, .name = "tail", .arg = "N", GPT_DATASET_AT(tail),
     .def = "-1", .min = -1, .max = 1e18,
     .help = "the last N documents, -1 = all"},
    GPT_DATASET_GROUP("Output"),
    {.kind = GPT_OPT_FLAG, .name = "jsonl", GPT_DATASET_AT(jsonl),
     .help = "a JSON object a document"},
    {.kind = GPT_OPT_FLAG, .name = "strip-eod", GPT_DATASET_AT(strip_eod),
     .help = "leave out the end-of-document token of the vocabulary"},
    {.kind = GPT_OPT_FLAG, .name = "sources", GPT_DATASET_AT(sources),
     .help = "file and line of each document, from PREFIX.sources"},
    GPT_DATASET_VOCABULARY("size of NullTokenizer and of a TikTokenizer"),
};

const struct gpt_dataset_command gpt_dataset_cat = {
    .name = "cat",
    .run = run_cat,
    .min_sets = 1,
    .max_sets = INT32_MAX,
    .options = options,
    .n_options = GPT_COUNT(options),
    .usage = "cat PREFIX... [--documents A:B] [--tail N] [--jsonl]",
    .example = "gpt-dataset cat my_text_document --tail 3 "
               "--vocab-file my-vocab.json --merge-file my-merges.txt",
};
