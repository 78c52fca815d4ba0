/* Templates of chats; see chat.h. Start at gpt_chat_open(). */
#include "tokenizer/chat.h"

#include "base/io.h"
#include "base/log.h"
#include "text/jinja.h"
#include "tokenizer/gguf_file.h"
#include "tokenizer/hf_files.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG = 64 << 20 };

struct gpt_chat {
    struct gpt_jinja *template;
    struct gpt_jinja *with_tools; /* NULL: the same */
    struct gpt_err no_tools; /* why that one is not known, or no error */
    cJSON *special; /* an object: names of special tokens */
};

/* ---- special tokens ---- */

static const char *const special_names[] = {
    "bos_token", "eos_token", "unk_token", "sep_token",
    "pad_token", "cls_token", "mask_token",
};

/* The text of a token, which is a string, or an object with the text and
 * flags. */
static const cJSON *text_of_token(const cJSON *token)
{
    if (cJSON_IsObject(token))
        token = cJSON_GetObjectItemCaseSensitive(token, "content");
    return cJSON_IsString(token) ? token : NULL;
}

/* Adds the special tokens of a configuration. What an earlier file has said
 * stays. */
static void add_special(struct gpt_chat *chat, const cJSON *config)
{
    for (size_t i = 0; i < GPT_COUNT(special_names); i++) {
        const char *name = special_names[i];
        const cJSON *token = text_of_token(
            cJSON_GetObjectItemCaseSensitive(config, name));

        if (token && !cJSON_HasObjectItem(chat->special, name))
            cJSON_AddStringToObject(chat->special, name, token->valuestring);
    }
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(
        config, "additional_special_tokens"), *item;
    if (!cJSON_IsArray(list) ||
        cJSON_HasObjectItem(chat->special, "additional_special_tokens"))
        return;
    cJSON *copy = cJSON_AddArrayToObject(chat->special,
                                         "additional_special_tokens");
    cJSON_ArrayForEach(item, list)
    {
        const cJSON *token = text_of_token(item);

        if (token)
            gpt_json_add(copy, NULL, cJSON_CreateString(token->valuestring));
    }
}

/* ---- where a template is ---- */

/* Compiles a template, whose messages begin with the place that it comes
 * from. */
static int compile(struct gpt_jinja **template, const char *text, size_t len,
                   const char *place, struct gpt_err *err)
{
    const int status = gpt_jinja_compile(template, text, len, err);

    return status == GPT_OK ? GPT_OK : gpt_context(err, "%s", place);
}

/* Reads and compiles a template's file, whose size has the limit of
 * templates. */
static int compile_file(struct gpt_jinja **template, const char *path,
                        struct gpt_err *err)
{
    char *text;
    size_t len;

    GPT_TRY(gpt_read_file(path, GPT_JINJA_SOURCE, &text, &len, err));
    const int status = compile(template, text, len, path, err);
    gpt_free(text);
    return status;
}

const cJSON *gpt_chat_find_template(const cJSON *config, const char *wanted)
{
    const cJSON *found =
        cJSON_GetObjectItemCaseSensitive(config, "chat_template");
    const cJSON *item;

    if (!cJSON_IsArray(found))
        return cJSON_IsString(found) && strcmp(wanted, "default") == 0 ? found
                                                                       : NULL;
    cJSON_ArrayForEach(item, found)
    {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(item, "name");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(item, "template");

        if (cJSON_IsString(name) && cJSON_IsString(text) &&
            strcmp(name->valuestring, wanted) == 0)
            return text;
    }
    return NULL;
}

/* Says which templates no chat has: a program may ask for them by their names,
 * as for one of answers from documents, and gpt-generate has another way. */
static void say_others(const char *place, const struct gpt_buf *names)
{
    if (names->len > 0)
        gpt_info("%s has more templates of chats, which are not used (%s): "
                 "one of them can be given as a file", place, names->data);
}

static int add_other(struct gpt_buf *names, const char *name)
{
    return gpt_buf_printf(names, "%s%.100s", names->len > 0 ? ", " : "", name);
}

static bool is_used(const char *name)
{
    return strcmp(name, "default") == 0 || strcmp(name, "tool_use") == 0;
}

/* The names in a list of templates. */
static void say_others_of_list(const char *path, const cJSON *list)
{
    const cJSON *item;
    struct gpt_buf names = {0};
    int status = GPT_OK;

    cJSON_ArrayForEach(item, list)
    {
        const char *name = cJSON_GetStringValue(
            cJSON_GetObjectItemCaseSensitive(item, "name"));

        if (name && !is_used(name) && status == GPT_OK)
            status = add_other(&names, name);
    }
    say_others(path, &names);
    gpt_buf_free(&names);
}

