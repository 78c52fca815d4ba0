/* Writing safetensors: the header, which says where every tensor will be, then
 * the tensors in the order of the file (fill.h). Start at
 * gpt_safetensors_create(); lay_out() decides the order and the header. */
#include "checkpoint/safetensors/safetensors.h"

#include "base/hash.h"
#include "base/num.h"
#include "checkpoint/fill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DATA_ALIGN = 4096 };

struct gpt_safetensors_writer {
    struct gpt_out *out;
    char path[512]; /* for messages */
    int64_t *order; /* of the caller's array, in the file */
    int64_t *bytes; /* of each tensor of that array */
    int64_t n, size, written;
    uint32_t crc;
};

/* A tensor with its place in the caller's array: the caller's array stays as it
 * is, and order[] maps between the two. */
struct item {
    const struct gpt_safetensor *t;
    int64_t index;
};

/* The order of the reference implementation: element types by descending
 * alignment, then names. Every tensor is then aligned to its element without
 * padding, and files with the same tensors are the same bytes. */
static int compare_official(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->t->dtype != y->t->dtype)
        return x->t->dtype < y->t->dtype ? 1 : -1;
    return strcmp(x->t->name, y->t->name);
}

/* Escapes what JSON requires and nothing else. Names are UTF-8 already, or the
 * check of the finished header fails. */
static int add_string(struct gpt_buf *b, const char *s)
{
    GPT_TRY(gpt_buf_add(b, "\"", 1));
    for (; *s; s++) {
        char text[8] = {*s};

        if (*s == '"' || *s == '\\')
            snprintf(text, sizeof(text), "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            snprintf(text, sizeof(text), "\\u%04x", (unsigned)*s);
        GPT_TRY(gpt_buf_add(b, text, strlen(text)));
    }
    return gpt_buf_add(b, "\"", 1);
}

/* "format": "pt" goes first, as libraries of PyTorch look for it. */
static int add_notes(struct gpt_buf *b,
                     const struct gpt_safetensors_note *notes, int64_t n)
{
    GPT_TRY(gpt_buf_printf(b, "\"__metadata__\":{\"format\":\"pt\""));
    for (int64_t i = 0; i < n; i++) {
        GPT_TRY(gpt_buf_add(b, ",", 1));
        GPT_TRY(add_string(b, notes[i].key));
        GPT_TRY(gpt_buf_add(b, ":", 1));
        GPT_TRY(add_string(b, notes[i].value));
    }
    return gpt_buf_add(b, "}", 1);
}

/* Offsets are counted from the first byte of data, in the order in which
 * tensors are written. */
static int add_tensor(struct gpt_buf *b, const struct gpt_safetensor *t,
                      int64_t *at)
{
    int64_t bytes, end;

    if (!gpt_safetensor_bytes(t, &bytes) || !gpt_add(*at, bytes, &end))
        return GPT_EFAIL;
    GPT_TRY(gpt_buf_add(b, ",", 1));
    GPT_TRY(add_string(b, t->name));
    GPT_TRY(gpt_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[",
                           gpt_dtype_name(t->dtype)));
    for (int d = 0; d < t->ndim; d++)
        GPT_TRY(gpt_buf_printf(b, "%s%lld", d ? "," : "",
                               (long long)t->shape[d]));
    GPT_TRY(gpt_buf_printf(b, "],\"data_offsets\":[%lld,%lld]}",
                           (long long)*at, (long long)end));
    *at = end;
    return GPT_OK;
}

/* Eight bytes of length, which is known last, the header, and spaces up to a
 * page. Readers skip the spaces as white space after the JSON text. */
static int fill_header(struct gpt_buf *b, const struct item *items,
                       const struct gpt_safetensors *list, int64_t *data_bytes)
{
    int64_t at = 0;

    GPT_TRY(gpt_buf_add(b, "\0\0\0\0\0\0\0\0{", 9));
    GPT_TRY(add_notes(b, list->notes, list->n_notes));
    for (int64_t i = 0; i < list->n; i++)
        GPT_TRY(add_tensor(b, items[i].t, &at));
    GPT_TRY(gpt_buf_add(b, "}", 1));
    while (b->len % DATA_ALIGN)
        GPT_TRY(gpt_buf_add(b, " ", 1));
    gpt_put_u64(b->data, b->len - 8);
    *data_bytes = at;
    return GPT_OK;
}

/* Makes order and header. The header is then parsed as a reader would parse it,
 * so that a doubled name or a size beyond the format's limits never reaches the
 * disk. */
static int lay_out(const struct gpt_safetensors *list, struct gpt_buf *header,
                   int64_t **order, int64_t *size, struct gpt_err *err)
{
    const int64_t n = list->n;
    struct gpt_safetensors check;
    struct item *items;
    int64_t bytes = 0;

    *order = NULL;
    GPT_TRY(gpt_new(&items, (size_t)n, sizeof(*items), "tensor list", err));
    for (int64_t i = 0; i < n; i++)
        items[i] = (struct item){&list->tensors[i], i};
    if (n)
        qsort(items, (size_t)n, sizeof(*items), compare_official);
    int status = fill_header(header, items, list, &bytes);
    if (status != GPT_OK) {
        gpt_fail(err, status, "cannot lay out a safetensors header");
        goto out;
    }
    GPT_TRY_GOTO(status,
                 gpt_new(order, (size_t)n, sizeof(**order), "order", err), out);
    for (int64_t i = 0; i < n; i++)
        (*order)[i] = items[i].index;
out:
    gpt_free(items);
    GPT_TRY(status);
    *size = (int64_t)header->len + bytes;
    GPT_TRY(gpt_safetensors_parse(&check, header->data, header->len, *size,
                                  "header to be written", err));
    gpt_safetensors_close(&check);
    return GPT_OK;
}

/* Sizes that lay_out() has found to be countable. */
static int keep_sizes(struct gpt_safetensors_writer *w,
                      const struct gpt_safetensors *list, struct gpt_err *err)
{
    w->n = list->n;
    GPT_TRY(gpt_new(&w->bytes, (size_t)w->n, sizeof(*w->bytes), "sizes", err));
    for (int64_t i = 0; i < w->n; i++)
        if (!gpt_safetensor_bytes(&list->tensors[i], &w->bytes[i]))
            return gpt_fail(err, GPT_EFAIL, "%s: its size overflows", w->path);
    return GPT_OK;
}

/* The checksum is taken of what is written: the file is not read again for the
 * manifest. */
static int write_header(struct gpt_safetensors_writer *w,
                        const struct gpt_buf *header, struct gpt_err *err)
{
    w->crc = gpt_crc32c(0, header->data, header->len);
    w->written = (int64_t)header->len;
    return gpt_out_pwrite(w->out, header->data, header->len, 0, err);
}

int gpt_safetensors_create(struct gpt_safetensors_writer **out,
                           const char *path, unsigned flags,
                           const struct gpt_safetensors *list,
                           struct gpt_err *err)
{
    struct gpt_safetensors_writer *w;
    struct gpt_buf header = {0};
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&w, 1, sizeof(*w), "safetensors writer", err));
    snprintf(w->path, sizeof(w->path), "%s", path);
    GPT_TRY_GOTO(status,
                 lay_out(list, &header, &w->order, &w->size, err), out);
    GPT_TRY_GOTO(status, keep_sizes(w, list, err), out);
    GPT_TRY_GOTO(status, gpt_out_open(&w->out, path, flags, w->size, err),
                 out);
    status = write_header(w, &header, err);
