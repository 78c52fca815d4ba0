/* Encoding of encoder.h, in batches, because memory is what it waits for: a
 * cache of 16 MiB is in no near cache of the processor. The text is cut some
 * hundred pieces ahead, a probe of each piece prefetches its line, and only
 * when a batch is full are the ids written: by then the lines have come. Start
 * at gpt_bpe_encode().
 *
 * A piece takes one of three ways, by its length:
 *   up to 15 bytes   its own bytes are the key of a line (cache.h);
 *   up to 1024       it is first cut at its seams, the places where no token
 *                    holds the bytes on both sides, so that no merge can cross.
 *                    That leaves little of a Chinese sentence. A part that is
 *                    still longer than 15 has a hash in place of a key and is
 *                    kept as a record of its own;
 *   beyond           it is cut at its seams too. A part that is still longer
 *                    is encoded by windows, encode_windows(): it is unlikely to
 *                    come again, and merging it takes time n log n.
 * What no cache knows is merged by bpe.h, and its ids are put there. */
#include "tokenizer/bpe/encoder.h"

#include "base/cpu.h"
#include "tokenizer/token_map.h"

#include <assert.h>

enum {
    BATCH = 192,  /* pieces, and parts of pieces, at a time */
    SEAMS = 64,   /* bytes that gpt_seams_of() looks at */
    MARGIN = 256, /* bytes of a window that the next one does again */
    MOST_IDS = BATCH * GPT_CACHE_IDS,
};

/* A part on its way through the cache, which begins where the one before it
 * ends. A long part has its hash in the key's first word, and a second word
 * that no short key has; its line is an empty one, so that the loop over a
 * batch needs no branch on the length: the line does not know the key. */
struct probe {
    struct gpt_cache_key key;
    const struct gpt_cache_line *line;
    size_t end; /* in the text */
};

/* Parts in a row, the first from `begin` on. */
struct batch {
    const char *text;
    size_t len, begin, n;
    struct probe probes[BATCH];
};

/* The way of wide.h, for runs of characters of three bytes. Not where a whole
 * piece may be a token that merging its parts would not make: a run has parts
 * only. */
static int open_wide(struct gpt_bpe_encoder *e, struct gpt_err *err)
{
    gpt_cut_narrow_fn *narrow = gpt_cut_narrow_like(e->model->pretok);

    if (!narrow || e->model->whole)
        return GPT_OK;
    GPT_TRY(gpt_wide_open(&e->wide, e->model->bpe, err));
    e->narrow = e->wide.chars ? narrow : NULL;
    return GPT_OK;
}

int gpt_bpe_encoder_open(struct gpt_bpe_encoder *e,
                         const struct gpt_bpe_model *model,
                         struct gpt_err *err)
{
    *e = (struct gpt_bpe_encoder){.model = model,
                                  .cut = gpt_cut_like(model->pretok)};
    GPT_TRY(gpt_cache_open(&e->cache, err));
    GPT_TRY(gpt_new(&e->late, 1, sizeof(*e->late), "an encoder", err));
    e->late->pairs = gpt_bpe_pairs(model->bpe);
    e->late->merge = gpt_bpe_many_of(gpt_cpu_isa());
    return open_wide(e, err);
}

void gpt_bpe_encoder_close(struct gpt_bpe_encoder *e)
{
    gpt_cache_close(&e->cache);
    gpt_free(e->late);
    gpt_wide_close(&e->wide);
    gpt_bpe_scratch_free(&e->scratch);
}

/* ---- a part that is not known ---- */

static uint64_t seams_of(const struct gpt_bpe_encoder *e, const char *part,
                         size_t len)
{
    return gpt_seams_of(gpt_bpe_seams(e->model->bpe), part, len);
}

/* The ids of a part, by whatever the vocabulary has in place of merging: a
 * whole piece that is a token stays one. A part of a piece is never such a
 * token, gpt_seams_fix() sees to that. */
static int merge_part(struct gpt_bpe_encoder *e, const char *part, size_t len,
                      struct gpt_ids *ids, struct gpt_err *err)
{
    const struct gpt_token_map *whole = e->model->whole;
    int32_t id = whole ? gpt_token_map_find(whole, part, len) : -1;

    if (id >= 0)
        return gpt_ids_add(ids, &id, 1, err);
    return gpt_bpe_merge(e->model->bpe, &e->scratch, part, len, ids, err);
}

