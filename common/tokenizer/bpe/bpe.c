/* Merging, in two forms with equal results: short pieces, nearly all of them,
 * by looking for the lowest rank among all pairs again and again; long ones
 * with a heap over a linked list. Start at gpt_bpe_merge(). */
#include "tokenizer/bpe/bpe.h"

#include "base/memory.h"

#include <assert.h>
#include <string.h>

enum { SHORT_PIECE = 64 }; /* bytes: a bit of a word for each */
#define NO_RANK UINT32_MAX

/* The table of pairs is open addressing, at most half full. A pair and its rank
 * are one word, left << 43 | right << 22 | rank, so that a search reads one
 * cache line, in which eight pairs lie.
 *
 * Most pairs that are asked for are in no merge. For these there is a second
 * table of bits, `seen`, eight bits for each place of the first: a pair whose
 * bit is clear is not in the list. It is an eighth of the size and stays in a
 * nearer cache. */
enum { ID_BITS = 21, RANK_BITS = 22, SEEN_LOG = 3 };
#define FREE UINT64_MAX
_Static_assert(GPT_VOCAB_MAX <= 1 << ID_BITS, "ids fit into a pair");

struct gpt_bpe {
    char *memory; /* of the four tables */
    uint64_t *pairs;
    unsigned shift; /* a hash's high bits are a place */
    size_t mask;
    uint64_t *seen;      /* a bit for each hash of a pair */
    int32_t *result;     /* what a merge makes, by rank */
    bool in_order;       /* each result is the one before it + 1 */
    uint32_t *byte_rank; /* rank of two bytes, left << 8 | right */
    struct gpt_seams seams;
    int32_t byte_id[256];
    const struct gpt_vocab *vocab;
};

static uint64_t pair_name(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << ID_BITS | (uint32_t)right;
}

static uint64_t name_hash(uint64_t name)
{
    return name * 0x9E3779B97F4A7C15u;
}

/* The place of a pair, or the free one where it belongs. The high bits of the
 * product are the place: they depend on all bits of the name. */
static uint64_t *find_pair(const struct gpt_bpe *bpe, uint64_t name)
{
    size_t i = (size_t)(name_hash(name) >> bpe->shift);

    while (bpe->pairs[i] != FREE && bpe->pairs[i] >> RANK_BITS != name)
        i = (i + 1) & bpe->mask;
    return &bpe->pairs[i];
}

static uint64_t *seen_word(const struct gpt_bpe *bpe, uint64_t name,
                           uint64_t *bit)
{
    uint64_t i = name_hash(name) >> (bpe->shift - SEEN_LOG);

    *bit = (uint64_t)1 << i % 64;
    return &bpe->seen[i / 64];
}

static uint32_t rank_of(uint64_t pair)
{
    return (uint32_t)(pair & (((uint64_t)1 << RANK_BITS) - 1));
}

/* NO_RANK for a pair that is not merged. */
static inline uint32_t pair_rank(const struct gpt_bpe *bpe, int32_t left,
                                 int32_t right)
{
    uint64_t bit, name = pair_name(left, right);

    if (!(*seen_word(bpe, name, &bit) & bit))
        return NO_RANK;
    uint64_t pair = *find_pair(bpe, name);
    return pair == FREE ? NO_RANK : rank_of(pair);
}

/* Most vocabularies number what merging makes in the order of the merges, which
 * saves the read of a table. */
static int32_t result_of(const struct gpt_bpe *bpe, uint32_t rank)
{
    return bpe->in_order ? bpe->result[0] + (int32_t)rank : bpe->result[rank];
}

/* Ranks are the numbers of merges, but where the vocabulary came from a list of
 * tokens, all ways to make one token share a rank, the first one's. */
static int fill_pairs(struct gpt_bpe *bpe, const char *merge_file,
                      struct gpt_err *err)
{
    const struct gpt_vocab *v = bpe->vocab;
    uint32_t rank = 0;

