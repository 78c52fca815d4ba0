/* Compares the ids of the batched encoder with those of merging as its
 * definition says, for texts that are difficult for the cache, for the division
 * of long pieces, and for the windows of very long ones. Runs in the top folder
 * of the tree. */
#include "base/memory.h"
#include "tests/lib/tap.h"
#include "tokenizer/bpe/encoder.h"
#include "tokenizer/token_map.h"
#include "tokenizer/vocab.h"

#define GOLDEN "tests/golden/gpt2/"
enum { TOKENS = 1000, LONGEST = 6000 };

static struct gpt_vocab vocab;
static struct gpt_bpe *bpe;
static int32_t rank_of[TOKENS][TOKENS]; /* -1: not merged */
static struct gpt_token_map map, *whole; /* tokens that pieces may be */

static uint32_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static bool open_merges(struct gpt_err *err)
{
    if (vocab.n > TOKENS ||
        gpt_bpe_open(&bpe, &vocab, GOLDEN "merges.txt", err) != GPT_OK)
        return false;
    memset(rank_of, -1, sizeof(rank_of));
    for (size_t r = 0; r < vocab.n_merges; r++)
        rank_of[vocab.merges[r].left][vocab.merges[r].right] = (int32_t)r;
    return true;
}

static bool open_golden(void)
{
    struct gpt_err err;

    return gpt_vocab_load(&vocab, GOLDEN "vocab.json", GOLDEN "merges.txt",
                          &err) == GPT_OK && open_merges(&err);
}

static void close_all(void)
{
    gpt_token_map_close(&map);
    whole = NULL;
    gpt_bpe_close(bpe);
    gpt_vocab_free(&vocab);
}

/* Merges of anything with anything, across characters and within them. */
static bool open_drawn(const char *bytes, size_t n_merges)
{
    struct gpt_err err;

    if (gpt_new(&vocab.tokens, TOKENS, sizeof(*vocab.tokens), "", &err) ||
        gpt_new(&vocab.merges, n_merges, sizeof(*vocab.merges), "", &err))
        return false;
    for (vocab.n = 0; vocab.n < 256; vocab.n++) {
        char *byte = gpt_arena_alloc(&vocab.arena, 1, 1);

        *byte = (char)vocab.n;
        vocab.tokens[vocab.n] = (struct gpt_str){byte, 1};
        vocab.byte_id[vocab.n] = (int32_t)vocab.n;
    }
    vocab.eod = -1;
    memset(rank_of, -1, sizeof(rank_of));
    while (vocab.n_merges < n_merges) {
        int32_t side[2];

        for (int i = 0; i < 2; i++) {
            uint32_t made = (uint32_t)vocab.n - 256;

            side[i] = made && draw(2)
                          ? 256 + (int32_t)draw(made)
                          : (uint8_t)bytes[draw((uint32_t)strlen(bytes))];
        }
        struct gpt_str a = vocab.tokens[side[0]], b = vocab.tokens[side[1]];
        if (a.len + b.len > 7 || rank_of[side[0]][side[1]] >= 0)
            continue;
        char *both = gpt_arena_alloc(&vocab.arena, a.len + b.len, 1);
        memcpy(both, a.data, a.len);
        memcpy(both + a.len, b.data, b.len);
        rank_of[side[0]][side[1]] = 0;
        vocab.merges[vocab.n_merges++] = (struct gpt_merge){
            side[0], side[1], (int32_t)vocab.n};
        vocab.tokens[vocab.n++] = (struct gpt_str){both, a.len + b.len};
    }
    return open_merges(&err);
}

/* From here on a piece that is a token becomes that token, without merges. */
static bool take_whole(void)
{
    struct gpt_err err;
    struct gpt_bpe_scratch scratch = {.nodes = NULL};
    struct gpt_ids ids = {.data = NULL};

    if (gpt_token_map_open(&map, vocab.tokens, (size_t)vocab.n, &err))
        return false;
    whole = &map;
    for (int32_t id = 0; id < vocab.n; id++) {
        struct gpt_str token = vocab.tokens[id];

        ids.len = 0;
        if (gpt_token_map_add(&map, id) < 0 &&
            gpt_bpe_merge(bpe, &scratch, token.data, token.len, &ids, &err) ==
                GPT_OK && ids.data[0] != id)
            gpt_bpe_fix(bpe, id);
    }
    gpt_free(ids.data);
    return true;
}

/* ---- the definition ---- */

/* One merge: the pair of lowest rank, of equal ones the leftmost. */
static bool merge_once(int32_t *id, size_t *n)
{
    int32_t best = -1;
    size_t at = 0;

    for (size_t i = 0; i + 1 < *n; i++) {
        int32_t r = rank_of[id[i]][id[i + 1]];

        if (r >= 0 && (best < 0 || r < best)) {
            best = r;
            at = i;
        }
    }
    if (best < 0)
        return false;
    id[at] = vocab.merges[best].result;
    memmove(id + at + 1, id + at + 2, (*n - at - 2) * sizeof(*id));
    --*n;
    return true;
}

