/* Distinct pieces of a text and how often each occurs: what the training of a
 * vocabulary needs to know of a corpus. A counter belongs to one thread;
 * several are added up at the end. Memory follows the distinct pieces, not the
 * text. Start at gpt_piece_counter_text(). */
#ifndef GPT_CMD_VOCAB_PIECE_COUNT_H
#define GPT_CMD_VOCAB_PIECE_COUNT_H

#include "base/status.h"
#include "tokenizer/bpe/train.h"
#include "tokenizer/pretok.h"

struct gpt_piece_counter;

int gpt_piece_counter_open(struct gpt_piece_counter **counter,
                           struct gpt_err *err) GPT_MUST_USE;
void gpt_piece_counter_close(struct gpt_piece_counter *counter); /* or NULL */

/* Counts the pieces of text[0..len) as `pretok` cuts it. */
int gpt_piece_counter_text(struct gpt_piece_counter *counter,
                           gpt_pretok_fn *pretok, const char *text, size_t len,
                           struct gpt_err *err) GPT_MUST_USE;

/* One piece, `count` times. */
int gpt_piece_counter_add(struct gpt_piece_counter *counter, const char *piece,
                          size_t len, int64_t count, struct gpt_err *err)
    GPT_MUST_USE;

/* Adds the counts of `from` to those of `to`. */
int gpt_piece_counter_merge(struct gpt_piece_counter *to,
                            const struct gpt_piece_counter *from,
                            struct gpt_err *err) GPT_MUST_USE;

size_t gpt_piece_counter_size(const struct gpt_piece_counter *counter);

/* The pieces, in no particular order: *list has gpt_piece_counter_size()
 * elements and is freed with gpt_free(), its texts are borrowed until the next
 * call that adds. */
int gpt_piece_counter_list(const struct gpt_piece_counter *counter,
                           struct gpt_word **list, struct gpt_err *err)
    GPT_MUST_USE;

#endif
