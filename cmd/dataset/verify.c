/* Verifies data sets: first the index (idx.c), then, as far as it can be
 * believed, the tokens. Start at gpt_verify(), at the end. */
#include "cmd/dataset/verify.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"

#include <inttypes.h>

static int open_part(struct gpt_in **in, const char *prefix,
                     const char *suffix, struct gpt_err *err)
{
    struct gpt_buf path = {0};
    int status = gpt_buf_printf(&path, "%s%s", prefix, suffix);

    if (status == GPT_OK)
        status = gpt_in_open(in, path.data, err);
    else
        status = gpt_fail(err, GPT_EFAIL, "%s: out of memory", prefix);
    gpt_buf_free(&path);
    return status;
}

int gpt_untrusted_open(struct gpt_untrusted *set, const char *prefix,
                       struct gpt_err *err)
{
    memset(set, 0, sizeof(*set));
    GPT_TRY(open_part(&set->idx_file, prefix, ".idx", err));
    GPT_TRY(open_part(&set->bin_file, prefix, ".bin", err));
    set->image_bytes = gpt_in_size(set->idx_file);
    set->bin_bytes = gpt_in_size(set->bin_file);
    GPT_TRY(gpt_in_map(set->idx_file, &set->image, err));
    return gpt_in_map(set->bin_file, &set->bytes, err);
}

void gpt_untrusted_close(struct gpt_untrusted *set)
{
    gpt_in_close(set->idx_file);
    gpt_in_close(set->bin_file);
    memset(set, 0, sizeof(*set));
}

int64_t gpt_token_at(const uint8_t *bytes, enum gpt_dtype dtype, int64_t i)
{
    switch (dtype) {
#define AT(name, type)                                        \
    case name: {                                              \
        type v;                                               \
        memcpy(&v, bytes + (size_t)i * sizeof(v), sizeof(v)); \
        return v;                                             \
    }
        AT(GPT_U8, uint8_t)
        AT(GPT_I8, int8_t)
        AT(GPT_I16, int16_t)
        AT(GPT_U16, uint16_t)
        AT(GPT_I32, int32_t)
        AT(GPT_I64, int64_t)
#undef AT
    default:
        return -1; /* no other type is in gpt_idx */
    }
}

struct pass {
    const struct gpt_untrusted *set;
    const struct gpt_idx *idx;
    const struct gpt_verify_options *o;
    struct gpt_damages *all;
    int64_t limit; /* ids are below */
    int64_t document;
};

static void bad_token(const struct pass *p, int64_t sequence, int64_t begin,
                      int64_t i)
{
    int64_t id = gpt_token_at(p->set->bytes, p->idx->dtype, i);

    gpt_damage_found(p->all, NULL, GPT_DAMAGE_TOKEN, NULL,
                     "%s:%" PRId64 ": token %" PRId64 " of sequence %" PRId64
                     " is %" PRId64 ", must be >= 0 and < %" PRId64,
                     gpt_in_path(p->set->bin_file),
                     i * (int64_t)gpt_dtype_bytes(p->idx->dtype), i - begin,
                     sequence, id, p->limit);
}

static void check_range(const struct pass *p, int64_t sequence, int64_t begin,
                        int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        int64_t id = gpt_token_at(p->set->bytes, p->idx->dtype, i);

        if (id < 0 || id >= p->limit)
            bad_token(p, sequence, begin, i);
    }
}

/* Sequence i ends at token `end`; the documents that end with it are done. */
static void check_eod(struct pass *p, int64_t i, int64_t begin, int64_t end)
{
    const struct gpt_idx *idx = p->idx;

    while (p->document < idx->n_documents &&
           gpt_idx_i64(idx->documents, p->document + 1) <= i + 1) {
        int64_t d = p->document++;

        if (gpt_idx_i64(idx->documents, d) ==
            gpt_idx_i64(idx->documents, d + 1))
            continue; /* empty */
        int64_t id = end > begin
                         ? gpt_token_at(p->set->bytes, idx->dtype, end - 1)
                         : -1;
        if (id == p->o->eod)
            continue;
        gpt_damage_found(
            p->all, NULL, GPT_DAMAGE_EOD, NULL,
            "%s:%" PRId64 ": document %" PRId64 " (sequence %" PRId64
            ") ends with %s%" PRId64 ", not with %" PRId64,
            gpt_in_path(p->set->bin_file),
            end * (int64_t)gpt_dtype_bytes(idx->dtype), d, i,
            end > begin ? "token " : "no token, ", end > begin ? id : 0,
            p->o->eod);
    }
}

/* Where documents end is known when their array is in order and the lengths
 * are right. */
static bool ends_known(const struct gpt_damages *all)
{
    return all->count[GPT_DAMAGE_DOCUMENT] == 0 &&
           all->count[GPT_DAMAGE_LENGTH] == 0 &&
           all->count[GPT_DAMAGE_EOD_LENGTH] == 0;
}

/* Every type but u8 and u16 can hold what is no id. */
static bool range_needed(enum gpt_dtype dtype, int64_t limit)
{
    return !(dtype == GPT_U16 && limit > UINT16_MAX) &&
           !(dtype == GPT_U8 && limit > UINT8_MAX);
}

static int check_tokens(struct pass *p, struct gpt_err *err)
{
    const struct gpt_idx *idx = p->idx;
    int64_t there = p->set->bin_bytes / (int64_t)gpt_dtype_bytes(idx->dtype);
    bool range = range_needed(idx->dtype, p->limit);
    bool eod = p->o->eod >= 0 && ends_known(p->all);
    int64_t begin = 0;

    if (!range && !eod)
        return GPT_OK;
    for (int64_t i = 0; i < idx->n_sequences && begin <= there; i++) {
        int64_t length = gpt_max_i64(0, gpt_idx_i32(idx->lengths, i));
        int64_t end = begin + length;

        if (range)
            check_range(p, i, begin, gpt_min_i64(end, there));
        if (eod && end <= there)
            check_eod(p, i, begin, end);
        begin = end;
        if (gpt_signals_stop())
            return gpt_fail(err, GPT_EFAIL, "stopped");
    }
    return GPT_OK;
}

int gpt_verify(const char *prefix, const struct gpt_verify_options *options,
               struct gpt_damages *all, struct gpt_err *err)
{
    struct gpt_untrusted set;
    struct gpt_idx idx;
    struct pass p = {&set, &idx, options, all,
                     options->vocab_size > 0 ? options->vocab_size
                                             : INT64_C(1) << 31,
                     0};
    int status = gpt_untrusted_open(&set, prefix, err);

    if (status == GPT_OK &&
        gpt_idx_check(&idx, set.image, set.image_bytes, set.bin_bytes,
                      gpt_in_path(set.idx_file), all) == GPT_OK)
        status = check_tokens(&p, err);
    gpt_untrusted_close(&set);
    return status;
}
