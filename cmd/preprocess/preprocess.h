/* From JSON lines to indexed data sets: one reader, any number of workers that
 * tokenize, and a writer that keeps the order of the input. The output does not
 * depend on the number of workers or the size of chunks; memory is bounded by
 * the chunks in flight and the longest line. */
#ifndef GPT_CMD_PREPROCESS_PREPROCESS_H
#define GPT_CMD_PREPROCESS_PREPROCESS_H

#include "base/dtype.h"
#include "data/bad_lines.h"
#include "text/input.h"
#include "tokenizer/tokenizer.h"

/* Documents that tokenize to nothing; Megatron-LM has done all three. */
enum gpt_empty {
    GPT_EMPTY_KEEP, /* count, and have no sequence: preprocess_data.py */
    GPT_EMPTY_DROP, /* do not count: the same until 2022 */
    GPT_EMPTY_EOD,  /* are the end of a document: preprocess_data_fast.py */
};

struct gpt_preprocess_stats {
    int64_t documents;   /* bad lines are none */
    int64_t tokens;      /* of all keys, document ends included */
    int64_t text_bytes;  /* of all keys, unescaped */
    int64_t line_bytes;  /* decompressed */
    int64_t input_bytes; /* read from the files, compressed as they may be */
    struct gpt_bad_report bad;
    bool kept; /* after a failure: the same call resumes from here */
};

/* What is too much, and what is unusual. Zeros are the defaults; tests lower
 * them. */
struct gpt_preprocess_limits {
    int64_t line;      /* bytes, of a file that is shorter; default 4 GiB */
    int64_t sequence;  /* tokens; default 2^31 - 2, the most that an index
                          can count with an end after them */
    int64_t long_line; /* bytes; from here on a line is read while no other
                          chunk is in memory; default 16 MiB */
};

struct gpt_chunk_stream;

struct gpt_preprocess_options {
    const struct gpt_input_range *inputs; /* "-" is standard input */
    int64_t n_inputs;
    const char *const *keys; /* top-level fields, one data set each */
    int64_t n_keys;
    const char *output_prefix; /* of PREFIX_KEY_document.bin and .idx */
    const struct gpt_tokenizer *tokenizer;
    const struct gpt_tokenizer_id *tokenizer_id; /* its files; may be NULL */
    bool append_eod;
    enum gpt_empty empty; /* what becomes of documents without tokens */
    const enum gpt_dtype *dtype; /* NULL: as gpt_indexed_best_dtype() says */
    bool tntidx; /* the index that Megatron-LM reads as lazy or cached */
    unsigned out_flags;  /* GPT_OUT_* */
    int64_t workers;     /* >= 1 */
    int64_t chunk_bytes; /* of lines that a worker takes at once; 0 = 256 KiB */
    struct gpt_preprocess_limits limits;
    bool skip_bad;       /* skip bad lines instead of failing */
    int64_t max_bad;     /* with skip_bad: fail at one more; < 0 = no limit */
    const char *quarantine; /* with skip_bad: file for them; NULL = none */
    bool provenance; /* write PREFIX_KEY_document.json: data/provenance.h */
    bool sources;    /* write PREFIX_KEY_document.sources, too */
    const char *command; /* lines for the JSON to repeat; may be NULL */
    int64_t shard, n_shards; /* for the JSON; n_shards = 0: none */
    bool resume; /* from where an earlier call stopped; save such points */
    double resume_seconds; /* between two points */
    /* called now and then by the calling thread; may be NULL */
    void (*report)(void *user, const struct gpt_preprocess_stats *stats);
    void *user;
    struct gpt_chunk_stream *begun; /* of gpt_preprocess_begin(), or NULL */
};

/* Begins to read the inputs, for gpt_preprocess() with the same options, in
 * which the tokenizer and its description are still missing: decompression need
 * not wait while a vocabulary is loaded. */
int gpt_preprocess_begin(struct gpt_preprocess_options *options,
                         struct gpt_err *err) GPT_MUST_USE;
/* Ends that when gpt_preprocess() is not called. */
void gpt_preprocess_give_up(struct gpt_preprocess_options *options);

/* Makes the data sets, all or (on failure) none.
 *
 * With `resume` a call that fails or is killed leaves PREFIX.resume, and beside
 * each output PATH.part, once it has lasted resume_seconds; the next call with
 * the same options resumes there and gives the same files. An input is known by
 * its name, size and time of modification. A run that reads from a pipe, or
 * writes bad lines to one, leaves nothing. Without `resume` what an earlier
 * call left is removed. GPT_EEXIST when the earlier call was another one.
 *
 * As Megatron's preprocessing: a string is a sequence and a document; a list of
 * strings is a document of as many sequences as do not tokenize to nothing; the
 * end-of-document token follows the last sequence; an empty document has no
 * sequence and no end, but counts, unless `empty` says otherwise. GPT_EDATA
 * names file and line of the first line that is wrong, or file and offset in a
 * part of a file.
 *
 * With skip_bad such lines are skipped and counted, and written as they are
 * to the quarantine file, which appears together with the data sets; each ends
 * in a newline there. A file that cannot be read, or whose compression is
 * damaged, is a failure all the same. stats->bad is valid after a failure, too.
 *
 * A signal that asks to stop ends it with GPT_EFAIL. What was begun is used up,
 * whatever happens. */
int gpt_preprocess(struct gpt_preprocess_options *options,
                   struct gpt_preprocess_stats *stats, struct gpt_err *err)
    GPT_MUST_USE;

#endif
