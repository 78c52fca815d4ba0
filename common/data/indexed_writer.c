/* Writes indexed data sets. Tokens go straight to the .bin; the lengths and the
 * documents wait in two scratch files, because the .idx starts with their
 * numbers. At the end the .idx is put together by streaming them through a
 * small buffer. Start at gpt_indexed_writer_open(). */
#include "base/io.h"
#include "base/memory.h"
#include "base/num.h"
#include "data/idx.h"
#include "data/indexed.h"

#include <inttypes.h>

struct gpt_indexed_writer {
    struct gpt_out *bin, *idx;
    struct gpt_out *lengths, *documents; /* int32 each; never published */
    char *prefix;
    enum gpt_dtype dtype;
    int64_t n_tokens, n_sequences, n_documents;
    int64_t n_closed; /* sequences that belong to finished documents */
    bool finished;    /* the .idx is written */
};

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
        status = gpt_fail(err, GPT_EFAIL, "%s: out of memory", prefix);
    else if (at < 0)
        status = gpt_out_open(out, path.data, flags, 0, err);
    else
        status = gpt_out_open_part(out, path.data, flags, at, err);
    gpt_buf_free(&path);
    return status;
}

/* `at` is NULL for names of their own. */
static int open_files(struct gpt_indexed_writer *w, unsigned flags,
                      const struct gpt_indexed_position *at,
                      struct gpt_err *err)
{
    int64_t item = (int64_t)gpt_dtype_bytes(w->dtype);
    unsigned scratch = GPT_OUT_FORCE | GPT_OUT_NOSYNC;
    if (at && !(flags & GPT_OUT_NOSYNC))
        scratch = GPT_OUT_FORCE;
    GPT_TRY(open_file(&w->bin, w->prefix, ".bin", flags,
                      at ? at->n_tokens * item : -1, err));
    GPT_TRY(open_file(&w->idx, w->prefix, ".idx", flags, at ? 0 : -1, err));
    GPT_TRY(open_file(&w->lengths, w->prefix, ".lengths", scratch,
                      at ? 4 * at->n_sequences : -1, err));
    return open_file(&w->documents, w->prefix, ".documents", scratch,
                     at ? 4 * at->n_documents : -1, err);
}

static int open_writer(struct gpt_indexed_writer **out, const char *prefix,
                       enum gpt_dtype dtype, unsigned flags,
                       const struct gpt_indexed_position *at,
                       struct gpt_err *err)
{
    uint8_t header[GPT_IDX_HEADER];
    struct gpt_indexed_writer *w;
    int status;

    *out = NULL;
    if (!gpt_idx_header(header, dtype, 0, 0))
        return gpt_fail(err, GPT_EUSAGE, "%s: tokens cannot be of type %s",
                        prefix, gpt_dtype_name(dtype));
    GPT_TRY(gpt_new(&w, 1, sizeof *w, "a data set writer", err));
    w->dtype = dtype;
    if (at) {
        w->n_tokens = at->n_tokens;
        w->n_sequences = w->n_closed = at->n_sequences;
        w->n_documents = at->n_documents;
    }
    GPT_TRY_GOTO(status, gpt_new(&w->prefix, strlen(prefix) + 1, 1, "a prefix",
                                 err), fail);
    memcpy(w->prefix, prefix, strlen(prefix));
    GPT_TRY_GOTO(status, open_files(w, flags, at, err), fail);
    *out = w;
    return GPT_OK;
fail:
    if (at && at->n_documents > 0) /* there is something to lose */
        gpt_indexed_writer_suspend(w);
    else
        gpt_indexed_writer_abort(w);
    return status;
}

int gpt_indexed_writer_open(struct gpt_indexed_writer **w, const char *prefix,
                            enum gpt_dtype dtype, unsigned flags,
                            struct gpt_err *err)
{
    return open_writer(w, prefix, dtype, flags, NULL, err);
}

int gpt_indexed_writer_open_part(struct gpt_indexed_writer **w,
                                 const char *prefix, enum gpt_dtype dtype,
                                 unsigned flags,
                                 const struct gpt_indexed_position *at,
                                 struct gpt_err *err)
{
    return open_writer(w, prefix, dtype, flags, at, err);
}

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
                            "%s: length of sequence %" PRId64 " is %d",
                            w->prefix, w->n_sequences + i, b->lengths[i]);
        tokens += b->lengths[i];
    }
    if (tokens != b->n_tokens)
        return gpt_fail(err, GPT_EFAIL,
                        "%s: a block has %" PRId64 " tokens, its sequences %"
                        PRId64, w->prefix, b->n_tokens, tokens);
    for (int64_t d = 0; d < b->n_documents; d++) {
        *closed += b->document_sequences[d];
        if (b->document_sequences[d] < 0 ||
            *closed > w->n_sequences + b->n_sequences)
            return gpt_fail(err, GPT_EFAIL,
                            "%s: document %" PRId64 " has %d sequences",
                            w->prefix, w->n_documents + d,
                            b->document_sequences[d]);
    }
    return GPT_OK;
}

