/* Encoding of bpe_encoder.h, in batches: the text is cut some hundred pieces
 * ahead, then their entries in the cache are asked for, then the ids are
 * written: no step waits for memory that another has not asked for.
 *
 * A long piece is first split where no token holds the bytes on both sides, so
 * that no merge can cross; that leaves little of a Chinese sentence. What is
 * left of 16 bytes and more has a cache of its own, and what is left of more
 * than that takes is encoded by windows. Start at gpt_bpe_encode(). */
#include "tokenizer/bpe/encoder.h"

#include "base/memory.h"
#include "tokenizer/token_map.h"

enum {
    BATCH = 192,  /* pieces, and parts of pieces, at a time */
    SEAMS = 64,   /* bytes that gpt_seams_of() looks at */
    MARGIN = 256, /* bytes of a window that the next one does again */
    MOST_IDS = BATCH * GPT_CACHE_IDS,
};

/* A part on its way through the cache, which begins where the one before it
 * ends. A long one looks at a line where it is not, and has a hash in place of
 * the key's first word. */
struct probe {
    struct gpt_cache_key key;
    const struct gpt_cache_line *line;
    size_t end; /* in the text */
};

/* Some parts in a row, the first from `begin` on. */
struct batch {
    const char *text;
    size_t len, begin, n;
    struct probe probes[BATCH];
};

/* A whole piece may be a token that merging its parts would not make. */
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
    return open_wide(e, err);
}

void gpt_bpe_encoder_close(struct gpt_bpe_encoder *e)
{
    gpt_cache_close(&e->cache);
    gpt_wide_close(&e->wide);
    gpt_bpe_scratch_free(&e->scratch);
}

/* ---- a part that is not known ---- */

static int append(struct gpt_ids *ids, const int32_t *more, size_t n,
                  struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&ids->data, &ids->cap, ids->len + n, sizeof(*ids->data),
                     "token ids", err));
    memcpy(ids->data + ids->len, more, n * sizeof(*more));
    ids->len += n;
    return GPT_OK;
}

static uint64_t seams(const struct gpt_bpe_encoder *e, const char *part,
                      size_t len)
{
    return gpt_seams_of(gpt_bpe_seams(e->model->bpe), part, len);
}

static int merge(struct gpt_bpe_encoder *e, const char *part, size_t len,
                 struct gpt_ids *ids, struct gpt_err *err)
{
    const struct gpt_token_map *whole = e->model->whole;
    int32_t id = whole ? gpt_token_map_find(whole, part, len) : -1;

    if (id >= 0)
        return append(ids, &id, 1, err);
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
        return append(ids, known, n, err);
    GPT_TRY(merge(e, part, len, ids, err));
    gpt_cache_put_long(&e->cache, hash, part, len, ids->data + before,
                       ids->len - before);
    return GPT_OK;
}

static inline void aim_short(const struct gpt_cache *c, const char *part,
                             size_t len, size_t readable, struct probe *probe)
{
    probe->key = readable >= sizeof(probe->key)
                     ? gpt_cache_key(part, len)
                     : gpt_cache_key_at_end(part, len);
    probe->line = gpt_cache_find(c, probe->key);
}

static int encode_short(struct gpt_bpe_encoder *e, const char *part,
                        size_t len, const struct probe *probe,
                        struct gpt_ids *ids, struct gpt_err *err);

static int encode_probed(struct gpt_bpe_encoder *e, const char *part,
                         size_t len, size_t readable, struct gpt_ids *ids,
                         struct gpt_err *err)
{
    struct probe p;

    aim_short(&e->cache, part, len, readable, &p);
    GPT_TRY(gpt_grow(&ids->data, &ids->cap, ids->len + GPT_CACHE_IDS,
                     sizeof(*ids->data), "token ids", err));
    size_t known = gpt_cache_get(p.line, p.key, ids->data + ids->len);
    ids->len += known;
    return known ? GPT_OK : encode_short(e, part, len, &p, ids, err);
}

/* Of a short part, from its own parts, which may be in their lines. */
static int encode_apart(struct gpt_bpe_encoder *e, const char *part,
                        size_t len, struct gpt_ids *ids, struct gpt_err *err)
{
    size_t begin = 0;
    uint64_t cuts = seams(e, part, len);

    if (!cuts)
        return merge(e, part, len, ids, err);
    for (cuts |= (uint64_t)1 << (len - 1); cuts; cuts &= cuts - 1) {
        size_t end = (size_t)__builtin_ctzll(cuts) + 1;

        GPT_TRY(encode_probed(e, part + begin, end - begin, len - begin, ids,
                              err));
        begin = end;
    }
    return GPT_OK;
}

