/* Lines and their texts; see interactive.h. Start at answer_line(). The model
 * and its cache stay open, so that an answer begins at once. */
#include "cmd/generate/interactive.h"

#include "base/io.h"
#include "base/log.h"
#include "base/signals.h"
#include "cmd/generate/choice.h"
#include "cmd/generate/prompts_given.h"
#include "generate/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Buffers live as long as the conversation: an answer allocates nothing that
 * the one before did not. */
struct conversation {
    struct gpt_loaded *m;
    struct gpt_chosen_rules rules;
    struct gpt_encoder *encoder;
    struct gpt_batch *batch;
    struct gpt_ids ids;
    struct gpt_text text;
    struct gpt_buf out;
    /* of a chat */
    struct gpt_encoder *chat_encoder;
    struct gpt_prefixes *prefixes; /* the conversation so far is not computed
                                    * again for each message */
    cJSON *input, *messages; /* what the template sees, and a list in it */
    struct gpt_buf said;     /* the answer */
    uint64_t lines;
    char last; /* byte written last */
};

/* What is shown is what the model has said in the next prompt; but a message is
 * a string, which cannot hold a byte 0. */
static int keep_said(struct conversation *c, const char *bytes, size_t n)
{
    static const char other[] = "\xEF\xBF\xBD"; /* U+FFFD */

    for (size_t i = 0; i < n; i++)
        GPT_TRY(bytes[i] ? gpt_buf_add(&c->said, bytes + i, 1)
                         : gpt_buf_add(&c->said, other, sizeof(other) - 1));
    return GPT_OK;
}

