/* Perplexities by name; see perplexity.h. Start at gpt_measure_perplexity(): a
 * convention is a row of the table, its windows are generate/windows.h, and
 * what its figures are per (tokens, words, bytes) is add_figures(). */
#include "cmd/generate/perplexity.h"

#include "base/io.h"
#include "base/num.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "cmd/generate/detokenize.h"
#include "cmd/generate/json_out.h"
#include "cmd/generate/prompts_given.h"
#include "data/indexed.h"
#include "generate/score.h"
#include "generate/windows.h"
#include "text/unicode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STRIDE = 32 }; /* of Megatron's windows by default */

/* Figures that only texts have: a convention that leaves tokens out has none
 * of them. */
enum figures { TOKENS_ALONE, ADJUSTED, WORDS_AND_BYTES };

static const struct convention {
    const char *name;
    enum gpt_windows_rule rule;
    enum figures figures;
    /* lm-eval puts a beginning itself, and no end */
    enum gpt_around around;
    int64_t length; /* of a window by default; 0: all positions */
    int64_t least;  /* of a window in which a token is scored */
    bool whole;     /* a text that is shorter than a window is not scored */
    double limit;   /* of a loss, before it becomes a perplexity */
} conventions[] = {
    {"megatron", GPT_WINDOWS_MEGATRON, ADJUSTED, GPT_AROUND_BOTH, 0, 1, false,
     20},
    {"lm-eval", GPT_WINDOWS_LM_EVAL, WORDS_AND_BYTES, GPT_AROUND_NONE, 0, 1,
     false, HUGE_VAL},
    {"llama.cpp", GPT_WINDOWS_LLAMA_CPP, TOKENS_ALONE, GPT_AROUND_BOTH, 512, 3,
     true, HUGE_VAL},
    {"training", GPT_WINDOWS_TRAINING, TOKENS_ALONE, GPT_AROUND_BOTH, 0, 1,
     true, 20},
};
const char *const gpt_perplexity_names[] = {"megatron", "lm-eval", "llama.cpp",
                                            "training", NULL};

struct measurement {
    struct gpt_loaded *m;
    const struct convention *how;
    int64_t length, stride;
    struct gpt_prompts prompts;
    struct gpt_encoder *encoder;
    struct gpt_indexed *set;
    struct gpt_scorer *scorer;
    struct gpt_ids ids; /* of a text; unused with a set */
    int32_t *window;    /* (length + 2) */
    struct gpt_progress *progress;
    /* sums over all texts */
    int64_t texts, tokens, scored, words, split_words, bytes;
    double logprob;
};

/* ---- words ---- */

/* Pieces between stretches of white space, as Python's re.split(r"\s+") counts
 * them: an empty piece at an end counts. */
static int64_t count_pieces(const char *text, size_t len)
{
    int64_t n = 1;
    bool in_space = false;

    for (size_t i = 0; i < len;) {
        uint32_t cp = 0;
        int size = gpt_utf8_decode((const uint8_t *)text + i, len - i, &cp);
        bool space = size > 0 && (gpt_unicode_class(cp) == GPT_UC_SPACE ||
                                  (cp >= 0x1C && cp <= 0x1F));

        n += space && !in_space;
        in_space = space;
        i += size > 0 ? (size_t)size : 1;
    }
    return n;
}

/* What Megatron counts: len(text.strip().split(" ")). */
static int64_t count_spaced(const char *text, size_t len)
{
    int64_t n = 1;

    while (len > 0 && (*text == ' ' || (*text >= '\t' && *text <= '\r'))) {
        text++;
        len--;
    }
    while (len > 0 && (text[len - 1] == ' ' ||
                       (text[len - 1] >= '\t' && text[len - 1] <= '\r')))
        len--;
    for (size_t i = 0; i < len; i++)
        n += text[i] == ' ';
    return n;
}

/* ---- windows ---- */

/* Tokens of a set lie in sequences; a window reads over their ends, as training
 * does. */
