/* Checks an .idx image field by field, in the order of the file: header, sizes,
 * sequences, documents. Start at gpt_idx_parse(), at the end. */
#include "data/idx.h"

#include "base/num.h"
#include "data/tntidx.h"

#include <inttypes.h>

static const char magic[GPT_IDX_MAGIC + 1] = "MMIDIDX\0";

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

bool gpt_idx_dtype(uint64_t code, enum gpt_dtype *dtype)
{
    for (size_t i = 0; i < GPT_COUNT(dtype_codes); i++)
        if (dtype_codes[i].code == code) {
            *dtype = dtype_codes[i].dtype;
            return true;
        }
    return false;
}

bool gpt_idx_dtype_code(enum gpt_dtype dtype, uint8_t *code)
{
    for (size_t i = 0; i < GPT_COUNT(dtype_codes); i++)
        if (dtype_codes[i].dtype == dtype) {
            *code = dtype_codes[i].code;
            return true;
        }
    return false;
}

bool gpt_idx_is_floating(const uint8_t header[GPT_IDX_HEADER])
{
    return header[DTYPE_AT] == 6 || header[DTYPE_AT] == 7;
}

/* What the checks share. Without `all`, the first finding ends them. The same
 * functions serve a reader and a report of all damage: gpt_damage_found()
 * returns GPT_EDATA in the one case and GPT_OK in the other, so that GPT_TRY
 * ends the first and continues the second. */
struct check {
    struct gpt_idx *idx;
    const uint8_t *image;
    int64_t size, bin_bytes;
    const char *path;
    struct gpt_damages *all;
    struct gpt_err *err;
};

#define FOUND(c, kind, hint, ...)                                              \
    gpt_damage_found((c)->all, (c)->err, kind, hint, __VA_ARGS__)

static int64_t offset_of(const struct check *c, const uint8_t *p)
{
    return (int64_t)(p - c->image);
}

/* Without a header that is right nothing else can be found, so that its damage
 * ends a report, too. */
static int check_magic(const struct check *c)
{
    const enum gpt_damage header = GPT_DAMAGE_HEADER;
    int status = GPT_EDATA;

    if (gpt_tntidx_has_magic(c->image, c->size))
        FOUND(c, header, "gpt-dataset convert makes a new data set of it",
              "%s:0: magic is TNTIDX, the legacy format of lazy and cached"
              " data sets, of which damage is not listed", c->path);
    else if (c->size < GPT_IDX_HEADER)
        FOUND(c, header, NULL,
              "%s: truncated: size is %" PRId64 " bytes, the header alone has"
              " %d", c->path, c->size, GPT_IDX_HEADER);
    else if (memcmp(c->image, magic, GPT_IDX_MAGIC) != 0)
        FOUND(c, header, NULL,
              "%s:0: magic is not MMIDIDX: no index of a data set", c->path);
    else if (gpt_get_u64(c->image + VERSION_AT) != 1)
        FOUND(c, header, NULL, "%s:%d: version is %" PRIu64 ", known is 1",
              c->path, VERSION_AT, gpt_get_u64(c->image + VERSION_AT));
    else
        status = GPT_OK;
    return status;
}

