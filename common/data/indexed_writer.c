/* Writes indexed data sets. Tokens go straight to the .bin; the lengths and the
 * documents wait in two scratch files, because the .idx starts with their
 * numbers. At the end the .idx is put together by streaming them through a
 * small buffer. Start at gpt_indexed_writer_open_with(). */
#include "base/io.h"
#include "base/memory.h"
#include "base/num.h"
#include "data/idx.h"
#include "data/tntidx.h"
#include "data/indexed.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

struct gpt_indexed_writer {
    struct gpt_out *bin, *idx;
    struct gpt_out *lengths, *documents; /* int32 each; never published */
    char *prefix;
    enum gpt_dtype dtype;
    bool tntidx;
    int64_t n_sequences, n_documents;
    int64_t n_closed; /* sequences that belong to finished documents */
    bool finished;    /* the .idx is written */
};

/* The limit is Megatron's, 65500 and not 65536, so that both choose the same
 * type for a vocabulary. */
enum gpt_dtype gpt_indexed_best_dtype(int64_t vocab_size)
{
    return vocab_size < 65500 ? GPT_U16 : GPT_I32;
}

/* One of the four files; at < 0: under a name of its own. */
static int open_file(struct gpt_out **out, const char *prefix,
                     const char *suffix, unsigned flags, int64_t at,
                     struct gpt_err *err)
{
    struct gpt_buf path = {0};
    int status = gpt_buf_printf(&path, "%s%s", prefix, suffix);

    if (status != GPT_OK)
        status = gpt_no_memory(err, prefix);
    else if (at < 0)
        status = gpt_out_open(out, path.data, flags, 0, err);
    else
        status = gpt_out_open_part(out, path.data, flags, at, err);
    gpt_buf_free(&path);
    return status;
}

/* The scratch files need no sync unless they are resumed from: they are never
 * published, and what they hold is lost with the run. */
static int open_files(struct gpt_indexed_writer *w,
                      const struct gpt_indexed_writer_options *o,
                      struct gpt_err *err)
{
    const struct gpt_indexed_position *at = o->at;
    int64_t item = (int64_t)gpt_dtype_bytes(w->dtype);
    unsigned scratch = GPT_OUT_FORCE | (at ? o->flags : GPT_OUT_NOSYNC);

    GPT_TRY(open_file(&w->bin, w->prefix, ".bin", o->flags | GPT_OUT_DIRECT,
                      at ? at->n_tokens * item : -1, err));
    GPT_TRY(open_file(&w->idx, w->prefix, ".idx", o->flags, at ? 0 : -1, err));
    GPT_TRY(open_file(&w->lengths, w->prefix, ".lengths", scratch,
                      at ? 4 * at->n_sequences : -1, err));
    return open_file(&w->documents, w->prefix, ".documents", scratch,
                     at ? 4 * at->n_documents : -1, err);
}

/* A resumed writer counts from the position: the files are cut there. */
static int fill_writer(struct gpt_indexed_writer *w,
                       const struct gpt_indexed_writer_options *o,
                       struct gpt_err *err)
{
    w->dtype = o->dtype;
    w->tntidx = o->tntidx;
    if (o->at) {
        /* All documents are whole at a position. */
        w->n_sequences = w->n_closed = o->at->n_sequences;
        w->n_documents = o->at->n_documents;
    }
    GPT_TRY(gpt_new(&w->prefix, strlen(o->prefix) + 1, 1, "a prefix", err));
    memcpy(w->prefix, o->prefix, strlen(o->prefix));
    return open_files(w, o, err);
}

int gpt_indexed_writer_open_with(
    struct gpt_indexed_writer **out,
    const struct gpt_indexed_writer_options *o, struct gpt_err *err)
{
    uint8_t header[GPT_IDX_HEADER];
    struct gpt_indexed_writer *w;

    *out = NULL;
    if (!gpt_idx_header(header, o->dtype, 0, 0))
        return gpt_fail(err, GPT_EUSAGE, "%s: tokens cannot be of type %s",
                        o->prefix, gpt_dtype_name(o->dtype));
    GPT_TRY(gpt_new(&w, 1, sizeof(*w), "a data set writer", err));
    int status = fill_writer(w, o, err);
    if (status == GPT_OK)
        *out = w;
    else if (o->at && o->at->n_documents > 0) /* of an earlier run: keep it */
        gpt_indexed_writer_suspend(w);
    else
        gpt_indexed_writer_abort(w);
    return status;
}

/* close_file decides what becomes of the four files: gone, or kept for a run
 * that resumes. */
