/* Pairs by name and by rank: see train_pairs.h. Start at gpt_bpe_pairs_take().
 *
 * Two indices over one array. The table by name serves the counts that fall: a
 * merge lowers pairs that are known by their two ids. The heap serves the
 * choice of the next merge. A fall does not touch the heap, as it would have to
 * find the entry first: the entry's count stays an upper bound and is put right
 * when it comes up. */
#include "tokenizer/bpe/train_pairs.h"

#include "base/memory.h"

#include <assert.h>

/* An entry of the heap: the count that the pair had when the entry was placed,
 * its ids as one number, so that a comparison reads no pair, and its index. */
struct gpt_bpe_rank {
    int64_t count;
    uint64_t name;
    uint32_t pair;
};

static uint64_t name_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* ---- by name ---- */

static size_t first_slot(const struct gpt_bpe_pairs *pairs, uint64_t name)
{
    /* Fibonacci hashing of the mixed halves: the low ids are dense. */
    name ^= name >> 32;
    return (name * 0x9E3779B97F4A7C15u >> 20) & (pairs->n_slots - 1);
}

/* Finds the slot that holds (left, right), or the free one where it belongs. */
static uint32_t *find_slot(const struct gpt_bpe_pairs *pairs, int32_t left,
                           int32_t right)
{
    size_t i = first_slot(pairs, name_of(left, right));

    for (;; i = (i + 1) & (pairs->n_slots - 1)) {
        uint32_t s = pairs->slot[i];

        if (s == 0)
            return &pairs->slot[i];
        const struct gpt_bpe_pair *p = &pairs->pair[s - 1];
        if (p->left == left && p->right == right)
            return &pairs->slot[i];
    }
}

/* Doubles the table and enters all pairs again. */
static int grow_slots(struct gpt_bpe_pairs *pairs, struct gpt_err *err)
{
    size_t n = pairs->n_slots ? pairs->n_slots * 2 : 1 << 12;
    uint32_t *slot;

    GPT_TRY(gpt_new(&slot, n, sizeof(*slot), "pairs by name", err));
    gpt_free(pairs->slot);
    pairs->slot = slot;
    pairs->n_slots = n;
    for (size_t i = 0; i < pairs->n; i++)
        *find_slot(pairs, pairs->pair[i].left, pairs->pair[i].right) =
            (uint32_t)(i + 1);
    return GPT_OK;
}

void gpt_bpe_pairs_lower(struct gpt_bpe_pairs *pairs, int32_t left,
                         int32_t right, int64_t by)
{
    uint32_t s = *find_slot(pairs, left, right);

    if (s)
        pairs->pair[s - 1].count -= by;
}

/* ---- by rank ---- */

/* True when a comes first: the pair with the highest count, and of equal ones
 * with the lowest left id, then right id. */
static bool goes_before(const struct gpt_bpe_rank *a,
                        const struct gpt_bpe_rank *b)
{
    return a->count != b->count ? a->count > b->count : a->name < b->name;
}

static void sift_up(struct gpt_bpe_rank *heap, size_t i)
{
    struct gpt_bpe_rank moving = heap[i];

    while (i > 0 && goes_before(&moving, &heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = moving;
}

static void sift_down(struct gpt_bpe_rank *heap, size_t n, size_t i)
{
    struct gpt_bpe_rank moving = heap[i];

    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && goes_before(&heap[child + 1], &heap[child]))
            child++;
        if (!goes_before(&heap[child], &moving))
            break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

struct gpt_bpe_pair *gpt_bpe_pairs_take(struct gpt_bpe_pairs *pairs)
{
    struct gpt_bpe_rank *top = pairs->heap;

    while (pairs->n_heap) {
        struct gpt_bpe_pair *pair = &pairs->pair[top->pair];
        bool true_count = top->count == pair->count;

        assert(pair->count <= top->count); /* counts only fall */
        if (true_count)
            *top = pairs->heap[--pairs->n_heap];
        else
            top->count = pair->count;
        if (pairs->n_heap)
            sift_down(pairs->heap, pairs->n_heap, 0);
        if (true_count)
            return pair;
    }
    return NULL;
}

int gpt_bpe_pairs_add(struct gpt_bpe_pairs *pairs,
                      const struct gpt_bpe_pair *pair, struct gpt_err *err)
{
    if (pairs->n >= UINT32_MAX - 1)
        return gpt_fail(err, GPT_EDATA, "more than 2^32 pairs of tokens");
    if (2 * (pairs->n + 1) > pairs->n_slots)
        GPT_TRY(grow_slots(pairs, err));
    GPT_TRY(gpt_grow(&pairs->pair, &pairs->cap, pairs->n + 1,
                     sizeof(*pairs->pair), "pairs of tokens", err));
    GPT_TRY(gpt_grow(&pairs->heap, &pairs->cap_heap, pairs->n_heap + 1,
                     sizeof(*pairs->heap), "pairs by rank", err));

    uint32_t index = (uint32_t)pairs->n;
    *find_slot(pairs, pair->left, pair->right) = index + 1;
    pairs->pair[pairs->n++] = *pair;
    pairs->heap[pairs->n_heap] = (struct gpt_bpe_rank){
        pair->count, name_of(pair->left, pair->right), index};
    sift_up(pairs->heap, pairs->n_heap++);
    return GPT_OK;
}

void gpt_bpe_pairs_free(struct gpt_bpe_pairs *pairs)
{
    gpt_free(pairs->pair);
    gpt_free(pairs->slot);
    gpt_free(pairs->heap);
    *pairs = (struct gpt_bpe_pairs){0};
}
