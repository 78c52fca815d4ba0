/* gpt-dataset index: makes the caches of Megatron-LM ahead, so that its first
 * step need not wait for them: on many nodes rank 0 builds them while all
 * others wait. megatron_cache.h writes the files. */
#include "cmd/dataset/command.h"

#include "base/json.h"
#include "base/log.h"
#include "base/num.h"
#include "cmd/dataset/megatron_cache.h"
#include "data/blend.h"

/* Reads the tokenizer's object out of a description that Megatron wrote. It is
 * part of the digest in all file names, and its fields depend on Megatron's own
 * classes, so that it is copied and not made. *root owns it. */
static int read_identity(cJSON **root, const cJSON **tokenizer,
                         const struct gpt_dataset_options *o,
                         struct gpt_err *err)
{
    *root = NULL;
    if (!o->tokenizer_like)
        return gpt_fail(err, GPT_EUSAGE, "--tokenizer-like is needed: a "
                        "description.txt of Megatron-LM");
    GPT_TRY(gpt_json_read(root, o->tokenizer_like, 1 << 20, err));
    *tokenizer = cJSON_GetObjectItemCaseSensitive(*root, "tokenizer");
    if (cJSON_IsObject(*tokenizer))
        return GPT_OK;
    cJSON_Delete(*root);
    *root = NULL;
    return gpt_fail(err, GPT_EDATA, "%s has no object 'tokenizer': name a "
                    "description.txt of Megatron-LM", o->tokenizer_like);
}

/* Writes the four files of a split. A split without a share has none, which is
 * no failure. */
static int index_split(const struct gpt_dataset_options *o,
                       const struct gpt_indexed *set, int split,
                       const struct gpt_cache_options *co, struct gpt_err *err)
{
    const char *text = o->num_samples.items[split];
    int64_t wanted;
    char digest[33];

    if (!gpt_parse_int(text, &wanted) || wanted < 0)
        return gpt_fail(err, GPT_EUSAGE, "--num-samples is '%.100s', must be a"
                        " number >= 0", text);
    GPT_TRY(gpt_cache_write(set, split, wanted, co, digest, err));
    if (digest[0])
        gpt_info("%s: split %d is %s", gpt_indexed_prefix(set), split, digest);
    else
        gpt_info("%s: split %d has no share", gpt_indexed_prefix(set), split);
    return GPT_OK;
}

/* The set is opened once for all splits: each takes another range of its
 * sequences. */
static int write_caches(const struct gpt_dataset_options *o,
                        const char *prefix, const struct gpt_cache_options *co,
                        struct gpt_err *err)
{
    struct gpt_indexed *set;
    int status = GPT_OK;

    GPT_TRY(gpt_dataset_open_set(&set, prefix, err));
    for (int i = 0; i < o->num_samples.n; i++)
        GPT_TRY_GOTO(status, index_split(o, set, i, co, err), out);
out:
    gpt_indexed_close(set);
    return status;
}

/* The rule of the text is the library's; here it gets the option's name. */
static int check_split(const char *text, struct gpt_err *err)
{
    double edge[4];

    return gpt_split_parse(edge, text, err) == GPT_OK
               ? GPT_OK
               : gpt_context(err, "--split");
}

static int run_index(const struct gpt_dataset_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_cache_options co = {
        .directory = o->cache_path,
        .split = o->split,
        .seq_length = o->seq_length,
        .seed = (uint32_t)o->seed,
        .flags = o->common.force ? GPT_OUT_FORCE : 0,
    };
    cJSON *root;

    (void)n;
    /* The last splits may be left out: nothing is then made for them. */
    if (o->num_samples.n < 1 || o->num_samples.n > 3)
        return gpt_fail(err, GPT_EUSAGE, "--num-samples needs one to three"
                        " numbers, of the train, valid and test split");
    GPT_TRY(check_split(o->split, err));
    GPT_TRY(read_identity(&root, &co.tokenizer, o, err));
    int status = write_caches(o, sets[0], &co, err);
    cJSON_Delete(root);
    return status;
}

static const struct gpt_opt options[] = {
    GPT_DATASET_GROUP("Caches of Megatron-LM"),
    {.kind = GPT_OPT_STRING, .name = "data-cache-path", .arg = "DIR",
     GPT_DATASET_AT(cache_path), .flags = GPT_OPT_DIR,
     .help = "directory to write; default: PREFIX/cache/GPTDataset_indices"},
    {.kind = GPT_OPT_STRING, .name = "tokenizer-like", .arg = "FILE",
     GPT_DATASET_AT(tokenizer_like), .flags = GPT_OPT_FILE | GPT_OPT_INPUT,
     .help = "a description.txt of Megatron-LM with the same tokenizer"},
    {.kind = GPT_OPT_LIST, .name = "num-samples", .arg = "N",
     GPT_DATASET_AT(num_samples),
     .help = "of train, valid and test split; 0: one epoch of it"},
    {.kind = GPT_OPT_INT, .name = "seq-length", .arg = "N",
     GPT_DATASET_AT(seq_length), .def = "1024", .min = 1, .max = INT32_MAX,
     .help = "tokens of a sample"},
    {.kind = GPT_OPT_INT, .name = "seed", .arg = "N", GPT_DATASET_AT(seed),
     .def = "1234", .min = 0, .max = UINT32_MAX,
     .help = "of the order of samples"},
    {.kind = GPT_OPT_STRING, .name = "split", .arg = "A,B,C",
     GPT_DATASET_AT(split), .def = "969,30,1",
     .help = "shares of train, valid and test"},
};

const struct gpt_dataset_command gpt_dataset_index = {
    .name = "index",
    .run = run_index,
    .min_sets = 1,
    .max_sets = 1,
    .options = options,
    .n_options = GPT_COUNT(options),
    .usage = "index PREFIX --tokenizer-like FILE --num-samples N..."
             " [--seq-length N]",
};
