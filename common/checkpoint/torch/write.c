/* Writing the archive of torch.save(): entries are stored, and the data of each
 * begins at a multiple of 64 bytes, so that it can be mapped. Start at
 * gpt_torch_write().
 *
 * The places of all entries follow from their sizes, so the file is laid out
 * before a byte is written. Checksums are known after the data: they are in a
 * descriptor behind it, as in torch's own files. */
#include "checkpoint/torch/write.h"

#include "base/hash.h"
#include "base/num.h"
#include "checkpoint/fill.h"
#include "checkpoint/torch/zip.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define TOP "archive"

enum {
    ALIGN = 64,
    NAME = 64,
    VERSION_NEEDED = 45,
    HEAD_BYTES = 30 + NAME + 20 + 4 + ALIGN,
    ROW_BYTES = 46 + NAME + 4 + 24,
    OTHERS = 3, /* entries that are no storages */
};

/* Sizes and offsets from here on have 64-bit fields. */
#define WIDE ((int64_t)UINT32_MAX)

struct entry {
    char name[NAME];
    int64_t header, begin, bytes; /* where it is, and its data */
    const void *data;             /* NULL: a storage */
    uint32_t crc;
};

struct archive {
    struct gpt_out *out;
    struct entry *entries; /* in the order of the file */
    int64_t n;
    int64_t end; /* of the last, where the list begins */
};

/* ---- places ---- */

/* A header, with the filler that aligns what follows. The field "FB" is how
 * torch fills. Checksum and sizes are 0: they are behind the data. Returns its
 * bytes. */
static size_t fill_head(uint8_t head[HEAD_BYTES], const struct entry *e)
{
    const size_t n = strlen(e->name);
    size_t at = 30 + n;

    /* The fields are those of APPNOTE.TXT, 4.3.7; dates and rights stay 0, so
     * that the same checkpoint gives the same bytes. */
    memset(head, 0, HEAD_BYTES);
    gpt_put_u32(head, GPT_ZIP_HEADER);
    gpt_put_u16(head + 4, VERSION_NEEDED);
    gpt_put_u16(head + 6, 8); /* a descriptor follows the data */
    if (e->bytes >= WIDE) {
        gpt_put_u32(head + 18, UINT32_MAX);
        gpt_put_u32(head + 22, UINT32_MAX);
        gpt_put_u16(head + at, 1);
        gpt_put_u16(head + at + 2, 16);
        at += 20;
    }
    /* the field has four bytes of its own; then the data begins */
    const size_t pad =
        (size_t)(ALIGN - (e->header + (int64_t)at + 4) % ALIGN) % ALIGN;
    memcpy(head + 30, e->name, n);
    memcpy(head + at, "FB", 2);
    gpt_put_u16(head + at + 2, (uint16_t)pad);
    memset(head + at + 4, 'Z', pad);
    at += 4 + pad;
    gpt_put_u16(head + 26, (uint16_t)n);
    gpt_put_u16(head + 28, (uint16_t)(at - 30 - n));
    return at;
}

/* The descriptor is a mark, the checksum, and the size twice: of what was
 * compressed and of what it was before, which are the same here. */
static int64_t tail_bytes(const struct entry *e)
{
    return e->bytes >= WIDE ? 24 : 16;
}

/* Appends an entry behind the last one. */
static void place(struct archive *a, const char *name, const void *data,
                  int64_t bytes)
{
    struct entry *e = &a->entries[a->n++];
    uint8_t head[HEAD_BYTES];

    *e = (struct entry){.header = a->end, .data = data, .bytes = bytes};
    snprintf(e->name, sizeof(e->name), TOP "/%s", name);
    if (data)
        e->crc = gpt_crc32(0, data, (size_t)bytes);
    e->begin = e->header + (int64_t)fill_head(head, e);
    a->end = e->begin + bytes + tail_bytes(e);
}

/* "version" is what torch looks for to tell its archives from others; it is
 * last in files of torch, too. Names of storages are their numbers, the keys in
 * the pickle. */
