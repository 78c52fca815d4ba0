/* Opening a file of torch.save(): which container it is, where its pickle is,
 * and where each storage is. Start at gpt_torch_open(). Streams of old versions
 * are stream.c's; what a tensor is, is in tensor.c.
 *
 * A storage's size is said three times: by the pickle, by the container, and by
 * the file's length. They are compared here, once, so that a view needs to be
 * compared with its storage alone. */
#include "checkpoint/torch/internal.h"

#include "base/hash.h"
#include "base/num.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION_MAX = 10 };

int gpt_torch_vbad(const struct gpt_torch *t, int64_t at, const char *tensor,
                   struct gpt_err *err, const char *fmt, va_list args)
{
    char text[400];

    vsnprintf(text, sizeof(text), fmt, args);
    if (tensor)
        return gpt_fail(err, GPT_EDATA,
                        "%s: byte %lld of its pickle: tensor '%.200s': %s",
                        gpt_in_path(t->in), (long long)at, tensor, text);
    return gpt_fail(err, GPT_EDATA, "%s: byte %lld: %s", gpt_in_path(t->in),
                    (long long)at, text);
}

/* Every failure of a container has this form; those of zip and pickle have
 * their own, with the same offsets. */
int gpt_torch_bad(const struct gpt_torch *t, int64_t at, struct gpt_err *err,
                  const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    gpt_torch_vbad(t, at, NULL, err, fmt, args);
    va_end(args);
    return GPT_EDATA;
}

/* ---- storages ---- */

/* Types by the names of their storages. Element sizes are known for more types
 * than can be read: in a stream, storages follow each other. */
static const struct {
    const char *name;
    enum gpt_dtype dtype;
    int64_t element;
} types[] = {
    {"FloatStorage", GPT_F32, 4},
    {"HalfStorage", GPT_F16, 2},
    {"BFloat16Storage", GPT_BF16, 2},
    {"DoubleStorage", GPT_F64, 8},
    {"LongStorage", GPT_I64, 8},
    {"IntStorage", GPT_I32, 4},
    {"ShortStorage", GPT_I16, 2},
    {"CharStorage", GPT_I8, 1},
    {"ByteStorage", GPT_U8, 1},
    {"BoolStorage", GPT_BOOL, 1},
    {"storage.UntypedStorage", GPT_U8, 1},
    {"ComplexFloatStorage", GPT_N_DTYPES, 8},
    {"ComplexDoubleStorage", GPT_N_DTYPES, 16},
    {"QInt8Storage", GPT_N_DTYPES, 1},
    {"QUInt8Storage", GPT_N_DTYPES, 1},
    {"QInt32Storage", GPT_N_DTYPES, 4},
};

/* Types of a GPU have a name of their own: "torch.cuda.FloatStorage". */
static bool find_type(const struct gpt_pickle_value *v,
                      struct gpt_torch_storage *s)
{
    if (v->kind != GPT_PICKLE_GLOBAL || strncmp(v->text, "torch.", 6) != 0)
        return false;
    const char *name = v->text + 6;
    if (strncmp(name, "cuda.", 5) == 0)
        name += 5;
    for (size_t i = 0; i < GPT_COUNT(types); i++)
        if (strcmp(name, types[i].name) == 0) {
            s->type = v->text; /* of a global, which ends with a NUL */
            s->dtype = types[i].dtype;
            s->element = types[i].element;
            return true;
        }
    return false;
}

/* ('storage', type, key, location, elements [, view]). Other ids are none of a
 * storage and stay what they are. */
static int read_storage(struct gpt_torch *t, const struct gpt_pickle_value *v,
                        struct gpt_torch_storage *s, struct gpt_err *err)
{
    const struct gpt_pickle_value *id = v->args;

