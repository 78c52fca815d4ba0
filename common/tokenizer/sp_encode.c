/* The two searches: see sp_encode.h. Start at gpt_sp_encode_bpe() and
 * gpt_sp_encode_unigram(). */
#include "tokenizer/sp_encode.h"

#include "base/memory.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define UNKNOWN_PENALTY 10.0f
#define SCORE_LIMIT 100000.0f /* of a path, before counting starts anew */

void gpt_sp_scratch_free(struct gpt_sp_scratch *s)
{
    gpt_free(s->symbols);
    gpt_free(s->heap);
    gpt_free(s->paths);
    memset(s, 0, sizeof(*s));
}

static int check_len(size_t len, struct gpt_err *err)
{
    return len <= INT32_MAX
               ? GPT_OK
               : gpt_fail(err, GPT_EDATA, "a text of %zu bytes, limit 2 GiB",
                          len);
}

static int add_id(struct gpt_ids *ids, int32_t id, struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&ids->data, &ids->cap, ids->len + 1, sizeof(*ids->data),
                     "token ids", err));
    ids->data[ids->len++] = id;
    return GPT_OK;
}

/* `first` is where the ids of this text begin. */
static int add_piece(const struct gpt_sp_model *m, const char *piece,
                     size_t len, int32_t id, size_t first,
                     struct gpt_ids *ids, struct gpt_err *err)
{
    if (id != m->unk)
        return add_id(ids, id, err);
    for (size_t i = 0; m->byte_fallback && i < len; i++)
        GPT_TRY(add_id(ids, m->byte_id[(uint8_t)piece[i]], err));
    if (m->byte_fallback || (ids->len > first && ids->data[ids->len - 1] == id))
        return GPT_OK;
    return add_id(ids, id, err);
}

/* ---- merging ---- */

struct gpt_sp_symbol {
    uint32_t len; /* bytes, from the place of its first on */
    uint32_t prev, next; /* places; NONE at the ends */
    uint32_t rank;       /* of the pair with `next`; NONE: no pair */
    bool frozen;         /* user-defined: never merged */
};

/* Scores as numbers of which the lowest is the best. */
static uint32_t rank_of(float score)
{
    uint32_t bits;

    memcpy(&bits, &score, sizeof(bits));
    bits = bits >> 31 ? ~bits : bits | 1u << 31;
    return ~bits - (~bits == NONE);
}

static void sift_down(uint64_t *heap, size_t n)
{
    uint64_t v = heap[0];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < n) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= v)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = v;
}

static int push(struct gpt_sp_scratch *s, size_t *n, uint64_t v,
                struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&s->heap, &s->heap_cap, *n + 1, sizeof(*s->heap),
                     "pairs of a text", err));
    size_t i = (*n)++;
    for (; i && s->heap[(i - 1) / 2] > v; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = v;
    return GPT_OK;
}

static int push_pair(const struct gpt_sp_model *m, struct gpt_sp_scratch *s,
                     size_t *n_heap, const char *text, uint32_t at,
                     struct gpt_err *err)
{
    struct gpt_sp_symbol *left = &s->symbols[at];

    left->rank = NONE;
    if (left->frozen || left->next == NONE || s->symbols[left->next].frozen)
        return GPT_OK;
    int32_t id = gpt_token_map_find(&m->normal, text + at,
                                    left->len + s->symbols[left->next].len);
    if (id < 0)
        return GPT_OK;
    left->rank = rank_of(m->pieces[id].score);
    return push(s, n_heap, (uint64_t)left->rank << 32 | at, err);
}

/* One symbol a character or user-defined piece, where it begins. */
static void cut_symbols(const struct gpt_sp_model *m,
                        struct gpt_sp_symbol *symbols, const char *text,
                        size_t len)
{
    uint32_t prev = NONE;

    for (size_t at = 0; at < len;) {
        size_t user = m->longest_user
                          ? gpt_sp_user_prefix(m, text + at, len - at)
                          : 0;
        size_t n = user ? user : gpt_sp_char_len(text + at, len - at);

        symbols[at] = (struct gpt_sp_symbol){
            .len = (uint32_t)n, .prev = prev, .rank = NONE, .frozen = user > 0,
            .next = at + n < len ? (uint32_t)(at + n) : NONE};
        prev = (uint32_t)at;
        at += n;
    }
}