static int read_set(const struct gpt_indexed *set, int64_t begin, int64_t n,
                    int32_t *dst, struct gpt_err *err)
{
    int64_t low = 0, high = gpt_indexed_n_sequences(set);

    while (low + 1 < high) {
        int64_t middle = low + (high - low) / 2;

        if (gpt_indexed_start(set, middle) <= begin)
            low = middle;
        else
            high = middle;
    }
    for (int64_t i = low; n > 0; i++) {
        int64_t at = begin - gpt_indexed_start(set, i);
        int64_t take = gpt_min_i64(n, gpt_indexed_length(set, i) - at);

        GPT_TRY(gpt_indexed_read(set, i, at, take, dst, err));
        begin += take;
        dst += take;
        n -= take;
    }
    return GPT_OK;
}

/* A set gives the window alone: sets are larger than memory. A text is there as
 * a whole. */
static int read_tokens(struct measurement *p, int64_t begin, int64_t n,
                       int32_t *dst, struct gpt_err *err)
{
    if (p->set)
        return read_set(p->set, begin, n, dst, err);
    memcpy(dst, p->ids.data + begin, (size_t)n * sizeof(*dst));
    return GPT_OK;
}

/* llama.cpp overwrites the first token of a chunk where the model wants a
 * beginning; the harness puts one before the first window alone. */
static int score_window(struct measurement *p, const struct gpt_window *w,
                        struct gpt_err *err)
{
    const int32_t eod = gpt_loaded_eod(p->m);
    const int32_t bos = gpt_tokenizer_bos(p->m->tokenizer);
    const bool begins =
        p->how->rule == GPT_WINDOWS_LLAMA_CPP && p->m->o->add_bos;
    const int64_t n = w->end - w->begin;
    struct gpt_scored_text text = {.tokens = p->window,
                                   .n = n + w->prefix,
                                   .first = w->scored - w->begin + w->prefix};

    if (((w->prefix && bos < 0) || begins) && eod < 0)
        return gpt_fail(err, GPT_EDATA,
                        "the vocabulary has no end-of-document token to begin "
                        "with");
    p->window[0] = bos >= 0 ? bos : eod;
    GPT_TRY(read_tokens(p, w->begin, n, p->window + w->prefix, err));
    if (begins)
        p->window[0] = eod;
    GPT_TRY(gpt_score_texts(p->scorer, &text, 1, 0, NULL, err));
    p->logprob += text.score.logprob;
    p->scored += text.score.tokens;
    return GPT_OK;
}

/* Windows are scored one by one, in order, so that the sum has the same bits
 * every time. A note on a terminal shows where the loss is heading, since a
 * book takes hours. */
static int score_tokens(struct measurement *p, int64_t n, struct gpt_err *err)
{
    struct gpt_windows windows = {
        .rule = p->how->rule,
        .length = p->length,
        .stride = p->stride,
        .n_tokens = n,
    };
    struct gpt_window w;
    char note[64];

    p->texts++;
    p->tokens += n;
    while (gpt_windows_next(&windows, &w)) {
        GPT_TRY(gpt_signals_check(err));
        GPT_TRY(score_window(p, &w, err));
        snprintf(note, sizeof(note), "loss %.4f",
                 -p->logprob / (double)p->scored);
        gpt_progress_set(p->progress, p->scored, note);
    }
    return GPT_OK;
}

/* The tokens of a text as the model is meant to read it. */
static int encode_detokenized(struct measurement *p,
                              const struct gpt_prompt *prompt,
                              struct gpt_err *err)
{
    struct gpt_buf text = {0};
    int status;

    if (prompt->ids)
        return gpt_fail(err, GPT_EDATA,
                        "a list of token ids has no spaces to take out");
    status = gpt_detokenize_wikitext(prompt->text, prompt->len, &text);
    if (status == GPT_OK)
        status = gpt_encode_as(p->encoder, p->how->around, text.data, text.len,
                               &p->ids, err);
    else
        status = gpt_no_memory(err, "a text");
    gpt_buf_free(&text);
    return status;
}

/* Words and bytes are those of the text as it is in the file, or as its token
 * ids spell it. */
static int score_prompt(struct measurement *p, size_t i, struct gpt_err *err)
{
    const struct gpt_prompt *prompt = &p->prompts.items[i];

    if (prompt->error)
        return gpt_fail(err, GPT_EDATA, "%s", prompt->error);
    p->ids.len = 0;
    GPT_TRY(strcmp(p->m->o->detokenize, "wikitext") == 0
                ? encode_detokenized(p, prompt, err)
                : gpt_prompts_encode(&p->prompts, i, p->m, p->encoder,
                                     p->how->around, &p->ids, err));
    p->words += count_pieces(prompt->text, prompt->len);
    p->split_words += count_spaced(prompt->text, prompt->len);
    p->bytes += (int64_t)prompt->len;
    return score_tokens(p, (int64_t)p->ids.len, err);
}