/* Through the cache of long parts. */
static int encode_kept(struct gpt_bpe_encoder *e, uint32_t hash,
                       const char *part, size_t len, struct gpt_ids *ids,
                       struct gpt_err *err)
{
    size_t n, before = ids->len;
    const int32_t *known = gpt_cache_get_long(&e->cache, hash, part, len, &n);

    if (n)
        return gpt_ids_add(ids, known, n, err);
    GPT_TRY(merge_part(e, part, len, ids, err));
    gpt_cache_put_long(&e->cache, hash, part, len, ids->data + before,
                       ids->len - before);
    return GPT_OK;
}

/* Fills in the probe of a short part, of which `readable` bytes may be read: a
 * key is made by one load of 16 bytes unless the text ends before. */
static inline void probe_short(const struct gpt_cache *c, const char *part,
                               size_t len, size_t readable,
                               struct probe *probe)
{
    probe->key = readable >= sizeof(probe->key)
                     ? gpt_cache_key(part, len)
                     : gpt_cache_key_at_end(part, len);
    probe->line = gpt_cache_find(c, probe->key);
}

static int encode_short(struct gpt_bpe_encoder *e, const char *part,
                        size_t len, const struct probe *probe,
                        struct gpt_ids *ids, struct gpt_err *err);

/* A short part outside a batch: its line is not prefetched. */
static int encode_probed(struct gpt_bpe_encoder *e, const char *part,
                         size_t len, size_t readable, struct gpt_ids *ids,
                         struct gpt_err *err)
{
    struct probe p;

    probe_short(&e->cache, part, len, readable, &p);
    GPT_TRY(gpt_ids_reserve(ids, GPT_CACHE_IDS, err));
    size_t known = gpt_cache_get(p.line, p.key, ids->data + ids->len);
    ids->len += known;
    return known ? GPT_OK : encode_short(e, part, len, &p, ids, err);
}

/* Encodes a short part as the parts between its seams, each of which may be in
 * its line. The recursion through encode_short() ends, as each part is shorter
 * than the one that it was cut from. */
static int encode_apart(struct gpt_bpe_encoder *e, const char *part,
                        size_t len, struct gpt_ids *ids, struct gpt_err *err)
{
    size_t begin = 0;
    uint64_t cuts = seams_of(e, part, len);

    if (!cuts)
        return merge_part(e, part, len, ids, err);
    for (cuts |= (uint64_t)1 << (len - 1); cuts; cuts &= cuts - 1) {
        size_t end = (size_t)__builtin_ctzll(cuts) + 1;

        GPT_TRY(encode_probed(e, part + begin, end - begin, len - begin, ids,
                              err));
        begin = end;
    }
    return GPT_OK;
}

/* Encodes a short part that is not in its line, or that has many ids. Seams in
 * ASCII are rare, and to search for them takes longer than to merge what they
 * would part. */
static int encode_short(struct gpt_bpe_encoder *e, const char *part,
                        size_t len, const struct probe *probe,
                        struct gpt_ids *ids, struct gpt_err *err)
{
    size_t n, before = ids->len;
    const int32_t *known =
        gpt_cache_get_many(&e->cache, probe->line, probe->key, &n);

    if (n)
        return gpt_ids_add(ids, known, n, err);
    GPT_TRY(gpt_cache_is_ascii(probe->key)
                ? merge_part(e, part, len, ids, err)
                : encode_apart(e, part, len, ids, err));
    gpt_cache_put(&e->cache, probe->key, ids->data + before,
                  ids->len - before);
    return GPT_OK;
}

/* ---- parts longer than the cache keeps ---- */

/* Says whether the two tokens that meet at `meet` stay as they are when their
 * bytes are merged as one text. Then no merge crosses between them in any text:
 * the first merge to cross would join parts of these two tokens, and would
 * happen among their bytes alone as well. So two encodings that are right by
 * themselves, put side by side, are right as a whole if the pair that meets is.
 */
static int stay_apart(struct gpt_bpe_encoder *e, const char *meet,
                      const int32_t pair[2], bool *apart, struct gpt_ids *ids,
                      struct gpt_err *err)
{
    size_t left = gpt_bpe_token_len(e->model->bpe, pair[0]);
    size_t right = gpt_bpe_token_len(e->model->bpe, pair[1]);
    size_t before = ids->len;