/* Both counts against the bytes that are there, before anything is added. */
static int check_counts(const struct check *c)
{
    /* Both counts are 64 bits of a hostile file: they are compared by division,
     * never multiplied, before anything is added. */
    uint64_t left = (uint64_t)(c->size - GPT_IDX_HEADER);
    uint64_t s = gpt_get_u64(c->image + SEQUENCES_AT);
    uint64_t d = gpt_get_u64(c->image + DOCUMENTS_AT);

    if (s > left / 12 || d == 0 || d > (left - 12 * s) / 8) {
        if (s > left / 12)
            FOUND(c, GPT_DAMAGE_HEADER, NULL,
                  "%s:%d: number of sequences is %" PRIu64 ", a file of %"
                  PRId64 " bytes has at most %" PRIu64, c->path, SEQUENCES_AT,
                  s, c->size, left / 12);
        else if (d == 0)
            FOUND(c, GPT_DAMAGE_HEADER, NULL,
                  "%s:%d: number of document indices is 0, at least 1 must be"
                  " there", c->path, DOCUMENTS_AT);
        else
            FOUND(c, GPT_DAMAGE_HEADER, NULL,
                  "%s:%d: number of document indices is %" PRIu64 ", after %"
                  PRIu64 " sequences a file of %" PRId64 " bytes has at most %"
                  PRIu64, c->path, DOCUMENTS_AT, d, s, c->size,
                  (left - 12 * s) / 8);
        return GPT_EDATA;
    }
    left -= 12 * s + 8 * d;
    if (left != 0 && left == s)
        GPT_TRY(FOUND(c, GPT_DAMAGE_IDX_SIZE, NULL,
                      "%s:%" PRId64 ": %" PRIu64 " modes follow the document"
                      " indices: multimodal data sets are not supported",
                      c->path, c->size - (int64_t)left, left));
    else if (left != 0)
        GPT_TRY(FOUND(c, GPT_DAMAGE_IDX_SIZE, NULL,
                      "%s:%" PRId64 ": size is %" PRId64 " bytes, %" PRIu64
                      " more than %" PRIu64 " sequences and %" PRIu64
                      " document indices take", c->path,
                      c->size - (int64_t)left, c->size, left, s, d));
    c->idx->n_sequences = (int64_t)s;
    c->idx->n_documents = (int64_t)d - 1;
    c->idx->lengths = c->image + GPT_IDX_HEADER;
    c->idx->pointers = c->idx->lengths + 4 * s;
    c->idx->documents = c->idx->pointers + 8 * s;
    return GPT_OK;
}

/* The integer type of which the .bin holds n tokens exactly; GPT_N_DTYPES when
 * there is none. The common types come first: where two fit, which takes sizes
 * that are multiples of each other, the likelier one is taken. */
static enum gpt_dtype fitting_dtype(const struct check *c, int64_t n)
{
    static const enum gpt_dtype types[] = {GPT_U16, GPT_I32, GPT_U8, GPT_I64};

    for (size_t i = 0; n > 0 && i < GPT_COUNT(types); i++) {
        int64_t item = (int64_t)gpt_dtype_bytes(types[i]);

        if (c->bin_bytes % item == 0 && c->bin_bytes / item == n)
            return types[i];
    }
    return GPT_N_DTYPES;
}

/* The sum of the lengths that are not negative; -1 when it overflows. */
static int64_t sum_lengths(const struct gpt_idx *idx)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < idx->n_sequences; i++)
        if (!gpt_add(sum, gpt_max_i64(0, gpt_idx_i32(idx->lengths, i)), &sum))
            return -1;
    return sum;
}

/* A type is believed if it is known; guess_dtype() doubts it later. */
static int check_dtype(const struct check *c)
{
    uint8_t code = c->image[DTYPE_AT];

    if (gpt_idx_dtype(code, &c->idx->dtype))
        return GPT_OK;
    if (gpt_idx_is_floating(c->image))
        FOUND(c, GPT_DAMAGE_DTYPE, NULL,
              "%s:%d: dtype code is %d, a floating type (%s in Megatron-LM, %s"
              " in GPT-NeoX): tokens are integers (codes 1-5, 8)", c->path,
              DTYPE_AT, code, code == 6 ? "float64" : "float32",
              code == 6 ? "float32" : "float64");
    else
        FOUND(c, GPT_DAMAGE_DTYPE, NULL,
              "%s:%d: dtype code is %d, known are 1-5 and 8", c->path, DTYPE_AT,
              code);
    if (!c->all)
        return GPT_EDATA;
    c->idx->dtype = fitting_dtype(c, sum_lengths(c->idx));
    return c->idx->dtype == GPT_N_DTYPES ? GPT_EDATA : GPT_OK;
}

/* A pointer that is right in its lower 32 bits tells which writer made it, and
 * that the lengths can be trusted. */
static int bad_pointer(const struct check *c, int64_t i, int64_t expected)
{
    int64_t pointer = gpt_idx_i64(c->idx->pointers, i);
    bool wrapped = (uint32_t)pointer == (uint32_t)expected;

    return FOUND(c, wrapped ? GPT_DAMAGE_POINTER_32 : GPT_DAMAGE_POINTER,
                 wrapped ? "the writer counted in 32 bits, as Megatron-LM with"
                           " numpy 2 did before September 2025: gpt-dataset"
                           " repair"
                         : NULL,
                 "%s:%" PRId64 ": pointer of sequence %" PRId64 " is %" PRId64
                 ", the lengths before it add up to %" PRId64 " bytes", c->path,
                 offset_of(c, c->idx->pointers) + 8 * i, i, pointer, expected);
}

