/* Windows of a long text; see windows.h. Each rule is a function of the number
 * of the window alone, so that windows can be counted and skipped. */
#include "generate/windows.h"

#include "base/num.h"

/* The first window scores all of its targets, each later one those that the
 * windows before it did not reach. */
static bool next_of_megatron(const struct gpt_windows *w, int64_t i,
                             struct gpt_window *window)
{
    const int64_t begin = i * w->stride;
    const int64_t end = gpt_min_i64(begin + w->length + 1, w->n_tokens);
    const int64_t scored = i == 0 ? 1 : begin + w->length - w->stride + 1;

    *window = (struct gpt_window){.begin = begin, .scored = scored, .end = end};
    return scored < end;
}

/* The first window has the prefix as its first input. A later one has `length`
 * inputs, the last of which precedes its last target. */
static bool next_of_lm_eval(const struct gpt_windows *w, int64_t i,
                            struct gpt_window *window)
{
    const int64_t scored = i * w->length;
    const int64_t end = gpt_min_i64(scored + w->length, w->n_tokens);

    *window = (struct gpt_window){
        .begin = i == 0 ? 0 : end - w->length - 1,
        .scored = scored,
        .end = end,
        .prefix = i == 0,
    };
    return scored < end;
}

/* A token that begins the second half is an input there and not a target, so
 * that a chunk scores one token less than half of it. */
static bool next_of_llama_cpp(const struct gpt_windows *w, int64_t i,
                              struct gpt_window *window)
{
    const int64_t begin = i * w->length;

    *window = (struct gpt_window){
        .begin = begin,
        .scored = begin + w->length / 2 + 1,
        .end = begin + w->length,
    };
    return window->end <= w->n_tokens;
}

/* The last token of a window is the first input of the next one. */
static bool next_of_training(const struct gpt_windows *w, int64_t i,
                             struct gpt_window *window)
{
    const int64_t begin = i * w->length;

    *window = (struct gpt_window){
        .begin = begin,
        .scored = begin + 1,
        .end = begin + w->length + 1,
    };
    return window->end <= w->n_tokens;
}

/* The number grows also past the end, where each rule keeps saying no. */
bool gpt_windows_next(struct gpt_windows *w, struct gpt_window *window)
{
    static bool (*const rules[])(const struct gpt_windows *, int64_t,
                                 struct gpt_window *) = {
        [GPT_WINDOWS_MEGATRON] = next_of_megatron,
        [GPT_WINDOWS_LM_EVAL] = next_of_lm_eval,
        [GPT_WINDOWS_LLAMA_CPP] = next_of_llama_cpp,
        [GPT_WINDOWS_TRAINING] = next_of_training,
    };

    return rules[w->rule](w, w->done++, window);
}
