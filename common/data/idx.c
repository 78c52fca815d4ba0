/* Checks an .idx image field by field, in the order of the file: header, sizes,
 * sequences, documents. Start at gpt_idx_parse(), at the end. */
#include "data/idx.h"

#include "base/num.h"

#include <inttypes.h>

static const char magic[GPT_IDX_MAGIC + 1] = "MMIDIDX\0";
static const char legacy_magic[] = "TNTIDX\0"; /* 8 bytes with its NUL */

enum { VERSION_AT = 9, DTYPE_AT = 17, SEQUENCES_AT = 18, DOCUMENTS_AT = 26 };

/* Megatron's codes of integer types; 6 and 7 are floating, in an order that
 * differs between programs. */
static const struct {
    uint8_t code;
    enum gpt_dtype dtype;
} dtype_codes[] = {
    {1, GPT_U8},  {2, GPT_I8},  {3, GPT_I16},
    {4, GPT_I32}, {5, GPT_I64}, {8, GPT_U16},
};

static int parse_dtype(uint8_t code, enum gpt_dtype *dtype, const char *path,
                       struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(dtype_codes); i++)
        if (dtype_codes[i].code == code) {
            *dtype = dtype_codes[i].dtype;
            return GPT_OK;
        }
    if (code == 6 || code == 7)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%d: dtype code is %d, a floating type: tokens are"
                        " integers (codes 1-5, 8)", path, DTYPE_AT, code);
    return gpt_fail(err, GPT_EDATA,
                    "%s:%d: dtype code is %d, known are 1-5 and 8", path,
                    DTYPE_AT, code);
}

static int parse_magic(const uint8_t *image, int64_t size, const char *path,
                       struct gpt_err *err)
{
    if (size >= 8 && memcmp(image, legacy_magic, 8) == 0) {
        gpt_fail(err, GPT_EDATA,
                 "%s:0: magic is TNTIDX, the legacy format of lazy and cached"
                 " data sets, which is not supported yet", path);
        return gpt_hint(err, "make the data set again with gpt-preprocess");
    }
    if (size < GPT_IDX_HEADER)
        return gpt_fail(err, GPT_EDATA,
                        "%s: truncated: size is %" PRId64
                        " bytes, the header alone has %d", path, size,
                        GPT_IDX_HEADER);
    if (memcmp(image, magic, GPT_IDX_MAGIC) != 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s:0: magic is not MMIDIDX: no index of a data set",
                        path);
    uint64_t version = gpt_get_u64(image + VERSION_AT);
    if (version != 1)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%d: version is %" PRIu64 ", known is 1", path,
                        VERSION_AT, version);
    return GPT_OK;
}

/* Both counts against the bytes that are there, before anything is added. */
static int parse_counts(struct gpt_idx *idx, const uint8_t *image,
                        int64_t size, const char *path, struct gpt_err *err)
{
    uint64_t left = (uint64_t)(size - GPT_IDX_HEADER);
    uint64_t s = gpt_get_u64(image + SEQUENCES_AT);
    uint64_t d = gpt_get_u64(image + DOCUMENTS_AT);

    if (s > left / 12)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%d: number of sequences is %" PRIu64
                        ", a file of %" PRId64 " bytes has at most %" PRIu64,
                        path, SEQUENCES_AT, s, size, left / 12);
    left -= 12 * s;
    if (d == 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%d: number of document indices is 0, at least 1"
                        " must be there", path, DOCUMENTS_AT);
    if (d > left / 8)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%d: number of document indices is %" PRIu64
                        ", after %" PRIu64 " sequences a file of %" PRId64
                        " bytes has at most %" PRIu64, path, DOCUMENTS_AT, d,
                        s, size, left / 8);
    left -= 8 * d;
    if (left != 0 && left == s)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%" PRId64 ": %" PRIu64 " modes follow the document"
                        " indices: multimodal data sets are not supported",
                        path, size - (int64_t)left, left);
    if (left != 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%" PRId64 ": size is %" PRId64 " bytes, %" PRIu64
                        " more than %" PRIu64 " sequences and %" PRIu64
                        " document indices take", path, size - (int64_t)left,
                        size, left, s, d);
    idx->n_sequences = (int64_t)s;
    idx->n_documents = (int64_t)d - 1;
    return GPT_OK;
}

static int bad_pointer(const struct gpt_idx *idx, const uint8_t *image,
                       int64_t i, int64_t expected, const char *path,
                       struct gpt_err *err)
{
    int64_t pointer = gpt_idx_i64(idx->pointers, i);
    gpt_fail(err, GPT_EDATA,
             "%s:%" PRId64 ": pointer of sequence %" PRId64 " is %" PRId64
             ", the lengths before it add up to %" PRId64 " bytes", path,
             (int64_t)(idx->pointers - image) + 8 * i, i, pointer, expected);
    if ((uint32_t)pointer == (uint32_t)expected)
        gpt_hint(err, "the writer counted in 32 bits, as Megatron-LM with"
                      " numpy 2 did before September 2025: write it again");
    return GPT_EDATA;
}