int gpt_indexed_writer_add(struct gpt_indexed_writer *w,
                           const struct gpt_indexed_block *b,
                           struct gpt_err *err)
{
    int64_t closed;

    GPT_TRY(check_block(w, b, &closed, err));
    GPT_TRY(gpt_out_write(w->bin, b->tokens,
                          (size_t)b->n_tokens * gpt_dtype_bytes(w->dtype),
                          err));
    GPT_TRY(gpt_out_write(w->lengths, b->lengths,
                          (size_t)b->n_sequences * sizeof *b->lengths, err));
    GPT_TRY(gpt_out_write(
        w->documents, b->document_sequences,
        (size_t)b->n_documents * sizeof *b->document_sequences, err));
    w->n_tokens += b->n_tokens;
    w->n_sequences += b->n_sequences;
    w->n_documents += b->n_documents;
    w->n_closed = closed;
    return GPT_OK;
}

/* What to write for each int32 of a scratch file. */
enum { AS_IT_IS, SUM_BEFORE, SUM_AFTER };

/* Streams n values of `from` into the .idx: themselves, or as int64 their
 * running sum times `scale`, before or after each is added. */
static int stream(struct gpt_indexed_writer *w, struct gpt_out *from,
                  int64_t n, int what, int64_t scale, struct gpt_err *err)
{
    enum { PIECE = 8192 };
    int32_t in[PIECE];
    int64_t out[PIECE], sum = 0;

    for (int64_t done = 0; done < n; done += PIECE) {
        size_t some = (size_t)gpt_min_i64(PIECE, n - done);
        GPT_TRY(gpt_out_reread(from, in, some * sizeof *in,
                               done * (int64_t)sizeof *in, err));
        if (what == AS_IT_IS) {
            GPT_TRY(gpt_out_write(w->idx, in, some * sizeof *in, err));
            continue;
        }
        for (size_t i = 0; i < some; i++) {
            int64_t before = sum;
            sum += in[i] * scale;
            out[i] = what == SUM_BEFORE ? before : sum;
        }
        GPT_TRY(gpt_out_write(w->idx, out, some * sizeof *out, err));
    }
    return GPT_OK;
}

static int write_idx(struct gpt_indexed_writer *w, struct gpt_err *err)
{
    uint8_t header[GPT_IDX_HEADER];
    int64_t zero = 0, item = (int64_t)gpt_dtype_bytes(w->dtype);

    if (w->n_closed != w->n_sequences)
        return gpt_fail(err, GPT_EFAIL,
                        "%s: %" PRId64 " sequences, %" PRId64 " in documents",
                        w->prefix, w->n_sequences, w->n_closed);
    if (!gpt_idx_header(header, w->dtype, w->n_sequences, w->n_documents))
        return gpt_fail(err, GPT_EFAIL, "%s: type of tokens", w->prefix);
    GPT_TRY(gpt_out_write(w->idx, header, sizeof header, err));
    GPT_TRY(stream(w, w->lengths, w->n_sequences, AS_IT_IS, 1, err));
    GPT_TRY(stream(w, w->lengths, w->n_sequences, SUM_BEFORE, item, err));
    GPT_TRY(gpt_out_write(w->idx, &zero, sizeof zero, err));
    return stream(w, w->documents, w->n_documents, SUM_AFTER, 1, err);
}

int gpt_indexed_writer_sync(struct gpt_indexed_writer *w,
                            struct gpt_indexed_position *at,
                            struct gpt_err *err)
{
    GPT_TRY(gpt_out_sync(w->bin, err));
    GPT_TRY(gpt_out_sync(w->lengths, err));
    GPT_TRY(gpt_out_sync(w->documents, err));
    *at = (struct gpt_indexed_position){w->n_tokens, w->n_sequences,
                                        w->n_documents};
    return GPT_OK;
}

int gpt_indexed_writer_finish(struct gpt_indexed_writer *w,
                              struct gpt_err *err)
{
    if (w->finished)
        return GPT_OK;
    GPT_TRY(write_idx(w, err));
    w->finished = true;
    GPT_TRY(gpt_out_sync(w->bin, err));
    return gpt_out_sync(w->idx, err);
}

/* The .idx is complete before the .bin gets its name: between the two names
 * lies nothing that can fail but the system itself. */
int gpt_indexed_writer_commit(struct gpt_indexed_writer *w,
                              struct gpt_err *err)
{
    struct gpt_out *bin = w->bin, *idx = w->idx;
    int status;

    if (!w->finished)
        GPT_TRY_GOTO(status, write_idx(w, err), out);
    w->bin = NULL;
    GPT_TRY_GOTO(status, gpt_out_commit(bin, err), out);
    w->idx = NULL;
    status = gpt_out_commit(idx, err);
out:
    gpt_indexed_writer_abort(w);
    return status;
}
