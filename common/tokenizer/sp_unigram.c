/* Encoding by a unigram model, as unigram_model.cc of SentencePiece does it: of
 * all ways to write a text as pieces, the one whose scores, the logarithms of
 * probabilities, have the largest sum. Start at gpt_sp_encode_unigram().
 *
 * The search is Viterbi's, over positions in the text: the best way to a
 * position is the best way to an earlier one and one piece between them. From
 * each position, in order, all pieces that begin there are offered to the
 * positions where they end, and a trie finds these pieces in one walk. Nothing
 * is cut first: a piece of a unigram model may hold spaces. Sums are single
 * precision and are added in SentencePiece's order, because two ways may be as
 * good as each other and then the rounding decides. */
#include "tokenizer/sp_encode.h"

#include <assert.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PENALTY 10.0f
#define SCORE_LIMIT 100000.0 /* of a path, before counting starts anew */

/* ---- the trie ---- */

static void add_to_trie(struct gpt_sp_trie *t, struct gpt_str text,
                        int32_t id)
{
    uint32_t at = 0;

    for (size_t i = 0; i < text.len; i++) {
        uint8_t byte = (uint8_t)text.data[i];
        size_t slot = gpt_sp_trie_slot(t, at, byte);

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

static int compare_texts(const void *a, const void *b)
{
    const struct gpt_str *x = a, *y = b;
    const size_t len = x->len < y->len ? x->len : y->len;
    /* an id without a token has no data */
    const int order = len ? memcmp(x->data, y->data, len) : 0;

    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* Counts the nodes of the trie, so that its tables are allocated once: a piece
 * adds a node for each byte that it does not share with the one before it in
 * alphabetical order. `sorted` is scratch for all pieces. */
static size_t count_nodes(const struct gpt_str *texts, size_t n_texts,
                          struct gpt_str *sorted)
{
    size_t n = 1;

    memcpy(sorted, texts, n_texts * sizeof(*sorted));
    qsort(sorted, n_texts, sizeof(*sorted), compare_texts);
    for (size_t i = 0; i < n_texts; i++) {
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
        return gpt_fail(err, GPT_EDATA, "the model's pieces have %zu bytes, "
                        "must have less than 4 GiB", n_nodes);
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

/* An empty one, with room for all texts. */
static int new_trie(struct gpt_sp_trie *t, const struct gpt_str *texts,
                    int64_t n, struct gpt_err *err)
{
    struct gpt_str *sorted;

    *t = (struct gpt_sp_trie){.lowest = FLT_MAX, .longest = 4};
    GPT_TRY(gpt_new(&sorted, (size_t)n, sizeof(*sorted), "pieces", err));
    size_t n_nodes = count_nodes(texts, (size_t)n, sorted);
    gpt_free(sorted);
    return allocate_trie(t, n_nodes, err);
}

int gpt_sp_trie_of(struct gpt_sp_trie *t, const struct gpt_str *texts,
                   int64_t n, struct gpt_err *err)
{
    GPT_TRY(new_trie(t, texts, n, err));
    for (int64_t id = 0; id < n; id++)
        add_to_trie(t, texts[id], (int32_t)id);
    return GPT_OK;
}

int gpt_sp_trie_open(struct gpt_sp_trie *t, const struct gpt_sp_model *m,
                     struct gpt_err *err)
{
    GPT_TRY(new_trie(t, m->texts, m->n, err));
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

int gpt_best_begin(struct gpt_best_path **paths, size_t *cap, size_t len,
                   struct gpt_err *err)
{
    GPT_TRY(gpt_sp_check_len(len, err));
    GPT_TRY(gpt_grow(paths, cap, len + 1, sizeof(**paths), "a text", err));
    for (size_t i = 0; i <= len; i++)
        (*paths)[i] = (struct gpt_best_path){0, -1, GPT_NO_PATH};
    return GPT_OK;
}

void gpt_best_reverse(struct gpt_best_path *paths, size_t len)
{
    uint32_t end = (uint32_t)len, next = GPT_NO_PATH;

    while (end > 0) {
        uint32_t begin = paths[end].begin;

        paths[end].begin = next;
        next = end;
        end = begin;
    }
    paths[0].begin = next;
}

/* SentencePiece gives a user-defined piece a score above every normal one, the
 * higher the longer the piece is. Versions before 0.2.1 gave it another one,
 * with which long texts come out otherwise where such pieces overlap. */
static float user_defined_score(size_t bytes)
{
    return (float)(0.1 * (double)(bytes - 1));
}

/* Offers all pieces that begin at `begin`, and the unknown one for a character
 * that is no piece, so that a way to the end always exists. */
static void extend_paths(const struct gpt_sp_model *m,
                         const struct gpt_sp_trie *t,
                         struct gpt_best_path *paths, const char *text,
                         size_t begin, size_t char_len, size_t len)
{
    const float here = (float)paths[begin].score;
    bool has_char = false;
    uint32_t at = 0;

    for (size_t end = begin; end < len;) {
        at = gpt_sp_trie_child(t, at, (uint8_t)text[end++]);
        if (!at)
            break;
        int32_t id = t->ids[at];
        if (id < 0)
            continue;
        float score = m->pieces[id].type == GPT_SP_USER
                          ? user_defined_score(end - begin)
                          : m->pieces[id].score;
        gpt_best_offer(&paths[end], score + here, id, begin);
        has_char = has_char || end - begin == char_len;
    }
    if (!has_char) {
        float score = t->lowest - UNKNOWN_PENALTY;

        gpt_best_offer(&paths[begin + char_len], score + here, m->unk, begin);
    }
}

/* Lets scores count from position `at` on, where they have become so large that
 * single precision would not tell paths apart. SentencePiece does so at the
 * same limit. Only positions that a piece from before `at` can have reached
 * have a score yet, so `longest` bounds the work. */
static void rebase_scores(struct gpt_best_path *paths, size_t at,
                          size_t longest, size_t len)
{
    const float base = (float)paths[at].score;

    for (size_t i = at; i <= len && i - at <= longest; i++)
        if (paths[i].begin != GPT_NO_PATH)
            paths[i].score = (float)paths[i].score - base;
}

int gpt_sp_encode_unigram(const struct gpt_sp_model *m,
                          const struct gpt_sp_trie *t,
                          struct gpt_sp_scratch *s, const char *text,
                          size_t len, struct gpt_ids *ids,
                          struct gpt_err *err)
{
    const size_t first = ids->len;

    assert(len > 0);
    GPT_TRY(gpt_best_begin(&s->paths, &s->paths_cap, len, err));
    struct gpt_best_path *paths = s->paths;
    for (size_t at = 0; at < len;) {
        size_t n = gpt_sp_char_len(text + at, len - at);

        if (paths[at].score < -SCORE_LIMIT || paths[at].score > SCORE_LIMIT)
            rebase_scores(paths, at, t->longest, len);
        extend_paths(m, t, paths, text, at, n, len);
        at += n;
    }
    /* the unknown piece leads everywhere */
    assert(paths[len].begin != GPT_NO_PATH);
    gpt_best_reverse(paths, len);
    for (uint32_t at = 0, end; (end = paths[at].begin) != GPT_NO_PATH; at = end)
        GPT_TRY(gpt_sp_add_piece(m, text + at, end - at, paths[end].id, first,
                                 ids, err));
    return GPT_OK;
}
