/* Reads indexed data sets. The .idx is mapped and checked once (idx.c); the
 * .bin is mapped, held in memory or read piece by piece. Start at
 * gpt_indexed_open(). */
#include "data/indexed.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/num.h"
#include "data/idx.h"
#include "data/prefix_hint.h"
#include "data/tntidx.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct gpt_indexed {
    char *prefix;
    struct gpt_in *idx_file, *bin_file; /* no .bin once it was copied */
    struct gpt_idx idx;
    int64_t item;         /* bytes a token */
    const uint8_t *bytes; /* the .bin, or NULL: read it piece by piece */
    uint8_t *made;        /* the index, where the file has another format */
    uint8_t *copy;        /* what `bytes` points to under "cached" */
    bool random;          /* mapped, and read in random order */
};

/* The names are those of Megatron-LM, whose scripts give them; "infer" is what
 * it calls looking at the magic, which is done in any case. */
enum impl { INFER, MMAP, CACHED, LAZY };
const char *const gpt_indexed_impls[] = {
    [INFER] = "infer", [MMAP] = "mmap", [CACHED] = "cached", [LAZY] = "lazy",
    NULL,
};

static int parse_impl(const char *impl, enum impl *out, struct gpt_err *err)
{
    *out = MMAP;
    if (!impl)
        return GPT_OK;
    for (int i = 0; gpt_indexed_impls[i]; i++)
        if (strcmp(impl, gpt_indexed_impls[i]) == 0) {
            *out = i == INFER ? MMAP : (enum impl)i;
            return GPT_OK;
        }
    return gpt_fail(err, GPT_EUSAGE,
                    "data set implementation is '%s', known are mmap, cached,"
                    " lazy and infer", impl);
}

/* Opens prefix + suffix. */
static int open_part(struct gpt_in **in, const char *prefix,
                     const char *suffix, struct gpt_err *err)
{
    struct gpt_buf path = {0};
    int status = gpt_buf_printf(&path, "%s%s", prefix, suffix);

    if (status != GPT_OK) {
        gpt_buf_free(&path);
        return gpt_no_memory(err, prefix);
    }
    status = gpt_in_open(in, path.data, err);
    gpt_buf_free(&path);
    if (status != GPT_OK)
        gpt_hint_at_prefix(prefix, err);
    return status;
}

/* What the three ways cost: mapped files share the page cache between
 * processes; "cached" reads once and never waits again; "lazy" needs no address
 * space, and a system call a read. */
static int open_bin(struct gpt_indexed *set, enum impl impl,
                    struct gpt_err *err)
{
    int64_t size = gpt_in_size(set->bin_file);

    gpt_in_map_only(set->idx_file); /* blends have thousands of files */
    if (impl == MMAP) {
        GPT_TRY(gpt_in_map(set->bin_file, &set->bytes, err));
        gpt_in_watch(set->bin_file);
        /* A map outlives its descriptor. */
        gpt_in_map_only(set->bin_file);
        return GPT_OK;
    }
    if (impl == LAZY)
        return GPT_OK;
    GPT_TRY(gpt_new(&set->copy, (size_t)size, 1, "the tokens of a data set",
                    err));
    set->bytes = set->copy;
    GPT_TRY(gpt_in_read(set->bin_file, set->copy, 0, (size_t)size, err));
    gpt_in_close(set->bin_file);
    set->bin_file = NULL;
    return GPT_OK;
}

/* Both files of one set: between the two calls a writer may have replaced it.
 * The .idx of the old set goes before its .bin does, so that an .idx that is
 * still the one opened first proves that the .bin is its own. */
static int open_pair(struct gpt_indexed *set, const char *prefix,
                     struct gpt_err *err)
{
    enum { TRIES = 100 };