    /* the list's end is the scratch for it */
    GPT_TRY(gpt_bpe_merge(e->model->bpe, &e->scratch, meet - left,
                          left + right, ids, err));
    const int32_t *got = ids->data + before;
    *apart = ids->len - before == 2 && got[0] == pair[0] && got[1] == pair[1];
    ids->len = before;
    return GPT_OK;
}

/* Drops the last id; returns the bytes that it stood for. */
static size_t drop_id(struct gpt_bpe_encoder *e, struct gpt_ids *ids)
{
    assert(ids->len > 0);
    return gpt_bpe_token_len(e->model->bpe, ids->data[--ids->len]);
}

static int encode_window(struct gpt_bpe_encoder *e, const char *part,
                         size_t len, struct gpt_ids *ids, struct gpt_err *err)
{
    /* A window is no piece, so where pieces may be whole tokens it is not what
     * the cache of pieces knows by its bytes. */
    if (len > GPT_CACHE_LONG || e->model->whole)
        return gpt_bpe_merge(e->model->bpe, &e->scratch, part, len, ids, err);
    return encode_kept(e, gpt_cache_hash_long(&e->cache, part, len), part, len,
                       ids, err);
}

/* Encodes a part window by window, in linear time.
 *
 * A window's last tokens may be wrong, as they were merged without what
 * follows: so those of its last MARGIN bytes are dropped, and the next window
 * begins where they began. Whether the two windows then fit is not assumed but
 * checked, by stay_apart() for the two tokens that meet. If they do not fit,
 * the token before the seam is dropped too, and the window is encoded again
 * from there and with twice the length. The window grows until it fits or holds
 * all that is left, so this ends, and is right for any vocabulary: windows only
 * make it fast. A sensible vocabulary has no token as long as the margin, so
 * that the first attempt nearly always fits. */
static int encode_windows(struct gpt_bpe_encoder *e, const char *part,
                          size_t len, struct gpt_ids *ids, struct gpt_err *err)
{
    const size_t first = ids->len;
    size_t window = GPT_CACHE_LONG;

    for (size_t at = 0; at < len;) {
        size_t before = ids->len, end = at + window;
        bool fits = true;

        if (end > len || end < at) /* beyond, or wrapped around */
            end = len;
        GPT_TRY(encode_window(e, part + at, end - at, ids, err));
        if (before > first) {
            const int32_t pair[2] = {ids->data[before - 1], ids->data[before]};

            GPT_TRY(stay_apart(e, part + at, pair, &fits, ids, err));
        }
        if (!fits) {
            assert(before > first);
            ids->len = before;
            at -= drop_id(e, ids);
            window *= 2;
            continue;
        }
        at = end;
        /* one token of the window stays, so that each makes progress */
        while (end < len && end - at < MARGIN && ids->len > before + 1)
            at -= drop_id(e, ids);
    }
    return GPT_OK;
}

/* Encodes a short part of a batch that is not in its line: one of ASCII that is
 * new is merged later, beside others. */
static int encode_new(struct gpt_bpe_encoder *e, const char *part, size_t len,
                      const struct probe *probe, struct gpt_ids *ids,
                      struct gpt_err *err)
{
    size_t n;

    if (e->model->whole || !gpt_cache_is_ascii(probe->key))
        return encode_short(e, part, len, probe, ids, err);
    const int32_t *known =
        gpt_cache_get_many(&e->cache, probe->line, probe->key, &n);
    return n ? gpt_ids_add(ids, known, n, err)
             : gpt_late_add(e->late, &e->cache, part, probe->key, ids, err);
}

/* Encodes a part that its line does not know. */
static int encode_other(struct gpt_bpe_encoder *e, const char *part,
                        size_t len, const struct probe *probe,
                        struct gpt_ids *ids, struct gpt_err *err)
{
    if (len <= GPT_CACHE_SHORT)
        return encode_new(e, part, len, probe, ids, err);
    if (len <= GPT_CACHE_LONG)
        return encode_kept(e, (uint32_t)probe->key.word[0], part, len, ids,
                           err);
    return encode_windows(e, part, len, ids, err);
}

