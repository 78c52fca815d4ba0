/* A chunk of whole lines, the unit of work: the reader fills it (cutter.h), a
 * worker tokenizes it (gpt_line_chunk_encode()), the writer adds it to the data
 * sets (output.h). Each has it alone, in turn (ring.h). */
#ifndef GPT_CMD_PREPROCESS_LINE_CHUNK_H
#define GPT_CMD_PREPROCESS_LINE_CHUNK_H

#include "base/dtype.h"
#include "base/hash.h"
#include "cmd/preprocess/preprocess.h"
#include "text/jsonl.h"

/* How much a key held when a line began. */
struct gpt_line_chunk_mark {
    size_t n_ids, n_lengths, n_documents;
    int64_t text_bytes;
};

/* What one key of a chunk's lines becomes: gpt_indexed_block's arrays. */
struct gpt_line_chunk_key {
    struct gpt_ids ids; /* narrowed in place to the data set's type
                         * once the chunk is encoded */
    int32_t *lengths;
    size_t n_lengths, lengths_cap;
    int32_t *document_sequences;
    size_t n_documents, documents_cap;
    int64_t text_bytes; /* of the strings */
    struct gpt_line_chunk_place *places; /* of documents, when wanted */
    size_t places_cap;
    struct gpt_line_chunk_mark mark; /* of the line that is being added */
};

/* Where in a chunk a document's line is. */
struct gpt_line_chunk_place {
    int64_t line; /* counted from 1 */
    size_t at;
};

struct gpt_bad_line {
    int64_t line; /* of the chunk, counted from 1 */
    size_t at;    /* where in the chunk's data it begins */
    int kind;
};

struct gpt_line_chunk {
    char *data; /* whole lines; the last of a file may lack its newline */
    size_t len, cap;
    const char *name; /* of the input, for messages */
    const char *packed; /* how it is compressed, or NULL */
    bool pipe;          /* or standard input: no name to read it by again */
    int64_t input;    /* its number */
    int64_t begin;    /* of the part of the file that is read */
    int64_t end;      /* of `data` in that part, decompressed */
    struct gpt_xxh64 digest; /* of a plain part up to there */
    struct gpt_line_chunk_key *keys;
    int64_t lines;      /* read, the bad one included */
    struct gpt_bad_line *bad; /* lines skipped */
    size_t n_bad, bad_cap;
    struct gpt_err named[GPT_BAD_NAMED]; /* what is wrong with the first */
    int status;         /* of reader or worker */
    bool in_line;       /* err is about the last of `lines` */
    int bad_kind;       /* then, and of GPT_EDATA: what is wrong with it */
    size_t line_at;     /* where in `data` that one begins */
    struct gpt_err err;
};

/* Makes an empty chunk of n_keys keys, whose arrays grow as they are filled. */
int gpt_line_chunk_init(struct gpt_line_chunk *c, size_t n_keys,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_line_chunk_free(struct gpt_line_chunk *c, size_t n_keys);
/* Frees what only a long line needs: blocks of more than `bytes`. */
void gpt_line_chunk_trim(struct gpt_line_chunk *c, size_t n_keys, size_t bytes);

/* A worker's own state. */
struct gpt_line_chunk_worker {
    struct gpt_encoder *encoder;
    struct gpt_jsonl *scanner;
    size_t n_keys;
    enum gpt_dtype dtype;
    int32_t eod; /* appended to documents; -1: none */
    enum gpt_empty empty;
    bool skip_bad; /* bad lines go to the chunk's list */
    bool keep_bad; /* and are wanted as they are */
    bool places;   /* fill them */
    int64_t max_sequence, long_line; /* as in gpt_preprocess_limits */
};

/* Tokenizes the lines of c; a failure goes to c->status. */
void gpt_line_chunk_encode(struct gpt_line_chunk_worker *w,
                           struct gpt_line_chunk *c);

#endif
