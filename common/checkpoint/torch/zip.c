/* Reading zip archives; see zip.h. Start at gpt_zip_open(): find_directory()
 * finds the list at the end, read_entries() takes it, read_header() compares
 * each entry with its own header, check_entries() compares them with each
 * other. */
#include "checkpoint/torch/zip.h"

#include "base/num.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22, /* of the end record, without comment */
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    HEADER_BYTES = 30,
    COMMENT_MAX = 65535,
    NAME_MAX_BYTES = 1024,
    LIST_MAX = 64 << 20, /* bytes of the list of entries */
};

/* An archive being opened. Offsets of the archive count from `begin`. */
struct reader {
    struct gpt_zip *zip;
    struct gpt_in *in;
    int64_t begin, size;
    int64_t list, list_bytes, n; /* of the list of entries */
    struct gpt_err *err;
};

/* Offsets in messages count from the start of the file, in which the archive
 * may be a window. */
static int GPT_PRINTF(3, 4)
    bad_zip(const struct reader *r, int64_t at, const char *fmt, ...)
{
    char text[300];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    gpt_fail(r->err, GPT_EDATA, "%s: byte %lld: %s", gpt_in_path(r->in),
             (long long)(r->begin + at), text);
    return gpt_hint(r->err, "the file is damaged, or was not written by "
                            "torch.save(): copy it again");
}

/* n bytes at an offset of the archive, which lie inside it. */
static int read_at(const struct reader *r, void *dst, int64_t at, size_t n)
{
    if (at < 0 || (int64_t)n > r->size || at > r->size - (int64_t)n)
        return bad_zip(r, at,
                       "%zu bytes of the archive's lists are expected "
                       "here, the archive has %lld",
                       n, (long long)r->size);
    return gpt_in_read(r->in, dst, r->begin + at, n, r->err);
}

/* ---- the end ---- */

/* The 64-bit record replaces what the end record has no room for; torch writes
 * it always. Its locator comes immediately before the end record. */
static int read_end64(struct reader *r, int64_t end, int64_t *list_end)
{
    uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];

    *list_end = end;
    if (end < LOCATOR_BYTES)
        return GPT_OK;
    GPT_TRY(read_at(r, locator, end - LOCATOR_BYTES, sizeof(locator)));
    if (gpt_get_u32(locator) != GPT_ZIP_LOCATOR) /* an archive without one */
        return GPT_OK;
    int64_t at = (int64_t)gpt_get_u64(locator + 8);
    GPT_TRY(read_at(r, record, at, sizeof(record)));
    if (gpt_get_u32(record) != GPT_ZIP_END64 ||
        gpt_get_u64(record + 4) != END64_BYTES - 12 ||
        at != end - LOCATOR_BYTES - END64_BYTES)
        return bad_zip(r, at, "a bad 64-bit end record");
    if (gpt_get_u32(record + 16) || gpt_get_u32(record + 20))
        return bad_zip(r, at, "an archive of several disks");
    r->n = (int64_t)gpt_get_u64(record + 32);
    r->list_bytes = (int64_t)gpt_get_u64(record + 40);
    r->list = (int64_t)gpt_get_u64(record + 48);
    *list_end = at;
    return GPT_OK;
}

/* The end record is the last one whose comment ends with the file. */
static int find_end(struct reader *r, uint8_t *record, int64_t *end)
{
    size_t n = (size_t)gpt_min_i64(r->size, END_BYTES + COMMENT_MAX);
    uint8_t *tail;
    int status;

    if (r->size < END_BYTES)
        return bad_zip(r, 0, "%lld bytes, an archive has at least %d",
                       (long long)r->size, END_BYTES);
    GPT_TRY(gpt_new(&tail, n, 1, "the end of an archive", r->err));
    GPT_TRY_GOTO(status, read_at(r, tail, r->size - (int64_t)n, n), out);
    /* From the end: a comment could hold bytes that look like a record, whose
     * own comment would then not end with the file. */
    for (size_t i = n - END_BYTES + 1; i-- > 0;)
        if (gpt_get_u32(tail + i) == GPT_ZIP_END &&
            i + END_BYTES + gpt_get_u16(tail + i + 20) == n) {
            memcpy(record, tail + i, END_BYTES);
            *end = r->size - (int64_t)(n - i);
            goto out;
        }
    status = bad_zip(r, r->size,
                     "the archive's list of entries is missing: "
                     "the file is truncated");
out:
    gpt_free(tail);
    return status;
}