/* Flushed at once: a token is seen when it is chosen. */
static int put_text(struct conversation *c, struct gpt_err *err)
{
    if (c->out.len == 0)
        return GPT_OK;
    c->last = c->out.data[c->out.len - 1];
    if (c->messages && keep_said(c, c->out.data, c->out.len) != GPT_OK)
        return gpt_no_memory(err, "a text");
    if (fwrite(c->out.data, 1, c->out.len, stdout) != c->out.len ||
        fflush(stdout) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot write standard output");
    c->out.len = 0;
    return GPT_OK;
}

/* A text that meets a stop string ends here: the batch sees ids alone. */
static int take_token(void *user, int64_t request,
                      const struct gpt_chosen *chosen, bool *stop,
                      struct gpt_err *err)
{
    struct conversation *c = user;

    (void)request;
    if (gpt_text_add(&c->text, c->m->tokenizer, chosen->id, &c->m->o->stop,
                     &c->out) != GPT_OK)
        return gpt_no_memory(err, "a text");
    *stop = c->text.stopped;
    return put_text(c, err);
}

/* ---- chats ---- */

/* Memory is looked at once for all three calls. */
static int add_message(struct conversation *c, const char *role,
                       const char *text, struct gpt_err *err)
{
    cJSON *message = gpt_json_add(c->messages, NULL, cJSON_CreateObject());

    cJSON_AddStringToObject(message, "role", role);
    cJSON_AddStringToObject(message, "content", text);
    return gpt_json_out_of_memory() ? gpt_no_memory(err, "a message") : GPT_OK;
}

/* A message that was refused, and so was not answered, was never said. */
static int keep_answer(struct conversation *c, enum gpt_finish finish,
                       struct gpt_err *err)
{
    if (!c->messages)
        return GPT_OK;
    if (finish == GPT_FINISH_REFUSED) {
        cJSON_DeleteItemFromArray(c->messages,
                                  cJSON_GetArraySize(c->messages) - 1);
        return GPT_OK;
    }
    return add_message(c, "assistant", c->said.len ? c->said.data : "", err);
}

/* The whole conversation is a prompt, which the template makes. A message that
 * is refused here is there already, for keep_answer() to take out. */
static int encode_message(struct conversation *c, const char *line, size_t len,
                          struct gpt_err *err)
{
    c->said.len = 0;
    GPT_TRY(add_message(c, "user", line, err));
    if (memchr(line, '\0', len))
        return gpt_fail(err, GPT_EDATA,
                        "the line holds a NUL byte, which a message cannot");
    return gpt_chat_encode(c->m->chat, c->input, c->chat_encoder, &c->ids, err);
}

/* What the template sees beside the messages is the user's own. What is set
 * without it is what transformers sets. */
static int read_variables(struct conversation *c, struct gpt_err *err)
{
    const char *json = c->m->o->chat_template_kwargs;

    if (json) {
        const int status = gpt_json_parse(&c->input, json, strlen(json),
                                          "--chat-template-kwargs", err);

        if (status != GPT_OK || !cJSON_IsObject(c->input))
            return gpt_fail(err, GPT_EUSAGE,
                            "--chat-template-kwargs: '%.64s' is no object of "
                            "JSON", json);
        gpt_json_keep_numbers(c->input, json);
    } else {
        c->input = cJSON_CreateObject();
    }
    if (cJSON_HasObjectItem(c->input, "messages"))
        return gpt_fail(err, GPT_EUSAGE,
                        "--chat-template-kwargs: 'messages' are the lines");
    c->messages = cJSON_AddArrayToObject(c->input, "messages");
    if (!cJSON_HasObjectItem(c->input, "add_generation_prompt"))
        cJSON_AddTrueToObject(c->input, "add_generation_prompt");
    if (!cJSON_HasObjectItem(c->input, "tools"))
        cJSON_AddNullToObject(c->input, "tools");
    if (!cJSON_HasObjectItem(c->input, "documents"))
        cJSON_AddNullToObject(c->input, "documents");
    return GPT_OK;
}

/* Before the weights are read: a template that is missing costs no time. */
static int open_chat(struct conversation *c, struct gpt_err *err)
{
    const struct gpt_generate_options *o = c->m->o;

    GPT_TRY(read_variables(c, err));
    GPT_TRY(gpt_loaded_open_chat(c->m, err));
    if (!c->m->chat) {
        gpt_fail(err, GPT_EDATA, "%s has no template of chats",
                 c->m->source.dir);
        return gpt_hint(err, "give one with --chat-template FILE");
    }
    if (o->system_prompt)
        GPT_TRY(add_message(c, "system", o->system_prompt, err));
    return gpt_encoder_open(&c->chat_encoder, c->m->chat_tokenizer, err);
}

/* ---- lines ---- */

/* A text ends with a newline that it may have itself, so that the next line, or
 * the reader's next answer, begins at the left. */
static int end_text(void *user, int64_t request, enum gpt_finish finish,
                    struct gpt_err *err)
{
    struct conversation *c = user;

    (void)request;
    if (gpt_text_end(&c->text, &c->m->o->stop, &c->out) != GPT_OK)
        return gpt_no_memory(err, "a text");
    GPT_TRY(put_text(c, err));
    GPT_TRY(keep_answer(c, finish, err));
    if (c->last != '\n' && gpt_buf_add(&c->out, "\n", 1) != GPT_OK)
        return gpt_no_memory(err, "a text");
    return put_text(c, err);
}

/* As a prompt of the filter: a line without tokens, which need not be an empty
 * one, is the beginning of a document. */
static int encode_alone(struct conversation *c, const char *line, size_t len,
                        struct gpt_err *err)
{
    const int32_t eod = gpt_loaded_eod(c->m);
    const bool add_bos = c->m->o->add_bos;

    if (add_bos && eod >= 0)
        GPT_TRY(gpt_ids_add(&c->ids, &eod, 1, err));
    GPT_TRY(gpt_encode(c->encoder, line, len, &c->ids, err));
    if ((c->ids.len == 0 || add_bos) && eod < 0)
        return gpt_fail(err, GPT_EDATA,
                        "the vocabulary has no end-of-document token to begin "
                        "with; type a word");
    return c->ids.len == 0 ? gpt_ids_add(&c->ids, &eod, 1, err) : GPT_OK;
}

/* A line of a chat is the last message of a prompt; any other line is a
 * prompt. */
static int encode_line(struct conversation *c, const char *line, size_t len,
                       struct gpt_err *err)
{
    const int64_t most = c->m->positions;

    c->ids.len = 0;
    gpt_prompt_check_utf8(line, len, "the line");
    if (c->messages)
        GPT_TRY(encode_message(c, line, len, err));
    else
        GPT_TRY(encode_alone(c, line, len, err));
    if ((int64_t)c->ids.len > most)
        return gpt_fail(err, GPT_EDATA,
                        "%s has %zu tokens, but there are only %lld positions",
                        c->messages ? "the conversation" : "the line",
                        c->ids.len, (long long)most);
    return GPT_OK;
}

/* A line that is wrong gets a message, and the next one is waited for. */
static int answer_line(struct conversation *c, const char *line, size_t len,
                       struct gpt_err *err)
{
    struct gpt_err own = {0};
    int status = encode_line(c, line, len, &own);

    gpt_text_free(&c->text);
    c->text = (struct gpt_text){.begins = len == 0 || c->messages};
    c->last = 0;
    if (status == GPT_EDATA) {
        gpt_warn("%s", own.text);
        return end_text(c, 0, GPT_FINISH_REFUSED, err);
    }
    if (status != GPT_OK) {
        *err = own;
        return status;
    }
    /* The number of a line names its random numbers, as that of a prompt does:
     * the same lines after the same seed have the same texts. */
    const struct gpt_request request = {
        .prompt = c->ids.data,
        .n_prompt = (int64_t)c->ids.len,
        .max_tokens = c->m->o->tokens,
        .number = c->lines,
        .stream = c->lines++,
        .seed = c->rules.seed,
        .choice = &c->rules.choice,
    };
    if (c->m->o->echo && gpt_buf_add(&c->out, line, len) != GPT_OK)
        return gpt_no_memory(err, "a text");
    GPT_TRY(gpt_batch_begin(c->batch, &request, &(int64_t){0}, 1, err));
    while (gpt_batch_texts(c->batch) > 0 && !gpt_signals_stop())
        GPT_TRY(gpt_batch_step(c->batch, err));
    return gpt_batch_stop(c->batch, err);
}

/* The mark that asks for a line goes to a terminal alone, and never into the
 * product. */
static int answer_lines(struct conversation *c, struct gpt_err *err)
{
    const bool terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    char *line = NULL;
    size_t cap = 0;
    int status = GPT_OK;

    GPT_TRY(gpt_claim_stdin("--interactive", err));
    while (status == GPT_OK && !gpt_signals_stop()) {
        if (terminal)
            fputs("> ", stderr);
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0)
            break;
        if (n > 0 && line[n - 1] == '\n')
            n--;
        if (n > 0 && line[n - 1] == '\r')
            n--;
        /* A message is a string. */
        line[n] = '\0';
        status = answer_line(c, line, (size_t)n, err);
    }
    if (terminal)
        fputc('\n', stderr);
    free(line);
    return status;
}

