/* Matching of added tokens with a trie of bytes. Start at gpt_added_next().
 * Texts hold few added tokens, so that what must be fast is to find none: a
 * position is looked at only if its byte begins a token, and where all tokens
 * begin with one byte ('<' as a rule) memchr finds the positions. */
#include "tokenizer/added_tokens.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "text/str.h"
#include "text/unicode.h"
#include "tokenizer/ids.h"

#include <assert.h>
#include <string.h>

/* The children of a node are a list by `sibling`. Node 0 is the root, and as
 * no node's child it also means "none". */
struct node {
    int32_t token; /* index + 1 of the token that ends here, 0 = none */
    uint32_t child, sibling;
    uint8_t byte;
};

struct gpt_added {
    struct gpt_added_token *tokens;
    size_t n;
    struct node *nodes;
    size_t n_nodes;
    uint32_t first[256]; /* node of the root's child for a byte, 0 = none */
    int only_first;      /* the only byte that a token begins with, or -1 */
    bool all_special;
};

/* ---- building ---- */

/* The child of a node by a byte; 0 means that it has none. Lists are short
 * below the root, whose children have an index of their own, first[]. */
static uint32_t child_of(const struct gpt_added *a, uint32_t parent,
                         uint8_t byte)
{
    uint32_t i = a->nodes[parent].child;

    while (i && a->nodes[i].byte != byte)
        i = a->nodes[i].sibling;
    return i;
}

static uint32_t add_child(struct gpt_added *a, uint32_t parent, uint8_t byte)
{
    uint32_t i = (uint32_t)a->n_nodes++;

    assert(parent < i);
    a->nodes[i] = (struct node){.sibling = a->nodes[parent].child,
                                .byte = byte};
    a->nodes[parent].child = i;
    return i;
}

static int add_token(struct gpt_added *a, size_t index, const char *what,
                     struct gpt_err *err)
{
    const struct gpt_added_token *token = &a->tokens[index];
    uint32_t at = 0;

    if (token->len == 0)
        return gpt_fail(err, GPT_EDATA, "%s: added token %d has no text", what,
                        (int)token->id);
    /* A text may begin like the token at each of its bytes: this bounds what a
     * search looks at. */
    if (token->len > GPT_TOKEN_MAX)
        return gpt_fail(err, GPT_EDATA, "%s: added token %d has %zu bytes, "
                        "must have at most %d", what, (int)token->id,
                        token->len, GPT_TOKEN_MAX);
    for (size_t i = 0; i < token->len; i++) {
        uint8_t byte = (uint8_t)token->text[i];
        uint32_t next = child_of(a, at, byte);

        at = next ? next : add_child(a, at, byte);
    }
    if (a->nodes[at].token)
        return gpt_fail(err, GPT_EDATA, "%s: added tokens %d and %d are both "
                        "'%.*s'", what,
                        (int)a->tokens[a->nodes[at].token - 1].id,
                        (int)token->id, gpt_str_shown(token->len),
                        token->text);
    a->nodes[at].token = (int32_t)index + 1;
    return GPT_OK;
}

/* Fills what next_start() reads: the root's children by their byte. */
static void index_first_bytes(struct gpt_added *a)
{
    int n_first = 0;

    for (uint32_t i = a->nodes[0].child; i; i = a->nodes[i].sibling) {
        a->first[a->nodes[i].byte] = i;
        a->only_first = a->nodes[i].byte;
        n_first++;
    }
    if (n_first != 1)
        a->only_first = -1;
}

static int build_trie(struct gpt_added *a,
                      const struct gpt_added_token *tokens, size_t n,
                      const char *what, struct gpt_err *err)
{
    size_t n_bytes = 0;

    for (size_t i = 0; i < n; i++)
        n_bytes += tokens[i].len;
    GPT_TRY(gpt_new(&a->tokens, n, sizeof(*a->tokens), "added tokens", err));
    /* a node for each byte at most, and the root */
    GPT_TRY(gpt_new(&a->nodes, n_bytes + 1, sizeof(*a->nodes),
                    "added tokens", err));
    a->n = n;
    a->n_nodes = 1;
    a->all_special = true;
    for (size_t i = 0; i < n; i++) {
        a->tokens[i] = tokens[i];
        a->all_special = a->all_special && tokens[i].special;
        GPT_TRY(add_token(a, i, what, err));
    }
    index_first_bytes(a);
    return GPT_OK;
}

int gpt_added_open(struct gpt_added **out, const struct gpt_added_token *tokens,
                   size_t n, const char *what, struct gpt_err *err)
{
    struct gpt_added *a;

    *out = NULL;
    if (n == 0)
        return GPT_OK;
    GPT_TRY(gpt_new(&a, 1, sizeof(*a), "added tokens", err));
    int status = build_trie(a, tokens, n, what, err);
    if (status != GPT_OK) {
        gpt_added_close(a);
        return status;
    }
    *out = a;
    return GPT_OK;
}