/* ---- figures ---- */

/* Megatron caps the loss so that an untrained model prints a number; the cap
 * is part of its convention. */
static double perplexity_of(const struct measurement *p, double loss)
{
    return exp(fmin(loss, p->how->limit));
}

/* A page in a script without spaces is one word, whose perplexity can be more
 * than any number. */
static int add_words_and_bytes(struct gpt_buf *b, const struct measurement *p)
{
    const double nll = -p->logprob, bytes = (double)p->bytes;

    GPT_TRY(gpt_buf_printf(b, ",\"words\":%lld,\"bytes\":%lld",
                           (long long)p->words, (long long)p->bytes));
    GPT_TRY(gpt_json_add_real(b, "word_perplexity",
                              exp(nll / (double)p->words)));
    GPT_TRY(gpt_json_add_real(b, "byte_perplexity", exp(nll / bytes)));
    return gpt_json_add_real(b, "bits_per_byte", nll / bytes / log(2));
}

/* Adjusted: as if the text had as many tokens as words, so that vocabularies
 * can be compared; of both, the first is not scored. */
static int add_figures(struct gpt_buf *b, const struct measurement *p)
{
    const double nll = -p->logprob, loss = nll / (double)p->scored;

    GPT_TRY(gpt_buf_printf(b,
                           "{\"convention\":\"%s\",\"window\":%lld,\"texts\":"
                           "%lld,\"tokens\":%lld,\"scored\":%lld",
                           p->how->name, (long long)p->length,
                           (long long)p->texts, (long long)p->tokens,
                           (long long)p->scored));
    if (p->how->rule == GPT_WINDOWS_MEGATRON)
        GPT_TRY(gpt_buf_printf(b, ",\"stride\":%lld", (long long)p->stride));
    GPT_TRY(gpt_json_add_real(b, "loss", loss));
    GPT_TRY(gpt_json_add_real(b, "perplexity", perplexity_of(p, loss)));
    if (!p->set && p->how->figures == ADJUSTED && p->split_words > p->texts) {
        const double words = (double)(p->split_words - p->texts);

        GPT_TRY(gpt_buf_printf(b, ",\"words\":%lld",
                               (long long)p->split_words));
        GPT_TRY(gpt_json_add_real(b, "adjusted_perplexity",
                                  perplexity_of(p, nll / words)));
    }
    if (!p->set && p->how->figures == WORDS_AND_BYTES)
        GPT_TRY(add_words_and_bytes(b, p));
    return gpt_buf_add(b, "}\n", 2);
}

static int write_figures(const struct measurement *p, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    int status = add_figures(&b, p);

    if (status != GPT_OK)
        status = gpt_no_memory(err, "figures");
    else if (fwrite(b.data, 1, b.len, stdout) != b.len || fflush(stdout) != 0)
        status = gpt_fail_errno(err, GPT_EIO, "cannot write standard output");
    gpt_buf_free(&b);
    return status;
}

/* ---- the command ---- */

