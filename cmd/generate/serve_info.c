/* Answers without a model; see serve_info.h. They are made in the HTTP thread,
 * whose encoder they use; counters are read under the lock. */
#include "cmd/generate/serve_info.h"

#include "base/asset.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/json_string.h"
#include "cmd/generate/json_out.h"
#include "cmd/generate/serve_fields.h"

#include <pthread.h>
#include <string.h>

/* The answer says that a request would be heard: the thread that answers
 * is the one that would take it. */
int gpt_info_health(struct gpt_server *s, const struct gpt_buf *body,
                    struct gpt_buf *out, struct gpt_err *err)
{
    (void)s;
    (void)body;
    (void)err;
    return gpt_buf_printf(out, "{\"status\":\"ok\"}\n");
}

/* max_model_len is vLLM's name of the positions, which clients cut prompts
 * by. */
int gpt_info_model(struct gpt_server *s, const struct gpt_buf *body,
                   struct gpt_buf *out, struct gpt_err *err)
{
    (void)body;
    (void)err;
    GPT_TRY(gpt_buf_printf(out, "{\"id\":"));
    GPT_TRY(gpt_json_add_string(out, s->model, strlen(s->model)));
    return gpt_buf_printf(out,
                          ",\"object\":\"model\",\"created\":0,\"owned_by\":"
                          "\"gpt-generate\",\"max_model_len\":%lld}",
                          (long long)s->m->positions);
}

/* Lists the models, of which a server has one. */
int gpt_info_models(struct gpt_server *s, const struct gpt_buf *body,
                    struct gpt_buf *out, struct gpt_err *err)
{
    GPT_TRY(gpt_buf_printf(out, "{\"object\":\"list\",\"data\":["));
    GPT_TRY(gpt_info_model(s, body, out, err));
    return gpt_buf_printf(out, "]}\n");
}

/* A token by its name, or null. */
static int add_token(struct gpt_buf *out, const struct gpt_server *s,
                     const char *key, int32_t id)
{
    GPT_TRY(gpt_buf_printf(out, "\"%s\":", key));
    return id >= 0 ? gpt_json_add_token(out, s->m->tokenizer, id)
                   : gpt_buf_printf(out, "null");
}

/* The harness puts the first, or else the end, before a text whose whole is
 * scored; it asks /tokenize for the token of the name. */
int gpt_info_tokenizer(struct gpt_server *s, const struct gpt_buf *body,
                       struct gpt_buf *out, struct gpt_err *err)
{
    const int32_t eod = gpt_loaded_eod(s->m);

    (void)body;
    (void)err;
    GPT_TRY(gpt_buf_printf(out, "{"));
    GPT_TRY(add_token(out, s, "bos_token", gpt_tokenizer_bos(s->m->tokenizer)));
    GPT_TRY(gpt_buf_printf(out, ","));
    GPT_TRY(add_token(out, s, "eos_token", eod));
    return gpt_buf_printf(out, ",\"eos_token_id\":%d,\"vocab_size\":%lld}\n",
                          eod,
                          (long long)gpt_tokenizer_vocab_size(s->m->tokenizer));
}

/* A counter only grows, and begins at 0 with the server; a gauge is what is the
 * case now. Every figure has its help and its kind before it, as checkers of
 * the format want it. Waiting requests are those of which no text is begun
 * yet. Of those that were cut, the client has the reason, but where it has
 * hung up. */
int gpt_info_metrics(struct gpt_server *s, const struct gpt_buf *body,
                     struct gpt_buf *out, struct gpt_err *err)
{
    (void)body;
    (void)err;
    pthread_mutex_lock(&s->lock);
    const struct {
        const char *name, *kind, *help;
        double value;
    } rows[] = {
        {"requests_total", "counter", "Requests for texts.",
         (double)s->calls},
        {"requests_refused_total", "counter",
         "Requests that found no room or a server that ends.",
         (double)s->refused},
        {"requests_cut_total", "counter",
         "Requests that were ended before their texts were.", (double)s->cut},
        {"answers_untaken_total", "counter",
         "Answers that their clients did not take to the end.",
         (double)s->untaken},
        {"answer_bytes", "gauge", "Bytes of answers that are not taken yet.",
         (double)s->answer_bytes},
        {"requests_waiting", "gauge", "Requests of which no text is begun.",
         (double)s->queued},
        {"requests_running", "gauge", "Requests whose texts are being made.",
         (double)s->active},
        {"prompt_tokens_total", "counter", "Tokens of prompts.",
         (double)s->prompt_tokens},
        {"prompt_tokens_cached_total", "counter",
         "Tokens of prompts that were copied and not computed.",
         (double)s->cached_tokens},
        {"prompt_passes_total", "counter",
         "Passes of prompts through the model.", (double)s->prompt_passes},
        {"prefix_cache_entries", "gauge",
         "Beginnings of prompts that are kept.",
         (double)s->prefixes},
        {"prefix_cache_tokens", "gauge", "Tokens of these beginnings.",
         (double)s->prefix_tokens},
        {"prefix_cache_bytes", "gauge", "Memory of these beginnings.",
         (double)s->prefix_bytes},
        {"generated_tokens_total", "counter", "Tokens of texts.",
         (double)s->new_tokens},
        {"uptime_seconds", "gauge", "Time since the server began.",
         gpt_now() - s->started},
    };
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < GPT_COUNT(rows); i++)
        GPT_TRY(gpt_buf_printf(out, "# HELP gpt_%s %s\n# TYPE gpt_%s %s\n"
                               "gpt_%s %.15g\n", rows[i].name, rows[i].help,
                               rows[i].name, rows[i].kind, rows[i].name,
                               rows[i].value));
    return GPT_OK;
}

