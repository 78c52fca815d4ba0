/* Compares seams with a search through all tokens, in vocabularies that hold
 * every part of two characters of three bytes. */
#include "tests/lib/tap.h"
#include "tokenizer/bpe/seams.h"

/* True when a token of v could lie across place `at` of p[0..len). */
static bool crossed(const struct gpt_vocab *v, const uint8_t *p, size_t len,
                    size_t at)
{
    for (int64_t id = 0; id < v->n; id++) {
        const struct gpt_str t = v->tokens[id];

        for (size_t k = 1; k < t.len; k++)
            if (k <= at && t.len - k <= len - at &&
                memcmp(p + at - k, t.data, t.len) == 0)
                return true;
    }
    return false;
}

/* Every cut must be right; at most `most` may be missed. */
static void test_tokens(const char *name, struct gpt_str *tokens, int64_t n,
                        const char *text, long most)
{
    struct gpt_vocab v = {.tokens = tokens, .n = n};
    struct gpt_seams s = {.shift = 0};
    struct gpt_err err;
    const uint8_t *p = (const uint8_t *)text;
    size_t len = strlen(text);
    long wrong = 0, missed = 0;

    if (gpt_seams_open(&s, &v, &err) != GPT_OK) {
        ok(false, "%s: %s", name, err.text);
        return;
    }
    for (size_t from = 0; from + 1 < len; from++) {
        uint64_t cuts = gpt_seams_of(&s, text + from, len - from);

        for (size_t i = 0; i < 64 && i + 1 < len - from; i++) {
            bool cut = cuts >> i & 1;
            bool cross = crossed(&v, p + from, len - from, i + 1);

            wrong += cut && cross;
            missed += from == 0 && !cut && !cross;
        }
    }
    ok(wrong == 0 && missed <= most,
       "%s: %ld cuts where a token may be; %ld missed, limit %ld", name, wrong,
       missed, most);
    gpt_seams_close(&s);
}

#define SOME "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\xE3\x81\xAE\xE3\x80\x81" \
             "\xE4\xB8\xAD\xE6\x96\x87\xE3\x81\xAE"

int main(void)
{
    static const char text[] =
        SOME "a b" SOME " \xE6\x97\xA5" "b\xE6\x9C\xAC\xC3\xA9\xE6\x97\xA5"
        "\xF0\x9F\x98\x80\xE6\x97\xA5\xE6\x9C";
    struct gpt_str tokens[80];
    int64_t n = 0;

    for (size_t at = 0; at < 21; at += 3)
        for (size_t left = 1; left <= 4 && left <= at; left++)
            for (size_t right = 1; right <= 4; right++) {
                tokens[0] = (struct gpt_str){&SOME[at - left], left + right};
                char name[64];
                snprintf(name, sizeof(name), "%zu and %zu bytes at %zu", left,
                         right, at);
                test_tokens(name, tokens, 1, text, 8);
            }
    for (size_t i = 0; i < 20; i += 5)
        for (size_t len = 2; len < 12 && i + len <= 24; len++)
            tokens[n++] = (struct gpt_str){&SOME[i], len};
    tokens[n++] = (struct gpt_str){"b\xE6\x97", 3};
    tokens[n++] = (struct gpt_str){"\x81" "a", 2};
    tokens[n++] = (struct gpt_str){" \xE6", 2};
    test_tokens("all", tokens, n, text, 30);
    test_tokens("no tokens", tokens, 0, text, 0);
    return tap_done();
}