static int lay_out(struct archive *a, const struct gpt_pickle_out *o,
                   const int64_t *bytes, int64_t n, struct gpt_err *err)
{
    char name[NAME];

    GPT_TRY(gpt_new(&a->entries, (size_t)(n + OTHERS), sizeof(*a->entries),
                    "entries of an archive", err));
    place(a, "data.pkl", o->b.data, (int64_t)o->b.len);
    place(a, "byteorder", "little", 6);
    for (int64_t i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "data/%lld", (long long)i);
        place(a, name, NULL, bytes[i]);
    }
    place(a, "version", "3\n", 2);
    return GPT_OK;
}

/* Storages come after two other entries, and before the last one. */
static struct entry *storage(const struct archive *a, int64_t i)
{
    return &a->entries[2 + i];
}

/* ---- the list at the end ---- */

/* A row of the list. Fields that do not fit are all ones, and their values in
 * the extra field, in the order of the format. */
static int list_entry(struct gpt_buf *b, const struct entry *e)
{
    uint8_t row[ROW_BYTES] = {0};
    const size_t n = strlen(e->name);
    const bool wide = e->bytes >= WIDE, far = e->header >= WIDE;
    size_t at = 46 + n + 4;

    /* 4.3.12, the same without a date; the header's filler is not repeated
     * here, as readers take it from the header */
    gpt_put_u32(row, GPT_ZIP_ENTRY);
    gpt_put_u16(row + 6, VERSION_NEEDED);
    gpt_put_u16(row + 8, 8);
    gpt_put_u32(row + 16, e->crc);
    gpt_put_u32(row + 20, wide ? UINT32_MAX : (uint32_t)e->bytes);
    gpt_put_u32(row + 24, wide ? UINT32_MAX : (uint32_t)e->bytes);
    gpt_put_u16(row + 28, (uint16_t)n);
    gpt_put_u32(row + 42, far ? UINT32_MAX : (uint32_t)e->header);
    memcpy(row + 46, e->name, n);
    if (wide) {
        gpt_put_u64(row + at, (uint64_t)e->bytes);
        gpt_put_u64(row + at + 8, (uint64_t)e->bytes);
        at += 16;
    }
    if (far) {
        gpt_put_u64(row + at, (uint64_t)e->header);
        at += 8;
    }
    if (wide || far) {
        gpt_put_u16(row + 46 + n, 1);
        gpt_put_u16(row + 46 + n + 2, (uint16_t)(at - 46 - n - 4));
    } else {
        at -= 4;
    }
    gpt_put_u16(row + 30, (uint16_t)(at - 46 - n));
    return gpt_buf_add(b, row, at);
}

/* The list, the 64-bit end record that torch always writes, its locator, and
 * the end record. Its length does not depend on checksums. */
static int compose_list(struct gpt_buf *b, const struct archive *a)
{
    uint8_t tail[56 + 20 + 22] = {0};

    b->len = 0;
    for (int64_t i = 0; i < a->n; i++)
        GPT_TRY(list_entry(b, &a->entries[i]));
    const int64_t bytes = (int64_t)b->len, end = a->end + bytes;
    /* 4.3.14 to 4.3.16; offsets count from the start of the file, where the
     * archive begins */
    gpt_put_u32(tail, GPT_ZIP_END64);
    gpt_put_u64(tail + 4, 44);
    gpt_put_u16(tail + 12, VERSION_NEEDED);
    gpt_put_u16(tail + 14, VERSION_NEEDED);
    gpt_put_u64(tail + 24, (uint64_t)a->n);
    gpt_put_u64(tail + 32, (uint64_t)a->n);
    gpt_put_u64(tail + 40, (uint64_t)bytes);
    gpt_put_u64(tail + 48, (uint64_t)a->end);
    gpt_put_u32(tail + 56, GPT_ZIP_LOCATOR);
    gpt_put_u64(tail + 64, (uint64_t)end);
    gpt_put_u32(tail + 72, 1);
    /* fields without room are all ones; readers then take the 64-bit record */
    const uint16_t n = a->n < UINT16_MAX ? (uint16_t)a->n : UINT16_MAX;
    gpt_put_u32(tail + 76, GPT_ZIP_END);
    gpt_put_u16(tail + 84, n);
    gpt_put_u16(tail + 86, n);
    gpt_put_u32(tail + 88, (uint32_t)gpt_min_i64(bytes, WIDE));
    gpt_put_u32(tail + 92, (uint32_t)gpt_min_i64(a->end, WIDE));
    return gpt_buf_add(b, tail, sizeof(tail));
}

