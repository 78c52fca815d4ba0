/* What several ranks of Megatron-LM have copies of: norms, biases of matrices
 * that are cut by columns, positions, and the word table of the last stage. A
 * file of another run among those of a directory shows there, and nowhere else.
 * Copies may drift apart in honest runs, too, so it is a warning. Start at
 * gpt_megatron_check_copies(). */
#include "checkpoint/megatron/megatron.h"

#include "base/log.h"
#include "checkpoint/safetensors/entry.h"

#include <string.h>

struct check {
    const struct gpt_megatron *m;
    int64_t differ;
    const char *name, *file; /* of the first that differs */
};

/* A copy that is not there has been refused, or is another name's. */
static int compare_copy(struct check *c, const struct gpt_megatron_rank *r,
                        const struct gpt_safetensor *copy,
                        const struct gpt_megatron_rank *first,
                        const struct gpt_safetensor *entry,
                        struct gpt_err *err)
{
    bool equal;

    if (!copy || !entry)
        return GPT_OK;
    GPT_TRY(gpt_stored_equal(&equal, r->torch.in, copy, first->torch.in, entry,
                             err));
    if (!equal && c->differ++ == 0) {
        c->name = copy->name;
        c->file = r->file;
    }
    return GPT_OK;
}

/* Each rank of a stage has all of what is not cut, and where ranks have other
 * experts, those beside them have the same parts of the rest. Where the first
 * rank's is of another type or shape, that is a difference, too. */
static int compare_ranks(struct check *c, int64_t pp, int64_t v, int64_t tp,
                         const struct gpt_param *p, struct gpt_err *err)
{
    const struct gpt_megatron *m = c->m;
    const bool whole = p->split == GPT_SPLIT_NONE;
    const struct gpt_megatron_rank *first =
        gpt_megatron_rank(m, pp, whole ? 0 : tp);
    const struct gpt_megatron_chunk *chunk = &first->chunks[v];
    const int64_t local = p->layer < 0 ? p->layer
                                       : p->layer - chunk->first_layer;
    const struct gpt_safetensor *entry;

    if (p->layer >= 0 && (local < 0 || local >= chunk->n_layers))
        return GPT_OK;
    entry = gpt_megatron_tensor(chunk, p->role, local);
    for (int64_t ep = 0; ep < m->ep_size; ep++) {
        const struct gpt_megatron_rank *r =
            gpt_megatron_rank_of(m, ep, pp, tp);

        if (r->file && r != first)
            GPT_TRY(compare_copy(
                c, r, gpt_megatron_tensor(&r->chunks[v], p->role, local), first,
                entry, err));
    }
    return GPT_OK;
}

/* Ranks cut the table in the same way in all stages, so their parts are equal.
 * The copy of the word table that a last stage has, under either name. */
static const struct gpt_safetensor *
find_head(const struct gpt_megatron_chunk *chunk)
{
    for (int64_t i = 0; i < chunk->tensors.n; i++)
        if (strstr(chunk->tensors.tensors[i].name, GPT_MEGATRON_HEAD))
            return &chunk->tensors.tensors[i];
    return gpt_megatron_tensor(chunk, GPT_OUTPUT_WEIGHT, -1);
}

/* Where there is one stage, a copy is in the file of the table itself. */
static int compare_head(struct check *c, const struct gpt_param *words,
                        struct gpt_err *err)
{
    const struct gpt_megatron *m = c->m;

    for (int64_t tp = 0; tp < m->tp_size; tp++) {
        const struct gpt_megatron_rank *first = gpt_megatron_rank(m, 0, tp);
        const struct gpt_megatron_rank *last =
            gpt_megatron_rank(m, m->pp_size - 1, tp);

        GPT_TRY(compare_copy(
            c, last, find_head(&last->chunks[last->n_chunks - 1]), first,
            gpt_megatron_tensor(&first->chunks[0], words->role, -1), err));
    }
    return GPT_OK;
}

/* Files of global tensors have one of each. */
int gpt_megatron_check_copies(const struct gpt_megatron *m,
                              struct gpt_err *err)
{
    struct check c = {.m = m};

    if (m->dist || !m->checks_copies)
        return GPT_OK;
    for (int64_t i = 0; i < m->table.n; i++) {
        const struct gpt_param *p = &m->table.rows[i];

        if (p->role == GPT_WORD_EMBEDDING && m->config.tied_embeddings)
            GPT_TRY(compare_head(&c, p, err));
        for (int64_t k = 0; k < m->pp_size * m->tp_size; k++)
            for (int64_t v = 0; v < m->ranks[0].n_chunks; v++)
                GPT_TRY(compare_ranks(&c, k / m->tp_size, v, k % m->tp_size, p,
                                      err));
    }
    if (c.differ)
        gpt_warn("%s: ranks have copies of one tensor that differ, %lld in "
                 "all, first '%s' of %s: a file may be of another run; those "
                 "of the first rank and stage are used",
                 m->dir, (long long)c.differ, c.name, c.file);
    return GPT_OK;
}
