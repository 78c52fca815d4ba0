/* The small files that are copied beside the weights, and the tokenizer that
 * they are. */
#ifndef GPT_CHECKPOINT_ATTACHED_H
#define GPT_CHECKPOINT_ATTACHED_H

#include "checkpoint/target.h"
#include "tokenizer/tokenizer.h"

/* The contents of a file that is put beside weights, at most 256 MiB; *text is
 * freed with gpt_free(). */
int gpt_attachment_read(const struct gpt_attachment *a, char **text,
                        size_t *len, struct gpt_err *err) GPT_MUST_USE;

/* Where the file lies that will be called `name`; NULL when there is none. */
const char *gpt_target_attached(const struct gpt_target *t, const char *name);

/* Opens the tokenizer of the target's files: *tok, NULL when there are none.
 * *o is what it was opened with; its strings are the target's. Fails with the
 * reason of the last file when there are files and none of them opens. */
int gpt_target_tokenizer(struct gpt_tokenizer **tok,
                         struct gpt_tokenizer_options *o,
                         const struct gpt_target *t,
                         struct gpt_err *err) GPT_MUST_USE;

#endif
