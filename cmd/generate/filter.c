/* The program as a filter; see filter.h. Start at gpt_filter_prompts():
 * prompts, their ids, requests, the decoder, texts. */
#include "cmd/generate/filter.h"

#include "base/log.h"
#include "base/num.h"
#include "base/signals.h"
#include "cmd/generate/choice.h"
#include "cmd/generate/filter_beams.h"
#include "cmd/generate/prompts_given.h"
#include "cmd/generate/writer.h"

#include <stdio.h>

struct filter {
    struct gpt_loaded *m;
    const struct gpt_generate_options *o;
    struct gpt_chosen_rules rules;
    struct gpt_prompts prompts;
    struct gpt_ids *ids;          /* (prompts.n) */
    struct gpt_request *requests; /* (n_requests) */
    int64_t n_requests, most_prompt;
};

/* Encodes prompt i. A prompt of ids is taken as it is; its text is for the
 * output. The model needs a token to start from, so an empty prompt
 * becomes the end of the document before. */
static int encode_prompt(struct filter *f, struct gpt_encoder *encoder,
                         size_t i, struct gpt_err *err)
{
    struct gpt_ids *ids = &f->ids[i];
    const int32_t eod = gpt_loaded_eod(f->m);

    /* An empty prompt with the option begins with one such token, not two. */
    if (f->o->add_bos && eod >= 0)
        GPT_TRY(gpt_ids_add(ids, &eod, 1, err));
    GPT_TRY(gpt_prompts_encode(&f->prompts, i, f->m, encoder, GPT_AROUND_BOTH,
                               ids, err));
    if ((ids->len == 0 || f->o->add_bos) && eod < 0)
        return gpt_fail(err, GPT_EDATA,
                        ids->len == 0
                            ? "empty, and the vocabulary has no "
                              "end-of-document token to begin with; give it a "
                              "word"
                            : "the vocabulary has no end-of-document token to "
                              "put in front");
    if (ids->len == 0)
        GPT_TRY(gpt_ids_add(ids, &eod, 1, err));
    if ((int64_t)ids->len > f->m->positions)
        return gpt_fail(err, GPT_EDATA,
                        "%zu tokens, but there are only %lld positions; "
                        "shorten it",
                        ids->len,
                        (long long)f->m->positions);
    return GPT_OK;
}

/* A prompt that is wrong is refused: others are answered. Lack of memory is no
 * fault of the prompt's. */
static int encode_or_refuse(struct filter *f, struct gpt_encoder *encoder,
                            size_t i, struct gpt_err *err)
{
    struct gpt_err failure = {0};
    int status = encode_prompt(f, encoder, i, &failure);

    if (status == GPT_OK) {
        f->most_prompt = gpt_max_i64(f->most_prompt, (int64_t)f->ids[i].len);
        return GPT_OK;
    }
    if (status == GPT_EFAIL) {
        *err = failure;
        return status;
    }
    f->ids[i].len = 0;
    return gpt_prompts_refuse(&f->prompts, i, failure.text, err);
}

/* All prompts are encoded before the model is loaded. A prompt that is wrong is
 * reported in an instant, and the longest one decides how much memory a text
 * takes. */
static int encode_prompts(struct filter *f, struct gpt_err *err)
{
    struct gpt_encoder *encoder = NULL;
    int status = GPT_OK;

    GPT_TRY(gpt_new(&f->ids, f->prompts.n, sizeof(*f->ids), "prompts", err));
    GPT_TRY(gpt_encoder_open(&encoder, f->m->tokenizer, err));
    for (size_t i = 0; i < f->prompts.n && status == GPT_OK; i++)
        if (!f->prompts.items[i].error)
            status = encode_or_refuse(f, encoder, i, err);
    gpt_encoder_close(encoder);
    for (size_t i = 0; i < f->prompts.n && f->prompts.n > 1; i++)
        if (f->prompts.items[i].error)
            gpt_warn("%s", f->prompts.items[i].error);
    return status;
}

/* Fails when prompts were refused: called at the end, after all others were
 * answered. */
static int report_refused(const struct filter *f, struct gpt_err *err)
{
    const size_t n = gpt_prompts_refused(&f->prompts);

    if (n == 0)
        return GPT_OK;
    if (f->prompts.n == 1)
        gpt_fail(err, GPT_EDATA, "%s", f->prompts.items[0].error);
    else
        gpt_fail(err, GPT_EDATA, "%zu of %zu prompts are not answered", n,
                 f->prompts.n);
    if (f->o->jsonl && n == f->prompts.n)
        gpt_hint(err, "--jsonl wants an object with a string 'prompt' on each "
                      "line; without it a file is one prompt");
    return GPT_EDATA;
}

/* The number of a request is that of its prompt, and names its random stream;
 * samples of one prompt have streams of their own. A line with a seed is as if
 * it were the only one, so that its place among others does not matter. */