    for (int i = 0; i < TRIES; i++) {
        GPT_TRY(open_part(&set->idx_file, prefix, ".idx", err));
        GPT_TRY(open_part(&set->bin_file, prefix, ".bin", err));
        if (gpt_in_is_current(set->idx_file))
            break;
        gpt_in_close(set->idx_file);
        gpt_in_close(set->bin_file);
        set->idx_file = set->bin_file = NULL;
    }
    return set->idx_file ? GPT_OK
                         : gpt_fail(err, GPT_EIO, "%s: another program "
                                    "replaces it again and again", prefix);
}

/* The legacy index is another form of the same: whatever way of reading is
 * asked for, its first bytes tell which of the two it is. */
static int parse_index(struct gpt_indexed *set, struct gpt_err *err)
{
    const char *path = gpt_in_path(set->idx_file);
    int64_t bytes = gpt_in_size(set->idx_file);
    int64_t bin_bytes = gpt_in_size(set->bin_file);
    const uint8_t *image;

    GPT_TRY(gpt_in_map(set->idx_file, &image, err));
    if (gpt_tntidx_has_magic(image, bytes)) {
        GPT_TRY(gpt_tntidx_read(&set->made, &bytes, image, bytes, bin_bytes,
                                path, err));
        image = set->made;
    }
    return gpt_idx_parse(&set->idx, image, bytes, bin_bytes, path, err);
}

static int open_set(struct gpt_indexed *set, const char *prefix,
                    enum impl impl, struct gpt_err *err)
{
    GPT_TRY(gpt_new(&set->prefix, strlen(prefix) + 1, 1, "a prefix", err));
    /* gpt_new() zeroed the byte after it. */
    memcpy(set->prefix, prefix, strlen(prefix));
    GPT_TRY(open_pair(set, prefix, err));
    GPT_TRY(parse_index(set, err));
    /* From here on every pointer and length of the index is known to lie inside
     * of the .bin. */
    set->item = (int64_t)gpt_dtype_bytes(set->idx.dtype);
    return open_bin(set, impl, err);
}

int gpt_indexed_open(struct gpt_indexed **out, const char *prefix,
                     const char *impl, struct gpt_err *err)
{
    struct gpt_indexed *set;
    enum impl how;

    *out = NULL;
    GPT_TRY(parse_impl(impl, &how, err));
    GPT_TRY(gpt_new(&set, 1, sizeof(*set), "a data set", err));
    int status = open_set(set, prefix, how, err);
    if (status != GPT_OK) {
        gpt_indexed_close(set);
        return status;
    }
    *out = set;
    return GPT_OK;
}

/* ---- a set that is made up ---- */

enum { MOCK_DOCUMENTS = 100000, MOCK_LONGEST = 4095 };

/* Its arrays in one block. All documents end alike, so that the longest of them
 * holds the tokens of each. */
struct mock {
    int64_t pointers[MOCK_DOCUMENTS], documents[MOCK_DOCUMENTS + 1];
    int32_t lengths[MOCK_DOCUMENTS], tokens[MOCK_LONGEST];
};

/* Ids begin at 1, as 0 is the end of a text in many vocabularies. The lengths
 * are drawn once and for all: data that differ by the seed would be other data
 * for a run that resumes with another one. */
static void fill_mock(struct mock *m, int64_t vocab_size, int32_t end)
{
    const int64_t ids = gpt_max_i64(vocab_size - 1, 1);

    for (int64_t i = 0; i < MOCK_LONGEST; i++)
        m->tokens[i] = (int32_t)gpt_min_i64(1 + i % ids, vocab_size - 1);
    if (end >= 0)
        m->tokens[MOCK_LONGEST - 1] = end;
    for (int64_t i = 0; i < MOCK_DOCUMENTS; i++) {
        const uint64_t draw = gpt_hash64(&i, sizeof(i), 0);
        const int64_t length = 1 + (int64_t)(draw % MOCK_LONGEST);

        m->lengths[i] = (int32_t)length;
        m->pointers[i] = (MOCK_LONGEST - length) * (int64_t)sizeof(int32_t);
        m->documents[i + 1] = i + 1;
    }
}

/* The index is filled and not parsed: documents share their tokens, which those
 * of a file cannot. `made` owns all of it. */
