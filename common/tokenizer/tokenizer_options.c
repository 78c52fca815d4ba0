/* See tokenizer_options.h. One table, all_names[], says which files a family
 * has: the options that name them, their names in checkpoints and the hints all
 * come from it. Start at gpt_tokenizer_files(). */
#include "tokenizer/tokenizer_options.h"

#include "base/io.h"
#include "base/log.h"
#include "text/unicode.h"
#include "tokenizer/family.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/hf_files.h"

#include <assert.h>
#include <string.h>

/* The names in checkpoints of what --vocab-file, --merge-file and
 * --tokenizer-model name, and of files that are read if they lie beside that:
 * what ends a document, and how chats are written. */
struct file_names {
    const char *type, *vocab, *merges, *model, *beside[2];
};

/* TikTokenizer's ranks are kept as tokenizer.model, too, by the last row. */
static const struct file_names all_names[] = {
    {.type = "GPT2BPETokenizer", .vocab = GPT_HF_VOCAB,
     .merges = GPT_HF_MERGES},
    {.type = "HuggingFaceTokenizer", .model = GPT_HF_TOKENIZER,
     .beside = {GPT_HF_TOKENIZER_CONFIG, GPT_HF_CHAT_TEMPLATE}},
    {.type = "ByteTokenizer"},
    {.type = "NullTokenizer"},
    {.type = NULL, .model = GPT_HF_PIECES},
};

/* The last row serves every type that has none of its own, and no type. */
static const struct file_names *names_of(const char *type)
{
    const struct file_names *n = all_names;

    while (n->type && (!type || strcmp(n->type, type) != 0))
        n++;
    return n;
}

/* ---- the family ---- */

/* The first character of a .json file: Hugging Face's is an object, Megatron's
 * list of ranks an array. */
static const char *type_of_json(const char *path)
{
    char block[64];
    struct gpt_in *in;
    const char *type = NULL;

    if (gpt_in_open(&in, path, NULL) != GPT_OK)
        return NULL;
    size_t n = sizeof(block) - 1;
    if ((int64_t)n > gpt_in_size(in))
        n = (size_t)gpt_in_size(in);
    if (gpt_in_read(in, block, 0, n, NULL) == GPT_OK) {
        block[n] = '\0';
        const char *first = block + strspn(block, " \t\r\n");

        type = *first == '{'   ? "HuggingFaceTokenizer"
               : *first == '[' ? "TikTokenizer"
                               : NULL;
    }
    gpt_in_close(in);
    return type;
}

/* The family whose file or directory `model` is, by its name; NULL when the
 * name does not tell. */
static const char *type_of_model(const char *model)
{
    const char *inside;

    if (gpt_path_is_dir(model)) {
        for (const struct file_names *n = all_names; n->type; n++)
            if (gpt_path_holds(model, n->model))
                return n->type;
        return NULL;
    }
    if (gpt_path_ends_in(model, ".json"))
        return type_of_json(model);
    if (gpt_path_ends_in(model, ".tiktoken"))
        return "TikTokenizer";
    /* a file that cannot be read fails in its own words as it is opened */
    if (gpt_gguf_recognises(model))
        return gpt_gguf_tokenizer_type(&inside, model, NULL) == GPT_OK ? inside
                                                                       : NULL;
    return gpt_path_ends_in(model, ".model") ? "SentencePieceTokenizer" : NULL;
}

/* True, with a hint, for a directory that has GPT-2's two files in place of the
 * one that --tokenizer-model names. */
static bool hint_at_pair(const char *dir, struct gpt_err *err)
{
    const struct file_names *pair = names_of("GPT2BPETokenizer");

    if (!dir || !gpt_path_holds(dir, pair->vocab) ||
        !gpt_path_holds(dir, pair->merges))
        return false;
    gpt_hint(err, "'%.150s' has %s and %s: --vocab-file and --merge-file name "
             "these, in place of --tokenizer-model",
             dir, pair->vocab, pair->merges);
    return true;
}

