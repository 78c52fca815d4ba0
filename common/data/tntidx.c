/* TNTIDX, checked value by value while its arrays are copied into those of an
 * MMIDIDX: what comes out is trusted like that. Start at gpt_tntidx_read().
 *
 *     0   "TNTIDX\0\0"
 *     8   version (1), dtype code, bytes of an element, N, L, D: six words
 *     56  dims (N + 1): which of the sizes are those of item i
 *         data (N + 1): tokens before item i
 *         sizes (L):    tokens of an item in each of its dimensions
 *         documents (D): items before each document, and N at the end
 *
 * An item could have several dimensions. A sequence of tokens has one, so that
 * L is N and dims counts up; what is otherwise is no data set of tokens. */
#include "data/tntidx.h"

#include "base/memory.h"
#include "base/num.h"

#include <inttypes.h>

struct tntidx {
    const uint8_t *image;
    int64_t size, bin_bytes;
    const char *path;
    enum gpt_dtype dtype;
    int64_t n, n_documents; /* items, documents */
    int64_t dims_at, data_at, sizes_at, documents_at;
};

/* Checks the header before an array is looked at. The counts come from the
 * file: they are compared to the words that it has, and only then added or
 * multiplied. */
static int check_header(struct tntidx *t, struct gpt_err *err)
{
    const uint8_t *p = t->image;

    if (t->size < GPT_TNTIDX_HEADER)
        return gpt_fail(err, GPT_EDATA, "%s: truncated: size is %" PRId64
                        " bytes, the header alone has %d", t->path, t->size,
                        GPT_TNTIDX_HEADER);
    const uint64_t version = gpt_get_u64(p + GPT_TNTIDX_VERSION);
    const uint64_t code = gpt_get_u64(p + GPT_TNTIDX_DTYPE);
    const uint64_t element = gpt_get_u64(p + GPT_TNTIDX_ELEMENT);
    const uint64_t n = gpt_get_u64(p + GPT_TNTIDX_ITEMS);
    const uint64_t sizes = gpt_get_u64(p + GPT_TNTIDX_SIZES);
    const uint64_t documents = gpt_get_u64(p + GPT_TNTIDX_DOCUMENTS);
    if (version != 1)
        return gpt_fail(err, GPT_EDATA, "%s:%d: version is %" PRIu64
                        ", known is 1", t->path, GPT_TNTIDX_VERSION, version);
    if (!gpt_idx_dtype(code, &t->dtype))
        return gpt_fail(err, GPT_EDATA, "%s:%d: dtype code is %" PRIu64
                        ", tokens have 1-5 or 8", t->path, GPT_TNTIDX_DTYPE,
                        code);
    if (element != gpt_dtype_bytes(t->dtype))
        return gpt_fail(err, GPT_EDATA, "%s:%d: element size is %" PRIu64
                        ", that of type %s is %zu", t->path,
                        GPT_TNTIDX_ELEMENT, element, gpt_dtype_name(t->dtype),
                        gpt_dtype_bytes(t->dtype));
    /* All arrays are words of 8 bytes: their number follows from the size. */
    const uint64_t words = (uint64_t)(t->size - GPT_TNTIDX_HEADER) / 8;
    const bool fits = t->size % 8 == 0 && n < words / 2 && sizes <= words &&
                      documents <= words &&
                      2 * (n + 1) + sizes + documents == words;
    if (!fits || sizes != n || documents == 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%d: %" PRIu64 " items, %" PRIu64 " sizes and %"
                        PRIu64 " document indices do not fill the file's %"
                        PRId64 " bytes with one size for each item", t->path,
                        GPT_TNTIDX_ITEMS, n, sizes, documents, t->size);
    t->n = (int64_t)n;
    t->n_documents = (int64_t)documents - 1;
    t->dims_at = GPT_TNTIDX_HEADER;
    t->data_at = t->dims_at + 8 * (t->n + 1);
    t->sizes_at = t->data_at + 8 * (t->n + 1);
    t->documents_at = t->sizes_at + 8 * t->n;
    return GPT_OK;
}

/* No array of the file is aligned by more than chance. */
static int64_t word(const struct tntidx *t, int64_t at, int64_t i)
{
    return gpt_idx_i64(t->image + at, i);
}

