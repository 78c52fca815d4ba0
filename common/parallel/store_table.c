/* The store's values, and what each request does to them, as PyTorch's server
 * does it: other programs of a job may use the same store. Start at
 * gpt_store_table_apply().
 *
 * A hash table with chains. All memory is bounded by BYTES_MAX, whatever
 * clients send; a request that would pass a bound is refused, and costs its
 * client the connection. */
#include "parallel/store_wire.h"

#include "base/hash.h"
#include "base/num.h"
#include "parallel/store.h"

#include <stdio.h>
#include <string.h>

enum { BYTES_MAX = 1 << 30, REPLY_MAX = 256 << 20 };

struct entry {
    struct entry *next;
    uint64_t hash;
    size_t key_len, len;
    uint8_t *value;
    uint8_t key[];
};

struct gpt_store_table {
    struct entry **heads;
    size_t n_heads, n; /* heads: a power of two */
    size_t bytes;      /* of keys and values */
    uint64_t changes;
};

/* Borrowed bytes: of a request, or of a value until its key is set again. */
struct text {
    const uint8_t *p;
    size_t len;
};

struct gpt_store_table *gpt_store_table_open(void)
{
    struct gpt_store_table *t = gpt_alloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->n_heads = 64;
    t->heads = gpt_alloc(t->n_heads, sizeof(struct entry *));
    if (t->heads)
        return t;
    gpt_free(t);
    return NULL;
}

static void entry_free(struct entry *e)
{
    gpt_free(e->value);
    gpt_free(e);
}

void gpt_store_table_close(struct gpt_store_table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_heads; i++)
        while (t->heads[i]) {
            struct entry *e = t->heads[i];

            t->heads[i] = e->next;
            entry_free(e);
        }
    gpt_free(t->heads);
    gpt_free(t);
}

/* The server compares this number before and after a round of requests. A
 * deletion is not counted, since it ends no wait. */
uint64_t gpt_store_table_changes(const struct gpt_store_table *t)
{
    return t->changes;
}

/* The link that points, or would point, to the entry of a key. Removing an
 * entry needs the link to it, and a test for a key needs only what the link
 * holds. */
static struct entry **find(const struct gpt_store_table *t, struct text key)
{
    uint64_t hash = gpt_hash64(key.p, key.len, 0);
    struct entry **link = &t->heads[hash & (t->n_heads - 1)];

    while (*link && ((*link)->hash != hash || (*link)->key_len != key.len ||
                     memcmp((*link)->key, key.p, key.len) != 0))
        link = &(*link)->next;
    return link;
}

bool gpt_store_table_has(const struct gpt_store_table *t, const void *key,
                         size_t len)
{
    return *find(t, (struct text){key, len}) != NULL;
}

/* Four times the heads. Out of memory is no failure: chains grow longer.
 * Entries keep their hash, so no key is hashed again and only the array of
 * heads is allocated. */
static void rehash(struct gpt_store_table *t)
{
    size_t n = t->n_heads * 4;
    struct entry **heads = gpt_alloc(n, sizeof(*heads));

    if (!heads)
        return;
    for (size_t i = 0; i < t->n_heads; i++)
        for (struct entry *e = t->heads[i], *next; e; e = next) {
            next = e->next;
            e->next = heads[e->hash & (n - 1)];
            heads[e->hash & (n - 1)] = e;
        }
    gpt_free(t->heads);
    t->heads = heads;
    t->n_heads = n;
}

/* The caller has found that the key is absent. No link from that search is used
 * here: rehash() may have moved the chain that the link was in. */
static struct entry *insert(struct gpt_store_table *t, struct text key)
{
    if (t->bytes + key.len > BYTES_MAX)
        return NULL;
    struct entry *e = gpt_alloc(1, sizeof(*e) + key.len);
    if (!e)
        return NULL;
    if (t->n > 2 * t->n_heads)
        rehash(t);
    e->hash = gpt_hash64(key.p, key.len, 0);
    e->key_len = key.len;
    memcpy(e->key, key.p, key.len);
    e->next = t->heads[e->hash & (t->n_heads - 1)];
    t->heads[e->hash & (t->n_heads - 1)] = e;
    t->n++;
    t->bytes += key.len;
    return e;
}

/* Sets a key to v, or (append) to its old value and v. The new value is whole
 * before the old one goes, so a refused request changes nothing. */
static bool put(struct gpt_store_table *t, struct text key, struct text v,
                bool append)
{
    struct entry *e = *find(t, key);
    size_t old = e ? e->len : 0, keep = append ? old : 0;

    if (keep + v.len > GPT_STORE_VALUE ||
        t->bytes - old + keep + v.len > BYTES_MAX)
        return false;
    /* The key is inserted after the value exists. A new key therefore never
     * appears without its value, whichever allocation fails. */
    uint8_t *value = gpt_alloc(keep + v.len, 1);
    if (!value)
        return false;
    if (!e && !(e = insert(t, key))) {
        gpt_free(value);
        return false;
    }
    if (keep > 0)
        memcpy(value, e->value, keep);
    if (v.len > 0)
        memcpy(value + keep, v.p, v.len);
    gpt_free(e->value);
    e->value = value;
    e->len = keep + v.len;
    t->bytes += e->len - old;
    t->changes++;
    return true;
}

static bool delete_key(struct gpt_store_table *t, struct text key)
{
    struct entry **link = find(t, key), *e = *link;

    if (!e)
        return false;
    *link = e->next;
    t->n--;
    t->bytes -= e->key_len + e->len;
    entry_free(e);
    return true;
}

