/* Which files a corpus is: words of a command line become paths, and paths
 * become the ranges of one shard. Start at gpt_inputs_expand(). */
#ifndef GPT_TEXT_INPUTS_H
#define GPT_TEXT_INPUTS_H

#include "base/memory.h"
#include "text/input.h"

/* In the order of the words. A file that is there, and "-", is itself. A
 * directory is every file below it that is called *.jsonl, *.json or *.ndjson,
 * or that with .gz, .xz or .zst after it; names that begin with a dot are left
 * out. Anything else with one of *?[ in it is a pattern of glob(7). What a
 * directory or a pattern gives is in the order of the paths' bytes. Paths and
 * list live in `arena`. A file that is there twice is read twice, with a
 * warning. GPT_EIO for what is not there, GPT_EDATA for a directory without
 * such files. */
int gpt_inputs_expand(struct gpt_arena *arena, const char *const *words,
                      int64_t n_words, const char *const **paths, int64_t *n,
                      struct gpt_err *err) GPT_MUST_USE;

/* True when a name ends as those of a directory's files that are taken. */
bool gpt_inputs_named_jsonl(const char *path);

/* The ranges that shard number `shard` of 1 .. n_shards reads: with the files
 * one after the other, as large as they are on disk, from (shard - 1) /
 * n_shards to shard / n_shards of their length. A line belongs to the shard
 * that holds its first byte, a compressed file to the shard that holds its
 * first byte; so each line is in one shard, and all shards in their order are
 * all lines in their order. One shard may read pipes; several cannot
 * (GPT_EUSAGE). */
int gpt_inputs_shard(struct gpt_arena *arena, const char *const *paths,
                     int64_t n_paths, int64_t shard, int64_t n_shards,
                     const struct gpt_input_range **ranges, int64_t *n,
                     struct gpt_err *err) GPT_MUST_USE;

/* Bytes of n inputs on disk; -1 when one is a pipe or is missing. */
int64_t gpt_inputs_bytes(const struct gpt_input_range *inputs, int64_t n);

#endif
