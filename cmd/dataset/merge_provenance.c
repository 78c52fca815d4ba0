/* Merges the JSONs and the sources of data sets. Numbers are added, lists are
 * joined in the order of the parts; a record of the sources names its input by
 * number, so that those of a later part are shifted by the inputs before it.
 * Start at gpt_provenance_merge_open().
 *
 *     "tool"      gpt-dataset and its version
 *     "merged"    for each part its name and the command that made it; where
 *                 the parts' tokenizers differ, its tokenizer, too
 *     "unicode", "key", "index", "dtype", "tokenizer"   as all parts have them;
 *                 one in which parts differ is left out
 *     "documents", "sequences", "tokens", "text_bytes"  sums over all parts
 *     "lengths"   the histograms, added
 *     "bad_lines" the counts, added
 *     "inputs"    the lists, one after the other: sources number them
 */
#include "cmd/dataset/merge_provenance.h"

#include "base/memory.h"
#include "base/num.h"
#include "data/document_sources.h"
#include "data/provenance.h"
#include "tokenizer/identity.h"

#include <string.h>

/* Everything is read and put together at open; only writing is left to
 * commit. */
struct gpt_provenance_merge {
    int64_t n;
    cJSON **parts;          /* their JSONs */
    struct gpt_in **sources; /* NULL when one lacks them */
    bool one_tokenizer;     /* all parts have the same one */
    cJSON *root;
    struct gpt_out *json, *all_sources; /* or NULL */
};

static const cJSON *field_of(const cJSON *o, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(o, name);
}

/* A JSON is a file that may have been edited: a field of another kind counts as
 * 0. */
