/* Prompts; see prompts.h. Files are read as streams, so that pipes and
 * terminals serve as well, and a limit on bytes takes the place of the size
 * that a file would have. Start at gpt_prompts_read_text() and
 * gpt_prompts_read_jsonl(). */
#include "cmd/generate/prompts.h"

#include "base/json.h"
#include "base/log.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_BYTES ((size_t)1 << 30)

/* The text is copied with its length: a prompt may hold any bytes, NUL as
 * well. */
static int add(struct gpt_prompts *p, const char *text, size_t len,
               struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&p->items, &p->cap, p->n + 1, sizeof(*p->items), "prompts",
                     err));
    char *copy = gpt_arena_alloc(&p->arena, len + 1, 1);
    if (!copy)
        return gpt_no_memory(err, "prompts");
    memcpy(copy, text, len);
    p->items[p->n++] =
        (struct gpt_prompt){.text = copy, .len = len, .seed = -1};
    return GPT_OK;
}

/* The failure of one prompt is kept until it is that prompt's turn in the
 * output: other prompts are answered. */
int gpt_prompts_refuse(struct gpt_prompts *p, size_t i, const char *text,
                       struct gpt_err *err)
{
    char number[32];

    assert(i < p->n);
    snprintf(number, sizeof(number), "prompt %zu", i + 1);
    const char *where = p->items[i].where ? p->items[i].where : number;
    const size_t room = strlen(where) + strlen(text) + 3;
    char *error = gpt_arena_alloc(&p->arena, room, 1);

    if (!error)
        return gpt_no_memory(err, "prompts");
    snprintf(error, room, "%s: %s", where, text);
    p->items[i].error = error;
    return GPT_OK;
}

/* The arena keeps the text as long as the prompts: the writer reads it when
 * the prompt's turn comes. */
int gpt_prompts_set_text(struct gpt_prompts *p, size_t i, const char *text,
                         size_t len, struct gpt_err *err)
{
    char *copy = gpt_arena_alloc(&p->arena, len + 1, 1);

    assert(i < p->n);
    if (!copy)
        return gpt_no_memory(err, "prompts");
    if (len > 0)
        memcpy(copy, text, len);
    p->items[i].text = copy;
    p->items[i].len = len;
    return GPT_OK;
}

size_t gpt_prompts_refused(const struct gpt_prompts *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++)
        n += p->items[i].error != NULL;
    return n;
}

int gpt_prompts_add(struct gpt_prompts *p, const char *text, size_t len,
                    struct gpt_err *err)
{
    return add(p, text, len, err);
}