/* `end` is where the sequence begins in the .bin, by the lengths before it. */
static int bad_length(const struct check *c, int64_t i, int64_t end)
{
    int64_t at = offset_of(c, c->idx->lengths) + 4 * i;
    int64_t length = gpt_idx_i32(c->idx->lengths, i);
    int64_t item = (int64_t)gpt_dtype_bytes(c->idx->dtype);

    if (length < 0)
        return FOUND(c, GPT_DAMAGE_LENGTH, NULL,
                     "%s:%" PRId64 ": length of sequence %" PRId64 " is %"
                     PRId64 ", must be >= 0", c->path, at, i, length);
    return FOUND(c, GPT_DAMAGE_BIN_SHORT, NULL,
                 "%s:%" PRId64 ": length of sequence %" PRId64 " is %" PRId64
                 " tokens, at byte %" PRId64 " the .bin of %" PRId64
                 " bytes has room for %" PRId64, c->path, at, i, length, end,
                 c->bin_bytes, (c->bin_bytes - end) / item);
}

/* Documents that hold a sequence: the others had no end to forget. */
static int64_t count_filled(const struct gpt_idx *idx)
{
    int64_t n = 0;

    for (int64_t d = 0; d < idx->n_documents; d++)
        n += gpt_idx_i64(idx->documents, d) <
             gpt_idx_i64(idx->documents, d + 1);
    return n;
}

/* One token too many a document is a known bug, and not a foreign tail: the
 * size tells them apart, as a set of several documents hardly has such a tail
 * by chance. */
static int bad_bin(const struct check *c, int64_t end)
{
    int64_t item = (int64_t)gpt_dtype_bytes(c->idx->dtype);
    int64_t filled = count_filled(c->idx);
    bool eod = filled > 1 && c->bin_bytes - end == filled * item;

    return FOUND(c, eod ? GPT_DAMAGE_EOD_LENGTH : GPT_DAMAGE_BIN_LONG,
                 eod ? "one token a document is not counted, as Megatron-LM"
                       " forgot the end of documents in summer 2023:"
                       " gpt-dataset repair"
                     : NULL,
                 "%s: size of the .bin is %" PRId64 " bytes, the %" PRId64
                 " tokens of type %s take %" PRId64, c->path, c->bin_bytes,
                 c->idx->n_tokens, gpt_dtype_name(c->idx->dtype), end);
}

/* Replaces a type that is known but of the wrong size: that is likelier than
 * half of the tokens missing, unless the pointers agree with the type. Only a
 * report of all damage guesses; a reader refuses the set. */
static void guess_dtype(const struct check *c)
{
    struct gpt_idx *idx = c->idx;
    int64_t n = sum_lengths(idx), last = idx->n_sequences - 1, bytes;
    int64_t item = (int64_t)gpt_dtype_bytes(idx->dtype);
    enum gpt_dtype guess = fitting_dtype(c, n);

    if (guess == GPT_N_DTYPES || !gpt_mul(n, item, &bytes) ||
        bytes == c->bin_bytes)
        return;
    /* The last pointer depends on the width of all tokens before it: when it
     * agrees, the type is right and the .bin is not. */
    int64_t before = n - gpt_max_i64(0, gpt_idx_i32(idx->lengths, last));
    if (before > 0 && gpt_idx_i64(idx->pointers, last) == before * item)
        return;
    FOUND(c, GPT_DAMAGE_DTYPE, NULL,
          "%s:%d: dtype code is %d, %s, but the .bin has %zu bytes for each of"
          " the %" PRId64 " tokens", c->path, DTYPE_AT, c->image[DTYPE_AT],
          gpt_dtype_name(idx->dtype), gpt_dtype_bytes(guess), n);
    idx->dtype = guess;
}

/* Checks lengths and pointers side by side. For a reader the bytes that the
 * .bin has left bound each length, so that no sum overflows; a report continues
 * past that, and its sums are checked. */