static void close_writer(struct gpt_indexed_writer *w,
                         void (*close_file)(struct gpt_out *))
{
    if (!w)
        return;
    close_file(w->bin);
    close_file(w->idx);
    close_file(w->lengths);
    close_file(w->documents);
    gpt_free(w->prefix);
    gpt_free(w);
}

void gpt_indexed_writer_abort(struct gpt_indexed_writer *w)
{
    close_writer(w, gpt_out_abort);
}

void gpt_indexed_writer_suspend(struct gpt_indexed_writer *w)
{
    close_writer(w, gpt_out_suspend);
}

/* What does not add up is refused here, before a reader refuses the file. */
static int check_block(const struct gpt_indexed_writer *w,
                       const struct gpt_indexed_block *b, int64_t *closed,
                       struct gpt_err *err)
{
    int64_t tokens = 0;

    *closed = w->n_closed;
    for (int64_t i = 0; i < b->n_sequences; i++) {
        if (b->lengths[i] < 0)
            return gpt_fail(err, GPT_EFAIL,
                            "%s: length of sequence %" PRId64
                            " is %d, must be at least 0",
                            w->prefix, w->n_sequences + i, b->lengths[i]);
        tokens += b->lengths[i];
    }
    if (tokens != b->n_tokens)
        return gpt_fail(err, GPT_EFAIL,
                        "%s: a block has %" PRId64 " tokens, but its "
                        "sequences have %" PRId64, w->prefix, b->n_tokens,
                        tokens);
    for (int64_t d = 0; d < b->n_documents; d++) {
        *closed += b->document_sequences[d];
        if (b->document_sequences[d] < 0 ||
            *closed > w->n_sequences + b->n_sequences)
            return gpt_fail(err, GPT_EFAIL,
                            "%s: document %" PRId64 " has %d sequences, more "
                            "than were written or less than 0",
                            w->prefix, w->n_documents + d,
                            b->document_sequences[d]);
    }
    return GPT_OK;
}

/* The block is checked as a whole before its first byte is written: after a
 * refusal the set is as it was. */
int gpt_indexed_writer_add(struct gpt_indexed_writer *w,
                           const struct gpt_indexed_block *b,
                           struct gpt_err *err)
{
    int64_t closed;

    assert(!w->finished);
    GPT_TRY(check_block(w, b, &closed, err));
    GPT_TRY(gpt_out_write(w->bin, b->tokens,
                          (size_t)b->n_tokens * gpt_dtype_bytes(w->dtype),
                          err));
    GPT_TRY(gpt_out_write(w->lengths, b->lengths,
                          (size_t)b->n_sequences * sizeof(*b->lengths), err));
    GPT_TRY(gpt_out_write(
        w->documents, b->document_sequences,
        (size_t)b->n_documents * sizeof(*b->document_sequences), err));
    w->n_sequences += b->n_sequences;
    w->n_documents += b->n_documents;
    w->n_closed = closed;
    return GPT_OK;
}

/* ---- the index ---- */

/* What to write for each int32 of a scratch file: itself, as int32 or int64, or
 * the running sum before or after it, or its number from 1. */
enum { AS_IT_IS, WIDE, SUM_BEFORE, SUM_AFTER, NUMBER };

/* `v` is the value itself, `before` the sum of those before it. */
static int64_t value_to_write(int what, int64_t v, int64_t before,
                              int64_t number)
{
    switch (what) {
    case WIDE:
        return v;
    case SUM_BEFORE:
        return before;
    case SUM_AFTER:
        return before + v;
    default:
        return number;
    }
}

/* Streams n values of `from`, times `scale`, into the .idx. The scratch files
 * are read back once for each array of the index, through a buffer of fixed
 * size: memory does not grow with the set. */
static int stream_values(struct gpt_indexed_writer *w, struct gpt_out *from,
                         int64_t n, int what, int64_t scale,
                         struct gpt_err *err)
{
    enum { PIECE = 8192 };
    int32_t in[PIECE];
    int64_t out[PIECE], sum = 0;

    for (int64_t done = 0; done < n; done += PIECE) {
        size_t some = (size_t)gpt_min_i64(PIECE, n - done);

        GPT_TRY(gpt_out_reread(from, in, some * sizeof(*in),
                               done * (int64_t)sizeof(*in), err));
        if (what == AS_IT_IS) {
            GPT_TRY(gpt_out_write(w->idx, in, some * sizeof(*in), err));
            continue;
        }
        for (size_t i = 0; i < some; i++) {
            int64_t v = in[i] * scale;

            out[i] = value_to_write(what, v, sum, done + (int64_t)i + 1);
            sum += v;
        }
        GPT_TRY(gpt_out_write(w->idx, out, some * sizeof(*out), err));
    }
    return GPT_OK;
}

