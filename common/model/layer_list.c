/* Numbers and lists that choose layers; see layer_list.h. The text of a list is
 * a small part of Python's expressions, which Megatron-LM evaluates: sums and
 * multiples of lists. Start at gpt_layers_parse(). */
#include "model/layer_list.h"

#include <stdlib.h>
#include <string.h>

/* The bit above a list's entries says how many there are. */
static int64_t period_of(int64_t layers)
{
    int64_t period = GPT_LAYERS_PERIOD;

    while (!(layers >> period & 1))
        period--;
    return period;
}

bool gpt_layers_entry(int64_t layers, int64_t layer, bool odd)
{
    if (layers >= GPT_LAYERS_LIST)
        return layers >> layer % period_of(layers) & 1;
    return layers > 0 && (layer + 1) % layers == 0 ? odd : !odd;
}

/* True when each entry is the one `period` before it, so that the first so many
 * say all. */
static bool repeats(const bool *entry, int64_t n, int64_t period)
{
    return memcmp(entry, entry + period,
                  (size_t)(n - period) * sizeof(*entry)) == 0;
}

/* The number goes before the list that says the same: two descriptions of one
 * model must not differ. */
int64_t gpt_layers_pack(const bool *entry, int64_t n, bool odd)
{
    int64_t period = 1, odds = 0;

    while (period < n && !repeats(entry, n, period))
        period++;
    for (int64_t i = 0; i < period; i++)
        odds += entry[i] == odd;
    if (odds == 0)
        return 0;
    if (odds == 1 && entry[period - 1] == odd && period <= GPT_LAYERS_EVERY)
        return period;
    if (period > GPT_LAYERS_PERIOD)
        return -1;
    int64_t layers = GPT_LAYERS_LIST | (int64_t)1 << period;
    for (int64_t i = 0; i < period; i++)
        layers |= (int64_t)entry[i] << i;
    return layers;
}

int gpt_layers_make(int64_t *layers, const bool *entry, int64_t n, bool odd,
                    const char *what, const char *key, struct gpt_err *err)
{
    *layers = gpt_layers_pack(entry, n, odd);
    if (*layers >= 0)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: %s does not repeat within %d layers, as it must here",
                    what, key, GPT_LAYERS_PERIOD);
}

/* ---- the text ---- */

enum { MOST = 1024, DEPTH = 16 };

/* The entries of all lists so far. A list that is read is appended to them, so
 * that two lists side by side are their sum. */
struct list_text {
    const char *at;
    bool entry[MOST];
    int64_t n;
    int depth;
};

static void skip_space(struct list_text *t)
{
    t->at += strspn(t->at, " ");
}

static bool take(struct list_text *t, char c)
{
    skip_space(t);
    if (*t->at != c)
        return false;
    t->at++;
    return true;
}

static bool take_number(struct list_text *t, int64_t *number)
{
    char *end;

    skip_space(t);
    if (*t->at < '0' || *t->at > '9')
        return false;
    *number = strtoll(t->at, &end, 10);
    t->at = end;
    return true;
}

/* Reads the entries of a list such as "[1, 0]" and appends them. An entry is a
 * truth value in Megatron-LM, where another number would count as 1: it is
 * refused here, as it is a slip. */
static bool take_entries(struct list_text *t)
{
    int64_t value;

    do {
        if (!take_number(t, &value) || value > 1 || t->n == MOST)
            return false;
        t->entry[t->n++] = value == 1;
    } while (take(t, ','));
    return take(t, ']');
}

/* Repeats the entries from `from` on, so that there are `times` of them. The
 * limit is checked before two numbers of the text are multiplied, which may
 * overflow. */
static bool multiply(struct list_text *t, int64_t from, int64_t times)
{
    const int64_t n = t->n - from;

    if (times > MOST || from + n * times > MOST)
        return false;
    for (int64_t i = 1; i < times; i++)
        memcpy(t->entry + from + i * n, t->entry + from,
               (size_t)n * sizeof(*t->entry));
    t->n = from + n * times;
    return true;
}

/* Reads a list in brackets, or a sum in parentheses, and the number by which it
 * is multiplied; then the same after each '+'. */
static bool take_sum(struct list_text *t)
{
    do {
        const int64_t from = t->n;
        int64_t times = 1;

        if (take_number(t, &times) && !take(t, '*'))
            return false;
        if (take(t, '(')) {
            if (t->depth++ == DEPTH || !take_sum(t) || !take(t, ')'))
                return false;
            t->depth--;
        } else if (!take(t, '[') || !take_entries(t)) {
            return false;
        }
        if (!multiply(t, from, times))
            return false;
        while (take(t, '*'))
            if (!take_number(t, &times) || !multiply(t, from, times))
                return false;
    } while (take(t, '+'));
    return true;
}

/* A number is tried first: "3" is none of a list's beginnings, but "3*[1]"
 * begins with one. */
int gpt_layers_parse(int64_t *layers, const char *text, int64_t n, bool odd,
                     struct gpt_err *err)
{
    struct list_text t = {.at = text};

    *layers = 0;
    if (take_number(&t, layers) && (skip_space(&t), *t.at == '\0') &&
        *layers <= GPT_LAYERS_EVERY)
        return GPT_OK;
    t = (struct list_text){.at = text};
    if (!take_sum(&t) || (skip_space(&t), *t.at != '\0'))
        return gpt_fail(err, GPT_EUSAGE,
                        "'%.200s' is neither a number up to %d nor a list of "
                        "at most %d layers, as [1,1,0] or ([1]*3+[0])*2",
                        text, GPT_LAYERS_EVERY, MOST);
    if (t.n != n)
        return gpt_fail(err, GPT_EUSAGE,
                        "'%.200s' has %lld entries for %lld layers", text,
                        (long long)t.n, (long long)n);
    *layers = gpt_layers_pack(t.entry, n, odd);
    if (*layers < 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "'%.200s' does not repeat within %d layers", text,
                        GPT_LAYERS_PERIOD);
    return GPT_OK;
}

/* Prints every entry, even where the list repeats: a reader sees the model's
 * layers. */
int gpt_layers_print(struct gpt_buf *b, int64_t layers, int64_t n, bool odd)
{
    if (layers < GPT_LAYERS_LIST)
        return gpt_buf_printf(b, "%lld", (long long)layers);
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(gpt_buf_printf(b, "%c%d%s", i > 0 ? ',' : '[',
                               gpt_layers_entry(layers, i, odd),
                               i + 1 < n ? "" : "]"));
    return GPT_OK;
}
