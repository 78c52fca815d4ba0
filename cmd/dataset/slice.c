/* gpt-dataset slice and head: a range of a set's documents as a set of its own.
 * head is the slice that begins at document 0. Both copy bytes and entries of
 * the index; neither looks at a token, so that any vocabulary will do. */
#include "cmd/dataset/command.h"

#include "base/num.h"
#include "cmd/dataset/write_documents.h"

/* The range is parsed after the set is open, as its limit is the number of
 * documents. */
static int run_slice(const struct gpt_dataset_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_document_range range;
    struct gpt_indexed *set;
    int status;

    (void)n;
    GPT_TRY(gpt_dataset_check_output(o, err));
    if (!o->documents)
        return gpt_fail(err, GPT_EUSAGE, "slice needs --documents A:B, the "
                        "documents that it takes");
    GPT_TRY(gpt_dataset_open_set(&set, sets[0], err));
    range.set = set;
    /* "A:" ends with the last document, so their number is needed here */
    GPT_TRY_GOTO(status, gpt_dataset_parse_range(
                             o->documents, gpt_indexed_n_documents(set),
                             sets[0], &range.begin, &range.end, err), out);
    status = gpt_write_documents(o, "slice", &range, 1, NULL, err);
out:
    gpt_indexed_close(set);
    return status;
}

static int run_head(const struct gpt_dataset_options *o,
                    const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_indexed *set;

    (void)n;
    GPT_TRY(gpt_dataset_check_output(o, err));
    GPT_TRY(gpt_dataset_open_set(&set, sets[0], err));
    /* A set of fewer documents is taken whole, as head(1) does. */
    const struct gpt_document_range range = {
        set, 0, gpt_min_i64(o->count, gpt_indexed_n_documents(set))};
    int status = gpt_write_documents(o, "head", &range, 1, NULL, err);
    gpt_indexed_close(set);
    return status;
}

static const struct gpt_opt slice_options[] = {
    GPT_DATASET_OUTPUT_PREFIX,
    GPT_DATASET_DOCUMENTS,
};

static const struct gpt_opt head_options[] = {
    GPT_DATASET_OUTPUT_PREFIX,
    GPT_DATASET_GROUP("Which documents"),
    {.kind = GPT_OPT_INT, .letter = 'n', .name = "count", .arg = "N",
     GPT_DATASET_AT(count), .def = "10", .min = 0, .max = 1e18,
     .help = "how many documents"},
};

const struct gpt_dataset_command gpt_dataset_slice = {
    .name = "slice",
    .run = run_slice,
    .min_sets = 1,
    .max_sets = 1,
    .options = slice_options,
    .n_options = GPT_COUNT(slice_options),
    .usage = "slice PREFIX --documents A:B --output-prefix PREFIX",
};

const struct gpt_dataset_command gpt_dataset_head = {
    .name = "head",
    .run = run_head,
    .min_sets = 1,
    .max_sets = 1,
    .options = head_options,
    .n_options = GPT_COUNT(head_options),
    .usage = "head PREFIX [-n N] --output-prefix PREFIX",
};