enum { MOST_IDLE = 8 };

/* What has no files is bytes or numbers, without names of special tokens. */
static bool has_words(const char *type)
{
    return type && (names_of(type)->vocab || names_of(type)->model);
}

/* The options that the family, NULL for none, does not read; returns their
 * number. */
static size_t list_idle(const struct gpt_tokenizer_options *o,
                        const char *idle[MOST_IDLE])
{
    size_t n = 0;
    const struct file_names *names = names_of(o->type);
    const bool tik = o->type && strcmp(o->type, "TikTokenizer") == 0;
    const bool hf = o->type && strcmp(o->type, "HuggingFaceTokenizer") == 0;
    const struct {
        const char *option;
        bool in_vain;
    } rows[] = {
        {"vocab-file", o->vocab_file && !names->vocab},
        {"merge-file", o->merge_file && !names->merges},
        {"tokenizer-model", o->model && !names->model},
        {"tiktoken-pattern", o->tiktoken_pattern && !tik},
        {"tiktoken-num-special-tokens", o->tiktoken_num_special && !tik},
        {"tokenizer-special-tokens", o->special_tokens.n && !tik},
        {"tokenizer-hf-no-include-special-tokens", o->hf_no_special && !hf},
        {"special", gpt_tokenizer_parses_special(o) && !has_words(o->type)},
    };

    static_assert(GPT_COUNT(rows) == MOST_IDLE, "room for all");
    for (size_t i = 0; i < GPT_COUNT(rows); i++)
        if (rows[i].in_vain)
            idle[n++] = rows[i].option;
    return n;
}

/* The first of them, or NULL. */
static const char *find_idle(const struct gpt_tokenizer_options *o)
{
    const char *idle[MOST_IDLE];

    return list_idle(o, idle) ? idle[0] : NULL;
}

/* A NullTokenizer has neither files nor words: what is said of another family
 * can change no id. Scripts of Megatron-LM that measure speeds put that type
 * behind the options of their real tokenizer, and it skips these, too. */
static void drop_idle(struct gpt_tokenizer_options *o)
{
    const char *idle[MOST_IDLE];
    const size_t n = list_idle(o, idle);

    for (size_t i = 0; i < n; i++)
        gpt_warn("--%s has no effect on %s", idle[i], o->type);
    o->vocab_file = o->merge_file = o->model = o->tiktoken_pattern = NULL;
    o->special = NULL;
    o->special_tokens.n = o->tiktoken_num_special = 0;
    o->hf_no_special = false;
}

/* An option that the family does not read would be typed in vain, and the user
 * would believe that it had been obeyed. */
static int check_effect(const struct gpt_tokenizer_options *o,
                        struct gpt_err *err)
{
    const struct file_names *names = names_of(o->type);
    const char *fits, *idle = find_idle(o);

    if (!idle)
        return GPT_OK;
    fits = o->model ? type_of_model(o->model) : NULL;
    gpt_fail(err, GPT_EUSAGE, "--%s has no effect on %s", idle, o->type);
    if (names->vocab && !o->vocab_file && hint_at_pair(o->model, err))
        return GPT_EUSAGE;
    return o->model && !names->model && fits
               ? gpt_hint(err, "'%.200s' is of --tokenizer-type %s", o->model,
                          fits)
               : gpt_hint(err, "leave it out, or choose its family with "
                               "--tokenizer-type");
}

int gpt_tokenizer_settle_none(const struct gpt_tokenizer_options *o,
                              struct gpt_err *err)
{
    const char *idle = o->vocab_size ? "vocab-size" : find_idle(o);

    if (!idle)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "--%s has no effect without a tokenizer", idle);
    return gpt_hint(err, "name one with --tokenizer-type, --tokenizer-model, "
                         "or --vocab-file and --merge-file");
}

