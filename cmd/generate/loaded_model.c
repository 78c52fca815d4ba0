/* The model of a command; see loaded_model.h. */
#include "cmd/generate/loaded_model.h"

#include "base/io.h"
#include "base/log.h"
#include "base/num.h"
#include "checkpoint/adapter/adapter.h"
#include "checkpoint/load.h"
#include "cmd/generate/vocabulary.h"

#include <assert.h>
#include <string.h>

/* Opened now, so that an hour of texts does not end with a file that cannot be
 * written. */
static int open_stats_file(struct gpt_loaded *m, struct gpt_err *err)
{
    return gpt_out_open(&m->stats, m->o->stats_file,
                        m->o->common.force ? GPT_OUT_FORCE : 0, 0, err);
}

/* What is cheap comes first: a checkpoint that does not open and a vocabulary
 * that does not fit are reported before weights are read. One rank verifies
 * files, which would take as long on each; and only that rank has prompts. */
int gpt_loaded_open(struct gpt_loaded *m, struct gpt_err *err)
{
    GPT_TRY(gpt_job_open(&m->job, m->o, err));
    const bool first = gpt_job_first(&m->job);
    const struct gpt_source_options how = {.iteration = m->o->iteration,
                                           .verify = m->o->verify && first,
                                           .weights_only = true};

    if (first && m->o->stats_file)
        GPT_TRY(open_stats_file(m, err));
    const int status = gpt_source_open_merged(&m->source, m->o->load, &how,
                                              &m->o->adapters, err);
    if (status != GPT_OK && gpt_adapter_recognises(m->o->load))
        return gpt_hint(err, "%.150s is an adapter of PEFT: --load names its "
                             "model, which gpt-reshape inspect shows, and "
                             "--merge-adapter the adapter", m->o->load);
    GPT_TRY(status);
    m->own_config = m->source.config;
    m->config = &m->own_config;
    if (!first)
        return GPT_OK;
    m->positions = m->o->max_positions ? m->o->max_positions
                                       : m->config->max_positions;
    if (m->positions > m->config->max_positions)
        return gpt_fail(err, GPT_EUSAGE,
                        "--max-positions is %lld, but the model has %lld",
                        (long long)m->positions,
                        (long long)m->config->max_positions);
    if (m->source.unused_settings)
        gpt_warn("%s/%s: not used; options say how tokens are chosen, such as "
                 "--greedy, --temperature, --top-k and --top-p",
                 m->source.dir, m->source.unused_settings);
    return gpt_vocabulary_open(&m->tokenizer, &m->source, &m->o->tokenizer,
                               m->o->allow_vocab_mismatch, err);
}

const char *const gpt_weight_names[] = {"fp32", "bf16", "int8", "int8-32",
                                        NULL};
/* In the order of the names. Forms of one scale a row are the fastest; groups
 * of 32 follow values of very different sizes, and are llama.cpp's. */
static const struct gpt_quant_form forms[] = {{.type = GPT_F32},
                                              {.type = GPT_BF16},
                                              {.type = GPT_I8},
                                              {.type = GPT_I8, .group = 32}};

static struct gpt_quant_form form_of(const struct gpt_loaded *m)
{
    struct gpt_quant_form form;
    size_t i = 0;

    while (strcmp(gpt_weight_names[i], m->o->weights) != 0)
        i++;
    form = forms[i];
    form.round_inputs = m->o->round_inputs;
    return form;
}

const char *const gpt_cache_names[] = {"auto", "fp32", "bf16", NULL};

enum gpt_dtype gpt_loaded_cache_type(const struct gpt_loaded *m)
{
    const char *name = m->o->kv_cache_dtype;
    const bool narrow = strcmp(name, "auto") == 0 ? m->o->round_inputs
                                                  : strcmp(name, "bf16") == 0;

    return narrow ? GPT_BF16 : GPT_F32;
}

/* Known before they are read. */
static int64_t weight_bytes(const struct gpt_loaded *m)
{
    struct gpt_quant_form form = form_of(m);

    return gpt_quant_store_wanted(m->be, form)
               ? gpt_quant_store_bytes(m->be, &m->flat, form)
               : m->flat.elements * (int64_t)sizeof(float);
}

/* A parameter at a time: never all of them as floats. Each is loaded as the
 * only one of a flat buffer: a rank's cut of it is what the table says. */
