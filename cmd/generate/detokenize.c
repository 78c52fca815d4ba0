/* WikiText's rules; see detokenize.h. Start at apply_rules(): passes over the
 * whole text, one after the other, since a rule sees what the ones before it
 * made. */
#include "cmd/generate/detokenize.h"

#include <string.h>

/* Rules that replace one string by another. A NULL stands where the pairs of
 * brackets and quotes have their turn. Both programs have one rule more, for
 * years such as ' 90, which is written so that it matches nothing. */
static const char *const rules[][2] = {
    {"s '", "s'"},     {" @-@ ", "-"},      {" @,@ ", ","},
    {" @.@ ", "."},    {" : ", ": "},       {" ; ", "; "},  {" . ", ". "},
    {" ! ", "! "},     {" ? ", "? "},       {" , ", ", "},  {NULL, NULL},
    {"= = = =", "===="}, {"= = =", "==="},  {"= =", "=="},
    {" \xC2\xB0 ", "\xC2\xB0"},             {" \n", "\n"},  {"\n ", "\n"},
    {" N ", " 1 "},    {" 's", "'s"},
};

/* Pairs of brackets and of quotes: the spaces just inside of them go. */
static const char pairs[][2] = {
    {'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''},
};

/* From left to right, without looking at what it has written, as Python's
 * replace() does. */
static int replace(const struct gpt_buf *in, const char *from, const char *to,
                   struct gpt_buf *out)
{
    const size_t n = strlen(from);
    const char *at = in->data, *end = in->data + in->len;

    for (const char *hit; (hit = memmem(at, (size_t)(end - at), from, n));
         at = hit + n) {
        GPT_TRY(gpt_buf_add(out, at, (size_t)(hit - at)));
        GPT_TRY(gpt_buf_add(out, to, strlen(to)));
    }
    return gpt_buf_add(out, at, (size_t)(end - at));
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* From an opening mark to the next closing one, without the white space at
 * both ends of what is between. A mark that is never closed stays. */
static int tighten(const struct gpt_buf *in, const char pair[2],
                   struct gpt_buf *out)
{
    const char *at = in->data, *end = in->data + in->len;

    for (const char *open; (open = memchr(at, pair[0], (size_t)(end - at)));) {
        const char *first = open + 1;
        const char *close = memchr(first, pair[1], (size_t)(end - first));

        if (!close)
            break;
        const char *last = close;
        while (first < last && is_space(*first))
            first++;
        while (last > first && is_space(last[-1]))
            last--;
        GPT_TRY(gpt_buf_add(out, at, (size_t)(open + 1 - at)));
        GPT_TRY(gpt_buf_add(out, first, (size_t)(last - first)));
        GPT_TRY(gpt_buf_add(out, close, 1));
        at = close + 1;
    }
    return gpt_buf_add(out, at, (size_t)(end - at));
}

/* One pass: from `a` to an empty `b`, and they change places. */
static void change_places(struct gpt_buf *a, struct gpt_buf *b)
{
    struct gpt_buf t = *a;

    *a = *b;
    *b = t;
    b->len = 0;
}

/* Two buffers take turns, so that a megabyte of text is allocated twice and
 * not twenty times. */
static int apply_rules(struct gpt_buf *text, struct gpt_buf *spare)
{
    for (size_t i = 0; i < GPT_COUNT(rules); i++) {
        if (rules[i][0]) {
            GPT_TRY(replace(text, rules[i][0], rules[i][1], spare));
            change_places(text, spare);
            continue;
        }
        for (size_t k = 0; k < GPT_COUNT(pairs); k++) {
            GPT_TRY(tighten(text, pairs[k], spare));
            change_places(text, spare);
        }
    }
    return GPT_OK;
}

int gpt_detokenize_wikitext(const char *text, size_t len, struct gpt_buf *out)
{
    struct gpt_buf a = {0}, spare = {0};
    int status;

    GPT_TRY_GOTO(status, gpt_buf_add(&a, text, len), out);
    GPT_TRY_GOTO(status, apply_rules(&a, &spare), out);
    status = gpt_buf_add(out, a.data, a.len);
out:
    gpt_buf_free(&a);
    gpt_buf_free(&spare);
    return status;
}
