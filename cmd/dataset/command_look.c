/* gpt-dataset's commands that look: info, stat, verify, cat. And what all
 * commands share. */
#include "cmd/dataset/commands.h"

#include "base/memory.h"
#include "base/num.h"
#include "cmd/dataset/dump.h"
#include "cmd/dataset/show.h"
#include "cmd/dataset/verify.h"

#include <string.h>

/* ---- shared ---- */

int gpt_command_tokenizer(struct gpt_tokenizer **tok,
                          const struct gpt_command_options *o,
                          struct gpt_err *err)
{
    struct gpt_tokenizer_options to = o->tokenizer;

    *tok = NULL;
    if (!to.type && !to.vocab_file && !to.merge_file && !to.model)
        return GPT_OK;
    if (!to.type && to.model)
        return gpt_fail(err, GPT_EUSAGE,
                        "--tokenizer-model without --tokenizer-type");
    if (!to.type)
        to.type = gpt_tokenizer_types[0];
    to.vocab_size = o->vocab_size;
    return gpt_tokenizer_open_given(tok, &to, err);
}

int gpt_command_range(const char *text, int64_t n, const char *prefix,
                      int64_t *begin, int64_t *end, struct gpt_err *err)
{
    char first[32];

    *begin = 0;
    *end = n;
    if (!text)
        return GPT_OK;
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : strlen(text);
    bool good = len < sizeof(first);
    if (good) {
        memcpy(first, text, len);
        first[len] = '\0';
    }
    if (good && len > 0)
        good = gpt_parse_int(first, begin);
    else if (!colon)
        good = false;
    if (good && !colon)
        *end = *begin < INT64_MAX ? *begin + 1 : *begin;
    else if (good && colon[1])
        good = gpt_parse_int(colon + 1, end);
    if (!good || *begin < 0 || *end < *begin)
        return gpt_fail(err, GPT_EUSAGE,
                        "--documents is '%.100s', must be A:B with A <= B",
                        text);
    if (*end > n)
        return gpt_fail(err, GPT_EUSAGE,
                        "--documents is '%.100s', %.300s has %lld documents",
                        text, prefix, (long long)n);
    return GPT_OK;
}

int gpt_command_open(struct gpt_indexed **set, const char *prefix,
                     struct gpt_err *err)
{
    int status = gpt_indexed_open(set, prefix, NULL, err);

    if (status == GPT_EDATA && err && !err->hint[0])
        gpt_hint(err, "gpt-dataset verify lists all that is wrong");
    return status;
}

/* ---- info, stat, verify ---- */

/* What was found until a failure is said, too. */
static int print(const struct gpt_command_options *o, struct gpt_buf *b,
                 int status, struct gpt_err *err)
{
    int printed = GPT_OK;

    if (b->len > 0)
        printed = gpt_out_write(o->out, b->data, b->len,
                                status == GPT_OK ? err : NULL);
    gpt_buf_free(b);
    return status == GPT_OK ? printed : status;
}

int gpt_command_info(const struct gpt_command_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    struct gpt_show show = {.b = &b, .json = o->json};
    int status = GPT_OK;

    for (int i = 0; i < n && status == GPT_OK; i++) {
        struct gpt_indexed *set;

        status = gpt_command_open(&set, sets[i], err);
        if (status == GPT_OK)
            status = gpt_show_info(&show, set, err);
        gpt_indexed_close(set);
    }
    if (status == GPT_OK)
        status = gpt_show_info_end(&show, err);
    return print(o, &b, status, err);
}

static int stat_set(const struct gpt_command_options *o, struct gpt_show *show,
                    const char *prefix, const struct gpt_tokenizer *tok,
                    struct gpt_err *err)
{
    struct gpt_stat_options so = {
        .tokens = o->top > 0 || tok, .top = o->top, .tokenizer = tok};
    struct gpt_indexed *set;
    struct gpt_stat s;

    GPT_TRY(gpt_command_open(&set, prefix, err));
    int status = gpt_stat(&s, set, &so, err);
    if (status == GPT_OK) {
        status = gpt_show_stat(show, set, &s, tok, err);
        gpt_stat_free(&s);
    }
    gpt_indexed_close(set);
    return status;
}

int gpt_command_stat(const struct gpt_command_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    struct gpt_show show = {.b = &b, .json = o->json};
    struct gpt_tokenizer *tok;
    int status = gpt_command_tokenizer(&tok, o, err);

    for (int i = 0; i < n && status == GPT_OK; i++)
        status = stat_set(o, &show, sets[i], tok, err);
    gpt_tokenizer_close(tok);
    return print(o, &b, status, err);
}

static int verify_set(const struct gpt_command_options *o,
                      struct gpt_show *show, const char *prefix,
                      int64_t vocab_size, int64_t *n, struct gpt_err *err)
{
    struct gpt_verify_options vo = {.vocab_size = vocab_size, .eod = o->eod};
    struct gpt_findings f;

    gpt_findings_open(&f, o->max_findings);
    int status = gpt_verify(prefix, &vo, &f.damages, err);
    if (status == GPT_OK)
        status = gpt_show_findings(show, prefix, &f, err);
    *n += gpt_damages_total(&f.damages);
    gpt_findings_close(&f);
    return status;
}

int gpt_command_verify(const struct gpt_command_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    struct gpt_show show = {.b = &b, .json = o->json};
    struct gpt_tokenizer *tok;
    int64_t findings = 0, vocab_size = o->vocab_size;
    int status = gpt_command_tokenizer(&tok, o, err);

    if (status == GPT_OK && tok && vocab_size == 0)
        vocab_size = gpt_tokenizer_vocab_size(tok);
    gpt_tokenizer_close(tok);
    for (int i = 0; i < n && status == GPT_OK; i++)
        status = verify_set(o, &show, sets[i], vocab_size, &findings, err);
    status = print(o, &b, status, err);
    if (status == GPT_OK && findings > 0)
        return gpt_fail(err, GPT_EDATA, "%lld finding%s", (long long)findings,
                        findings == 1 ? "" : "s");
    return status;
}

/* ---- cat ---- */

static int cat_set(const struct gpt_command_options *o, const char *prefix,
                   const struct gpt_tokenizer *tok, struct gpt_err *err)
{
    struct gpt_dump_options d = {
        .tokenizer = tok, .jsonl = o->jsonl, .strip_eod = o->strip_eod};
    struct gpt_indexed *set;

    GPT_TRY(gpt_command_open(&set, prefix, err));
    int64_t n = gpt_indexed_n_documents(set);
    int status = gpt_command_range(o->documents, n, prefix, &d.begin, &d.end,
                                   err);
    if (o->tail > 0)
        d.begin = gpt_max_i64(d.begin, d.end - o->tail);
    struct gpt_sources *sources = NULL;
    if (status == GPT_OK && o->sources)
        status = gpt_sources_open(&sources, prefix, n, err);
    d.sources = sources;
    if (status == GPT_OK)
        status = gpt_dump(o->out, set, &d, err);
    gpt_sources_close(sources);
    gpt_indexed_close(set);
    return status;
}

int gpt_command_cat(const struct gpt_command_options *o,
                    const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_tokenizer *tok;

    GPT_TRY(gpt_command_tokenizer(&tok, o, err));
    int status = GPT_OK;
    if (o->strip_eod && !tok)
        status = gpt_fail(err, GPT_EUSAGE, "--strip-eod needs a vocabulary");
    for (int i = 0; i < n && status == GPT_OK; i++)
        status = cat_set(o, sets[i], tok, err);
    gpt_tokenizer_close(tok);
    return status;
}
