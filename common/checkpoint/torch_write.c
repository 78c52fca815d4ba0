/* Writing the archive of torch.save(): entries are stored, and the data of each
 * begins at a multiple of 64 bytes, so that it can be mapped. Start at
 * gpt_torch_create().
 *
 * The bytes of a storage come once, in order, and its checksum is known after
 * them. It goes into a descriptor behind the data, as in torch's own files. */
#include "checkpoint/torch_write.h"

#include "base/num.h"
#include "checkpoint/zip.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define TOP "archive"

enum { ALIGN = 64, NAME = 64, VERSION_NEEDED = 45 };

/* Sizes and offsets from here on have 64-bit fields. */
#define WIDE ((int64_t)UINT32_MAX)

/* An entry that was written, for the list at the end. */
struct entry {
    char name[NAME];
    int64_t header, bytes;
    uint32_t crc;
};

struct gpt_torch_writer {
    struct gpt_out *out;
    struct entry *entries;
    int64_t n, cap;
    const int64_t *sizes; /* of the storages; a copy */
    int64_t n_sizes, at;  /* storage that is being written */
    int64_t left;         /* bytes of it that have not come */
    struct gpt_arena arena;
};

/* The one that is being written. */
static struct entry *last_entry(struct gpt_torch_writer *w)
{
    assert(w->n > 0);
    return &w->entries[w->n - 1];
}

/* A header, with the filler that aligns what follows. The field "FB" is how
 * torch fills. Checksum and sizes are 0: they are behind the data. */
