/* Windows of perplexities: which tokens each rule scores, how often, and how
 * much they see. */
#include "generate/windows.h"
#include "tests/lib/tap.h"

enum { MOST = 400 };

/* How often each token is scored, how little it sees at least, and whether a
 * window is wrong: empty, too long, or outside of the text. */
struct cover {
    int times[MOST];
    int64_t sees, windows;
    bool bad;
};

static struct cover cover(enum gpt_windows_rule rule, int64_t length,
                          int64_t stride, int64_t n)
{
    struct gpt_windows w = {rule, length, stride, n, 0};
    struct gpt_window window;
    struct cover c = {.sees = MOST};

    for (; gpt_windows_next(&w, &window); c.windows++) {
        const int64_t inputs = window.end - window.begin - 1 + window.prefix;

        c.bad |= window.begin < 0 || window.end > n || inputs > length ||
            window.scored >= window.end ||
            window.scored - window.begin + window.prefix < 1;
        for (int64_t i = window.scored; i < window.end; i++)
            c.times[i]++;
        if (c.windows > 0 && window.scored - window.begin < c.sees)
            c.sees = window.scored - window.begin;
    }
    return c;
}

/* True when exactly tokens [first, end) are scored, once each. */
static bool covers(const struct cover *c, int64_t first, int64_t end, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (c->times[i] != (i >= first && i < end))
            return false;
    return !c->bad;
}

int main(void)
{
    bool megatron = true, lm_eval = true, llama = true, training = true;

    for (int64_t length = 2; length <= 33; length++)
        for (int64_t n = 2; n < 140; n++) {
            struct cover c = cover(GPT_WINDOWS_LM_EVAL, length, 0, n);
            int64_t whole = n / length * length;

            lm_eval &= covers(&c, 0, n, n);
            c = cover(GPT_WINDOWS_TRAINING, length, 0, n);
            training &= covers(&c, 1, (n - 1) / length * length + 1, n);
            c = cover(GPT_WINDOWS_LLAMA_CPP, length, 0, n);
            int64_t scored = 0;
            for (int64_t i = 0; i < n; i++)
                scored += c.times[i];
            llama &= c.windows == n / length && (length == 2 || !c.bad) &&
                scored == whole / length * (length - length / 2 - 1);
            for (int64_t stride = 1; stride <= length; stride += 3) {
                c = cover(GPT_WINDOWS_MEGATRON, length, stride, n);
                megatron &= covers(&c, 1, n, n) &&
                    (c.windows < 2 || c.sees >= length - stride + 1);
            }
        }
    ok(megatron, "Megatron's score every token but the first, once");
    ok(lm_eval, "lm-eval's score every token once");
    ok(llama, "llama.cpp's score second halves of whole chunks");
    ok(training, "training's score whole samples");
    struct cover c = cover(GPT_WINDOWS_MEGATRON, 100, 32, 300);
    is_int(c.windows, 8, "as many windows as Megatron counts");
    return tap_done();
}
