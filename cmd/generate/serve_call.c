/* Calls from the bodies of requests; see serve.h. Start at gpt_call_parse(). A
 * field that is not known, or asks for what there is not, is refused by name: a
 * client shall not take one text for another. */
#include "cmd/generate/serve.h"

#include "base/clock.h"
#include "base/num.h"
#include "cmd/generate/serve_fields.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { MOST_TEXTS = 1024, MOST_STOPS = 64, MOST_TOP = 100 };

/* Fields that have an effect. */
#define COMMON_FIELDS                                                          \
    "model", "max_tokens", "temperature", "top_p", "top_k", "min_p", "n",      \
        "stream", "stream_options", "logprobs", "stop", "seed",                \
        "presence_penalty", "frequency_penalty", "repetition_penalty",         \
        "logit_bias", "ignore_eos", NULL
static const char *const of_texts[] = {"prompt", "echo", "best_of",
                                       COMMON_FIELDS};
static const char *const of_chats[] = {
    "messages", "tools", "max_completion_tokens", "top_logprobs",
    "chat_template_kwargs", "add_generation_prompt", COMMON_FIELDS};
/* Those that clients send all the same: names for accounts and caches, which no
 * text depends on, and the absence of tools, sounds and stored answers. */
static const struct gpt_idle_field idle_fields[] = {
    {"user", {NULL, NULL}},
    {"safety_identifier", {NULL, NULL}},
    {"metadata", {NULL, NULL}},
    {"prompt_cache_key", {NULL, NULL}},
    {"prompt_cache_retention", {NULL, NULL}},
    {"prompt_cache_options", {NULL, NULL}},
    {"service_tier", {"\"auto\"", "\"default\""}},
    {"store", {"false", NULL}},
    {"tools", {"[]", NULL}},
    {"tool_choice", {"\"none\"", "\"auto\""}},
    {"parallel_tool_calls", {"true", "false"}},
    {"functions", {"[]", NULL}},
    {"function_call", {"\"none\"", "\"auto\""}},
    {"modalities", {"[\"text\"]", NULL}},
    {"response_format", {"{\"type\":\"text\"}", NULL}},
    {NULL, {NULL, NULL}},
};

/* ---- prompts ---- */

/* Checked against the model's vocabulary and not the tokenizer's, which may be
 * smaller: an id without a text is still an input. */
static int add_ids(struct gpt_ids *ids, const cJSON *list, int64_t vocab,
                   struct gpt_err *err)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, list)
    {
        int32_t id;

        GPT_TRY(gpt_field_id(item, "prompt", vocab, &id, err));
        GPT_TRY(gpt_ids_add(ids, &id, 1, err));
    }
    return GPT_OK;
}

/* An empty prompt is the beginning of a document. */
static int check_prompt(struct gpt_call *call, const struct gpt_server *s,
                        struct gpt_call_prompt *p, const char *field,
                        struct gpt_err *err)
{
    struct gpt_ids *ids = &p->ids;
    const int32_t eod = gpt_loaded_eod(s->m);
    const int64_t most = s->m->positions;

    if (ids->len == 0 && eod < 0)
        return gpt_fail(err, GPT_EDATA, "'%s': an empty prompt, and the model "
                        "has no end-of-document token", field);
    if (ids->len == 0) {
        GPT_TRY(gpt_ids_add(ids, &eod, 1, err));
        p->hidden = p->string ? 1 : 0;
    }
    if ((int64_t)ids->len <= most)
        return GPT_OK;
    call->code = "context_length_exceeded"; /* agents shorten theirs by it */
    return gpt_fail(err, GPT_EDATA,
                    "'%s': a prompt of %zu tokens, but the model has %lld "
                    "positions",
                    field, ids->len, (long long)most);
}

/* The string is kept, to be repeated as it was. */
static int read_string(struct gpt_call *call, const struct gpt_server *s,
                       const char *string, struct gpt_call_prompt *p,
                       struct gpt_err *err)
{
    p->hidden = gpt_tokenizer_before(s->m->tokenizer);
    p->string = gpt_arena_strdup(&call->arena, string);
    return p->string ? gpt_encode(s->encoder, string, strlen(string), &p->ids,
                                  err)
                     : gpt_no_memory(err, "a request");
}

