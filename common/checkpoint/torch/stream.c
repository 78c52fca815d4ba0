/* The stream that torch.save() wrote before 1.6, and the 345M release of
 * Megatron-LM with it: five pickles back to back (a magic number, a protocol, a
 * description of the machine, the object, the keys of storages), then for each
 * key a count of elements and the elements. Start at gpt_torch_open_stream().
 *
 * Nothing in the stream says how long a part is: a pickle ends with its STOP,
 * and a storage has the size that the object's pickle says. So each part is
 * read before the place of the next is known. */
#include "checkpoint/torch/internal.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_READ = 4096 };

/* The pickle at an offset, whose length nothing says: more is read until it
 * ends. *data is what its values refer to. */
static int parse_at(struct gpt_torch *t, int64_t at, struct gpt_pickle *p,
                    char **data, struct gpt_err *err)
{
    const int64_t left = gpt_min_i64(gpt_in_size(t->in) - at, GPT_PICKLE_BYTES);

    for (int64_t n = FIRST_READ;; n *= 8) {
        const int64_t take = gpt_min_i64(n, left);

        GPT_TRY(gpt_new(data, (size_t)take, 1, "a pickle", err));
        int status = gpt_in_read(t->in, *data, at, (size_t)take, err);
        if (status == GPT_OK)
            status = gpt_pickle_parse(p, *data, (size_t)take,
                                      gpt_in_path(t->in), at, err);
        if (status == GPT_OK)
            return GPT_OK;
        gpt_free(*data);
        *data = NULL;
        /* bytes that were not read yet can only help when they ran out */
        if (!p->cut || take == left)
            return status;
    }
}

/* 0x1950a86a20f9469cfc6c, little-endian, as the pickle of a long has it. */
static bool is_magic(const struct gpt_pickle_value *v)
{
    static const uint8_t magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                    0x20, 0x6a, 0xa8, 0x50, 0x19};

    return v->kind == GPT_PICKLE_LONG && v->n == sizeof(magic) &&
           memcmp(v->text, magic, sizeof(magic)) == 0;
}

/* Version of the stream; there has been no other. */
static int check_protocol(struct gpt_torch *t, const struct gpt_pickle_value *v,
                          int64_t at, struct gpt_err *err)
{
    int64_t version;

    if (!gpt_pickle_int(v, &version) || version != 1001)
        return gpt_torch_bad(t, at, err,
                             "not the protocol 1001 of torch.save()");
    return GPT_OK;
}

/* The sizes of C types, which are there as well, do not matter to storages. */
static int check_system(struct gpt_torch *t, const struct gpt_pickle_value *v,
                        int64_t at, struct gpt_err *err)
{
    const struct gpt_pickle_value *little = gpt_pickle_find(v, "little_endian");

    if (!little || little->kind != GPT_PICKLE_BOOL)
        return gpt_torch_bad(t, at, err, "no order of bytes ('little_endian')");
    return little->i ? GPT_OK : gpt_torch_big_endian(t, at, err);
}

/* After the pickles: for each key of the list, a count and the elements. */
static int place_stream(struct gpt_torch *t,
                        const struct gpt_pickle_value *keys, int64_t at,
                        struct gpt_err *err)
{
    int64_t placed = 0;

    if (keys->kind != GPT_PICKLE_LIST)
        return gpt_torch_bad(t, at, err, "no list of storages");
    for (uint32_t i = 0; i < keys->n; i++) {
        struct gpt_torch_storage key = {.key = NULL}, *s = NULL;
        uint8_t count[8];

        if (keys->items[i]->kind == GPT_PICKLE_STRING)
            key.key =
                gpt_arena_printf(&t->arena, "%.*s", (int)keys->items[i]->n,
                                 keys->items[i]->text);
        if (key.key && t->n_storages)
            s = bsearch(&key, t->storages, (size_t)t->n_storages,
                        sizeof(*t->storages), gpt_torch_by_key);
        /* a storage has its place by now when the list names it twice */
        if (!s || s->begin)
            return gpt_torch_bad(t, at, err,
                                 "storage %u of the list, '%.99s', is "
                                 "%s",
                                 i, key.key ? key.key : "",
                                 s ? "there twice" : "not one of the pickle's");
        GPT_TRY(gpt_in_read(t->in, count, at, sizeof(count), err));
        if (gpt_get_u64(count) != (uint64_t)s->count)
            return gpt_torch_bad(t, at, err,
                                 "storage '%.99s' has %lld elements, "
                                 "the pickle says %lld",
                                 s->key, (long long)gpt_get_u64(count),
                                 (long long)s->count);
        s->begin = at + 8;
        if (s->bytes > gpt_in_size(t->in) - s->begin)
            return gpt_torch_bad(t, at, err,
                                 "truncated: storage '%.99s' has %lld "
                                 "bytes, the file %lld more",
                                 s->key, (long long)s->bytes,
                                 (long long)(gpt_in_size(t->in) - s->begin));
        at = s->begin + s->bytes;
        placed++;
    }
    if (placed != t->n_storages)
        return gpt_torch_bad(t, at, err,
                             "the pickle names %lld storages, the file "
                             "has %lld",
                             (long long)t->n_storages, (long long)placed);
    if (at != gpt_in_size(t->in))
        return gpt_torch_bad(t, at, err, "%lld bytes after the last storage",
                             (long long)(gpt_in_size(t->in) - at));
    return GPT_OK;
}

/* Parses a pickle that is needed for a moment only, and passes it. */
static int check_next(struct gpt_torch *t, int64_t *at,
                      int (*check)(struct gpt_torch *t,
                                   const struct gpt_pickle_value *v, int64_t at,
                                   struct gpt_err *err),
                      struct gpt_err *err)
{
    struct gpt_pickle p;
    char *data;

    GPT_TRY(parse_at(t, *at, &p, &data, err));
    const int64_t end = *at + (int64_t)p.bytes;
    int status = check(t, p.root, check == place_stream ? end : *at, err);
    gpt_pickle_free(&p);
    gpt_free(data);
    *at = end;
    return status;
}

/* The first pickle tells a stream from a pickle that is alone. */
int gpt_torch_open_stream(struct gpt_torch *t, struct gpt_err *err)
{
    int64_t at;

    t->container = "pickle";
    GPT_TRY(parse_at(t, 0, &t->pickle, &t->data, err));
    at = (int64_t)t->pickle.bytes;
    t->root = t->pickle.root;
    /* A pickle alone has no storages, so it must end with the file. */
    if (!is_magic(t->root)) {
        if (at != gpt_in_size(t->in))
            return gpt_torch_bad(t, at, err, "%lld bytes after the pickle",
                                 (long long)(gpt_in_size(t->in) - at));
        if (t->pickle.n_persistent)
            return gpt_torch_bad(t, t->pickle.persistent[0]->at, err,
                                 "the pickle names a storage, and the file has "
                                 "none");
        return GPT_OK;
    }
    t->container = "legacy";
    t->root = NULL;
    /* the magic number has done its part */
    gpt_pickle_free(&t->pickle);
    gpt_free(t->data);
    t->data = NULL;
    GPT_TRY(check_next(t, &at, check_protocol, err));
    GPT_TRY(check_next(t, &at, check_system, err));
    GPT_TRY(parse_at(t, at, &t->pickle, &t->data, err));
    t->root = t->pickle.root;
    at += (int64_t)t->pickle.bytes;
    GPT_TRY(gpt_torch_list_storages(t, err));
    return check_next(t, &at, place_stream, err);
}