/* The size of the others follows from their files. */
static int check_size(const struct gpt_tokenizer_options *o,
                      struct gpt_err *err)
{
    if (!o->vocab_size || strcmp(o->type, "NullTokenizer") == 0 ||
        strcmp(o->type, "TikTokenizer") == 0)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "--vocab-size has no effect on %s", o->type);
    return gpt_hint(err, "leave it out: the size is that of the vocabulary");
}

/* The type that is there without --tokenizer-type is a default, and a file says
 * more than a default. --vocab-file goes first: with it, --tokenizer-model is
 * the option too many. */
int gpt_tokenizer_settle(struct gpt_tokenizer_options *o, bool typed,
                         const char *fallback, struct gpt_err *err)
{
    if (!typed) {
        o->type = o->vocab_file || o->merge_file ? "GPT2BPETokenizer"
                  : o->model                     ? type_of_model(o->model)
                                                 : NULL;
        if (!o->type)
            o->type = fallback;
    }
    if (!typed && o->model && !o->vocab_file && !o->merge_file &&
        !names_of(o->type)->model) {
        char path[GPT_PATH_BYTES];

        GPT_TRY(gpt_tokenizer_file(o->model, "tokenizer.json", path,
                                   sizeof(path), err));
        gpt_fail(err, GPT_EUSAGE,
                 "'%.200s' does not tell by its name which family of "
                 "tokenizers it is of",
                 o->model);
        return hint_at_pair(o->model, err)
                   ? GPT_EUSAGE
                   : gpt_hint(err, "name the family with --tokenizer-type");
    }
    GPT_TRY(check_size(o, err));
    if (strcmp(o->type, "NullTokenizer") == 0)
        drop_idle(o);
    return check_effect(o, err);
}

/* ---- opening ---- */

/* The first option that the type needs and that is not given; for what has
 * nothing to do with a missing file, the options that the numbers come from. */
static void hint_options(const struct gpt_tokenizer_options *o,
                         struct gpt_err *err)
{
    const struct file_names *names = names_of(o->type);

    if (names->vocab && !o->vocab_file)
        gpt_hint(err, "name it with --vocab-file");
    else if (names->merges && !o->merge_file)
        gpt_hint(err, "name it with --merge-file");
    else if (names->model && !o->model)
        gpt_hint(err, "name it with --tokenizer-model");
    else if (strcmp(o->type, "NullTokenizer") == 0)
        gpt_hint(err, "give it with --vocab-size");
    else if (strcmp(o->type, "TikTokenizer") == 0)
        gpt_hint(err, "see --tiktoken-pattern, --vocab-size, "
                 "--tiktoken-num-special-tokens and "
                 "--tokenizer-special-tokens");
}

/* A wrong use gets a hint. Where a file is damaged, the options are right,
 * unless two of them are swapped. */
int gpt_tokenizer_open_given(struct gpt_tokenizer **tok,
                             const struct gpt_tokenizer_options *o,
                             struct gpt_err *err)
{
    GPT_TRY(check_effect(o, err));
    int status = gpt_tokenizer_open(tok, o, err);

    if (status == GPT_EUSAGE)
        hint_options(o, err);
    if (status == GPT_EIO && o->model &&
        !gpt_path_holds(o->model, names_of(o->type)->model))
        hint_at_pair(o->model, err);
    if (status == GPT_EDATA && o->vocab_file && o->merge_file &&
        !type_of_json(o->vocab_file) && type_of_json(o->merge_file))
        gpt_hint(err, "--vocab-file names vocab.json and --merge-file "
                      "merges.txt; here they look swapped");
    return status;
}

/* ---- files ---- */

/* Adds the file that an option names, if the type has such a file. */
static int add_file(struct gpt_tokenizer_file *files, size_t *n,
                    const char *name, const char *option, const char *path,
                    struct gpt_err *err)
{
    if (!name || !path)
        return GPT_OK;
    assert(*n < GPT_TOKENIZER_FILES);
    struct gpt_tokenizer_file *file = &files[*n];
    file->name = name;
    file->option = option;
    GPT_TRY(gpt_tokenizer_file(path, name, file->path, sizeof(file->path),
                               err));
    (*n)++;
    return GPT_OK;
}