/* The search goes from the first token to the last: tables of all ids are made
 * once. */
bool gpt_added_is_special(const struct gpt_added *a, int32_t id)
{
    for (size_t i = 0; a && i < a->n; i++)
        if (a->tokens[i].id == id)
            return a->tokens[i].special;
    return false;
}

void gpt_added_close(struct gpt_added *a)
{
    if (!a)
        return;
    gpt_free(a->tokens);
    gpt_free(a->nodes);
    gpt_free(a);
}

/* ---- searching ---- */

/* The longest token that text[0..len) begins with, or NULL; len > 0. */
static const struct gpt_added_token *longest_at(const struct gpt_added *a,
                                                const char *text, size_t len)
{
    int32_t found = 0;
    size_t i = 1;

    for (uint32_t at = a->first[(uint8_t)text[0]]; at;
         at = child_of(a, at, (uint8_t)text[i++])) {
        if (a->nodes[at].token)
            found = a->nodes[at].token;
        if (i == len)
            break;
    }
    return found ? &a->tokens[found - 1] : NULL;
}

/* The next position, from `at` on, that a token may begin at; len: none. This
 * is the loop that reads the whole text. */
static size_t next_start(const struct gpt_added *a, const char *text,
                         size_t at, size_t len)
{
    if (a->only_first >= 0 && at < len) {
        const char *p = memchr(text + at, a->only_first, len - at);

        return p ? (size_t)(p - text) : len;
    }
    while (at < len && !a->first[(uint8_t)text[at]])
        at++;
    return at;
}

/* The start of the character that ends before position i > 0. */
static size_t char_before(const char *text, size_t i)
{
    assert(i > 0);
    size_t start = i - 1;

    while (start > 0 && i - start < 4 &&
           ((uint8_t)text[start] & 0xC0) == 0x80)
        start--;
    return start;
}

/* Decodes the character at text and sets its length. A byte that is not UTF-8
 * counts as U+0000, which is neither a word character nor white space. */
static uint32_t char_at(const char *text, size_t len, size_t *n)
{
    uint32_t cp;
    int bytes = gpt_utf8_decode((const uint8_t *)text, len, &cp);

    *n = bytes ? (size_t)bytes : 1;
    return bytes ? cp : 0;
}

/* True for white space, as Unicode and Hugging Face mean it. */
static bool blank_at(const char *text, size_t i, size_t len, size_t *n)
{
    return gpt_unicode_class(char_at(text + i, len - i, n)) == GPT_UC_SPACE;
}

/* True when no word character is beside text[start..end). */
static bool is_alone(const char *text, size_t len, size_t start, size_t end)
{
    size_t n;

    if (start > 0) {
        size_t before = char_before(text, start);

        if (gpt_unicode_is_word(char_at(text + before, start - before, &n)))
            return false;
    }
    return end == len ||
           !gpt_unicode_is_word(char_at(text + end, len - end, &n));
}

/* Returns `start` moved before the white space there, but not before `limit`.
 * Where the token at `start` is of white space that the last one took, `limit`
 * is after it. */
static size_t take_left(const char *text, size_t start, size_t limit)
{
    size_t n;

    if (start < limit)
        return limit;
    while (start > limit) {
        size_t before = char_before(text, start);

        if (!blank_at(text, before, start, &n))
            break;
        start = before;
    }
    return start;
}

/* Returns `end` moved after the white space there. Several tokens in a row of
 * blanks would each walk to its end, in quadratic time: so that end is kept. */
static size_t take_right(const char *text, size_t len, size_t end,
                         struct gpt_added_search *search)
{
    size_t n;

    if (end < search->blank_end)
        return search->blank_end;
    while (end < len && blank_at(text, end, len, &n))
        end += n;
    search->blank_end = end;
    return end;
}

bool gpt_added_next(const struct gpt_added *a, bool special, const char *text,
                    size_t len, struct gpt_added_search *search,
                    struct gpt_added_span *span)
{
    /* a text is not read at all when nothing can be found */
    if (!a || (a->all_special && !special))
        return false;
    while ((search->at = next_start(a, text, search->at, len)) < len) {
        size_t start = search->at;
        const struct gpt_added_token *token =
            longest_at(a, text + start, len - start);
        size_t end = start + (token ? token->len : 1);

        /* a special token that is not asked for is passed over as a whole */
        search->at = end;
        if (!token || (token->special && !special) ||
            (token->single_word && !is_alone(text, len, start, end)))
            continue;
        if (token->lstrip)
            start = take_left(text, start, search->done);
        if (token->rstrip)
            end = take_right(text, len, end, search);
        if (start >= end) /* the last token took all of it */
            continue;
        assert(end <= len);
        search->done = end;
        *span = (struct gpt_added_span){start, end, token->id};
        return true;
    }
    return false;
}
