/* Runs of characters of three bytes: see wide.h. Start at gpt_wide_encode().
 *
 * Why this is right: a merge can join two characters only inside a piece, and
 * only if some token holds the end of the one and the beginning of the other.
 * Where two characters meet and either fails, the text may be cut, and the ids
 * of each side are those it has alone; for a single character these are in the
 * table. Where neither fails the characters are a group that is merged as one.
 * The two bits of the table, `left` and `right`, answer most pairs without a
 * look at the set of spans. What is left is the end of a run, may_end(). */
#include "tokenizer/bpe/wide.h"

#include "base/memory.h"
#include "tokenizer/pretok_gpt2.h"

#include <assert.h>
#include <string.h>

_Static_assert(sizeof(struct gpt_wide_char) == 4 * sizeof(int32_t),
               "copy_ids() stores four ids a character");

enum {
    CHARS = 65536,
    FEW_WORDS = 2048, /* with more tokens of several such characters, most of
                       * them would be groups, which the cache does better */
    BATCH = 64,       /* characters between two checks of the room for ids */
};

/* A run of characters that is being encoded. */
struct walk {
    struct gpt_wide *w;
    const struct gpt_seams *seams;
    const uint8_t *text;
    size_t len;
    bool joined; /* the next characters are not to be cut apart */
    int status;
    struct gpt_err *err;
};

int gpt_wide_open(struct gpt_wide *w, const struct gpt_bpe *bpe,
                  struct gpt_err *err)
{
    *w = (struct gpt_wide){.bpe = bpe};
    if (gpt_bpe_seams(bpe)->n_words > FEW_WORDS)
        return GPT_OK;
    return gpt_new(&w->chars, CHARS, sizeof(*w->chars), "characters", err);
}

void gpt_wide_close(struct gpt_wide *w)
{
    gpt_free(w->chars);
    gpt_bpe_scratch_free(&w->scratch);
    *w = (struct gpt_wide){.bpe = NULL};
}

/* ---- the table ---- */

/* Fills in the table's entry of the character at p. Entries are made when their
 * character first comes, as a text uses few of the 65536. */
static int fill_char(struct gpt_wide *w, struct gpt_wide_char *c,
                     const uint8_t *p, struct gpt_err *err)
{
    const struct gpt_seams *seams = gpt_bpe_seams(w->bpe);
    struct gpt_ids ids = {.data = NULL};
    size_t n;
    enum gpt_piece_kind kind = gpt_piece_wide_kind(p, 3, &n);
    int status;

    if (n != 3) { /* a surrogate, or a form that is too long */
        *c = (struct gpt_wide_char){.n = 1, .kind = GPT_PIECE_SPACE};
        return GPT_OK;
    }
    GPT_TRY_GOTO(status, gpt_bpe_merge(w->bpe, &w->scratch, (const char *)p, 3,
                                       &ids, err), out);
    assert(ids.len >= 1 && ids.len <= GPT_COUNT(c->id));
    memcpy(c->id, ids.data, ids.len * sizeof(*c->id));
    c->n = (uint8_t)ids.len;
    c->kind = (uint8_t)kind;
    c->left = gpt_seams_left(seams, gpt_seams_char(p));
    c->right = gpt_seams_right(seams, gpt_seams_char(p));
out:
    gpt_free(ids.data);
    return status;
}

/* The character at text[at]; NULL where a run ends, and after a failure, which
 * is in k->status. Four bytes are loaded at once, so that the last characters
 * of a text are left to the caller. */
static inline const struct gpt_wide_char *char_at(struct walk *k, size_t at)
{
    uint32_t b;

    if (k->len - at < sizeof(b))
        return NULL;
    memcpy(&b, k->text + at, sizeof(b));
    if ((b & 0xC0C0F0) != 0x8080E0) /* 1110xxxx 10xxxxxx 10xxxxxx */
        return NULL;
    struct gpt_wide_char *c =
        &k->w->chars[(b & 15) << 12 | (b >> 2 & 0xFC0) | (b >> 16 & 0x3F)];
    if (__builtin_expect(c->n == 0, 0)) {
        k->status = fill_char(k->w, c, k->text + at, k->err);
        if (k->status != GPT_OK)
            return NULL;
    }
    return c->kind == GPT_PIECE_SPACE ? NULL : c;
}