static int open_mock(struct gpt_indexed *set, const char *name,
                     int64_t vocab_size, int32_t end, struct gpt_err *err)
{
    struct mock *m;

    GPT_TRY(gpt_new(&set->prefix, strlen(name) + 1, 1, "a name", err));
    memcpy(set->prefix, name, strlen(name));
    GPT_TRY(gpt_new(&m, 1, sizeof(*m), "a data set", err));
    fill_mock(m, vocab_size, end);
    set->made = (uint8_t *)m;
    set->bytes = (const uint8_t *)m->tokens;
    set->item = sizeof(*m->tokens);
    set->idx = (struct gpt_idx){
        .dtype = GPT_I32,
        .n_sequences = MOCK_DOCUMENTS,
        .n_documents = MOCK_DOCUMENTS,
        .lengths = (const uint8_t *)m->lengths,
        .pointers = (const uint8_t *)m->pointers,
        .documents = (const uint8_t *)m->documents,
    };
    for (int64_t i = 0; i < MOCK_DOCUMENTS; i++)
        set->idx.n_tokens += m->lengths[i];
    return GPT_OK;
}

int gpt_indexed_mock(struct gpt_indexed **out, const char *name,
                     int64_t vocab_size, int32_t end, struct gpt_err *err)
{
    struct gpt_indexed *set;

    *out = NULL;
    GPT_TRY(gpt_new(&set, 1, sizeof(*set), "a data set", err));
    const int status = open_mock(set, name, vocab_size, end, err);
    if (status == GPT_OK)
        *out = set;
    else
        gpt_indexed_close(set);
    return status;
}

void gpt_indexed_close(struct gpt_indexed *set)
{
    if (!set)
        return;
    gpt_in_close(set->idx_file);
    gpt_in_close(set->bin_file);
    gpt_free(set->copy);
    gpt_free(set->made);
    gpt_free(set->prefix);
    gpt_free(set);
}

int gpt_indexed_protect(const char *prefix, struct gpt_err *err)
{
    static const char *const suffixes[] = {".bin",     ".idx", ".json",
                                           ".sources", ".ds",  ".ds.index"};
    int status = GPT_OK;

    for (size_t i = 0; status == GPT_OK && i < GPT_COUNT(suffixes); i++) {
        struct gpt_buf path = {0};

        status = gpt_buf_printf(&path, "%s%s", prefix, suffixes[i]) == GPT_OK
                     ? gpt_in_protect(path.data, err)
                     : gpt_no_memory(err, "a file name");
        gpt_buf_free(&path);
    }
    return status;
}

const char *gpt_indexed_prefix(const struct gpt_indexed *set)
{
    return set->prefix;
}

int64_t gpt_indexed_n_sequences(const struct gpt_indexed *set)
{
    return set->idx.n_sequences;
}

int64_t gpt_indexed_n_documents(const struct gpt_indexed *set)
{
    return set->idx.n_documents;
}

int64_t gpt_indexed_n_tokens(const struct gpt_indexed *set)
{
    return set->idx.n_tokens;
}

enum gpt_dtype gpt_indexed_dtype(const struct gpt_indexed *set)
{
    return set->idx.dtype;
}

int64_t gpt_indexed_length(const struct gpt_indexed *set, int64_t i)
{
    return gpt_idx_i32(set->idx.lengths, i);
}

int64_t gpt_indexed_document(const struct gpt_indexed *set, int64_t d)
{
    return gpt_idx_i64(set->idx.documents, d);
}

const uint8_t *gpt_indexed_lengths(const struct gpt_indexed *set)
{
    return set->idx.lengths;
}

const uint8_t *gpt_indexed_documents(const struct gpt_indexed *set)
{
    return set->idx.documents;
}

int64_t gpt_indexed_start(const struct gpt_indexed *set, int64_t i)
{
    if (i >= set->idx.n_sequences)
        return set->idx.n_tokens;
    return gpt_idx_i64(set->idx.pointers, i) / set->item;
}

/* madvise(2) on whole pages around a part of the mapped .bin. Advice: that it
 * fails changes nothing but the speed. */