    if (id->n < 5 || id->items[2]->kind != GPT_PICKLE_STRING ||
        !gpt_pickle_int(id->items[4], &s->count) || s->count < 0)
        return gpt_torch_bad(t, v->at, err, "a storage without key or size");
    if (id->items[1]->kind != GPT_PICKLE_GLOBAL)
        return gpt_torch_bad(t, v->at, err, "a storage whose type is not the "
                             "name of a class");
    if (!find_type(id->items[1], s))
        return gpt_torch_bad(t, v->at, err, "a storage of type %.*s, which is "
                             "not known", (int)id->items[1]->n,
                             id->items[1]->text);
    s->key = gpt_arena_printf(&t->arena, "%.*s", (int)id->items[2]->n,
                              id->items[2]->text);
    if (!s->key)
        return gpt_no_memory(err, "names of storages");
    if (!gpt_mul(s->count, s->element, &s->bytes))
        return gpt_torch_bad(t, v->at, err, "storage '%.99s' has %lld elements",
                             s->key, (long long)s->count);
    return GPT_OK;
}

/* Keys are decimal numbers in files of torch, but only their equality counts.
 */
int gpt_torch_by_key(const void *a, const void *b)
{
    const struct gpt_torch_storage *x = a, *y = b;

    return strcmp(x->key, y->key);
}

/* Every mention of a storage says its type and size again; all must agree. */
int gpt_torch_list_storages(struct gpt_torch *t, struct gpt_err *err)
{
    const struct gpt_pickle *p = &t->pickle;
    int64_t n = 0;

    GPT_TRY(gpt_new(&t->storages, (size_t)p->n_persistent, sizeof(*t->storages),
                    "storages", err));
    for (int64_t i = 0; i < p->n_persistent; i++) {
        const struct gpt_pickle_value *id = p->persistent[i]->args;

        if (id->kind == GPT_PICKLE_TUPLE && id->n &&
            gpt_pickle_is(id->items[0], "storage"))
            GPT_TRY(read_storage(t, p->persistent[i], &t->storages[n++], err));
    }
    /* sorted, mentions of a storage are neighbours */
    if (n)
        qsort(t->storages, (size_t)n, sizeof(*t->storages), gpt_torch_by_key);
    for (int64_t i = 0; i < n; i++) {
        const struct gpt_torch_storage *s = &t->storages[i];
        const struct gpt_torch_storage *last =
            t->n_storages ? &t->storages[t->n_storages - 1] : NULL;

        if (!last || strcmp(last->key, s->key) != 0)
            t->storages[t->n_storages++] = *s;
        else if (last->element != s->element || last->count != s->count ||
                 last->dtype != s->dtype)
            return gpt_torch_bad(t, 0, err,
                                 "storage '%.99s' is %lld elements of %s "
                                 "and %lld of %s",
                                 s->key, (long long)last->count, last->type,
                                 (long long)s->count, s->type);
    }
    return GPT_OK;
}

/* ---- a zip archive ---- */

/* The record "TOP/name", where TOP is the one directory of the archive. */
static int find_record(const struct gpt_torch *t, const char *name,
                       const struct gpt_zip_entry **e, struct gpt_err *err)
{
    const char *slash = strchr(t->zip.first, '/');
    char path[GPT_TORCH_PATH * 2 + 2];

    if (!slash)
        return gpt_torch_bad(t, 0, err,
                             "entry '%.99s' is in no directory: this is "
                             "no archive of torch.save()",
                             t->zip.first);
    snprintf(path, sizeof(path), "%.*s/%.*s", (int)(slash - t->zip.first),
             t->zip.first, GPT_TORCH_PATH, name);
    *e = gpt_zip_find(&t->zip, path);
    return GPT_OK;
}

/* A record of a word, such as "little"; *text is "" when there is none. */
static int read_word(const struct gpt_torch *t, const char *name, char *text,
                     size_t cap, struct gpt_err *err)
{
    const struct gpt_zip_entry *e;

    *text = '\0';
    GPT_TRY(find_record(t, name, &e, err));
    if (!e)
        return GPT_OK;
    if (e->bytes >= (int64_t)cap)
        return gpt_torch_bad(t, e->begin, err, "record '%s' of %lld bytes",
                             name, (long long)e->bytes);
    GPT_TRY(gpt_in_read(t->in, text, e->begin, (size_t)e->bytes, err));
    text[e->bytes] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return GPT_OK;
}

