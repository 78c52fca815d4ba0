/* Whether a damaged data set can be repaired: one answer for gpt-dataset
 * verify, which recommends it, and for gpt-dataset repair, which does it. */
#ifndef GPT_CMD_DATASET_REMEDY_H
#define GPT_CMD_DATASET_REMEDY_H

#include "cmd/dataset/untrusted.h"
#include "data/idx.h"

/* Why a set cannot be repaired, and what to do instead. */
struct gpt_refusal {
    enum gpt_damage kind; /* the finding for which there is no remedy */
    const char *why, *instead;
};

/* True, with *refusal filled, when damage leaves open what the set was: a guess
 * would be a set that looks good and holds other tokens. `all` is what
 * gpt_idx_check() found, and `readable` whether it returned GPT_OK. */
bool gpt_repair_refused(struct gpt_refusal *refusal,
                        const struct gpt_untrusted *set,
                        const struct gpt_idx *idx, bool readable,
                        const struct gpt_damages *all);

/* Adds to *err the hint what to do instead of a repair. */
int gpt_repair_hint(struct gpt_err *err, const struct gpt_refusal *refusal);

#endif