/* Of a short part that is not in its line, or has many ids. Seams in ASCII are
 * rare, and looking for them takes longer than merging what they would part. */
static int encode_short(struct gpt_bpe_encoder *e, const char *part,
                        size_t len, const struct probe *probe,
                        struct gpt_ids *ids, struct gpt_err *err)
{
    size_t n, before = ids->len;
    const int32_t *known =
        gpt_cache_get_many(&e->cache, probe->line, probe->key, &n);

    if (n)
        return append(ids, known, n, err);
    GPT_TRY(gpt_cache_is_ascii(probe->key)
                ? merge(e, part, len, ids, err)
                : encode_apart(e, part, len, ids, err));
    gpt_cache_put(&e->cache, probe->key, ids->data + before,
                  ids->len - before);
    return GPT_OK;
}

/* ---- parts without end ---- */

/* Whether the tokens `left` and `right`, side by side, stay as they are. Then
 * no merge crosses between them in any text: of two encodings that are right by
 * themselves, side by side, the whole is right if the pair that meets is. */
static int stay_apart(struct gpt_bpe_encoder *e, const char *meet,
                      const int32_t pair[2], bool *apart, struct gpt_ids *ids,
                      struct gpt_err *err)
{
    size_t left = gpt_bpe_token_len(e->model->bpe, pair[0]);
    size_t right = gpt_bpe_token_len(e->model->bpe, pair[1]);
    size_t before = ids->len;

    GPT_TRY(gpt_bpe_merge(e->model->bpe, &e->scratch, meet - left,
                          left + right, ids, err));
    const int32_t *got = ids->data + before;
    *apart = ids->len - before == 2 && got[0] == pair[0] && got[1] == pair[1];
    ids->len = before;
    return GPT_OK;
}

/* Drops the last id; returns the bytes it stood for. */
static size_t drop_id(struct gpt_bpe_encoder *e, struct gpt_ids *ids)
{
    return gpt_bpe_token_len(e->model->bpe, ids->data[--ids->len]);
}

static int encode_window(struct gpt_bpe_encoder *e, const char *part,
                         size_t len, struct gpt_ids *ids, struct gpt_err *err)
{
    if (len > GPT_CACHE_LONG || e->model->whole) /* a window is no piece */
        return gpt_bpe_merge(e->model->bpe, &e->scratch, part, len, ids, err);
    return encode_kept(e, gpt_cache_aim_long(&e->cache, part, len), part, len,
                       ids, err);
}

/* Windows, one after the other. The end of each is dropped again, for what
 * comes next may change it; a window that does not fit what was kept is done
 * again from the token before, and larger, so that this comes to an end. */
static int encode_windows(struct gpt_bpe_encoder *e, const char *part,
                          size_t len, struct gpt_ids *ids, struct gpt_err *err)
{
    const size_t first = ids->len;
    size_t window = GPT_CACHE_LONG;

    for (size_t at = 0; at < len;) {
        size_t before = ids->len, end = at + window;
        bool fits = true;

        if (end > len || end < at)
            end = len;
        GPT_TRY(encode_window(e, part + at, end - at, ids, err));
        if (before > first) {
            const int32_t pair[2] = {ids->data[before - 1], ids->data[before]};

            GPT_TRY(stay_apart(e, part + at, pair, &fits, ids, err));
        }
        if (!fits) {
            ids->len = before;
            at -= drop_id(e, ids);
            window *= 2;
            continue;
        }
        at = end;
        while (end < len && end - at < MARGIN && ids->len > before + 1)
            at -= drop_id(e, ids);
    }
    return GPT_OK;
}

/* Of a part that is not in the short cache. */
static int encode_other(struct gpt_bpe_encoder *e, const char *part,
                        size_t len, const struct probe *probe,
                        struct gpt_ids *ids, struct gpt_err *err)
{
    if (len <= GPT_CACHE_SHORT)
        return encode_short(e, part, len, probe, ids, err);
    if (len <= GPT_CACHE_LONG)
        return encode_kept(e, (uint32_t)probe->key.word[0], part, len, ids,
                           err);
    return encode_windows(e, part, len, ids, err);
}