/* In messages, "-" would look like an option. */
static const char *name_of(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Reads to the end, whatever it is: a pipe has no size to ask for. */
static int read_stream(FILE *f, const char *name, struct gpt_buf *b,
                       struct gpt_err *err)
{
    enum { BLOCK = 65536 };
    for (size_t got = 1; got > 0;) {
        if (gpt_buf_reserve(b, BLOCK) != GPT_OK)
            return gpt_no_memory(err, name);
        got = fread(b->data + b->len, 1, BLOCK, f);
        b->len += got;
        if (b->len > MOST_BYTES)
            return gpt_fail(err, GPT_EDATA, "%s: more than 1 GiB is no prompt",
                            name);
    }
    b->data[b->len] = 0;
    return ferror(f) ? gpt_fail_errno(err, GPT_EIO, "cannot read '%s'", name)
                     : GPT_OK;
}

/* Standard input stays open: it is the caller's. */
static int read_file(const char *path, struct gpt_buf *b, struct gpt_err *err)
{
    if (strcmp(path, "-") == 0)
        return read_stream(stdin, name_of(path), b, err);
    FILE *f = fopen(path, "re");
    if (!f)
        return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
    int status = read_stream(f, path, b, err);
    fclose(f);
    return status;
}

/* Length without "\n" or "\r\n" at the end: editors end a file with a newline
 * that is not meant to be part of the prompt. */
static size_t without_newline(const char *text, size_t len)
{
    if (len > 0 && text[len - 1] == '\n')
        len--;
    else
        return len;
    return len > 0 && text[len - 1] == '\r' ? len - 1 : len;
}

/* Editors of another system write UTF-16, which begins with a mark. Its bytes
 * would be taken for a text of control characters. */
static bool is_utf16(const struct gpt_buf *b)
{
    return b->len >= 2 && (memcmp(b->data, "\xFF\xFE", 2) == 0 ||
                           memcmp(b->data, "\xFE\xFF", 2) == 0);
}

static int refuse_utf16(const char *path, struct gpt_err *err)
{
    gpt_fail(err, GPT_EDATA, "%s: UTF-16; prompts are UTF-8", name_of(path));
    return gpt_hint(err, "convert it: iconv -f UTF-16 -t UTF-8 '%.100s'", path);
}

/* Reads all of a file, or of standard input. */
static int read_prompts(const char *path, struct gpt_buf *b,
                        struct gpt_err *err)
{
    GPT_TRY(read_file(path, b, err));
    return is_utf16(b) ? refuse_utf16(path, err) : GPT_OK;
}

int gpt_prompts_read_text(struct gpt_prompts *p, const char *path, bool whole,
                          struct gpt_err *err)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* of editors: no text */
    struct gpt_buf b = {0};
    int status = read_prompts(path, &b, err);

    if (status == GPT_OK && whole) {
        status = add(p, b.data, b.len, err);
    } else if (status == GPT_OK) {
        const size_t skip =
            b.len >= 3 && memcmp(b.data, mark, 3) == 0 ? 3 : 0;

        status = add(p, b.data + skip,
                     without_newline(b.data + skip, b.len - skip), err);
    }
    gpt_buf_free(&b);
    return status;
}

/* ---- JSON Lines ---- */

/* The parser's strings end at NUL, so an escaped one would cut a prompt short
 * without a word. It is looked for in the text of the line; a backslash that is
 * escaped itself does not begin an escape. */
static bool has_escaped_nul(const char *line, size_t len)
{
    for (size_t i = 0; i + 6 <= len; i++)
        if (line[i] == '\\') {
            if (memcmp(line + i, "\\u0000", 6) == 0)
                return true;
            i++;
        }
    return false;
}

/* True when no number of the id is rounded: 2^53 itself is what the next number
 * is rounded to. */
static bool is_exact(const cJSON *id)
{
    const cJSON *item;

    if (cJSON_IsNumber(id))
        return fabs(id->valuedouble) < 0x1p53;
    cJSON_ArrayForEach(item, id)
    {
        if (!is_exact(item))
            return false;
    }
    return true;
}

/* The id is kept as its JSON text and printed again, so that any kind of id
 * comes back unchanged. Numbers are the exception: the parser holds them as
 * doubles. */
static int keep_id(struct gpt_prompts *p, struct gpt_prompt *prompt,
                   const cJSON *id, const char *what, struct gpt_err *err)
{
    if (!is_exact(id))
        return gpt_fail(err, GPT_EDATA,
                        "%s: field 'id': a number of 2^53 or more would be "
                        "rounded; write it as a string",
                        what);
    char *text = id ? gpt_json_print(id, false) : NULL;
    prompt->id = text ? gpt_arena_strdup(&p->arena, text) : NULL;
    cJSON_free(text);
    return id && !prompt->id
               ? gpt_no_memory(err, what)
               : GPT_OK;
}

/* Whether an id is one of the model's is known later; here it must be an
 * integer that fits. */