static int merge(const struct gpt_sp_model *m, struct gpt_sp_scratch *s,
                 const char *text, struct gpt_err *err)
{
    struct gpt_sp_symbol *symbols = s->symbols;
    size_t n_heap = 0;

    for (uint32_t at = 0; at != NONE; at = symbols[at].next)
        GPT_TRY(push_pair(m, s, &n_heap, text, at, err));
    while (n_heap) {
        uint64_t top = s->heap[0];

        s->heap[0] = s->heap[--n_heap];
        if (n_heap)
            sift_down(s->heap, n_heap);
        uint32_t at = (uint32_t)top;
        struct gpt_sp_symbol *left = &symbols[at];
        if (left->rank != (uint32_t)(top >> 32))
            continue; /* it was merged since */
        struct gpt_sp_symbol *right = &symbols[left->next];
        right->rank = NONE;
        left->len += right->len;
        left->next = right->next;
        if (left->next != NONE)
            symbols[left->next].prev = at;
        if (left->prev != NONE)
            GPT_TRY(push_pair(m, s, &n_heap, text, left->prev, err));
        GPT_TRY(push_pair(m, s, &n_heap, text, at, err));
    }
    return GPT_OK;
}

int gpt_sp_encode_bpe(const struct gpt_sp_model *m, struct gpt_sp_scratch *s,
                      const char *text, size_t len, struct gpt_ids *ids,
                      struct gpt_err *err)
{
    const size_t first = ids->len;

    GPT_TRY(check_len(len, err));
    GPT_TRY(gpt_grow(&s->symbols, &s->symbols_cap, len, sizeof(*s->symbols),
                     "a text", err));
    cut_symbols(m, s->symbols, text, len);
    GPT_TRY(merge(m, s, text, err));
    for (uint32_t at = 0; at != NONE; at = s->symbols[at].next) {
        size_t n = s->symbols[at].len;

        GPT_TRY(add_piece(m, text + at, n, gpt_sp_find(m, text + at, n), first,
                          ids, err));
    }
    return GPT_OK;
}

/* ---- the trie ---- */

static size_t slot_of(const struct gpt_sp_trie *t, uint32_t parent,
                      uint8_t byte)
{
    uint64_t key = ((uint64_t)parent << 8 | byte) + 1;
    size_t i = (size_t)((key * 0x9E3779B97F4A7C15u) >> 20) & t->mask;

    while (t->keys[i] && t->keys[i] != key)
        i = (i + 1) & t->mask;
    return i;
}

static uint32_t child_of(const struct gpt_sp_trie *t, uint32_t parent,
                         uint8_t byte)
{
    return t->children[slot_of(t, parent, byte)]; /* 0 where free */
}

static void add_to_trie(struct gpt_sp_trie *t, struct gpt_str text,
                        int32_t id)
{
    uint32_t at = 0;

    for (size_t i = 0; i < text.len; i++) {
        uint8_t byte = (uint8_t)text.data[i];
        size_t slot = slot_of(t, at, byte);

        if (!t->keys[slot]) {
            t->keys[slot] = ((uint64_t)at << 8 | byte) + 1;
            t->children[slot] = t->n_nodes++;
        }
        at = t->children[slot];
    }
    t->ids[at] = id;
    if (text.len > t->longest)
        t->longest = text.len;
}