static void advise(const uint8_t *p, int64_t n, int advice)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)p & ~(page - 1);

    (void)madvise((void *)begin, (uintptr_t)p + (uintptr_t)n - begin, advice);
}

int64_t gpt_indexed_cached(const struct gpt_indexed *set)
{
    return set->copy ? set->idx.n_tokens * set->item : 0;
}

/* A copy in memory has no pages to fault, and an empty map no address. */
void gpt_indexed_read_randomly(struct gpt_indexed *set)
{
    set->random = set->bin_file && set->bytes && set->idx.n_tokens > 0;
    if (set->random)
        advise(set->bytes, set->idx.n_tokens * set->item, MADV_RANDOM);
}

/* n tokens of the file as int32. Returns n, or where the first one is that does
 * not fit (only 64-bit tokens can be too large). One loop a type, chosen once
 * and not for each token: the compiler vectorizes them. */
static int64_t widen(int32_t *dst, const uint8_t *src, int64_t n,
                     enum gpt_dtype dtype)
{
    switch (dtype) {
#define WIDEN(name, type)                                             \
    case name:                                                        \
        for (int64_t i = 0; i < n; i++) {                             \
            type v;                                                   \
            memcpy(&v, src + (size_t)i * sizeof(v), sizeof(v));       \
            if (sizeof(v) > sizeof(*dst) && (int64_t)v != (int32_t)v) \
                return i;                                             \
            dst[i] = (int32_t)v;                                      \
        }                                                             \
        return n;
        WIDEN(GPT_U8, uint8_t)
        WIDEN(GPT_I8, int8_t)
        WIDEN(GPT_I16, int16_t)
        WIDEN(GPT_U16, uint16_t)
        WIDEN(GPT_I32, int32_t)
        WIDEN(GPT_I64, int64_t)
#undef WIDEN
    default:
        return 0; /* gpt_idx_parse() lets no other type through */
    }
}

/* Where the map is read at random the kernel does not read ahead: a longer run
 * asks for its pages at once, instead of one fault after the other. */
int gpt_indexed_read(const struct gpt_indexed *set, int64_t i, int64_t begin,
                     int64_t n, int32_t *dst, struct gpt_err *err)
{
    enum { FAULT = 4096 }; /* bytes that one page fault reads */
    uint8_t piece[16384];
    int64_t most = set->bytes ? n : (int64_t)sizeof(piece) / set->item;

    if (i < 0 || i >= set->idx.n_sequences || begin < 0 || n < 0 ||
        n > gpt_indexed_length(set, i) - begin)
        return gpt_fail(err, GPT_EFAIL,
                        "%s: tokens %" PRId64 "+%" PRId64 " of sequence %"
                        PRId64 " are not in the data set", set->prefix, begin,
                        n, i);
    int64_t at = gpt_idx_i64(set->idx.pointers, i) + begin * set->item;
    if (set->random && n * set->item > FAULT) /* one request for all pages */
        advise(set->bytes + at, n * set->item, MADV_WILLNEED);
    for (int64_t done = 0; done < n;) {
        int64_t some = gpt_min_i64(n - done, most);
        const uint8_t *src = set->bytes ? set->bytes + at : piece;

        if (!set->bytes)
            GPT_TRY(gpt_in_read(set->bin_file, piece, at,
                                (size_t)(some * set->item), err));
        /* Signed types keep their sign: the caller refuses an id below 0, as it
         * knows the vocabulary. */
        int64_t good = widen(dst + done, src, some, set->idx.dtype);

        if (set->bin_file)
            GPT_TRY(gpt_in_whole(set->bin_file, err));
        if (good != some)
            return gpt_fail(err, GPT_EDATA,
                            "%s.bin:%" PRId64 ": token %" PRId64
                            " of sequence %" PRId64 " is %" PRId64
                            ", ids have 32 bits", set->prefix,
                            at + 8 * good, begin + done + good, i,
                            gpt_idx_i64(src, good));
        done += some;
        at += some * set->item;
    }
    return GPT_OK;
}
