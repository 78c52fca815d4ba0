/* gpt-generate: text from a checkpoint. Start at run_generate(): checkpoint,
 * tokenizer, prompts, model, texts. Here are the options, the choice of files
 * and the line that reports the speed. Generating is common/generate/, the
 * model is model/decode.h, the checkpoint of any format checkpoint/source.h. */
#include "base/log.h"
#include "base/num.h"
#include "base/options.h"
#include "base/signals.h"
#include "backend.h"
#include "checkpoint/load.h"
#include "generate/generate.h"
#include "cmd/generate/choice.h"
#include "cmd/generate/foreign.h"
#include "cmd/generate/prompts.h"
#include "cmd/generate/vocabulary.h"
#include "cmd/generate/writer.h"
#include "tokenizer/tokenizer_options.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct options {
    struct gpt_common_options common;
    const char *load;
    int64_t iteration;
    bool verify, allow_vocab_mismatch;
    struct gpt_tokenizer_options tokenizer;
    struct gpt_list prompt, prompt_file;
    bool jsonl, echo;
    int64_t tokens, num_samples;
    bool greedy, ignore_eod;
    double temperature, top_p;
    int64_t top_k, seed;
    const char *device;
    int64_t batch_size;
};

#define AT(field) .offset = offsetof(struct options, field)
/* A row of --seed is -1 for a new seed each time, and of --iteration for the
 * newest checkpoint, as 0 is a value of both. */
static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_GROUP, .help = "Model"},
    {.kind = GPT_OPT_STRING, .name = "load", .arg = "DIR", AT(load),
     .flags = GPT_OPT_REQUIRED | GPT_OPT_DIR,
     .help = "checkpoints of a run, one of its iter_* directories, or a "
             "Hugging Face directory"},
    {.kind = GPT_OPT_INT, .name = "iteration", .arg = "N", AT(iteration),
     .def = "-1", .min = -1, .max = 1e15,
     .help = "which checkpoint, -1 = the newest", .alias = "ckpt-step"},
    {.kind = GPT_OPT_FLAG, .name = "verify", AT(verify), .def = "true",
     .help = "check the checkpoint's checksums first"},
    GPT_TOKENIZER_FILE_OPTIONS(struct options, tokenizer, NULL, 0),
    GPT_TOKENIZER_TEXT_OPTIONS(struct options, tokenizer),
    {.kind = GPT_OPT_INT, .name = "vocab-size", .arg = "N",
     AT(tokenizer.vocab_size), .def = "0", .min = 0, .max = INT32_MAX,
     .help = "NullTokenizer: ids are below N; TikTokenizer: of the model"},
    GPT_TOKENIZER_MISMATCH_OPTION(struct options, allow_vocab_mismatch),
    {.kind = GPT_OPT_GROUP, .help = "Prompts and texts"},
    {.kind = GPT_OPT_LIST, .letter = 'p', .name = "prompt", .arg = "TEXT",
     AT(prompt), .help = "how the text begins; every word is one prompt, "
                         "the empty one starts a new document"},
    {.kind = GPT_OPT_LIST, .name = "prompt-file", .arg = "FILE",
     AT(prompt_file), .flags = GPT_OPT_FILE | GPT_OPT_INPUT,
     .alias = "sample-input-file",
     .help = "a file that is one prompt, '-' = standard input"},
    {.kind = GPT_OPT_FLAG, .name = "jsonl", AT(jsonl),
     .help = "prompt files are JSON lines with 'prompt' and 'id', and so is "
             "the output"},
    {.kind = GPT_OPT_INT, .name = "tokens", .arg = "N", AT(tokens),
     .def = "64", .min = 1, .max = 1e9,
     .alias = "num-tokens-to-generate tokens-to-generate out-seq-length "
              "max-new-tokens",
     .help = "the most tokens to add to a prompt"},
    {.kind = GPT_OPT_INT, .name = "num-samples", .arg = "N", AT(num_samples),
     .def = "1", .min = 1, .max = 1e6, .help = "texts for each prompt"},
    {.kind = GPT_OPT_FLAG, .name = "echo", AT(echo),
     .help = "repeat the prompt in front of the text"},
    {.kind = GPT_OPT_FLAG, .name = "ignore-eod", AT(ignore_eod),
     .help = "continue after the end of a document"},
    {.kind = GPT_OPT_GROUP, .help = "Choice of tokens"},
    {.kind = GPT_OPT_REAL, .name = "temperature", .arg = "X",
     AT(temperature), .def = "1", .min = 0, .max = 1000,
     .help = "below 1 the likely becomes likelier; 0 = greedy"},
    {.kind = GPT_OPT_INT, .name = "top-k", .arg = "N", AT(top_k),
     .def = "0", .min = 0, .max = 1e9,
     .help = "choose among the N most probable tokens, 0 = all"},
    {.kind = GPT_OPT_REAL, .name = "top-p", .arg = "P", AT(top_p),
     .def = "0", .min = 0, .max = 1,
     .help = "choose among the most probable tokens that together reach P, "
             "0 = all"},
    {.kind = GPT_OPT_FLAG, .name = "greedy", AT(greedy),
     .help = "always the most probable token"},
    {.kind = GPT_OPT_INT, .name = "seed", .arg = "N", AT(seed), .def = "-1",
     .min = -1, .max = 9007199254740992.0, .alias = "random-seed",
     .help = "of all choices, -1 = a new one each time"},
    {.kind = GPT_OPT_GROUP, .help = "Machine"},
    {.kind = GPT_OPT_STRING, .name = "device", .arg = "NAME", AT(device),
     .def = "auto", .choices = gpt_device_words,
     .help = "what computes: auto, cpu, cuda or cuda:N"},
    {.kind = GPT_OPT_INT, .name = "batch-size", .arg = "N", AT(batch_size),
     .def = "8", .min = 1, .max = 65536,
     .help = "texts at once; what they say does not depend on it"},
    GPT_COMMON_OPTIONS(struct options, common),
};

