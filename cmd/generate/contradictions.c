/* The checks of contradictions.h. Only values that draw are refused: --top-k 1,
 * a --top-p of 1 and --temperature 0 do not contradict --greedy, and scripts
 * give all of them at once. Start at gpt_contradictions_check(). */
#include "cmd/generate/contradictions.h"

#include "base/log.h"
#include "base/memory.h"

#include <assert.h>
#include <string.h>

/* Options are looked up by name, since the table is the program's own. */
static enum gpt_origin origin_of(const struct gpt_args *args, const char *name)
{
    const struct gpt_program *p = args->program;
    size_t i = 0;

    while (!p->options[i].name || strcmp(p->options[i].name, name) != 0) {
        i++;
        assert(i < p->n_options); /* names below are those of the table */
    }
    return args->origin[i];
}

/* Limits of a server, which has clients. */
static const char *const of_server[] = {
    "served-model-name", "api-key-file",    "max-queue",
    "max-connections",   "max-request-size", "request-timeout",
    "client-timeout",    "stop-timeout",    "prefix-cache-size", NULL};
static const char *const of_perplexity[] = {"data-path", "window", "detokenize",
                                            "overlapping-eval", NULL};
static const char *const of_scores[] = {"truncate-context", NULL};
static const char *const of_beams[] = {"length-penalty", "early-stopping",
                                       NULL};

/* A request to the server has fields of its own for these, and a score needs
 * none. */
static const char *const of_choices[] = {
    "tokens", "num-samples", "echo", "stop", "ignore-eod", "stop-on-eol",
    "stop-on-double-eol", "temperature", "top-k", "top-p", "top-p-decay",
    "top-p-bound", "min-p", "repetition-penalty", "presence-penalty",
    "frequency-penalty", "logit-bias", "prevent-newline-after-colon",
    "num-beams", "length-penalty", "early-stopping", "greedy", "semantics",
    "seed", NULL};
static const char *const of_chance[] = {"seed", NULL};
static const char *const of_input[] = {"jsonl", "add-bos", NULL};
static const char *const of_tokens[] = {"logprobs", "return-logits", NULL};

static const char *const of_ranks[] = {"distributed-backend",
                                       "distributed-timeout-minutes", NULL};
static const char *const of_texts[] = {"speculate", "stats-file", NULL};
static const char *const of_batches[] = {"batch-size", NULL};

/* Where the first of the options is that is given, or the list's end. */
static const char *const *find_given(const struct gpt_args *args,
                                     const char *const *names)
{
    while (*names && !gpt_option_given(args, *names))
        names++;
    return names;
}

int gpt_contradictions_check(const struct gpt_generate_options *o,
                             const struct gpt_args *args, struct gpt_err *err)
{
    const struct {
        const char *name;
        bool draws;
    } others[] = {
        {"top-k", o->top_k > 1},
        {"top-p", o->top_p > 0 && o->top_p < 1},
        {"min-p", o->min_p > 0},
        {"temperature", o->temperature > 0},
    };

    /* Options of chats have no effect on other texts; nothing is rounded for
     * floats. */
    const struct {
        const char *name;
        bool given, used;
        const char *with;
    } of_others[] = {
        {"chat", o->chat, o->interactive, "--interactive"},
        {"system-prompt", o->system_prompt != NULL, o->chat, "--chat"},
        {"chat-template-kwargs", o->chat_template_kwargs != NULL, o->chat,
         "--chat"},
        {"chat-template", o->chat_template != NULL,
         o->chat || o->serve != NULL, "--chat and --serve"},
        {"echo", o->echo && o->chat, !o->chat, "texts that are no chat"},
        {"add-bos", o->add_bos && o->chat, !o->chat, "texts that are no chat"},
        {"round-inputs", o->round_inputs, strcmp(o->weights, "fp32") != 0,
         "--weights bf16, int8 and int8-32"},
    };

    const struct {
        const char *const *names;
        bool used;
        const char *with;
    } of_modes[] = {
        {of_server, o->serve != NULL, "serve"},
        {of_perplexity, o->perplexity != NULL, "perplexity"},
        {of_scores, o->score, "score"},
        {of_beams, o->num_beams > 1 || o->serve != NULL, "num-beams"},
    };

    for (size_t i = 0; i < GPT_COUNT(of_others); i++)
        if (of_others[i].given && !of_others[i].used)
            return gpt_fail(err, GPT_EUSAGE, "--%s is for %s",
                            of_others[i].name, of_others[i].with);
    for (size_t i = 0; i < GPT_COUNT(of_modes); i++) {
        const char *name = *find_given(args, of_modes[i].names);

        if (name && !of_modes[i].used)
            return gpt_fail(err, GPT_EUSAGE, "--%s is for --%s", name,
                            of_modes[i].with);
    }
    /* The first one is enough: the hint is the same for all. */
    for (size_t i = 0; o->greedy && i < GPT_COUNT(others); i++) {
        const enum gpt_origin origin = origin_of(args, others[i].name);

        if (!others[i].draws || origin == GPT_FROM_DEFAULT ||
            origin != origin_of(args, "greedy"))
            continue;
        gpt_fail(err, GPT_EUSAGE, "--%s has no effect beside --greedy, which "
                 "always takes the most probable token", others[i].name);
        return gpt_hint(err, "leave one of them out");
    }
    return GPT_OK;
}

/* Where there are no texts at all, every option of choices has its reason. A
 * seed is no contradiction, since scripts give one to every command. */
static bool draws_nothing(const struct gpt_generate_options *o)
{
    const bool texts = !o->serve && !o->score && !o->perplexity;
    const bool first = o->top_k == 1 && strcmp(o->semantics, "megatron") == 0;

    return texts &&
           (o->greedy || o->temperature == 0 || first || o->num_beams > 1);
}

int gpt_contradictions_report(const struct gpt_generate_options *o,
                              const struct gpt_args *args, struct gpt_err *err)
{
    const struct {
        const char *const *names;
        bool idle;
        const char *reason;
    } rows[] = {
        {of_input, o->serve != NULL, "requests say it themselves"},
        {of_tokens, o->serve != NULL, "requests say it themselves"},
        {of_choices, o->serve != NULL, "requests say it themselves"},
        {of_tokens, o->perplexity != NULL, "all tokens together are scored"},
        {of_chance, draws_nothing(o), "nothing is drawn"},
        {of_choices, o->score || o->perplexity, "no text is made"},
        {of_texts, o->score || o->perplexity, "no text is made"},
        {of_batches, o->perplexity != NULL, "one window is scored at a time"},
        {of_ranks, o->tp_size * o->pp_size == 1, "there is one process"},
    };
    struct gpt_buf b = {0};
    int status = GPT_OK;

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const char *const *at = find_given(args, rows[i].names);

        if (!rows[i].idle || !*at)
            continue;
        for (; *at; at = find_given(args, at + 1))
            GPT_TRY_GOTO(status, gpt_buf_printf(&b, "%s--%s",
                                                b.len > 0 ? ", " : "", *at),
                         out);
        GPT_TRY_GOTO(status, gpt_buf_printf(&b, " (%s)", rows[i].reason), out);
    }
    if (b.len > 0)
        gpt_warn("without effect here: %s", b.data);
out:
    gpt_buf_free(&b);
    return status == GPT_OK ? GPT_OK : gpt_no_memory(err, "a warning");
}
