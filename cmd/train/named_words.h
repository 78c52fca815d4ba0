/* Words of options that name what they say: NAME=WORD, and the words that
 * follow it up to the next name. */
#ifndef GPT_CMD_TRAIN_NAMED_WORDS_H
#define GPT_CMD_TRAIN_NAMED_WORDS_H

#include "base/list.h"
#include "base/memory.h"

struct gpt_named {
    const char *name;
    struct gpt_list words; /* one at least */
};

/* Splits the words of an option. A word without a name before any other gets
 * the last part of its path for a name, without what follows its first dot, if
 * `own` is true; else it is GPT_EUSAGE, as are names with other characters than
 * letters, digits, '.', '_' and '-', and a name that comes twice. A sign after
 * a slash is part of a path. *named (n) lives in `arena`. */
int gpt_named_parse(struct gpt_named **named, int64_t *n, const char *option,
                    const struct gpt_list *words, bool own,
                    struct gpt_arena *arena, struct gpt_err *err) GPT_MUST_USE;

#endif