/* Everything between opening and closing, in the order in which it is made.
 * close_job() frees whatever is there. */
struct job {
    const struct options *o;
    struct gpt_source source;
    const struct gpt_config *config; /* of the source */
    struct gpt_tokenizer *tokenizer;
    struct gpt_prompts prompts;
    struct gpt_ids *ids;           /* (prompts.n) */
    struct gpt_request *requests;  /* (n_requests) */
    int64_t n_requests, most_prompt;
    struct gpt_backend *be;
    struct gpt_param_table params;
    struct gpt_flat flat;
    void *weights;
    struct gpt_decoder *decoder;
};

/* ---- prompts ---- */

/* Prompts of the command line come first, then those of files, in the order
 * given. A terminal is not waited for: a program that waits in silence looks as
 * if it hung. */
static int read_prompts(struct job *j, struct gpt_err *err)
{
    const struct options *o = j->o;
    const char *const standard_input[] = {"-"};
    const char *const *files = o->prompt_file.items;
    int64_t n_files = o->prompt_file.n;

    for (int64_t i = 0; i < o->prompt.n; i++)
        GPT_TRY(gpt_prompts_add(&j->prompts, o->prompt.items[i],
                                strlen(o->prompt.items[i]), err));
    if (o->prompt.n + n_files == 0) {
        if (isatty(STDIN_FILENO)) {
            gpt_fail(err, GPT_EUSAGE, "no prompt");
            return gpt_hint(err, "give --prompt TEXT, --prompt-file FILE or "
                                 "text on standard input");
        }
        files = standard_input;
        n_files = 1;
    }
    for (int64_t i = 0; i < n_files; i++)
        GPT_TRY(o->jsonl ? gpt_prompts_read_jsonl(&j->prompts, files[i], err)
                         : gpt_prompts_read_text(&j->prompts, files[i], err));
    return GPT_OK;
}

/* Encodes prompt i. The model needs a token to start from, so an empty prompt
 * becomes the end of the document before. */
static int encode_prompt(struct job *j, struct gpt_encoder *encoder, size_t i,
                         struct gpt_err *err)
{
    const struct gpt_prompt *prompt = &j->prompts.items[i];
    struct gpt_ids *ids = &j->ids[i];
    int32_t eod = gpt_tokenizer_eod(j->tokenizer);