/* Compiles the templates of one place; NULL: there is none. A template for
 * tools that is not supported is no reason to refuse other chats. */
static int compile_both(struct gpt_chat *chat, const char *text,
                        const char *tools, const char *path,
                        struct gpt_err *err)
{
    if (chat->template || !text)
        return GPT_OK;
    GPT_TRY(compile(&chat->template, text, strlen(text), path, err));
    if (tools)
        chat->no_tools.status =
            compile(&chat->with_tools, tools, strlen(tools),
                    "the template for tools", &chat->no_tools);
    return GPT_OK;
}

/* Reads one of the two configurations; only the first may hold a template. */
static int read_config(struct gpt_chat *chat, const char *dir,
                       const char *name, struct gpt_err *err)
{
    char path[GPT_JOINED_BYTES];
    cJSON *config;
    int status;

    if (!gpt_path_holds(dir, name))
        return GPT_OK;
    GPT_TRY(gpt_path_join(path, sizeof(path), dir, name, err));
    GPT_TRY(gpt_json_read(&config, path, MAX_CONFIG, err));
    add_special(chat, config);
    if (!chat->template)
        say_others_of_list(path, cJSON_GetObjectItemCaseSensitive(
                                     config, "chat_template"));
    /* Special tokens are read also where the template is another file's: it
     * names them as variables. */
    status = compile_both(
        chat, cJSON_GetStringValue(gpt_chat_find_template(config, "default")),
        cJSON_GetStringValue(gpt_chat_find_template(config, "tool_use")), path,
        err);
    cJSON_Delete(config);
    return status;
}

static int is_other_file(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');

    return end && end != entry->d_name && strcmp(end, ".jinja") == 0 &&
           strcmp(entry->d_name, "tool_use.jinja") != 0;
}

/* Reads what lies in a directory beside chat_template.jinja, a file a template:
 * the one of chats with tools. One that is not supported is no reason to refuse
 * other chats. */
static int read_additional(struct gpt_chat *chat, const char *dir,
                           struct gpt_err *err)
{
    struct dirent **entry;
    struct gpt_buf names = {0};
    char path[GPT_JOINED_BYTES];

    if (!gpt_path_holds(dir, GPT_HF_TEMPLATES))
        return GPT_OK;
    GPT_TRY(gpt_path_join(path, sizeof(path), dir, GPT_HF_TEMPLATES, err));
    const int n = scandir(path, &entry, is_other_file, alphasort);
    for (int i = 0; i < n; i++) {
        char *name = entry[i]->d_name;

        *strrchr(name, '.') = '\0';
        if (add_other(&names, name) != GPT_OK)
            names.len = 0;
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
    say_others(path, &names);
    gpt_buf_free(&names);
    if (!gpt_path_holds(path, "tool_use.jinja"))
        return GPT_OK;
    GPT_TRY(gpt_path_join(path, sizeof(path), dir,
                          GPT_HF_TEMPLATES "/tool_use.jinja", err));
    if (compile_file(&chat->with_tools, path, &chat->no_tools) != GPT_OK)
        gpt_context(&chat->no_tools, "the template for tools");
    return GPT_OK;
}

/* Reads the files of a directory. transformers writes templates to a file of
 * their own now, and reads that first. */
static int read_directory(struct gpt_chat *chat, const char *dir,
                          struct gpt_err *err)
{
    static const char name[] = GPT_HF_CHAT_TEMPLATE;
    char path[GPT_JOINED_BYTES];

    if (!chat->template && gpt_path_holds(dir, name)) {
        GPT_TRY(gpt_path_join(path, sizeof(path), dir, name, err));
        GPT_TRY(compile_file(&chat->template, path, err));
        GPT_TRY(read_additional(chat, dir, err));
    }
    GPT_TRY(read_config(chat, dir, GPT_HF_TOKENIZER_CONFIG, err));
    return read_config(chat, dir, GPT_HF_SPECIAL_TOKENS, err);
}

/* Reads the special tokens of a GGUF file, where they are ids. */
static int read_keys(struct gpt_chat *chat, struct gpt_gguf *g,
                     const struct gpt_tokenizer *tok, const char *path,
                     struct gpt_err *err)
{
    static const struct {
        const char *key, *name;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", "bos_token"},
        {"tokenizer.ggml.eos_token_id", "eos_token"},
        {"tokenizer.ggml.unknown_token_id", "unk_token"},
        {"tokenizer.ggml.padding_token_id", "pad_token"},
    };
    const char *text = NULL, *tools = NULL;

