/* Messages of a chat, as OpenAI's API has them, to the prompt of a call; see
 * serve.h. Start at gpt_call_read_chat(). */
#include "cmd/generate/serve.h"

#include "cmd/generate/serve_fields.h"

#include <string.h>

/* Templates look at few variables, and each is compared with those before. */
enum { MOST_VARIABLES = 64 };

struct chat {
    const struct gpt_server *s;
    bool tools; /* the template sees some */
};

/* A content of several parts becomes one text, a line a part, also where one is
 * empty: templates of models that read text alone take strings. */
static int join_parts(const cJSON *parts, struct gpt_buf *text,
                      struct gpt_err *err)
{
    static const char *const known[] = {"type", "text", NULL};
    /* where a cache may end, and what clients give back of an answer */
    static const struct gpt_idle_field idle[] = {
        {"cache_control", {NULL, NULL}},
        {"annotations", {"[]", NULL}},
        {NULL, {NULL, NULL}},
    };
    const cJSON *part;

    cJSON_ArrayForEach(part, parts)
    {
        const cJSON *type = gpt_json_member(part, "type");
        const cJSON *item = gpt_json_member(part, "text");

        if (!cJSON_IsString(type) || strcmp(type->valuestring, "text") != 0 ||
            !cJSON_IsString(item))
            return gpt_fail(err, GPT_EDATA, "'content': a part of type "
                            "'%.32s', only 'text' is known here",
                            cJSON_IsString(type) ? type->valuestring : "?");
        GPT_TRY(gpt_fields_check(part, known, idle, "'content': a part", err));
        if (part != parts->child && gpt_buf_add(text, "\n", 1) != GPT_OK)
            return gpt_no_memory(err, "a request");
        if (gpt_buf_add(text, item->valuestring, strlen(item->valuestring)) !=
            GPT_OK)
            return gpt_no_memory(err, "a request");
    }
    return GPT_OK;
}

/* A model that ended at once has said nothing, and its client says so by null,
 * or leaves the content out; so does one that gives back a call of a tool. All
 * others say something. */
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

/* ---- calls of tools ---- */

/* Clients send arguments as a text of JSON; templates want the object, whose
 * members they write in a form of their own. */
static int parse_arguments(cJSON *function, struct gpt_err *err)
{
    const cJSON *given = gpt_json_member(function, "arguments");
    cJSON *object;

    if (cJSON_IsObject(given))
        return GPT_OK;
    if (given && !cJSON_IsString(given))
        return gpt_fail(err, GPT_EDATA,
                        "'arguments' of a call must be a string of JSON");
    const char *text =
        given && *given->valuestring ? given->valuestring : "{}";
    const int status = gpt_json_parse(&object, text, strlen(text),
                                      "'arguments' of a call", err);
    if (status != GPT_OK)
        return status;
    gpt_json_keep_numbers(object, text);
    if (!cJSON_IsObject(object)) {
        cJSON_Delete(object);
        return gpt_fail(err, GPT_EDATA,
                        "'arguments' of a call must be an object of JSON");
    }
    if (cJSON_HasObjectItem(function, "arguments"))
        cJSON_ReplaceItemInObjectCaseSensitive(function, "arguments", object);
    else
        gpt_json_add(function, "arguments", object);
    return GPT_OK;
}

/* One that is no function is refused by its type, as of OpenAI's own tools. */
static int check_type(const cJSON *given, const char *what,
                      struct gpt_err *err)
{
    const cJSON *type = gpt_json_member(given, "type");

    if (!type ||
        (cJSON_IsString(type) && strcmp(type->valuestring, "function") == 0))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "'type' of %s can only be \"function\" "
                    "here", what);
}

/* A name is what a model is asked to write, and what it has written. */
static int check_function(const cJSON *function, const char *what,
                          struct gpt_err *err)
{
    if (cJSON_IsString(gpt_json_member(function, "name")))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "'function' of %s must be an object with a string 'name'",
                    what);
}

