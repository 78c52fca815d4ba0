/* Guesses by n-grams; see guess.h. Start at gpt_guess(). A search from the end
 * compares one token at most places: it takes microseconds for a text of
 * thousands, where a step of the model takes milliseconds. */
#include "generate/guess.h"

/* The last LONG tokens are looked for, then fewer, down to SHORT. One token
 * alone is nearly always there, and says little. */
enum { LONG = 4, SHORT = 2 };

static int32_t token_at(const struct gpt_history *h, int64_t i)
{
    return i < h->n_prompt ? h->prompt[i] : h->text[i - h->n_prompt];
}

/* How many tokens before `at` are those at the end, LONG at most. */
static int64_t count_same(const struct gpt_history *h, int64_t n, int64_t at)
{
    int64_t same = 0;

    while (same < LONG && same < at &&
           token_at(h, at - 1 - same) == token_at(h, n - 1 - same))
        same++;
    return same;
}

/* The last of several places with equally many counts: a text says again what
 * it said just before. */
int64_t gpt_guess(const struct gpt_history *h, int64_t most, int32_t *guesses)
{
    const int64_t n = h->n_prompt + h->n_text;
    int64_t best = SHORT - 1, from = -1;

    for (int64_t at = n - 1; most > 0 && at > 0 && best < LONG; at--) {
        const int64_t same = count_same(h, n, at);

        if (same > best) {
            best = same;
            from = at;
        }
    }
    if (from < 0)
        return 0;
    /* past the end the guesses themselves go on: a text in a circle */
    for (int64_t i = 0; i < most; i++)
        guesses[i] = from + i < n ? token_at(h, from + i)
                                  : guesses[from + i - n];
    return most;
}
