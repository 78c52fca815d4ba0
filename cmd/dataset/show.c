/* Tables and JSON about data sets; see show.h. JSON objects are built with
 * cJSON, so that every name is escaped. */
#include "cmd/dataset/show.h"

#include "base/json.h"
#include "base/num.h"
#include "data/provenance.h"

#include <inttypes.h>
#include <stdio.h>

static int done(int status, struct gpt_err *err)
{
    return status == GPT_OK ? GPT_OK : gpt_no_memory(err, "a table");
}

/* Adds `o` as a line and frees it. */
static int add_object(struct gpt_show *show, cJSON *o, struct gpt_err *err)
{
    char *text = o ? gpt_json_print(o, false) : NULL;

    cJSON_Delete(o);
    int status = text ? gpt_buf_printf(show->b, "%s\n", text) : GPT_EFAIL;
    cJSON_free(text);
    return done(status, err);
}

/* A name may hold any bytes: cJSON takes UTF-8, and so do terminals. */
static void put_name(cJSON *o, const char *prefix)
{
    cJSON_AddStringToObject(o, "prefix", prefix);
}

static void put_int(cJSON *o, const char *name, int64_t v)
{
    cJSON_AddNumberToObject(o, name, (double)v);
}

static int64_t bin_bytes(const struct gpt_indexed *set)
{
    return gpt_indexed_n_tokens(set) *
           (int64_t)gpt_dtype_bytes(gpt_indexed_dtype(set));
}

static int64_t idx_bytes(const struct gpt_indexed *set)
{
    return GPT_IDX_HEADER + 12 * gpt_indexed_n_sequences(set) +
           8 * (gpt_indexed_n_documents(set) + 1);
}

static void put_counts(cJSON *o, const struct gpt_indexed *set)
{
    put_name(o, gpt_indexed_prefix(set));
    cJSON_AddStringToObject(o, "format", "MMIDIDX");
    put_int(o, "version", 1);
    cJSON_AddStringToObject(o, "dtype", gpt_dtype_name(gpt_indexed_dtype(set)));
    put_int(o, "documents", gpt_indexed_n_documents(set));
    put_int(o, "sequences", gpt_indexed_n_sequences(set));
    put_int(o, "tokens", gpt_indexed_n_tokens(set));
    put_int(o, "bin_bytes", bin_bytes(set));
    put_int(o, "idx_bytes", idx_bytes(set));
}

/* ---- info ---- */

static int info_row(struct gpt_show *show, const char *dtype, int64_t documents,
                    int64_t sequences, int64_t tokens, int64_t bytes,
                    const char *name, struct gpt_err *err)
{
    char size[32];

    return done(gpt_buf_printf(show->b, "%-4s %12" PRId64 " %12" PRId64
                               " %15" PRId64 " %10s  %s\n", dtype, documents,
                               sequences, tokens,
                               gpt_text_bytes(size, (double)bytes), name),
                err);
}

int gpt_show_info(struct gpt_show *show, const struct gpt_indexed *set,
                  struct gpt_err *err)
{
    int64_t bytes = bin_bytes(set) + idx_bytes(set);
    cJSON *made_by;

    GPT_TRY(gpt_provenance_read(&made_by, gpt_indexed_prefix(set), err));
    if (show->json) {
        cJSON *o = cJSON_CreateObject();

        put_counts(o, set);
        if (made_by)
            cJSON_AddItemToObject(o, "provenance", made_by);
        return add_object(show, o, err);
    }
    char brief[400] = "";
    if (made_by)
        gpt_provenance_brief(brief, sizeof(brief), made_by);
    cJSON_Delete(made_by);
    if (show->n++ == 0)
        GPT_TRY(done(gpt_buf_printf(show->b, "%-4s %12s %12s %15s %10s  %s\n",
                                    "type", "documents", "sequences", "tokens",
                                    "size", "set"), err));
    show->documents += gpt_indexed_n_documents(set);
    show->sequences += gpt_indexed_n_sequences(set);
    show->tokens += gpt_indexed_n_tokens(set);
    show->bytes += bytes;
    GPT_TRY(info_row(show, gpt_dtype_name(gpt_indexed_dtype(set)),
                     gpt_indexed_n_documents(set), gpt_indexed_n_sequences(set),
                     gpt_indexed_n_tokens(set), bytes, gpt_indexed_prefix(set),
                     err));
    return brief[0] ? done(gpt_buf_printf(show->b, "     by %s\n", brief), err)
                    : GPT_OK;
}

int gpt_show_info_end(struct gpt_show *show, struct gpt_err *err)
{
    if (show->json || show->n < 2)
        return GPT_OK;
    return info_row(show, "all", show->documents, show->sequences,
                    show->tokens, show->bytes, "total", err);
}

/* ---- stat ---- */

static int64_t bucket_low(int k)
{
    return k == 0 ? 0 : INT64_C(1) << (k - 1);
}

