/* gpt-dataset repair: makes a good data set of a damaged one. First the check
 * of data/idx.c collects what is wrong. Each kind has its remedy:
 *
 *     pointer, pointer-32-bit   made anew from the lengths
 *     dtype                     the one that makes the size of the .bin right
 *     idx-size                  bytes after the arrays are dropped
 *     documents-missing         the sequences after them become a document each
 *     document-order            all sequences do
 *     eod-length                every document's last sequence grows by a token
 *     bin-truncated             documents that are not whole are dropped
 *     bin-too-long              what is too much is dropped
 *
 * Other kinds leave open what the set was, and are refused; some of these
 * together are, too: remedy.c says which. The damaged files are never written
 * to. Start at repair_set() and read upwards. */
#include "cmd/dataset/command.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "cmd/dataset/remedy.h"
#include "cmd/dataset/untrusted.h"
#include "cmd/dataset/write_set.h"
#include "data/idx.h"
#include "data/set_damage.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

struct repair {
    struct gpt_untrusted set;
    struct gpt_idx idx;
    struct gpt_damages damages;
    struct gpt_err first[GPT_N_DAMAGES]; /* the first finding of each kind */
    struct gpt_set_range part;
    uint8_t *lengths, *documents; /* new ones, or NULL */
    const char *path;             /* of the .idx, for messages */
};

/* Called for the first finding of each kind, as gpt_damages.found. */
static void keep_first(void *user, enum gpt_damage kind,
                       const struct gpt_err *err)
{
    struct repair *r = user;

    r->first[kind] = *err;
}

static bool has_damage(const struct repair *r, enum gpt_damage kind)
{
    return r->damages.count[kind] > 0;
}

/* The finding is the error, and the hint says why there is no remedy: the user
 * sees what verify shows. */
static int refuse_hopeless(const struct repair *r, bool readable,
                           struct gpt_err *err)
{
    struct gpt_refusal refusal;

    if (!gpt_repair_refused(&refusal, &r->set, &r->idx, readable, &r->damages))
        return GPT_OK;
    *err = r->first[refusal.kind];
    return gpt_repair_hint(err, &refusal);
}

/* ---- documents ---- */

/* Makes documents of one sequence each, after the part of the old ones that is
 * kept: all of them or none. Old merges lost the documents of all parts but the
 * first, where a document mostly was a sequence. */
static int new_documents(struct repair *r, int64_t kept, const char *what,
                         struct gpt_err *err)
{
    int64_t old = kept ? r->part.n_documents : 0;
    int64_t begun = kept ? gpt_idx_i64(r->part.documents, old) : 0;
    int64_t n = old + r->part.n_sequences - begun;

    GPT_TRY(gpt_new(&r->documents, (size_t)n + 1, 8, "document indices", err));
    if (kept)
        memcpy(r->documents, r->part.documents, 8 * (size_t)(old + 1));
    for (int64_t d = old; d < n; d++)
        gpt_put_u64(r->documents + 8 * (d + 1),
                    (uint64_t)(begun + d - old + 1));
    gpt_warn("%s: %s: %" PRId64 " sequences become a document each", r->path,
             what, r->part.n_sequences - begun);
    r->part.documents = r->documents;
    r->part.n_documents = n;
    return GPT_OK;
}

/* Disorder comes first: where the documents that are there cannot be trusted,
 * none of them is kept. */
static int repair_documents(struct repair *r, struct gpt_err *err)
{
    if (has_damage(r, GPT_DAMAGE_DOCUMENT))
        return new_documents(r, 0, "documents are in disorder", err);
    if (has_damage(r, GPT_DAMAGE_DOCUMENTS))
        return new_documents(r, 1, "documents are missing", err);
    return GPT_OK;
}

/* ---- lengths ---- */

/* How many tokens the .bin holds. */
static int64_t tokens_there(const struct repair *r)
{
    return r->set.bin_bytes / (int64_t)gpt_dtype_bytes(r->idx.dtype);
}