    if (gpt_encode(encoder, prompt->text, prompt->len, ids, err) != GPT_OK)
        return gpt_context(err, "prompt %zu", i + 1);
    if (eod < 0 && j->source.ends.n)
        eod = j->source.ends.ids[0];
    if (ids->len == 0 && eod < 0)
        return gpt_fail(err, GPT_EDATA,
                        "prompt %zu is empty, and the vocabulary has no "
                        "end-of-document token to begin with; give it a word",
                        i + 1);
    if (ids->len == 0)
        GPT_TRY(gpt_ids_add(ids, &eod, 1, err));
    if ((int64_t)ids->len > j->config->max_positions)
        return gpt_fail(err, GPT_EDATA,
                        "prompt %zu has %zu tokens, but there are only %lld "
                        "positions; shorten it",
                        i + 1, ids->len, (long long)j->config->max_positions);
    return GPT_OK;
}

/* A prompt that is wrong is refused: others are answered. Lack of memory is no
 * fault of the prompt's. */
static int encode_or_refuse(struct job *j, struct gpt_encoder *encoder,
                            size_t i, struct gpt_err *err)
{
    struct gpt_err failure = {0};
    int status = encode_prompt(j, encoder, i, &failure);

    if (status == GPT_OK) {
        j->most_prompt = gpt_max_i64(j->most_prompt, (int64_t)j->ids[i].len);
        return GPT_OK;
    }
    if (status == GPT_EFAIL) {
        *err = failure;
        return status;
    }
    j->ids[i].len = 0;
    return gpt_prompts_refuse(&j->prompts, i, failure.text, err);
}

/* All prompts are encoded before the model is loaded. A prompt that is wrong is
 * reported in an instant, and the longest one decides how much memory a text
 * takes. */
static int encode_prompts(struct job *j, struct gpt_err *err)
{
    struct gpt_encoder *encoder = NULL;
    int status = GPT_OK;

    GPT_TRY(gpt_new(&j->ids, j->prompts.n, sizeof(*j->ids), "prompts", err));
    GPT_TRY(gpt_encoder_open(&encoder, j->tokenizer, err));
    for (size_t i = 0; i < j->prompts.n && status == GPT_OK; i++)
        if (!j->prompts.items[i].error)
            status = encode_or_refuse(j, encoder, i, err);
    gpt_encoder_close(encoder);
    for (size_t i = 0; i < j->prompts.n && j->prompts.n > 1; i++)
        if (j->prompts.items[i].error)
            gpt_warn("%s", j->prompts.items[i].error);
    return status;
}

/* What the exit status says at the end, when all that can be answered is. */
static int report_refused(const struct job *j, struct gpt_err *err)
{
    const size_t n = gpt_prompts_refused(&j->prompts);

    if (n == 0)
        return GPT_OK;
    if (j->prompts.n == 1)
        gpt_fail(err, GPT_EDATA, "%s", j->prompts.items[0].error);
    else
        gpt_fail(err, GPT_EDATA, "%zu of %zu prompts are not answered", n,
                 j->prompts.n);
    if (j->o->jsonl && n == j->prompts.n)
        gpt_hint(err, "--jsonl wants an object with a string 'prompt' on each "
                      "line; without it a file is one prompt");
    return GPT_EDATA;
}

/* The number of a request is that of its prompt, and names its random stream;
 * samples of one prompt have streams of their own. */
static int make_requests(struct job *j, struct gpt_err *err)
{
    int64_t samples = j->o->num_samples;

    if (!gpt_mul((int64_t)j->prompts.n, samples, &j->n_requests))
        return gpt_fail(err, GPT_EUSAGE, "too many texts");
    GPT_TRY(gpt_new(&j->requests, (size_t)j->n_requests, sizeof(*j->requests),
                    "requests", err));
    for (int64_t i = 0; i < j->n_requests; i++) {
        const struct gpt_ids *ids = &j->ids[i / samples];

        j->requests[i] = (struct gpt_request){
            .prompt = ids->data,
            .n_prompt = (int64_t)ids->len,
            .max_tokens = j->o->tokens,
            .number = (uint64_t)(i / samples),
            .sample = (uint64_t)(i % samples),
        };
    }
    return GPT_OK;
}

/* ---- model ---- */

/* Reports what the model and the texts under way take, and where. A text that
 * may reach the last position of the model is announced, since it would end
 * without another reason. */
