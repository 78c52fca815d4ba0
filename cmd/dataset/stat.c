/* gpt-dataset stat: lengths of documents, and with a vocabulary or a number of
 * ids to list also the tokens. statistics.c counts; here is what is printed of
 * it. Start at run_stat(). */
#include "cmd/dataset/command.h"

#include "base/utf8.h"
#include "cmd/dataset/listing.h"
#include "cmd/dataset/statistics.h"

#include <inttypes.h>

/* ---- tables and JSON ---- */

/* Bucket k holds lengths of k bits. */
static int64_t bucket_low(int k)
{
    return k == 0 ? 0 : INT64_C(1) << (k - 1);
}

static int64_t bucket_high(int k)
{
    return k == 0 ? 0 : (INT64_C(1) << (k - 1)) * 2 - 1;
}

/* Adds the most frequent ids without their text: a token may be no UTF-8, and
 * JSON has no other text. */
static void put_top(cJSON *o, const struct gpt_stat *s)
{
    cJSON *list = cJSON_AddArrayToObject(o, "top");

    for (int64_t i = 0; i < s->n_top; i++) {
        cJSON *row = cJSON_CreateObject();

        gpt_listing_put_int(row, "id", s->top[i].id);
        gpt_listing_put_int(row, "count", s->top[i].count);
        gpt_json_add(list, NULL, row);
    }
}

/* Fields about tokens are there only when tokens were read: a 0 would be taken
 * for a count. */
static cJSON *stat_object(const struct gpt_indexed *set,
                          const struct gpt_stat *s)
{
    cJSON *o = cJSON_CreateObject(), *list;

    gpt_listing_put_counts(o, set);
    gpt_listing_put_int(o, "empty_documents", s->empty_documents);
    gpt_listing_put_int(o, "empty_sequences", s->empty_sequences);
    cJSON *length = cJSON_AddObjectToObject(o, "document_length");
    gpt_listing_put_int(length, "min", s->min);
    gpt_listing_put_int(length, "median", s->median);
    gpt_listing_put_int(length, "p90", s->p90);
    gpt_listing_put_int(length, "p99", s->p99);
    gpt_listing_put_int(length, "max", s->max);
    list = cJSON_AddArrayToObject(o, "histogram");
    for (int k = 0; k < GPT_STAT_BUCKETS; k++) {
        if (s->bucket[k] == 0)
            continue;
        cJSON *row = cJSON_CreateObject();
        gpt_listing_put_int(row, "from", bucket_low(k));
        gpt_listing_put_int(row, "to", bucket_high(k));
        gpt_listing_put_int(row, "documents", s->bucket[k]);
        gpt_json_add(list, NULL, row);
    }
    if (!s->top)
        return o;
    gpt_listing_put_int(o, "distinct_ids", s->distinct);
    if (s->filled > 0)
        gpt_listing_put_int(o, "last_id", s->last_id);
    gpt_listing_put_int(o, "documents_with_last_id", s->n_last);
    if (s->text_bytes >= 0)
        gpt_listing_put_int(o, "text_bytes", s->text_bytes);
    put_top(o, s);
    return o;
}

static int add_row(struct gpt_listing *l, const char *name, int64_t v)
{
    return gpt_buf_printf(&l->text, "  %-18s %15" PRId64 "\n", name, v);
}

/* The divisor of an empty set is 1: all its shares are 0. */
static int add_lengths(struct gpt_listing *l, const struct gpt_stat *s)
{
    double n = s->documents ? (double)s->documents : 1;

    GPT_TRY(add_row(l, "documents", s->documents));
    GPT_TRY(add_row(l, "  of no token", s->empty_documents));
    GPT_TRY(add_row(l, "sequences", s->sequences));
    GPT_TRY(add_row(l, "  of no token", s->empty_sequences));
    GPT_TRY(add_row(l, "tokens", s->tokens));
    GPT_TRY(gpt_buf_printf(&l->text, "  %-18s %15.1f\n", "tokens a document",
                           (double)s->tokens / n));
    GPT_TRY(add_row(l, "  shortest", s->min));
    GPT_TRY(add_row(l, "  median", s->median));
    GPT_TRY(add_row(l, "  90 %", s->p90));
    GPT_TRY(add_row(l, "  99 %", s->p99));
    GPT_TRY(add_row(l, "  longest", s->max));
    if (s->documents > 0)
        GPT_TRY(gpt_buf_printf(&l->text, "  %-27s %10s  share\n", "length",
                               "documents"));
    /* Empty buckets are left out: most sets use a few of the powers of two. */
    for (int k = 0; k < GPT_STAT_BUCKETS; k++)
        if (s->bucket[k] > 0)
            GPT_TRY(gpt_buf_printf(&l->text, "  %12" PRId64 " .. %-11" PRId64
                                   " %10" PRId64 " %5.1f%%\n", bucket_low(k),
                                   bucket_high(k), s->bucket[k],
                                   100 * (double)s->bucket[k] / n));
    return GPT_OK;
}

/* Escapes what is no printable ASCII: a token may be half a character, which
 * no terminal can show. */