/* ---- runs ---- */

/* True when a run whose last character is of `kind` may end before text[at],
 * and what follows may be cut as if a piece began there. In the middle of a
 * piece that is so where no token holds the bytes that meet, unless what
 * follows would then be taken for a contraction, which only begins a piece. */
static bool may_end(const struct walk *k, size_t at, unsigned kind)
{
    size_t n;

    if (at == k->len)
        return true;
    unsigned next = gpt_piece_kind(k->text + at, k->len - at, &n);
    if (next == GPT_PIECE_SPACE || next != kind)
        return true;
    return !gpt_seams_joined(k->seams, k->text[at - 1], k->text[at]) &&
           gpt_piece_contraction(k->text + at, k->len - at) == 0;
}

/* True when the text may be cut after c, at text[at], before `next`, which is
 * NULL where the run ends. */
static inline bool may_cut(const struct walk *k,
                           const struct gpt_wide_char *c,
                           const struct gpt_wide_char *next, size_t at)
{
    if (!next)
        return may_end(k, at, c->kind);
    return c->kind != next->kind || !(c->left & next->right) ||
           gpt_seams_before(k->seams, k->text + at);
}

/* Where the group ends that begins with c, at text[at]: characters that have to
 * be merged together. `at` when it does not end before the run does, and the
 * text may not be cut there either. */
static size_t group_end(struct walk *k, const struct gpt_wide_char *c,
                        size_t at)
{
    const struct gpt_wide_char *next;
    size_t end = at + 3;

    for (; !may_cut(k, c, next = char_at(k, end), end); end += 3, c = next)
        if (!next)
            return at;
    return end;
}

/* Finds the end of the blank at text[at] and of what has to be merged with it.
 * A blank that meets no token's end is a group of its own. */
static size_t blank_end(struct walk *k, size_t at)
{
    const struct gpt_wide_char *c = char_at(k, at + 1);

    if (!c)
        return at;
    if (gpt_seams_before(k->seams, k->text + at + 1))
        return at + 1;
    size_t end = group_end(k, c, at + 1);
    return end > at + 1 ? end : at;
}

/* Writes the ids of characters from text[*at] on, the first of which is *c, up
 * to BATCH of them or to one that has to be merged with the next. A whole entry
 * is copied, ids and all: one store of 16 bytes, of which the next one
 * overwrites what is too much. The room for ids is therefore 4 for each
 * character. */
static size_t copy_ids(struct walk *k, const struct gpt_wide_char **c,
                       size_t *at, int32_t *out)
{
    const struct gpt_wide_char *this = *c, *next;
    size_t n = 0, i = *at, most = *at + 3 * BATCH;

    for (; this && i < most; i += 3, this = next) {
        next = char_at(k, i + 3);
        if (!may_cut(k, this, next, i + 3)) {
            k->joined = true;
            break;
        }
        memcpy(out + n, this, sizeof(*this));
        n += this->n;
    }
    *c = this;
    *at = i;
    return n;
}

int gpt_wide_encode(struct gpt_wide *w, const char *text, size_t len,
                    size_t at, struct gpt_wide_run *run, struct gpt_ids *ids,
                    struct gpt_err *err)
{
    struct walk k = {.w = w, .seams = gpt_bpe_seams(w->bpe), .len = len,
                     .text = (const uint8_t *)text, .err = err};
    const struct gpt_wide_char *c;

    assert(at < len);
    if (text[at] == ' ') {
        *run = (struct gpt_wide_run){at, blank_end(&k, at)};
        return k.status;
    }
    c = char_at(&k, at);
    while (c && !k.joined) {
        GPT_TRY(gpt_ids_reserve(ids, 4 * BATCH, err));
        ids->len += copy_ids(&k, &c, &at, ids->data + ids->len);
    }
    *run = (struct gpt_wide_run){at, c ? group_end(&k, c, at) : at};
    return k.status;
}