static int read_ids(struct gpt_prompts *p, struct gpt_prompt *prompt,
                    const cJSON *list, const char *what, struct gpt_err *err)
{
    const size_t n = (size_t)cJSON_GetArraySize(list);
    int32_t *ids = gpt_arena_alloc(&p->arena, n + 1, sizeof(*ids));
    const cJSON *item;

    if (!ids)
        return gpt_no_memory(err, what);
    cJSON_ArrayForEach(item, list)
    {
        const double x = cJSON_IsNumber(item) ? item->valuedouble : -1;

        if (x < 0 || x > INT32_MAX || x != floor(x))
            return gpt_fail(err, GPT_EDATA,
                            "%s: element %zu of the prompt is no token id",
                            what, prompt->n_ids + 1);
        ids[prompt->n_ids++] = (int32_t)x;
    }
    prompt->ids = ids;
    return GPT_OK;
}

/* A line's text has one of several names: those of prompts, of documents and of
 * tasks. A field that is null is not given, here and below: tables that are
 * written as lines have one where a cell is empty, and clients for what was not
 * set. */
static const char *text_key(const cJSON *object)
{
    static const char *const keys[] = {"prompt", "text", "context"};

    for (size_t i = 0; i < GPT_COUNT(keys); i++)
        if (gpt_json_member(object, keys[i]))
            return keys[i];
    return keys[0];
}

static int keep_string(struct gpt_prompts *p, const cJSON *object,
                       const char *key, const char **kept, const char *what,
                       struct gpt_err *err)
{
    const char *text = NULL;

    GPT_TRY(gpt_json_string(object, key, &text, what, err));
    *kept = gpt_arena_strdup(&p->arena, text);
    return *kept ? GPT_OK : gpt_no_memory(err, what);
}

/* Fields of requests to a server, and transformers' name of the first. A line
 * has none of them: a warning names each once, since lines may well hold
 * what is for their reader alone. */
static const struct {
    const char *key, *instead;
} of_requests[] = {
    {"max_tokens", "--tokens"},
    {"max_completion_tokens", "--tokens"},
    {"max_new_tokens", "--tokens"},
    {"temperature", "--temperature"},
    {"top_p", "--top-p"},
    {"top_k", "--top-k"},
    {"min_p", "--min-p"},
    {"repetition_penalty", "--repetition-penalty"},
    {"presence_penalty", "--presence-penalty"},
    {"frequency_penalty", "--frequency-penalty"},
    {"n", "--num-samples"},
    {"best_of", "--num-samples"},
    {"stop", "--stop"},
    {"ignore_eos", "--ignore-eod"},
    {"logprobs", "--logprobs"},
    {"top_logprobs", "--logprobs"},
    {"echo", "--echo"},
    {"logit_bias", "--logit-bias"},
    {"messages", "--serve or --interactive --chat"},
};

static void tell_unused(struct gpt_prompts *p, const cJSON *object,
                        const char *what)
{
    for (size_t i = 0; i < GPT_COUNT(of_requests); i++) {
        const char *key = of_requests[i].key;

        if (p->said >> i & 1 || !gpt_json_member(object, key))
            continue;
        p->said |= 1u << i;
        if (p->scored)
            gpt_warn("%s: the field '%s' has no effect on scores", what, key);
        else
            gpt_warn("%s: the field '%s' has no effect here; %s has", what,
                     key, of_requests[i].instead);
    }
}

/* A line of several endings, as HellaSwag's, is none of one continuation. */
static int refuse_without_text(const cJSON *object, const char *what,
                               struct gpt_err *err)
{
    if (!gpt_json_member(object, "endings"))
        return gpt_fail(err, GPT_EDATA,
                        "%s: no field 'prompt', 'text' or 'context'", what);
    return gpt_fail(err, GPT_EDATA,
                    "%s: several 'endings'; write a line for each, with "
                    "'context' and 'continuation'", what);
}

/* The id comes first, so that a line without a good prompt is answered under
 * its own id. */
