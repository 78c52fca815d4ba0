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
};

enum gpt_dtype gpt_indexed_best_dtype(int64_t vocab_size)
{
    return vocab_size < 65500 ? GPT_U16 : GPT_I32;
}

static int open_part(struct gpt_out **out, const char *prefix,
                     const char *suffix, unsigned flags, struct gpt_err *err)
{
    struct gpt_buf path = {0};
    int status = gpt_buf_printf(&path, "%s%s", prefix, suffix);
    if (status == GPT_OK)
        status = gpt_out_open(out, path.data, flags, 0, err);
    else
        status = gpt_fail(err, GPT_EFAIL, "%s: out of memory", prefix);
    gpt_buf_free(&path);
    return status;
}

static int open_writer(struct gpt_indexed_writer *w, const char *prefix,
                       unsigned flags, struct gpt_err *err)
{
    uint8_t header[GPT_IDX_HEADER];
    unsigned scratch = GPT_OUT_FORCE | GPT_OUT_NOSYNC;

    if (!gpt_idx_header(header, w->dtype, 0, 0))
        return gpt_fail(err, GPT_EUSAGE, "%s: tokens cannot be of type %s",
                        prefix, gpt_dtype_name(w->dtype));
    GPT_TRY(gpt_new(&w->prefix, strlen(prefix) + 1, 1, "a prefix", err));
    memcpy(w->prefix, prefix, strlen(prefix));
    GPT_TRY(open_part(&w->bin, prefix, ".bin", flags, err));
    GPT_TRY(open_part(&w->idx, prefix, ".idx", flags, err));
    GPT_TRY(open_part(&w->lengths, prefix, ".lengths", scratch, err));
    return open_part(&w->documents, prefix, ".documents", scratch, err);
}

int gpt_indexed_writer_open(struct gpt_indexed_writer **out,
                            const char *prefix, enum gpt_dtype dtype,
                            unsigned flags, struct gpt_err *err)
{
    struct gpt_indexed_writer *w;

    *out = NULL;
    GPT_TRY(gpt_new(&w, 1, sizeof *w, "a data set writer", err));
    w->dtype = dtype;
    int status = open_writer(w, prefix, flags, err);
    if (status != GPT_OK) {
        gpt_indexed_writer_abort(w);
        return status;
    }
    *out = w;
    return GPT_OK;
}

void gpt_indexed_writer_abort(struct gpt_indexed_writer *w)
{
    if (!w)
        return;
    gpt_out_abort(w->bin);
    gpt_out_abort(w->idx);
    gpt_out_abort(w->lengths);
    gpt_out_abort(w->documents);
    gpt_free(w->prefix);
    gpt_free(w);
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

/* The .idx is complete before the .bin gets its name: between the two names
 * lies nothing that can fail but the system itself. */
int gpt_indexed_writer_commit(struct gpt_indexed_writer *w,
                              struct gpt_err *err)
{
    struct gpt_out *bin = w->bin, *idx = w->idx;
    int status;

    GPT_TRY_GOTO(status, write_idx(w, err), out);
    w->bin = NULL;
    GPT_TRY_GOTO(status, gpt_out_commit(bin, err), out);
    w->idx = NULL;
    status = gpt_out_commit(idx, err);
out:
    gpt_indexed_writer_abort(w);
    return status;
}
