/* Which layers of a model are of another kind than the rest: every N-th, or
 * those of a list. Both are one number, so that a configuration is a structure
 * of plain fields. */
#ifndef GPT_MODEL_LAYER_LIST_H
#define GPT_MODEL_LAYER_LIST_H

#include "base/memory.h"
#include "base/status.h"

#include <stddef.h>

/* 0: no layer; up to GPT_LAYERS_EVERY: every so many-th, counted from 1; more:
 * a list, whose entries repeat after at most GPT_LAYERS_PERIOD layers.
 * GPT_LAYERS_MAX is above all of them, and exact as a double. */
enum { GPT_LAYERS_EVERY = 65536, GPT_LAYERS_PERIOD = 48 };
#define GPT_LAYERS_LIST ((int64_t)1 << 49)
#define GPT_LAYERS_MAX ((int64_t)1 << 50)

/* The entry of a layer (its global number, from 0). odd: that of every N-th
 * layer; all others have the opposite. */
bool gpt_layers_entry(int64_t layers, int64_t layer, bool odd);

/* The number that has these entries, the shortest; -1 where they repeat too
 * late. */
int64_t gpt_layers_pack(const bool *entry, int64_t n, bool odd);

/* The same, or GPT_EDATA, which names `what` and the key that lists them. */
int gpt_layers_make(int64_t *layers, const bool *entry, int64_t n, bool odd,
                    const char *what, const char *key,
                    struct gpt_err *err) GPT_MUST_USE;

/* From "4", or from a list of n entries 0 and 1 as Python writes it:
 * "[1,1,0]", "([1]*3+[0])*2". GPT_EUSAGE names the text and the rule. */
int gpt_layers_parse(int64_t *layers, const char *text, int64_t n, bool odd,
                     struct gpt_err *err) GPT_MUST_USE;

/* Appends the same text, whole: "4", or "[1,1,0]" with n entries. GPT_EFAIL:
 * out of memory. */
int gpt_layers_print(struct gpt_buf *b, int64_t layers, int64_t n,
                     bool odd) GPT_MUST_USE;

#endif