static int encode_part(struct gpt_bpe_encoder *e, const char *part, size_t len,
                       size_t readable, struct gpt_ids *ids,
                       struct gpt_err *err)
{
    if (len <= GPT_CACHE_SHORT)
        return encode_probed(e, part, len, readable, ids, err);
    if (len <= GPT_CACHE_LONG)
        return encode_kept(e, gpt_cache_aim_long(&e->cache, part, len), part,
                           len, ids, err);
    return encode_windows(e, part, len, ids, err);
}

/* ---- batches ---- */

/* Writes the ids of all parts. */
static int emit(struct gpt_bpe_encoder *e, struct batch *b,
                struct gpt_ids *ids, struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&ids->data, &ids->cap, ids->len + MOST_IDS,
                     sizeof(*ids->data), "token ids", err));
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
        GPT_TRY(gpt_grow(&ids->data, &ids->cap, ids->len + MOST_IDS,
                         sizeof(*ids->data), "token ids", err));
        out = ids->data + ids->len;
    }
    ids->len = (size_t)(out - ids->data);
    b->begin = begin;
    b->n = 0;
    return GPT_OK;
}

/* Asks for what the cache knows of text[begin..end). */
static inline void aim(const struct gpt_cache *c, const char *text, size_t len,
                       size_t begin, size_t end, struct probe *probe)
{
    static const struct gpt_cache_line nowhere;
    size_t part = end - begin;

    probe->end = end;
    if (__builtin_expect(part <= GPT_CACHE_SHORT, 1)) {
        aim_short(c, text + begin, part, len - begin, probe);
        __builtin_prefetch(probe->line);
        return;
    }
    probe->line = &nowhere;
    probe->key.word[0] = part <= GPT_CACHE_LONG
                             ? gpt_cache_aim_long(c, text + begin, part)
                             : 0;
    probe->key.word[1] = ~(uint64_t)0;
}

static int add_part(struct gpt_bpe_encoder *e, struct batch *b, size_t begin,
                    size_t end, struct gpt_ids *ids, struct gpt_err *err)
{
    if (b->n == BATCH)
        GPT_TRY(emit(e, b, ids, err));
    aim(&e->cache, b->text, b->len, begin, end, &b->probes[b->n++]);
    return GPT_OK;
}

/* Adds the piece text[begin..end), a long one part by part. */
static int add_one(struct gpt_bpe_encoder *e, struct batch *b, size_t begin,
                   size_t end, struct gpt_ids *ids, struct gpt_err *err)
{
    for (size_t at = begin; end - begin > GPT_CACHE_SHORT && at < end;
         at += SEAMS) {
        uint64_t cuts = seams(e, b->text + at, end - at);

        for (; cuts; cuts &= cuts - 1) {
            size_t seam = at + (size_t)__builtin_ctzll(cuts) + 1;

            GPT_TRY(add_part(e, b, begin, seam, ids, err));
            begin = seam;
        }
    }
    return add_part(e, b, begin, end, ids, err);
}

/* Adds the short pieces that ends[] begins with, as far as there is room and 16
 * bytes may be read of each; returns how many. */
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
            GPT_TRY(add_one(e, b, begin, base + ends[i], ids, err));
            begin = base + ends[i++];
        }
    }
    return GPT_OK;
}

/* Pieces up to the next wide character, or the blank before it. In the middle
 * of a piece the text is cut before it all the same if no token can lie there:
 * then what is left of the piece is one, too. */
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

static size_t cut(const struct gpt_bpe_encoder *e, const char *text,
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

/* A run of wide characters from *at on, and the batch before it. */
static int encode_wide(struct gpt_bpe_encoder *e, struct batch *b, size_t *at,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    struct gpt_wide_run run = {0, *at};

    GPT_TRY(emit(e, b, ids, err));
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

/* Whether such a run may begin here. */
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
    for (size_t at = 0; at < len;) {
        if (e->narrow && is_wide(text + at, len - at))
            GPT_TRY(encode_wide(e, &b, &at, ids, err));
        if (at == len)
            break;
        size_t n = cut(e, text + at, len - at, ends, BATCH);
        GPT_TRY(add_pieces(e, &b, at, ends, n, ids, err));
        at += ends[n - 1];
    }
    return emit(e, &b, ids, err);
}