/* One slot: a line is answered before the next is read, so that no second text
 * is ever under way. */
static int interact(struct conversation *c, struct gpt_err *err)
{
    const struct gpt_sink sink = {take_token, end_text, c};
    const struct gpt_generate_options *o = c->m->o;

    if (o->prompt.n + o->prompt_file.n > 0 || o->jsonl || o->num_samples > 1 ||
        o->num_beams > 1) {
        gpt_fail(err, GPT_EUSAGE,
                 "--interactive reads lines and writes a text "
                 "for each");
        return gpt_hint(err, "leave out --prompt, --prompt-file, --jsonl, "
                             "--num-samples and --num-beams");
    }
    GPT_TRY(gpt_choose_rules(&c->rules, c->m, err));
    GPT_TRY(gpt_encoder_open(&c->encoder, c->m->tokenizer, err));
    if (o->chat)
        GPT_TRY(open_chat(c, err));
    GPT_TRY(gpt_loaded_open_decoder(c->m, o->chat ? 2 : 1,
                                    c->m->positions, err));
    GPT_TRY(gpt_batch_open(&c->batch, c->m->decoder, 1, &sink, err));
    GPT_TRY(gpt_batch_guess(c->batch, o->speculate, err));
    /* The one entry holds the conversation so far, which the next message
     * continues. */
    if (o->chat) {
        GPT_TRY(gpt_prefixes_open(&c->prefixes, c->m->decoder, 1, 1, err));
        gpt_batch_use_prefixes(c->batch, c->prefixes);
    }
    GPT_TRY(answer_lines(c, err));
    return gpt_loaded_report_speed(c->m, gpt_batch_speed(c->batch), err);
}

/* The input's end and a signal are both a good end. */
int gpt_interact(struct gpt_loaded *m, struct gpt_err *err)
{
    struct conversation c = {.m = m};
    int status = interact(&c, err);

    gpt_batch_close(c.batch);
    gpt_prefixes_close(c.prefixes);
    gpt_encoder_close(c.encoder);
    gpt_encoder_close(c.chat_encoder);
    cJSON_Delete(c.input);
    gpt_buf_free(&c.said);
    gpt_free(c.rules.bias);
    gpt_free(c.ids.data);
    gpt_text_free(&c.text);
    gpt_buf_free(&c.out);
    return status;
}
