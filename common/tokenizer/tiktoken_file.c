/* Reading of ranks: see tiktoken_file.h. Both formats end in add_token(). Start
 * at gpt_ranks_read(). The table of tokens is allocated before the ranks are
 * known, as large as the file can justify: its size over the shortest line, or
 * the length of the list. A rank beyond that would leave more gaps than tokens.
 */
#include "tokenizer/tiktoken_file.h"

#include "base/io.h"
#include "base/json.h"
#include "text/base64.h"
#include "tokenizer/ids.h"

#include <assert.h>
#include <string.h>

enum {
    MIN_BYTES = 4,    /* of a line: "Q== 0", say */
    FIRST_BYTES = 64, /* of the first token; those of one byte come first */
};

struct reading {
    struct gpt_ranks *r;
    int64_t limit;   /* of ranks, by the size of the file */
    const char *path;
    long long place; /* line, or number in the list */
    struct gpt_err *err;
};

static int refuse_entry(const struct reading *f, const char *why)
{
    return gpt_fail(f->err, GPT_EDATA, "%s:%lld: %s", f->path, f->place, why);
}

/* Decodes a token straight into the arena, which is a little too large for it.
 */
static int add_token(const struct reading *f, const char *text, size_t len,
                     int64_t rank)
{
    struct gpt_ranks *r = f->r;

    if (rank < 0 || rank >= f->limit)
        return refuse_entry(f, "the rank is out of range");
    assert(r->tokens); /* f->limit of them */
    struct gpt_str *token = &r->tokens[rank];
    char *bytes = gpt_arena_alloc(&r->arena, len + 1, 1);
    if (!bytes)
        return gpt_no_memory(f->err, "a vocabulary");
    if (token->data)
        return refuse_entry(f, "the rank is there twice");
    if (!gpt_base64_decode(text, len, bytes, &token->len))
        return refuse_entry(f, "the token is not base64");
    if (token->len > GPT_TOKEN_MAX)
        return gpt_fail(f->err, GPT_EDATA, "%s:%lld: the token has %zu bytes, "
                        "must have at most %d", f->path, f->place, token->len,
                        GPT_TOKEN_MAX);
    token->data = bytes;
    r->n = rank >= r->n ? rank + 1 : r->n;
    return GPT_OK;
}

/* The table is indexed by rank. It is zero, which says that a rank has no token
 * yet. */
static int open_tokens(struct reading *f, int64_t limit)
{
    f->limit = limit < GPT_VOCAB_MAX ? limit : GPT_VOCAB_MAX;
    return gpt_new(&f->r->tokens, (size_t)f->limit, sizeof(*f->r->tokens),
                   "a vocabulary", f->err);
}

/* ---- .tiktoken ---- */

static int read_line(const struct reading *f, const char *line, size_t len)
{
    const char *space = memchr(line, ' ', len), *end = line + len;
    int64_t rank = 0;

    /* ten digits at most, so that the number below cannot overflow */
    if (!space || space + 1 == end || end - space > 11)
        return refuse_entry(f, "not a token in base64, a space, and a rank");
    for (const char *p = space + 1; p < end; p++) {
        if (*p < '0' || *p > '9')
            return refuse_entry(f, "the rank is not a number");
        rank = rank * 10 + (*p - '0');
    }
    return add_token(f, line, (size_t)(space - line), rank);
}

bool gpt_ranks_begin(const char *text, size_t len)
{
    char token[FIRST_BYTES];
    const char *space =
        memchr(text, ' ', len < FIRST_BYTES ? len : FIRST_BYTES);
    size_t n;

    return space && space + 1 < text + len && space[1] >= '0' &&
           space[1] <= '9' &&
           gpt_base64_decode(text, (size_t)(space - text), token, &n);
}

/* An empty line is skipped and still counted, so the numbers in messages are
 * those of an editor. */
static int read_lines(struct reading *f, const char *text, size_t len)
{
    struct gpt_str rest = {text, len}, line;

    GPT_TRY(open_tokens(f, (int64_t)(len / MIN_BYTES) + 1));
    while (gpt_str_next_line(&rest, &line)) {
        f->place++;
        if (line.len)
            GPT_TRY(read_line(f, line.data, line.len));
    }
    return GPT_OK;
}

/* ---- Megatron's list ---- */

/* Members: rank, token_bytes, and token_str, which is not read. */
static int read_item(const struct reading *f, const cJSON *item)
{
    const char *text;
    int64_t rank;

    GPT_TRY(gpt_json_int(item, "rank", 0, GPT_VOCAB_MAX, &rank, f->path,
                         f->err));
    GPT_TRY(gpt_json_string(item, "token_bytes", &text, f->path, f->err));
    return add_token(f, text, strlen(text), rank);
}

static int read_list(struct reading *f, const char *text, size_t len)
{
    cJSON *root;
    int status;

    GPT_TRY(gpt_json_parse(&root, text, len, f->path, f->err));
    if (!cJSON_IsArray(root)) {
        status = gpt_fail(f->err, GPT_EDATA, "%s: not a list of ranks",
                          f->path);
        goto out;
    }
    GPT_TRY_GOTO(status, open_tokens(f, cJSON_GetArraySize(root)), out);
    for (const cJSON *i = root->child; i; i = i->next) {
        f->place++;
        GPT_TRY_GOTO(status, read_item(f, i), out);
    }
out:
    cJSON_Delete(root);
    return status;
}

int gpt_ranks_read(struct gpt_ranks *ranks, const char *path,
                   struct gpt_err *err)
{
    struct reading f = {.r = ranks, .path = path, .err = err};
    char *text;
    size_t len;

    *ranks = (struct gpt_ranks){0};
    GPT_TRY(gpt_read_file(path, GPT_VOCAB_FILE_MAX, &text, &len, err));
    /* The first byte tells the formats apart, since base64 has neither brackets
     * nor braces. */
    ranks->json = len && (text[0] == '[' || text[0] == '{');
    int status = ranks->json ? read_list(&f, text, len)
                             : read_lines(&f, text, len);
    gpt_free(text);
    GPT_TRY(status);
    return ranks->n ? GPT_OK
                    : gpt_fail(err, GPT_EDATA, "%s: no tokens", path);
}

void gpt_ranks_free(struct gpt_ranks *ranks)
{
    gpt_free(ranks->tokens);
    gpt_arena_free(&ranks->arena);
    *ranks = (struct gpt_ranks){0};
}