static int read_object(struct gpt_prompts *p, struct gpt_prompt *prompt,
                       const cJSON *object, const char *what,
                       struct gpt_err *err)
{
    if (!cJSON_IsObject(object))
        return gpt_fail(err, GPT_EDATA, "%s: not a JSON object", what);
    const char *key = text_key(object);
    const cJSON *value = gpt_json_member(object, key);
    GPT_TRY(keep_id(p, prompt, cJSON_GetObjectItemCaseSensitive(object, "id"),
                    what, err));
    if (gpt_json_member(object, "seed"))
        GPT_TRY(gpt_json_int_or(object, "seed", -1, 0, GPT_JSON_EXACT - 1,
                                &prompt->seed, what, err));
    tell_unused(p, object, what);
    if (!value)
        return refuse_without_text(object, what, err);
    if (gpt_json_member(object, "continuation"))
        GPT_TRY(keep_string(p, object, "continuation", &prompt->continuation,
                            what, err));
    if (cJSON_IsArray(value))
        return read_ids(p, prompt, value, what, err);
    GPT_TRY(keep_string(p, object, key, &prompt->text, what, err));
    prompt->len = strlen(prompt->text);
    return GPT_OK;
}

static bool is_blank(const char *line, size_t len)
{
    while (len > 0 && memchr(" \t\r", line[len - 1], 3))
        len--;
    return len == 0;
}

/* Each line is parsed for itself: what it holds is copied, and its tree is
 * freed before the next one. */
static int read_line(struct gpt_prompts *p, struct gpt_prompt *prompt,
                     const char *line, size_t len, const char *what,
                     struct gpt_err *err)
{
    cJSON *object = NULL;

    if (is_blank(line, len))
        return gpt_fail(err, GPT_EDATA, "%s: blank line", what);
    if (has_escaped_nul(line, len))
        return gpt_fail(err, GPT_EDATA, "%s: a prompt cannot hold \\u0000",
                        what);
    GPT_TRY(gpt_json_parse(&object, line, len, what, err));
    int status = read_object(p, prompt, object, what, err);
    cJSON_Delete(object);
    return status;
}

/* Only bad data is a matter of the line; lack of memory ends the program. The
 * prompt is added in either case: its place in the order is its number. */
static int add_line(struct gpt_prompts *p, const char *line, size_t len,
                    const char *what, struct gpt_err *err)
{
    struct gpt_prompt prompt = {.text = "", .seed = -1};
    struct gpt_err own = {0};
    int status = read_line(p, &prompt, line, len, what, &own);

    if (status != GPT_OK && status != GPT_EDATA) {
        *err = own;
        return status;
    }
    GPT_TRY(gpt_grow(&p->items, &p->cap, p->n + 1, sizeof(*p->items), "prompts",
                     err));
    /* what is wrong with the line itself names it already */
    const char *text = gpt_arena_strdup(&p->arena, status ? own.text : what);
    if (!text)
        return gpt_no_memory(err, what);
    *(status ? &prompt.error : &prompt.where) = text;
    p->items[p->n++] = prompt;
    return GPT_OK;
}

/* The last line may lack its newline. A blank line is an error like any other:
 * outputs are counted by lines. */
int gpt_prompts_parse_jsonl(struct gpt_prompts *p, const char *text, size_t len,
                            const char *name, struct gpt_err *err)
{
    long long number = 0;

    for (size_t at = 0; at < len;) {
        const char *line = text + at, *end = memchr(line, '\n', len - at);
        size_t n = end ? (size_t)(end - line) : len - at;
        char what[320];

        snprintf(what, sizeof(what), "%.256s:%lld", name, ++number);
        GPT_TRY(add_line(p, line, n, what, err));
        at += n + 1;
    }
    return GPT_OK;
}

int gpt_prompts_read_jsonl(struct gpt_prompts *p, const char *path,
                           struct gpt_err *err)
{
    struct gpt_buf b = {0};
    int status = read_prompts(path, &b, err);

    if (status == GPT_OK)
        status = gpt_prompts_parse_jsonl(p, b.data, b.len, name_of(path), err);
    gpt_buf_free(&b);
    return status;
}

void gpt_prompts_free(struct gpt_prompts *p)
{
    gpt_free(p->items);
    gpt_arena_free(&p->arena);
    *p = (struct gpt_prompts){0};
}