/* Encodes a part that is in no batch. */
static int encode_part(struct gpt_bpe_encoder *e, const char *part, size_t len,
                       size_t readable, struct gpt_ids *ids,
                       struct gpt_err *err)
{
    if (len <= GPT_CACHE_SHORT)
        return encode_probed(e, part, len, readable, ids, err);
    if (len <= GPT_CACHE_LONG)
        return encode_kept(e, gpt_cache_hash_long(&e->cache, part, len), part,
                           len, ids, err);
    return encode_windows(e, part, len, ids, err);
}

/* ---- batches ---- */

/* Writes the ids of all parts of the batch, and empties it. Room is made for
 * all at once, so that the loop has no check but whether the line knew the
 * part. A line always writes GPT_CACHE_IDS ids, of which `known` count: the
 * next part overwrites the others. */
static int write_batch(struct gpt_bpe_encoder *e, struct batch *b,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    assert(b->n <= BATCH);
    GPT_TRY(gpt_ids_reserve(ids, MOST_IDS, err));
    size_t begin = b->begin;
    int32_t *out = ids->data + ids->len;
    for (size_t i = 0; i < b->n; begin = b->probes[i++].end) {
        const struct probe *p = &b->probes[i];
        size_t known = gpt_cache_get(p->line, p->key, out);

        out += known;
        if (__builtin_expect(known != 0, 1))
            continue;
        ids->len = (size_t)(out - ids->data);
        GPT_TRY(encode_other(e, b->text + begin, p->end - begin, p, ids, err));
        GPT_TRY(gpt_ids_reserve(ids, MOST_IDS, err));
        out = ids->data + ids->len;
    }
    ids->len = (size_t)(out - ids->data);
    b->begin = begin;
    b->n = 0;
    return GPT_OK;
}

/* Fills in the probe of text[begin..end), and prefetches what the cache knows
 * of it. */
static inline void probe_part(const struct gpt_cache *c, const char *text,
                              size_t len, size_t begin, size_t end,
                              struct probe *probe)
{
    static const struct gpt_cache_line nowhere;
    size_t part = end - begin;

    probe->end = end;
    if (__builtin_expect(part <= GPT_CACHE_SHORT, 1)) {
        probe_short(c, text + begin, part, len - begin, probe);
        __builtin_prefetch(probe->line);
        return;
    }
    probe->line = &nowhere;
    probe->key.word[0] = part <= GPT_CACHE_LONG
                             ? gpt_cache_hash_long(c, text + begin, part)
                             : 0;
    probe->key.word[1] = ~(uint64_t)0; /* a length that no short part has */
}

/* Adds a part to the batch, which is written first if it is full. */
static int add_part(struct gpt_bpe_encoder *e, struct batch *b, size_t begin,
                    size_t end, struct gpt_ids *ids, struct gpt_err *err)
{
    if (b->n == BATCH)
        GPT_TRY(write_batch(e, b, ids, err));
    probe_part(&e->cache, b->text, b->len, begin, end, &b->probes[b->n++]);
    return GPT_OK;
}

/* Adds the piece text[begin..end), a long one part by part. A short piece is
 * not cut at its seams here: most are known as a whole. */
static int add_piece(struct gpt_bpe_encoder *e, struct batch *b,
                     size_t begin, size_t end, struct gpt_ids *ids,
                     struct gpt_err *err)
{
    for (size_t at = begin; end - begin > GPT_CACHE_SHORT && at < end;
         at += SEAMS) {
        uint64_t cuts = seams_of(e, b->text + at, end - at);

        for (; cuts; cuts &= cuts - 1) {
            size_t seam = at + (size_t)__builtin_ctzll(cuts) + 1;

            GPT_TRY(add_part(e, b, begin, seam, ids, err));
            begin = seam;
        }
    }
    return add_part(e, b, begin, end, ids, err);
}

/* Adds the short pieces that ends[] begins with, while the batch has room and
 * 16 bytes of each may be read; returns how many. This is the loop that nearly
 * all text goes through: the check for the end of the text is made once, before
 * it, and the cache is copied so that the compiler may keep it in registers. */
static size_t add_short(const struct gpt_bpe_encoder *e, struct batch *b,
                        size_t base, size_t begin, const size_t *ends,
                        size_t n)
{
    const struct gpt_cache c = e->cache;
    const char *text = b->text;
    struct probe *probe = b->probes + b->n;
    size_t i = 0;

    n = n < BATCH - b->n ? n : BATCH - b->n;
    while (n && b->len - base < (n > 1 ? ends[n - 2] : begin - base) + 16)
        n--;
    for (; i < n; i++) {
        size_t end = base + ends[i], part = end - begin;

        if (__builtin_expect(part > GPT_CACHE_SHORT, 0))
            break;
        probe[i].key = gpt_cache_key(text + begin, part);
        probe[i].line = gpt_cache_find(&c, probe[i].key);
        probe[i].end = end;
        __builtin_prefetch(probe[i].line);
        begin = end;
    }
    b->n += i;
    return i;
}