    for (size_t i = 0; i < GPT_COUNT(ids); i++) {
        const int64_t n = gpt_tokenizer_vocab_size(tok);
        char name[256];
        int64_t id = -1;
        size_t len = 0;

        GPT_TRY(gpt_gguf_int(g, ids[i].key, -1, UINT32_MAX, &id, err));
        /* A writer that knows of no such token leaves the key out, or sets
         * it to -1 or 2^32 - 1. */
        if (id < 0 || id >= n)
            continue;
        const char *bytes = gpt_token_bytes(tok, (int32_t)id, &len);
        if (len >= sizeof(name))
            continue;
        memcpy(name, bytes, len);
        name[len] = '\0';
        cJSON_AddStringToObject(chat->special, ids[i].name, name);
    }
    GPT_TRY(gpt_gguf_text(g, "tokenizer.chat_template", &text, err));
    GPT_TRY(gpt_gguf_text(g, "tokenizer.chat_template.tool_use", &tools, err));
    return compile_both(chat, text, tools, path, err);
}

/* Reads template and tokens of a GGUF file. The tokens are the tokenizer's,
 * which was opened from the same file. */
static int read_gguf(struct gpt_chat *chat, const char *path,
                     const struct gpt_tokenizer *tok, struct gpt_err *err)
{
    struct gpt_gguf g = {0};
    int status;

    GPT_TRY(gpt_gguf_open(&g, path, err));
    status = read_keys(chat, &g, tok, path, err);
    gpt_gguf_close(&g);
    return status;
}

/* ---- the whole ---- */

/* Reads the template. A file that is given comes first, and other templates are
 * then left out. */
static int read_all(struct gpt_chat *chat, const char *dir, const char *file,
                    const struct gpt_tokenizer *tok, struct gpt_err *err)
{
    if (!chat->special)
        return gpt_no_memory(err, "a template");
    if (file)
        GPT_TRY(compile_file(&chat->template, file, err));
    GPT_TRY(gpt_gguf_recognises(dir) ? read_gguf(chat, dir, tok, err)
                                     : read_directory(chat, dir, err));
    return gpt_json_out_of_memory() ? gpt_no_memory(err, "a template") : GPT_OK;
}

/* A model without a template is no error: most are trained for no chats. */
int gpt_chat_open(struct gpt_chat **out, const char *dir, const char *file,
                  const struct gpt_tokenizer *tok, struct gpt_err *err)
{
    struct gpt_chat *chat;

    *out = NULL;
    GPT_TRY(gpt_new(&chat, 1, sizeof(*chat), "a template", err));
    chat->special = cJSON_CreateObject();
    const int status = read_all(chat, dir, file, tok, err);
    if (status == GPT_OK && chat->template)
        *out = chat;
    else
        gpt_chat_close(chat);
    return status;
}

/* Closes a chat, even one that was opened half-way. */
void gpt_chat_close(struct gpt_chat *chat)
{
    if (!chat)
        return;
    gpt_jinja_free(chat->template);
    gpt_jinja_free(chat->with_tools);
    cJSON_Delete(chat->special);
    gpt_free(chat);
}

static const struct gpt_jinja *choose(const struct gpt_chat *chat, bool tools)
{
    return tools && chat->with_tools ? chat->with_tools : chat->template;
}

/* A template that is not supported may know it: the rendering says why not. */
bool gpt_chat_knows(const struct gpt_chat *chat, bool tools, const char *name)
{
    return (tools && chat->no_tools.status != GPT_OK) ||
           gpt_jinja_mentions(choose(chat, tools), name);
}

/* Renders the template. Special tokens are put in first: what the caller gives
 * under such a name counts more, as with transformers. */
static int render(const struct gpt_chat *chat, const cJSON *input,
                  struct gpt_buf *text, struct gpt_err *err)
{
    const struct gpt_jinja_input in = {input, chat->special, 0};
    const bool tools =
        cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(input, "tools"));

    if (tools && chat->no_tools.status != GPT_OK)
        return gpt_fail(err, GPT_EDATA, "%s", chat->no_tools.text);
    if (gpt_jinja_render(choose(chat, tools), &in, text, err) == GPT_OK)
        return GPT_OK;
    return gpt_context(err, "the chat template");
}

/* Tokenizers that put ids around a text would put them around none, too: it is
 * the text that must not be empty. */
int gpt_chat_encode(const struct gpt_chat *chat, const cJSON *input,
                    struct gpt_encoder *enc, struct gpt_ids *ids,
                    struct gpt_err *err)
{
    struct gpt_buf text = {0};
    int status = render(chat, input, &text, err);

    if (status == GPT_OK && text.len == 0)
        status = gpt_fail(err, GPT_EDATA, "the template makes no text of the "
                                          "messages");
    if (status == GPT_OK)
        status = gpt_encode(enc, text.data, text.len, ids, err);
    gpt_buf_free(&text);
    return status;
}