static int make_requests(struct filter *f, struct gpt_err *err)
{
    int64_t samples = f->o->num_samples;

    if (!gpt_mul((int64_t)f->prompts.n, samples, &f->n_requests))
        return gpt_fail(err, GPT_EUSAGE,
                        "--num-samples %lld of %zu prompts are too many texts",
                        (long long)samples, f->prompts.n);
    GPT_TRY(gpt_new(&f->requests, (size_t)f->n_requests, sizeof(*f->requests),
                    "requests", err));
    for (int64_t i = 0; i < f->n_requests; i++) {
        const struct gpt_ids *ids = &f->ids[i / samples];
        const int64_t seed = f->prompts.items[i / samples].seed;

        f->requests[i] = (struct gpt_request){
            .prompt = ids->data,
            .n_prompt = (int64_t)ids->len,
            .max_tokens = f->o->tokens,
            .number = (uint64_t)(i / samples),
            .stream = seed < 0 ? (uint64_t)(i / samples) : 0,
            .sample = (uint64_t)(i % samples),
            .seed = seed < 0 ? f->rules.seed : (uint64_t)seed,
            .choice = &f->rules.choice,
        };
    }
    return GPT_OK;
}

/* ---- texts ---- */

/* Slots for more texts than there are, and positions that no text reaches,
 * would be memory for nothing. A text that may reach the last position of the
 * model is announced, since it would end without another reason. */
static int open_decoder(struct filter *f, struct gpt_err *err)
{
    const int64_t longest = f->most_prompt + f->o->tokens;

    if (longest > f->m->positions + 1)
        gpt_info("prompt and text together have at most %lld positions",
                 (long long)f->m->positions);
    int64_t slots = gpt_min_i64(f->o->batch_size, f->n_requests);
    /* Every beam is a text. A search needs all of its beams, however small the
     * batch. */
    if (f->o->num_beams > 1)
        slots = gpt_max_i64(1, gpt_min_i64(f->o->batch_size / f->o->num_beams,
                                           (int64_t)f->prompts.n)) *
                f->o->num_beams;
    return gpt_loaded_open_decoder(f->m, slots, longest, err);
}

/* The speed goes to standard error, after the last text: standard output
 * carries only the product. */
static int answer(struct filter *f, struct gpt_writer *writer,
                  struct gpt_err *err)
{
    const struct gpt_sink sink = {gpt_writer_token, gpt_writer_finish, writer};
    struct gpt_speed speed;

    if (f->o->num_beams > 1)
        GPT_TRY(gpt_answer_with_beams(f->m, writer, f->requests,
                                      (int64_t)f->prompts.n, &speed, err));
    else
        GPT_TRY(gpt_generate(f->m->decoder, f->requests, f->n_requests,
                             f->o->speculate, &sink, &speed, err));
    return gpt_loaded_report_speed(f->m, &speed, err);
}

/* Without a prompt that can be answered there is no model, and errors alone are
 * written. */
static int write_texts(struct filter *f, struct gpt_err *err)
{
    struct gpt_writer *writer = NULL;
    struct gpt_writer_options wo = {
        .file = stdout,
        .jsonl = f->o->jsonl,
        .echo = f->o->echo,
        .logits = f->o->return_logits,
        .vocab = f->m->config->vocab_size,
        .tokenizer = f->m->tokenizer,
        .stops = &f->o->stop,
        .prompts = &f->prompts,
        .requests = f->requests,
        .n_requests = f->n_requests,
    };

    GPT_TRY(gpt_writer_open(&writer, &wo, err));
    const bool any = f->m->decoder != NULL;
    int status = any ? answer(f, writer, err) : GPT_OK;
    for (int64_t i = 0; !any && i < f->n_requests && status == GPT_OK; i++)
        status = gpt_writer_finish(writer, i, GPT_FINISH_REFUSED, err);
    gpt_writer_close(writer);
    return status;
}

/* What is cheap comes first: a prompt that is too long is reported before
 * weights are read. */
static int filter(struct filter *f, struct gpt_err *err)
{
    GPT_TRY(gpt_check_beam_options(f->o, err));
    GPT_TRY(gpt_prompts_read_given(
        &f->prompts, f->o, f->o->jsonl ? GPT_FILES_JSONL : GPT_FILES_TEXT,
        err));
    /* An input without prompts asks for nothing: that is no failure, and no
     * reason to load weights. */
    if (!gpt_signals_stop() && f->prompts.n == 0)
        gpt_warn("the input holds no prompts: there is nothing to answer");
    if (gpt_signals_stop() || f->prompts.n == 0)
        return GPT_OK;
    GPT_TRY(encode_prompts(f, err));
    /* A text that stands alone is the product; an error is none. */
    if (f->prompts.n == 1 && !f->o->jsonl)
        GPT_TRY(report_refused(f, err));
    GPT_TRY(gpt_choose_rules(&f->rules, f->m, err));
    GPT_TRY(make_requests(f, err));
    if (gpt_prompts_refused(&f->prompts) < f->prompts.n)
        GPT_TRY(open_decoder(f, err));
    GPT_TRY(write_texts(f, err));
    return gpt_signals_stop() ? GPT_OK : report_refused(f, err);
}

/* Everything is freed whatever happened, in the reverse order of its making;
 * the model is the caller's. */
int gpt_filter_prompts(struct gpt_loaded *m, struct gpt_err *err)
{
    struct filter f = {.m = m, .o = m->o};
    int status = filter(&f, err);

    gpt_free(f.rules.bias);
    gpt_free(f.requests);
    for (size_t i = 0; f.ids && i < f.prompts.n; i++)
        gpt_free(f.ids[i].data);
    gpt_free(f.ids);
    gpt_prompts_free(&f.prompts);
    return status;
}