/* `name` in the directory of the file before it, if it is there. */
static void add_beside(struct gpt_tokenizer_file *files, size_t *n,
                       const char *name)
{
    if (!name || *n == 0)
        return;
    const char *model = files[*n - 1].path, *slash = strrchr(model, '/');
    size_t dir = slash ? (size_t)(slash - model) + 1 : 0;
    assert(*n < GPT_TOKENIZER_FILES);
    struct gpt_tokenizer_file *file = &files[*n];
    if (dir + strlen(name) >= sizeof(file->path))
        return;
    memcpy(file->path, model, dir);
    memcpy(file->path + dir, name, strlen(name) + 1);
    file->name = name;
    file->option = files[*n - 1].option;
    /* the file may be absent, and is part of the tokenizer if it is not */
    *n += gpt_path_exists(file->path);
}

int gpt_tokenizer_files(const struct gpt_tokenizer_options *o,
                        struct gpt_tokenizer_file files[GPT_TOKENIZER_FILES],
                        size_t *n, struct gpt_err *err)
{
    const struct file_names *names = names_of(o->type);

    *n = 0;
    GPT_TRY(add_file(files, n, names->vocab, "vocab-file", o->vocab_file,
                     err));
    GPT_TRY(add_file(files, n, names->merges, "merge-file", o->merge_file,
                     err));
    GPT_TRY(add_file(files, n, names->model, "tokenizer-model", o->model,
                     err));
    for (size_t i = 0; i < GPT_COUNT(names->beside); i++)
        add_beside(files, n, names->beside[i]);
    return GPT_OK;
}

/* Without a type, GPT-2's, the default of most programs, is meant. */
bool gpt_tokenizer_named(const struct gpt_tokenizer_options *o)
{
    const struct file_names *names = names_of(o->type);

    if (!o->type || names->vocab)
        return o->vocab_file != NULL;
    return !names->model || o->model;
}

/* A newer Unicode may cut a text in other places, so data sets record it. */
int gpt_tokenizer_version(struct gpt_buf *b)
{
    return gpt_buf_printf(b, "Unicode %s\n", GPT_UNICODE_VERSION);
}

/* ---- checkpoints ---- */

/* The first row whose files are there decides. A checkpoint without any of them
 * gets the default type, whose files the user must then name. */
static const char *type_of_files(const char *dir)
{
    for (const struct file_names *n = all_names; n->type; n++)
        if (gpt_path_holds(dir, n->model) ||
            (gpt_path_holds(dir, n->vocab) && gpt_path_holds(dir, n->merges)))
            return n->type;
    return gpt_path_holds(dir, names_of(NULL)->model) ? "SentencePieceTokenizer"
                                                      : gpt_tokenizer_types[0];
}

int gpt_tokenizer_type_in(const char **type, const char *dir,
                          struct gpt_err *err)
{
    *type = NULL;
    if (gpt_gguf_recognises(dir))
        GPT_TRY(gpt_gguf_tokenizer_type(type, dir, err));
    if (!*type)
        *type = type_of_files(dir);
    return GPT_OK;
}

/* Only what was given is kept, so that the defaults of a later version hold for
 * the rest. */
static void put_string(cJSON *json, const char *key, const char *value)
{
    if (value)
        cJSON_AddStringToObject(json, key, value);
}