/* One prompt: a string, or a list of ids. */
static int read_prompt(struct gpt_call *call, const struct gpt_server *s,
                       const cJSON *item, struct gpt_err *err)
{
    struct gpt_call_prompt *p = &call->prompts[call->n_prompts++];

    if (cJSON_IsString(item))
        GPT_TRY(read_string(call, s, item->valuestring, p, err));
    else if (cJSON_IsArray(item))
        GPT_TRY(add_ids(&p->ids, item, s->m->config->vocab_size, err));
    else
        return gpt_fail(err, GPT_EDATA,
                        "'prompt' must be strings, or lists of token ids");
    return check_prompt(call, s, p, "prompt", err);
}

/* A list of numbers is one prompt, a list of anything else several. */
static int read_prompts(struct gpt_call *call, const struct gpt_server *s,
                        const cJSON *body, struct gpt_err *err)
{
    const char *key = call->chat ? "messages" : "prompt";
    const cJSON *prompt = gpt_json_member(body, key), *item;
    const bool several = !call->chat &&
        cJSON_IsArray(prompt) && !cJSON_IsNumber(cJSON_GetArrayItem(prompt, 0));
    const int64_t n = several ? cJSON_GetArraySize(prompt) : 1;

    if (!prompt || n == 0)
        return gpt_fail(err, GPT_EDATA, "'%s' is missing or empty", key);
    if (n * call->n > MOST_TEXTS)
        return gpt_fail(err, GPT_EDATA, "'%s': %lld texts in one request, "
                        "limit %d", call->n > 1 ? "n" : "prompt",
                        (long long)(n * call->n), MOST_TEXTS);
    GPT_TRY(gpt_new(&call->prompts, (size_t)n, sizeof(*call->prompts),
                    "prompts", err));
    /* A conversation is one prompt, however many messages it has. */
    if (call->chat) {
        call->n_prompts = 1;
        GPT_TRY(gpt_call_read_chat(s, body, &call->prompts->ids, err));
        return check_prompt(call, s, call->prompts, "messages", err);
    }
    if (!several)
        return read_prompt(call, s, prompt, err);
    cJSON_ArrayForEach(item, prompt) GPT_TRY(read_prompt(call, s, item, err));
    return GPT_OK;
}

/* ---- the choice of tokens ---- */

/* Copied into the call: the body's tree is freed before that is queued. */
static int add_stop(struct gpt_call *call, const cJSON *item,
                    struct gpt_err *err)
{
    if (!cJSON_IsString(item) || !*item->valuestring)
        return gpt_fail(err, GPT_EDATA,
                        "'stop' must be strings that are not empty");
    char *copy = gpt_arena_strdup(&call->arena, item->valuestring);
    if (!copy)
        return gpt_no_memory(err, "a request");
    call->stops.items[call->stops.n++] = copy;
    return GPT_OK;
}

/* OpenAI allows four; harnesses send more, and each costs a search in a few
 * bytes a token. */
static int read_stops(struct gpt_call *call, const cJSON *body,
                      struct gpt_err *err)
{
    const cJSON *stop = gpt_json_member(body, "stop"), *item;
    const int n = cJSON_IsArray(stop) ? cJSON_GetArraySize(stop) : stop != NULL;

    if (n > MOST_STOPS)
        return gpt_fail(err, GPT_EDATA, "'stop' has %d strings, limit %d", n,
                        MOST_STOPS);
    call->stops.items =
        gpt_arena_alloc(&call->arena, (size_t)n + 1, sizeof(char *));
    if (!call->stops.items)
        return gpt_no_memory(err, "a request");
    if (stop && !cJSON_IsArray(stop))
        return add_stop(call, stop, err);
    cJSON_ArrayForEach(item, stop) GPT_TRY(add_stop(call, item, err));
    return GPT_OK;
}

/* Keys are ids as strings, since JSON has no other keys. The limit is
 * OpenAI's, where 100 forces a token and -100 forbids it. */