/* Ends the set with the last document that is complete: half a document would
 * train as if it ended there. */
static void drop_tail(struct repair *r)
{
    struct gpt_set_range *p = &r->part;
    /* Sequences are counted first, and then documents whose sequences are all
     * there. */
    int64_t kept = 0, tokens = 0, n = p->n_documents;

    while (kept < p->n_sequences) {
        int64_t next = tokens + gpt_idx_i32(p->lengths, kept);

        if (next > tokens_there(r))
            break;
        tokens = next;
        kept++;
    }
    while (gpt_idx_i64(p->documents, p->n_documents) > kept)
        p->n_documents--;
    p->n_sequences = gpt_idx_i64(p->documents, p->n_documents);
    gpt_warn("%s: the .bin is cut short: the last %" PRId64 " of %" PRId64
             " documents are dropped", r->path, n - p->n_documents, n);
}

/* Counts the end-of-document token in the last sequence of each document, where
 * Megatron-LM forgot it in summer 2023. That all documents end with the same
 * token, and that it is there, was a condition: see remedy.c. */
static int count_eod(struct repair *r, struct gpt_err *err)
{
    struct gpt_set_range *p = &r->part;
    int64_t at = 0, eod = -1;

    GPT_TRY(gpt_new(&r->lengths, (size_t)p->n_sequences, 4, "lengths", err));
    memcpy(r->lengths, p->lengths, 4 * (size_t)p->n_sequences);
    for (int64_t d = 0; d < p->n_documents; d++) {
        int64_t first = gpt_idx_i64(p->documents, d);
        int64_t end = gpt_idx_i64(p->documents, d + 1);

        if (first == end)
            continue;
        for (int64_t i = first; i < end; i++)
            at += gpt_idx_i32(p->lengths, i);
        assert(at < tokens_there(r));
        eod = gpt_token_at(r->set.bytes, r->idx.dtype, at++);
        gpt_put_u32(r->lengths + 4 * (end - 1),
                    (uint32_t)gpt_idx_i32(p->lengths, end - 1) + 1);
    }
    gpt_warn("%s: document ends were not counted: every length grows by token %"
             PRId64, r->path, eod);
    p->lengths = r->lengths;
    return GPT_OK;
}

/* At most one of these is found: the size of the .bin is less, or more by an
 * end a document, or more by anything else. */
static int repair_lengths(struct repair *r, struct gpt_err *err)
{
    if (has_damage(r, GPT_DAMAGE_BIN_SHORT))
        drop_tail(r);
    if (has_damage(r, GPT_DAMAGE_EOD_LENGTH))
        GPT_TRY(count_eod(r, err));
    if (has_damage(r, GPT_DAMAGE_BIN_LONG))
        gpt_warn("%s: bytes of the .bin after the last sequence are dropped",
                 r->path);
    int64_t tokens = 0;
    for (int64_t i = 0; i < r->part.n_sequences; i++)
        tokens += gpt_idx_i32(r->part.lengths, i);
    r->part.bytes = tokens * (int64_t)gpt_dtype_bytes(r->idx.dtype);
    return GPT_OK;
}

/* ---- all ---- */

static void report_rebuilt(const struct repair *r)
{
    int64_t pointers = r->damages.count[GPT_DAMAGE_POINTER] +
                       r->damages.count[GPT_DAMAGE_POINTER_32];

    if (pointers > 0)
        gpt_warn("%s: %" PRId64 " pointers were wrong", r->path, pointers);
    if (has_damage(r, GPT_DAMAGE_DTYPE))
        gpt_warn("%s: the type is %s by the size of the .bin", r->path,
                 gpt_dtype_name(r->idx.dtype));
    if (has_damage(r, GPT_DAMAGE_IDX_SIZE))
        gpt_warn("%s: bytes after the document indices are dropped", r->path);
}

/* The arrays of the damaged index are used where they lie; only those that are
 * wrong are made anew. Pointers are always made anew, by write_set.c. */
