/* See printing.h. Start at gpt_hf_print(). */
#include "tokenizer/printing.h"

#include "tokenizer/ids.h"
#include "tokenizer/sp_model.h"

#include <string.h>

/* Appends a text with another one in place of what matches. GPT_EDATA when it
 * becomes longer than a token may be. */
static int add_replaced(const struct gpt_needle *pattern,
                        struct gpt_str content, struct gpt_str text,
                        struct gpt_buf *out)
{
    size_t done = 0, begin, end;

    while (gpt_needle_find(pattern, text.data, text.len, done, &begin, &end)) {
        GPT_TRY(gpt_buf_add(out, text.data + done, begin - done));
        GPT_TRY(gpt_buf_add(out, content.data, content.len));
        done = end;
        if (out->len > GPT_TOKEN_MAX)
            return GPT_EDATA;
    }
    return gpt_buf_add(out, text.data + done, text.len - done);
}

/* Takes the spaces out that stand before what belongs to the word before it, as
 * the library does. */
static int clean_up(struct gpt_buf *text, struct gpt_buf *scratch)
{
    static const char *const rules[][2] = {
        {" .", "."},     {" ?", "?"},     {" !", "!"},   {" ,", ","},
        {" ' ", "'"},    {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"},
        {" 's", "'s"},   {" 've", "'ve"}, {" 're", "'re"},
    };

    for (size_t i = 0; i < GPT_COUNT(rules); i++) {
        const struct gpt_needle from = {
            .text = {rules[i][0], strlen(rules[i][0])}};
        const struct gpt_str to = {rules[i][1], strlen(rules[i][1])};
        const struct gpt_buf old = *text;

        scratch->len = 0;
        GPT_TRY(add_replaced(&from, to, (struct gpt_str){old.data, old.len},
                             scratch));
        *text = *scratch;
        *scratch = old;
    }
    return GPT_OK;
}

/* A token of words: `inside` joins it to the one before. */
static int print_word(const struct gpt_hf_printing *p, bool first,
                      struct gpt_str token, struct gpt_buf buffers[2],
                      struct gpt_buf *out)
{
    const struct gpt_str inside = p->inside;
    struct gpt_buf *text = &buffers[0];

    if (!first && inside.data && token.len >= inside.len &&
        memcmp(token.data, inside.data, inside.len) == 0) {
        token.data += inside.len;
        token.len -= inside.len;
    } else if (!first) {
        GPT_TRY(gpt_buf_add(text, " ", 1));
    }
    GPT_TRY(gpt_buf_add(text, token.data, token.len));
    if (p->cleanup)
        GPT_TRY(clean_up(text, &buffers[1]));
    return gpt_buf_add(out, text->data, text->len);
}

/* A token by the steps of the decoder. */
static int print_piece(const struct gpt_hf_printing *p, struct gpt_str token,
                       struct gpt_buf buffers[2], struct gpt_buf *out)
{
    const struct gpt_str space = {" ", 1};
    struct gpt_str text = token;

    for (size_t i = 0; i < p->n_replace; i++) {
        struct gpt_buf *b = &buffers[i % 2];

        b->len = 0;
        GPT_TRY(add_replaced(&p->replace[i].pattern, p->replace[i].content,
                             text, b));
        text = (struct gpt_str){b->data ? b->data : "", b->len};
    }
    const int byte = p->bytes ? gpt_sp_byte_of(text) : -1;
    if (byte >= 0) {
        const char c = (char)byte;

        return gpt_buf_add(out, &c, 1);
    }
    const struct gpt_needle pattern = {.text = p->space};
    return p->space.data ? add_replaced(&pattern, space, text, out)
                         : gpt_buf_add(out, text.data, text.len);
}

int gpt_hf_print(const struct gpt_hf_printing *p, bool first,
                 struct gpt_str token, struct gpt_buf *out,
                 struct gpt_err *err)
{
    struct gpt_buf buffers[2] = {{0}, {0}};
    const int status = p->joined ? print_word(p, first, token, buffers, out)
                                 : print_piece(p, token, buffers, out);

    gpt_buf_free(&buffers[0]);
    gpt_buf_free(&buffers[1]);
    if (status == GPT_EDATA)
        return gpt_fail(err, GPT_EDATA, "the decoder makes more than %d bytes "
                        "of a token", GPT_TOKEN_MAX);
    return status == GPT_OK ? GPT_OK : gpt_no_memory(err, "a vocabulary");
}
