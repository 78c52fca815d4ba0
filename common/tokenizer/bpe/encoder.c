/* Encoding of encoder.h, in batches (parts.h). The text is cut some hundred
 * pieces ahead, into stretches of up to 64 bytes; their pieces are added to a
 * batch, by vectors where the processor has them; and when a batch is full its
 * ids are written. Start at gpt_bpe_encode().
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
    STRETCHES = 16, /* that are cut at a time */
    PIECES = 192,   /* the same where each is one piece */
    SEAMS = 64,     /* bytes that gpt_seams_of() looks at */
    MARGIN = 256,   /* bytes of a window that the next one does again */
};

/* A short part, and the line that may know it. */
struct probe {
    struct gpt_cache_key key;
    struct gpt_cache_line *line;
};

/* Opens wide.h's encoder for runs of characters of three bytes. It is not used
 * where a whole piece may be a token that merging its parts would not make: a
 * run has parts only. */
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
                                  .cut = gpt_cut_like(model->pretok),
                                  .ways = gpt_parts_ways_of(gpt_cpu_isa())};
    int status;

    GPT_TRY_GOTO(status, gpt_cache_open(&e->cache,
                                        gpt_bpe_vocab_size(model->bpe), err),
                 fail);
    GPT_TRY_GOTO(status, gpt_new(&e->late, 1, sizeof(*e->late), "an encoder",
                                 err), fail);
    e->late->pairs = gpt_bpe_pairs(model->bpe);
    e->late->merge = gpt_bpe_many_of(gpt_cpu_isa());
    GPT_TRY_GOTO(status, open_wide(e, err), fail);
    return GPT_OK;
fail:
    gpt_bpe_encoder_close(e);
    return status;
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

/* Makes the ids of a part as the vocabulary has it: a whole piece that is a
 * token stays one. A part of a piece is never such a token; gpt_seams_fix()
 * sees to that. */
static int merge_part(struct gpt_bpe_encoder *e, const char *part, size_t len,
                      struct gpt_ids *ids, struct gpt_err *err)
{
    const struct gpt_token_map *whole = e->model->whole;
    int32_t id = whole ? gpt_token_map_find(whole, part, len) : -1;

    if (id >= 0)
        return gpt_ids_add(ids, &id, 1, err);
    return gpt_bpe_merge(e->model->bpe, &e->scratch, part, len, ids, err);
}

/* Encodes a part through the cache of long parts. */
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

static int encode_short(struct gpt_bpe_encoder *e, const char *part,
                        size_t len, const struct probe *probe,
                        struct gpt_ids *ids, struct gpt_err *err);

/* Encodes a short part outside a batch, whose line is not prefetched. */
static int encode_probed(struct gpt_bpe_encoder *e, const char *part,
                         size_t len, size_t readable, struct gpt_ids *ids,
                         struct gpt_err *err)
{
    struct probe p = {.key = gpt_cache_key_of(part, len, readable)};

    p.line = gpt_cache_at(&e->cache, gpt_cache_place(p.key));
    return encode_short(e, part, len, &p, ids, err);
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

/* Encodes a short part, which its line may know. Seams in ASCII are rare, and
 * to search for them takes longer than to merge what they would part. */
static int encode_short(struct gpt_bpe_encoder *e, const char *part,
                        size_t len, const struct probe *probe,
                        struct gpt_ids *ids, struct gpt_err *err)
{
    bool known;

    GPT_TRY(gpt_cache_add(&e->cache, probe->line, probe->key, ids, &known,
                          err));
    if (known)
        return GPT_OK;
    const size_t before = ids->len;
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

/* Drops the last id, and returns how many bytes it stood for. */
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
    bool known;

