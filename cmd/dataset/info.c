/* gpt-dataset info: type and counts of data sets, and what made them. Nothing
 * but the index and the JSON beside it is read. Start at run_info(). The table:
 *
 *     type    documents    sequences          tokens       size  set
 *     U16          7222         7221          338025  748.7 KiB  my_document
 *          by gpt-preprocess 0.1.0, 1 input, 1.5 MiB, GPT2BPETokenizer of ...
 *     all         14444        14442          676050     1.5 MiB  total
 */
#include "cmd/dataset/command.h"

#include "base/num.h"
#include "base/utf8.h"
#include "cmd/dataset/listing.h"
#include "data/provenance.h"

#include <inttypes.h>

/* Sums over all sets, for the last line of the table. */
struct totals {
    int64_t documents, sequences, tokens, bytes;
};

static int add_line(struct gpt_listing *l, const char *dtype,
                    const struct totals *counts, const char *name,
                    struct gpt_err *err)
{
    char size[32];

    GPT_TRY(gpt_listing_check(
        gpt_buf_printf(&l->text,
                       "%-4s %12" PRId64 " %12" PRId64 " %15" PRId64 " %10s  ",
                       dtype, counts->documents, counts->sequences,
                       counts->tokens,
                       gpt_text_bytes(size, (double)counts->bytes)),
        err));
    GPT_TRY(gpt_listing_check(gpt_buf_add_shown(&l->text, name, ""), err));
    return gpt_listing_check(gpt_buf_add(&l->text, "\n", 1), err);
}

/* Adds a set to the list; made_by becomes a part of it. */
static int add_object(struct gpt_listing *l, const struct gpt_indexed *set,
                      cJSON *made_by, struct gpt_err *err)
{
    cJSON *o = cJSON_CreateObject();

    gpt_listing_put_counts(o, set);
    if (made_by)
        gpt_json_add(o, "provenance", made_by);
    return gpt_listing_add(l, o, err);
}

/* The heading comes with the first set, so that a failure at once prints
 * nothing. */
static int add_heading(struct gpt_listing *l, struct gpt_err *err)
{
    if (l->n++ > 0)
        return GPT_OK;
    return gpt_listing_check(
        gpt_buf_printf(&l->text, "%-4s %12s %12s %15s %10s  %s\n", "type",
                       "documents", "sequences", "tokens", "size", "set"),
        err);
}

static int add_set(struct gpt_listing *l, const struct gpt_indexed *set,
                   struct totals *all, struct gpt_err *err)
{
    const struct totals counts = {
        .documents = gpt_indexed_n_documents(set),
        .sequences = gpt_indexed_n_sequences(set),
        .tokens = gpt_indexed_n_tokens(set),
        .bytes = gpt_listing_bin_bytes(set) + gpt_listing_idx_bytes(set),
    };
    char brief[400] = "";
    cJSON *made_by;

    GPT_TRY(gpt_provenance_read(&made_by, gpt_indexed_prefix(set), err));
    if (l->json)
        return add_object(l, set, made_by, err);
    if (made_by)
        gpt_provenance_brief(brief, sizeof(brief), made_by);
    cJSON_Delete(made_by);
    GPT_TRY(add_heading(l, err));
    all->documents += counts.documents;
    all->sequences += counts.sequences;
    all->tokens += counts.tokens;
    all->bytes += counts.bytes;
    GPT_TRY(add_line(l, gpt_dtype_name(gpt_indexed_dtype(set)), &counts,
                     gpt_indexed_prefix(set), err));
    if (!brief[0])
        return GPT_OK;
    GPT_TRY(gpt_listing_check(gpt_buf_printf(&l->text, "     by "), err));
    GPT_TRY(gpt_listing_check(gpt_buf_add_shown(&l->text, brief, ""), err));
    return gpt_listing_check(gpt_buf_printf(&l->text, "\n"), err);
}

static int add_sets(struct gpt_listing *l, const char *const *sets, int n,
                    struct gpt_err *err)
{
    struct totals all = {0};

    for (int i = 0; i < n; i++) {
        struct gpt_indexed *set;

        GPT_TRY(gpt_dataset_open_set(&set, sets[i], err));
        int status = add_set(l, set, &all, err);
        gpt_indexed_close(set);
        GPT_TRY(status);
    }
    /* One set is its own sum; objects are summed by the script that reads
     * them. */
    if (l->json || l->n < 2)
        return GPT_OK;
    return add_line(l, "all", &all, "total", err);
}

static int run_info(const struct gpt_dataset_options *o,
                    const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_listing l = {.json = o->json};
    int status = add_sets(&l, sets, n, err);

    return gpt_listing_print(&l, o->out, status, err);
}

static const struct gpt_opt options[] = {GPT_DATASET_JSON};

const struct gpt_dataset_command gpt_dataset_info = {
    .name = "info",
    .run = run_info,
    .min_sets = 1,
    .max_sets = INT32_MAX,
    .options = options,
    .n_options = GPT_COUNT(options),
    .usage = "info PREFIX... [--json]",
    .example = "gpt-dataset info my_text_document",
};