/* The list must fill the room between its begin and the end records: then there
 * is one way to read the archive, from the end or from the front. */
static int find_directory(struct reader *r)
{
    uint8_t record[END_BYTES];
    int64_t end = 0, list_end;

    GPT_TRY(find_end(r, record, &end));
    if (gpt_get_u16(record + 4) || gpt_get_u16(record + 6))
        return bad_zip(r, end, "an archive of several disks");
    r->n = gpt_get_u16(record + 10);
    r->list_bytes = gpt_get_u32(record + 12);
    r->list = gpt_get_u32(record + 16);
    GPT_TRY(read_end64(r, end, &list_end));
    if (r->list_bytes < 0 || r->list_bytes > LIST_MAX || r->list < 0 ||
        r->list > list_end || r->list_bytes != list_end - r->list)
        return bad_zip(r, end,
                       "the list of entries is said to be %lld bytes "
                       "at %lld, which does not end here",
                       (long long)r->list_bytes, (long long)r->list);
    /* memory for entries is taken by this number, so the list must justify it
     */
    if (r->n < 0 || r->n > r->list_bytes / ENTRY_BYTES)
        return bad_zip(r, end, "%lld entries in a list of %lld bytes",
                       (long long)r->n, (long long)r->list_bytes);
    return GPT_OK;
}

/* ---- entries ---- */

/* Fields that are all ones have their value in the extra field of 64-bit sizes,
 * in this order. */
static int read_wide(const struct reader *r, const uint8_t *extra, size_t n,
                     int64_t at, uint64_t *const *fields, int n_fields)
{
    size_t i = 0;

    while (n >= 4 && i <= n - 4) {
        size_t bytes = gpt_get_u16(extra + i + 2), begin = i + 4;

        if (bytes > n - begin)
            break;
        i = begin + bytes;
        if (gpt_get_u16(extra + begin - 4) != 1)
            continue;
        for (int k = 0; k < n_fields; k++, begin += 8) {
            if (begin + 8 > i)
                return bad_zip(r, at, "a 64-bit size is missing");
            *fields[k] = gpt_get_u64(extra + begin);
        }
        return GPT_OK;
    }
    return n_fields ? bad_zip(r, at, "a 64-bit size is missing") : GPT_OK;
}

/* No absolute names, no ".." and nothing that a terminal would obey: names are
 * printed, and compared with names of records. */
static bool is_safe(const char *name, size_t n)
{
    size_t part = 0;

    if (n == 0 || name[0] == '/')
        return false;
    for (size_t i = 0; i <= n; i++) {
        if (i == n || name[i] == '/') {
            if (i - part == 2 && name[part] == '.' && name[part + 1] == '.')
                return false;
            part = i + 1;
            continue;
        }
        unsigned char c = (unsigned char)name[i];
        if (c < 0x20 || c == 0x7f || c == '\\' ||
            (c >= 0x80 && gpt_utf8_length(name + i, n - i) == 0))
            return false;
        if (c >= 0x80)
            i += gpt_utf8_length(name + i, n - i) - 1;
    }
    return true;
}

/* The entry's own header: the same name, and the data after it. Sizes there are
 * 0 when they come after the data (flag 8), as torch writes them. */
