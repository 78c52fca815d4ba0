/* Reading safetensors. gpt_safetensors_open() reads the header, ..._parse() has
 * it scanned (scan.c), and check_tiling() compares the tensors with the
 * file. */
#include "checkpoint/safetensors/internal.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

/* Shapes are a file's claim: each product is checked, and a negative dimension,
 * which a caller may have computed, is refused with them. */
bool gpt_safetensor_bytes(const struct gpt_safetensor *t, int64_t *bytes)
{
    int64_t n = (int64_t)gpt_dtype_bytes(t->dtype);

    for (int d = 0; d < t->ndim; d++)
        if (t->shape[d] < 0 || !gpt_mul(n, t->shape[d], &n))
            return false;
    *bytes = n;
    return true;
}

/* Empty tensors have the offset of the one after them; the end decides. */
static int by_offset(const void *a, const void *b)
{
    const struct gpt_safetensor *x = a, *y = b;
    int64_t dx = x->begin != y->begin ? x->begin : x->end;
    int64_t dy = x->begin != y->begin ? y->begin : y->end;

    return (dx > dy) - (dx < dy);
}

/* The list is one of pointers, so both sides are pointers to pointers. */
static int by_name(const void *a, const void *b)
{
    const struct gpt_safetensor *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* Notes are few, but a manifest's files have one for each slice. */
static int by_key(const void *a, const void *b)
{
    const struct gpt_safetensors_note *x = a, *y = b;

    return strcmp(x->key, y->key);
}

/* Checks that the tensors, sorted by offset, fill the data from first to last
 * byte, and makes offsets those of the file. This one rule excludes truncated
 * files, holes, overlaps and trailing bytes, and with them two headers that
 * mean different things by the same data. Offsets in the header count from the
 * first byte of data; from here on they count from that of the file, as reads
 * do. */
static int check_tiling(struct gpt_safetensors *st, int64_t data_bytes,
                        const char *what, struct gpt_err *err)
{
    int64_t at = 0, bytes;

    if (st->n)
        qsort(st->tensors, (size_t)st->n, sizeof(*st->tensors), by_offset);
    for (int64_t i = 0; i < st->n; i++) {
        struct gpt_safetensor *t = &st->tensors[i];

        if (t->begin != at || t->end < t->begin)
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensor '%.99s': data_offsets [%lld, %lld] "
                            "do not follow on %lld: hole or overlap",
                            what, t->name, (long long)t->begin,
                            (long long)t->end, (long long)at);
        if (!gpt_safetensor_bytes(t, &bytes))
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensor '%.99s': its shape overflows", what,
                            t->name);
        if (bytes != t->end - t->begin)
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensor '%.99s': shape needs %lld bytes, "
                            "data_offsets hold %lld",
                            what, t->name, (long long)bytes,
                            (long long)(t->end - t->begin));
        if (t->end > data_bytes) {
            gpt_fail(err, GPT_EDATA,
                     "%s: truncated: tensor '%.99s' ends at byte %lld of "
                     "data, the file has %lld",
                     what, t->name, (long long)t->end, (long long)data_bytes);
            return gpt_hint(err, "copy or download the file again");
        }
        at = t->end;
        t->begin += st->data_start;
        t->end += st->data_start;
    }
    if (at != data_bytes)
        return gpt_fail(err, GPT_EDATA,
                        "%s: %lld bytes after the last tensor, at offset "
                        "%lld",
                        what, (long long)(data_bytes - at),
                        (long long)(st->data_start + at));
    return GPT_OK;
}

/* Sorts for gpt_safetensors_find(), after which equal names are neighbours. A
 * name that comes twice would make the tensor that is found depend on the order
 * of the sort. */
int gpt_safetensors_index(struct gpt_safetensors *st, const char *what,
                          struct gpt_err *err)
{
    GPT_TRY(gpt_new(&st->by_name, (size_t)st->n, sizeof(*st->by_name),
                    "tensor names", err));
    for (int64_t i = 0; i < st->n; i++)
        st->by_name[i] = &st->tensors[i];
    if (st->n)
        qsort(st->by_name, (size_t)st->n, sizeof(*st->by_name), by_name);
    for (int64_t i = 1; i < st->n; i++)
        if (by_name(&st->by_name[i - 1], &st->by_name[i]) == 0)
            return gpt_fail(err, GPT_EDATA, "%s: tensor '%.99s' twice", what,
                            st->by_name[i]->name);
    if (st->n_notes)
        qsort(st->notes, (size_t)st->n_notes, sizeof(*st->notes), by_key);
    for (int64_t i = 1; i < st->n_notes; i++)
        if (by_key(&st->notes[i - 1], &st->notes[i]) == 0)
            return gpt_fail(err, GPT_EDATA,
                            "%s: __metadata__ has '%.99s' twice", what,
                            st->notes[i].key);
    return GPT_OK;
}

