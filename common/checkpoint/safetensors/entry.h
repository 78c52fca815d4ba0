/* Entries of files as pieces of plans (checkpoint/plan.h) and as what a source
 * lists (checkpoint/source.h). Files of other formats that have such entries,
 * with strides where they are not tight, are read the same way. */
#ifndef GPT_CHECKPOINT_ENTRY_H
#define GPT_CHECKPOINT_ENTRY_H

#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/source.h"

/* What a source lists of an entry, whose name it borrows, and `file`. */
struct gpt_stored gpt_stored_entry(const struct gpt_safetensor *entry,
                                   const char *file);
/* Appends to `t`, a tensor of its type and shape, all of an entry of `in`,
 * which outlives it. */
int gpt_stored_add(struct gpt_tensor *t, struct gpt_in *in,
                   const struct gpt_safetensor *entry,
                   struct gpt_err *err) GPT_MUST_USE;
/* True in *equal when entries of two files, vectors or matrices, have one type,
 * one shape and the same elements, which are read. */
int gpt_stored_equal(bool *equal, struct gpt_in *in_a,
                     const struct gpt_safetensor *a, struct gpt_in *in_b,
                     const struct gpt_safetensor *b,
                     struct gpt_err *err) GPT_MUST_USE;

#endif
