/* Vocabulary training with corpora that are small enough to merge by hand, and
 * the counting of pieces. tests/parity/vocab_parity.py compares whole corpora
 * with Hugging Face's trainer. */
#include "base/memory.h"
#include "tests/lib/tap.h"
#include "tokenizer/bpe/train_pairs.h"
#include "tokenizer/bytelevel.h"
#include "cmd/vocab/piece_count.h"

/* Merges as text: "t+h th+e", of tokens that are all ASCII letters. */
static const char *merges_text(const struct gpt_bpe_trained *m)
{
    static char text[1024];
    char token[GPT_BPE_BYTES + 32][32];
    size_t n = 0;

    for (int i = 0; i < GPT_BPE_BYTES; i++)
        snprintf(token[i], sizeof(token[i]), "%c", gpt_byte_of_rank(i));
    text[0] = '\0';
    for (int64_t i = 0; i < m->n_merges && i < 32; i++) {
        const char *left = token[m->merges[i].left];
        const char *right = token[m->merges[i].right];
        char both[sizeof(token[0])];

        snprintf(both, sizeof(both), "%.15s%.15s", left, right);
        memcpy(token[GPT_BPE_BYTES + i], both, sizeof(both));
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s+%s",
                              i ? " " : "", left, right);
    }
    return text;
}

struct word {
    const char *text;
    int64_t count;
};

static const struct {
    const char *what;
    struct word words[6]; /* up to the first NULL */
    int64_t max_merges, min_frequency;
    const char *merges;
    int64_t n_tokens; /* that the words make in the end */
} cases[] = {
    {"the most frequent pair first", {{"the", 5}, {"then", 3}, {"hat", 1}},
     2, 1, "h+e t+he", 5 + 3 * 2 + 3},
    {"of equals the smallest left id", {{"cd", 2}, {"ab", 2}}, 2, 1,
     "a+b c+d", 4},
    {"of equals the smallest right id", {{"ac", 2}, {"ab", 2}}, 2, 1,
     "a+b a+c", 4},
    {"a byte sorts before any merge", {{"abab", 1}, {"zz", 2}}, 3, 1,
     "a+b z+z ab+ab", 1 + 2},
    {"counts fall as merges take neighbours", /* bc: 7, then 3 */
     {{"abc", 4}, {"bc", 3}, {"ab", 4}, {"de", 4}}, 3, 1, "a+b d+e ab+c",
     4 + 3 * 2 + 4 + 4},
    {"a run counts every place, merges from the left", {{"aaaaa", 1}}, 9, 1,
     "a+a aa+a aa+aaa", 1},
    {"a run of merged pairs", {{"abababab", 1}, {"b", 9}}, 9, 1,
     "a+b ab+ab abab+abab", 1 + 9},
    {"neighbours made in the same pass", {{"xababy", 2}}, 9, 2,
     "a+b x+ab ab+y xab+aby", 2},
    {"the frequency is a floor", {{"ab", 3}, {"cd", 2}, {"ef", 1}}, 9, 2,
     "a+b c+d", 1 * 3 + 2 + 2},
    {"no merge is asked for", {{"ab", 3}}, 0, 1, "", 6},
    {"nothing to merge", {{"a", 3}, {"b", 1}}, 9, 1, "", 4},
    {"no pieces", {{NULL, 0}}, 9, 1, "", 0},
};

static void test_cases(void)
{
    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        struct gpt_word pieces[GPT_COUNT(cases[i].words)];
        struct gpt_bpe_train_options options = {
            .max_merges = cases[i].max_merges,
            .min_frequency = cases[i].min_frequency};
        struct gpt_bpe_trained model;
        struct gpt_err err;
        size_t n = 0;

        for (const struct word *w = cases[i].words; w->text; w++)
            pieces[n++] = (struct gpt_word){w->text, strlen(w->text),
                                             w->count};
        if (!ok(gpt_bpe_train(&model, pieces, n, &options, &err) == GPT_OK,
                "%s", cases[i].what))
            continue;
        is_str(merges_text(&model), cases[i].merges, "... merges");
        is_int(model.n_tokens, cases[i].n_tokens, "... tokens left");
        gpt_bpe_trained_free(&model);
    }
}