static size_t encode_slowly(const char *text, size_t len, int32_t *id)
{
    size_t n = 0;

    for (size_t at = 0; at < len;) {
        size_t piece = gpt_pretok_gpt2(text + at, len - at), k = piece;
        int32_t token =
            whole ? gpt_token_map_find(whole, text + at, piece) : -1;

        for (size_t i = 0; i < piece; i++)
            id[n + i] = vocab.byte_id[(uint8_t)text[at + i]];
        while (merge_once(id + n, &k))
            ;
        if (token >= 0) {
            id[n] = token;
            k = 1;
        }
        n += k;
        at += piece;
    }
    return n;
}

/* ---- the comparison ---- */

static bool encodes_alike(struct gpt_bpe_encoder *e, const char *text,
                          size_t len)
{
    static int32_t want[LONGEST];
    struct gpt_ids ids = {0};
    struct gpt_err err;
    size_t n = encode_slowly(text, len, want);
    bool same = gpt_bpe_encode(e, text, len, &ids, &err) == GPT_OK &&
                ids.len == n && memcmp(ids.data, want, n * sizeof(*want)) == 0;

    gpt_free(ids.data);
    return same;
}

/* Texts of up to `most` bytes made of `bits`. Each is encoded twice: the second
 * time the cache has it. It has its own block, so that a sanitizer sees reads
 * outside. */
static void test_texts(const char *name, const char *const *bits, uint32_t n,
                       size_t most, int rounds)
{
    struct gpt_bpe_model model = {.pretok = gpt_pretok_gpt2, .bpe = bpe,
                                  .whole = whole};
    struct gpt_bpe_encoder e;
    struct gpt_err err;
    int unlike = 0;

    if (!ok(gpt_bpe_encoder_open(&e, &model, &err) == GPT_OK, "encoder"))
        return;
    for (int round = 0; round < rounds; round++) {
        /* the cache would spare the second form of merging what the first one
         * has done, so each has texts of its own */
        e.late->merge = gpt_bpe_many_of(round % 2 ? "base" : "avx2");
        size_t len = 0, want = 1 + draw((uint32_t)most - 8);
        char text[LONGEST];

        while (len < want) {
            const char *bit = bits[draw(n)];

            memcpy(text + len, bit, strlen(bit));
            len += strlen(bit);
        }
        char *exact = malloc(len);
        memcpy(exact, text, len);
        unlike += !encodes_alike(&e, exact, len);
        unlike += !encodes_alike(&e, exact, len);
        free(exact);
    }
    is_int(unlike, 0, "%s: %d texts of up to %zu bytes", name, rounds, most);
    gpt_bpe_encoder_close(&e);
}

int main(void)
{
    static const char *const words[] = {
        "the", " the", " of", "ing", "tion", " a", "er", "s", "'s", ".", ", ",
        " 12", "\n", "  ", "x", "Q", "\xC3\xA9", "\xE4\xB8\x80", "\xFF"};
    static const char *const letters[] = {"a", "e", "t", "h", "i", "n",
                                          "the", "ing", "tion"};
    static const char *const signs[] = {"-", "=", "--", "*"};
    static const char *const same[] = {"a", "aa"};
    static const char *const han[] = {"\xE4\xB8\x80", "\xE3\x81\xAE",
                                      "\xE4\xBA\xBA", "\xE3\x83\xBC"};
    static const char *const mixed[] = {
        "\xE3\x81\xAE", "\xE3\x82\xB3", "\xE3\x83\xBC", "\xE4\xB8\x80",
        "\xE3\x80\x81", "\xE3\x80\x80", "\xEF\xBC\x91", "\xE0\xA4\x80",
        "\xED\xA0\x80", "\xE0\x80\x80", "\xE3\x81", "\xE2\x80\x99",
        "'s", "'", "re", " ", "\n", "a", "9", ".", "\xC3\xA9", "\xC2\xA0",
        "\xF0\x9F\x98\x80", "\x83", "\xFF"};

    if (!ok(open_golden(), "vocabulary"))
        return tap_done();
#define TEXTS(bits, most, rounds)                                              \
    test_texts(#bits, bits, GPT_COUNT(bits), most, rounds)
    TEXTS(words, 40, 3000);
    TEXTS(words, 900, 100);
    TEXTS(letters, 30, 3000);
    TEXTS(letters, 2500, 20);
    TEXTS(signs, 2500, 20);
    TEXTS(same, 5900, 6);
    TEXTS(han, 2000, 20);
    TEXTS(mixed, 40, 4000);
    TEXTS(mixed, 600, 200);
    close_all();
    for (int i = 0; i < 20; i++) {
        bool open = open_drawn("\xE3\xE3\x81\x82\x83\xAE\xB3\xBC\xE4\xB8\x80"
                               "\xE2 's.a", 30 + 30 * (size_t)i);

        if (ok(open, "vocabulary %d", i))
            TEXTS(mixed, 60, 500);
        if (ok(take_whole(), "vocabulary %d, of whole pieces, too", i))
            TEXTS(mixed, 60, 500);
        close_all();
    }
    return tap_done();
}