/* ---- writing ---- */

/* Parts get their places in the file; storages have no bytes between them but
 * headers and descriptors. */
static void place_parts(const struct archive *a, struct gpt_part *parts,
                        int64_t n)
{
    int64_t k = 0, at = 0;

    for (int64_t i = 0; i < n; i++) {
        while (parts[i].bytes > 0 && at == storage(a, k)->bytes) {
            k++;
            at = 0;
        }
        parts[i].offset = storage(a, k)->begin + at;
        at += parts[i].bytes;
        assert(at <= storage(a, k)->bytes);
    }
}

/* The checksum of a storage from those of its parts. */
static void sum_storages(const struct archive *a, const struct gpt_part *parts,
                         int64_t n)
{
    for (int64_t i = 0, k = 0; i < n; i++) {
        if (parts[i].bytes == 0)
            continue;
        while (parts[i].offset >= storage(a, k)->begin + storage(a, k)->bytes)
            k++;
        struct entry *e = storage(a, k);
        e->crc = gpt_crc_join(GPT_CRC32_POLYNOMIAL, e->crc, parts[i].zip_crc,
                              parts[i].bytes);
    }
}

/* The descriptor's sizes have 64 bits where the header says so. */
static int put_entry(const struct archive *a, const struct entry *e,
                     struct gpt_err *err)
{
    uint8_t head[HEAD_BYTES], tail[24];
    const size_t n = fill_head(head, e);

    GPT_TRY(gpt_out_pwrite(a->out, head, n, e->header, err));
    if (e->data)
        GPT_TRY(gpt_out_pwrite(a->out, e->data, (size_t)e->bytes, e->begin,
                               err));
    gpt_put_u32(tail, 0x08074b50);
    gpt_put_u32(tail + 4, e->crc);
    if (e->bytes >= WIDE) {
        gpt_put_u64(tail + 8, (uint64_t)e->bytes);
        gpt_put_u64(tail + 16, (uint64_t)e->bytes);
    } else {
        gpt_put_u32(tail + 8, (uint32_t)e->bytes);
        gpt_put_u32(tail + 12, (uint32_t)e->bytes);
    }
    return gpt_out_pwrite(a->out, tail, (size_t)tail_bytes(e),
                          e->begin + e->bytes, err);
}

/* What is between the storages, after them: their checksums are known now. */
static int put_all(const struct archive *a, struct gpt_buf *list,
                   struct gpt_err *err)
{
    for (int64_t i = 0; i < a->n; i++)
        GPT_TRY(put_entry(a, &a->entries[i], err));
    /* again, with checksums */
    if (compose_list(list, a) != GPT_OK)
        return gpt_no_memory(err, "entries of an archive");
    return gpt_out_pwrite(a->out, list->data, list->len, a->end, err);
}

/* The list is composed twice. Its first length gives the size of the file,
 * which is reserved, so that a full disk is met before the work. */
int gpt_torch_write(struct gpt_fill *fill, const char *path, const char *name,
                    unsigned flags, const struct gpt_torch_contents *c,
                    struct gpt_err *err)
{
    struct archive a = {.out = NULL};
    struct gpt_buf list = {0};
    int status;

    GPT_TRY_GOTO(status, lay_out(&a, c->pickle, c->bytes, c->n, err), out);
    if (compose_list(&list, &a) != GPT_OK) {
        status = gpt_no_memory(err, "entries of an archive");
        goto out;
    }
    GPT_TRY_GOTO(status,
                 gpt_out_open(&a.out, path, flags, a.end + (int64_t)list.len,
                              err),
                 out);
    place_parts(&a, c->parts, c->n_parts);
    GPT_TRY_GOTO(status,
                 gpt_fill(fill, a.out, name, c->parts, c->n_parts, true, err),
                 out);
    sum_storages(&a, c->parts, c->n_parts);
    GPT_TRY_GOTO(status, put_all(&a, &list, err), out);
    status = gpt_out_commit(a.out, err);
    a.out = NULL;
out:
    gpt_out_abort(a.out);
    gpt_free(a.entries);
    gpt_buf_free(&list);
    return status;
}
