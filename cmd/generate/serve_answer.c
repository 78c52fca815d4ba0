/* Answers as OpenAI's API has them; see serve.h. Start at gpt_answer_whole().
 * All are written as text at once: their shape is fixed, and a tree would be
 * built to be printed. */
#include "cmd/generate/serve.h"

#include "base/json_string.h"
#include "base/utf8.h"
#include "cmd/generate/json_out.h"

#include <math.h>
#include <string.h>

/* ---- tokens ---- */

/* A token that is no UTF-8 by itself is written as its bytes, as OpenAI's does:
 * two such tokens differ, where both would be U+FFFD. */
static int add_token_name(struct gpt_buf *b, const struct gpt_tokenizer *tok,
                          int32_t id)
{
    size_t len = 0, at = 0;
    const char *bytes = gpt_token_bytes(tok, id, &len);

    for (size_t n; at < len && (n = gpt_utf8_length(bytes + at, len - at));)
        at += n;
    if (at == len)
        return gpt_json_add_string(b, bytes, len);
    GPT_TRY(gpt_buf_printf(b, "\"bytes:"));
    for (size_t i = 0; i < len; i++)
        GPT_TRY(gpt_buf_printf(b, "\\\\x%02x", (unsigned char)bytes[i]));
    return gpt_buf_add(b, "\"", 1);
}

/* An object by token, as OpenAI's, with the token itself behind the others
 * where it is none of them. Two ids with the same text, which a vocabulary of
 * special tokens may have, give two members of one name. */
static int add_top(struct gpt_buf *b, const struct gpt_tokenizer *tok,
                   struct gpt_top own, const struct gpt_top *top, int64_t n)
{
    bool among = false;

    GPT_TRY(gpt_buf_add(b, ",{", 2));
    for (int64_t i = 0; i < n + !among; i++) {
        const struct gpt_top *t = i < n ? &top[i] : &own;

        among = among || t->id == own.id;
        if (i > 0)
            GPT_TRY(gpt_buf_add(b, ",", 1));
        GPT_TRY(add_token_name(b, tok, t->id));
        GPT_TRY(gpt_buf_printf(b, ":%.9g", t->logprob));
    }
    return gpt_buf_add(b, "}", 1);
}

/* The bytes of a token that its text shows. A prompt that was given as a string
 * does not show what the tokenizer put before it, nor the space before its
 * first word. */
static const char *shown_bytes(const struct gpt_server *s,
                               const struct gpt_call_text *t, int32_t id,
                               size_t *len)
{
    const char *bytes = gpt_token_bytes(s->m->tokenizer, id, len);
    const struct gpt_call_prompt *p = &t->call->prompts[t->prompt];
    const size_t at = (size_t)t->n_tokens - 1;

    if (t != &t->call->repeated || !p->string || at > p->hidden)
        return bytes;
    if (at == p->hidden)
        return gpt_first_bytes(s->m->tokenizer, id, len);
    *len = 0;
    return bytes;
}

/* Lists begin with a comma, which their reader leaves out. The first token of a
 * prompt has no probability, which is null. */
static int add_probabilities(const struct gpt_server *s,
                             struct gpt_call_text *t, int32_t id,
                             double logprob, const struct gpt_top *top,
                             int64_t n_top)
{
    size_t len = 0;
    const char *bytes = shown_bytes(s, t, id, &len);

    GPT_TRY(gpt_buf_add(&t->tokens, ",", 1));
    GPT_TRY(add_token_name(&t->tokens, s->m->tokenizer, id));
    GPT_TRY(gpt_buf_printf(&t->offsets, ",%lld", (long long)t->n_chars));
    /* offsets are in characters, as those of OpenAI are */
    t->n_chars += (int64_t)gpt_utf8_count(bytes, len);
    if (isnan(logprob)) {
        GPT_TRY(gpt_buf_add(&t->token_logprobs, ",null", 5));
        return gpt_buf_add(&t->top_logprobs, ",null", 5);
    }
    GPT_TRY(gpt_buf_printf(&t->token_logprobs, ",%.9g", logprob));
    return add_top(&t->top_logprobs, s->m->tokenizer,
                   (struct gpt_top){id, logprob}, top, n_top);
}

/* Adds the bytes of a token, from which a client joins characters that are
 * divided between tokens. */
static int add_token_bytes(struct gpt_buf *b, const struct gpt_tokenizer *tok,
                           int32_t id)
{
    size_t len = 0;
    const char *bytes = gpt_token_bytes(tok, id, &len);

    GPT_TRY(gpt_buf_printf(b, ",\"bytes\":["));
    for (size_t i = 0; i < len; i++)
        GPT_TRY(gpt_buf_printf(b, "%s%d", i ? "," : "",
                               (unsigned char)bytes[i]));
    return gpt_buf_add(b, "]", 1);
}

