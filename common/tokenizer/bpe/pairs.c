/* The tables of pairs.h. Start at gpt_pairs_open(). */
#include "tokenizer/bpe/pairs.h"

#include "base/memory.h"
#include "tokenizer/ids.h"

#include <string.h>

_Static_assert(GPT_VOCAB_MAX <= 1 << GPT_PAIR_ID_BITS, "ids fit into a pair");

/* Ranks are the numbers of merges, but where the vocabulary came from a list of
 * tokens, all ways to make one token share a rank, the first one's. */
static int fill_table(struct gpt_pairs *t, const struct gpt_vocab *v,
                      const char *merge_file, struct gpt_err *err)
{
    uint32_t rank = 0;

    t->in_order = true;
    for (size_t i = 0; i <= t->mask; i++)
        t->table[i] = GPT_PAIR_FREE;
    for (size_t r = 0; r < v->n_merges; r++) {
        const struct gpt_merge *m = &v->merges[r];
        const uint64_t name = gpt_pair_name(m->left, m->right);
        uint64_t *pair = gpt_pairs_find(t, gpt_pair_place(t, name), name);
        uint64_t *word, bit;

        if (*pair != GPT_PAIR_FREE)
            return gpt_fail(err, GPT_EDATA,
                            "%s: merges number %lu and %zu are the same",
                            merge_file,
                            (unsigned long)gpt_pair_rank_of(*pair) + 1, r + 1);
        if (!v->shared_ranks || r == 0 || m[-1].result != m->result)
            rank = (uint32_t)r;
        t->result[r] = m->result;
        t->in_order &= r == 0 || m->result == m[-1].result + 1;
        *pair = name << GPT_RANK_BITS | rank;
        word = gpt_pairs_seen(t, name, &bit);
        *word |= bit;
    }
    return GPT_OK;
}

/* A piece begins as pairs of bytes, for which a table needs no hash. */
static void fill_bytes(struct gpt_pairs *t)
{
    for (unsigned i = 0; i < 65536; i++)
        t->byte_rank[i] =
            gpt_pairs_rank(t, t->byte_id[i >> 8], t->byte_id[i & 255]);
}

/* Allocates the four tables in one block, which for GPT-2's vocabulary is one
 * large page: a merge looks at random places of them. */
static int take_tables(struct gpt_pairs *t, size_t n_slots, size_t n_merges,
                       struct gpt_err *err)
{
    const size_t table = n_slots * sizeof(*t->table);
    const size_t seen = (n_slots >> (6 - GPT_PAIR_SEEN_LOG)) * sizeof(*t->seen);
    const size_t bytes = 65536 * sizeof(*t->byte_rank);
    char *p;

    GPT_TRY(gpt_new_large_pages(
        &t->memory, &p, table + seen + bytes + n_merges * sizeof(int32_t),
        "merges", err));
    t->table = (uint64_t *)(void *)p;
    t->seen = (uint64_t *)(void *)(p + table);
    t->byte_rank = (uint32_t *)(void *)(p + table + seen);
    t->result = (int32_t *)(void *)(p + table + seen + bytes);
    return GPT_OK;
}

int gpt_pairs_open(struct gpt_pairs *t, const struct gpt_vocab *v,
                   const char *merge_file, struct gpt_err *err)
{
    size_t n_slots = 1024;

    /* a rank has GPT_RANK_BITS, and GPT_NO_RANK differs from all of them */
    if (v->n_merges >= (size_t)1 << GPT_RANK_BITS)
        return gpt_fail(err, GPT_EDATA, "%s: %zu merges, limit %d", merge_file,
                        v->n_merges, (1 << GPT_RANK_BITS) - 1);
    while (n_slots < v->n_merges * 2)
        n_slots *= 2;
    t->mask = n_slots - 1;
    t->shift = 64 - (unsigned)__builtin_ctzll(n_slots);
    memcpy(t->byte_id, v->byte_id, sizeof(t->byte_id));
    GPT_TRY(take_tables(t, n_slots, v->n_merges, err));
    GPT_TRY(fill_table(t, v, merge_file, err));
    fill_bytes(t);
    return GPT_OK;
}

void gpt_pairs_close(struct gpt_pairs *t)
{
    gpt_free(t->memory);
}