/* What is before the first of a list of sums. */
static int put_zero(struct gpt_indexed_writer *w, struct gpt_err *err)
{
    static const int64_t zero = 0;

    return gpt_out_write(w->idx, &zero, sizeof(zero), err);
}

/* Lengths count tokens, pointers count bytes; the document array begins with
 * the 0 before all documents. */
static int write_mmididx(struct gpt_indexed_writer *w, struct gpt_err *err)
{
    uint8_t header[GPT_IDX_HEADER];
    int64_t item = (int64_t)gpt_dtype_bytes(w->dtype);

    if (!gpt_idx_header(header, w->dtype, w->n_sequences, w->n_documents))
        return gpt_fail(err, GPT_EFAIL, "%s: tokens cannot be of type %s",
                        w->prefix, gpt_dtype_name(w->dtype));
    GPT_TRY(gpt_out_write(w->idx, header, sizeof(header), err));
    GPT_TRY(stream_values(w, w->lengths, w->n_sequences, AS_IT_IS, 1, err));
    GPT_TRY(stream_values(w, w->lengths, w->n_sequences, SUM_BEFORE, item,
                          err));
    GPT_TRY(put_zero(w, err));
    return stream_values(w, w->documents, w->n_documents, SUM_AFTER, 1, err);
}

/* gpt-dataset(5): sequences are items of one dimension, places count tokens. */
static int write_tntidx(struct gpt_indexed_writer *w, struct gpt_err *err)
{
    uint8_t header[GPT_TNTIDX_HEADER];
    int64_t n = w->n_sequences;

    if (!gpt_tntidx_header(header, w->dtype, n, w->n_documents))
        return gpt_fail(err, GPT_EFAIL, "%s: tokens cannot be of type %s",
                        w->prefix, gpt_dtype_name(w->dtype));
    GPT_TRY(gpt_out_write(w->idx, header, sizeof(header), err));
    GPT_TRY(put_zero(w, err));
    GPT_TRY(stream_values(w, w->lengths, n, NUMBER, 1, err));
    GPT_TRY(put_zero(w, err));
    GPT_TRY(stream_values(w, w->lengths, n, SUM_AFTER, 1, err));
    GPT_TRY(stream_values(w, w->lengths, n, WIDE, 1, err));
    GPT_TRY(put_zero(w, err));
    return stream_values(w, w->documents, w->n_documents, SUM_AFTER, 1, err);
}

/* A sequence without the end of its document would belong to no document, and
 * every reader would refuse the set. */
static int write_idx(struct gpt_indexed_writer *w, struct gpt_err *err)
{
    if (w->n_closed != w->n_sequences)
        return gpt_fail(err, GPT_EFAIL,
                        "%s: it has %" PRId64 " sequences, but %" PRId64
                        " belong to documents",
                        w->prefix, w->n_sequences, w->n_closed);
    return w->tntidx ? write_tntidx(w, err) : write_mmididx(w, err);
}

/* ---- the end ---- */

/* The .idx need not be there before the end: it is made of the scratch
 * files. */
int gpt_indexed_writer_sync(struct gpt_indexed_writer *w, struct gpt_err *err)
{
    GPT_TRY(gpt_out_sync(w->bin, err));
    GPT_TRY(gpt_out_sync(w->lengths, err));
    return gpt_out_sync(w->documents, err);
}

/* The disk takes the .bin while the .idx is being made.
 * gpt_indexed_writer_finish() waits for both. */
int gpt_indexed_writer_end(struct gpt_indexed_writer *w, struct gpt_err *err)
{
    if (w->finished)
        return GPT_OK;
    GPT_TRY(gpt_out_begin_sync(w->bin, err));
    GPT_TRY(write_idx(w, err));
    w->finished = true;
    return gpt_out_begin_sync(w->idx, err);
}

int gpt_indexed_writer_finish(struct gpt_indexed_writer *w,
                              struct gpt_err *err)
{
    GPT_TRY(gpt_indexed_writer_end(w, err));
    GPT_TRY(gpt_out_sync(w->bin, err));
    return gpt_out_sync(w->idx, err);
}

/* The files leave the writer; what it still has are the scratch files. */
int gpt_indexed_writer_release(struct gpt_indexed_writer *w,
                               struct gpt_out **bin, struct gpt_out **idx,
                               struct gpt_err *err)
{
    int status = gpt_indexed_writer_end(w, err);

    *bin = *idx = NULL;
    if (status == GPT_OK) {
        *bin = w->bin;
        *idx = w->idx;
        w->bin = w->idx = NULL;
    }
    gpt_indexed_writer_abort(w);
    return status;
}
