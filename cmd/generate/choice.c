/* The choice of tokens by the options; see choice.h. Start at
 * gpt_choose_rules(). */
#include "cmd/generate/choice.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>

/* The first token that is exactly `text`; -1: none. Newlines and colons have no
 * fixed ids outside of GPT-2's vocabulary, where Megatron has them by number.
 */
static int32_t find_token(const struct gpt_tokenizer *tok, const char *text)
{
    const int64_t n = gpt_tokenizer_vocab_size(tok);

    for (int64_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *bytes = gpt_token_bytes(tok, (int32_t)i, &len);

        if (len == strlen(text) && memcmp(bytes, text, len) == 0)
            return (int32_t)i;
    }
    return -1;
}

/* A vocabulary of pieces may have newlines only together with other
 * characters. */
static int require_token(const struct gpt_tokenizer *tok, const char *text,
                         const char *name, const char *option, int32_t *id,
                         struct gpt_err *err)
{
    *id = find_token(tok, text);
    if (*id >= 0)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "--%s: the vocabulary has no token that is %s",
             option, name);
    return gpt_hint(err, "end texts with --stop instead");
}

/* Megatron's: newlines take the place of the end of a document, and of both
 * options the second counts. */
static int end_at_newlines(struct gpt_chosen_rules *r,
                           const struct gpt_loaded *m, struct gpt_err *err)
{
    const bool twice = m->o->stop_on_double_eol;
    const char *option = twice ? "stop-on-double-eol" : "stop-on-eol";
    const int32_t two = find_token(m->tokenizer, "\n\n");
    int32_t one = -1;
    int n = 0;

    GPT_TRY(require_token(m->tokenizer, "\n", "a newline", option, &one, err));
    if (two >= 0)
        r->ends[n++] = two;
    if (!twice)
        r->ends[n++] = one;
    r->choice.end_twice = twice;
    r->choice.twice = one;
    r->choice.ends = r->ends;
    r->choice.n_ends = n;
    return GPT_OK;
}

static int choose_ends(struct gpt_chosen_rules *r, const struct gpt_loaded *m,
                       struct gpt_err *err)
{
    if (m->o->stop_on_eol || m->o->stop_on_double_eol)
        return end_at_newlines(r, m, err);
    if (m->o->ignore_eod)
        return GPT_OK;
    r->choice.ends = r->ends;
    r->choice.n_ends = gpt_loaded_ends(m, m->o->chat, r->ends);
    return GPT_OK;
}

/* "ID:X", also "ID=X"; X is a number or -inf. */
static bool parse_bias(const char *word, struct gpt_bias *bias)
{
    char id[32];
    const size_t n = strcspn(word, ":=");
    int64_t token = 0;
    double add = 0;

    if (n >= sizeof(id) || word[n] == '\0')
        return false;
    memcpy(id, word, n);
    id[n] = '\0';
    if (!gpt_parse_int(id, &token) || token < 0 || token > INT32_MAX)
        return false;
    /* Beyond the limit a sum of two biases would not be a number any more. */
    if (strcmp(word + n + 1, "-inf") == 0)
        add = -HUGE_VAL;
    else if (!gpt_parse_real(word + n + 1, &add) || fabs(add) > 1e6)
        return false;
    *bias = (struct gpt_bias){(int32_t)token, (float)add};
    return true;
}

/* A text must be able to go on: some token is left. */
static int check_some_left(const struct gpt_chosen_rules *r, int64_t n,
                           int64_t vocab, struct gpt_err *err)
{
    int64_t forbidden = 0;
    bool *gone;

    if (n < vocab)
        return GPT_OK;
    GPT_TRY(gpt_new(&gone, (size_t)vocab, sizeof(*gone), "biases of logits",
                    err));
    for (int64_t i = 0; i < n; i++)
        if (isinf(r->bias[i].add) && !gone[r->bias[i].token]) {
            gone[r->bias[i].token] = true;
            forbidden++;
        }
    gpt_free(gone);
    return forbidden < vocab
               ? GPT_OK
               : gpt_fail(err, GPT_EUSAGE,
                          "--logit-bias forbids all %lld tokens of the model, "
                          "so that none is left to choose", (long long)vocab);
}

/* The biases outlive the options' words, and a batch reads them at every step:
 * they are parsed once. */
static int read_bias(struct gpt_chosen_rules *r, const struct gpt_loaded *m,
                     struct gpt_err *err)
{
    const struct gpt_list *words = &m->o->logit_bias;

