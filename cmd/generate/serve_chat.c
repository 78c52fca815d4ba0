/* Messages of a chat, as OpenAI's API has them, to the prompt of a call; see
 * serve.h. Start at gpt_call_read_chat(). */
#include "cmd/generate/serve.h"

#include "cmd/generate/serve_fields.h"

#include <string.h>

/* Templates look at few variables, and each is compared with those before. */
enum { MOST_VARIABLES = 64 };

/* A content of several parts becomes one text, a line a part, also where one is
 * empty: templates of models that read text alone take strings. */
static int join_parts(const cJSON *parts, struct gpt_buf *text,
                      struct gpt_err *err)
{
    const cJSON *part;

    cJSON_ArrayForEach(part, parts)
    {
        const cJSON *type = gpt_field(part, "type");
        const cJSON *item = gpt_field(part, "text");

        if (!cJSON_IsString(type) || strcmp(type->valuestring, "text") != 0 ||
            !cJSON_IsString(item))
            return gpt_fail(err, GPT_EDATA, "'content': a part of type "
                            "'%.32s', only 'text' is known here",
                            cJSON_IsString(type) ? type->valuestring : "?");
        if (part != parts->child && gpt_buf_add(text, "\n", 1) != GPT_OK)
            return gpt_no_memory(err, "a request");
        if (gpt_buf_add(text, item->valuestring, strlen(item->valuestring)) !=
            GPT_OK)
            return gpt_no_memory(err, "a request");
    }
    return GPT_OK;
}

/* A model that ended at once has said nothing, and its client says so by null,
 * or leaves the content out. All others say something. */
static int add_content(cJSON *message, const char *role, const cJSON *content,
                       struct gpt_err *err)
{
    const bool nothing = !content && strcmp(role, "assistant") == 0;
    struct gpt_buf text = {0};

    if (cJSON_IsString(content) || nothing) {
        cJSON_AddStringToObject(message, "content",
                                nothing ? "" : content->valuestring);
        return GPT_OK;
    }
    if (!cJSON_IsArray(content))
        return gpt_fail(err, GPT_EDATA, "'content' of a message must be a "
                        "string, or a list of parts");
    const int status = join_parts(content, &text, err);
    if (status == GPT_OK)
        cJSON_AddStringToObject(message, "content", text.data ? text.data : "");
    gpt_buf_free(&text);
    return status;
}

/* A field that the template may not see would be dropped in silence, so that
 * others are refused. */
static int add_message(cJSON *messages, const cJSON *given,
                       struct gpt_err *err)
{
    static const char *const known[] = {"role", "content", "name", NULL};
    /* what a message is of anyway, as the harness sends it; and what a client
     * gives back of an answer */
    static const struct gpt_idle_field idle[] = {
        {"type", {"\"text\"", NULL}},
        {"tool_calls", {"[]", NULL}},
        {"annotations", {"[]", NULL}},
        {NULL, {NULL, NULL}},
    };
    cJSON *message = gpt_json_add(messages, NULL, cJSON_CreateObject());
    const cJSON *role = gpt_field(given, "role");
    const cJSON *name = gpt_field(given, "name");

    GPT_TRY(gpt_fields_check(given, known, idle, "'messages': an element",
                             err));
    if (!cJSON_IsString(role) || (name && !cJSON_IsString(name)))
        return gpt_fail(err, GPT_EDATA,
                        "'%s' of a message must be a string",
                        cJSON_IsString(role) ? "name" : "role");
    if (strcmp(role->valuestring, "tool") == 0 ||
        strcmp(role->valuestring, "function") == 0)
        return gpt_fail(err, GPT_EDATA, "'role': messages of tools are not "
                        "known here");
    cJSON_AddStringToObject(message, "role", role->valuestring);
    if (name)
        cJSON_AddStringToObject(message, "name", name->valuestring);
    return add_content(message, role->valuestring, gpt_field(given, "content"),
                       err);
}

/* What the template sees. Its other variables are the client's own. */
static int add_variables(cJSON *input, const cJSON *body, struct gpt_err *err)
{
    const cJSON *more = gpt_field(body, "chat_template_kwargs"), *item;
    bool prompt = true;

    GPT_TRY(gpt_field_flag(body, "add_generation_prompt", &prompt, err));
    cJSON_AddBoolToObject(input, "add_generation_prompt", prompt);
    cJSON_AddNullToObject(input, "tools");
    cJSON_AddNullToObject(input, "documents");
    if (more && !cJSON_IsObject(more))
        return gpt_fail(err, GPT_EDATA,
                        "'chat_template_kwargs' must be an object");
    if (cJSON_GetArraySize(more) > MOST_VARIABLES)
        return gpt_fail(err, GPT_EDATA,
                        "'chat_template_kwargs' has %d members, limit %d",
                        cJSON_GetArraySize(more), MOST_VARIABLES);
    cJSON_ArrayForEach(item, more)
    {
        /* A client that could give other messages here would go past the
         * checks of those above. */
        if (cJSON_HasObjectItem(input, item->string))
            return gpt_fail(err, GPT_EDATA, "'chat_template_kwargs': '%.64s' "
                            "is not the template's to choose", item->string);
        cJSON_AddItemToObject(input, item->string, cJSON_Duplicate(item, true));
    }
    return GPT_OK;
}

/* The tree is built from the body's: templates see names and strings, and
 * never what the client sent beside them. */
static int make_input(cJSON *input, const cJSON *body, struct gpt_err *err)
{
    const cJSON *given = gpt_field(body, "messages"), *item;
    cJSON *messages = cJSON_AddArrayToObject(input, "messages");

    if (!cJSON_IsArray(given))
        return gpt_fail(err, GPT_EDATA, "'messages' must be a list of objects "
                        "with 'role' and 'content'");
    if (cJSON_GetArraySize(given) == 0)
        return gpt_fail(err, GPT_EDATA, "'messages' is missing or empty");
    cJSON_ArrayForEach(item, given) GPT_TRY(add_message(messages, item, err));
    GPT_TRY(add_variables(input, body, err));
    return gpt_json_out_of_memory() ? gpt_no_memory(err, "a request") : GPT_OK;
}

/* The text is not encoded as prompts of completions are: names of special
 * tokens in it are the tokens, which the template puts there. */
int gpt_call_read_chat(const struct gpt_server *s, const cJSON *body,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    cJSON *input = cJSON_CreateObject();
    int status = make_input(input, body, err);

    if (status == GPT_OK)
        status = gpt_chat_encode(s->m->chat, input, s->chat_encoder, ids, err);
    cJSON_Delete(input);
    return status;
}
