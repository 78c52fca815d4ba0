/* Documents of data sets become a new one: each range of documents is a range
 * of bytes in its .bin, and of entries in its arrays. Nothing is decoded. Start
 * at gpt_write_documents(). */
#include "cmd/dataset/write_documents.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "cmd/dataset/write_set.h"

#include <assert.h>

/* The index has the sums: no walk over the lengths is needed. */
static int64_t range_tokens(const struct gpt_document_range *r)
{
    return gpt_indexed_start(r->set, gpt_indexed_document(r->set, r->end)) -
           gpt_indexed_start(r->set, gpt_indexed_document(r->set, r->begin));
}

/* Fills a part, and the two names that it points to, which the caller frees. */
static int fill_part(struct gpt_set_range *p, char *names[2],
                     const struct gpt_document_range *r, struct gpt_err *err)
{
    const struct gpt_indexed *set = r->set;
    int64_t item = (int64_t)gpt_dtype_bytes(gpt_indexed_dtype(set));
    int64_t first = gpt_indexed_document(set, r->begin);
    int64_t end = gpt_indexed_document(set, r->end);

    assert(r->begin >= 0 && r->begin <= r->end &&
           r->end <= gpt_indexed_n_documents(set));
    GPT_TRY(gpt_join_name(&names[0], gpt_indexed_prefix(set), ".bin", err));
    GPT_TRY(gpt_join_name(&names[1], gpt_indexed_prefix(set), ".idx", err));
    p->path = names[0];
    p->idx_path = names[1];
    p->offset = gpt_indexed_start(set, first) * item;
    p->bytes = gpt_indexed_start(set, end) * item - p->offset;
    p->lengths = gpt_indexed_lengths(set) + 4 * first;
    p->n_sequences = end - first;
    p->documents = gpt_indexed_documents(set) + 8 * r->begin;
    p->n_documents = r->end - r->begin;
    return GPT_OK;
}

/* A set has one type: nothing is widened silently, as it would no longer be the
 * bytes of its source. */
static int check_type(const struct gpt_indexed *first,
                      const struct gpt_indexed *set, struct gpt_err *err)
{
    enum gpt_dtype want = gpt_indexed_dtype(first);
    enum gpt_dtype got = gpt_indexed_dtype(set);

    if (got == want)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: tokens are of type %s, but those of %s are of type %s",
                    gpt_indexed_prefix(set), gpt_dtype_name(got),
                    gpt_indexed_prefix(first), gpt_dtype_name(want));
}

static int fill_parts(struct gpt_set_range *parts, char **names,
                      const struct gpt_document_range *ranges, int64_t n,
                      struct gpt_err *err)
{
    for (int64_t i = 0; i < n; i++) {
        GPT_TRY(check_type(ranges[0].set, ranges[i].set, err));
        GPT_TRY(fill_part(&parts[i], names + 2 * i, &ranges[i], err));
    }
    return GPT_OK;
}

/* Names of files are owned here, as a part only points to them: a merge may
 * have thousands. */
static int write_ranges(const struct gpt_write_set_options *options,
                        const struct gpt_document_range *ranges, int64_t n,
                        struct gpt_err *err)
{
    struct gpt_write_set_options o = *options;
    struct gpt_set_range *parts = NULL;
    char **names = NULL; /* two a part */
    int status;

    GPT_TRY_GOTO(status, gpt_new(&parts, (size_t)n, sizeof(*parts), "parts",
                                 err), out);
    GPT_TRY_GOTO(status, gpt_new(&names, 2 * (size_t)n, sizeof(*names), "names",
                                 err), out);
    GPT_TRY_GOTO(status, fill_parts(parts, names, ranges, n, err), out);
    o.dtype = gpt_indexed_dtype(ranges[0].set);
    status = gpt_write_set(&o, parts, n, err);
out:
    for (int64_t i = 0; names && i < 2 * n; i++)
        gpt_free(names[i]);
    gpt_free(names);
    gpt_free(parts);
    return status;
}

int gpt_write_documents(const struct gpt_dataset_options *o, const char *what,
                        const struct gpt_document_range *ranges, int64_t n,
                        struct gpt_out **beside, struct gpt_err *err)
{
    int64_t documents = 0, bytes = 0;
    char size[32];

    if (n < 1)
        return gpt_fail(err, GPT_EUSAGE, "no data set was named");
    for (int64_t i = 0; i < n; i++) {
        enum gpt_dtype dtype = gpt_indexed_dtype(ranges[i].set);

        documents += ranges[i].end - ranges[i].begin;
        bytes += (int64_t)gpt_dtype_bytes(dtype) * range_tokens(&ranges[i]);
    }
    /* Progress counts the bytes of the .bin; an index is small beside it. */
    struct gpt_progress *p = gpt_dataset_open_progress(o, what, bytes);
    struct gpt_write_set_options wo = gpt_dataset_writing(o, p);
    wo.beside = beside;
    int status = write_ranges(&wo, ranges, n, err);
    gpt_progress_close(p);
    if (status == GPT_OK)
        gpt_info("%s: %lld document%s, %s of tokens", o->output_prefix,
                 (long long)documents, gpt_plural(documents),
                 gpt_text_bytes(size, (double)bytes));
    return status;
}