static int read_header(const struct reader *r, struct gpt_zip_entry *e)
{
    uint8_t header[HEADER_BYTES + NAME_MAX_BYTES];
    const size_t n = strlen(e->name);

    GPT_TRY(read_at(r, header, e->header, HEADER_BYTES + n));
    if (gpt_get_u32(header) != GPT_ZIP_HEADER)
        return bad_zip(r, e->header, "no header of entry '%.99s' here",
                       e->name);
    if (gpt_get_u16(header + 26) != n ||
        memcmp(header + HEADER_BYTES, e->name, n) != 0 ||
        gpt_get_u16(header + 8) != 0)
        return bad_zip(r, e->header,
                       "the header of entry '%.99s' differs "
                       "from the archive's list",
                       e->name);
    /* The data begins after this header's own extra field, which differs from
     * that in the list: torch aligns data with it. */
    const uint32_t bytes = gpt_get_u32(header + 22);
    if (!(gpt_get_u16(header + 6) & 8) && bytes != UINT32_MAX &&
        (int64_t)bytes != e->bytes)
        return bad_zip(r, e->header,
                       "entry '%.99s' has %lld bytes in its "
                       "header, %lld in the archive's list",
                       e->name, (long long)bytes, (long long)e->bytes);
    e->begin = e->header + HEADER_BYTES + (int64_t)n + gpt_get_u16(header + 28);
    if (e->begin > r->list || e->bytes > r->list - e->begin)
        return bad_zip(r, e->header,
                       "entry '%.99s' has %lld bytes, which "
                       "reach into the archive's list",
                       e->name, (long long)e->bytes);
    return GPT_OK;
}

/* One row of the list at p, of which `left` bytes are there. */
static int read_entry(const struct reader *r, const uint8_t *p, int64_t left,
                      struct gpt_zip_entry *e, int64_t *used)
{
    const int64_t at = r->list + r->list_bytes - left;
    uint64_t stored, bytes, header, *wide[3];
    int n_wide = 0;

    if (left < ENTRY_BYTES || gpt_get_u32(p) != GPT_ZIP_ENTRY)
        return bad_zip(r, at, "no entry of the archive's list here");
    /* name, extra field and comment follow the fixed part, in this order */
    const size_t n = gpt_get_u16(p + 28), extra = gpt_get_u16(p + 30);
    *used = ENTRY_BYTES + (int64_t)n + (int64_t)extra + gpt_get_u16(p + 32);
    if (*used > left)
        return bad_zip(r, at, "an entry that passes the end of the list");
    const char *name = (const char *)p + ENTRY_BYTES;
    if (n > NAME_MAX_BYTES || !is_safe(name, n))
        return bad_zip(r, at,
                       "an entry's name leaves the archive, or is no "
                       "name of a file");
    e->name = gpt_arena_printf(&r->zip->arena, "%.*s", (int)n, name);
    if (!e->name)
        return gpt_no_memory(r->err, "an archive's entries");
    if (gpt_get_u16(p + 8) & 1)
        return bad_zip(r, at, "entry '%.99s' is encrypted", e->name);
    if (gpt_get_u16(p + 10) != 0)
        return bad_zip(r, at,
                       "entry '%.99s' is compressed (method %d); only "
                       "stored entries can be read by range: unpack "
                       "the archive and pack it with zip -0",
                       e->name, gpt_get_u16(p + 10));
    stored = gpt_get_u32(p + 20);
    bytes = gpt_get_u32(p + 24);
    header = gpt_get_u32(p + 42);
    if (bytes == UINT32_MAX)
        wide[n_wide++] = &bytes;
    if (stored == UINT32_MAX)
        wide[n_wide++] = &stored;
    if (header == UINT32_MAX)
        wide[n_wide++] = &header;
    GPT_TRY(read_wide(r, p + ENTRY_BYTES + n, extra, at, wide, n_wide));
    /* not compressed, so both sizes are the same number */
    if (stored != bytes || bytes > INT64_MAX || header > INT64_MAX)
        return bad_zip(r, at, "entry '%.99s' has %llu bytes, stored in %llu",
                       e->name, (unsigned long long)bytes,
                       (unsigned long long)stored);
    e->bytes = (int64_t)bytes;
    e->header = (int64_t)header;
    e->crc = gpt_get_u32(p + 16);
    return read_header(r, e);
}

