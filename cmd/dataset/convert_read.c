/* Reads data sets of every format that convert.h knows. All become one part:
 * lengths as int32, document indices as int64. data/indexed.h gives those of
 * its formats; the others are checked value by value while they are made, as
 * what comes out of here is trusted. Start at gpt_foreign_open(), at the
 * end. */
#include "cmd/dataset/convert.h"

#include "base/memory.h"
#include "base/num.h"
#include "cmd/dataset/untrusted.h"
#include "data/indexed.h"
#include "data/tntidx.h"

#include <inttypes.h>
#include <string.h>

/* ---- what the formats share ---- */

static int64_t item_of(const struct gpt_foreign *s)
{
    return (int64_t)gpt_dtype_bytes(s->dtype);
}

/* Makes room for the arrays of a format that does not have them as they are;
 * n_documents < 0: document indices are used where they lie. */
static int new_arrays(struct gpt_foreign *s, int64_t n_sequences,
                      int64_t n_documents, struct gpt_err *err)
{
    GPT_TRY(gpt_new(&s->lengths, (size_t)n_sequences, 4, "lengths", err));
    s->part.lengths = s->lengths;
    s->part.n_sequences = n_sequences;
    if (n_documents < 0)
        return GPT_OK;
    GPT_TRY(gpt_new(&s->documents, (size_t)n_documents + 1, 8, "documents",
                    err));
    s->part.documents = s->documents;
    s->part.n_documents = n_documents;
    return GPT_OK;
}

/* Sets the length of sequence i, read at byte `at` of the index. */
static int set_length(struct gpt_foreign *s, int64_t i, int64_t length,
                      int64_t at, struct gpt_err *err)
{
    if (length < 0 || length > INT32_MAX)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%" PRId64 ": length of sequence %" PRId64 " is %"
                        PRId64 ", must be 0 to %d", s->index_path, at, i,
                        length, INT32_MAX);
    gpt_put_u32(s->lengths + 4 * i, (uint32_t)length);
    return GPT_OK;
}

/* Refuses a file that does not hold exactly the tokens of its index: no format
 * but this says how many there are, and a wrong type shows here first. */
static int check_size(const struct gpt_foreign *s, int64_t tokens,
                      struct gpt_err *err)
{
    int64_t bytes, size = gpt_in_size(s->data);

    if (gpt_mul(tokens, item_of(s), &bytes) && bytes == size)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: size is %" PRId64 " bytes, but the index counts "
                    "%" PRId64 " tokens of %" PRId64 " bytes each",
                    s->data_path, size, tokens, item_of(s));
}

/* ---- MMIDIDX, TNTIDX ---- */

/* gpt_indexed_open() has checked the arrays, and made those that the file does
 * not have; `indexed` keeps them. */
static int read_indexed(struct gpt_foreign *s, const char *prefix,
                        struct gpt_err *err)
{
    GPT_TRY(gpt_indexed_open(&s->indexed, prefix, NULL, err));
    s->dtype = gpt_indexed_dtype(s->indexed);
    s->part.bytes = gpt_indexed_n_tokens(s->indexed) * item_of(s);
    s->part.lengths = gpt_indexed_lengths(s->indexed);
    s->part.n_sequences = gpt_indexed_n_sequences(s->indexed);
    s->part.documents = gpt_indexed_documents(s->indexed);
    s->part.n_documents = gpt_indexed_n_documents(s->indexed);
    return GPT_OK;
}

/* ---- .ds ----
 *
 * PREFIX.ds has the tokens and nothing else; PREFIX.ds.index has the end of
 * each document in tokens, a word each. Neither has a magic: a foreign file
 * with such a name is only refused because the sizes do not agree. */
/* A document ends where the index says, in tokens. The index does not say what
 * a token is: two bytes or four, whichever makes the sizes agree. An empty file
 * agrees with both, and is taken for two. */