static int read_bias(struct gpt_call *call, const struct gpt_server *s,
                     const cJSON *body, struct gpt_err *err)
{
    const cJSON *map = gpt_json_member(body, "logit_bias"), *item;
    struct gpt_bias *bias;

    if (!map)
        return GPT_OK;
    if (!cJSON_IsObject(map))
        return gpt_fail(err, GPT_EDATA, "'logit_bias' must be an object");
    bias = gpt_arena_alloc(&call->arena, (size_t)cJSON_GetArraySize(map) + 1,
                           sizeof(*bias));
    if (!bias)
        return gpt_no_memory(err, "a request");
    call->choice.sampling.bias = bias;
    cJSON_ArrayForEach(item, map)
    {
        int64_t id = -1;

        if (!gpt_parse_int(item->string, &id) || id < 0 ||
            id >= s->m->config->vocab_size || !cJSON_IsNumber(item) ||
            fabs(item->valuedouble) > 100)
            return gpt_fail(err, GPT_EDATA,
                            "'logit_bias': '%.32s' must be a token id with a "
                            "number from -100 to 100",
                            item->string);
        bias[call->choice.sampling.n_bias++] =
            (struct gpt_bias){(int32_t)id, (float)item->valuedouble};
    }
    return GPT_OK;
}

/* Defaults are those of OpenAI's API, so that a client that sends nothing gets
 * what it would get there. Sampling is Megatron's where semantics differ: a
 * request cannot say. */
static int read_sampling(struct gpt_call *call, const struct gpt_server *s,
                         const cJSON *body, struct gpt_err *err)
{
    struct gpt_sampling *r = &call->choice.sampling;

    *r = (struct gpt_sampling){.temperature = 1, .top_p = 1};
    GPT_TRY(gpt_field_number(body, "temperature", 0, 100, &r->temperature,
                             err));
    GPT_TRY(gpt_field_number(body, "top_p", 0, 1, &r->top_p, err));
    GPT_TRY(gpt_field_integer(body, "top_k", -1, 1000000000, &r->top_k, err));
    GPT_TRY(gpt_field_number(body, "min_p", 0, 1, &r->min_p, err));
    GPT_TRY(gpt_field_number(body, "presence_penalty", -100, 100,
                             &r->presence_penalty, err));
    GPT_TRY(gpt_field_number(body, "frequency_penalty", -100, 100,
                             &r->frequency_penalty, err));
    GPT_TRY(gpt_field_number(body, "repetition_penalty", 0.01, 100,
                             &r->repetition_penalty, err));
    r->top_k = gpt_max_i64(r->top_k, 0); /* vLLM's -1: off */
    /* The smallest set that reaches nothing has one token; in the library a 0
     * is no limit. */
    if (r->top_p == 0)
        r->top_k = 1;
    return read_bias(call, s, body, err);
}

/* The ids live in the call's arena, since the choice only borrows them. */
static int choose_ends(struct gpt_call *call, const struct gpt_server *s,
                       struct gpt_err *err)
{
    int32_t *ends =
        gpt_arena_alloc(&call->arena, GPT_LOADED_ENDS, sizeof(*ends));

    if (!ends)
        return gpt_no_memory(err, "a request");
    call->choice.n_ends = gpt_loaded_ends(s->m, call->chat, ends);
    call->choice.ends = ends;
    return GPT_OK;
}

/* ---- the call ---- */

/* A name is a promise: a client that asks for another model gets an error, and
 * not a text of this one. */
int gpt_call_check_model(const struct gpt_server *s, const cJSON *body,
                         struct gpt_err *err)
{
    const cJSON *model = gpt_json_member(body, "model");

    if (!model ||
        (cJSON_IsString(model) && strcmp(model->valuestring, s->model) == 0))
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE,
                    "'model': there is no such model here, only '%s'",
                    s->model);
}

/* A number of tokens beside each one in completions, or false; in chats a flag,
 * and the number in a field of its own. */
static int read_logprobs(struct gpt_call *call, const cJSON *body,
                         struct gpt_err *err)
{
    int64_t n = -1;

