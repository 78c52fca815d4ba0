/* What an optimizer keeps, and the pieces that it updates; see optimizer.h.
 * Start at `rules`, what there is to be done to a parameter, then at
 * cut_stretch(): it finds what one call can do. */
#include "train/optimizer_internal.h"

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>

const char *const gpt_optimizer_names[] = {
    [GPT_ADAM] = "adam",
    [GPT_SGD] = "sgd",
    [GPT_MUON] = "muon",
    NULL,
};

/* ---- rules ---- */

/* The states that a rule takes. The first one is in the buffer `first`, the
 * second in `second`; GPT_KIND_PARAMETERS: there is none. A further rule is a
 * row here, and a call of the backend in optimizer.c. */
static const struct {
    enum gpt_kind first, second;
    bool each; /* a parameter at a time: it is no elementwise rule */
} rules[] = {
    [ADAM_RULE] = {GPT_KIND_EXP_AVG, GPT_KIND_EXP_AVG_SQ, false},
    [MOMENTUM_RULE] = {GPT_KIND_MOMENTUM, GPT_KIND_PARAMETERS, false},
    [DESCENT_RULE] = {GPT_KIND_PARAMETERS, GPT_KIND_PARAMETERS, false},
    [MUON_RULE] = {GPT_KIND_MOMENTUM, GPT_KIND_PARAMETERS, true},
    [BALANCE_RULE] = {GPT_KIND_PARAMETERS, GPT_KIND_PARAMETERS, true},
};

/* The rule that updates a parameter. No other place decides by the
 * optimizer. */
static enum update_rule rule_of(const struct gpt_optimizer_options *o,
                                const struct gpt_param *p)
{
    if (p->counts)
        return BALANCE_RULE;
    if (o->kind == GPT_SGD)
        return o->momentum > 0 ? MOMENTUM_RULE : DESCENT_RULE;
    return o->kind == GPT_MUON && gpt_muon_updates(p) ? MUON_RULE : ADAM_RULE;
}

/* True for Megatron-LM's two kinds of decoupled parameters; positions, and
 * biases of the output, take the common rate. */
static bool is_decoupled(const struct gpt_param *p)
{
    return p->role == GPT_WORD_EMBEDDING || p->role == GPT_OUTPUT_WEIGHT;
}

bool gpt_optimizer_keeps(const struct gpt_optimizer_options *o,
                         enum gpt_kind kind, const struct gpt_param *p)
{
    const enum update_rule rule = rule_of(o, p);

    return kind == GPT_KIND_PARAMETERS || rules[rule].first == kind ||
           rules[rule].second == kind;
}

bool gpt_optimizer_has(const struct gpt_optimizer_options *o,
                       enum gpt_kind kind, const struct gpt_flat *flat)
{
    for (int64_t i = 0; i < flat->n; i++)
        if (gpt_optimizer_keeps(o, kind, flat->slices[i].param))
            return true;
    return false;
}

/* ---- pieces ---- */

int64_t update_stretches(const struct gpt_flat *flat)
{
    return flat->shards == 1 ? 1 : flat->n_buckets;
}

/* Shards are cut from buckets: a rank that has a shard of each bucket
 * updates one stretch a bucket; a rank that has everything updates one
 * stretch in all. */
struct update_stretch update_stretch_of(const struct gpt_flat *flat,
                                        int64_t bucket)
{
    struct update_stretch t = {
        .bucket = bucket,
        .end = flat->elements,
        .compact = gpt_bucket_compact(flat, bucket),
    };

    if (flat->shards > 1)
        gpt_bucket_shard(flat, bucket, flat->shard, &t.begin, &t.end);
    return t;
}

/* Second states of pieces follow each other, each at a multiple of 64. */
static void add_piece(struct update_pieces *list, struct update_piece *p,
                      int64_t end)
{
    p->end = end;
    assert(p->begin < p->end);
    if (rules[p->rule].second != GPT_KIND_PARAMETERS) {
        p->second = list->second;
        list->second += gpt_round_up(p->end - p->begin, 64);
    }
    if (list->items)
        list->items[list->n] = *p;
    list->n++;
}

/* The first slice that ends behind `begin`: slices are in order. */
static int64_t first_slice(const struct gpt_flat *flat, int64_t begin)
{
    int64_t low = 0, high = flat->n;

    while (low < high) {
        const int64_t i = low + (high - low) / 2;

        if (flat->slices[i].offset + flat->slices[i].count <= begin)
            low = i + 1;
        else
            high = i;
    }
    return low;
}

/* Cuts a stretch where the rule or the rate changes; a schedule that is read
 * later, from a checkpoint, may have two rates. Gaps after parameters belong to
 * the piece before them: they are zero, and elementwise rules keep them so. */
