/* One line of JSON Lines: the strings of the wanted top-level fields, with the
 * whole line checked. A scanner of our own, because a corpus is terabytes of
 * which one field is wanted. Start at gpt_jsonl_open().
 *
 * A line is what RFC 8259 calls a JSON text, an object, with Python's NaN,
 * Infinity and -Infinity allowed as it allows them. Where Megatron's reader
 * takes a line, this takes it with the same result: a key that comes twice
 * counts the last time, a carriage return before the newline is white space.
 * A half surrogate pair (\ud83d alone), on which Megatron stops, becomes
 * U+FFFD. A blank line is an error, as it is there.
 *
 * This folder reads texts: files and streams, compressed or not (input.h), as
 * lines or fields of JSON Lines, and what Unicode says of their characters
 * (unicode.h). It knows nothing of tokens. Start here, or
 * at inputs.h, where a command's words become files. */
#ifndef GPT_TEXT_JSONL_H
#define GPT_TEXT_JSONL_H

#include "text/json_scan.h"

struct gpt_jsonl;

/* A scanner for n_keys fields; a thread's own. The keys (UTF-8) are borrowed
 * until close. */
int gpt_jsonl_open(struct gpt_jsonl **s, const char *const *keys,
                   size_t n_keys, struct gpt_err *err) GPT_MUST_USE;
void gpt_jsonl_close(struct gpt_jsonl *s); /* NULL is fine */

/* Scans line[0..len), without its newline. GPT_EDATA says what is wrong and at
 * which byte, counted from 1; the caller puts file and line before it. */
int gpt_jsonl_scan(struct gpt_jsonl *s, const char *line, size_t len,
                   struct gpt_err *err) GPT_MUST_USE;

/* Gives back the memory that the line scanned last needed. */
void gpt_jsonl_trim(struct gpt_jsonl *s);

/* The kind of bad line of the scan that has just failed with GPT_EDATA. */
enum gpt_json_bad gpt_jsonl_bad(const struct gpt_jsonl *s);

/* The strings of field `key` in the line scanned last: one for a string, any
 * number for a list of strings. Unescaped valid UTF-8, which may hold NUL;
 * valid until the next scan and while the line is. */
size_t gpt_jsonl_strings(const struct gpt_jsonl *s, size_t key,
                         const struct gpt_str **strings);

#endif