/* One piece of a million letters must not take a million times longer. */
static void test_long_piece(void)
{
    enum { LEN = 1 << 20 };
    struct gpt_bpe_train_options options = {.max_merges = 100,
                                            .min_frequency = 2};
    struct gpt_bpe_trained model;
    struct gpt_err err;
    char *text = gpt_alloc(LEN, 1);
    memset(text, 'a', LEN);
    struct gpt_word piece = {text, LEN, 1};
    if (ok(gpt_bpe_train(&model, &piece, 1, &options, &err) == GPT_OK,
           "a piece of 2^20 equal letters")) {
        is_int(model.n_merges, 19, "... doubles 19 times");
        is_int(model.n_tokens, 2, "... and ends as two tokens");
        gpt_bpe_trained_free(&model);
    }
    gpt_free(text);
}

static void test_many_words(struct gpt_piece_counter *c)
{
    char word[16];
    struct gpt_err err;
    bool added = true;

    for (int i = 0; i < 20000; i++) {
        int n = snprintf(word, sizeof(word), "w%d", i % 10000);

        added &= gpt_piece_counter_add(c, word, (size_t)n, 1 + i / 10000,
                                       &err) == GPT_OK;
    }
    ok(added, "20000 pieces are taken");
}

static int64_t count_of(const struct gpt_word *list, size_t n,
                        const char *text, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].len == len && memcmp(list[i].data, text, len) == 0)
            return list[i].count;
    return 0;
}

static void test_counter(void)
{
    struct gpt_piece_counter *a, *b;
    struct gpt_word *list;
    struct gpt_err err;
    static const char text[] = "the cat, the dog's \n the\0the";

    if (gpt_piece_counter_open(&a, &err) != GPT_OK ||
        gpt_piece_counter_open(&b, &err) != GPT_OK) {
        ok(false, "counters open");
        return;
    }
    test_many_words(a);
    is_int(gpt_piece_counter_size(a), 10000, "half of them are distinct");
    ok(gpt_piece_counter_text(b, gpt_pretok_gpt2, text, sizeof(text) - 1,
                              &err) == GPT_OK, "a text is counted");
    is_int(gpt_piece_counter_size(b), 8, "eight distinct pieces");
    ok(gpt_piece_counter_merge(a, b, &err) == GPT_OK &&
           gpt_piece_counter_merge(a, b, &err) == GPT_OK,
       "counters are added up");
    size_t n = gpt_piece_counter_size(a);
    is_int(n, 10008, "pieces of both");
    if (ok(gpt_piece_counter_list(a, &list, &err) == GPT_OK, "the list")) {
        is_int(count_of(list, n, "w77", 3), 3, "1 + 2");
        is_int(count_of(list, n, " the", 4), 4, "twice in the text, twice");
        is_int(count_of(list, n, "the", 3), 4, "first and last, twice");
        is_int(count_of(list, n, "'s", 2), 2, "a contraction");
        is_int(count_of(list, n, " \n", 2), 2, "white space but the last");
        is_int(count_of(list, n, "\0", 1), 2, "a NUL");
        is_int(count_of(list, n, "dog", 3), 0, "not without its space");
        gpt_free(list);
    }
    gpt_piece_counter_close(a);
    gpt_piece_counter_close(b);
}

/* A heap of many pairs, of which some have equal counts and some fall. */
static void test_order(void)
{
    enum { N = 500 };
    struct gpt_bpe_pairs pairs = {.n = 0};
    struct gpt_err err;
    int64_t last = INT64_MAX;
    int32_t left = 0;
    int taken = 0, wrong = 0;

    for (int32_t i = 0; i < N; i++) {
        const struct gpt_bpe_pair pair = {i, 1, 1 + i * 7919 % 101, NULL, 0};

        wrong += gpt_bpe_pairs_add(&pairs, &pair, &err) != GPT_OK;
    }
    for (int32_t i = 0; i < N; i += 3)
        gpt_bpe_pairs_lower(&pairs, i, 1, i * 7919 % 101 / 2);
    for (struct gpt_bpe_pair *p; (p = gpt_bpe_pairs_take(&pairs)); taken++) {
        wrong += p->count > last || (p->count == last && p->left < left);
        last = p->count;
        left = p->left;
    }
    ok(taken == N && wrong == 0, "pairs come by falling counts");
    gpt_bpe_pairs_free(&pairs);
}

int main(void)
{
    test_order();
    test_cases();
    test_long_piece();
    test_counter();
    return tap_done();
}