static int check_sequences(const struct check *c)
{
    struct gpt_idx *idx = c->idx;
    int64_t item = (int64_t)gpt_dtype_bytes(idx->dtype);
    int64_t end = 0;               /* of the sequence before, in bytes */
    int64_t cut = -1, cut_end = 0; /* the first that the .bin lacks */

    for (int64_t i = 0; i < idx->n_sequences; i++) {
        int64_t length = gpt_idx_i32(idx->lengths, i), next;

        if (length < 0)
            GPT_TRY(bad_length(c, i, end));
        if (gpt_idx_i64(idx->pointers, i) != end)
            GPT_TRY(bad_pointer(c, i, end));
        if (!gpt_add(end, gpt_max_i64(0, length) * item, &next)) {
            FOUND(c, GPT_DAMAGE_HEADER, NULL, "%s: lengths overflow", c->path);
            return GPT_EDATA;
        }
        if (next > c->bin_bytes && cut < 0) {
            cut = i;
            cut_end = end;
            if (!c->all)
                return bad_length(c, i, end);
        }
        end = next;
    }
    idx->n_tokens = end / item;
    if (cut >= 0)
        return bad_length(c, cut, cut_end);
    return end == c->bin_bytes ? GPT_OK : bad_bin(c, end);
}

/* Documents may be empty, so that equal indices are good; one that falls is
 * not. That the last one is missing is a bug of its own, of old merges. */
static int check_documents(const struct check *c)
{
    const struct gpt_idx *idx = c->idx;
    int64_t at = offset_of(c, idx->documents);
    int64_t before = gpt_idx_i64(idx->documents, 0);

    if (before != 0)
        GPT_TRY(FOUND(c, GPT_DAMAGE_DOCUMENT, NULL,
                      "%s:%" PRId64 ": document index 0 is %" PRId64
                      ", must be 0", c->path, at, before));
    for (int64_t d = 1; d <= idx->n_documents; d++) {
        int64_t v = gpt_idx_i64(idx->documents, d);

        if (v < before)
            GPT_TRY(FOUND(c, GPT_DAMAGE_DOCUMENT, NULL,
                          "%s:%" PRId64 ": document index %" PRId64 " is %"
                          PRId64 ", less than the one before it, %" PRId64,
                          c->path, at + 8 * d, d, v, before));
        before = v;
    }
    if (before == idx->n_sequences)
        return GPT_OK;
    bool missing = before >= 0 && before < idx->n_sequences;
    return FOUND(c, missing ? GPT_DAMAGE_DOCUMENTS : GPT_DAMAGE_DOCUMENT,
                 missing ? "old merge tools forgot the documents of all but the"
                           " first part: merge the parts again, or gpt-dataset"
                           " repair"
                         : NULL,
                 "%s:%" PRId64 ": last document index is %" PRId64
                 ", must be the number of sequences, %" PRId64, c->path,
                 at + 8 * idx->n_documents, before, idx->n_sequences);
}

static int check_all(const struct check *c)
{
    memset(c->idx, 0, sizeof(*c->idx));
    GPT_TRY(check_magic(c));
    if (!c->all) /* a wrong type is reported before a wrong count */
        GPT_TRY(check_dtype(c));
    /* A report needs the arrays first: it guesses the type from them. */
    GPT_TRY(check_counts(c));
    if (c->all) {
        GPT_TRY(check_dtype(c));
        guess_dtype(c);
    }
    GPT_TRY(check_sequences(c));
    return check_documents(c);
}

int gpt_idx_parse(struct gpt_idx *idx, const uint8_t *image, int64_t size,
                  int64_t bin_bytes, const char *path, struct gpt_err *err)
{
    struct check c = {idx, image, size, bin_bytes, path, NULL, err};

    return check_all(&c);
}

int gpt_idx_check(struct gpt_idx *idx, const uint8_t *image, int64_t size,
                  int64_t bin_bytes, const char *path, struct gpt_damages *all)
{
    struct check c = {idx, image, size, bin_bytes, path, all, NULL};

    return check_all(&c);
}

bool gpt_idx_header(uint8_t header[GPT_IDX_HEADER], enum gpt_dtype dtype,
                    int64_t n_sequences, int64_t n_documents)
{
    memcpy(header, magic, GPT_IDX_MAGIC);
    gpt_put_u64(header + VERSION_AT, 1);
    gpt_put_u64(header + SEQUENCES_AT, (uint64_t)n_sequences);
    gpt_put_u64(header + DOCUMENTS_AT, (uint64_t)n_documents + 1);
    return gpt_idx_dtype_code(dtype, &header[DTYPE_AT]);
}
