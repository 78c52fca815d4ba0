/* Merging, in two forms with equal results: short pieces, nearly all of them,
 * by looking for the lowest rank among all pairs again and again; long ones
 * with a heap over a linked list. Start at gpt_bpe_merge(). */
#include "tokenizer/bpe/bpe.h"

#include "base/memory.h"
#include "tokenizer/bpe/pairs.h"

#include <assert.h>
#include <string.h>

enum { SHORT_PIECE = 64 }; /* bytes: a bit of a word for each */
struct gpt_bpe {
    struct gpt_pairs pairs;
    struct gpt_seams seams;
    const struct gpt_vocab *vocab;
};

int gpt_bpe_open(struct gpt_bpe **out, const struct gpt_vocab *v,
                 const char *merge_file, struct gpt_err *err)
{
    struct gpt_bpe *bpe;
    int status;

    assert(v->n <= GPT_VOCAB_MAX);
    GPT_TRY(gpt_new(&bpe, 1, sizeof(*bpe), "merges", err));
    bpe->vocab = v;
    GPT_TRY_GOTO(status, gpt_pairs_open(&bpe->pairs, v, merge_file, err), fail);
    GPT_TRY_GOTO(status, gpt_seams_open(&bpe->seams, v, err), fail);
    *out = bpe;
    return GPT_OK;
fail:
    gpt_bpe_close(bpe);
    return status;
}

void gpt_bpe_close(struct gpt_bpe *bpe)
{
    if (!bpe)
        return;
    gpt_pairs_close(&bpe->pairs);
    gpt_seams_close(&bpe->seams);
    gpt_free(bpe);
}

size_t gpt_bpe_token_len(const struct gpt_bpe *bpe, int32_t id)
{
    return bpe->vocab->tokens[id].len;
}

int64_t gpt_bpe_vocab_size(const struct gpt_bpe *bpe)
{
    return bpe->vocab->n;
}

const struct gpt_pairs *gpt_bpe_pairs(const struct gpt_bpe *bpe)
{
    return &bpe->pairs;
}

const struct gpt_seams *gpt_bpe_seams(const struct gpt_bpe *bpe)
{
    return &bpe->seams;
}

void gpt_bpe_fix(struct gpt_bpe *bpe, int32_t id)
{
    gpt_seams_fix(&bpe->seams, bpe->vocab->tokens[id]);
}

static inline uint32_t rank_of(const struct gpt_bpe *bpe, int32_t left,
                               int32_t right)
{
    return gpt_pairs_rank(&bpe->pairs, left, right);
}

static int32_t result_of(const struct gpt_bpe *bpe, uint32_t rank)
{
    return gpt_pairs_result(&bpe->pairs, rank);
}

/* ---- short pieces ---- */

/* Ranks are kept with their places in the low bits, so that the lowest rank,
 * and of equal ones the leftmost, is a plain minimum: a branch on it would be
 * mispredicted nearly every time. */
enum { PLACE_BITS = 6 };
_Static_assert(SHORT_PIECE <= 1 << PLACE_BITS, "a place fits beside a rank");
_Static_assert(GPT_RANK_BITS + PLACE_BITS < 32, "and they fit into 32 bits");

/* Puts the place into a rank; GPT_NO_RANK stays the largest of all. */
static uint32_t place_rank(uint32_t rank, size_t place)
{
    return rank == GPT_NO_RANK ? rank : rank << PLACE_BITS | (uint32_t)place;
}

