/* gpt-dataset index: the caches of Megatron-LM. */
#include "cmd/dataset/commands.h"

#include "base/json.h"
#include "base/log.h"
#include "base/num.h"
#include "cmd/dataset/cache.h"

/* What Megatron calls the tokenizer is a field of each description. */
static int read_identity(cJSON **root, const cJSON **tokenizer,
                         const struct gpt_command_options *o,
                         struct gpt_err *err)
{
    *root = NULL;
    if (!o->tokenizer_like)
        return gpt_fail(err, GPT_EUSAGE, "--tokenizer-like is needed");
    GPT_TRY(gpt_json_read(root, o->tokenizer_like, 1 << 20, err));
    *tokenizer = cJSON_GetObjectItemCaseSensitive(*root, "tokenizer");
    if (cJSON_IsObject(*tokenizer))
        return GPT_OK;
    cJSON_Delete(*root);
    *root = NULL;
    return gpt_fail(err, GPT_EDATA, "%s: no object 'tokenizer'",
                    o->tokenizer_like);
}

static int index_split(const struct gpt_command_options *o,
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

int gpt_command_index(const struct gpt_command_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_cache_options co = {
        .directory = o->cache_path,
        .split = o->split,
        .seq_length = o->seq_length,
        .seed = (uint32_t)o->seed,
        .flags = o->out_flags,
    };
    cJSON *root;

    (void)n;
    if (o->num_samples.n < 1 || o->num_samples.n > 3)
        return gpt_fail(err, GPT_EUSAGE, "--num-samples needs one to three"
                        " numbers, of the train, valid and test split");
    GPT_TRY(read_identity(&root, &co.tokenizer, o, err));
    struct gpt_indexed *set;
    int status = gpt_command_open(&set, sets[0], err);
    for (int i = 0; i < o->num_samples.n && status == GPT_OK; i++)
        status = index_split(o, set, i, &co, err);
    gpt_indexed_close(set);
    cJSON_Delete(root);
    return status;
}