out:
    gpt_buf_free(&header);
    if (status == GPT_OK)
        *out = w;
    else
        gpt_safetensors_abort(w);
    return status;
}

/* Parts in the order of the file, so that it grows from its beginning to its
 * end; their checksums become that of the file. */
int gpt_safetensors_fill(struct gpt_safetensors_writer *w, struct gpt_fill *p,
                         const char *name, struct gpt_part *parts,
                         struct gpt_err *err)
{
    struct gpt_part *sorted;
    int64_t at = w->written;

    GPT_TRY(gpt_new(&sorted, (size_t)w->n, sizeof(*sorted), "parts", err));
    for (int64_t k = 0; k < w->n; k++) {
        const int64_t i = w->order[k];

        sorted[k] = parts[i];
        sorted[k].offset = at;
        sorted[k].bytes = w->bytes[i];
        at += w->bytes[i];
    }
    int status = gpt_fill(p, w->out, name, sorted, w->n, false, err);
    for (int64_t k = 0; status == GPT_OK && k < w->n; k++) {
        w->crc = gpt_crc_join(GPT_CRC32C_POLYNOMIAL, w->crc, sorted[k].crc,
                              sorted[k].bytes);
        w->written += sorted[k].bytes;
    }
    gpt_free(sorted);
    return status;
}

/* A file with less data than its header promises never gets its name. */
int gpt_safetensors_commit(struct gpt_safetensors_writer *w, int64_t *size,
                           uint32_t *crc, struct gpt_err *err)
{
    if (w->written != w->size) {
        int status = gpt_fail(err, GPT_EFAIL,
                              "%s: %lld bytes written, its header says %lld",
                              w->path, (long long)w->written,
                              (long long)w->size);

        gpt_safetensors_abort(w);
        return status;
    }
    if (size)
        *size = w->size;
    if (crc)
        *crc = w->crc;
    struct gpt_out *out = w->out;
    w->out = NULL;
    gpt_safetensors_abort(w);
    return gpt_out_commit(out, err);
}

void gpt_safetensors_abort(struct gpt_safetensors_writer *w)
{
    if (!w)
        return;
    gpt_out_abort(w->out);
    gpt_free(w->order);
    gpt_free(w->bytes);
    gpt_free(w);
}

/* The header's length depends on the offsets in it, so it is made and measured
 * rather than estimated. */
int gpt_safetensors_size(const struct gpt_safetensors *list, int64_t *size,
                         struct gpt_err *err)
{
    struct gpt_buf header = {0};
    int64_t *order;
    int status = lay_out(list, &header, &order, size, err);

    gpt_free(order);
    gpt_buf_free(&header);
    return status;
}