/* Without the brace at its end: a token that was chosen has a list behind
 * it. */
static int add_chat_token(struct gpt_buf *b, const struct gpt_tokenizer *tok,
                          int32_t id, double logprob)
{
    GPT_TRY(gpt_buf_printf(b, "{\"token\":"));
    GPT_TRY(gpt_json_add_token(b, tok, id));
    GPT_TRY(gpt_buf_printf(b, ",\"logprob\":%.9g", logprob));
    return add_token_bytes(b, tok, id);
}

/* An object a token, with the most probable ones in a list. */
static int add_chat_probabilities(const struct gpt_server *s, struct gpt_buf *b,
                                  int32_t id, double logprob,
                                  const struct gpt_top *top, int64_t n_top)
{
    GPT_TRY(gpt_buf_add(b, ",", 1));
    GPT_TRY(add_chat_token(b, s->m->tokenizer, id, logprob));
    GPT_TRY(gpt_buf_printf(b, ",\"top_logprobs\":["));
    for (int64_t i = 0; i < n_top; i++) {
        if (i > 0)
            GPT_TRY(gpt_buf_add(b, ",", 1));
        GPT_TRY(add_chat_token(b, s->m->tokenizer, top[i].id, top[i].logprob));
        GPT_TRY(gpt_buf_add(b, "}", 1));
    }
    return gpt_buf_printf(b, "]}");
}

/* Tells the call how many bytes the text holds now, until they are a part of an
 * answer. What was told before is taken back: a text whose bytes were not all
 * counted when they came does not take more from the call than it gave. */
static void count_held(struct gpt_call_text *t)
{
    const size_t held = t->out.len + t->tokens.len + t->token_logprobs.len +
                        t->top_logprobs.len + t->offsets.len;

    t->call->bytes += held - t->held;
    t->held = held;
}

/* The token is counted before its place is asked for. */
static int add_token(const struct gpt_server *s, struct gpt_call_text *t,
                     int32_t id, double logprob, const struct gpt_top *top,
                     int64_t n_top)
{
    t->n_tokens++;
    if (!t->call->choice.logprobs)
        return GPT_OK;
    return t->call->chat ? add_chat_probabilities(s, &t->tokens, id, logprob,
                                                  top, n_top)
                         : add_probabilities(s, t, id, logprob, top, n_top);
}

int gpt_answer_end(const struct gpt_server *s, struct gpt_call_text *t,
                   int32_t id, double logprob, const struct gpt_top *top,
                   int64_t n_top)
{
    GPT_TRY(add_probabilities(s, t, id, logprob, top, n_top));
    count_held(t);
    return GPT_OK;
}

int gpt_answer_token(const struct gpt_server *s, struct gpt_call_text *t,
                     int32_t id, double logprob, const struct gpt_top *top,
                     int64_t n_top)
{
    GPT_TRY(add_token(s, t, id, logprob, top, n_top));
    GPT_TRY(gpt_text_add(&t->text, s->m->tokenizer, id, &t->call->stops,
                         &t->out));
    count_held(t);
    return GPT_OK;
}

/* Stop strings are looked for in what the model adds: in a prompt they are the
 * client's own words. */
int gpt_answer_prompt(const struct gpt_server *s, struct gpt_call_text *echo,
                      int32_t id, double logprob, const struct gpt_top *top,
                      int64_t n_top)
{
    static const struct gpt_list none;

    GPT_TRY(add_token(s, echo, id, logprob, top, n_top));
    GPT_TRY(gpt_text_add(&echo->text, s->m->tokenizer, id, &none, &echo->out));
    count_held(echo);
    return GPT_OK;
}

/* A string is repeated as it was given, which its tokens may spell in another
 * way; ids are spelled, and half a character at their end goes on in the text.
 */
int gpt_answer_echo(struct gpt_call_text *t, const struct gpt_call_text *echo)
{
    const char *string = t->call->prompts[t->prompt].string;
    const struct {
        struct gpt_buf *to;
        const struct gpt_buf *from;
    } rows[] = {
        {&t->tokens, &echo->tokens},
        {&t->token_logprobs, &echo->token_logprobs},
        {&t->top_logprobs, &echo->top_logprobs},
        {&t->offsets, &echo->offsets},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++)
        GPT_TRY(gpt_buf_add(rows[i].to, rows[i].from->data, rows[i].from->len));
    if (string)
        GPT_TRY(gpt_buf_add(&t->out, string, strlen(string)));
    else
        GPT_TRY(gpt_buf_add(&t->out, echo->out.data, echo->out.len));
    if (!string)
        t->text.stream = echo->text.stream;
    t->n_tokens = echo->n_tokens;
    t->n_chars = echo->n_chars;
    count_held(t);
    return GPT_OK;
}

