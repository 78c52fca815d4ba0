/* Indexed data sets: a .bin of tokens and an .idx that says where sequences and
 * documents are. MMIDIDX version 1, byte-identical to Megatron's; see
 * gpt-dataset(5). Reading never trusts the .idx: every pointer and length is
 * checked against the size of the .bin before it is used.
 *
 * This folder is the data between tokenizer and training: sets of tokens on
 * disk (here), their order as samples (sample_index.h, blend.h), and batches
 * with masks (corpus.h, batch.h). It knows nothing of models. Start here, then
 * read corpus.h. */
#ifndef GPT_DATA_INDEXED_H
#define GPT_DATA_INDEXED_H

#include "base/dtype.h"
#include "base/status.h"

/* ---- reading ---- */
struct gpt_indexed;

/* The words for `impl` below, then NULL. */
extern const char *const gpt_indexed_impls[];

/* `prefix` without .bin/.idx. impl: "mmap" (map the .bin), "cached" (read it
 * into memory at open), "lazy" (pread what is asked for), or "infer"/NULL =
 * mmap; GPT_EUSAGE for any other. GPT_EDATA names file, offset, field, value
 * and limit. */
int gpt_indexed_open(struct gpt_indexed **set, const char *prefix,
                     const char *impl, struct gpt_err *err) GPT_MUST_USE;
/* A set that is made up and in no file: 100000 documents of 1 to 4095 tokens
 * below vocab_size, each one more than the token before it (after the last, 1
 * again), with `end` (< 0: none) as the last of a document. It is the same
 * wherever it is made. */
int gpt_indexed_mock(struct gpt_indexed **set, const char *name,
                     int64_t vocab_size, int32_t end,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_indexed_close(struct gpt_indexed *set);
/* Makes all files of a set, in whatever format, known as inputs: no output of
 * this process may replace them (gpt_in_protect()). */
int gpt_indexed_protect(const char *prefix, struct gpt_err *err) GPT_MUST_USE;

/* What a set is and how much it holds. The prefix is the one that it was opened
 * by, borrowed until close. */
const char *gpt_indexed_prefix(const struct gpt_indexed *set);
int64_t gpt_indexed_n_sequences(const struct gpt_indexed *set);
int64_t gpt_indexed_n_documents(const struct gpt_indexed *set);
int64_t gpt_indexed_n_tokens(const struct gpt_indexed *set);
enum gpt_dtype gpt_indexed_dtype(const struct gpt_indexed *set);
/* Tokens of sequence i. */
int64_t gpt_indexed_length(const struct gpt_indexed *set, int64_t i);
/* First sequence of document d, d = 0 .. n_documents (the last is S). */
int64_t gpt_indexed_document(const struct gpt_indexed *set, int64_t d);

/* Tokens [begin, begin + n) of sequence i as int32; thread-safe. The range
 * must lie inside the sequence. */
int gpt_indexed_read(const struct gpt_indexed *set, int64_t i, int64_t begin,
                     int64_t n, int32_t *dst, struct gpt_err *err)
    GPT_MUST_USE;

/* Bytes of the copy of the tokens that "cached" holds; else 0. */
int64_t gpt_indexed_cached(const struct gpt_indexed *set);

/* Sequences will be read in random order: a fault on a mapped .bin then reads
 * the pages asked for, not the disk's whole read-ahead of up to megabytes. */
void gpt_indexed_read_randomly(struct gpt_indexed *set);

/* The arrays as they are in the .idx, of any alignment, to be read with
 * gpt_idx_i32() and gpt_idx_i64() of data/idx.h: lengths, int32 (S), and
 * document indices, int64 (n_documents + 1). Borrowed until close. */
const uint8_t *gpt_indexed_lengths(const struct gpt_indexed *set);
const uint8_t *gpt_indexed_documents(const struct gpt_indexed *set);
/* Tokens before sequence i, i = 0 .. S. */
int64_t gpt_indexed_start(const struct gpt_indexed *set, int64_t i);

/* ---- writing ---- */
struct gpt_indexed_writer;

/* GPT_U16 when vocab_size < 65500, else GPT_I32: Megatron's rule. */
enum gpt_dtype gpt_indexed_best_dtype(int64_t vocab_size);

/* Appends a block: `tokens` (n_tokens, dtype), the lengths of its sequences
 * and, for each document that ends in it, the number of sequences since the
 * document began (0 for an empty document). Memory stays bounded whatever the
 * number of sequences. */
struct gpt_indexed_block {
    const void *tokens;
    int64_t n_tokens;
    const int32_t *lengths;
    int64_t n_sequences;
    const int32_t *document_sequences;
    int64_t n_documents;
};
int gpt_indexed_writer_add(struct gpt_indexed_writer *w,
                           const struct gpt_indexed_block *block,
                           struct gpt_err *err) GPT_MUST_USE;

/* What a writer had written at its last sync. */
struct gpt_indexed_position {
    int64_t n_tokens, n_sequences, n_documents;
};

/* The same with more to choose. With `at` the files have the PATH.part names of
 * base/io.h, so that a later writer can resume them: writing continues at that
 * position, all zero for a new set. */
struct gpt_indexed_writer_options {
    const char *prefix;
    enum gpt_dtype dtype;
    bool tntidx;    /* the index that Megatron-LM reads as lazy or cached */
    unsigned flags; /* GPT_OUT_* */
    const struct gpt_indexed_position *at;
};
int gpt_indexed_writer_open_with(
    struct gpt_indexed_writer **w,
    const struct gpt_indexed_writer_options *options, struct gpt_err *err)
    GPT_MUST_USE;
/* Everything that was added is on disk on return. A writer can resume here when
 * documents are whole: no sequence was added without the end of its
 * document. */
int gpt_indexed_writer_sync(struct gpt_indexed_writer *w, struct gpt_err *err)
    GPT_MUST_USE;
/* Leaves the PATH.part files; frees w. NULL is fine. */
void gpt_indexed_writer_suspend(struct gpt_indexed_writer *w);
/* Makes both files complete, and begins to write them to the disk. */
int gpt_indexed_writer_end(struct gpt_indexed_writer *w, struct gpt_err *err)
    GPT_MUST_USE;
/* The same, and waits for the disk; only their names are missing. */
int gpt_indexed_writer_finish(struct gpt_indexed_writer *w,
                              struct gpt_err *err) GPT_MUST_USE;

struct gpt_out;
/* Makes both files complete and hands them over, to be published together with
 * others by gpt_out_commit_all(), the .idx last; frees w whatever happens. */
int gpt_indexed_writer_release(struct gpt_indexed_writer *w,
                               struct gpt_out **bin, struct gpt_out **idx,
                               struct gpt_err *err) GPT_MUST_USE;
void gpt_indexed_writer_abort(struct gpt_indexed_writer *w); /* NULL too */

#endif