static int read_ds(struct gpt_foreign *s, struct gpt_err *err)
{
    const uint8_t *ends;
    int64_t size = gpt_in_size(s->index), n = size / 8, before = 0;

    GPT_TRY(gpt_in_map(s->index, &ends, err));
    GPT_TRY(gpt_in_open(&s->data, s->data_path, err));
    if (size % 8 != 0)
        return gpt_fail(err, GPT_EDATA, "%s: size is %" PRId64
                        " bytes, must be a multiple of 8", s->index_path, size);
    /* The last end is the number of all tokens. */
    int64_t tokens = n > 0 ? gpt_idx_i64(ends, n - 1) : 0;
    s->part.bytes = gpt_in_size(s->data);
    s->dtype = tokens > 0 && s->part.bytes / 4 == tokens ? GPT_I32 : GPT_U16;
    GPT_TRY(check_size(s, tokens, err));
    GPT_TRY(new_arrays(s, n, n, err));
    for (int64_t i = 0; i < n; i++) {
        int64_t end = gpt_idx_i64(ends, i);

        if (end < before || end > tokens)
            return gpt_fail(err, GPT_EDATA,
                            "%s:%" PRId64 ": end of document %" PRId64 " is %"
                            PRId64 ", must be from %" PRId64 ", the end before"
                            " it, to %" PRId64, s->index_path, 8 * i, i, end,
                            before, tokens);
        GPT_TRY(set_length(s, i, end - before, 8 * i, err));
        gpt_put_u64(s->documents + 8 * (i + 1), (uint64_t)i + 1);
        before = end;
    }
    return GPT_OK;
}

/* ---- llm.c ----
 *
 * 256 words of 32 bits, of which magic, version and the number of tokens are
 * used, then the tokens. The magic tells 16 bits from 32. The file does not say
 * where documents end: only the token that ends them does. */
/* Cuts documents after each `eod`, in two passes, as their number is needed for
 * the arrays; without an eod all tokens are one document. The last document
 * need not end with it. */
static int cut_llmc(struct gpt_foreign *s, const uint8_t *tokens, int64_t n,
                    int64_t eod, struct gpt_err *err)
{
    int64_t documents = 0, first = 0;

    for (int64_t i = 0; i < n; i++)
        documents += i + 1 == n || gpt_token_at(tokens, s->dtype, i) == eod;
    GPT_TRY(new_arrays(s, documents, documents, err));
    const int64_t room = documents;
    documents = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i + 1 < n && gpt_token_at(tokens, s->dtype, i) != eod)
            continue;
        if (documents == room) /* between the passes another program wrote */
            break;
        gpt_put_u32(s->lengths + 4 * documents, (uint32_t)(i + 1 - first));
        first = i + 1;
        documents++;
        gpt_put_u64(s->documents + 8 * documents, (uint64_t)documents);
    }
    GPT_TRY(gpt_in_whole(s->data, err));
    if (documents < room || first < n)
        return gpt_fail(err, GPT_EIO, "%s: another program is changing it",
                        s->data_path);
    return GPT_OK;
}

static int read_llmc(struct gpt_foreign *s, int64_t eod, struct gpt_err *err)
{
    const uint8_t *image;
    int64_t size = gpt_in_size(s->data);

    if (size < GPT_LLMC_HEADER)
        return gpt_fail(err, GPT_EDATA, "%s: truncated: size is %" PRId64
                        " bytes, the header alone has %d", s->data_path, size,
                        GPT_LLMC_HEADER);
    GPT_TRY(gpt_in_map(s->data, &image, err));
    gpt_in_watch(s->data);
    uint32_t magic = gpt_get_u32(image), version = gpt_get_u32(image + 4);
    uint32_t count = gpt_get_u32(image + 8);
    GPT_TRY(gpt_in_whole(s->data, err));
    if (!(magic == GPT_LLMC_U16 && version == 1) &&
        !(magic == GPT_LLMC_U32 && version == 7))
        return gpt_fail(err, GPT_EDATA, "%s:0: magic is %" PRIu32
                        " and version %" PRIu32 ": not a file of llm.c",
                        s->data_path, magic, version);
    s->dtype = magic == GPT_LLMC_U16 ? GPT_U16 : GPT_I32;
    s->part.offset = GPT_LLMC_HEADER;
    s->part.bytes = size - GPT_LLMC_HEADER;
    /* The header counts in 32 bits, and the file must hold exactly so many
     * tokens: no trailing bytes are taken for tokens. */
    if (count > INT32_MAX || s->part.bytes != count * item_of(s))
        return gpt_fail(err, GPT_EDATA, "%s:8: number of tokens is %" PRIu32
                        ", the file has %" PRId64 " bytes of type %s after its"
                        " header", s->data_path, count, s->part.bytes,
                        gpt_dtype_name(s->dtype));
    return cut_llmc(s, image + GPT_LLMC_HEADER, count, eod, err);
}