cJSON *gpt_tokenizer_to_json(const struct gpt_tokenizer_options *o)
{
    cJSON *json = cJSON_CreateObject();

    put_string(json, "type", o->type);
    put_string(json, "special", o->special);
    put_string(json, "pattern", o->tiktoken_pattern);
    if (o->hf_no_special)
        cJSON_AddTrueToObject(json, "hf_no_special");
    if (o->tiktoken_num_special)
        cJSON_AddNumberToObject(json, "num_special",
                                (double)o->tiktoken_num_special);
    if (o->vocab_size)
        cJSON_AddNumberToObject(json, "vocab_size", (double)o->vocab_size);
    if (o->special_tokens.n)
        gpt_json_add(json, "special_tokens",
                     cJSON_CreateStringArray(o->special_tokens.items,
                                             (int)o->special_tokens.n));
    return json;
}

/* What was given on the command line goes before what the checkpoint has. */
static void take_string(const char **value, const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);

    if (!*value && cJSON_IsString(item))
        *value = item->valuestring;
}

/* Strings stay in the JSON object, only the list of them is new. */
static int take_list(struct gpt_list *list, const cJSON *json,
                     struct gpt_arena *arena, struct gpt_err *err)
{
    const cJSON *items =
        cJSON_GetObjectItemCaseSensitive(json, "special_tokens");

    if (list->n || !cJSON_IsArray(items))
        return GPT_OK;
    list->items = gpt_arena_alloc(arena, (size_t)cJSON_GetArraySize(items),
                                  sizeof(*list->items));
    if (!list->items)
        return gpt_no_memory(err, "special tokens");
    for (const cJSON *i = items->child; i; i = i->next)
        if (cJSON_IsString(i))
            list->items[list->n++] = i->valuestring;
    return GPT_OK;
}

/* A checkpoint holds copies of the tokenizer's files, or none of them. */
static int take_file(const char **path, const char *dir, const char *name,
                     struct gpt_arena *arena, struct gpt_err *err)
{
    char found[GPT_JOINED_BYTES];

    if (*path || !name)
        return GPT_OK;
    GPT_TRY(gpt_path_join(found, sizeof(found), dir, name, err));
    if (!gpt_path_exists(found))
        return GPT_OK;
    *path = gpt_arena_strdup(arena, found);
    return *path ? GPT_OK : gpt_no_memory(err, "a name");
}

/* A checkpoint that is a single file holds the vocabulary itself, and is the
 * file of its tokenizer. */
static int take_inside(struct gpt_tokenizer_options *o, const char *path,
                       struct gpt_arena *arena, struct gpt_err *err)
{
    const char *type;

    GPT_TRY(gpt_gguf_tokenizer_type(&type, path, err));
    if (o->model || !type || !o->type || strcmp(type, o->type) != 0)
        return GPT_OK;
    o->model = gpt_arena_strdup(arena, path);
    return o->model ? GPT_OK : gpt_no_memory(err, "a vocabulary's path");
}

int gpt_tokenizer_from_json(struct gpt_tokenizer_options *o, const cJSON *json,
                            const char *dir, struct gpt_arena *arena,
                            struct gpt_err *err)
{
    /* the type first, as it decides which files there are */
    take_string(&o->type, json, "type");
    if (has_words(o->type))
        take_string(&o->special, json, "special");
    take_string(&o->tiktoken_pattern, json, "pattern");
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "hf_no_special")))
        o->hf_no_special = true;
    if (!o->tiktoken_num_special)
        GPT_TRY(gpt_json_int_or(json, "num_special", 0, 0, 1 << 20,
                                &o->tiktoken_num_special, dir, err));
    if (!o->vocab_size)
        GPT_TRY(gpt_json_int_or(json, "vocab_size", 0, 0, INT32_MAX,
                                &o->vocab_size, dir, err));
    GPT_TRY(take_list(&o->special_tokens, json, arena, err));
    if (gpt_gguf_recognises(dir))
        return take_inside(o, dir, arena, err);
    const struct file_names *names = names_of(o->type);
    GPT_TRY(take_file(&o->vocab_file, dir, names->vocab, arena, err));
    GPT_TRY(take_file(&o->merge_file, dir, names->merges, arena, err));
    return take_file(&o->model, dir, names->model, arena, err);
}