static int64_t bucket_high(int k)
{
    return k == 0 ? 0 : (INT64_C(1) << (k - 1)) * 2 - 1;
}

static void put_top(cJSON *o, const struct gpt_stat *s)
{
    cJSON *list = cJSON_AddArrayToObject(o, "top");

    for (int64_t i = 0; i < s->n_top; i++) {
        cJSON *row = cJSON_CreateObject();

        put_int(row, "id", s->top[i].id);
        put_int(row, "count", s->top[i].count);
        cJSON_AddItemToArray(list, row);
    }
}

static cJSON *stat_object(const struct gpt_indexed *set,
                          const struct gpt_stat *s)
{
    cJSON *o = cJSON_CreateObject(), *list;

    put_counts(o, set);
    put_int(o, "empty_documents", s->empty_documents);
    put_int(o, "empty_sequences", s->empty_sequences);
    cJSON *length = cJSON_AddObjectToObject(o, "document_length");
    put_int(length, "min", s->min);
    put_int(length, "median", s->median);
    put_int(length, "p90", s->p90);
    put_int(length, "p99", s->p99);
    put_int(length, "max", s->max);
    list = cJSON_AddArrayToObject(o, "histogram");
    for (int k = 0; k < GPT_STAT_BUCKETS; k++) {
        if (s->bucket[k] == 0)
            continue;
        cJSON *row = cJSON_CreateObject();
        put_int(row, "from", bucket_low(k));
        put_int(row, "to", bucket_high(k));
        put_int(row, "documents", s->bucket[k]);
        cJSON_AddItemToArray(list, row);
    }
    if (!s->top)
        return o;
    put_int(o, "distinct_ids", s->distinct);
    if (s->filled > 0)
        put_int(o, "last_id", s->last_id);
    put_int(o, "documents_with_last_id", s->n_last);
    if (s->text_bytes >= 0)
        put_int(o, "text_bytes", s->text_bytes);
    put_top(o, s);
    return o;
}

static int row(struct gpt_show *show, const char *name, int64_t v)
{
    return gpt_buf_printf(show->b, "  %-18s %15" PRId64 "\n", name, v);
}

static int lengths(struct gpt_show *show, const struct gpt_stat *s)
{
    double n = s->documents ? (double)s->documents : 1;

    GPT_TRY(row(show, "documents", s->documents));
    GPT_TRY(row(show, "  of no token", s->empty_documents));
    GPT_TRY(row(show, "sequences", s->sequences));
    GPT_TRY(row(show, "  of no token", s->empty_sequences));
    GPT_TRY(row(show, "tokens", s->tokens));
    GPT_TRY(gpt_buf_printf(show->b, "  %-18s %15.1f\n", "tokens a document",
                           (double)s->tokens / n));
    GPT_TRY(row(show, "  shortest", s->min));
    GPT_TRY(row(show, "  median", s->median));
    GPT_TRY(row(show, "  90 %", s->p90));
    GPT_TRY(row(show, "  99 %", s->p99));
    GPT_TRY(row(show, "  longest", s->max));
    if (s->documents > 0)
        GPT_TRY(gpt_buf_printf(show->b, "  %-27s %10s  share\n", "length",
                               "documents"));
    for (int k = 0; k < GPT_STAT_BUCKETS; k++)
        if (s->bucket[k] > 0)
            GPT_TRY(gpt_buf_printf(show->b, "  %12" PRId64 " .. %-11" PRId64
                                   " %10" PRId64 " %5.1f%%\n", bucket_low(k),
                                   bucket_high(k), s->bucket[k],
                                   100 * (double)s->bucket[k] / n));
    return GPT_OK;
}

/* What is no printable ASCII is escaped: a token may be half a character. */
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

static int tokens(struct gpt_show *show, const struct gpt_stat *s,
                  const struct gpt_tokenizer *tokenizer)
{
    double n = s->tokens ? (double)s->tokens : 1;

    GPT_TRY(row(show, "distinct ids", s->distinct));
    if (s->other > 0)
        GPT_TRY(gpt_buf_printf(show->b, "  tokens with ids below 0 or from %d"
                               " on: %" PRId64 "\n", GPT_STAT_IDS, s->other));
    if (s->filled > 0)
        GPT_TRY(gpt_buf_printf(show->b, "  %" PRId64 " of %" PRId64
                               " documents end with token %" PRId64 "\n",
                               s->n_last, s->filled, s->last_id));
    if (s->text_bytes >= 0) {
        GPT_TRY(row(show, "bytes of text", s->text_bytes));
        GPT_TRY(gpt_buf_printf(show->b, "  %-18s %15.3f\n", "bytes a token",
                               (double)s->text_bytes / n));
    }
    if (s->n_top > 0)
        GPT_TRY(gpt_buf_printf(show->b, "  %10s %15s  share\n", "id", "count"));
    for (int64_t i = 0; i < s->n_top; i++) {
        size_t len = 0;

        GPT_TRY(gpt_buf_printf(show->b, "  %10" PRId64 " %15" PRId64 " %5.2f%%",
                               s->top[i].id, s->top[i].count,
                               100 * (double)s->top[i].count / n));
        const char *p = tokenizer ? gpt_token_bytes(
                                        tokenizer, (int32_t)s->top[i].id, &len)
                                  : NULL;
        if (len > 0)
            GPT_TRY(add_visible(show->b, p, len));
        GPT_TRY(gpt_buf_add(show->b, "\n", 1));
    }
    return GPT_OK;
}