static void describe(const struct job *j, const struct gpt_decoder_options *d)
{
    char device[128], weights[32], texts[32];
    int64_t bytes = 0;

    if (j->most_prompt + j->o->tokens > d->positions + 1)
        gpt_info("prompt and text together have at most %lld positions",
                 (long long)d->positions);
    if (gpt_decoder_memory(&bytes, d, NULL) != GPT_OK)
        return;
    j->be->describe(j->be, device, sizeof(device));
    gpt_debug("%s: %s of weights, %s for %lld texts of %lld positions", device,
              gpt_text_bytes(weights, 4.0 * (double)j->flat.elements),
              gpt_text_bytes(texts, (double)bytes), (long long)d->slots,
              (long long)d->positions);
}

/* Slots for more texts than there are, and positions that no text reaches,
 * would be memory for nothing. */
static int open_model(struct job *j, struct gpt_err *err)
{
    struct gpt_layout layout = GPT_LAYOUT_SINGLE(j->config);

    GPT_TRY(gpt_backend_open(&j->be, j->o->device, err));
    GPT_TRY(gpt_params_build(&j->params, j->config, err));
    GPT_TRY(gpt_flat_build(&j->flat, &j->params, &layout, err));
    GPT_TRY(gpt_load_weights(&j->weights, &j->source, &j->flat, GPT_F32,
                             j->be, err));
    struct gpt_decoder_options options = {
        .config = j->config,
        .flat = &j->flat,
        .act = GPT_F32,
        .slots = gpt_min_i64(j->o->batch_size, j->n_requests),
        .positions = gpt_min_i64(j->config->max_positions,
                                 j->most_prompt + j->o->tokens),
    };
    describe(j, &options);
    return gpt_decoder_open(&j->decoder, j->be, &options, j->weights, err);
}

/* ---- texts ---- */

/* A seed that is chosen is printed, so that a text can be had again. */
static uint64_t choose_seed(const struct options *o, bool greedy)
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

static double rate(double amount, double seconds)
{
    return seconds > 0 ? amount / seconds : 0;
}

/* Bytes a second of weights are what a step costs at least: against the
 * memory's bandwidth they say how far from its limit the machine is. */
static void report_speed(const struct job *j, const struct gpt_speed *s)
{
    double bytes = (double)gpt_decoder_step_bytes(j->decoder);

    gpt_info("prompts: %lld tokens, %.1f tokens/s; texts: %lld tokens, %.1f "
             "tokens/s, %.1f GB/s of weights",
             (long long)s->prompt_tokens,
             rate((double)s->prompt_tokens, s->prompt_seconds),
             (long long)s->step_tokens,
             rate((double)s->step_tokens, s->step_seconds),
             rate(bytes * (double)s->steps, s->step_seconds) / 1e9);
}

/* Where the checkpoint names ends of a text, they are the model's; else the
 * tokenizer's end of a document is. */
static void choose_ends(const struct job *j, const int32_t *eod,
                        struct gpt_generation *how)
{
    if (j->o->ignore_eod)
        return;
    how->ends = j->source.ends.n ? j->source.ends.ids : eod;
    how->n_ends = j->source.ends.n ? j->source.ends.n : *eod >= 0;
}

static int answer(struct job *j, struct gpt_writer *writer, struct gpt_err *err)
{
    const struct options *o = j->o;
    const int32_t eod = gpt_tokenizer_eod(j->tokenizer);
    struct gpt_speed speed;
    struct gpt_generation how = {
        .sampling = {o->greedy ? 0 : o->temperature, o->top_k, o->top_p},
        .token = gpt_writer_token,
        .finish = gpt_writer_finish,
        .user = writer,
    };

    choose_ends(j, &eod, &how);
    how.seed = choose_seed(o, gpt_sampling_is_greedy(&how.sampling));
    GPT_TRY(gpt_generate(j->decoder, j->requests, j->n_requests, &how, &speed,
                         err));
    report_speed(j, &speed);
    return GPT_OK;
}

/* Without a prompt that can be answered there is no model, and errors alone are
 * written. */
static int generate(struct job *j, struct gpt_err *err)
{
    struct gpt_writer *writer = NULL;
    struct gpt_writer_options wo = {
        .file = stdout,
        .jsonl = j->o->jsonl,
        .echo = j->o->echo,
        .tokenizer = j->tokenizer,
        .prompts = &j->prompts,
        .requests = j->requests,
        .n_requests = j->n_requests,
    };

    GPT_TRY(gpt_writer_open(&writer, &wo, err));
    int status = j->decoder ? answer(j, writer, err) : GPT_OK;
    for (int64_t i = 0; !j->decoder && i < j->n_requests && status == GPT_OK;
         i++)
        status = gpt_writer_finish(writer, i, GPT_FINISH_REFUSED, err);
    gpt_writer_close(writer);
    return status;
}

