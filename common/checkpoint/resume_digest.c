/* What tells the parts of a file that a plan makes from those of another plan:
 * a list of parts that are whole counts for the same ones alone. Start at
 * gpt_resume_digest(). */
#include "checkpoint/resume.h"

#include "base/hash.h"
#include "checkpoint/fill.h"
#include "checkpoint/merge.h"
#include "checkpoint/scaled.h"

#include <string.h>

/* Adds numbers one by one, as the gaps between members of a structure may hold
 * anything. */
static void add_number(struct gpt_xxh64 *h, int64_t number)
{
    gpt_xxh64_add(h, &number, sizeof(number));
}

static void add_numbers(struct gpt_xxh64 *h, const int64_t *numbers, int n)
{
    gpt_xxh64_add(h, numbers, sizeof(*numbers) * (size_t)n);
}

static void add_tensor(struct gpt_xxh64 *h, const struct gpt_tensor *t);

static void add_file(struct gpt_xxh64 *h, const struct gpt_in *in)
{
    if (!in)
        return;
    const struct gpt_in_stamp stamp = gpt_in_stamp(in);
    gpt_xxh64_add(h, &stamp, sizeof(stamp));
}

/* Numbers and scales may lie in different files. The rest of the description
 * follows from these numbers and from what the files hold. */
static void add_scaled(struct gpt_xxh64 *h, const struct gpt_scaled *s)
{
    const int64_t place[] = {s->numbers.begin, s->numbers.bits,
                             s->numbers.plus,  s->scales_begin,
                             s->zeros.begin,   s->zeros.plus,
                             s->index_begin,   s->group_rows,
                             s->group_columns};

    add_numbers(h, place, (int)GPT_COUNT(place));
    add_file(h, s->numbers.in);
    add_file(h, s->scales);
    add_file(h, s->zeros.in);
    add_file(h, s->index);
    if (s->nested)
        add_scaled(h, s->nested);
}

/* NULL: not packed. */
static void add_packed(struct gpt_xxh64 *h, const struct gpt_packed *p)
{
    if (p && p->scaled) {
        add_scaled(h, p->scaled);
        return;
    }
    add_number(h, p ? p->begin : -1);
    add_number(h, p ? (int64_t)p->packing->ggml_type : -1);
}

/* What is added to a piece, and to what. */
static void add_merge(struct gpt_xxh64 *h, const struct gpt_merging *m)
{
    const int64_t place[] = {m->begin, m->pitch, m->columns, m->line, m->at};
    const struct gpt_product *p = m->product;

    add_numbers(h, place, (int)GPT_COUNT(place));
    add_number(h, m->kept);
    add_packed(h, m->packed);
    if (p) {
        gpt_xxh64_add(h, &p->scale, sizeof(p->scale));
        add_number(h, p->rounds);
        add_tensor(h, &p->left);
        add_tensor(h, &p->right);
        add_tensor(h, &p->lengths);
    }
    if (m->under)
        add_merge(h, m->under);
}

/* All that decides which bytes a part has: its boxes in files, and which files
 * these are. */
static void add_tensor(struct gpt_xxh64 *h, const struct gpt_tensor *t)
{
    const struct gpt_in *last = NULL;

    add_number(h, t->ndim);
    for (size_t i = 0; i < t->n; i++) {
        const struct gpt_file_box *b = &t->pieces[i];

        add_numbers(h, b->begin, t->ndim);
        add_numbers(h, b->shape, t->ndim);
        add_numbers(h, b->stride, t->ndim);
        add_number(h, b->offset);
        add_number(h, b->dtype);
        add_packed(h, b->packed);
        if (b->merge && (i == 0 || b->merge != t->pieces[i - 1].merge))
            add_merge(h, b->merge);
        if (b->in != last)
            add_file(h, b->in);
        last = b->in;
    }
}

/* The digest is that of the whole file. A change of one part makes all of them
 * new ones: layouts and types are changed for a checkpoint, not a tensor. */
uint64_t gpt_resume_digest(const char *name, const struct gpt_part *parts,
                           int64_t n)
{
    struct gpt_xxh64 h = {.n = 0};

    gpt_xxh64_add(&h, name, strlen(name));
    for (int64_t i = 0; i < n; i++) {
        const struct gpt_part *p = &parts[i];

        add_number(&h, p->offset);
        add_number(&h, p->bytes);
        if (!p->tensor)
            continue;
        add_numbers(&h, p->begin, p->tensor->ndim);
        add_numbers(&h, p->shape, p->tensor->ndim);
        add_number(&h, p->dtype);
        add_number(&h, p->packing ? (int64_t)p->packing->ggml_type : -1);
        add_tensor(&h, p->tensor);
    }
    return gpt_xxh64_end(&h);
}