static double number_of(const cJSON *o, const char *name)
{
    const cJSON *v = field_of(o, name);

    return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

/* ---- the JSON ---- */

/* By their texts: cJSON_Compare() compares members twice, those of members four
 * times, and so on, which nested objects make too long. */
static bool is_same(const cJSON *a, const cJSON *b)
{
    char *x = gpt_json_print(a, false), *y = gpt_json_print(b, false);
    const bool same = x && y && strcmp(x, y) == 0;

    cJSON_free(x);
    cJSON_free(y);
    return same;
}

/* True when all parts have the field with one value, or none has it: parts of
 * older programs lack some. */
static bool is_common(const struct gpt_provenance_merge *m, const char *name)
{
    const cJSON *first = field_of(m->parts[0], name);

    for (int64_t k = 1; k < m->n; k++) {
        const cJSON *v = field_of(m->parts[k], name);

        if (first && v ? !is_same(first, v) : first || v)
            return false;
    }
    return true;
}

/* Copies what is the same for all parts: the new set is not of one value where
 * the parts have several. Paths of a tokenizer's files may differ, so that it
 * is compared by its identity. */
static void copy_common(const struct gpt_provenance_merge *m)
{
    static const char *const names[] = {"unicode", "key", "index", "dtype"};
    const cJSON *tokenizer = field_of(m->parts[0], "tokenizer");

    for (size_t i = 0; i < GPT_COUNT(names); i++) {
        const cJSON *v = field_of(m->parts[0], names[i]);

        if (v && is_common(m, names[i]))
            gpt_json_add(m->root, names[i], cJSON_Duplicate(v, true));
    }
    if (tokenizer && m->one_tokenizer)
        gpt_json_add(m->root, "tokenizer", cJSON_Duplicate(tokenizer, true));
}

/* Adds the counts of all parts. cJSON holds doubles: sums are exact up to
 * 2^53. */
static void add_sums(const struct gpt_provenance_merge *m)
{
    static const char *const names[] = {"documents", "sequences", "tokens",
                                        "text_bytes"};

    for (size_t i = 0; i < GPT_COUNT(names); i++) {
        double sum = 0;

        for (int64_t k = 0; k < m->n; k++)
            sum += number_of(m->parts[k], names[i]);
        cJSON_AddNumberToObject(m->root, names[i], sum);
    }
    /* This is the ratio of the sums, not the mean of the ratios. */
    double tokens = number_of(m->root, "tokens");
    cJSON_AddNumberToObject(
        m->root, "bytes_per_token",
        tokens > 0 ? number_of(m->root, "text_bytes") / tokens : 0);
}

/* Rows of all parts that begin at the same length become one. Buckets are taken
 * in order, so that the list rises as those of the parts do. */
static void add_lengths(const struct gpt_provenance_merge *m)
{
    cJSON *list = cJSON_AddArrayToObject(m->root, "lengths");

    for (int b = 0; b < GPT_LENGTH_BUCKETS; b++) {
        double from = b ? (double)(INT64_C(1) << (b - 1)) : 0, sum = 0;

        for (int64_t k = 0; k < m->n; k++) {
            const cJSON *row;

            cJSON_ArrayForEach(row, field_of(m->parts[k], "lengths"))
                if (number_of(row, "from") == from)
                    sum += number_of(row, "documents");
        }
        if (sum == 0)
            continue;
        cJSON *row = gpt_json_add(list, NULL, cJSON_CreateObject());
        cJSON_AddNumberToObject(row, "from", from);
        cJSON_AddNumberToObject(row, "to", (double)((INT64_C(1) << b) - 1));
        cJSON_AddNumberToObject(row, "documents", sum);
    }
}

/* Kinds are in the order of the enum, not of the parts: the bytes do not depend
 * on which part had which. */
static void add_bad_lines(const struct gpt_provenance_merge *m)
{
    cJSON *all = cJSON_AddObjectToObject(m->root, "bad_lines");

    for (int kind = 0; kind < GPT_BAD_KINDS; kind++) {
        double sum = 0;

        for (int64_t k = 0; k < m->n; k++)
            sum += number_of(field_of(m->parts[k], "bad_lines"),
                             gpt_bad_word(kind));
        if (sum > 0)
            cJSON_AddNumberToObject(all, gpt_bad_word(kind), sum);
    }
}

/* Joins a list of all parts, in their order. */
static void join_lists(const struct gpt_provenance_merge *m, const char *name)
{
    cJSON *all = cJSON_AddArrayToObject(m->root, name);

    for (int64_t k = 0; k < m->n; k++) {
        const cJSON *item;

        cJSON_ArrayForEach(item, field_of(m->parts[k], name)) {
            gpt_json_add(all, NULL, cJSON_Duplicate(item, true));
        }
    }
}

/* The command of each part is kept: the merged set can be made again from the
 * inputs. */
static void add_parts(const struct gpt_provenance_merge *m,
                      const char *const *sets)
{
    cJSON *all = cJSON_AddArrayToObject(m->root, "merged");

    for (int64_t k = 0; k < m->n; k++) {
        cJSON *part = gpt_json_add(all, NULL, cJSON_CreateObject());
        const cJSON *command = field_of(m->parts[k], "command");
        const cJSON *tokenizer = field_of(m->parts[k], "tokenizer");

        cJSON_AddStringToObject(part, "set", sets[k]);
        if (command)
            gpt_json_add(part, "command", cJSON_Duplicate(command, true));
        if (tokenizer && !m->one_tokenizer)
            gpt_json_add(part, "tokenizer", cJSON_Duplicate(tokenizer, true));
    }
}

enum { IDENTITY_TEXT = 300 }; /* two of them fit into a message */

/* Ids of one tokenizer are noise to a model of another, and nothing but the
 * loss would show them. */
static int report_mismatch(const struct gpt_dataset_options *o,
                           const char *set,
                           const struct gpt_tokenizer_identity *its,
                           const char *first,
                           const struct gpt_tokenizer_identity *firsts,
                           struct gpt_err *err)
{
    char a[IDENTITY_TEXT], b[IDENTITY_TEXT];

    gpt_tokenizer_identity_text(a, sizeof(a), its);
    gpt_tokenizer_identity_text(b, sizeof(b), firsts);
    gpt_fail(err, GPT_EDATA, "%s was made with %s, %s with %s", set, a, first,
             b);
    gpt_hint(err, "make both with one tokenizer, or insist with "
                  "--allow-vocab-mismatch");
    return gpt_dataset_allow(o->allow_vocab_mismatch, err);
}

/* Holds the tokenizer of each part against that of the first part that names
 * one. A part that does not say is not refused; the new set then does not say
 * either. */
static int compare_tokenizers(struct gpt_provenance_merge *m,
                              const struct gpt_dataset_options *o,
                              const char *const *sets, struct gpt_err *err)
{
    struct gpt_tokenizer_identity first, other;
    int64_t named = 0, first_set = 0;

    m->one_tokenizer = true;
    for (int64_t k = 0; k < m->n; k++) {
        if (!gpt_tokenizer_identity_read(&other,
                                         field_of(m->parts[k], "tokenizer")))
            continue;
        if (named++ == 0) {
            first = other;
            first_set = k;
        } else if (!gpt_tokenizer_identity_equal(&other, &first)) {
            m->one_tokenizer = false;
            GPT_TRY(report_mismatch(o, sets[k], &other, sets[first_set],
                                    &first, err));
        }
    }
    m->one_tokenizer = m->one_tokenizer &&
                       (named == m->n || is_common(m, "tokenizer"));
    return GPT_OK;
}

/* Fields are printed in the order in which they are added: that of the list at
 * the top. */
static int make_json(struct gpt_provenance_merge *m, const char *const *sets,
                     struct gpt_err *err)
{
    m->root = cJSON_CreateObject();
    cJSON_AddStringToObject(m->root, "tool", "gpt-dataset " GPT_VERSION);
    add_parts(m, sets);
    copy_common(m);
    add_sums(m);
    add_lengths(m);
    add_bad_lines(m);
    join_lists(m, "inputs");
    /* Noticed here and not when it is printed, before tokens are copied. */
    return gpt_json_out_of_memory() ? gpt_no_memory(err, "the provenance")
                                    : GPT_OK;
}

static int write_json(struct gpt_provenance_merge *m, struct gpt_err *err)
{
    char *text = gpt_json_print(m->root, true);
    int status = text ? gpt_out_printf(m->json, err, "%s\n", text)
                      : gpt_no_memory(err, "the provenance");

    cJSON_free(text);
    return status;
}

/* ---- the sources ---- */

/* Copies the records of a part, with `shift` added to the number of the input:
 * the first field of each. */
static int shift_sources(struct gpt_out *out, struct gpt_in *in, uint32_t shift,
                         struct gpt_err *err)
{
    enum { PIECE = 4096 };
    uint8_t records[PIECE * GPT_SOURCE_BYTES];
    int64_t n = (gpt_in_size(in) - GPT_SOURCES_HEADER) / GPT_SOURCE_BYTES;
    for (int64_t done = 0; done < n; done += PIECE) {
        size_t some = (size_t)gpt_min_i64(PIECE, n - done);

        GPT_TRY(gpt_in_read(in, records,
                            GPT_SOURCES_HEADER + done * GPT_SOURCE_BYTES,
                            some * GPT_SOURCE_BYTES, err));
        for (size_t i = 0; i < some; i++) {
            uint8_t *input = records + i * GPT_SOURCE_BYTES;

            gpt_put_u32(input, gpt_get_u32(input) + shift);
        }
        GPT_TRY(gpt_out_write(out, records, some * GPT_SOURCE_BYTES, err));
    }
    return GPT_OK;
}

/* Inputs are joined in the order of the parts, so that the inputs of all parts
 * before it are what a part's numbers are shifted by. */
static int write_sources(struct gpt_provenance_merge *m, struct gpt_err *err)
{
    uint32_t shift = 0;

    GPT_TRY(gpt_out_write(m->all_sources, GPT_SOURCES_MAGIC,
                          GPT_SOURCES_HEADER, err));
    for (int64_t k = 0; k < m->n; k++) {
        GPT_TRY(shift_sources(m->all_sources, m->sources[k], shift, err));
        shift += (uint32_t)cJSON_GetArraySize(field_of(m->parts[k], "inputs"));
    }
    return GPT_OK;
}

/* ---- open, commit ---- */

/* The flags are those of the data set: both are replaced, or neither is. */
static int open_beside(struct gpt_out **out, const char *prefix,
                       const char *suffix, unsigned flags, struct gpt_err *err)
{
    struct gpt_buf path = {0};
    int status = gpt_buf_printf(&path, "%s%s", prefix, suffix);

    status = status == GPT_OK ? gpt_out_open(out, path.data, flags, 0, err)
                              : gpt_no_memory(err, "provenance");
    gpt_buf_free(&path);
    return status;
}

/* Sources of another set, or torn ones, would shift those of all parts after
 * them. Every gpt-preprocess writes the number of documents. */
static int open_source(struct gpt_provenance_merge *m, int64_t k,
                       const char *set, const char *path, struct gpt_err *err)
{
    int64_t documents;

    GPT_TRY(gpt_json_int(m->parts[k], "documents", 0, GPT_JSON_EXACT,
                         &documents, set, err));
    GPT_TRY(gpt_in_open(&m->sources[k], path, err));
    return gpt_sources_check(m->sources[k], documents, err);
}

/* *all is false when a set has none: sources of some documents only would name
 * the wrong lines for the rest. */
static int open_sources(struct gpt_provenance_merge *m,
                        const char *const *sets, bool *all,
                        struct gpt_err *err)
{
    GPT_TRY(gpt_new(&m->sources, (size_t)m->n, sizeof(*m->sources),
                    "sources of data sets", err));
    *all = true;
    for (int64_t k = 0; k < m->n && *all; k++) {
        struct gpt_buf path = {0};
        int status = GPT_OK;

        if (gpt_buf_printf(&path, "%s.sources", sets[k]) != GPT_OK)
            status = gpt_no_memory(err, "provenance");
        else if (gpt_path_exists(path.data))
            status = open_source(m, k, sets[k], path.data, err);
        else
            *all = false;
        gpt_buf_free(&path);
        GPT_TRY(status);
    }
    return GPT_OK;
}

/* One part without a JSON is enough for none: a JSON of some parts would be
 * wrong for the set. *all is false then. */
static int read_parts(struct gpt_provenance_merge *m, const char *const *sets,
                      bool *all, struct gpt_err *err)
{
    GPT_TRY(gpt_new(&m->parts, (size_t)m->n, sizeof(*m->parts), "provenances",
                    err));
    *all = true;
    for (int64_t k = 0; k < m->n; k++) {
        GPT_TRY(gpt_provenance_read(&m->parts[k], sets[k], err));
        *all = *all && m->parts[k];
    }
    return GPT_OK;
}

/* Tokenizers are compared even where a part has no JSON and none is written:
 * the tokens are merged all the same. */
static int open_all(struct gpt_provenance_merge *m,
                    const struct gpt_dataset_options *o,
                    const char *const *sets, struct gpt_err *err)
{
    const unsigned flags = o->common.force ? GPT_OUT_FORCE : 0;
    bool all;

    GPT_TRY(read_parts(m, sets, &all, err));
    GPT_TRY(compare_tokenizers(m, o, sets, err));
    if (!all)
        return GPT_OK;
    /* The files are opened before tokens are copied: a name that is taken is
     * reported at once, not after hours. */
    GPT_TRY(make_json(m, sets, err));
    GPT_TRY(open_beside(&m->json, o->output_prefix, ".json", flags, err));
    GPT_TRY(open_sources(m, sets, &all, err));
    return all ? open_beside(&m->all_sources, o->output_prefix, ".sources",
                             flags, err)
               : GPT_OK;
}

int gpt_provenance_merge_open(struct gpt_provenance_merge **merge,
                              const struct gpt_dataset_options *o,
                              const char *const *sets, int64_t n,
                              struct gpt_err *err)
{
    struct gpt_provenance_merge *m;

    *merge = NULL;
    GPT_TRY(gpt_new(&m, 1, sizeof(*m), "a provenance", err));
    m->n = n;
    int status = open_all(m, o, sets, err);
    if (status != GPT_OK)
        gpt_provenance_merge_close(m);
    else
        *merge = m;
    return status;
}

int gpt_provenance_merge_write(struct gpt_provenance_merge *m,
                               struct gpt_out *files[2], struct gpt_err *err)
{
    if (m->json)
        GPT_TRY(write_json(m, err));
    if (m->all_sources)
        GPT_TRY(write_sources(m, err));
    files[0] = m->json;
    files[1] = m->all_sources;
    m->json = m->all_sources = NULL;
    return GPT_OK;
}

/* NULL is fine for whatever was not opened, or was handed over. */
void gpt_provenance_merge_close(struct gpt_provenance_merge *m)
{
    if (!m)
        return;
    gpt_out_abort(m->json);
    gpt_out_abort(m->all_sources);
    for (int64_t k = 0; k < m->n; k++) {
        if (m->parts)
            cJSON_Delete(m->parts[k]);
        if (m->sources)
            gpt_in_close(m->sources[k]);
    }
    gpt_free(m->parts);
    gpt_free(m->sources);
    cJSON_Delete(m->root);
    gpt_free(m);
}