    if (!call->chat) {
        if (!cJSON_IsFalse(gpt_json_member(body, "logprobs")))
            GPT_TRY(gpt_field_integer(body, "logprobs", 0, MOST_TOP, &n, err));
        call->choice.logprobs = n >= 0;
        call->choice.n_top = gpt_max_i64(n, 0);
        /* With a prompt that is repeated, harnesses take the last probability
         * for that of the one token that they asked for, an end or not. */
        call->choice.show_end = call->echo && n >= 0;
        return GPT_OK;
    }
    GPT_TRY(gpt_field_flag(body, "logprobs", &call->choice.logprobs, err));
    GPT_TRY(gpt_field_integer(body, "top_logprobs", 0, MOST_TOP, &n, err));
    /* OpenAI's API refuses this, too. */
    if (n > 0 && !call->choice.logprobs)
        return gpt_fail(err, GPT_EDATA,
                        "'top_logprobs' has no effect without 'logprobs': "
                        "true");
    call->choice.n_top = gpt_max_i64(n, 0);
    return GPT_OK;
}

/* OpenAI's completions have 16 tokens where nothing is said, its chats as many
 * as there are positions. */
static int read_lengths(struct gpt_call *call, const struct gpt_server *s,
                        const cJSON *body, struct gpt_err *err)
{
    const int64_t least = call->echo ? 0 : 1;

    call->max_tokens = call->chat ? s->m->positions : 16;
    GPT_TRY(gpt_field_integer(body, "max_tokens", least, 1000000000,
                              &call->max_tokens, err));
    if (!call->chat)
        return GPT_OK;
    int64_t n = call->max_tokens;

    GPT_TRY(gpt_field_integer(body, "max_completion_tokens", least, 1000000000,
                              &n, err));
    if (n != call->max_tokens && gpt_json_member(body, "max_tokens"))
        return gpt_fail(err, GPT_EDATA, "'max_tokens' and "
                        "'max_completion_tokens' are names of one number; give "
                        "one of them");
    call->max_tokens = n;
    return GPT_OK;
}

/* What a stream may send beside its text: the count of its tokens at the end.
 * Bytes of chance, which hide lengths of pieces, are none of the text. */
static int read_stream_options(struct gpt_call *call, const cJSON *body,
                               struct gpt_err *err)
{
    static const char *const known[] = {"include_usage", NULL};
    static const struct gpt_idle_field idle[] = {
        {"include_obfuscation", {"true", "false"}},
        {"continuous_usage_stats", {"false", NULL}},
        {NULL, {NULL, NULL}},
    };
    const cJSON *options = gpt_json_member(body, "stream_options");

    if (!options)
        return GPT_OK;
    int status =
        gpt_fields_check(options, known, idle, "the object", err);
    if (status == GPT_OK)
        status = gpt_field_flag(options, "include_usage", &call->usage, err);
    if (status != GPT_OK)
        return gpt_context(err, "'stream_options'");
    /* OpenAI's API refuses this, too: a client without a stream expects what
     * does not come. An object without members says nothing. */
    return call->stream || !options->child
               ? GPT_OK
               : gpt_fail(err, GPT_EDATA,
                          "'stream_options' has no effect without 'stream': "
                          "true");
}

/* The best of several by their probability would be another text than the one
 * that streams. */
static int read_form(struct gpt_call *call, const cJSON *body,
                     struct gpt_err *err)
{
    GPT_TRY(gpt_field_integer(body, "n", 1, MOST_TEXTS, &call->n, err));
    GPT_TRY(gpt_field_flag(body, "echo", &call->echo, err));
    GPT_TRY(gpt_field_flag(body, "stream", &call->stream, err));
    GPT_TRY(read_stream_options(call, body, err));
    int64_t best_of = call->n;
    GPT_TRY(gpt_field_integer(body, "best_of", 1, MOST_TEXTS, &best_of, err));
    return best_of == call->n
               ? GPT_OK
               : gpt_fail(err, GPT_EDATA,
                          "'best_of' is %lld, but it can only be 'n', %lld",
                          (long long)best_of, (long long)call->n);
}

/* In the order of what costs least. A seed that the client does not give is
 * drawn here, so that two equal requests have two texts. */
