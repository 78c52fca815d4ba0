/* The merges of a list of tokens, gpt_vocab_rank_tokens(): for drawn lists they
 * are those that a search of every cut in the list finds. */
#include "base/memory.h"
#include "tests/lib/tap.h"
#include "tokenizer/token_map.h"
#include "tokenizer/vocab.h"

enum { TOKENS = 1500, LONGEST = 80 };

static uint32_t seed = 3;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static int64_t find_slowly(const struct gpt_vocab *v, const char *p, size_t len)
{
    for (int64_t id = 0; id < v->n; id++)
        if (v->tokens[id].len == len && memcmp(v->tokens[id].data, p, len) == 0)
            return id;
    return -1;
}

/* The bytes, then tokens that are mostly two others put together, so that many
 * have several cuts; some are longer than any table's key, and some numbers
 * have no token. */
static bool draw_tokens(struct gpt_vocab *v, struct gpt_token_map *map,
                        const char *letters)
{
    struct gpt_err err;

    *v = (struct gpt_vocab){.eod = -1};
    if (gpt_new(&v->tokens, TOKENS, sizeof(*v->tokens), "", &err) != GPT_OK ||
        gpt_token_map_open(map, v->tokens, TOKENS, &err) != GPT_OK)
        return false;
    for (; v->n < TOKENS; v->n++) {
        char bytes[2 * LONGEST];
        size_t len = 1;

        if (v->n < 256) {
            bytes[0] = (char)v->n;
        } else if (draw(20) == 0) {
            continue;
        } else {
            len = 0;
            for (int i = 0; i < 2; i++) {
                struct gpt_str part = v->tokens[draw((uint32_t)v->n)];

                if (draw(3) == 0 || part.len == 0 || part.len > LONGEST / 2)
                    part = (struct gpt_str){
                        letters + draw((uint32_t)strlen(letters)), 1};
                memcpy(bytes + len, part.data, part.len);
                len += part.len;
            }
            if (find_slowly(v, bytes, len) >= 0)
                continue;
        }
        char *own = gpt_arena_alloc(&v->arena, len, 1);
        memcpy(own, bytes, len);
        v->tokens[v->n] = (struct gpt_str){own, len};
        gpt_token_map_add(map, (int32_t)v->n);
    }
    return true;
}

static bool same_merges(const struct gpt_vocab *v)
{
    size_t n = 0;

    for (int64_t id = 0; id < v->n; id++)
        for (size_t cut = 1; cut < v->tokens[id].len; cut++) {
            const char *p = v->tokens[id].data;
            int64_t left = find_slowly(v, p, cut);
            int64_t right = find_slowly(v, p + cut, v->tokens[id].len - cut);

            if (left < 0 || right < 0)
                continue;
            if (n == v->n_merges || v->merges[n].left != left ||
                v->merges[n].right != right || v->merges[n].result != id)
                return false;
            n++;
        }
    return n == v->n_merges && n > 0;
}

/* Of tokens with one text the first keeps its id, 0 included. */
static void test_doubles(void)
{
    struct gpt_str tokens[] = {{"a", 1}, {"b", 1}, {"a", 1}};
    struct gpt_token_map map;
    struct gpt_err err;

    if (!ok(gpt_token_map_open(&map, tokens, 3, &err) == GPT_OK, "a map"))
        return;
    ok(gpt_token_map_add(&map, 0) < 0 && gpt_token_map_add(&map, 1) < 0,
       "two texts");
    is_int(gpt_token_map_add(&map, 2), 0, "the first one's again");
    is_int(gpt_token_map_find(&map, "a", 1), 0, "and that is kept");
    gpt_token_map_close(&map);
}

int main(void)
{
    static const char *const letters[] = {"ab", "abcdefghijklmnop", "\xE3\x81",
                                          " e\xC3"};

    for (size_t i = 0; i < GPT_COUNT(letters); i++) {
        struct gpt_vocab v;
        struct gpt_token_map map;
        struct gpt_err err;

        ok(draw_tokens(&v, &map, letters[i]) &&
               gpt_vocab_rank_tokens(&v, &map, "drawn", &err) == GPT_OK &&
               same_merges(&v),
           "list %zu: a merge for each cut into two tokens", i);
        gpt_token_map_close(&map);
        gpt_vocab_free(&v);
    }
    test_doubles();
    return tap_done();
}
