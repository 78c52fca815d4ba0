/* Input as a stream of bytes, decompressed if need be. The first bytes of a
 * file say what it is, not its name. Start at gpt_input_open().
 *
 * The folder makes lines and characters of bytes: input* read and decompress,
 * inputs* say which files, jsonl takes fields out of lines by json_scan,
 * unicode* know characters. */
#ifndef GPT_TEXT_INPUT_H
#define GPT_TEXT_INPUT_H

#include "base/hash.h"
#include "base/status.h"

struct gpt_input;

/* A part of a file: from the first line that begins at byte `begin` or later to
 * the last one that begins before `end`; -1 is the end of the file. A
 * compressed file is in one part as a whole, the one with begin = 0; the others
 * are empty. */
struct gpt_input_range {
    const char *path;
    int64_t begin, end;
};

/* "-" is standard input. `threads` is how many decompression may use (for xz
 * files of several blocks). GPT_EIO when it cannot be opened; GPT_EDATA for a
 * compression that is not supported. */
int gpt_input_open(struct gpt_input **in, const char *path, int64_t threads,
                   struct gpt_err *err) GPT_MUST_USE;
/* The same for a part of a file. */
int gpt_input_open_range(struct gpt_input **in,
                         const struct gpt_input_range *range, int64_t threads,
                         struct gpt_err *err) GPT_MUST_USE;
void gpt_input_close(struct gpt_input *in); /* NULL is fine */

/* Up to cap bytes, at least one; *got = 0 at the end. GPT_EDATA with path and
 * offset for compressed data that is damaged or ends early, after all bytes
 * before that have been handed out. One thread at a time. */
int gpt_input_read(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                   struct gpt_err *err) GPT_MUST_USE;

/* Passes over the first n bytes, decompressed, before anything is read; without
 * reading them in a plain file. GPT_EDATA when there are fewer. */
int gpt_input_skip(struct gpt_input *in, int64_t n, struct gpt_err *err)
    GPT_MUST_USE;

/* True when what is read are the bytes of the file; false when they are
 * decompressed. */
bool gpt_input_is_plain(const struct gpt_input *in);
/* "gzip", "xz" or "zstd", the program that decompresses such a file; NULL for a
 * plain one. */
const char *gpt_input_packed(const struct gpt_input *in);
/* The digest of the compressed bytes read so far; of nothing for a plain file.
 */
void gpt_input_digest(const struct gpt_input *in, struct gpt_xxh64 *digest);

/* Makes reads fail soon, those that wait for a pipe now and all later ones. Any
 * thread may call it. */
void gpt_input_cancel(struct gpt_input *in);

/* For messages: "(standard input)" for "-". */
const char *gpt_input_name(const struct gpt_input *in);
/* Bytes of the file or of its part, compressed as it may be; -1 when not a
 * regular file. */
int64_t gpt_input_size(const struct gpt_input *in);
/* Where in the file its part begins. */
int64_t gpt_input_begin(const struct gpt_input *in);
/* Bytes of the file or its part read so far; any thread may ask. */
int64_t gpt_input_consumed(const struct gpt_input *in);

#endif
