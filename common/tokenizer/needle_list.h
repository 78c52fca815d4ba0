/* Texts between bars as a regular expression has them, "ab|a\.": what a file
 * writes for pieces that a user has defined. */
#ifndef GPT_TOKENIZER_NEEDLE_LIST_H
#define GPT_TOKENIZER_NEEDLE_LIST_H

#include "base/memory.h"
#include "text/str.h"

/* Texts of which the one that is written first is taken where a place begins
 * with several. */
struct gpt_needle_list;

/* Reads an expression of plain characters, of which some have a backslash; the
 * list is in the arena. Where there is a single text, *only is that, and *list
 * NULL. False for any other expression, for an empty text, and when memory is
 * out. */
bool gpt_needle_list_read(const struct gpt_needle_list **list,
                          struct gpt_str *only, const char *regex,
                          struct gpt_arena *arena);
/* The first match from `at` on in text[0..len); false when there is none. */
bool gpt_needle_list_find(const struct gpt_needle_list *list, const char *text,
                          size_t len, size_t at, size_t *begin, size_t *end);

#endif
