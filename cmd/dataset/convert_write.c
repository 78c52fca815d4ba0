/* Writes data sets of every format that convert.h knows. Each is a row of
 * `formats`: the names of its files, what is written before the tokens, what is
 * written into the index. A new format is a row here and a reader in
 *  convert_read.c.
 *
 * Both files are complete before the first gets its name; a set that the format
 * cannot hold leaves none. */
#include "cmd/dataset/convert.h"

#include "base/memory.h"
#include "base/num.h"
#include "data/tntidx.h"

#include <inttypes.h>

/* All arrays of these formats are 64-bit words; the output is buffered. */
static int put_word(struct gpt_out *out, uint64_t v, struct gpt_err *err)
{
    uint8_t word[8];

    gpt_put_u64(word, v);
    return gpt_out_write(out, word, sizeof(word), err);
}

static int64_t n_tokens(const struct gpt_foreign *s)
{
    return s->part.bytes / (int64_t)gpt_dtype_bytes(s->dtype);
}

/* ---- TNTIDX ---- */

/* Header, then where each item's dimensions begin (item i has the i-th size
 * alone), where its tokens begin, its size, and the documents. Places count
 * tokens; the writer of Megatron-LM counted no bytes here. */
static int tntidx_index(struct gpt_out *out, const struct gpt_foreign *s,
                        struct gpt_err *err)
{
    const struct gpt_set_range *p = &s->part;
    int64_t n = p->n_sequences, at = 0;
    uint8_t header[GPT_TNTIDX_HEADER];

    if (!gpt_tntidx_header(header, s->dtype, n, p->n_documents))
        return gpt_fail(err, GPT_EFAIL, "%s: tokens cannot be of type %s",
                        s->data_path, gpt_dtype_name(s->dtype));
    GPT_TRY(gpt_out_write(out, header, sizeof(header), err));
    for (int64_t i = 0; i <= n; i++)
        GPT_TRY(put_word(out, (uint64_t)i, err));
    /* The first item begins at 0; each of the others where the one before it
     * ends. Both arrays have an entry more than there are items. */
    GPT_TRY(put_word(out, 0, err));
    for (int64_t i = 0; i < n; i++) {
        at += gpt_idx_i32(p->lengths, i);
        GPT_TRY(put_word(out, (uint64_t)at, err));
    }
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(put_word(out, (uint64_t)gpt_idx_i32(p->lengths, i), err));
    return gpt_out_write(out, p->documents, 8 * (size_t)(p->n_documents + 1),
                         err);
}

/* ---- .ds, llm.c: two bytes or four a token ---- */

/* Both formats know two widths: uint16, and 32 bits whose sign no reader asks
 * for. */
static int check_width(const struct gpt_foreign *s, struct gpt_err *err)
{
    if (s->dtype == GPT_U16 || s->dtype == GPT_I32)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: tokens are of type %s, but this format holds U16 and "
                    "I32", s->data_path, gpt_dtype_name(s->dtype));
}

/* The end of each document, in tokens from the beginning. Sequences are lost:
 * the format has none. */
static int ds_index(struct gpt_out *out, const struct gpt_foreign *s,
                    struct gpt_err *err)
{
    const struct gpt_set_range *p = &s->part;
    int64_t at = 0, i = 0;

    GPT_TRY(check_width(s, err));
    for (int64_t d = 1; d <= p->n_documents; d++) {
        for (; i < gpt_idx_i64(p->documents, d); i++)
            at += gpt_idx_i32(p->lengths, i);
        GPT_TRY(put_word(out, (uint64_t)at, err));
    }
    return GPT_OK;
}

/* 256 words, of which three are used: magic, version, number of tokens. */
static int llmc_header(struct gpt_out *out, const struct gpt_foreign *s,
                       struct gpt_err *err)
{
    /* The words that are not used are zero, as llm.c writes them. */
    uint8_t header[GPT_LLMC_HEADER] = {0};
    bool wide = s->dtype == GPT_I32;