/* From cheap to dear: a checkpoint that does not open, a vocabulary that does
 * not fit and a prompt that is too long are reported before weights are
 * read. */
static int work(struct job *j, struct gpt_err *err)
{
    const struct gpt_source_options how = {.iteration = j->o->iteration,
                                           .verify = j->o->verify};

    GPT_TRY(gpt_source_open(&j->source, j->o->load, &how, err));
    j->config = &j->source.config;
    if (j->source.unused_settings)
        gpt_warn("%s/%s: not used; options say how tokens are chosen, such as "
                 "--greedy, --temperature, --top-k and --top-p",
                 j->source.dir, j->source.unused_settings);
    GPT_TRY(gpt_vocabulary_open(&j->tokenizer, &j->source, &j->o->tokenizer,
                                j->o->allow_vocab_mismatch, err));
    GPT_TRY(read_prompts(j, err));
    /* An input without prompts asks for nothing: that is no failure, and no
     * reason to load weights. */
    if (!gpt_signals_stop() && j->prompts.n == 0)
        gpt_warn("the input holds no prompts: there is nothing to answer");
    if (gpt_signals_stop() || j->prompts.n == 0)
        return GPT_OK;
    GPT_TRY(encode_prompts(j, err));
    /* A text that stands alone is the product; an error is none. */
    if (j->prompts.n == 1 && !j->o->jsonl)
        GPT_TRY(report_refused(j, err));
    GPT_TRY(make_requests(j, err));
    if (gpt_prompts_refused(&j->prompts) < j->prompts.n)
        GPT_TRY(open_model(j, err));
    GPT_TRY(generate(j, err));
    return gpt_signals_stop() ? GPT_OK : report_refused(j, err);
}

/* In the reverse order of opening: the decoder reads the weights, and these are
 * described by the tables. */
static void close_job(struct job *j)
{
    gpt_decoder_close(j->decoder);
    if (j->weights)
        j->be->free(j->be, j->weights);
    gpt_flat_free(&j->flat);
    gpt_params_free(&j->params);
    gpt_free(j->requests);
    for (size_t i = 0; j->ids && i < j->prompts.n; i++)
        gpt_free(j->ids[i].data);
    gpt_free(j->ids);
    gpt_prompts_free(&j->prompts);
    gpt_tokenizer_close(j->tokenizer);
    gpt_source_close(&j->source);
}

/* A signal and a failure leave no thread and no device memory, either. */
static int run_generate(const void *options, const struct gpt_args *args,
                        struct gpt_err *err)
{
    struct job j = {.o = options};
    const struct gpt_choice choice = {j.o->greedy, j.o->top_k, j.o->top_p,
                                      j.o->temperature};

    GPT_TRY(gpt_choice_check(&choice, args, err));
    int status = work(&j, err);
    close_job(&j);
    return status;
}

static const char *const usage[] = {
    "--load DIR --prompt TEXT [--tokens N] [--temperature X] [--top-k N] "
    "[--top-p P] [--seed N]",
    "--load DIR --jsonl < prompts.jsonl > texts.jsonl",
    NULL,
};
static const char *const examples[] = {
    "gpt-generate --load ckpt --prompt 'Once upon a time' --top-k 40",
    "gpt-generate --load ckpt --prompt '' --num-samples 3 --tokens 200",
    "echo 'Dear Sir,' | gpt-generate --load ckpt --greedy --echo",
    NULL,
};

int main(int argc, char **argv)
{
    const struct gpt_program program = {
        .name = "gpt-generate",
        .purpose = "Continue texts with a trained model.",
        .usage = usage,
        .examples = examples,
        .options = table,
        .n_options = GPT_COUNT(table),
        .foreign = gpt_generate_foreign,
        .n_foreign = gpt_generate_n_foreign,
        .options_bytes = sizeof(struct options),
        .version = gpt_backend_version,
        .run = run_generate,
    };

    return gpt_main(&program, argc, argv);
}