/* ---- tokens ---- */

/* The count spares clients that only measure a prompt the list's length. */
static int add_ids(struct gpt_buf *b, const struct gpt_ids *ids)
{
    GPT_TRY(gpt_buf_printf(b, "{\"tokens\":["));
    for (size_t i = 0; i < ids->len; i++)
        GPT_TRY(gpt_buf_printf(b, "%s%d", i ? "," : "", ids->data[i]));
    return gpt_buf_printf(b, "],\"count\":%zu}\n", ids->len);
}

/* The ids of a text as a prompt of completions has them, but that the name of a
 * special token alone is this token: clients ask so for its id. */
static int tokenize(struct gpt_server *s, const cJSON *root,
                    struct gpt_ids *ids, struct gpt_err *err)
{
    /* "prompt" is vLLM's name of the text, "content" llama.cpp's; so are those
     * of the flag. */
    static const char *const known[] = {"prompt", "content", "model",
                                        "add_special_tokens", "add_special",
                                        NULL};
    const char *text = NULL;
    bool around = true;

    GPT_TRY(gpt_fields_check(root, known, NULL, "the body", err));
    GPT_TRY(gpt_call_check_model(s, root, err));
    if (gpt_json_member(root, "content") && gpt_json_member(root, "prompt"))
        return gpt_fail(err, GPT_EDATA,
                        "'prompt' and 'content' are names of one text; give "
                        "one of them");
    GPT_TRY(gpt_json_string(root, gpt_json_member(root, "content") ? "content"
                                                             : "prompt",
                            &text, "the body", err));
    GPT_TRY(gpt_field_flag(root, "add_special", &around, err));
    GPT_TRY(gpt_field_flag(root, "add_special_tokens", &around, err));
    const int32_t id = gpt_special_token(s->m->tokenizer, text, strlen(text));

    return id >= 0 ? gpt_ids_add(ids, &id, 1, err)
                   : gpt_encode_as(s->encoder,
                                   around ? GPT_AROUND_BOTH : GPT_AROUND_NONE,
                                   text, strlen(text), ids, err);
}

int gpt_info_tokenize(struct gpt_server *s, const struct gpt_buf *body,
                      struct gpt_buf *out, struct gpt_err *err)
{
    struct gpt_ids ids = {0};
    cJSON *root = NULL;

    GPT_TRY(gpt_json_parse(&root, body->data, body->len, "the body", err));
    int status = tokenize(s, root, &ids, err);
    if (status == GPT_OK)
        status = add_ids(out, &ids);
    cJSON_Delete(root);
    gpt_free(ids.data);
    return status;
}

/* The bytes of all tokens together: a character may be cut between two. A field
 * that leaves some of them out elsewhere is refused, like any other that is not
 * known. */
static int join_tokens(const struct gpt_server *s, const cJSON *root,
                       struct gpt_buf *text, struct gpt_err *err)
{
    static const char *const known[] = {"tokens", "model", NULL};
    struct gpt_stream stream = {0};
    const cJSON *tokens, *item;

    GPT_TRY(gpt_fields_check(root, known, NULL, "the body", err));
    GPT_TRY(gpt_call_check_model(s, root, err));
    tokens = gpt_json_member(root, "tokens");
    if (!cJSON_IsArray(tokens))
        return gpt_fail(err, GPT_EDATA, "'tokens' is no list");
    cJSON_ArrayForEach(item, tokens)
    {
        size_t len = 0;
        int32_t id;

        GPT_TRY(gpt_field_id(item, "tokens", s->m->config->vocab_size, &id,
                             err));
        const char *bytes = gpt_token_bytes(s->m->tokenizer, id, &len);
        GPT_TRY(gpt_stream_add(&stream, bytes, len, text));
    }
    return gpt_stream_end(&stream, text);
}

/* Always valid UTF-8: half a character at an end becomes U+FFFD. */
int gpt_info_detokenize(struct gpt_server *s, const struct gpt_buf *body,
                        struct gpt_buf *out, struct gpt_err *err)
{
    struct gpt_buf text = {0};
    cJSON *root = NULL;
    int status;

    GPT_TRY(gpt_json_parse(&root, body->data, body->len, "the body", err));
    GPT_TRY_GOTO(status, join_tokens(s, root, &text, err), out);
    GPT_TRY_GOTO(status, gpt_buf_printf(out, "{\"prompt\":"), out);
    GPT_TRY_GOTO(status, gpt_json_add_string(out, text.data, text.len), out);
    status = gpt_buf_printf(out, "}\n");
out:
    cJSON_Delete(root);
    gpt_buf_free(&text);
    return status;
}

/* The page at "/": a prompt, its settings, and the text as it comes. It needs
 * nothing from elsewhere, so that it works without a network, and talks to the
 * API that every client has: what it shows, a program can have. */
GPT_ASSET(serve_page, "share/serve/page.html")

/* The page asks for a key only where a request needs one: it holds no secret.
 */
int gpt_info_page(struct gpt_server *s, const struct gpt_buf *body,
                  struct gpt_buf *out, struct gpt_err *err)
{
    (void)s;
    (void)body;
    (void)err;
    const struct gpt_asset page = gpt_asset_serve_page();

    return gpt_buf_add(out, page.data, page.len);
}