static int add_visible(struct gpt_buf *b, const char *p, size_t n)
{
    GPT_TRY(gpt_buf_add(b, "  \"", 3));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];

        if (c == '"' || c == '\\')
            GPT_TRY(gpt_buf_printf(b, "\\%c", c));
        else if (c < 0x20 || c > 0x7e)
            GPT_TRY(gpt_buf_printf(b, "\\x%02x", c));
        else
            GPT_TRY(gpt_buf_add(b, &p[i], 1));
    }
    return gpt_buf_add(b, "\"", 1);
}

/* Shares are of all tokens, also of those whose ids the table does not have. */
static int add_tokens(struct gpt_listing *l, const struct gpt_stat *s,
                      const struct gpt_tokenizer *tokenizer)
{
    double n = s->tokens ? (double)s->tokens : 1;

    GPT_TRY(add_row(l, "distinct ids", s->distinct));
    if (s->other > 0)
        GPT_TRY(gpt_buf_printf(&l->text, "  tokens with ids below 0 or from %d"
                               " on: %" PRId64 "\n", GPT_STAT_IDS, s->other));
    if (s->filled > 0)
        GPT_TRY(gpt_buf_printf(&l->text, "  %" PRId64 " of %" PRId64
                               " documents end with token %" PRId64 "\n",
                               s->n_last, s->filled, s->last_id));
    if (s->text_bytes >= 0) {
        GPT_TRY(add_row(l, "bytes of text", s->text_bytes));
        GPT_TRY(gpt_buf_printf(&l->text, "  %-18s %15.3f\n", "bytes a token",
                               (double)s->text_bytes / n));
    }
    if (s->n_top > 0)
        GPT_TRY(gpt_buf_printf(&l->text, "  %10s %15s  share\n", "id",
                               "count"));
    for (int64_t i = 0; i < s->n_top; i++) {
        size_t len = 0;

        GPT_TRY(gpt_buf_printf(&l->text,
                               "  %10" PRId64 " %15" PRId64 " %5.2f%%",
                               s->top[i].id, s->top[i].count,
                               100 * (double)s->top[i].count / n));
        const char *p = tokenizer ? gpt_token_bytes(
                                        tokenizer, (int32_t)s->top[i].id, &len)
                                  : NULL;
        /* A token without text is one that the vocabulary does not have. */
        if (len > 0)
            GPT_TRY(add_visible(&l->text, p, len));
        GPT_TRY(gpt_buf_add(&l->text, "\n", 1));
    }
    return GPT_OK;
}

/* An empty line parts the tables of several sets. */
static int add_table(struct gpt_listing *l, const char *prefix,
                     const struct gpt_stat *s,
                     const struct gpt_tokenizer *tokenizer)
{
    GPT_TRY(gpt_buf_printf(&l->text, "%s", l->n++ ? "\n" : ""));
    GPT_TRY(gpt_buf_add_shown(&l->text, prefix, ""));
    GPT_TRY(gpt_buf_add(&l->text, "\n", 1));
    GPT_TRY(add_lengths(l, s));
    return s->top ? add_tokens(l, s, tokenizer) : GPT_OK;
}

/* ---- the command ---- */

/* The .bin is read only when something about tokens is asked for. */
static int add_set(struct gpt_listing *l, const struct gpt_dataset_options *o,
                   const char *prefix, const struct gpt_tokenizer *tok,
                   struct gpt_err *err)
{
    const struct gpt_stat_options so = {
        .tokens = o->top > 0 || tok, .top = o->top, .tokenizer = tok};
    struct gpt_stat s = {0};
    struct gpt_indexed *set;
    int status;

    GPT_TRY(gpt_dataset_open_set(&set, prefix, err));
    /* lengths come from the index; the tokens are read once, if at all */
    GPT_TRY_GOTO(status, gpt_stat(&s, set, &so, err), out);
    status = l->json
                 ? gpt_listing_add(l, stat_object(set, &s), err)
                 : gpt_listing_check(
                       add_table(l, gpt_indexed_prefix(set), &s, tok), err);
out:
    gpt_stat_free(&s);
    gpt_indexed_close(set);
    return status;
}

static int run_stat(const struct gpt_dataset_options *o,
                    const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_listing l = {.json = o->json};
    struct gpt_tokenizer *tok;
    int status;

    GPT_TRY_GOTO(status, gpt_dataset_open_tokenizer(&tok, o, err), out);
    for (int i = 0; i < n; i++)
        GPT_TRY_GOTO(status, add_set(&l, o, sets[i], tok, err), out);
out:
    gpt_tokenizer_close(tok);
    return gpt_listing_print(&l, o->out, status, err);
}

static const struct gpt_opt options[] = {
    GPT_DATASET_JSON,
    GPT_DATASET_VOCABULARY("size of NullTokenizer and of a TikTokenizer"),
    GPT_DATASET_GROUP("What to look for"),
    {.kind = GPT_OPT_INT, .name = "top", .arg = "N", GPT_DATASET_AT(top),
     .def = "0", .min = 0, .max = 1 << 20,
     .help = "read the tokens and list the N most frequent"},
};

const struct gpt_dataset_command gpt_dataset_stat = {
    .name = "stat",
    .run = run_stat,
    .min_sets = 1,
    .max_sets = INT32_MAX,
    .options = options,
    .n_options = GPT_COUNT(options),
    .usage = "stat PREFIX... [--top N] [--vocab-file FILE --merge-file FILE]"
             " [--json]",
};