int gpt_torch_big_endian(const struct gpt_torch *t, int64_t at,
                         struct gpt_err *err)
{
    gpt_torch_bad(t, at, err, "its tensors are big-endian, which is not read");
    return gpt_hint(err, "save it again on a little-endian machine");
}

/* What says that the archive is of a kind that is read here. */
static int check_records(const struct gpt_torch *t, struct gpt_err *err)
{
    const struct gpt_zip_entry *e;
    const size_t top = strcspn(t->zip.first, "/");
    char word[32];
    int64_t version;

    for (int64_t i = 0; i < t->zip.n; i++)
        if (strncmp(t->zip.entries[i].name, t->zip.first, top + 1) != 0)
            return gpt_torch_bad(
                t, t->zip.entries[i].header, err,
                "entry '%.99s' is outside the archive's directory "
                "'%.*s'",
                t->zip.entries[i].name, (int)top, t->zip.first);
    /* code, and tensors of it in a second archive of constants */
    GPT_TRY(find_record(t, "constants.pkl", &e, err));
    if (e)
        return gpt_torch_bad(t, e->header, err,
                             "this is a TorchScript program, "
                             "which is not read; save its "
                             "state_dict()");
    GPT_TRY(read_word(t, "version", word, sizeof(word), err));
    if (*word && (!gpt_parse_int(word, &version) || version < 1 ||
                  version > VERSION_MAX))
        return gpt_torch_bad(t, 0, err,
                             "version '%.20s' of the archive, known are "
                             "1 to %d",
                             word, VERSION_MAX);
    GPT_TRY(read_word(t, "byteorder", word, sizeof(word), err));
    if (strcmp(word, "big") == 0)
        return gpt_torch_big_endian(t, 0, err);
    if (*word && strcmp(word, "little") != 0)
        return gpt_torch_bad(t, 0, err, "byte order '%.20s'", word);
    return GPT_OK;
}

/* Records are found by key; a record that the pickle does not name stays
 * unread. */
static int place_records(struct gpt_torch *t, struct gpt_err *err)
{
    for (int64_t i = 0; i < t->n_storages; i++) {
        struct gpt_torch_storage *s = &t->storages[i];
        const struct gpt_zip_entry *e;
        char name[GPT_TORCH_PATH + 8];

        snprintf(name, sizeof(name), "data/%s", s->key);
        GPT_TRY(find_record(t, name, &e, err));
        if (!e)
            return gpt_torch_bad(t, 0, err,
                                 "the pickle names storage '%.99s', the "
                                 "archive has no such record",
                                 s->key);
        if (e->bytes != s->bytes)
            return gpt_torch_bad(
                t, e->begin, err,
                "storage '%.99s' has %lld bytes, the pickle says "
                "%lld",
                s->key, (long long)e->bytes, (long long)s->bytes);
        s->begin = e->begin; /* its bytes lie before the list: zip.c checked */
    }
    return GPT_OK;
}

/* Only the pickle's checksum is compared: one changed bit in it could turn a
 * stride into another. Changed weights are not looked for. */
static int open_zip(struct gpt_torch *t, struct gpt_err *err)
{
    const struct gpt_zip_entry *e;

    t->container = "zip";
    GPT_TRY(gpt_zip_open(&t->zip, t->in, t->start, t->size, err));
    GPT_TRY(find_record(t, "data.pkl", &e, err));
    if (!e)
        return gpt_torch_bad(t, 0, err,
                             "the archive has no record data.pkl: it is "
                             "not of torch.save()");
    GPT_TRY(check_records(t, err));
    if (e->bytes > GPT_PICKLE_BYTES)
        return gpt_torch_bad(t, e->begin, err,
                             "record data.pkl of %lld bytes, "
                             "limit %d",
                             (long long)e->bytes, GPT_PICKLE_BYTES);
    GPT_TRY(gpt_new(&t->data, (size_t)e->bytes, 1, "a pickle", err));
    GPT_TRY(gpt_in_read(t->in, t->data, e->begin, (size_t)e->bytes, err));
    if (gpt_crc32(0, t->data, (size_t)e->bytes) != e->crc)
        return gpt_torch_bad(t, e->begin, err,
                             "altered: record data.pkl does not "
                             "have the CRC-32 of the archive's "
                             "list");
    GPT_TRY(gpt_pickle_parse(&t->pickle, t->data, (size_t)e->bytes,
                             gpt_in_path(t->in), e->begin, err));
    t->root = t->pickle.root;
    GPT_TRY(gpt_torch_list_storages(t, err));
    return place_records(t, err);
}