/* Refuses a .bin that does not hold exactly the tokens of its index. */
static int check_bin(const struct tntidx *t, int64_t tokens,
                     struct gpt_err *err)
{
    int64_t item = (int64_t)gpt_dtype_bytes(t->dtype), bytes;

    if (gpt_mul(tokens, item, &bytes) && bytes == t->bin_bytes)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: its .bin has %" PRId64 " bytes, but the index counts %"
                    PRId64 " tokens of %" PRId64 " bytes each", t->path,
                    t->bin_bytes, tokens, item);
}

/* Takes the sizes as lengths, after the offsets agreed with them: the tokens
 * must lie in the file without gaps, as they do in the other format. */
static int take_items(const struct tntidx *t, uint8_t *lengths,
                      uint8_t *pointers, struct gpt_err *err)
{
    int64_t item = (int64_t)gpt_dtype_bytes(t->dtype), end = 0;

    for (int64_t i = 0; i <= t->n; i++) {
        int64_t data = word(t, t->data_at, i);

        if (data != end || word(t, t->dims_at, i) != i)
            return gpt_fail(err, GPT_EDATA,
                            "%s:%" PRId64 ": offset of item %" PRId64 " is %"
                            PRId64 ", the sizes before it add up to %" PRId64
                            " (or it has not one dimension)", t->path,
                            t->data_at + 8 * i, i, data, end);
        if (i == t->n)
            break;
        int64_t length = word(t, t->sizes_at, i);
        if (length < 0 || length > INT32_MAX)
            return gpt_fail(err, GPT_EDATA,
                            "%s:%" PRId64 ": length of sequence %" PRId64
                            " is %" PRId64 ", must be 0 to %d", t->path,
                            t->sizes_at + 8 * i, i, length, INT32_MAX);
        gpt_put_u32(lengths + 4 * i, (uint32_t)length);
        /* An end past the .bin is refused here, so that nothing overflows. */
        gpt_put_u64(pointers + 8 * i, (uint64_t)(end * item));
        if (length > t->bin_bytes / item - end)
            return check_bin(t, end + length, err);
        end += length;
    }
    return check_bin(t, end, err);
}

static int take_documents(const struct tntidx *t, uint8_t *documents,
                          struct gpt_err *err)
{
    int64_t before = 0;

    for (int64_t d = 0; d <= t->n_documents; d++) {
        int64_t v = word(t, t->documents_at, d);

        if (v < before || (d == 0 && v != 0) ||
            (d == t->n_documents ? v != t->n : v > t->n))
            return gpt_fail(err, GPT_EDATA,
                            "%s:%" PRId64 ": document index %" PRId64 " is %"
                            PRId64 ", must rise from 0 to %" PRId64, t->path,
                            t->documents_at + 8 * d, d, v, t->n);
        gpt_put_u64(documents + 8 * d, (uint64_t)v);
        before = v;
    }
    return GPT_OK;
}

/* The image is smaller than that of the file, whose counts were checked against
 * its size: no product can overflow. */
int gpt_tntidx_read(uint8_t **made, int64_t *made_bytes, const uint8_t *image,
                    int64_t size, int64_t bin_bytes, const char *path,
                    struct gpt_err *err)
{
    struct tntidx t = {.image = image, .size = size, .bin_bytes = bin_bytes,
                       .path = path};
    int status;

    *made = NULL;
    GPT_TRY(check_header(&t, err));
    *made_bytes = GPT_IDX_HEADER + 12 * t.n + 8 * (t.n_documents + 1);
    GPT_TRY(gpt_new(made, (size_t)*made_bytes, 1, "an index", err));
    uint8_t *lengths = *made + GPT_IDX_HEADER;
    uint8_t *pointers = lengths + 4 * t.n;
    (void)gpt_idx_header(*made, t.dtype, t.n, t.n_documents); /* has a code */
    GPT_TRY_GOTO(status, take_items(&t, lengths, pointers, err), fail);
    GPT_TRY_GOTO(status, take_documents(&t, pointers + 8 * t.n, err), fail);
    return GPT_OK;
fail:
    gpt_free(*made);
    *made = NULL;
    return status;
}