/* Compares the header's length with the format's cap and with the file before a
 * byte of memory is allocated for it. */
static int check_length(const void *data, int64_t file_size, const char *what,
                        int64_t *header, struct gpt_err *err)
{
    if (file_size < 8)
        return gpt_fail(err, GPT_EDATA,
                        "%s: %lld bytes, a safetensors file has at least 8",
                        what, (long long)file_size);
    uint64_t n = gpt_get_u64(data);
    if (n > GPT_SAFETENSORS_HEADER_MAX)
        return gpt_fail(err, GPT_EDATA,
                        "%s: byte 0: header length %llu, limit %d", what,
                        (unsigned long long)n, GPT_SAFETENSORS_HEADER_MAX);
    if ((int64_t)n > file_size - 8)
        return gpt_fail(err, GPT_EDATA,
                        "%s: byte 0: header length %llu, the file has %lld "
                        "bytes",
                        what, (unsigned long long)n, (long long)file_size);
    *header = (int64_t)n;
    return GPT_OK;
}

/* Works on a block of memory, so that the tests for hostile headers need no
 * files. `len` may be shorter than the file but not than its header. */
int gpt_safetensors_parse(struct gpt_safetensors *st, const void *data,
                          size_t len, int64_t file_size, const char *what,
                          struct gpt_err *err)
{
    int64_t header = 0;
    int status;

    *st = (struct gpt_safetensors){0};
    if (file_size >= 8 && len < 8)
        return gpt_fail(err, GPT_EDATA, "%s: %zu bytes given", what, len);
    GPT_TRY(check_length(data, file_size, what, &header, err));
    if ((int64_t)len < 8 + header)
        return gpt_fail(err, GPT_EDATA, "%s: %zu bytes given", what, len);
    st->data_start = 8 + header;
    GPT_TRY_GOTO(status,
                 gpt_safetensors_scan(st, (const char *)data + 8,
                                      (size_t)header, what, err),
                 fail);
    GPT_TRY_GOTO(status,
                 check_tiling(st, file_size - st->data_start, what, err), fail);
    GPT_TRY_GOTO(status, gpt_safetensors_index(st, what, err), fail);
    return GPT_OK;
fail:
    gpt_safetensors_close(st);
    return status;
}

/* Only the header is read; a file of a terabyte opens as fast as its header
 * parses. The length is compared with the file before memory is allocated for
 * it. gpt_safetensors_parse() compares it again, since it trusts no caller. */
int gpt_safetensors_open(struct gpt_safetensors *st, const char *path,
                         struct gpt_err *err)
{
    struct gpt_in *in = NULL;
    uint8_t *data = NULL, prefix[8] = {0};
    int64_t header;
    int status;

    *st = (struct gpt_safetensors){0};
    GPT_TRY(gpt_in_open(&in, path, err));
    int64_t size = gpt_in_size(in);
    if (size >= 8)
        GPT_TRY_GOTO(status, gpt_in_read(in, prefix, 0, 8, err), out);
    GPT_TRY_GOTO(status, check_length(prefix, size, path, &header, err), out);
    GPT_TRY_GOTO(status, gpt_new(&data, (size_t)header + 8, 1, path, err),
                 out);
    GPT_TRY_GOTO(status, gpt_in_read(in, data, 0, (size_t)header + 8, err),
                 out);
    status = gpt_safetensors_parse(st, data, (size_t)header + 8, size, path,
                                   err);
out:
    /* names and notes are in the arena, so the bytes of the header can go */
    gpt_free(data);
    if (status == GPT_OK)
        st->in = in;
    else
        gpt_in_close(in);
    return status == GPT_EDATA ? gpt_in_explain(path, err) : status;
}

/* Also for a struct that a failed open has left, which is zero. */
void gpt_safetensors_close(struct gpt_safetensors *st)
{
    gpt_in_close(st->in);
    gpt_free(st->tensors);
    gpt_free(st->notes);
    gpt_free(st->by_name);
    gpt_arena_free(&st->arena);
    *st = (struct gpt_safetensors){0};
}

const struct gpt_safetensor *
gpt_safetensors_find(const struct gpt_safetensors *st, const char *name)
{
    /* by_name() reads nothing of a tensor but its name */
    struct gpt_safetensor key = {.name = name}, *k = &key;
    struct gpt_safetensor **found =
        st->n ? bsearch(&k, st->by_name, (size_t)st->n, sizeof(*st->by_name),
                        by_name)
              : NULL;

    return found ? *found : NULL;
}

/* By bisection; gpt_safetensors_index() has sorted the notes. */
const char *gpt_safetensors_note(const struct gpt_safetensors *st,
                                 const char *key)
{
    struct gpt_safetensors_note k = {key, NULL}, *found;

    found = st->n_notes ? bsearch(&k, st->notes, (size_t)st->n_notes,
                                  sizeof(*st->notes), by_key)
                        : NULL;
    return found ? found->value : NULL;
}