    bpe->in_order = true;
    for (size_t i = 0; i <= bpe->mask; i++)
        bpe->pairs[i] = FREE;
    for (size_t r = 0; r < v->n_merges; r++) {
        const struct gpt_merge *m = &v->merges[r];
        const uint64_t name = pair_name(m->left, m->right);
        uint64_t *pair = find_pair(bpe, name), *word, bit;

        if (*pair != FREE)
            return gpt_fail(err, GPT_EDATA,
                            "%s: merges number %lu and %zu are the same",
                            merge_file, (unsigned long)rank_of(*pair) + 1,
                            r + 1);
        if (!v->shared_ranks || r == 0 || m[-1].result != m->result)
            rank = (uint32_t)r;
        bpe->result[r] = m->result;
        bpe->in_order &= r == 0 || m->result == m[-1].result + 1;
        *pair = name << RANK_BITS | rank;
        word = seen_word(bpe, name, &bit);
        *word |= bit;
    }
    return GPT_OK;
}

/* A piece begins as pairs of bytes, for which a table needs no hash. */
static void fill_bytes(struct gpt_bpe *bpe)
{
    for (unsigned i = 0; i < 65536; i++)
        bpe->byte_rank[i] =
            pair_rank(bpe, bpe->byte_id[i >> 8], bpe->byte_id[i & 255]);
}

/* The four tables in one block, which for GPT-2's vocabulary is one large
 * page: a merge looks at random places of them. */
static int take_tables(struct gpt_bpe *bpe, size_t n_slots, size_t n_merges,
                       struct gpt_err *err)
{
    const size_t pairs = n_slots * sizeof(*bpe->pairs);
    const size_t seen = (n_slots >> (6 - SEEN_LOG)) * sizeof(*bpe->seen);
    const size_t bytes = 65536 * sizeof(*bpe->byte_rank);
    char *p;

    GPT_TRY(gpt_new_large_pages(
        &bpe->memory, &p, pairs + seen + bytes + n_merges * sizeof(int32_t),
        "merges", err));
    bpe->pairs = (uint64_t *)(void *)p;
    bpe->seen = (uint64_t *)(void *)(p + pairs);
    bpe->byte_rank = (uint32_t *)(void *)(p + pairs + seen);
    bpe->result = (int32_t *)(void *)(p + pairs + seen + bytes);
    return GPT_OK;
}

static int open_tables(struct gpt_bpe *bpe, const char *merge_file,
                       struct gpt_err *err)
{
    const struct gpt_vocab *v = bpe->vocab;
    size_t n_slots = 1024;

    /* a rank has RANK_BITS, and NO_RANK must differ from all of them */
    if (v->n_merges >= (size_t)1 << RANK_BITS)
        return gpt_fail(err, GPT_EDATA, "%s: %zu merges, limit %d", merge_file,
                        v->n_merges, (1 << RANK_BITS) - 1);
    while (n_slots < v->n_merges * 2)
        n_slots *= 2;
    bpe->mask = n_slots - 1;
    bpe->shift = 64 - (unsigned)__builtin_ctzll(n_slots);
    GPT_TRY(take_tables(bpe, n_slots, v->n_merges, err));
    GPT_TRY(fill_pairs(bpe, merge_file, err));
    fill_bytes(bpe);
    return gpt_seams_open(&bpe->seams, v, err);
}

int gpt_bpe_open(struct gpt_bpe **out, const struct gpt_vocab *v,
                 const char *merge_file, struct gpt_err *err)
{
    struct gpt_bpe *bpe;

    assert(v->n <= GPT_VOCAB_MAX);
    GPT_TRY(gpt_new(&bpe, 1, sizeof(*bpe), "merges", err));
    bpe->vocab = v;
    memcpy(bpe->byte_id, v->byte_id, sizeof(bpe->byte_id));
    int status = open_tables(bpe, merge_file, err);
    if (status != GPT_OK) {
        gpt_bpe_close(bpe);
        return status;
    }
    *out = bpe;
    return GPT_OK;
}