static int write_repaired(struct repair *r,
                          const struct gpt_write_set_options *options,
                          struct gpt_err *err)
{
    struct gpt_write_set_options o = *options;

    r->part = (struct gpt_set_range){
        .path = gpt_in_path(r->set.bin_file),
        .idx_path = gpt_in_path(r->set.idx_file),
        .lengths = r->idx.lengths,
        .n_sequences = r->idx.n_sequences,
        .documents = r->idx.documents,
        .n_documents = r->idx.n_documents,
    };
    report_rebuilt(r);
    /* Documents come before lengths: the latter are dropped or grown document
     * by document. */
    GPT_TRY(repair_documents(r, err));
    GPT_TRY(repair_lengths(r, err));
    if (o.index_only && r->part.bytes != r->set.bin_bytes)
        return gpt_fail(err, GPT_EUSAGE,
                        "--index-only is not enough: '%s' must be cut from %"
                        PRId64 " to %" PRId64 " bytes", r->part.path,
                        r->set.bin_bytes, r->part.bytes);
    o.dtype = r->idx.dtype;
    return gpt_write_set(&o, &r->part, 1, err);
}

static int repair_set(struct repair *r, const char *prefix,
                      const struct gpt_write_set_options *o, bool *damaged,
                      struct gpt_err *err)
{
    GPT_TRY(gpt_untrusted_open(&r->set, prefix, err));
    r->path = gpt_in_path(r->set.idx_file);
    r->damages =
        (struct gpt_damages){.most = 1, .found = keep_first, .user = r};
    bool readable = gpt_idx_check(&r->idx, r->set.image, r->set.image_bytes,
                                  r->set.bin_bytes, r->path,
                                  &r->damages) == GPT_OK;
    /* A good set is not copied. The caller reports it, as the user may have
     * named another one than was meant. */
    *damaged = gpt_damages_total(&r->damages) > 0;
    if (!*damaged)
        return GPT_OK;
    int status = refuse_hopeless(r, readable, err);
    GPT_TRY(gpt_in_whole(r->set.bin_file, err)); /* else no token counts */
    return status == GPT_OK ? write_repaired(r, o, err) : status;
}

static int repair_and_report(struct repair *r,
                             const struct gpt_dataset_options *o,
                             const char *prefix, struct gpt_err *err)
{
    struct gpt_progress *p = gpt_dataset_open_progress(o, "repair", 0);
    struct gpt_write_set_options wo = gpt_dataset_writing(o, p);
    bool damaged = false;

    wo.index_only = o->index_only;
    int status = repair_set(r, prefix, &wo, &damaged, err);
    gpt_progress_close(p);
    if (status == GPT_OK && damaged)
        gpt_info("%s: written", o->output_prefix);
    else if (status == GPT_OK)
        gpt_warn("%s: nothing is wrong with it; nothing is written", prefix);
    return status;
}

static int run_repair(const struct gpt_dataset_options *o,
                      const char *const *sets, int n, struct gpt_err *err)
{
    struct repair *r;

    (void)n;
    GPT_TRY(gpt_dataset_check_output(o, err));
    /* Too large for the stack: it keeps a text for each kind of damage. */
    GPT_TRY(gpt_new(&r, 1, sizeof(*r), "a repair", err));
    int status = repair_and_report(r, o, sets[0], err);
    gpt_untrusted_close(&r->set);
    gpt_free(r->lengths);
    gpt_free(r->documents);
    gpt_free(r);
    return status;
}

static const struct gpt_opt options[] = {
    GPT_DATASET_OUTPUT_PREFIX,
    {.kind = GPT_OPT_FLAG, .name = "index-only", GPT_DATASET_AT(index_only),
     .help = "write PREFIX.idx alone"},
};

const struct gpt_dataset_command gpt_dataset_repair = {
    .name = "repair",
    .run = run_repair,
    .min_sets = 1,
    .max_sets = 1,
    .options = options,
    .n_options = GPT_COUNT(options),
    .usage = "repair PREFIX [--index-only] --output-prefix PREFIX",
};