/* ---- all ---- */

static int name_files(struct gpt_foreign *s, const char *prefix,
                      const char *data, const char *index, struct gpt_err *err)
{
    gpt_free(s->data_path);
    gpt_free(s->index_path);
    s->data_path = s->index_path = NULL;
    GPT_TRY(gpt_join_name(&s->data_path, prefix, data, err));
    GPT_TRY(gpt_join_name(&s->index_path, prefix, index, err));
    s->part.path = s->data_path;
    s->part.idx_path = s->index_path;
    return GPT_OK;
}

/* The name alone leaves two formats open, TNTIDX and MMIDIDX, which their first
 * bytes tell. A .bin without an index can only be llm.c's. */
static int open_any(struct gpt_foreign *s, const char *prefix, int64_t eod,
                    struct gpt_err *err)
{
    uint8_t magic[8] = {0};

    GPT_TRY(name_files(s, prefix, ".bin", ".idx", err));
    GPT_TRY(gpt_in_settle(s->index_path, err));
    if (gpt_path_exists(s->index_path)) {
        GPT_TRY(gpt_in_open(&s->index, s->index_path, err));
        if (gpt_in_size(s->index) >= (int64_t)sizeof(magic))
            GPT_TRY(gpt_in_read(s->index, magic, 0, sizeof(magic), err));
        /* Anything else is left to the reader of both, whose messages say what
         * is wrong with it. */
        s->format = gpt_tntidx_has_magic(magic, sizeof(magic))
                        ? GPT_SET_TNTIDX
                        : GPT_SET_MMIDIDX;
        return read_indexed(s, prefix, err);
    }
    if (gpt_path_exists(s->data_path)) {
        s->format = GPT_SET_LLMC;
        /* Without an index only the .bin is an input. */
        s->part.idx_path = NULL;
        GPT_TRY(gpt_in_open(&s->data, s->data_path, err));
        return read_llmc(s, eod, err);
    }
    GPT_TRY(name_files(s, prefix, ".ds", ".ds.index", err));
    GPT_TRY(gpt_in_settle(s->index_path, err));
    if (!gpt_path_exists(s->data_path))
        return gpt_fail(err, GPT_EIO, "there is no '%s.idx', '%s.bin' or"
                        " '%s.ds'", prefix, prefix, prefix);
    s->format = GPT_SET_DS;
    GPT_TRY(gpt_in_open(&s->index, s->index_path, err));
    return read_ds(s, err);
}

int gpt_foreign_open(struct gpt_foreign *s, const char *prefix, int64_t eod,
                     struct gpt_err *err)
{
    memset(s, 0, sizeof(*s));
    return open_any(s, prefix, eod, err);
}

/* Everything is NULL where the opening failed earlier, so that this closes a
 * source that was opened in part. */
void gpt_foreign_close(struct gpt_foreign *s)
{
    gpt_indexed_close(s->indexed);
    gpt_in_close(s->index);
    gpt_in_close(s->data);
    gpt_free(s->data_path);
    gpt_free(s->index_path);
    gpt_free(s->lengths);
    gpt_free(s->documents);
    memset(s, 0, sizeof(*s));
}