static int read_call(struct gpt_call *call, const struct gpt_server *s,
                     const cJSON *body, struct gpt_err *err)
{
    bool ignore_eos = false;
    uint32_t random = 0;
    int64_t seed = -1;

    call->n = 1;
    GPT_TRY(gpt_fields_check(body, call->chat ? of_chats : of_texts,
                             idle_fields, "the body", err));
    GPT_TRY(gpt_call_check_model(s, body, err));
    GPT_TRY(read_form(call, body, err));
    GPT_TRY(read_lengths(call, s, body, err));
    GPT_TRY(read_logprobs(call, body, err));
    GPT_TRY(gpt_field_flag(body, "ignore_eos", &ignore_eos, err));
    GPT_TRY(gpt_field_integer(body, "seed", -1, GPT_JSON_EXACT - 1, &seed,
                              err));
    GPT_TRY(read_sampling(call, s, body, err));
    GPT_TRY(read_stops(call, body, err));
    GPT_TRY(read_prompts(call, s, body, err));
    if (!ignore_eos)
        GPT_TRY(choose_ends(call, s, err));
    if (seed < 0 && getrandom(&random, sizeof(random), 0) != sizeof(random))
        random = (uint32_t)call->created;
    call->seed = seed < 0 ? random : (uint64_t)seed;
    return GPT_OK;
}

/* One block for all texts of a call: their addresses are their names in the
 * batch. */
static int make_texts(struct gpt_call *call, struct gpt_err *err)
{
    const int64_t n = call->n_prompts * call->n;

    call->wanted = n;
    GPT_TRY(
        gpt_new(&call->texts, (size_t)n, sizeof(*call->texts), "texts", err));
    for (int64_t i = 0; i < n; i++) {
        const struct gpt_call_prompt *p = &call->prompts[i / call->n];

        call->texts[i].call = call;
        call->texts[i].text.begins = call->chat || (p->string && !*p->string);
        call->texts[i].prompt = i / call->n;
        call->texts[i].sample = i % call->n;
    }
    return GPT_OK;
}

/* The tree of the body lives only here; a call keeps copies. A call that is
 * refused half-way is freed like one that was answered. */
int gpt_call_parse(struct gpt_call **out, struct gpt_server *s, bool chat,
                   const char *body, size_t len, const char **code,
                   struct gpt_err *err)
{
    struct gpt_call *call = NULL;
    cJSON *root = NULL;
    int status;

    *code = NULL;
    GPT_TRY(gpt_json_parse(&root, body, len, "the body", err));
    GPT_TRY_GOTO(status, gpt_new(&call, 1, sizeof(*call), "a request", err),
                 out);
    if (chat)
        gpt_json_keep_numbers(root, body); /* which its template may show */
    call->server = s;
    call->created = (int64_t)time(NULL);
    call->chat = chat;
    call->deadline = s->m->o->request_timeout > 0
                         ? gpt_now() + (double)s->m->o->request_timeout
                         : (double)INFINITY;
    GPT_TRY_GOTO(status, read_call(call, s, root, err), out);
    status = make_texts(call, err);
out:
    cJSON_Delete(root);
    if (call)
        *code = call->code;
    if (status == GPT_OK)
        *out = call;
    else
        gpt_call_free(call);
    return status;
}

void gpt_call_text_free(struct gpt_call_text *t)
{
    gpt_text_free(&t->text);
    gpt_buf_free(&t->out);
    gpt_buf_free(&t->tokens);
    gpt_buf_free(&t->token_logprobs);
    gpt_buf_free(&t->top_logprobs);
    gpt_buf_free(&t->offsets);
}

/* Before its answer has gone out: both together may be large. */
void gpt_call_free_texts(struct gpt_call *call)
{
    for (int64_t i = 0; call->texts && i < call->n_prompts * call->n; i++)
        gpt_call_text_free(&call->texts[i]);
    gpt_call_text_free(&call->repeated);
    gpt_free(call->texts);
    call->texts = NULL;
    call->bytes = 0;
}

/* Also of a call that was not read to its end: what is not there is zero. */
void gpt_call_free(struct gpt_call *call)
{
    if (!call)
        return;
    gpt_call_free_texts(call);
    for (int64_t i = 0; call->prompts && i < call->n_prompts; i++)
        gpt_free(call->prompts[i].ids.data);
    gpt_free(call->prompts);
    gpt_buf_free(&call->answer);
    gpt_arena_free(&call->arena);
    gpt_free(call);
}
