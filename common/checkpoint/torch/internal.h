/* What the readers of the containers of torch.save() share. */
#ifndef GPT_CHECKPOINT_TORCH_INTERNAL_H
#define GPT_CHECKPOINT_TORCH_INTERNAL_H

#include "checkpoint/torch/torch.h"

#include <stdarg.h>

/* GPT_EDATA with the file, the offset `at` and the text. */
int gpt_torch_bad(const struct gpt_torch *t, int64_t at, struct gpt_err *err,
                  const char *fmt, ...) GPT_PRINTF(4, 5);
/* The same of a tensor, or of none; `at` is then counted in the pickle. */
int gpt_torch_vbad(const struct gpt_torch *t, int64_t at, const char *tensor,
                   struct gpt_err *err, const char *fmt, va_list args)
    GPT_PRINTF(5, 0);
int gpt_torch_big_endian(const struct gpt_torch *t, int64_t at,
                         struct gpt_err *err);

/* Makes t->storages from the ids in the pickle; their places in the file are
 * not known yet (begin 0). */
int gpt_torch_list_storages(struct gpt_torch *t,
                            struct gpt_err *err) GPT_MUST_USE;
int gpt_torch_by_key(const void *a, const void *b); /* for bsearch() */

/* A file that begins with a pickle: a stream, or a pickle alone. */
int gpt_torch_open_stream(struct gpt_torch *t,
                          struct gpt_err *err) GPT_MUST_USE;

#endif