static int compare_slices(const void *a, const void *b)
{
    const struct gpt_str *x = a, *y = b;
    int order = memcmp(x->data, y->data, x->len < y->len ? x->len : y->len);

    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* Nodes of the trie: bytes that a piece does not share with the one before it
 * in alphabetical order. `sorted` is scratch for all pieces. */
static size_t count_nodes(const struct gpt_sp_model *m,
                          struct gpt_str *sorted)
{
    size_t n = 1;

    memcpy(sorted, m->texts, (size_t)m->n * sizeof(*sorted));
    qsort(sorted, (size_t)m->n, sizeof(*sorted), compare_slices);
    for (int64_t i = 0; i < m->n; i++) {
        size_t same = 0;

        while (i && same < sorted[i].len && same < sorted[i - 1].len &&
               sorted[i].data[same] == sorted[i - 1].data[same])
            same++;
        n += sorted[i].len - same;
    }
    return n;
}

static int allocate_trie(struct gpt_sp_trie *t, size_t n_nodes,
                         struct gpt_err *err)
{
    size_t n_slots = 512;

    if (n_nodes >= UINT32_MAX)
        return gpt_fail(err, GPT_EDATA, "a model of %zu bytes of pieces",
                        n_nodes);
    while (n_slots < n_nodes * 2)
        n_slots *= 2;
    t->mask = n_slots - 1;
    t->n_nodes = 1;
    GPT_TRY(gpt_new(&t->keys, n_slots, sizeof(*t->keys), "pieces", err));
    GPT_TRY(gpt_new(&t->children, n_slots, sizeof(*t->children), "pieces",
                    err));
    GPT_TRY(gpt_new(&t->ids, n_nodes, sizeof(*t->ids), "pieces", err));
    for (size_t i = 0; i < n_nodes; i++)
        t->ids[i] = -1;
    return GPT_OK;
}

int gpt_sp_trie_open(struct gpt_sp_trie *t, const struct gpt_sp_model *m,
                     struct gpt_err *err)
{
    struct gpt_str *sorted;

    *t = (struct gpt_sp_trie){.lowest = FLT_MAX, .longest = 4};
    GPT_TRY(gpt_new(&sorted, (size_t)m->n, sizeof(*sorted), "pieces", err));
    size_t n_nodes = count_nodes(m, sorted);
    gpt_free(sorted);
    GPT_TRY(allocate_trie(t, n_nodes, err));
    for (int64_t id = 0; id < m->n; id++) {
        float score = m->pieces[id].score;
        uint8_t type = m->pieces[id].type;

        if (type == GPT_SP_NORMAL && score < t->lowest)
            t->lowest = score;
        if (type == GPT_SP_NORMAL || type == GPT_SP_USER)
            add_to_trie(t, m->texts[id], (int32_t)id);
    }
    return GPT_OK;
}

void gpt_sp_trie_close(struct gpt_sp_trie *t)
{
    gpt_free(t->keys);
    gpt_free(t->children);
    gpt_free(t->ids);
    *t = (struct gpt_sp_trie){0};
}

/* ---- the best path ---- */

/* The best way to the end of a text's first bytes: its last piece. */
struct gpt_sp_path {
    float score;
    int32_t id;
    uint32_t begin; /* NONE: there is no way yet */
};

static void offer(struct gpt_sp_path *end, float score, int32_t id,
                  size_t begin)
{
    if (end->begin == NONE || score > end->score)
        *end = (struct gpt_sp_path){score, id, (uint32_t)begin};
}

/* SentencePiece gives a user-defined piece a score above every normal one, the
 * higher the longer the piece is. Versions before 0.2.1 gave it another one,
 * with which long texts come out otherwise where such pieces overlap. */
static float user_defined_score(size_t bytes)
{
    return (float)(0.1 * (double)(bytes - 1));
}

/* Offers all pieces that begin at `begin`. */
static void extend(const struct gpt_sp_model *m, const struct gpt_sp_trie *t,
                   struct gpt_sp_path *paths, const char *text, size_t begin,
                   size_t char_len, size_t len)
{
    const float here = paths[begin].score;
    bool has_char = false;
    uint32_t at = 0;

    for (size_t end = begin; end < len;) {
        at = child_of(t, at, (uint8_t)text[end++]);
        if (!at)
            break;
        int32_t id = t->ids[at];
        if (id < 0)
            continue;
        float score = m->pieces[id].type == GPT_SP_USER
                          ? user_defined_score(end - begin)
                          : m->pieces[id].score;
        offer(&paths[end], score + here, id, begin);
        has_char = has_char || end - begin == char_len;
    }
    if (!has_char) {
        float score = t->lowest - UNKNOWN_PENALTY;

        offer(&paths[begin + char_len], score + here, m->unk, begin);
    }
}

/* Lets scores count from position `at` on, where they have become so low that
 * single precision would not tell paths apart. */
static void rebase(struct gpt_sp_path *paths, size_t at, size_t longest,
                   size_t len)
{
    const float base = paths[at].score;

    for (size_t i = at; i <= len && i - at <= longest; i++)
        if (paths[i].begin != NONE)
            paths[i].score -= base;
}

/* Turns the chain of last pieces round: begin becomes where the next one ends.
 */
static void reverse_path(struct gpt_sp_path *paths, size_t len)
{
    uint32_t end = (uint32_t)len, next = NONE;

    while (end > 0) {
        uint32_t begin = paths[end].begin;

        paths[end].begin = next;
        next = end;
        end = begin;
    }
    paths[0].begin = next;
}

int gpt_sp_encode_unigram(const struct gpt_sp_model *m,
                          const struct gpt_sp_trie *t,
                          struct gpt_sp_scratch *s, const char *text,
                          size_t len, struct gpt_ids *ids,
                          struct gpt_err *err)
{
    const size_t first = ids->len;

    GPT_TRY(check_len(len, err));
    GPT_TRY(gpt_grow(&s->paths, &s->paths_cap, len + 1, sizeof(*s->paths),
                     "a text", err));
    struct gpt_sp_path *paths = s->paths;
    for (size_t i = 0; i <= len; i++)
        paths[i] = (struct gpt_sp_path){0, -1, NONE};
    for (size_t at = 0; at < len;) {
        size_t n = gpt_sp_char_len(text + at, len - at);

        if (paths[at].score < -SCORE_LIMIT || paths[at].score > SCORE_LIMIT)
            rebase(paths, at, t->longest, len);
        extend(m, t, paths, text, at, n, len);
        at += n;
    }
    reverse_path(paths, len);
    for (uint32_t at = 0, end; (end = paths[at].begin) != NONE; at = end)
        GPT_TRY(add_piece(m, text + at, end - at, paths[end].id, first, ids,
                          err));
    return GPT_OK;
}