/* ---- choices ---- */

/* null and not absent: clients look at it without asking whether it is
 * there. */
static int add_logprobs(const struct gpt_call_text *t, struct gpt_buf *b)
{
    const struct {
        const char *name;
        const struct gpt_buf *list;
    } lists[] = {
        {t->call->chat ? "content" : "tokens", &t->tokens},
        {"token_logprobs", &t->token_logprobs},
        {"top_logprobs", &t->top_logprobs},
        {"text_offset", &t->offsets},
    };

    if (!t->call->choice.logprobs)
        return gpt_buf_printf(b, ",\"logprobs\":null");
    GPT_TRY(gpt_buf_printf(b, ",\"logprobs\":{"));
    /* A chat has one list, whose elements have what the other three say of a
     * token. */
    for (size_t i = 0; i < (t->call->chat ? 1 : GPT_COUNT(lists)); i++)
        GPT_TRY(gpt_json_add_list(b, lists[i].name, lists[i].list));
    return gpt_buf_add(b, "}", 1);
}

/* A chat's text is a message; of a stream a part of it, of which the first
 * names the role. */
static int add_words(struct gpt_call_text *t, struct gpt_buf *b)
{
    const struct gpt_call *call = t->call;
    const bool part = call->stream;

    if (!call->chat)
        GPT_TRY(gpt_buf_printf(b, "\"text\":"));
    else if (!part || !t->begun)
        GPT_TRY(gpt_buf_printf(b, "\"%s\":{\"role\":\"assistant\","
                               "\"content\":", part ? "delta" : "message"));
    else
        GPT_TRY(gpt_buf_printf(b, "\"delta\":{%s",
                               t->out.len ? "\"content\":" : ""));
    if (!call->chat || !part || !t->begun || t->out.len)
        GPT_TRY(gpt_json_add_string(b, t->out.data, t->out.len));
    /* Clients add up the contents of the pieces. One without a new text has
     * none: an empty string would be news. */
    t->begun = true;
    return call->chat ? gpt_buf_add(b, "}", 1) : GPT_OK;
}

/* One text. OpenAI knows two reasons: the model or a stop string ended it, or
 * the tokens did; a text that fills the positions is one of the second kind.
 * Texts of several prompts are numbered through, prompt by prompt, which is
 * how clients find theirs. */
static int add_choice(struct gpt_call_text *t, bool end, struct gpt_buf *b)
{
    const char *reason =
        t->finish == GPT_FINISH_EOD || t->finish == GPT_FINISH_STOP
            ? "\"stop\""
            : "\"length\"";

    GPT_TRY(gpt_buf_printf(b, "{\"index\":%lld,",
                           (long long)(t->prompt * t->call->n + t->sample)));
    GPT_TRY(add_words(t, b));
    GPT_TRY(add_logprobs(t, b));
    return gpt_buf_printf(b, ",\"finish_reason\":%s}", end ? reason : "null");
}

/* What all answers begin with. The number is that of the call since the start:
 * enough to tell the pieces of two streams apart. */
static int add_head(const struct gpt_server *s, const struct gpt_call *call,
                    struct gpt_buf *b)
{
    const char *object = !call->chat    ? "text_completion"
                         : call->stream ? "chat.completion.chunk"
                                        : "chat.completion";

    GPT_TRY(gpt_buf_printf(b,
                           "{\"id\":\"%scmpl-%llu\",\"object\":\"%s\","
                           "\"created\":%lld,\"model\":",
                           call->chat ? "chat" : "",
                           (unsigned long long)call->number, object,
                           (long long)call->created));
    GPT_TRY(gpt_json_add_string(b, s->model, strlen(s->model)));
    return gpt_buf_printf(b, ",\"choices\":[");
}

/* A prompt counts once, however many texts it has. */
static int add_usage(const struct gpt_call *call, struct gpt_buf *b)
{
    return gpt_buf_printf(b,
                          ",\"usage\":{\"prompt_tokens\":%lld,"
                          "\"completion_tokens\":%lld,\"total_tokens\":%lld,"
                          "\"prompt_tokens_details\":{\"cached_tokens\":%lld}"
                          "}",
                          (long long)call->prompt_tokens,
                          (long long)call->new_tokens,
                          (long long)(call->prompt_tokens + call->new_tokens),
                          (long long)call->cached_tokens);
}

/* ---- answers ---- */

/* A piece without text and probabilities is sent only at the end: half a
 * character is no news. What was sent is forgotten. */