    if (e->model->whole || !gpt_cache_is_ascii(probe->key))
        return encode_short(e, part, len, probe, ids, err);
    GPT_TRY(gpt_cache_add(&e->cache, probe->line, probe->key, ids, &known,
                          err));
    return known ? GPT_OK
                 : gpt_late_add(e->late, &e->cache, part, probe->key, ids,
                                err);
}

/* Encodes part i of a batch, which its line does not know. */
static int encode_other(struct gpt_bpe_encoder *e, const struct gpt_parts *b,
                        size_t i, struct gpt_ids *ids, struct gpt_err *err)
{
    const size_t begin = i ? b->ends[i - 1] : 0, len = b->ends[i] - begin;
    const char *part = b->text + b->begin + begin;
    const struct probe probe = {b->keys[i],
                                gpt_cache_at(&e->cache, b->places[i])};

    if (len <= GPT_CACHE_SHORT)
        return encode_new(e, part, len, &probe, ids, err);
    return encode_kept(e, (uint32_t)probe.key.word[0], part, len, ids, err);
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
 * all at once. A line always writes GPT_CACHE_ROOM ids, of which some count:
 * the next part overwrites the others. */
static int write_batch(struct gpt_bpe_encoder *e, struct gpt_parts *b,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    assert(b->n <= GPT_PARTS);
    for (size_t i = 0;; i++) {
        GPT_TRY(gpt_ids_reserve(ids, GPT_PARTS_IDS, err));
        int32_t *out = ids->data + ids->len;

        i = e->ways->write(b, &e->cache, i, &out);
        ids->len = (size_t)(out - ids->data);
        if (i == b->n)
            break;
        GPT_TRY(encode_other(e, b, i, ids, err));
    }
    b->begin += b->n ? b->ends[b->n - 1] : 0;
    b->n = 0;
    return GPT_OK;
}

/* Adds a part to the batch, which is written first if it is full. One that is
 * too long for the cache goes past it. */
static int add_part(struct gpt_bpe_encoder *e, struct gpt_parts *b,
                    size_t begin, size_t end, struct gpt_ids *ids,
                    struct gpt_err *err)
{
    const char *part = b->text + begin;
    const size_t len = end - begin;

    if (b->n == GPT_PARTS || len > GPT_CACHE_LONG)
        GPT_TRY(write_batch(e, b, ids, err));
    if (len > GPT_CACHE_LONG) {
        b->begin = end;
        return encode_windows(e, part, len, ids, err);
    }
    const size_t i = b->n++;
    b->ends[i] = (uint32_t)(end - b->begin);
    if (len > GPT_CACHE_SHORT) {
        b->places[i] = GPT_CACHE_NOWHERE;
        b->keys[i].word[0] = gpt_cache_hash_long(&e->cache, part, len);
        b->keys[i].word[1] = ~(uint64_t)0; /* no short part has it */
        return GPT_OK;
    }
    b->keys[i] = gpt_cache_key_of(part, len, b->len - begin);
    b->places[i] = gpt_cache_place(b->keys[i]);
    __builtin_prefetch(gpt_cache_at(&e->cache, b->places[i]));
    return GPT_OK;
}

/* Adds the piece text[begin..end), a long one part by part. A short piece is
 * not cut at its seams here: most are known as a whole. */
static int add_piece(struct gpt_bpe_encoder *e, struct gpt_parts *b,
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

/* Adds the pieces of n stretches from text[base] on, one by one. */
static int add_pieces(struct gpt_bpe_encoder *e, struct gpt_parts *b,
                      size_t base, const struct gpt_stretch *s, size_t n,
                      struct gpt_ids *ids, struct gpt_err *err)
{
    size_t ends[STRETCHES * GPT_STRETCH + 3], begin = base + s[0].at;
    const size_t n_ends = e->ways->ends(s, n, ends);

    for (size_t i = 0; i < n_ends;) {
        i += gpt_parts_add_short(b, &e->cache, base, begin, ends + i,
                                 n_ends - i);
        begin = i ? base + ends[i - 1] : begin;
        if (i < n_ends) {
            GPT_TRY(add_piece(e, b, begin, base + ends[i], ids, err));
            begin = base + ends[i++];
        }
    }
    return GPT_OK;
}

/* Adds the pieces of n stretches, by vectors where that is possible. */
static int add_stretches(struct gpt_bpe_encoder *e, struct gpt_parts *b,
                         size_t base, const struct gpt_stretch *s, size_t n,
                         struct gpt_ids *ids, struct gpt_err *err)
{
    if (!e->ways->add)
        return add_pieces(e, b, base, s, n, ids, err);
    for (size_t i = 0; i < n;) {
        i += e->ways->add(b, &e->cache, base, s + i, n - i);
        if (i == n)
            break;
        if (b->n > GPT_PARTS - GPT_STRETCH) {
            GPT_TRY(write_batch(e, b, ids, err));
            continue;
        }
        GPT_TRY(add_pieces(e, b, base, s + i, 1, ids, err));
        i++;
    }
    return GPT_OK;
}

/* Cuts pieces up to the next wide character, or the blank before it. Where that
 * character is in the middle of a piece the text is cut before it all the same
 * if no token can lie across: the two parts of the piece are then encoded as if
 * each were one. */
static size_t cut_narrow(const struct gpt_bpe_encoder *e, const char *text,
                         size_t len, struct gpt_stretch *s, size_t room)
{
    size_t wide, n = e->narrow(text, len, s, room - 1, &wide);
    const size_t last = s[n].at;

    if (wide <= last || (n && wide == last + 1 && text[last] == ' '))
        return n;
    s[n].begins = 1;
    s[++n].at = gpt_seams_cut(gpt_bpe_seams(e->model->bpe), text, len, wide)
                    ? wide
                    : last + e->model->pretok(text + last, len - last);
    return n;
}

/* Cuts the next pieces of a text, one at least, in the fastest way there is. */
static size_t cut_pieces(const struct gpt_bpe_encoder *e, const char *text,
                         size_t len, struct gpt_stretch *s)
{
    size_t n = 0;

    if (e->narrow)
        return cut_narrow(e, text, len, s, STRETCHES);
    if (e->cut)
        return e->cut(text, len, s, STRETCHES);
    for (s[0].at = 0; n < PIECES && s[n].at < len; n++) {
        const size_t at = s[n].at;

        s[n].begins = 1;
        s[n + 1].at = at + e->model->pretok(text + at, len - at);
    }
    return n;
}

/* Encodes a run of wide characters from *at on, and the batch before it, as ids
 * are in the order of the text. Groups that have to be merged interrupt the
 * run. */
static int encode_wide(struct gpt_bpe_encoder *e, struct gpt_parts *b,
                       size_t *at, struct gpt_ids *ids, struct gpt_err *err)
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
    struct gpt_stretch s[PIECES + 1];
    struct gpt_parts b;

    b.text = text;
    b.len = len;
    b.begin = b.n = 0;
    gpt_late_clear(e->late); /* a call that failed may have left some */
    for (size_t at = 0; at < len;) {
        if (e->narrow && is_wide(text + at, len - at))
            GPT_TRY(encode_wide(e, &b, &at, ids, err));
        if (at == len)
            break;
        size_t n = cut_pieces(e, text + at, len - at, s);
        assert(n > 0 && s[n].at <= len - at);
        GPT_TRY(add_stretches(e, &b, at, s, n, ids, err));
        at += s[n].at;
    }
    GPT_TRY(write_batch(e, &b, ids, err));
    gpt_late_settle(e->late, &e->cache, ids);
    return GPT_OK;
}
