/* Writes a data set from parts of other files; see write_set.h. Tokens are
 * copied by the kernel where it can. The index is written array by array, each
 * by a walk over all parts, so that memory does not grow with the sets. Start
 * at gpt_write_set(), at the end.
 *
 * Sums are of 64 bits throughout: Megatron-LM's own writer once added lengths
 * in 32 bits, and sets of more than 2 GiB got pointers that had wrapped.
 * Lengths and documents of the parts were checked when they were opened, and
 * are not checked again here. */
#include "cmd/dataset/write_set.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"

#include <string.h>

int gpt_join_name(char **path, const char *prefix, const char *suffix,
                  struct gpt_err *err)
{
    size_t n = strlen(prefix), m = strlen(suffix);

    GPT_TRY(gpt_new(path, n + m + 1, 1, "a file name", err));
    memcpy(*path, prefix, n);
    memcpy(*path + n, suffix, m);
    return GPT_OK;
}

/* ---- the index ---- */

enum { PIECE = 4096 };

static int write_lengths(struct gpt_out *out, const struct gpt_set_range *p,
                         struct gpt_err *err)
{
    return gpt_out_write(out, p->lengths, 4 * (size_t)p->n_sequences, err);
}

/* Writes the pointers of a part that begins at byte *at of the new .bin, and
 * moves *at to its end. They are sums of the lengths, as those of the old index
 * start from another place. */
static int write_pointers(struct gpt_out *out, const struct gpt_set_range *p,
                          int64_t item, int64_t *at, struct gpt_err *err)
{
    uint8_t piece[8 * PIECE];

    for (int64_t done = 0; done < p->n_sequences; done += PIECE) {
        int64_t some = gpt_min_i64(PIECE, p->n_sequences - done);

        for (int64_t i = 0; i < some; i++) {
            gpt_put_u64(piece + 8 * i, (uint64_t)*at);
            *at += item * gpt_idx_i32(p->lengths, done + i);
        }
        GPT_TRY(gpt_out_write(out, piece, 8 * (size_t)some, err));
    }
    return GPT_OK;
}

/* Writes the ends of the documents of a part whose first sequence becomes
 * number `first`. They are the old ends, shifted: those of a slice begin at any
 * number. */
static int write_documents(struct gpt_out *out, const struct gpt_set_range *p,
                           int64_t first, struct gpt_err *err)
{
    uint8_t piece[8 * PIECE];
    int64_t shift = p->n_documents > 0
                        ? first - gpt_idx_i64(p->documents, 0)
                        : 0;

    for (int64_t done = 0; done < p->n_documents; done += PIECE) {
        int64_t some = gpt_min_i64(PIECE, p->n_documents - done);

        for (int64_t i = 0; i < some; i++) {
            int64_t end = gpt_idx_i64(p->documents, done + i + 1);

            gpt_put_u64(piece + 8 * i, (uint64_t)(end + shift));
        }
        GPT_TRY(gpt_out_write(out, piece, 8 * (size_t)some, err));
    }
    return GPT_OK;
}

/* The arrays in the order of the format: lengths, pointers, documents. The
 * document array has one entry more than documents: the 0 before them. */
static int write_idx(struct gpt_out *out, enum gpt_dtype dtype,
                     const struct gpt_set_range *parts, int64_t n,
                     struct gpt_err *err)
{
    uint8_t header[GPT_IDX_HEADER], zero[8] = {0};
    int64_t sequences = 0, documents = 0, at = 0, first = 0;

    for (int64_t i = 0; i < n; i++) {
        sequences += parts[i].n_sequences;
        documents += parts[i].n_documents;
    }
    if (!gpt_idx_header(header, dtype, sequences, documents))
        return gpt_fail(err, GPT_EUSAGE, "tokens cannot be of type %s",
                        gpt_dtype_name(dtype));
    GPT_TRY(gpt_out_write(out, header, sizeof(header), err));
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(write_lengths(out, &parts[i], err));
    for (int64_t i = 0; i < n; i++)
        GPT_TRY(write_pointers(out, &parts[i],
                               (int64_t)gpt_dtype_bytes(dtype), &at, err));
    GPT_TRY(gpt_out_write(out, zero, sizeof(zero), err));
    for (int64_t i = 0; i < n; i++) {
        GPT_TRY(write_documents(out, &parts[i], first, err));
        first += parts[i].n_sequences;
    }
    return GPT_OK;
}