    GPT_TRY(check_width(s, err));
    if (n_tokens(s) > INT32_MAX)
        return gpt_fail(err, GPT_EDATA,
                        "%s: %" PRId64 " tokens, a file of llm.c holds at most"
                        " %d: slice it first", s->data_path, n_tokens(s),
                        INT32_MAX);
    gpt_put_u32(header, wide ? GPT_LLMC_U32 : GPT_LLMC_U16);
    gpt_put_u32(header + 4, wide ? 7 : 1);
    gpt_put_u32(header + 8, (uint32_t)n_tokens(s));
    return gpt_out_write(out, header, sizeof(header), err);
}

/* ---- all ---- */

static const struct format {
    const char *data, *index; /* suffixes; no index: NULL */
    int (*header)(struct gpt_out *out, const struct gpt_foreign *s,
                  struct gpt_err *err);
    int (*write_index)(struct gpt_out *out, const struct gpt_foreign *s,
                       struct gpt_err *err);
} formats[] = {
    [GPT_SET_MMIDIDX] = {".bin", ".idx", NULL, NULL}, /* gpt_write_set() */
    [GPT_SET_TNTIDX] = {".bin", ".idx", NULL, tntidx_index},
    [GPT_SET_DS] = {".ds", ".ds.index", NULL, ds_index},
    [GPT_SET_LLMC] = {".bin", NULL, llmc_header, NULL},
};

static int open_file(struct gpt_out **out, const char *suffix, int64_t bytes,
                     const struct gpt_write_set_options *o, struct gpt_err *err)
{
    char *path = NULL;

    GPT_TRY(gpt_join_name(&path, o->prefix, suffix, err));
    int status = gpt_out_open(out, path, o->flags, bytes, err);
    gpt_free(path);
    return status;
}

/* A file that has the index in itself may replace the tokens of a set of two
 * files: its .idx would describe tokens that are gone, and goes with them. */
static int open_no_index(struct gpt_out **out,
                         const struct gpt_write_set_options *o,
                         struct gpt_err *err)
{
    char *path = NULL;

    if (!(o->flags & GPT_OUT_FORCE))
        return GPT_OK;
    GPT_TRY(gpt_join_name(&path, o->prefix, ".idx", err));
    int status = gpt_path_exists(path) ? gpt_out_open_removal(out, path, err)
                                       : GPT_OK;
    gpt_free(path);
    return status;
}

static int write_format(const struct gpt_foreign *s, const struct format *f,
                        const struct gpt_write_set_options *o,
                        struct gpt_err *err)
{
    struct gpt_out *data = NULL, *index = NULL;
    int status;

    GPT_TRY_GOTO(status, open_file(&data, f->data, s->part.bytes, o, err),
                 out);
    if (f->index) {
        GPT_TRY_GOTO(status, open_file(&index, f->index, 0, o, err), out);
        GPT_TRY_GOTO(status, f->write_index(index, s, err), out);
    } else {
        GPT_TRY_GOTO(status, open_no_index(&index, o, err), out);
    }
    if (f->header)
        GPT_TRY_GOTO(status, f->header(data, s, err), out);
    GPT_TRY_GOTO(status, gpt_copy_bytes(data, s->part.path, s->part.offset,
                                        s->part.bytes, o, err), out);
    status = gpt_publish_set(o, data, index, err);
    data = index = NULL;
out:
    gpt_out_abort(data);
    gpt_out_abort(index);
    return status;
}

int gpt_convert_set(const struct gpt_foreign *s, enum gpt_set_format to,
                    const struct gpt_write_set_options *options,
                    struct gpt_err *err)
{
    struct gpt_write_set_options o = *options;

    /* Our own format has one writer, which merges and slices use as well.
     * PREFIX.ds has other names than PREFIX.bin: that set, and what describes
     * it, may be beside. */
    o.keeps_beside = to == GPT_SET_DS;
    if (to != GPT_SET_MMIDIDX)
        return write_format(s, &formats[to], &o, err);
    o.dtype = s->dtype;
    return gpt_write_set(&o, &s->part, 1, err);
}
