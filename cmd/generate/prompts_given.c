/* The prompts of a command; see prompts_given.h. */
#include "cmd/generate/prompts_given.h"

#include "base/io.h"
#include "base/log.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Prompts of the command line come first, then those of files, in the order
 * given. A terminal is not waited for: a program that waits in silence looks as
 * if it hung. */
int gpt_prompts_read_given(struct gpt_prompts *p,
                           const struct gpt_generate_options *o,
                           enum gpt_prompt_files files, struct gpt_err *err)
{
    const char *const standard_input[] = {"-"};
    const char *const *names = o->prompt_file.items;
    int64_t n_files = o->prompt_file.n;

    p->scored = o->score || o->perplexity;
    for (int64_t i = 0; i < o->prompt.n; i++)
        GPT_TRY(gpt_prompts_add(p, o->prompt.items[i],
                                strlen(o->prompt.items[i]), err));
    if (o->prompt.n + n_files == 0) {
        if (isatty(STDIN_FILENO)) {
            gpt_fail(err, GPT_EUSAGE, "no prompt");
            return gpt_hint(err, "give --prompt TEXT, --prompt-file FILE or "
                                 "text on standard input");
        }
        GPT_TRY(gpt_claim_stdin("the prompt", err));
        names = standard_input;
        n_files = 1;
    }
    for (int64_t i = 0; i < n_files; i++)
        GPT_TRY(files == GPT_FILES_JSONL
                    ? gpt_prompts_read_jsonl(p, names[i], err)
                    : gpt_prompts_read_text(p, names[i],
                                            files == GPT_FILES_WHOLE, err));
    return GPT_OK;
}

/* The text of a prompt of ids, whose bytes need not be characters. */
static int decode_ids(const struct gpt_prompt *prompt,
                      const struct gpt_loaded *m, struct gpt_buf *text,
                      struct gpt_err *err)
{
    for (size_t k = 0; k < prompt->n_ids; k++) {
        size_t len = 0;

        if (prompt->ids[k] >= m->config->vocab_size)
            return gpt_fail(err, GPT_EDATA,
                            "token id %d is outside the vocabulary of %lld",
                            prompt->ids[k], (long long)m->config->vocab_size);
        const char *bytes = gpt_token_bytes(m->tokenizer, prompt->ids[k], &len);
        if (gpt_buf_add(text, bytes, len) != GPT_OK)
            return gpt_no_memory(err, "prompts");
    }
    return GPT_OK;
}

bool gpt_prompt_check_utf8(const char *text, size_t len, const char *what)
{
    size_t at = 0;

    for (size_t n; at < len && (n = gpt_utf8_length(text + at, len - at));)
        at += n;
    if (at < len)
        gpt_warn("%s: byte %zu, 0x%02x, is no UTF-8", what, at + 1,
                 (unsigned char)text[at]);
    return at == len;
}

/* The first such prompt is enough: others may come from the same file. */
static void check_utf8(struct gpt_prompts *p, size_t i)
{
    const struct gpt_prompt *prompt = &p->items[i];
    char what[32];

    snprintf(what, sizeof(what), "prompt %zu", i + 1);
    if (!p->told_of_bytes)
        p->told_of_bytes =
            !gpt_prompt_check_utf8(prompt->text, prompt->len, what);
}

int gpt_prompts_encode(struct gpt_prompts *p, size_t i,
                       const struct gpt_loaded *m, struct gpt_encoder *encoder,
                       enum gpt_around around, struct gpt_ids *ids,
                       struct gpt_err *err)
{
    const struct gpt_prompt *prompt = &p->items[i];
    struct gpt_buf text = {0};

    if (!prompt->ids) {
        check_utf8(p, i);
        return gpt_encode_as(encoder, around, prompt->text, prompt->len, ids,
                             err);
    }
    int status = decode_ids(prompt, m, &text, err);
    if (status == GPT_OK)
        status = gpt_prompts_set_text(p, i, text.data, text.len, err);
    gpt_buf_free(&text);
    GPT_TRY(status);
    return gpt_ids_add(ids, prompt->ids, prompt->n_ids, err);
}