/* ---- the tokens ---- */

int gpt_copy_bytes(struct gpt_out *out, const char *path, int64_t offset,
                   int64_t n, const struct gpt_write_set_options *o,
                   struct gpt_err *err)
{
    const int64_t step = INT64_C(16) << 20; /* bytes between signal checks */
    struct gpt_in *in;

    /* Steps of 16 MiB leave the copying to the kernel, and a signal waits for
     * one of them at most. */
    GPT_TRY(gpt_in_open(&in, path, err));
    int status = GPT_OK;
    while (n > 0) {
        int64_t some = gpt_min_i64(n, step);

        GPT_TRY_GOTO(status, gpt_out_copy(out, in, offset, some, err), out);
        offset += some;
        n -= some;
        if (o->report)
            o->report(o->user, gpt_out_tell(out));
        GPT_TRY_GOTO(status, gpt_signals_check(err), out);
    }
out:
    gpt_in_close(in);
    return status;
}

static int write_bin(struct gpt_out *out, const struct gpt_write_set_options *o,
                     const struct gpt_set_range *parts, int64_t n,
                     struct gpt_err *err)
{
    for (int64_t i = 0; i < n; i++)
        if (parts[i].bytes > 0)
            GPT_TRY(gpt_copy_bytes(out, parts[i].path, parts[i].offset,
                                   parts[i].bytes, o, err));
    return GPT_OK;
}

/* ---- both ---- */

enum { BESIDE = 2 };

/* An index alone is for the tokens that are there, as are the other files. */
static int add_beside(struct gpt_out *files[BESIDE],
                      const struct gpt_write_set_options *o,
                      struct gpt_err *err)
{
    static const char *const suffixes[BESIDE] = {".json", ".sources"};

    for (int i = 0; i < BESIDE; i++) {
        char *path;

        files[i] = o->beside ? o->beside[i] : NULL;
        if (files[i])
            o->beside[i] = NULL;
        if (files[i] || o->index_only || o->keeps_beside ||
            !(o->flags & GPT_OUT_FORCE))
            continue;
        GPT_TRY(gpt_join_name(&path, o->prefix, suffixes[i], err));
        int status = gpt_path_exists(path)
                         ? gpt_out_open_removal(&files[i], path, err)
                         : GPT_OK;
        gpt_free(path);
        GPT_TRY(status);
    }
    return GPT_OK;
}

/* The .idx is last, as every reader opens it first. */
int gpt_publish_set(const struct gpt_write_set_options *o, struct gpt_out *bin,
                    struct gpt_out *idx, struct gpt_err *err)
{
    struct gpt_out *files[BESIDE + 2] = {bin};
    int status = add_beside(files + 1, o, err);

    files[BESIDE + 1] = idx;
    if (status == GPT_OK)
        return gpt_out_commit_all(files, GPT_COUNT(files), err);
    for (size_t i = 0; i < GPT_COUNT(files); i++)
        gpt_out_abort(files[i]);
    return status;
}

int gpt_write_set(const struct gpt_write_set_options *o,
                  const struct gpt_set_range *parts, int64_t n,
                  struct gpt_err *err)
{
    struct gpt_out *bin = NULL, *idx = NULL;
    char *bin_path = NULL, *idx_path = NULL;
    int64_t bytes = 0;
    int status;

    for (int64_t i = 0; i < n; i++)
        bytes += parts[i].bytes;
    GPT_TRY_GOTO(status, gpt_join_name(&bin_path, o->prefix, ".bin", err), out);
    GPT_TRY_GOTO(status, gpt_join_name(&idx_path, o->prefix, ".idx", err), out);
    GPT_TRY_GOTO(status, gpt_out_open(&idx, idx_path, o->flags, 0, err), out);
    if (!o->index_only) {
        GPT_TRY_GOTO(status, gpt_out_open(&bin, bin_path, o->flags, bytes, err),
                     out);
        GPT_TRY_GOTO(status, write_bin(bin, o, parts, n, err), out);
    }
    GPT_TRY_GOTO(status, write_idx(idx, o->dtype, parts, n, err), out);
    status = gpt_publish_set(o, bin, idx, err);
    bin = idx = NULL;
out:
    gpt_out_abort(bin);
    gpt_out_abort(idx);
    gpt_free(bin_path);
    gpt_free(idx_path);
    return status;
}