void gpt_bpe_close(struct gpt_bpe *bpe)
{
    if (!bpe)
        return;
    gpt_free(bpe->memory);
    gpt_seams_close(&bpe->seams);
    gpt_free(bpe);
}

size_t gpt_bpe_token_len(const struct gpt_bpe *bpe, int32_t id)
{
    return bpe->vocab->tokens[id].len;
}

const struct gpt_seams *gpt_bpe_seams(const struct gpt_bpe *bpe)
{
    return &bpe->seams;
}

void gpt_bpe_fix(struct gpt_bpe *bpe, int32_t id)
{
    gpt_seams_fix(&bpe->seams, bpe->vocab->tokens[id]);
}

/* ---- short pieces ---- */

/* Ranks with their places in the low bits, so that the lowest rank, and of
 * equal ones the leftmost, is a plain minimum: a branch on it would be
 * mispredicted about every time. */
enum { PLACE_BITS = 6 };
_Static_assert(SHORT_PIECE <= 1 << PLACE_BITS, "a place fits beside a rank");
_Static_assert(RANK_BITS + PLACE_BITS < 32, "and they fit into 32 bits");

/* NO_RANK stays the largest of all. */
static uint32_t place_rank(uint32_t rank, size_t place)
{
    return rank == NO_RANK ? NO_RANK : rank << PLACE_BITS | (uint32_t)place;
}

static inline uint32_t lower(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The lowest of low[0..n), in two chains of minima that run side by side, as
 * neither waits for the other. low[n] is NO_RANK and makes an odd n even. */
static inline uint32_t lowest(const uint32_t *low, size_t n)
{
    uint32_t a = NO_RANK, b = NO_RANK;

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
    low[n - 1] = NO_RANK;
    for (size_t i = 0; i < n; i++)
        id[i] = bpe->byte_id[piece[i]];
    for (size_t i = 0; i + 1 < n; i++)
        low[i] = place_rank(
            bpe->byte_rank[(unsigned)piece[i] << 8 | piece[i + 1]], i);
    for (uint32_t least; (least = lowest(low, n - 1)) != NO_RANK;) {
        size_t at = least & (SHORT_PIECE - 1);
        uint64_t after = left & (~(uint64_t)1 << at);
        size_t gone = (size_t)__builtin_ctzll(after);
        uint64_t before = left & (((uint64_t)1 << at) - 1);

        id[at] = result_of(bpe, least >> PLACE_BITS);
        left &= ~((uint64_t)1 << gone);
        low[gone] = low[at] = NO_RANK;
        after &= after - 1;
        if (after) /* the token grew: its pair with the next one */
            low[at] = place_rank(
                pair_rank(bpe, id[at], id[__builtin_ctzll(after)]), at);
        if (before) { /* and that of the one before it */
            size_t to = 63 - (size_t)__builtin_clzll(before);

            low[to] = place_rank(pair_rank(bpe, id[to], id[at]), to);
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
    uint32_t rank; /* of the pair with `next`; NO_RANK also when merged away */
    uint32_t prev, next; /* positions; NONE at the ends */
};
#define NONE UINT32_MAX

/* Finds the rank of the pair that begins at `at`, and puts it into the heap. */
static int push_pair(const struct gpt_bpe *bpe, struct gpt_bpe_scratch *s,
                     uint32_t at, struct gpt_err *err)
{
    struct gpt_bpe_node *node = &s->nodes[at];

    node->rank = node->next == NONE
                     ? NO_RANK
                     : pair_rank(bpe, node->id, s->nodes[node->next].id);
    if (node->rank == NO_RANK)
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
        nodes[i] = (struct gpt_bpe_node){bpe->byte_id[piece[i]], NO_RANK,
                                         i ? i - 1 : NONE,
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
        gone->rank = NO_RANK;
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
                        "%zu bytes without a break between words, limit 4 GiB",
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