static int begin_entry(struct gpt_torch_writer *w, const char *name,
                       int64_t bytes, struct gpt_err *err)
{
    uint8_t head[30 + NAME + 20 + 4 + ALIGN] = {0};
    const bool wide = bytes >= WIDE;
    struct entry *e = &w->entries[w->n];

    assert(w->n < w->cap);
    w->n++;
    snprintf(e->name, sizeof(e->name), TOP "/%s", name);
    e->header = gpt_out_tell(w->out);
    e->bytes = bytes;
    const size_t n = strlen(e->name);
    size_t at = 30 + n;
    /* The fields are those of APPNOTE.TXT, 4.3.7; dates and rights stay 0, so
     * that the same checkpoint gives the same bytes. */
    gpt_put_u32(head, 0x04034b50);
    gpt_put_u16(head + 4, VERSION_NEEDED);
    gpt_put_u16(head + 6, 8); /* a descriptor follows the data */
    if (wide) {
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
    return gpt_out_write(w->out, head, at, err);
}

/* The checksum runs along with the bytes, so nothing is read twice. */
static int add_to_entry(struct gpt_torch_writer *w, const void *data, size_t n,
                        struct gpt_err *err)
{
    last_entry(w)->crc = gpt_crc32(last_entry(w)->crc, data, n);
    return gpt_out_write(w->out, data, n, err);
}

/* The descriptor behind the data; its sizes have 64 bits where the header says
 * so. */
static int end_entry(struct gpt_torch_writer *w, struct gpt_err *err)
{
    const struct entry *e = last_entry(w);
    uint8_t tail[24];
    const bool wide = e->bytes >= WIDE;

    gpt_put_u32(tail, 0x08074b50);
    gpt_put_u32(tail + 4, e->crc);
    if (wide) {
        gpt_put_u64(tail + 8, (uint64_t)e->bytes);
        gpt_put_u64(tail + 16, (uint64_t)e->bytes);
    } else {
        gpt_put_u32(tail + 8, (uint32_t)e->bytes);
        gpt_put_u32(tail + 12, (uint32_t)e->bytes);
    }
    return gpt_out_write(w->out, tail, wide ? 24 : 16, err);
}

/* An entry that is in memory as a whole. */
static int write_record(struct gpt_torch_writer *w, const char *name,
                        const void *data, size_t n, struct gpt_err *err)
{
    GPT_TRY(begin_entry(w, name, (int64_t)n, err));
    GPT_TRY(add_to_entry(w, data, n, err));
    return end_entry(w, err);
}

/* A row of the list. Fields that do not fit are all ones, and their values in
 * the extra field, in the order of the format. */
static int list_entry(struct gpt_torch_writer *w, const struct entry *e,
                      struct gpt_err *err)
{
    uint8_t row[46 + NAME + 4 + 24] = {0};
    const size_t n = strlen(e->name);
    const bool wide = e->bytes >= WIDE, far = e->header >= WIDE;
    size_t at = 46 + n + 4;

    /* 4.3.12, the same without a date; the header's filler is not repeated
     * here, as readers take it from the header */
    gpt_put_u32(row, 0x02014b50);
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
    return gpt_out_write(w->out, row, at, err);
}

/* The list, the 64-bit end record that torch always writes, its locator, and
 * the end record. */
static int write_list(struct gpt_torch_writer *w, struct gpt_err *err)
{
    /* offsets count from the start of the file, where the archive begins */
    const int64_t list = gpt_out_tell(w->out);
    uint8_t tail[56 + 20 + 22] = {0};

    for (int64_t i = 0; i < w->n; i++)
        GPT_TRY(list_entry(w, &w->entries[i], err));
    const int64_t end = gpt_out_tell(w->out), bytes = end - list;
    /* 4.3.14 to 4.3.16 */
    gpt_put_u32(tail, 0x06064b50);
    gpt_put_u64(tail + 4, 44);
    gpt_put_u16(tail + 12, VERSION_NEEDED);
    gpt_put_u16(tail + 14, VERSION_NEEDED);
    gpt_put_u64(tail + 24, (uint64_t)w->n);
    gpt_put_u64(tail + 32, (uint64_t)w->n);
    gpt_put_u64(tail + 40, (uint64_t)bytes);
    gpt_put_u64(tail + 48, (uint64_t)list);
    gpt_put_u32(tail + 56, 0x07064b50);
    gpt_put_u64(tail + 64, (uint64_t)end);
    gpt_put_u32(tail + 72, 1);
    /* fields without room are all ones; readers then take the 64-bit record */
    const uint16_t n = w->n < UINT16_MAX ? (uint16_t)w->n : UINT16_MAX;
    gpt_put_u32(tail + 76, 0x06054b50);
    gpt_put_u16(tail + 84, n);
    gpt_put_u16(tail + 86, n);
    gpt_put_u32(tail + 88, (uint32_t)gpt_min_i64(bytes, WIDE));
    gpt_put_u32(tail + 92, (uint32_t)gpt_min_i64(list, WIDE));
    return gpt_out_write(w->out, tail, sizeof(tail), err);
}

/* Begins the next storage that has bytes; empty ones are whole at once. */
static int next_storage(struct gpt_torch_writer *w, struct gpt_err *err)
{
    char name[NAME];

    /* their names are their numbers: the keys in the pickle */
    while (w->left == 0 && w->at < w->n_sizes) {
        w->left = w->sizes[w->at];
        snprintf(name, sizeof(name), "data/%lld", (long long)w->at);
        w->at++;
        GPT_TRY(begin_entry(w, name, w->left, err));
        if (w->left == 0)
            GPT_TRY(end_entry(w, err));
    }
    return GPT_OK;
}

/* The whole size is reserved at once, so that a full disk is met before the
 * work. Headers and the list are not counted: a few hundred bytes an entry. */
static int start_file(struct gpt_torch_writer *w, const char *path,
                      unsigned flags, const struct gpt_pickle_out *o,
                      const int64_t *bytes, int64_t n, struct gpt_err *err)
{
    int64_t total = (int64_t)o->b.len;
    int64_t *sizes = gpt_arena_alloc(&w->arena, (size_t)n, sizeof(*sizes));

    if (!sizes)
        return gpt_no_memory(err, "storages");
    for (int64_t i = 0; i < n; i++) {
        sizes[i] = bytes[i];
        total += bytes[i];
    }
    /* the caller's array may be gone when later storages begin */
    w->sizes = sizes;
    w->n_sizes = n;
    w->cap = n + 3;
    GPT_TRY(gpt_new(&w->entries, (size_t)w->cap, sizeof(*w->entries),
                    "entries of an archive", err));
    GPT_TRY(gpt_out_open(&w->out, path, flags, total, err));
    GPT_TRY(write_record(w, "data.pkl", o->b.data, o->b.len, err));
    GPT_TRY(write_record(w, "byteorder", "little", 6, err));
    return next_storage(w, err);
}

int gpt_torch_create(struct gpt_torch_writer **out, const char *path,
                     unsigned flags, const struct gpt_pickle_out *o,
                     const int64_t *bytes, int64_t n, struct gpt_err *err)
{
    struct gpt_torch_writer *w;

    *out = NULL;
    GPT_TRY(gpt_new(&w, 1, sizeof(*w), "a writer", err));
    int status = start_file(w, path, flags, o, bytes, n, err);
    if (status != GPT_OK) {
        gpt_torch_abort(w);
        return status;
    }
    *out = w;
    return GPT_OK;
}

/* A storage that is full ends at once, and the next one begins, so that a
 * commit after the last byte finds nothing open. */
int gpt_torch_put(struct gpt_torch_writer *w, const void *data, size_t bytes,
                  struct gpt_err *err)
{
    assert((int64_t)bytes <= w->left);
    GPT_TRY(add_to_entry(w, data, bytes, err));
    w->left -= (int64_t)bytes;
    if (w->left)
        return GPT_OK;
    GPT_TRY(end_entry(w, err));
    return next_storage(w, err);
}

/* "version" is what torch looks for to tell its archives from others; it is
 * last in files of torch, too. */
int gpt_torch_commit(struct gpt_torch_writer *w, struct gpt_err *err)
{
    int status;

    assert(w->left == 0 && w->at == w->n_sizes);
    GPT_TRY_GOTO(status, write_record(w, "version", "3\n", 2, err), out);
    GPT_TRY_GOTO(status, write_list(w, err), out);
    status = gpt_out_commit(w->out, err);
    w->out = NULL;
out:
    gpt_torch_abort(w);
    return status;
}

/* Also after a commit, when the file has its name and is closed. */
void gpt_torch_abort(struct gpt_torch_writer *w)
{
    if (!w)
        return;
    gpt_out_abort(w->out);
    gpt_free(w->entries);
    gpt_arena_free(&w->arena);
    gpt_free(w);
}