/* Everything that needs no text is refused before one is read. */
static int settle(struct measurement *p, struct gpt_err *err)
{
    const struct gpt_generate_options *o = p->m->o;
    const int64_t positions = p->m->positions;

    for (size_t i = 0; i < GPT_COUNT(conventions); i++)
        if (strcmp(conventions[i].name, o->perplexity) == 0)
            p->how = &conventions[i];
    p->length = o->window;
    if (p->length == 0)
        p->length =
            p->how->length ? gpt_min_i64(p->how->length, positions) : positions;
    p->stride = o->overlapping_eval ? o->overlapping_eval
                                    : gpt_min_i64(STRIDE, p->length);
    if (p->length > positions)
        return gpt_fail(err, GPT_EUSAGE,
                        "--window is %lld, but the model has %lld positions",
                        (long long)p->length, (long long)positions);
    if (p->length < p->how->least)
        return gpt_fail(err, GPT_EUSAGE,
                        "--window is %lld, but the convention %s scores tokens "
                        "of windows of %lld and more",
                        (long long)p->length, p->how->name,
                        (long long)p->how->least);
    if (o->overlapping_eval && p->how->rule != GPT_WINDOWS_MEGATRON)
        return gpt_fail(err, GPT_EUSAGE,
                        "--overlapping-eval is for the convention megatron, "
                        "not %s",
                        p->how->name);
    if (p->stride > p->length)
        return gpt_fail(err, GPT_EUSAGE,
                        "--overlapping-eval is %lld, but a window has %lld "
                        "tokens",
                        (long long)p->stride, (long long)p->length);
    if (o->add_bos && p->how->rule != GPT_WINDOWS_LLAMA_CPP)
        return gpt_fail(err, GPT_EUSAGE,
                        "--add-bos: the convention %s says itself where a text "
                        "begins",
                        p->how->name);
    if (o->data_path && o->prompt.n + o->prompt_file.n > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--data-path and prompts: one of the two is measured");
    return GPT_OK;
}

/* Refuses texts that are all too short. */
static int refuse_short(const struct measurement *p, struct gpt_err *err)
{
    if (p->tokens == 0)
        return gpt_fail(err, GPT_EDATA,
                        "no token is scored: the %s empty",
                        p->set          ? "data set is"
                        : p->texts == 1 ? "text is"
                                        : "texts are");
    gpt_fail(err, GPT_EDATA,
             "no token is scored: the convention %s wants texts of more than "
             "%lld tokens",
             p->how->name, (long long)(p->how->whole ? p->length : 1));
    return p->how->whole ? gpt_hint(err, "--window N makes windows smaller")
                         : GPT_EDATA;
}

/* A text that is wrong ends the work, where a prompt would be skipped: the
 * figure would be that of other texts. */
static int score_all(struct measurement *p, struct gpt_err *err)
{
    for (size_t i = 0; i < p->prompts.n; i++)
        if (score_prompt(p, i, err) != GPT_OK)
            return gpt_context(err, "text %zu", i + 1);
    if (p->set)
        GPT_TRY(score_tokens(p, gpt_indexed_n_tokens(p->set), err));
    return p->scored == 0 ? refuse_short(p, err) : write_figures(p, err);
}

/* The reader's own hints are about names that begin so; here is what a name is
 * that is another file's. */
static int open_set(struct measurement *p, struct gpt_err *err)
{
    const char *name = p->m->o->data_path;
    const int status = gpt_indexed_open(&p->set, name, NULL, err);

    if (status == GPT_EIO && !err->hint[0] && gpt_path_exists(name))
        return gpt_hint(err, "--data-path takes the prefix of a data set that "
                             "gpt-preprocess made; --prompt-file takes texts");
    return status;
}

/* Texts before weights: a missing file is reported at once. */
static int measure(struct measurement *p, struct gpt_err *err)
{
    const struct gpt_generate_options *o = p->m->o;

    GPT_TRY(settle(p, err));
    if (o->data_path)
        GPT_TRY(open_set(p, err));
    else
        GPT_TRY(gpt_prompts_read_given(
            &p->prompts, o, o->jsonl ? GPT_FILES_JSONL : GPT_FILES_WHOLE, err));
    GPT_TRY(gpt_encoder_open(&p->encoder, p->m->tokenizer, err));
    GPT_TRY(gpt_new(&p->window, (size_t)p->length + 2, sizeof(*p->window),
                    "a window", err));
    GPT_TRY(gpt_loaded_open_decoder(p->m, 1, p->length, err));
    GPT_TRY(gpt_scorer_open(&p->scorer, p->m->decoder, 0, 1, err));
    p->progress = gpt_progress_open(o->common.progress, "perplexity", "tokens",
                                    p->set ? gpt_indexed_n_tokens(p->set) : 0);
    int status = score_all(p, err);
    gpt_progress_close(p->progress);
    return status;
}

/* Frees what there is, whatever failed. */
int gpt_measure_perplexity(struct gpt_loaded *m, struct gpt_err *err)
{
    struct measurement p = {.m = m};
    int status = measure(&p, err);

    gpt_scorer_close(p.scorer);
    gpt_encoder_close(p.encoder);
    gpt_indexed_close(p.set);
    gpt_free(p.window);
    gpt_free(p.ids.data);
    gpt_prompts_free(&p.prompts);
    return status;
}
