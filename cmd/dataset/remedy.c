/* Damage that has no remedy; see remedy.h. Start at gpt_repair_refused(). */
#include "cmd/dataset/remedy.h"

#include <stdint.h>

static const char again[] = "make the set again from its text";

static bool refuse(struct gpt_refusal *r, enum gpt_damage kind, const char *why,
                   const char *instead)
{
    *r = (struct gpt_refusal){kind, why, instead};
    return true;
}

/* Lengths that leave out the ends of documents are mended with the token that
 * is there, which must be the same for all documents: that tells this damage
 * from another of the same size. */
static bool ends_refused(struct gpt_refusal *r, const struct gpt_untrusted *set,
                         const struct gpt_idx *idx)
{
    const enum gpt_damage kind = GPT_DAMAGE_EOD_LENGTH;
    int64_t there = set->bin_bytes / (int64_t)gpt_dtype_bytes(idx->dtype);
    int64_t at = 0, eod = -1;

    for (int64_t d = 0; d < idx->n_documents; d++) {
        int64_t first = gpt_idx_i64(idx->documents, d);
        int64_t end = gpt_idx_i64(idx->documents, d + 1);

        if (first == end)
            continue;
        for (int64_t i = first; i < end; i++)
            at += gpt_idx_i32(idx->lengths, i);
        if (at >= there)
            return refuse(r, kind, "the .bin has no room for the tokens in"
                          " question", again);
        int64_t id = gpt_token_at(set->bytes, idx->dtype, at++);
        if ((eod >= 0 && id != eod) ||
            gpt_idx_i32(idx->lengths, end - 1) == INT32_MAX)
            return refuse(r, kind, "the tokens in question differ", again);
        eod = id;
    }
    return false;
}

bool gpt_repair_refused(struct gpt_refusal *r, const struct gpt_untrusted *set,
                        const struct gpt_idx *idx, bool readable,
                        const struct gpt_damages *all)
{
    const int64_t *n = all->count;

    if (n[GPT_DAMAGE_HEADER])
        return refuse(r, GPT_DAMAGE_HEADER, "nothing else can be read", again);
    /* A type that is refused is not in *idx: its code is in the header. */
    if (n[GPT_DAMAGE_DTYPE] && gpt_idx_is_floating(set->image))
        return refuse(r, GPT_DAMAGE_DTYPE, "floating values are no tokens",
                      again);
    if (!readable)
        return refuse(r, GPT_DAMAGE_DTYPE, "no type fits the .bin", again);
    if (n[GPT_DAMAGE_LENGTH])
        return refuse(r, GPT_DAMAGE_LENGTH, "the length is not known", again);
    if (n[GPT_DAMAGE_IDX_SIZE] && gpt_idx_has_modes(idx, set->image_bytes))
        return refuse(r, GPT_DAMAGE_IDX_SIZE, "the set is multimodal",
                      "a set of text alone can be made of its text");
    if (n[GPT_DAMAGE_EOD_LENGTH] == 0)
        return false;
    if (n[GPT_DAMAGE_DOCUMENT])
        return refuse(r, GPT_DAMAGE_DOCUMENT, "lengths are wrong as well",
                      again);
    /* The ends that the .bin has room for are those of the documents that the
     * index has, not of those that would be made for the rest. */
    if (n[GPT_DAMAGE_DOCUMENTS])
        return refuse(r, GPT_DAMAGE_DOCUMENTS, "lengths are wrong as well",
                      "merge the parts again, or make the set again from its"
                      " text");
    return ends_refused(r, set, idx);
}

int gpt_repair_hint(struct gpt_err *err, const struct gpt_refusal *r)
{
    /* A format that another command reads says so itself. */
    if (r->kind == GPT_DAMAGE_HEADER && err->hint[0])
        return err->status;
    return gpt_hint(err, "this cannot be repaired: %s; %s", r->why, r->instead);
}
