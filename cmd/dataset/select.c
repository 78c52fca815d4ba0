/* Documents of data sets as parts of a new one; see select.h. */
#include "cmd/dataset/select.h"

#include "base/memory.h"

/* A part and the two names that it points to. */
static int fill_part(struct gpt_set_range *p, char *names[2],
                     const struct gpt_selection *s, struct gpt_err *err)
{
    const struct gpt_indexed *set = s->set;
    int64_t item = (int64_t)gpt_dtype_bytes(gpt_indexed_dtype(set));
    int64_t first = gpt_indexed_document(set, s->begin);
    int64_t end = gpt_indexed_document(set, s->end);

    GPT_TRY(gpt_prefixed(&names[0], gpt_indexed_prefix(set), ".bin", err));
    GPT_TRY(gpt_prefixed(&names[1], gpt_indexed_prefix(set), ".idx", err));
    p->path = names[0];
    p->idx_path = names[1];
    p->offset = gpt_indexed_start(set, first) * item;
    p->bytes = gpt_indexed_start(set, end) * item - p->offset;
    p->lengths = gpt_indexed_lengths(set) + 4 * first;
    p->n_sequences = end - first;
    p->documents = gpt_indexed_documents(set) + 8 * s->begin;
    p->n_documents = s->end - s->begin;
    return GPT_OK;
}

static int fill_parts(struct gpt_set_range *parts, char **names,
                      const struct gpt_selection *items, int64_t n,
                      struct gpt_err *err)
{
    enum gpt_dtype dtype = gpt_indexed_dtype(items[0].set);

    for (int64_t i = 0; i < n; i++) {
        enum gpt_dtype other = gpt_indexed_dtype(items[i].set);

        if (other != dtype)
            return gpt_fail(err, GPT_EDATA,
                            "%s: tokens are of type %s, those of %s of type %s",
                            gpt_indexed_prefix(items[i].set),
                            gpt_dtype_name(other),
                            gpt_indexed_prefix(items[0].set),
                            gpt_dtype_name(dtype));
        GPT_TRY(fill_part(&parts[i], names + 2 * i, &items[i], err));
    }
    return GPT_OK;
}

int gpt_select(const struct gpt_selection *items, int64_t n,
               const struct gpt_assemble_options *options, struct gpt_err *err)
{
    struct gpt_assemble_options o = *options;
    struct gpt_set_range *parts = NULL;
    char **names = NULL; /* two a part */
    int status;

    if (n < 1)
        return gpt_fail(err, GPT_EUSAGE, "there is no data set to take");
    GPT_TRY_GOTO(status, gpt_new(&parts, (size_t)n, sizeof(*parts), "parts",
                                 err), out);
    GPT_TRY_GOTO(status, gpt_new(&names, 2 * (size_t)n, sizeof(*names), "names",
                                 err), out);
    GPT_TRY_GOTO(status, fill_parts(parts, names, items, n, err), out);
    o.dtype = gpt_indexed_dtype(items[0].set);
    status = gpt_assemble(&o, parts, n, err);
out:
    for (int64_t i = 0; names && i < 2 * n; i++)
        gpt_free(names[i]);
    gpt_free(names);
    gpt_free(parts);
    return status;
}