static void cut_stretch(struct update_pieces *list,
                        const struct gpt_optimizer_options *o,
                        const struct gpt_flat *flat,
                        const struct update_stretch *t)
{
    struct update_piece now = {.slice = NULL};
    bool open = false;

    for (int64_t i = first_slice(flat, t->begin);
         i < flat->n && flat->slices[i].offset < t->end; i++) {
        const struct gpt_slice *s = &flat->slices[i];
        const enum update_rule rule = rule_of(o, s->param);
        const bool decoupled = is_decoupled(s->param);

        if (open && rule == now.rule && decoupled == now.decoupled &&
            !rules[rule].each)
            continue;
        if (open)
            add_piece(list, &now, s->offset);
        const int64_t begin = open ? s->offset : t->begin;
        now = (struct update_piece){
            .rule = rule,
            .decoupled = decoupled,
            .slice = rules[rule].each ? s : NULL,
            .begin = begin,
            .bucket = t->bucket,
            .gradient = begin - t->begin,
            .compact = t->compact + begin - t->begin,
        };
        open = true;
    }
    if (open)
        add_piece(list, &now, t->end);
}

static void list_pieces(struct update_pieces *list,
                        const struct gpt_optimizer_options *o,
                        const struct gpt_flat *flat)
{
    for (int64_t b = 0; b < update_stretches(flat); b++) {
        const struct update_stretch t = update_stretch_of(flat, b);

        cut_stretch(list, o, flat, &t);
    }
}

/* There is one piece more than there are boundaries, which are those of
 * stretches and of slices. */
int update_pieces_new(struct update_pieces *list,
                      const struct gpt_optimizer_options *o,
                      const struct gpt_flat *flat, struct gpt_err *err)
{
    *list = (struct update_pieces){.items = NULL};
    GPT_TRY(gpt_new(&list->items, (size_t)(flat->n + flat->n_buckets),
                    sizeof(*list->items), "the optimizer", err));
    list_pieces(list, o, flat);
    assert(list->n <= flat->n + flat->n_buckets);
    return GPT_OK;
}

/* ---- states ---- */

/* First states are compact whatever has one: a box of a checkpoint is then at
 * the same place as in compact parameters. */
int64_t update_first_bytes(const struct gpt_optimizer_options *o,
                           const struct gpt_flat *flat)
{
    const bool any = gpt_optimizer_has(o, GPT_KIND_EXP_AVG, flat) ||
                     gpt_optimizer_has(o, GPT_KIND_MOMENTUM, flat);

    return any ? gpt_flat_compact(flat) * (int64_t)sizeof(float) : 0;
}

int64_t update_second_bytes(const struct gpt_optimizer_options *o,
                            const struct gpt_flat *flat)
{
    struct update_pieces list = {.items = NULL};

    list_pieces(&list, o, flat);
    return list.second * (int64_t)sizeof(float);
}

/* The place of compact element `at` among second states. */
static int64_t second_place(const struct update_pieces *list, int64_t at)
{
    for (int64_t i = 0; i < list->n; i++) {
        const struct update_piece *p = &list->items[i];

        if (at >= p->compact && at < p->compact + p->end - p->begin)
            return p->second + at - p->compact;
    }
    assert(!"a box lies in a piece");
    return 0;
}

/* The boxes lie in this rank's shards, also those that another rank writes.
 * Their places follow from all pieces, not from the boxes that are left. */
int gpt_optimizer_select(const struct gpt_optimizer_options *o,
                         const struct gpt_flat *flat, enum gpt_kind kind,
                         struct gpt_ownership *boxes, struct gpt_err *err)
{
    struct update_pieces list;
    size_t n = 0;

    if (kind == GPT_KIND_PARAMETERS)
        return GPT_OK;
    GPT_TRY(update_pieces_new(&list, o, flat, err));
    boxes->elements = 0;
    for (size_t i = 0; i < boxes->n; i++) {
        struct gpt_owned_box *b = &boxes->items[i];
        const struct gpt_param *p = b->slice->param;

        if (!gpt_optimizer_keeps(o, kind, p))
            continue;
        if (rules[rule_of(o, p)].second == kind)
            b->at = second_place(&list, b->at);
        boxes->elements += b->count;
        boxes->items[n++] = *b;
    }
    boxes->n = n;
    gpt_free(list.items);
    return GPT_OK;
}

float *gpt_optimizer_buffer(const struct gpt_optimizer *o, enum gpt_kind kind)
{
    return kind == GPT_KIND_EXP_AVG_SQ ? o->second : o->first;
}

int64_t *gpt_optimizer_updates(struct gpt_optimizer *o)
{
    return &o->step;
}