static inline uint32_t lower(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The lowest of low[0..n), in two chains of minima that run side by side, as
 * neither waits for the other. low[n] is GPT_NO_RANK and makes an odd n even.
 */
static inline uint32_t lowest(const uint32_t *low, size_t n)
{
    uint32_t a = GPT_NO_RANK, b = GPT_NO_RANK;

    for (size_t i = 0; i < n; i += 2) {
        a = lower(a, low[i]);
        b = lower(b, low[i + 1]);
    }
    return lower(a, b);
}

/* Writes the ids of n bytes into id[0..n), and returns how many are left. A
 * token is at the place of its first byte; `left` has a bit for each token, so
 * that a neighbour is found by counting zeros. A merge changes two entries of
 * low[] and reads no text again. With at most 64 of them a scan without
 * branches takes the place of a heap. */
static size_t merge_short(const struct gpt_bpe *bpe, const uint8_t *piece,
                          size_t n, int32_t *id)
{
    uint32_t low[SHORT_PIECE]; /* rank of the pair that begins at a place */

    assert(n >= 1 && n <= SHORT_PIECE);
    uint64_t left = ~(uint64_t)0 >> (64 - n); /* places that are tokens */
    low[n - 1] = GPT_NO_RANK;
    for (size_t i = 0; i < n; i++)
        id[i] = bpe->pairs.byte_id[piece[i]];
    for (size_t i = 0; i + 1 < n; i++)
        low[i] = place_rank(
            bpe->pairs.byte_rank[(unsigned)piece[i] << 8 | piece[i + 1]], i);
    for (uint32_t least; (least = lowest(low, n - 1)) != GPT_NO_RANK;) {
        size_t at = least & (SHORT_PIECE - 1);
        uint64_t after = left & (~(uint64_t)1 << at);
        size_t gone = (size_t)__builtin_ctzll(after);
        uint64_t before = left & (((uint64_t)1 << at) - 1);

        id[at] = result_of(bpe, least >> PLACE_BITS);
        left &= ~((uint64_t)1 << gone);
        low[gone] = low[at] = GPT_NO_RANK;
        after &= after - 1;
        if (after) /* the token grew: its pair with the next one */
            low[at] = place_rank(
                rank_of(bpe, id[at], id[__builtin_ctzll(after)]), at);
        if (before) { /* and that of the one before it */
            size_t to = 63 - (size_t)__builtin_clzll(before);

            low[to] = place_rank(rank_of(bpe, id[to], id[at]), to);
        }
    }
    /* in place: an id moves to the left or not at all */
    size_t kept = 0;
    for (; left; left &= left - 1)
        id[kept++] = id[__builtin_ctzll(left)];
    return kept;
}

/* ---- long pieces ---- */

/* A token of the piece at the position of its first byte, in a list that is
 * linked both ways, as a long piece would be moved too often. */
struct gpt_bpe_node {
    int32_t id;
    uint32_t rank; /* of the pair with `next`; GPT_NO_RANK: merged away, too */
    uint32_t prev, next; /* positions; NONE at the ends */
};
#define NONE UINT32_MAX

/* Finds the rank of the pair that begins at `at`, and puts it into the heap. */
static int push_pair(const struct gpt_bpe *bpe, struct gpt_bpe_scratch *s,
                     uint32_t at, struct gpt_err *err)
{
    struct gpt_bpe_node *node = &s->nodes[at];

    node->rank = node->next == NONE
                     ? GPT_NO_RANK
                     : rank_of(bpe, node->id, s->nodes[node->next].id);
    if (node->rank == GPT_NO_RANK)
        return GPT_OK;
    return gpt_pair_heap_push(&s->heap, node->rank, at, err);
}

/* A heap's entry is good while its rank is that of the node at its place. A
 * merge changes the rank of the node that grew and of the one before it, and
 * takes that of the node that is gone: what the heap says of these pairs is
 * stale then, and is dropped when it comes up. */
static int merge_long(const struct gpt_bpe *bpe, struct gpt_bpe_scratch *s,
                      const uint8_t *piece, uint32_t n, struct gpt_err *err)
{
    struct gpt_bpe_node *nodes = s->nodes;
    uint32_t at, rank;

    s->heap.n = 0; /* a call that failed may have left some */
    for (uint32_t i = 0; i < n; i++)
        nodes[i] = (struct gpt_bpe_node){
            bpe->pairs.byte_id[piece[i]], GPT_NO_RANK, i ? i - 1 : NONE,
            i + 1 < n ? i + 1 : NONE};
    for (uint32_t i = 0; i + 1 < n; i++)
        GPT_TRY(push_pair(bpe, s, i, err));
    while (gpt_pair_heap_pop(&s->heap, &rank, &at)) {
        struct gpt_bpe_node *node = &nodes[at];

        if (node->rank != rank)
            continue;
        assert(node->next != NONE); /* a node with a rank has a neighbour */
        struct gpt_bpe_node *gone = &nodes[node->next];
        node->id = result_of(bpe, rank);
        node->next = gone->next;
        gone->rank = GPT_NO_RANK;
        if (node->next != NONE)
            nodes[node->next].prev = at;
        GPT_TRY(push_pair(bpe, s, at, err));
        if (node->prev != NONE)
            GPT_TRY(push_pair(bpe, s, node->prev, err));
    }
    return GPT_OK;
}

static int append_long(const struct gpt_bpe *bpe, struct gpt_bpe_scratch *s,
                       const char *piece, size_t len, struct gpt_ids *ids,
                       struct gpt_err *err)
{
    if (len >= NONE)
        return gpt_fail(err, GPT_EDATA,
                        "the text has %zu bytes without a break between "
                        "words, must have less than 4 GiB",
                        len);
    GPT_TRY(gpt_grow(&s->nodes, &s->nodes_cap, len, sizeof(*s->nodes),
                     "a long piece of text", err));
    GPT_TRY(merge_long(bpe, s, (const uint8_t *)piece, (uint32_t)len, err));
    for (uint32_t at = 0; at != NONE; at = s->nodes[at].next)
        GPT_TRY(gpt_ids_add(ids, &s->nodes[at].id, 1, err));
    return GPT_OK;
}

void gpt_bpe_scratch_free(struct gpt_bpe_scratch *s)
{
    gpt_free(s->nodes);
    gpt_pair_heap_free(&s->heap);
    memset(s, 0, sizeof(*s));
}

int gpt_bpe_merge(const struct gpt_bpe *bpe, struct gpt_bpe_scratch *s,
                  const char *piece, size_t len, struct gpt_ids *ids,
                  struct gpt_err *err)
{
    assert(len > 0);
    if (len > SHORT_PIECE)
        return append_long(bpe, s, piece, len, ids, err);
    GPT_TRY(gpt_ids_reserve(ids, len, err));
    ids->len += merge_short(bpe, (const uint8_t *)piece, len,
                            ids->data + ids->len);
    return GPT_OK;
}