int gpt_show_stat(struct gpt_show *show, const struct gpt_indexed *set,
                  const struct gpt_stat *s,
                  const struct gpt_tokenizer *tokenizer, struct gpt_err *err)
{
    if (show->json)
        return add_object(show, stat_object(set, s), err);
    GPT_TRY(done(gpt_buf_printf(show->b, "%s%s\n", show->n++ ? "\n" : "",
                                gpt_indexed_prefix(set)), err));
    GPT_TRY(done(lengths(show, s), err));
    return s->top ? done(tokens(show, s, tokenizer), err) : GPT_OK;
}

/* ---- findings ---- */

struct gpt_finding {
    enum gpt_damage kind;
    struct gpt_err err;
};

static void gather(void *user, enum gpt_damage kind, const struct gpt_err *err)
{
    struct gpt_findings *f = user;
    struct gpt_err ignored;

    if (gpt_grow(&f->items, &f->cap, f->n + 1, sizeof(*f->items), "findings",
                 &ignored) != GPT_OK) {
        f->out_of_memory = true;
        return;
    }
    f->items[f->n++] = (struct gpt_finding){kind, *err};
}

void gpt_findings_open(struct gpt_findings *f, int64_t most)
{
    *f = (struct gpt_findings){
        .damages = {.most = most, .found = gather, .user = f}};
}

void gpt_findings_close(struct gpt_findings *f)
{
    gpt_free(f->items);
    f->items = NULL;
    f->n = f->cap = 0;
}

static cJSON *findings_object(const char *prefix, const struct gpt_findings *f)
{
    cJSON *o = cJSON_CreateObject();

    put_name(o, prefix);
    cJSON_AddBoolToObject(o, "good", gpt_damages_total(&f->damages) == 0);
    cJSON *counts = cJSON_AddObjectToObject(o, "counts");
    for (int k = 0; k < GPT_N_DAMAGES; k++)
        if (f->damages.count[k] > 0)
            put_int(counts, gpt_damage_word(k), f->damages.count[k]);
    cJSON *list = cJSON_AddArrayToObject(o, "findings");
    for (size_t i = 0; i < f->n; i++) {
        cJSON *item = cJSON_CreateObject();
        const struct gpt_finding *found = &f->items[i];

        cJSON_AddStringToObject(item, "kind", gpt_damage_word(found->kind));
        cJSON_AddStringToObject(item, "text", found->err.text);
        if (found->err.hint[0])
            cJSON_AddStringToObject(item, "hint", found->err.hint);
        cJSON_AddItemToArray(list, item);
    }
    return o;
}

static int add_kind(struct gpt_show *show, const struct gpt_findings *f,
                    enum gpt_damage kind)
{
    const char *hint = "";
    int64_t shown = 0;

    for (size_t i = 0; i < f->n; i++) {
        if (f->items[i].kind != kind)
            continue;
        GPT_TRY(gpt_buf_printf(show->b, "%-17s %s\n", gpt_damage_word(kind),
                               f->items[i].err.text));
        hint = f->items[i].err.hint;
        shown++;
    }
    if (f->damages.count[kind] > shown)
        GPT_TRY(gpt_buf_printf(show->b, "%-17s and %" PRId64 " more\n",
                               gpt_damage_word(kind),
                               f->damages.count[kind] - shown));
    return hint[0] ? gpt_buf_printf(show->b, "%-17s %s\n", "", hint) : GPT_OK;
}

int gpt_show_findings(struct gpt_show *show, const char *prefix,
                      const struct gpt_findings *f, struct gpt_err *err)
{
    int64_t total = gpt_damages_total(&f->damages);

    if (f->out_of_memory)
        return gpt_no_memory(err, "a table");
    if (show->json)
        return add_object(show, findings_object(prefix, f), err);
    if (total == 0)
        return done(gpt_buf_printf(show->b, "%s: good\n", prefix), err);
    for (int k = 0; k < GPT_N_DAMAGES; k++)
        GPT_TRY(done(add_kind(show, f, k), err));
    return done(gpt_buf_printf(show->b, "%s: %" PRId64 " finding%s\n", prefix,
                               total, total == 1 ? "" : "s"), err);
}