static int add_call(cJSON *calls, const cJSON *given, struct gpt_err *err)
{
    static const char what[] = "a call";
    static const char *const known[] = {"id", "type", "function", NULL};
    static const char *const of_function[] = {"name", "arguments", NULL};
    static const struct gpt_idle_field idle[] = {
        {"index", {NULL, NULL}}, /* its place in a stream */
        {NULL, {NULL, NULL}},
    };
    const cJSON *function = gpt_json_member(given, "function");

    GPT_TRY(gpt_fields_check(given, known, idle, "'tool_calls': an element",
                             err));
    GPT_TRY(check_type(given, what, err));
    GPT_TRY(check_function(function, what, err));
    GPT_TRY(gpt_fields_check(function, of_function, NULL, "'function'", err));
    cJSON *copy = gpt_json_add(calls, NULL, cJSON_Duplicate(given, true));
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "index");
    return parse_arguments(
        cJSON_GetObjectItemCaseSensitive(copy, "function"), err);
}

/* What a template does not look at would be dropped in silence. */
static int add_calls(const struct chat *c, cJSON *message, const cJSON *given,
                     struct gpt_err *err)
{
    const cJSON *item;

    if (!cJSON_IsArray(given))
        return gpt_fail(err, GPT_EDATA, "'tool_calls' must be a list");
    if (!given->child)
        return GPT_OK;
    if (!gpt_chat_knows(c->s->m->chat, c->tools, "tool_calls"))
        return gpt_fail(err, GPT_EDATA, "'tool_calls': the template of the "
                        "model has no place for them");
    cJSON *calls = cJSON_AddArrayToObject(message, "tool_calls");
    cJSON_ArrayForEach(item, given) GPT_TRY(add_call(calls, item, err));
    return GPT_OK;
}

/* What the template sees of tools: the list as it is, or nothing where the
 * client wants none of them called. Its elements are the template's to
 * write. */
static int add_tools(struct chat *c, cJSON *input, const cJSON *body,
                     struct gpt_err *err)
{
    static const char what[] = "an element of 'tools'";
    const cJSON *given = gpt_json_member(body, "tools"), *item;
    const char *choice =
        cJSON_GetStringValue(gpt_json_member(body, "tool_choice"));

    if (given && !cJSON_IsArray(given))
        return gpt_fail(err, GPT_EDATA, "'tools' must be a list");
    cJSON_ArrayForEach(item, given)
    {
        GPT_TRY(check_type(item, what, err));
        GPT_TRY(check_function(gpt_json_member(item, "function"), what, err));
    }
    c->tools =
        given && given->child && !(choice && strcmp(choice, "none") == 0);
    if (!c->tools) {
        cJSON_AddNullToObject(input, "tools");
        return GPT_OK;
    }
    /* Nothing here looks at what the model writes. */
    if (cJSON_IsFalse(gpt_json_member(body, "parallel_tool_calls")))
        return gpt_fail(err, GPT_EDATA, "'parallel_tool_calls' can only be "
                        "true beside 'tools' here");
    if (!gpt_chat_knows(c->s->m->chat, true, "tools"))
        return gpt_fail(err, GPT_EDATA, "'tools': the template of the model "
                        "has no place for them");
    gpt_json_add(input, "tools", cJSON_Duplicate(given, true));
    return GPT_OK;
}

/* ---- messages ---- */

/* Members that are strings, in the client's order. */
static int add_member(const struct chat *c, cJSON *message, const char *role,
                      const cJSON *item, struct gpt_err *err)
{
    if (strcmp(item->string, "content") == 0)
        return add_content(message, role, item, err);
    if (strcmp(item->string, "tool_calls") == 0)
        return add_calls(c, message, item, err);
    if (!cJSON_IsString(item))
        return gpt_fail(err, GPT_EDATA, "'%.64s' of a message must be a "
                        "string", item->string);
    cJSON_AddStringToObject(message, item->string, item->valuestring);
    return GPT_OK;
}