static int load_quant(struct gpt_loaded *m, struct gpt_err *err)
{
    GPT_TRY(gpt_quant_store_open(&m->quant, m->be, &m->flat, form_of(m), err));
    for (int64_t i = 0; i < m->flat.n; i++) {
        struct gpt_slice slice = m->flat.slices[i];
        struct gpt_flat one = m->flat;
        void *values = NULL;

        slice.offset = slice.bucket = 0;
        one.slices = &slice;
        one.n = 1;
        one.count = one.elements = slice.count;
        GPT_TRY(gpt_load_weights(&values, &m->source, &one, GPT_F32, m->be,
                                 err));
        const int status = gpt_quant_store_put(m->quant, i, values, err);
        m->be->free(m->be, values);
        GPT_TRY(status);
    }
    return GPT_OK;
}

/* Floats that the device keeps in rows are the flat buffer of training. */
static int load_weights(struct gpt_loaded *m, struct gpt_err *err)
{
    if (gpt_quant_store_wanted(m->be, form_of(m)))
        return load_quant(m, err);
    return gpt_load_weights(&m->weights, &m->source, &m->flat, GPT_F32, m->be,
                            err);
}

/* Reports what the model and the texts under way take, and where. */
static void describe(const struct gpt_loaded *m,
                     const struct gpt_decoder_options *d)
{
    char device[128], weights[32], texts[32];
    int64_t bytes = 0;

    if (gpt_decoder_memory(&bytes, d, NULL) != GPT_OK)
        return;
    m->be->describe(m->be, device, sizeof(device));
    gpt_debug("%s: %s of weights, %s for %lld texts of %lld positions", device,
              gpt_text_bytes(weights, (double)weight_bytes(m)),
              gpt_text_bytes(texts, (double)bytes), (long long)d->slots,
              (long long)d->positions);
}

/* Table and buffer of what this rank has of the model. */
static int cut_model(struct gpt_loaded *m, struct gpt_err *err)
{
    const struct gpt_layout single = GPT_LAYOUT_SINGLE(m->config);

    GPT_TRY(gpt_job_share(&m->job, m->o, &m->own_config,
                          m->source.iteration, m->be, err));
    GPT_TRY(gpt_decode_params(&m->params, m->config, err));
    return gpt_flat_build(&m->flat, &m->params,
                          m->job.world ? &m->job.cut.layout : &single, err);
}

/* A decoder of this rank. The weights are read only now, when prompts and
 * options are known to be good: they are what takes time. */
static int open_decoder(struct gpt_loaded *m, int64_t slots, int64_t positions,
                        struct gpt_err *err)
{
    struct gpt_decoder_options options = {
        .config = m->config,
        .flat = &m->flat,
        .ranks = m->job.world ? &m->job.cut : NULL,
        .act = GPT_F32,
        .narrow_cache = gpt_loaded_cache_type(m) == GPT_BF16,
        .slots = slots,
        .positions = positions,
    };

    GPT_TRY(gpt_backend_open_rank(&m->be, m->o->device,
                                  gpt_job_device(&m->job), err));
    GPT_TRY(cut_model(m, err));
    GPT_TRY(gpt_decoder_check(m->be, &options, err));
    describe(m, &options);
    GPT_TRY(load_weights(m, err));
    options.quant = m->quant;
    GPT_TRY(gpt_decoder_open(&m->decoder, m->be, &options, m->weights, err));
    return gpt_job_begin(&m->job, err);
}

int gpt_loaded_open_decoder(struct gpt_loaded *m, int64_t slots,
                            int64_t positions, struct gpt_err *err)
{
    positions = gpt_min_i64(m->positions, positions);
    GPT_TRY(gpt_job_tell_size(&m->job, &slots, &positions, err));
    return open_decoder(m, slots, positions, err);
}

/* Prompts, choices and texts are the first rank's alone: what comes here are
 * tokens and their places. */
int gpt_loaded_follow(struct gpt_loaded *m, struct gpt_err *err)
{
    int64_t slots = 0, positions = 0;

    GPT_TRY(gpt_job_tell_size(&m->job, &slots, &positions, err));
    if (slots == 0) /* no prompt, and nothing to compute */
        return GPT_OK;
    GPT_TRY(open_decoder(m, slots, positions, err));
    return gpt_decoder_follow(m->decoder, err);
}

/* The others wait for a decoder's size, or follow the decoder: they hear of its
 * end here. When this rank has failed they hear of that instead. */
static void release_others(struct gpt_loaded *m, int status)
{
    int64_t none = 0;
    struct gpt_err ignored = {0};

    if (status == GPT_OK && !m->decoder && m->job.world &&
        gpt_job_first(&m->job))
        (void)!gpt_job_tell_size(&m->job, &none, &none, &ignored);
    gpt_decoder_close(m->decoder);
}