/* The whole list is read at once; its length was compared with the file. Memory
 * is a small multiple of it. */
static int read_entries(struct reader *r)
{
    struct gpt_zip *zip = r->zip;
    uint8_t *list;
    int64_t at = 0, used = 0;
    int status;

    GPT_TRY(
        gpt_new(&list, (size_t)r->list_bytes, 1, "an archive's list", r->err));
    GPT_TRY_GOTO(status, read_at(r, list, r->list, (size_t)r->list_bytes), out);
    GPT_TRY_GOTO(status,
                 gpt_new(&zip->entries, (size_t)r->n, sizeof(*zip->entries),
                         "an archive's entries", r->err),
                 out);
    for (; zip->n < r->n; zip->n++, at += used)
        GPT_TRY_GOTO(status,
                     read_entry(r, list + at, r->list_bytes - at,
                                &zip->entries[zip->n], &used),
                     out);
    if (at != r->list_bytes)
        status = bad_zip(r, r->list + at,
                         "%lld bytes after the last entry of "
                         "the list",
                         (long long)(r->list_bytes - at));
out:
    gpt_free(list);
    return status;
}

/* ---- entries together ---- */

/* Places decide overlaps, names decide lookups; the list is sorted twice. */
static int by_place(const void *a, const void *b)
{
    const struct gpt_zip_entry *x = a, *y = b;

    return (x->header > y->header) - (x->header < y->header);
}

static int by_name(const void *a, const void *b)
{
    const struct gpt_zip_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* What two entries share would be read as two different things. */
static int check_entries(const struct reader *r)
{
    struct gpt_zip *zip = r->zip;
    struct gpt_zip_entry *e = zip->entries;

    if (zip->n == 0)
        return bad_zip(r, 0, "an archive without entries");
    qsort(e, (size_t)zip->n, sizeof(*e), by_place);
    zip->first = e[0].name;
    for (int64_t i = 1; i < zip->n; i++)
        if (e[i].header < e[i - 1].begin + e[i - 1].bytes)
            return bad_zip(r, e[i].header,
                           "entries '%.99s' and '%.99s' "
                           "overlap",
                           e[i - 1].name, e[i].name);
    qsort(e, (size_t)zip->n, sizeof(*e), by_name);
    for (int64_t i = 1; i < zip->n; i++)
        if (by_name(&e[i - 1], &e[i]) == 0)
            return bad_zip(r, e[i].header, "entry '%.99s' comes twice",
                           e[i].name);
    for (int64_t i = 0; i < zip->n; i++) { /* from here on in the file */
        e[i].header += r->begin;
        e[i].begin += r->begin;
    }
    return GPT_OK;
}

/* Data is not read, and its checksums are not compared: records of gigabytes
 * are read by range later. */
int gpt_zip_open(struct gpt_zip *zip, struct gpt_in *in, int64_t begin,
                 int64_t size, struct gpt_err *err)
{
    struct reader r = {
        .zip = zip, .in = in, .begin = begin, .size = size, .err = err};
    int status;

    *zip = (struct gpt_zip){0};
    GPT_TRY_GOTO(status, find_directory(&r), fail);
    GPT_TRY_GOTO(status, read_entries(&r), fail);
    GPT_TRY_GOTO(status, check_entries(&r), fail);
    return GPT_OK;
fail:
    gpt_zip_close(zip);
    return status;
}

void gpt_zip_close(struct gpt_zip *zip)
{
    gpt_free(zip->entries);
    gpt_arena_free(&zip->arena);
    *zip = (struct gpt_zip){0};
}

/* The list is sorted by name once it is open. */
const struct gpt_zip_entry *gpt_zip_find(const struct gpt_zip *zip,
                                         const char *name)
{
    const struct gpt_zip_entry key = {.name = name};

    return zip->n ? bsearch(&key, zip->entries, (size_t)zip->n,
                            sizeof(*zip->entries), by_name)
                  : NULL;
}