/* A field that the template may not see would be dropped in silence, so that
 * others are refused. */
static int check_message(const cJSON *given, const char *role,
                         struct gpt_err *err)
{
    static const char *const known[] = {"role", "content", "name", NULL};
    static const char *const of_calls[] = {"role", "content", "name",
                                           "tool_calls", NULL};
    static const char *const of_results[] = {"role", "content", "name",
                                             "tool_call_id", NULL};
    /* what a message is of anyway, as the harness sends it; and what a client
     * gives back of an answer */
    static const struct gpt_idle_field idle[] = {
        {"type", {"\"text\"", NULL}},
        {"tool_calls", {"[]", NULL}},
        {"annotations", {"[]", NULL}},
        {NULL, {NULL, NULL}},
    };

    return gpt_fields_check(given,
                            strcmp(role, "assistant") == 0 ? of_calls
                            : strcmp(role, "tool") == 0    ? of_results
                                                           : known,
                            idle, "'messages': an element", err);
}

static int add_message(const struct chat *c, cJSON *messages,
                       const cJSON *given, struct gpt_err *err)
{
    cJSON *message = gpt_json_add(messages, NULL, cJSON_CreateObject());
    const char *role = cJSON_GetStringValue(gpt_json_member(given, "role"));
    const cJSON *item;

    GPT_TRY(check_message(given, role ? role : "", err));
    if (!role)
        return gpt_fail(err, GPT_EDATA, "'role' of a message must be a string");
    if (strcmp(role, "function") == 0)
        return gpt_fail(err, GPT_EDATA, "'role' can only be \"tool\" of a "
                        "result here, and not \"function\"");
    cJSON_ArrayForEach(item, given)
    {
        if (!cJSON_IsNull(item) && strcmp(item->string, "type") != 0 &&
            strcmp(item->string, "annotations") != 0)
            GPT_TRY(add_member(c, message, role, item, err));
    }
    return gpt_json_member(given, "content")
               ? GPT_OK
               : add_content(message, role, NULL, err);
}

/* What the template sees beside messages. Its other variables are the client's
 * own. */
static int add_variables(cJSON *input, const cJSON *body, struct gpt_err *err)
{
    const cJSON *more = gpt_json_member(body, "chat_template_kwargs"), *item;
    bool prompt = true;

    GPT_TRY(gpt_field_flag(body, "add_generation_prompt", &prompt, err));
    cJSON_AddBoolToObject(input, "add_generation_prompt", prompt);
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

/* The tree is built from the body's: templates see names and strings, tools and
 * their calls, and never what the client sent beside them. */
static int make_input(cJSON *input, const struct gpt_server *s,
                      const cJSON *body, struct gpt_err *err)
{
    const cJSON *given = gpt_json_member(body, "messages"), *item;
    cJSON *messages = cJSON_AddArrayToObject(input, "messages");
    struct chat c = {.s = s};

    if (!cJSON_IsArray(given))
        return gpt_fail(err, GPT_EDATA, "'messages' must be a list of objects "
                        "with 'role' and 'content'");
    if (cJSON_GetArraySize(given) == 0)
        return gpt_fail(err, GPT_EDATA, "'messages' is missing or empty");
    GPT_TRY(add_tools(&c, input, body, err));
    cJSON_ArrayForEach(item, given)
        GPT_TRY(add_message(&c, messages, item, err));
    GPT_TRY(add_variables(input, body, err));
    return gpt_json_out_of_memory() ? gpt_no_memory(err, "a request") : GPT_OK;
}

/* The text is not encoded as prompts of completions are: names of special
 * tokens in it are the tokens, which the template puts there. */
int gpt_call_read_chat(const struct gpt_server *s, const cJSON *body,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    cJSON *input = cJSON_CreateObject();
    int status = make_input(input, s, body, err);

    if (status == GPT_OK)
        status = gpt_chat_encode(s->m->chat, input, s->chat_encoder, ids, err);
    cJSON_Delete(input);
    return status;
}