int gpt_answer_piece(const struct gpt_server *s, struct gpt_call_text *t,
                     bool end, struct gpt_buf *out)
{
    if (!end && t->out.len == 0 && t->tokens.len == 0)
        return GPT_OK;
    GPT_TRY(gpt_buf_printf(out, "data: "));
    GPT_TRY(add_head(s, t->call, out));
    GPT_TRY(add_choice(t, end, out));
    t->out.len = t->tokens.len = t->token_logprobs.len = 0;
    t->top_logprobs.len = t->offsets.len = 0;
    count_held(t);
    /* a client that wants the counts finds the member in every piece */
    return gpt_buf_printf(out, "]%s}\n\n",
                          t->call->usage ? ",\"usage\":null" : "");
}

/* Why a call was cut; the status says the same to programs. */
static const char *why_cut(const struct gpt_call *call)
{
    static const struct {
        int status;
        const char *text;
    } rows[] = {
        {413, "the answer is too long; ask for fewer texts, tokens or "
              "logprobs"},
        {500, "the server has failed"},
        {503, "the server is stopping"},
        {504, "the request took longer than it may"},
        {507, "the server has no memory for the answer beside others; ask "
              "for less, or later"},
    };
    size_t i = 0;

    while (rows[i].status != call->cut)
        i++;
    return rows[i].text;
}

/* The counts come in a piece without choices, and only on demand: old clients
 * take the first choice of every piece. */
int gpt_answer_stream_end(const struct gpt_server *s,
                          const struct gpt_call *call, struct gpt_buf *out)
{
    /* The status of a stream was sent with its first byte, so that the error
     * is a part of it. */
    if (call->cut) {
        GPT_TRY(gpt_buf_printf(out, "data: "));
        GPT_TRY(gpt_answer_error(call->cut, NULL, why_cut(call), out));
        GPT_TRY(gpt_buf_add(out, "\n", 1));
    } else if (call->usage) {
        GPT_TRY(gpt_buf_printf(out, "data: "));
        GPT_TRY(add_head(s, call, out));
        GPT_TRY(gpt_buf_add(out, "]", 1));
        GPT_TRY(add_usage(call, out));
        GPT_TRY(gpt_buf_printf(out, "}\n\n"));
    }
    return gpt_buf_printf(out, "data: [DONE]\n\n");
}

/* All texts in the order of their prompts, whatever the order in which they
 * ended. */
int gpt_answer_whole(const struct gpt_server *s, const struct gpt_call *call,
                     struct gpt_buf *out)
{
    if (call->cut)
        return gpt_answer_error(call->cut, NULL, why_cut(call), out);
    GPT_TRY(add_head(s, call, out));
    for (int64_t i = 0; i < call->wanted; i++) {
        if (i > 0)
            GPT_TRY(gpt_buf_add(out, ",", 1));
        GPT_TRY(add_choice(&call->texts[i], true, out));
    }
    GPT_TRY(gpt_buf_add(out, "]", 1));
    GPT_TRY(add_usage(call, out));
    return gpt_buf_add(out, "}\n", 2);
}

/* The field that a message is about, or null: serve_fields.h says where its
 * name is. */
static int add_param(struct gpt_buf *out, const char *text)
{
    const char *end = text[0] == '\'' ? strchr(text + 1, '\'') : NULL;
    char name[128] = "";

    if (!end || end - text > (ptrdiff_t)sizeof(name))
        return gpt_buf_printf(out, "null");
    memcpy(name, text + 1, (size_t)(end - text - 1));
    return gpt_json_add_words(out, name);
}

/* The word for a refusal where the status alone says why, or NULL. What is not
 * there is the model, or the path, for which there is no word. */
static const char *code_of(int status, const char *text)
{
    switch (status) {
    case 401:
        return "invalid_api_key";
    case 404:
        return text[0] == '\'' ? "model_not_found" : NULL;
    case 405:
        return "method_not_supported";
    case 429:
        return "rate_limit_exceeded";
    default:
        return NULL;
    }
}

/* OpenAI's clients make the class of an exception of the status, and give the
 * four members as they are; code is a string or null there. */
int gpt_answer_error(int status, const char *code, const char *text,
                     struct gpt_buf *out)
{
    const char *type = status == 401   ? "authentication_error"
                       : status == 429 ? "rate_limit_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";

    GPT_TRY(gpt_buf_printf(out, "{\"error\":{\"message\":"));
    GPT_TRY(gpt_json_add_words(out, text));
    GPT_TRY(gpt_buf_printf(out, ",\"type\":\"%s\",\"param\":", type));
    GPT_TRY(add_param(out, text));
    if (!code)
        code = code_of(status, text);
    if (!code)
        return gpt_buf_printf(out, ",\"code\":null}}\n");
    return gpt_buf_printf(out, ",\"code\":\"%s\"}}\n", code);
}