/* GET does not wait, as in PyTorch: clients ask with CHECK or WAIT first. So an
 * absent key has an empty value here, and is no error. */
static struct text value_of(const struct gpt_store_table *t, struct text key)
{
    const struct entry *e = *find(t, key);

    return e ? (struct text){e->value, e->len} : (struct text){NULL, 0};
}

static bool same(struct text a, struct text b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

/* ---- requests ---- */

/* An absent value has no address, and memcpy() from NULL is undefined even for
 * no bytes. */
static bool reply_value(struct gpt_buf *reply, struct text v)
{
    return gpt_wire_put_bytes(reply, v.p ? v.p : (const void *)"", v.len) ==
           GPT_OK;
}

static bool reply_number(struct gpt_buf *reply, int64_t v)
{
    return gpt_wire_put_u64(reply, (uint64_t)v) == GPT_OK;
}

/* Counters are kept as decimal text, as in PyTorch: GET of a counter is
 * defined, and so is ADD to a text that SET wrote. */
static bool add(struct gpt_store_table *t, struct text key, int64_t delta,
                struct gpt_buf *reply)
{
    struct text old = value_of(t, key);
    char text[32] = "0";
    int64_t v;

    /* The text of any 64-bit number is shorter than `text`, so what is longer
     * is no counter. An absent key counts from 0. */
    if (old.len >= sizeof(text))
        return false;
    if (old.len > 0) {
        memcpy(text, old.p, old.len);
        text[old.len] = '\0';
    }
    if (!gpt_parse_int(text, &v) || !gpt_add(v, delta, &v))
        return false;
    int n = snprintf(text, sizeof(text), "%lld", (long long)v);
    return put(t, key, (struct text){(const uint8_t *)text, (size_t)n},
               false) &&
           reply_number(reply, v);
}

/* An empty expectation stands for "no such key"; the reply is the value after
 * the request, or the expectation where there is still no key. */
static bool compare_set(struct gpt_store_table *t, struct text key,
                        struct text expected, struct text desired,
                        struct gpt_buf *reply)
{
    bool exists = *find(t, key) != NULL;

    if (exists ? same(value_of(t, key), expected) : expected.len == 0)
        return put(t, key, desired, false) && reply_value(reply, desired);
    return reply_value(reply, exists ? value_of(t, key) : expected);
}

/* A request of little bytes may name one large value many times. The reply is
 * therefore bounded by itself, not only by the size of the table. */
static bool multi_get(const struct gpt_store_table *t,
                      const struct gpt_wire_request *r, const uint8_t *data,
                      struct gpt_buf *reply)
{
    size_t total = 0;

    for (size_t i = 0; i < r->n; i++) {
        const struct gpt_wire_field *f = &r->fields[i];
        struct text v = value_of(t, (struct text){data + f->at, f->len});

        total += v.len;
        if (total > REPLY_MAX || !reply_value(reply, v))
            return false;
    }
    return true;
}

static bool check_keys(const struct gpt_store_table *t,
                       const struct gpt_wire_request *r, const uint8_t *data,
                       struct gpt_buf *reply)
{
    uint8_t answer = GPT_WIRE_READY;

    for (size_t i = 0; i < r->n; i++)
        if (!gpt_store_table_has(t, data + r->fields[i].at, r->fields[i].len))
            answer = GPT_WIRE_NOT_READY;
    return gpt_buf_add(reply, &answer, 1) == GPT_OK;
}

bool gpt_store_table_apply(struct gpt_store_table *t,
                           const struct gpt_wire_request *r,
                           const uint8_t *data, struct gpt_buf *reply)
{
    struct text f[3] = {{NULL, 0}};

    /* gpt_wire_read() has counted the fields that each code needs */
    for (size_t i = 0; i < r->n && i < GPT_COUNT(f); i++)
        f[i] = (struct text){data + r->fields[i].at, r->fields[i].len};
    switch (r->code) {
    case GPT_WIRE_SET:
        return put(t, f[0], f[1], false);
    case GPT_WIRE_APPEND:
        return put(t, f[0], f[1], true);
    case GPT_WIRE_COMPARE_SET:
        return compare_set(t, f[0], f[1], f[2], reply);
    case GPT_WIRE_GET:
        return reply_value(reply, value_of(t, f[0]));
    case GPT_WIRE_ADD:
        return add(t, f[0], (int64_t)r->number, reply);
    case GPT_WIRE_CHECK:
        return check_keys(t, r, data, reply);
    case GPT_WIRE_NUM_KEYS:
        return reply_number(reply, (int64_t)t->n);
    case GPT_WIRE_DELETE:
        return reply_number(reply, delete_key(t, f[0]));
    case GPT_WIRE_MULTI_GET:
        return multi_get(t, r, data, reply);
    case GPT_WIRE_MULTI_SET:
        /* Pairs before a refused one stay set. The refusal ends the connection,
         * so the client cannot take the request for done. */
        for (size_t i = 0; i + 1 < r->n; i += 2) {
            const struct gpt_wire_field *k = &r->fields[i], *v = k + 1;

            if (!put(t, (struct text){data + k->at, k->len},
                     (struct text){data + v->at, v->len}, false))
                return false;
        }
        return true;
    case GPT_WIRE_PING:
        return gpt_wire_put_u32(reply, (uint32_t)r->number) == GPT_OK;
    default:
        return false;
    }
}