    GPT_TRY(gpt_new(&r->bias, (size_t)words->n, sizeof(*r->bias),
                    "biases of logits", err));
    for (int64_t i = 0; i < words->n; i++) {
        if (!parse_bias(words->items[i], &r->bias[i]))
            return gpt_fail(err, GPT_EUSAGE,
                            "--logit-bias: '%s' is not ID:X, a token and a "
                            "number or -inf",
                            words->items[i]);
        if (r->bias[i].token >= m->config->vocab_size)
            return gpt_fail(err, GPT_EUSAGE,
                            "--logit-bias: token %d, but the model has %lld",
                            r->bias[i].token, (long long)m->config->vocab_size);
    }
    r->choice.sampling.bias = r->bias;
    r->choice.sampling.n_bias = words->n;
    return check_some_left(r, words->n, m->config->vocab_size, err);
}

/* A seed that is chosen is printed, so that a text can be had again. */
static uint64_t choose_seed(const struct gpt_generate_options *o, bool greedy)
{
    uint32_t random = 0;

    /* Greedy choices draw no random number, so that there is no seed to
     * report. */
    if (o->seed >= 0)
        return (uint64_t)o->seed;
    if (!greedy && getrandom(&random, sizeof(random), 0) != sizeof(random))
        random = 1234;
    if (!greedy)
        gpt_info("seed %u", random);
    return random;
}

/* An option that would have no effect is refused: the command means something
 * else than it says. */
static int check_options(const struct gpt_generate_options *o,
                         struct gpt_err *err)
{
    if (o->top_p_decay > 0 && o->top_p == 0) {
        gpt_fail(err, GPT_EUSAGE, "--top-p-decay has no effect without "
                 "--top-p");
        return gpt_hint(err, "give --top-p P, from which it starts");
    }
    if (o->top_p_bound > 0 && o->top_p_decay == 0) {
        gpt_fail(err, GPT_EUSAGE, "--top-p-bound has no effect without "
                 "--top-p-decay");
        return gpt_hint(err, "give --top-p-decay X as well");
    }
    for (int64_t i = 0; i < o->stop.n; i++)
        if (!*o->stop.items[i])
            return gpt_fail(err, GPT_EUSAGE,
                            "--stop: an empty string is in every text");
    /* Megatron's server refuses this, too: the first tokens would be chosen
     * more narrowly than the last. */
    if (o->top_p_bound > o->top_p)
        return gpt_fail(err, GPT_EUSAGE, "--top-p-bound %g is above --top-p %g",
                        o->top_p_bound, o->top_p);
    if ((o->logprobs >= 0 || o->return_logits) && !o->jsonl) {
        gpt_fail(err, GPT_EUSAGE, "--%s has no place in a plain text",
                 o->logprobs >= 0 ? "logprobs" : "return-logits");
        return gpt_hint(err, "add --jsonl");
    }
    return GPT_OK;
}

/* Options first, since they are wrong for every model; then what needs the
 * vocabulary; the seed last, so that a refused command prints none. */
int gpt_choose_rules(struct gpt_chosen_rules *r, const struct gpt_loaded *m,
                     struct gpt_err *err)
{
    const struct gpt_generate_options *o = m->o;
    struct gpt_sampling *s = &r->choice.sampling;

    *r = (struct gpt_chosen_rules){
        .choice = {.logprobs = o->logprobs >= 0,
                   .n_top = gpt_max_i64(o->logprobs, 0)},
    };
    *s = (struct gpt_sampling){
        .temperature = o->greedy ? 0 : o->temperature,
        .top_k = o->top_k,
        .top_p = o->top_p,
        .min_p = o->min_p,
        .semantics =
            strcmp(o->semantics, "hf") == 0 ? GPT_HUGGING_FACE : GPT_MEGATRON,
        .top_p_decay = o->top_p_decay,
        .top_p_bound = o->top_p_bound,
        .repetition_penalty = o->repetition_penalty,
        .presence_penalty = o->presence_penalty,
        .frequency_penalty = o->frequency_penalty,
        .after_colon = o->prevent_newline_after_colon,
    };
    GPT_TRY(check_options(o, err));
    GPT_TRY(read_bias(r, m, err));
    GPT_TRY(choose_ends(r, m, err));
    if (s->after_colon) {
        const char *option = "prevent-newline-after-colon";

        GPT_TRY(require_token(m->tokenizer, ":", "a colon", option, &s->colon,
                              err));
        GPT_TRY(require_token(m->tokenizer, "\n", "a newline", option,
                              &s->newline, err));
    }
    r->seed = choose_seed(o, gpt_sampling_is_greedy(s) || o->num_beams > 1);
    return GPT_OK;
}
