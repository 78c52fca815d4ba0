/* What the commands of gpt-dataset share: opening what the options name, and
 * reading their values. See command.h. */
#include "cmd/dataset/command.h"

#include "base/log.h"
#include "base/num.h"
#include "cmd/dataset/write_set.h"

#include <string.h>

/* Settled without a size that is a limit: no family refuses it then. It is put
 * back afterwards, for the families that have no size of their own. */
int gpt_dataset_tokenizer(struct gpt_tokenizer_options *to,
                          const struct gpt_dataset_options *o, bool limit,
                          struct gpt_err *err)
{
    *to = o->tokenizer;
    to->vocab_size = limit ? 0 : o->vocab_size;
    if (to->type || to->model || to->vocab_file || to->merge_file)
        GPT_TRY(gpt_tokenizer_settle(to, to->type != NULL,
                                     gpt_tokenizer_types[0], err));
    else
        GPT_TRY(gpt_tokenizer_settle_none(to, err));
    to->vocab_size = o->vocab_size;
    return GPT_OK;
}

int gpt_dataset_open_tokenizer(struct gpt_tokenizer **tok,
                               const struct gpt_dataset_options *o,
                               struct gpt_err *err)
{
    struct gpt_tokenizer_options to;

    *tok = NULL;
    GPT_TRY(gpt_dataset_tokenizer(&to, o, false, err));
    return to.type ? gpt_tokenizer_open_given(tok, &to, err) : GPT_OK;
}

/* "A" alone is one document; "A:B" may lack either end, which then stays what
 * the caller put in. */
static bool parse_ends(const char *text, int64_t *begin, int64_t *end)
{
    char first[32];
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : strlen(text);

    if (len >= sizeof(first) || (len == 0 && !colon))
        return false;
    memcpy(first, text, len);
    first[len] = '\0';
    if (len > 0 && !gpt_parse_int(first, begin))
        return false;
    if (colon)
        return !colon[1] || gpt_parse_int(colon + 1, end);
    *end = *begin < INT64_MAX ? *begin + 1 : *begin;
    return true;
}

/* Without a text the range is all documents. */
int gpt_dataset_parse_range(const char *text, int64_t n, const char *prefix,
                            int64_t *begin, int64_t *end, struct gpt_err *err)
{
    *begin = 0;
    *end = n;
    if (!text)
        return GPT_OK;
    if (!parse_ends(text, begin, end) || *begin < 0 ||
        (*end < *begin && *begin <= n))
        return gpt_fail(err, GPT_EUSAGE,
                        "--documents is '%.100s', must be A:B with A <= B",
                        text);
    /* A range beyond the end is refused, not cut: it mostly is a slip of a
     * digit. */
    if (*end > n || *begin > n)
        return gpt_fail(err, GPT_EUSAGE,
                        "--documents is '%.100s', but %.300s has %lld "
                        "document%s",
                        text, prefix, (long long)n, gpt_plural(n));
    return GPT_OK;
}

int gpt_dataset_open_set(struct gpt_indexed **set, const char *prefix,
                         struct gpt_err *err)
{
    int status = gpt_indexed_open(set, prefix, NULL, err);

    /* A reader stops at the first damage; a more special hint is kept. */
    if (status == GPT_EDATA && err && !err->hint[0])
        gpt_hint(err, "gpt-dataset verify lists all that is wrong");
    return status;
}

/* The hint names the option, which was found already. */
int gpt_dataset_allow(bool allowed, struct gpt_err *err)
{
    if (!allowed)
        return err->status;
    gpt_warn("%s", err->text);
    *err = (struct gpt_err){0};
    return GPT_OK;
}

int gpt_dataset_protect(const char *const *sets, int64_t n,
                        struct gpt_err *err)
{
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(gpt_indexed_protect(sets[i], err));
    return GPT_OK;
}

int gpt_dataset_check_output(const struct gpt_dataset_options *o,
                             struct gpt_err *err)
{
    if (o->output_prefix)
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE, "--output-prefix is needed");
}

/* A progress line is a message, so that a quiet program draws none. */
struct gpt_progress *
gpt_dataset_open_progress(const struct gpt_dataset_options *o, const char *what,
                          int64_t bytes)
{
    return gpt_progress_open(o->common.quiet ? "never" : o->common.progress,
                             what, "B", bytes);
}

static void show_bytes(void *progress, int64_t bytes)
{
    gpt_progress_set(progress, bytes, NULL);
}

struct gpt_write_set_options
gpt_dataset_writing(const struct gpt_dataset_options *o,
                    struct gpt_progress *progress)
{
    return (struct gpt_write_set_options){
        .prefix = o->output_prefix,
        .flags = o->common.force ? GPT_OUT_FORCE : 0,
        .report = show_bytes,
        .user = progress,
    };
}