/* ---- opening ---- */

/* A pickle of protocol 2 or later begins with its number. */
static bool is_pickle(const uint8_t *first)
{
    return first[0] == 0x80 && first[1] >= 2 && first[1] <= 5;
}

/* An empty archive begins otherwise, and torch writes none. */
static bool is_zip(const uint8_t *first)
{
    return memcmp(first, "PK\3\4", 4) == 0;
}

/* By the first bytes, as torch.load() does it, whatever the file is called. */
static int open_container(struct gpt_torch *t, struct gpt_err *err)
{
    uint8_t first[262] = {0};
    const int64_t size = gpt_in_size(t->in);

    if (size < 4)
        return gpt_torch_bad(t, 0, err,
                             "%lld bytes: this is no file of "
                             "torch.save()",
                             (long long)size);
    GPT_TRY(gpt_in_read(t->in, first, 0,
                        (size_t)gpt_min_i64(size, sizeof(first)), err));
    if (is_zip(first))
        return open_zip(t, err);
    if (is_pickle(first))
        return gpt_torch_open_stream(t, err);
    if (memcmp(first + 257, "ustar", 5) == 0) {
        gpt_torch_bad(t, 0, err,
                      "a tar archive of PyTorch 0.1, which is not read");
        return gpt_hint(err, "load it in PyTorch and save it again");
    }
    return gpt_torch_bad(t, 0, err,
                         "neither a zip archive nor a pickle: this is "
                         "no file of torch.save()");
}

/* The file stays open: tensors are read from it until it is closed. */
int gpt_torch_open(struct gpt_torch *t, const char *path, struct gpt_err *err)
{
    *t = (struct gpt_torch){0};
    GPT_TRY(gpt_in_open(&t->in, path, err));
    t->size = gpt_in_size(t->in);
    int status = open_container(t, err);
    if (status != GPT_OK)
        gpt_torch_close(t);
    return status == GPT_EDATA ? gpt_in_explain(path, err) : status;
}

/* A window comes out of a list in another file, so it is compared with this
 * one. */
int gpt_torch_open_at(struct gpt_torch *t, struct gpt_in *in, int64_t start,
                      int64_t size, struct gpt_err *err)
{
    const int64_t whole = gpt_in_size(in);

    *t = (struct gpt_torch){
        .in = in, .start = start, .size = size, .borrowed = true};
    if (start < 0 || size < 0 || start > whole || size > whole - start)
        return gpt_torch_bad(t, start, err,
                             "%lld bytes are expected here, the file has %lld",
                             (long long)size, (long long)whole);
    int status = open_zip(t, err);
    if (status != GPT_OK)
        gpt_torch_close(t);
    return status;
}

void gpt_torch_close(struct gpt_torch *t)
{
    if (!t->borrowed)
        gpt_in_close(t->in);
    gpt_zip_close(&t->zip);
    gpt_pickle_free(&t->pickle);
    gpt_free(t->storages);
    gpt_free(t->data);
    gpt_arena_free(&t->arena);
    *t = (struct gpt_torch){0};
}

/* Text pickles of protocol 0 have no sign of their own, and are not taken. */
bool gpt_torch_recognises(const char *path)
{
    uint8_t first[4] = {0};
    struct gpt_in *in;

    if (gpt_in_open(&in, path, NULL) != GPT_OK)
        return false;
    bool known = gpt_in_size(in) >= 4 &&
                 gpt_in_read(in, first, 0, sizeof(first), NULL) == GPT_OK &&
                 (is_zip(first) || is_pickle(first));
    gpt_in_close(in);
    return known;
}