/* The tokenizer is opened again, since what is special is decided then. */
int gpt_loaded_open_chat(struct gpt_loaded *m, struct gpt_err *err)
{
    GPT_TRY(gpt_chat_open(&m->chat, m->source.dir, m->o->chat_template,
                          m->tokenizer, err));
    return m->chat ? gpt_vocabulary_open_special(&m->chat_tokenizer, &m->source,
                                                 &m->o->tokenizer, err)
                   : GPT_OK;
}

/* In the reverse order of opening: the decoder reads the weights, and these are
 * described by the tables. */
int gpt_loaded_close(struct gpt_loaded *m, int status, struct gpt_err *err)
{
    release_others(m, status);
    gpt_out_abort(m->stats);
    status = gpt_job_close(&m->job, status, err);
    gpt_quant_store_close(m->quant);
    if (m->weights)
        m->be->free(m->be, m->weights);
    gpt_flat_free(&m->flat);
    gpt_params_free(&m->params);
    gpt_chat_close(m->chat);
    gpt_tokenizer_close(m->chat_tokenizer);
    gpt_tokenizer_close(m->tokenizer);
    gpt_source_close(&m->source);
    return status;
}

/* Weights of other programs may come with a tokenizer that names no end,
 * beside a configuration that does. */
int32_t gpt_loaded_eod(const struct gpt_loaded *m)
{
    int32_t eod = gpt_tokenizer_eod(m->tokenizer);

    return eod < 0 && m->source.ends.n ? m->source.ends.ids[0] : eod;
}

int gpt_loaded_ends(const struct gpt_loaded *m, bool chat,
                    int32_t ends[GPT_LOADED_ENDS])
{
    const struct gpt_end_ids *named = &m->source.ends;
    const int32_t eod = gpt_tokenizer_eod(m->tokenizer);
    int n = 0;

    assert(named->n < GPT_LOADED_ENDS);
    /* Ends may come twice in the list; a text ends with the first that
     * agrees. */
    for (; n < named->n; n++)
        ends[n] = named->ids[n];
    if (eod >= 0 && (n == 0 || chat))
        ends[n++] = eod;
    return n;
}

static double rate(double amount, double seconds)
{
    return seconds > 0 ? amount / seconds : 0;
}

/* The members are those of the message, and what they were computed from. */
static int write_statistics(struct gpt_loaded *m,
                            const struct gpt_speed *s, double bytes,
                            struct gpt_err *err)
{
    GPT_TRY(gpt_out_printf(
        m->stats, err,
        "{\"prompt_tokens\":%lld,\"prompt_seconds\":%.6f,"
        "\"prompt_tokens_per_second\":%.3f,\"step_tokens\":%lld,"
        "\"steps\":%lld,\"step_seconds\":%.6f,"
        "\"step_tokens_per_second\":%.3f,\"guessed_tokens\":%lld,"
        "\"right_guesses\":%lld,\"weight_bytes_per_step\":%.0f,"
        "\"weight_gigabytes_per_second\":%.3f}\n",
        (long long)s->prompt_tokens, s->prompt_seconds,
        rate((double)s->prompt_tokens, s->prompt_seconds),
        (long long)s->step_tokens, (long long)s->steps, s->step_seconds,
        rate((double)s->step_tokens, s->step_seconds), (long long)s->guessed,
        (long long)s->right, bytes,
        rate(bytes * (double)s->steps, s->step_seconds) / 1e9));
    struct gpt_out *done = m->stats;
    m->stats = NULL; /* freed, whatever the result */
    return gpt_out_commit(done, err);
}

/* Bytes a second of weights are what a step costs at least: against the
 * memory's bandwidth they say how far from its limit the machine is. */
int gpt_loaded_report_speed(struct gpt_loaded *m,
                            const struct gpt_speed *s, struct gpt_err *err)
{
    double bytes = (double)gpt_decoder_step_bytes(m->decoder);

    gpt_info("prompts: %lld token%s, %.1f tokens/s; texts: %lld token%s, "
             "%.1f tokens/s, %.1f GB/s of weights",
             (long long)s->prompt_tokens, gpt_plural(s->prompt_tokens),
             rate((double)s->prompt_tokens, s->prompt_seconds),
             (long long)s->step_tokens, gpt_plural(s->step_tokens),
             rate((double)s->step_tokens, s->step_seconds),
             rate(bytes * (double)s->steps, s->step_seconds) / 1e9);
    if (m->o->speculate > 0)
        gpt_info("guesses: %lld token%s, %lld right; %lld step%s",
                 (long long)s->guessed, gpt_plural(s->guessed),
                 (long long)s->right, (long long)s->steps,
                 gpt_plural(s->steps));
    return m->stats ? write_statistics(m, s, bytes, err) : GPT_OK;
}