/* Pieces from text[begin] on, which end at begin + ends[i]. */
static int add_pieces(struct gpt_bpe_encoder *e, struct batch *b,
                      size_t begin, const size_t *ends, size_t n,
                      struct gpt_ids *ids, struct gpt_err *err)
{
    const size_t base = begin;

    for (size_t i = 0; i < n;) {
        i += add_short(e, b, base, begin, ends + i, n - i);
        begin = i ? base + ends[i - 1] : base;
        if (i < n) {
            GPT_TRY(add_piece(e, b, begin, base + ends[i], ids, err));
            begin = base + ends[i++];
        }
    }
    return GPT_OK;
}

/* Cuts pieces up to the next wide character, or the blank before it. Where that
 * character is in the middle of a piece the text is cut before it all the same
 * if no token can lie across: the two parts of the piece are then encoded as if
 * each were one. */
static size_t cut_narrow(const struct gpt_bpe_encoder *e, const char *text,
                         size_t len, size_t *ends, size_t room)
{
    size_t wide, n = e->narrow(text, len, ends, room - 1, &wide);
    size_t last = n ? ends[n - 1] : 0;

    if (wide <= last || (n && wide == last + 1 && text[last] == ' '))
        return n;
    ends[n] = gpt_seams_cut(gpt_bpe_seams(e->model->bpe), text, len, wide)
                  ? wide
                  : last + e->model->pretok(text + last, len - last);
    return n + 1;
}

/* Cuts the next pieces of a text, one at least, in the fastest way there is. */
static size_t cut_pieces(const struct gpt_bpe_encoder *e, const char *text,
                         size_t len, size_t *ends, size_t room)
{
    size_t n = 0;

    if (e->narrow)
        return cut_narrow(e, text, len, ends, room);
    if (e->cut)
        return e->cut(text, len, ends, room);
    for (size_t at = 0; at < len && n < room; n++)
        ends[n] = at += e->model->pretok(text + at, len - at);
    return n;
}

/* Encodes a run of wide characters from *at on, and the batch before it, as ids
 * are in the order of the text. Groups that have to be merged interrupt the
 * run. */
static int encode_wide(struct gpt_bpe_encoder *e, struct batch *b, size_t *at,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    struct gpt_wide_run run = {0, *at};

    GPT_TRY(write_batch(e, b, ids, err));
    do {
        GPT_TRY(gpt_wide_encode(&e->wide, b->text, b->len, run.group, &run,
                                ids, err));
        if (run.group > run.end)
            GPT_TRY(encode_part(e, b->text + run.end, run.group - run.end,
                                b->len - run.end, ids, err));
    } while (run.group > run.end);
    *at = b->begin = run.group;
    return GPT_OK;
}

/* True when such a run may begin here, at once or after one blank. */
static bool is_wide(const char *text, size_t len)
{
    size_t blank = text[0] == ' ' && len > 1;

    return ((uint8_t)text[blank] & 0xF0) == 0xE0;
}

int gpt_bpe_encode(struct gpt_bpe_encoder *e, const char *text, size_t len,
                   struct gpt_ids *ids, struct gpt_err *err)
{
    size_t ends[BATCH];
    struct batch b;

    b.text = text;
    b.len = len;
    b.begin = b.n = 0;
    gpt_late_clear(e->late); /* a call that failed may have left some */
    for (size_t at = 0; at < len;) {
        if (e->narrow && is_wide(text + at, len - at))
            GPT_TRY(encode_wide(e, &b, &at, ids, err));
        if (at == len)
            break;
        size_t n = cut_pieces(e, text + at, len - at, ends, BATCH);
        assert(n > 0 && ends[n - 1] <= len - at);
        GPT_TRY(add_pieces(e, &b, at, ends, n, ids, err));
        at += ends[n - 1];
    }
    GPT_TRY(write_batch(e, &b, ids, err));
    gpt_late_settle(e->late, &e->cache, ids);
    return GPT_OK;
}