/* Lengths and pointers side by side; what a length may be is bounded by the
 * bytes that the .bin has left, so that no sum overflows. */
static int check_sequences(struct gpt_idx *idx, const uint8_t *image,
                           int64_t bin_bytes, const char *path,
                           struct gpt_err *err)
{
    int64_t item = (int64_t)gpt_dtype_bytes(idx->dtype);
    int64_t end = 0; /* of the sequence before, in bytes */

    for (int64_t i = 0; i < idx->n_sequences; i++) {
        int64_t length = gpt_idx_i32(idx->lengths, i);
        int64_t next = end + length * item;
        if (length >= 0 && next <= bin_bytes &&
            gpt_idx_i64(idx->pointers, i) == end) {
            end = next;
            continue;
        }
        int64_t at = (int64_t)(idx->lengths - image) + 4 * i;
        if (length < 0)
            return gpt_fail(err, GPT_EDATA,
                            "%s:%" PRId64 ": length of sequence %" PRId64
                            " is %" PRId64 ", must be >= 0", path, at, i,
                            length);
        if (gpt_idx_i64(idx->pointers, i) != end)
            return bad_pointer(idx, image, i, end, path, err);
        return gpt_fail(err, GPT_EDATA,
                        "%s:%" PRId64 ": length of sequence %" PRId64
                        " is %" PRId64 " tokens, at byte %" PRId64
                        " the .bin of %" PRId64 " bytes has room for %" PRId64,
                        path, at, i, length, end, bin_bytes,
                        (bin_bytes - end) / item);
    }
    idx->n_tokens = end / item;
    if (end != bin_bytes)
        return gpt_fail(err, GPT_EDATA,
                        "%s: size of the .bin is %" PRId64 " bytes, the %"
                        PRId64 " tokens of type %s take %" PRId64, path,
                        bin_bytes, idx->n_tokens, gpt_dtype_name(idx->dtype),
                        end);
    return GPT_OK;
}

static int check_documents(const struct gpt_idx *idx, const uint8_t *image,
                           const char *path, struct gpt_err *err)
{
    int64_t at = (int64_t)(idx->documents - image);
    int64_t before = gpt_idx_i64(idx->documents, 0);

    if (before != 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%" PRId64 ": document index 0 is %" PRId64
                        ", must be 0", path, at, before);
    for (int64_t d = 1; d <= idx->n_documents; d++) {
        int64_t v = gpt_idx_i64(idx->documents, d);
        if (v < before)
            return gpt_fail(err, GPT_EDATA,
                            "%s:%" PRId64 ": document index %" PRId64 " is %"
                            PRId64 ", less than the one before it, %" PRId64,
                            path, at + 8 * d, d, v, before);
        before = v;
    }
    if (before != idx->n_sequences) {
        gpt_fail(err, GPT_EDATA,
                 "%s:%" PRId64 ": last document index is %" PRId64
                 ", must be the number of sequences, %" PRId64, path,
                 at + 8 * idx->n_documents, before, idx->n_sequences);
        return gpt_hint(err, "old merge tools forgot the documents of all but"
                             " the first part: merge the parts again");
    }
    return GPT_OK;
}

int gpt_idx_parse(struct gpt_idx *idx, const uint8_t *image, int64_t size,
                  int64_t bin_bytes, const char *path, struct gpt_err *err)
{
    memset(idx, 0, sizeof *idx);
    GPT_TRY(parse_magic(image, size, path, err));
    GPT_TRY(parse_dtype(image[DTYPE_AT], &idx->dtype, path, err));
    GPT_TRY(parse_counts(idx, image, size, path, err));
    idx->lengths = image + GPT_IDX_HEADER;
    idx->pointers = idx->lengths + 4 * idx->n_sequences;
    idx->documents = idx->pointers + 8 * idx->n_sequences;
    GPT_TRY(check_sequences(idx, image, bin_bytes, path, err));
    return check_documents(idx, image, path, err);
}

bool gpt_idx_header(uint8_t header[GPT_IDX_HEADER], enum gpt_dtype dtype,
                    int64_t n_sequences, int64_t n_documents)
{
    memcpy(header, magic, GPT_IDX_MAGIC);
    gpt_put_u64(header + VERSION_AT, 1);
    gpt_put_u64(header + SEQUENCES_AT, (uint64_t)n_sequences);
    gpt_put_u64(header + DOCUMENTS_AT, (uint64_t)n_documents + 1);
    for (size_t i = 0; i < GPT_COUNT(dtype_codes); i++)
        if (dtype_codes[i].dtype == dtype) {
            header[DTYPE_AT] = dtype_codes[i].code;
            return true;
        }
    return false;
}
