/* Ids of the batched encoder against merging written as its definition says:
 * texts that are hard on the cache, on the splitting of long pieces, and on the
 * windows of pieces without end. Runs at the top of the source tree. */
#include "base/memory.h"
#include "tests/lib/tap.h"
#include "text/bpe_encoder.h"
#include "text/vocab.h"

#define GOLDEN "tests/golden/gpt2/"
enum { TOKENS = 1000, LONGEST = 6000 };

static struct gpt_vocab vocab;
static struct gpt_bpe *bpe;
static int32_t rank_of[TOKENS][TOKENS]; /* -1: not merged */

static bool open_all(void)
{
    struct gpt_err err;
    if (gpt_vocab_load(&vocab, GOLDEN "vocab.json", GOLDEN "merges.txt",
                       &err) != GPT_OK ||
        gpt_bpe_open(&bpe, &vocab, GOLDEN "merges.txt", &err) != GPT_OK ||
        vocab.n > TOKENS) {
        printf("# %s\n", err.text);
        return false;
    }
    memset(rank_of, -1, sizeof(rank_of));
    for (size_t r = 0; r < vocab.n_merges; r++)
        rank_of[vocab.merges[r].left][vocab.merges[r].right] = (int32_t)r;
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
        for (size_t i = 0; i < piece; i++)
            id[n + i] = vocab.byte_id[(uint8_t)text[at + i]];
        while (merge_once(id + n, &k))
            ;
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

static uint32_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

/* Texts of up to `most` bytes out of `bits`, each encoded twice: the second
 * time it is known. In a block of its own for a sanitizer to watch. */
static void test_texts(const char *name, const char *const *bits, uint32_t n,
                       size_t most, int rounds)
{
    struct gpt_bpe_model model = {.pretok = gpt_pretok_gpt2, .bpe = bpe};
    struct gpt_bpe_encoder e;
    struct gpt_err err;
    int unlike = 0;
    if (!ok(gpt_bpe_encoder_open(&e, &model, &err) == GPT_OK, "encoder"))
        return;
    for (int round = 0; round < rounds; round++) {
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
    if (!ok(open_all(), "vocabulary"))
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
    gpt_bpe_close(bpe);
    gpt_vocab_free(&vocab);
    return tap_done();
}
