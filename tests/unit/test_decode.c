/* Compares decoding with the cache and a naive forward pass in double: every
 * position, several architectures, prompts longer than a block, texts of
 * different lengths together, slots that are used again. */
#include "model/abilities.h"
#include "tests/lib/naive.h"
#include "tests/lib/tap.h"

#include <assert.h>

/* ---- comparisons ---- */

/* The largest difference, relative to the largest logit. */
static double distance(const float *a, const double *b, int64_t n)
{
    double most = 0, scale = 0;

    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)a[i] - b[i]);

        most = off <= most ? most : off; /* NaN gets through */
        scale = fmax(scale, fabs(b[i]));
    }
    return most / scale;
}

static void make_text(int32_t *tokens, int64_t n, int64_t vocab, int salt)
{
    struct gpt_rng rng = gpt_rng_open((uint64_t)salt, "text");

    for (int64_t i = 0; i < n; i++)
        tokens[i] =
            (int32_t)(gpt_rng_u32(rng, (uint64_t)i) % (uint32_t)vocab);
}

/* Every way to bring t tokens into a slot gives the naive logits. */
static void test_forms(struct model *m, const char *what, int64_t t)
{
    int64_t v = m->c.vocab_size;
    int32_t *tokens = gpt_alloc((size_t)t, sizeof(*tokens));

    make_text(tokens, t, v, 1);
    double *want = naive_logits(m, tokens, t);
    float *got = gpt_alloc((size_t)(t * v), sizeof(*got));
    struct gpt_decoder *d = decoder_of(m, 3, t);
    struct gpt_err err = {0};
    int32_t slot = 2;

    must(gpt_decoder_append(d, slot, tokens, t, GPT_LOGITS_ALL, got, &err),
         &err);
    double off = distance(got, want, t * v);
    ok(off < 1e-4, "%s: whole text at once: %.1e", what, off);

    gpt_decoder_truncate(d, slot, 0);
    for (int64_t i = 0; i < t; i++)
        must(gpt_decoder_step(d, &slot, tokens + i, 1, got + i * v, &err),
             &err);
    off = distance(got, want, t * v);
    ok(off < 1e-4, "%s: one by one: %.1e", what, off);

    int64_t cut = t / 3 + 1;
    gpt_decoder_truncate(d, slot, cut);
    must(gpt_decoder_append(d, slot, tokens + cut, t - cut, GPT_LOGITS_LAST,
                            got, &err),
         &err);
    off = distance(got, want + (t - 1) * v, v);
    ok(off < 1e-4, "%s: cut back and appended: %.1e", what, off);
    is_int(gpt_decoder_length(d, slot), t, "%s: length", what);
    gpt_decoder_close(d);
    gpt_free(tokens);
    gpt_free(want);
    gpt_free(got);
}

/* Texts of lengths 1, 4, 7... advance together; each one's logits are, to the
 * bit, those that it has alone. */
static void test_side_by_side(struct model *m)
{
    enum { N = 5, STEPS = 6, T = 32 };
    int64_t v = m->c.vocab_size;
    int32_t text[N][T], slots[N], next[N];
    float *together = gpt_alloc((size_t)(N * v), sizeof(*together));
    float *alone = gpt_alloc((size_t)v, sizeof(*alone));
    struct gpt_decoder *d = decoder_of(m, N, T), *one = decoder_of(m, 1, T);
    struct gpt_err err = {0};
    int differ = 0;
    for (int i = 0; i < N; i++) {
        make_text(text[i], T, v, 10 + i);
        slots[i] = (i * 2 + 1) % N;
        must(gpt_decoder_append(d, slots[i], text[i], 1 + 3 * i,
                                GPT_LOGITS_LAST, together, &err),
             &err);
    }
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < N; i++)
            next[i] = text[i][1 + 3 * i + s];
        must(gpt_decoder_step(d, slots, next, N, together, &err), &err);
        for (int i = 0; i < N; i++) {
            gpt_decoder_truncate(one, 0, 0);
            must(gpt_decoder_append(one, 0, text[i], 1 + 3 * i,
                                    GPT_LOGITS_LAST, alone, &err),
                 &err);
            int32_t slot = 0;
            for (int k = 0; k <= s; k++)
                must(gpt_decoder_step(one, &slot, text[i] + 1 + 3 * i + k, 1,
                                      alone, &err),
                     &err);
            differ += memcmp(alone, together + i * v,
                             (size_t)v * sizeof(*alone)) != 0;
        }
    }
    is_int(differ, 0, "texts side by side do not touch each other");
    gpt_decoder_close(d);
    gpt_decoder_close(one);
    gpt_free(together);
    gpt_free(alone);
}

/* Pieces of any length in one call, some longer than a block, have the bits
 * that each of them has alone. */
static void test_pieces(struct model *m)
{
    enum { N = 9, T = 300, SUM = 923 };
    static const int64_t lengths[N] = {3, 40, 1, 17, 300, 16, 200, 256, 90};
    const int64_t v = m->c.vocab_size;
    int32_t *text = gpt_alloc(N * T, sizeof(*text));
    float *together = gpt_alloc((size_t)(SUM * v), sizeof(*together));
    float *alone = gpt_alloc((size_t)(T * v), sizeof(*alone));
    struct gpt_decoder *d = decoder_of(m, N, T), *one = decoder_of(m, 1, T);
    struct gpt_decode_piece pieces[N];
    struct gpt_err err = {0};
    int64_t row = 0;
    int differ = 0, last = 0;

    for (int i = 0; i < N; i++) {
        make_text(text + i * T, T, v, 50 + i);
        pieces[i] = (struct gpt_decode_piece){.slot = (i * 2 + 1) % N,
                                              .n = lengths[i],
                                              .tokens = text + i * T};
    }
    must(gpt_decoder_extend(d, pieces, N, GPT_LOGITS_ALL, together, &err),
         &err);
    for (int i = 0; i < N; i++) {
        const size_t bytes = (size_t)(lengths[i] * v) * sizeof(*alone);

        gpt_decoder_truncate(one, 0, 0);
        must(gpt_decoder_append(one, 0, pieces[i].tokens, lengths[i],
                                GPT_LOGITS_ALL, alone, &err),
             &err);
        differ += memcmp(alone, together + row * v, bytes) != 0;
        row += lengths[i];
        memcpy(alone, together + (row - 1) * v, (size_t)v * sizeof(*alone));
        memmove(together + i * v, alone, (size_t)v * sizeof(*alone));
        gpt_decoder_truncate(d, pieces[i].slot, 0);
    }
    is_int(differ, 0, "pieces side by side do not touch each other");
    float *ends = together + N * v;
    must(gpt_decoder_extend(d, pieces, N, GPT_LOGITS_LAST, ends, &err), &err);
    last = memcmp(together, ends, (size_t)(N * v) * sizeof(*ends));
    is_int(last, 0, "and their last logits alone are the same");
    gpt_decoder_close(d);
    gpt_decoder_close(one);
    gpt_free(text);
    gpt_free(together);
    gpt_free(alone);
}

/* Weights in a form; NULL: floats, as they are. */
static struct gpt_quant_store *store_of(struct model *m,
                                        struct gpt_quant_form form)
{
    struct gpt_quant_store *store = NULL;
    struct gpt_err err = {0};

    if (!gpt_quant_store_wanted(m->be, form))
        return NULL;
    must(gpt_quant_store_open(&store, m->be, &m->flat, form, &err), &err);
    for (int64_t i = 0; i < m->flat.n; i++)
        must(gpt_quant_store_put(store, i, m->w + m->flat.slices[i].offset,
                                 &err),
             &err);
    return store;
}

/* A prompt of several chunks has the bits that it has when its first chunk is
 * in the slot already, copied from another text or put in by a call of its own.
 */
static void test_cuts(struct model *m, struct gpt_quant_form form,
                      bool narrow_cache)
{
    enum { T = 512 };
    static const int64_t lengths[] = {264, 272, 273, 300, 511, 512};
    const int64_t v = m->c.vocab_size;
    int32_t text[T];
    float *whole = gpt_alloc((size_t)v, sizeof(*whole));
    float *cut = gpt_alloc((size_t)v, sizeof(*cut));
    struct gpt_quant_store *store = store_of(m, form);
    const struct gpt_decoder_options o = {.config = &m->c,
                                          .flat = &m->flat,
                                          .act = GPT_F32,
                                          .slots = 1,
                                          .positions = T,
                                          .narrow_cache = narrow_cache,
                                          .quant = store};
    struct gpt_decoder *d = NULL;
    struct gpt_err err = {0};
    int differ = 0;

    must(gpt_decoder_open(&d, m->be, &o, m->device, &err), &err);
    make_text(text, T, v, 90);
    for (size_t i = 0; i < GPT_COUNT(lengths); i++) {
        const int64_t n = lengths[i] - GPT_DECODE_CHUNK;

        gpt_decoder_truncate(d, 0, 0);
        must(gpt_decoder_append(d, 0, text, lengths[i], GPT_LOGITS_LAST, whole,
                                &err),
             &err);
        gpt_decoder_truncate(d, 0, 0);
        must(gpt_decoder_append(d, 0, text, GPT_DECODE_CHUNK, GPT_LOGITS_LAST,
                                cut, &err),
             &err);
        must(gpt_decoder_append(d, 0, text + GPT_DECODE_CHUNK, n,
                                GPT_LOGITS_LAST, cut, &err),
             &err);
        differ += memcmp(whole, cut, (size_t)v * sizeof(*cut)) != 0;
    }
    is_int(differ, 0, "%s-%lld: a prompt's bits do not depend on its cuts",
           gpt_dtype_name(form.type), (long long)form.group);
    gpt_decoder_close(d);
    gpt_quant_store_close(store);
    gpt_free(whole);
    gpt_free(cut);
}

/* Rows of products, in the order of calls. */
static struct {
    int64_t m[160], n;
} shapes;

static void note_shape(struct gpt_queue *q, const struct gpt_matmul *op)
{
    (void)q;
    assert(shapes.n < (int64_t)GPT_COUNT(shapes.m));
    shapes.m[shapes.n++] = op->m;
}

/* Where sums follow the shapes of products, what comes after a chunk has the
 * same shapes whether that chunk is there already or not. */
static void test_shapes(struct model *m)
{
    enum { T = 500 };
    int32_t text[T];
    float *logits = gpt_alloc((size_t)m->c.vocab_size, sizeof(*logits));
    struct gpt_backend be = *m->be, *own = m->be;
    struct gpt_err err = {0};

    be.abilities &= ~(unsigned)GPT_CAN_CHOOSE_SUMS;
    be.matmul = note_shape;
    m->be = &be;
    struct gpt_decoder *d = decoder_of(m, 1, T);
    shapes.n = 0;
    make_text(text, T, m->c.vocab_size, 91);
    must(gpt_decoder_append(d, 0, text, T, GPT_LOGITS_LAST, logits, &err),
         &err);
    const int64_t whole = shapes.n;
    gpt_decoder_truncate(d, 0, GPT_DECODE_CHUNK);
    must(gpt_decoder_append(d, 0, text + GPT_DECODE_CHUNK, T - GPT_DECODE_CHUNK,
                            GPT_LOGITS_LAST, logits, &err),
         &err);
    const int64_t rest = shapes.n - whole;
    ok(rest < whole && memcmp(shapes.m + whole - rest, shapes.m + whole,
                              (size_t)rest * sizeof(*shapes.m)) == 0,
       "shapes do not depend on what is copied");
    gpt_decoder_close(d);
    m->be = own;
    gpt_free(logits);
}

/* What is guessed is checked with the bits that the tokens have one by one,
 * also beside texts with other numbers of guesses. */
static void test_few_at_once(struct model *m)
{
    enum { N = 3, T = 32 };
    const int64_t v = m->c.vocab_size;
    int32_t text[N][T];
    float *together = gpt_alloc((size_t)(N * T * v), sizeof(*together));
    float *alone = gpt_alloc((size_t)v, sizeof(*alone));
    struct gpt_decoder *d = decoder_of(m, N, T), *one = decoder_of(m, 1, T);
    struct gpt_decode_piece pieces[N];
    struct gpt_err err = {0};
    int64_t row = 0;
    int differ = 0;

    for (int i = 0; i < N; i++) {
        make_text(text[i], T, v, 70 + i);
        pieces[i] = (struct gpt_decode_piece){
            .slot = i,
            .n = i == 1 ? 3 : GPT_DECODE_SAME_BITS,
            .tokens = text[i] + 9 + i,
            .one_by_one = true,
        };
        must(gpt_decoder_append(d, i, text[i], 9 + i, GPT_LOGITS_LAST, alone,
                                &err),
             &err);
    }
    must(gpt_decoder_extend(d, pieces, N, GPT_LOGITS_ALL, together, &err),
         &err);
    const int32_t slot = 0;
    for (int i = 0; i < N; i++) {
        gpt_decoder_truncate(one, 0, 0);
        must(gpt_decoder_append(one, 0, text[i], 9 + i, GPT_LOGITS_LAST, alone,
                                &err),
             &err);
        for (int64_t k = 0; k < pieces[i].n; k++, row++) {
            must(gpt_decoder_step(one, &slot, pieces[i].tokens + k, 1, alone,
                                  &err),
                 &err);
            differ += memcmp(alone, together + row * v,
                             (size_t)v * sizeof(*alone)) != 0;
        }
    }
    is_int(differ, 0, "a few tokens at once are as one by one");
    gpt_decoder_close(d);
    gpt_decoder_close(one);
    gpt_free(together);
    gpt_free(alone);
}

static void test_together(struct model *m, bool pieces)
{
    test_side_by_side(m);
    test_few_at_once(m);
    if (pieces) {
        test_pieces(m);
        test_shapes(m);
        test_cuts(m, (struct gpt_quant_form){.type = GPT_F32}, false);
        test_cuts(m, (struct gpt_quant_form){.type = GPT_F32}, true);
        for (int i = 0; i < 2; i++) {
            test_cuts(m, (struct gpt_quant_form){GPT_BF16, 0, i}, i);
            test_cuts(m, (struct gpt_quant_form){GPT_I8, 0, i}, i);
            test_cuts(m, (struct gpt_quant_form){GPT_I8, 32, i}, i);
        }
    }
}

/* The logits of token n - 1 are those of the first n tokens as a text. */
static void check_last(struct model *m, const char *what, const int32_t *text,
                       int64_t n, const float *got)
{
    const int64_t v = m->c.vocab_size;
    double *want = naive_logits(m, text, n);
    const double off = distance(got, want + (n - 1) * v, v);

    ok(off < 1e-4, "%s: %lld tokens: %.1e", what, (long long)n, off);
    gpt_free(want);
}

/* A text that grows past the positions of pretraining, one that is cut back,
 * one that is copied, two that are turned otherwise side by side, and one of
 * which it is known how long it will be. */
static void test_long_texts(struct model *m)
{
    enum { T = 20 };
    const int64_t v = m->c.vocab_size;
    struct gpt_decoder *d = decoder_of(m, 3, T);
    float *got = gpt_alloc((size_t)(T * v), sizeof(*got));
    const int32_t slot = 1, both[2] = {1, 2};
    int32_t text[T], next[2];
    struct gpt_err err = {0};

    make_text(text, T, v, 90);
    for (int64_t n = 1; n <= T; n++) {
        must(gpt_decoder_step(d, &slot, text + n - 1, 1, got, &err), &err);
        check_last(m, "longrope, one by one", text, n, got);
    }
    must(gpt_decoder_copy(d, 1, 2, 5, &err), &err);
    gpt_decoder_truncate(d, 1, T - 1);
    next[0] = text[T - 1];
    next[1] = text[5];
    must(gpt_decoder_step(d, both, next, 2, got, &err), &err);
    check_last(m, "longrope, beside a short text", text, T, got);
    check_last(m, "longrope, copied from a long text", text, 6, got + v);
    gpt_decoder_truncate(d, 1, 7);
    must(gpt_decoder_append(d, 1, text + 7, 3, GPT_LOGITS_LAST, got, &err),
         &err);
    check_last(m, "longrope, cut back", text, 10, got);
    must(gpt_decoder_append(d, 1, text + 10, 7, GPT_LOGITS_ALL, got, &err),
         &err);
    check_last(m, "longrope, appended", text, 17, got + 6 * v);

    const struct gpt_decode_piece piece = {
        .slot = 0, .n = 5, .tokens = text, .whole = T};
    double *want = naive_logits(m, text, T);
    must(gpt_decoder_extend(d, &piece, 1, GPT_LOGITS_ALL, got, &err), &err);
    double off = distance(got, want, 5 * v);
    ok(off < 1e-4, "longrope, the beginning of a long text: %.1e", off);
    gpt_free(want);
    gpt_free(got);
    gpt_decoder_close(d);
}

static void test_refusals(struct model *m)
{
    struct gpt_decoder *d = decoder_of(m, 2, 8);
    int32_t tokens[9] = {0}, bad[2] = {1, (int32_t)m->c.vocab_size};
    int32_t slot = 1, negative = -1;
    float *logits = gpt_alloc((size_t)m->c.vocab_size, sizeof(*logits));
    struct gpt_err err = {0};

    is_int(gpt_decoder_append(d, 1, bad, 2, GPT_LOGITS_LAST, logits, &err),
           GPT_EDATA, "a dummy row's id is refused");
    ok(strstr(err.text, "vocabulary") != NULL, "saying so: %s", err.text);
    is_int(gpt_decoder_step(d, &slot, &negative, 1, logits, &err), GPT_EDATA,
           "a negative id is refused");
    is_int(gpt_decoder_append(d, 1, tokens, 9, GPT_LOGITS_LAST, logits, &err),
           GPT_EDATA, "a text longer than its slot is refused");
    is_int(gpt_decoder_length(d, 1), 0, "the slot stays as it was");
    is_int(gpt_decoder_append(d, 1, tokens, 8, GPT_LOGITS_LAST, logits, &err),
           GPT_OK, "one as long as the slot is not");
    is_int(gpt_decoder_step(d, &slot, tokens, 1, logits, &err), GPT_EDATA,
           "and then it is full");
    gpt_decoder_close(d);
    gpt_free(logits);

    const struct {
        int64_t slots, positions;
    } wrong[] = {{0, 8}, {1, 0}, {1, m->c.max_positions + 1}, {70000, 8}};
    for (size_t i = 0; i < GPT_COUNT(wrong); i++) {
        struct gpt_decoder_options o = {
            .config = &m->c,
            .flat = &m->flat,
            .act = GPT_F32,
            .slots = wrong[i].slots,
            .positions = wrong[i].positions,
        };

        d = NULL;
        is_int(gpt_decoder_open(&d, m->be, &o, m->device, &err), GPT_EUSAGE,
               "%lld slots of %lld are refused", (long long)wrong[i].slots,
               (long long)wrong[i].positions);
    }
}

/* Keys and values in bf16 take half the memory, where a backend has them. */
static void test_cache_ability(struct model *m)
{
    struct gpt_decoder_options o = {
        .config = &m->c, .flat = &m->flat, .act = GPT_F32, .slots = 2,
        .positions = 40};
    struct gpt_backend be = *m->be;
    struct gpt_decoder *d = NULL;
    struct gpt_err err = {0};
    int64_t wide = 0, narrow = 0;

    must(gpt_decoder_memory(&wide, &o, &err), &err);
    o.narrow_cache = true;
    must(gpt_decoder_memory(&narrow, &o, &err), &err);
    is_int(wide - narrow,
           2 * 2 * gpt_cache_rows(40) * m->c.num_layers *
               m->c.num_query_groups * m->c.head_size * 2,
           "two bytes less for each key and value");
    be.abilities &= ~(unsigned)GPT_CAN_NARROW_CACHE;
    is_int(gpt_decoder_open(&d, &be, &o, m->device, &err), GPT_EDEVICE,
           "a device without them refuses keys and values in bf16");
    ok(strstr(err.text, "keys and values") != NULL, "by name: %s", err.text);
}

/* A backend says what it computes; a model that asks for more is refused. */
static void test_abilities(struct model *m)
{
    static const struct {
        enum gpt_ability ability;
        const char *field;
        struct gpt_config c;
    } rows[] = {
        {GPT_CAN_WINDOW, "window_size", {.num_layers = 1, .window_size = 3}},
        {GPT_CAN_CAP, "attn_logit_softcapping", {.attn_logit_softcapping = 1}},
        {GPT_CAN_CAP, "final_logit_softcapping",
         {.final_logit_softcapping = 1}},
        {GPT_CAN_SCALE_WORDS, "scale_embedding", {.scale_embedding = true}},
        {GPT_CAN_SCALE_WORDS, "embedding_multiplier",
         {.embedding_multiplier = 2}},
        {GPT_CAN_NORM_WIDE, "qk_norm_whole", {.qk_norm_whole = true}},
    };
    struct gpt_backend be = *m->be;

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const struct gpt_config c = rows[i].c;
        struct gpt_err err = {0};

        be.abilities = ~(unsigned)rows[i].ability;
        is_int(gpt_abilities_check(&c, 9, &be, &err), GPT_EDEVICE,
               "a device without it refuses %s", rows[i].field);
        ok(strstr(err.text, rows[i].field) != NULL, "by name: %s", err.text);
        be.abilities = rows[i].ability;
        is_int(gpt_abilities_check(&c, 9, &be, &err), GPT_OK,
               "and one with it does not");
    }
    be.abilities = 0;
    is_int(gpt_abilities_check(&rows[0].c, 4, &be, NULL), GPT_OK,
           "a window that is as long as all texts is none");
    test_cache_ability(m);
}

/* What the models with experts have in common. */
#define EXPERTS                                                                \
    .normalization = GPT_RMSNORM, .activation = GPT_SILU, .gated = true,       \
    .no_linear_bias = true

static const struct {
    const char *what;
    int64_t l, c, h, g, d, f, v;
    bool tied;
    int64_t t;
    enum gpt_position_embedding positions;
    struct gpt_config variant; /* fields of variants alone */
} models[] = {
    {"plain", 2, 32, 4, 4, 8, 128, 61, true, 40, GPT_POSITION_LEARNED,
     {0}},
    {"query groups", 2, 48, 6, 2, 8, 96, 64, true, 19,
     GPT_POSITION_LEARNED, {0}},
    {"one group, own output", 1, 24, 4, 1, 6, 40, 33, false, 11,
     GPT_POSITION_LEARNED, {0}},
    {"odd sizes", 3, 21, 3, 3, 5, 13, 7, false, 9, GPT_POSITION_LEARNED,
     {0}},
    {"longer than a block", 1, 16, 2, 2, 8, 32, 20, true, 300,
     GPT_POSITION_LEARNED, {0}},
    {"rotary", 2, 32, 4, 2, 8, 64, 61, true, 290, GPT_POSITION_ROPE, {0}},
    {"alibi", 2, 24, 6, 3, 4, 64, 61, true, 290, GPT_POSITION_ALIBI, {0}},
    {"alibi_bf16", 2, 24, 6, 3, 4, 64, 61, true, 290, GPT_POSITION_ALIBI_BF16,
     {0}},
    {"llama", 2, 30, 6, 2, 8, 64, 61, true, 290, GPT_POSITION_ROPE,
     {.normalization = GPT_RMSNORM, .activation = GPT_SILU, .gated = true,
      .no_linear_bias = true, .qkv_bias = true, .qk_norm = true}},
    {"gated, odd sizes", 2, 21, 3, 3, 6, 13, 61, true, 19,
     GPT_POSITION_ROPE,
     {.gated = true, .norm_plus_one = true, .qk_norm = true}},
    {"neox", 2, 30, 3, 3, 8, 64, 61, true, 19, GPT_POSITION_ROPE,
     {.activation = GPT_GELU_EXACT, .parallel_blocks = true}},
    {"falcon", 2, 30, 3, 1, 8, 64, 61, true, 19, GPT_POSITION_ROPE,
     {.activation = GPT_GELU_EXACT, .parallel_blocks = true,
      .shared_norm = true, .no_linear_bias = true}},
    {"gemma2", 3, 30, 6, 3, 8, 64, 61, true, 290, GPT_POSITION_ROPE,
     {.normalization = GPT_RMSNORM, .norm_plus_one = true, .gated = true,
      .no_linear_bias = true, .post_norm = true, .scale_embedding = true,
      .window_size = 20, .window_attn_skip_freq = 2,
      .attn_logit_softcapping = 2, .final_logit_softcapping = 3,
      .query_pre_attn_scalar = 11}},
    {"window over late layers", 3, 24, 4, 1, 6, 40, 33, false, 70,
     GPT_POSITION_ROPE, {.window_size = 3, .window_full_layers = 1}},
    {"olmo2", 2, 30, 6, 3, 8, 64, 61, false, 290, GPT_POSITION_ROPE,
     {.normalization = GPT_RMSNORM, .activation = GPT_SILU, .gated = true,
      .no_linear_bias = true, .post_norm = true, .no_pre_norm = true,
      .qk_norm = true, .qk_norm_whole = true}},
    {"bloom", 2, 24, 6, 6, 4, 64, 61, true, 40, GPT_POSITION_ALIBI,
     {.embedding_norm = true}},
    {"opt", 2, 24, 6, 6, 4, 64, 61, true, 40, GPT_POSITION_LEARNED,
     {.position_offset = 2}},
    {"gptj", 2, 30, 3, 3, 8, 64, 61, false, 19, GPT_POSITION_ROPE,
     {.parallel_blocks = true, .shared_norm = true, .output_bias = true,
      .no_attention_bias = true}},
    {"cohere2", 3, 30, 6, 3, 8, 64, 61, true, 290, GPT_POSITION_ROPE,
     {.activation = GPT_SILU, .gated = true, .no_linear_bias = true,
      .no_norm_bias = true, .parallel_blocks = true, .shared_norm = true,
      .window_size = 20, .window_attn_skip_freq = 2, .no_rope_freq = 2,
      .logit_multiplier = 0.3}},
    {"granite, local base", 3, 24, 4, 1, 6, 40, 33, false, 70,
     GPT_POSITION_ROPE,
     {.normalization = GPT_RMSNORM, .window_size = 3,
      .window_attn_skip_freq = 3, .rotary_local_base = 10,
      .embedding_multiplier = 3, .residual_multiplier = 0.3,
      .logit_multiplier = 0.5}},
    {"mixtral", 2, 32, 4, 2, 8, 64, 61, false, 290, GPT_POSITION_ROPE,
     {EXPERTS, .num_experts = 5, .moe_router_topk = 2,
      .moe_ffn_hidden_size = 64}},
    {"qwen2_moe", 3, 30, 4, 2, 8, 40, 61, false, 40, GPT_POSITION_ROPE,
     {EXPERTS, .num_experts = 6, .moe_router_topk = 3,
      .moe_ffn_hidden_size = 13, .moe_layer_freq = 2,
      .moe_router_pre_softmax = true, .moe_shared_expert_gate = true,
      .moe_shared_expert_intermediate_size = 21}},
    {"glm4_moe", 3, 32, 4, 2, 8, 40, 61, false, 40, GPT_POSITION_ROPE,
     {EXPERTS, .num_experts = 9, .moe_router_topk = 2,
      .moe_ffn_hidden_size = 32, .moe_dense_layers = 1,
      .moe_router_score_function = GPT_SCORE_SIGMOID,
      .moe_router_expert_bias = true, .moe_router_topk_scaling_factor = 2.5,
      .moe_shared_expert_intermediate_size = 32}},
    {"deepseek_v3", 3, 32, 4, 4, 12, 40, 61, false, 290, GPT_POSITION_ROPE,
     {EXPERTS, .num_experts = 12, .moe_router_topk = 3,
      .moe_ffn_hidden_size = 32, .moe_dense_layers = 1,
      .moe_router_num_groups = 4, .moe_router_group_topk = 2,
      .moe_router_score_function = GPT_SCORE_SIGMOID,
      .moe_router_expert_bias = true, .moe_router_topk_scaling_factor = 2.5,
      .moe_shared_expert_intermediate_size = 32, .rotary_interleaved = true,
      .kv_lora_rank = 20, .q_lora_rank = 18, .qk_head_dim = 8,
      .qk_pos_emb_head_dim = 4, .v_head_dim = 7,
      .latent_norm_epsilon = 1e-6}},
    {"deepseek_v2, lite", 2, 30, 3, 3, 14, 40, 61, false, 40,
     GPT_POSITION_ROPE,
     {EXPERTS, .num_experts = 6, .moe_router_topk = 2,
      .moe_ffn_hidden_size = 13, .moe_router_pre_softmax = true,
      .moe_router_num_groups = 3, .moe_router_group_topk = 2,
      .rotary_interleaved = true, .kv_lora_rank = 11, .qk_head_dim = 8,
      .qk_pos_emb_head_dim = 6, .v_head_dim = 14}},
};

/* 12 positions of pretraining are within what the tests bring. */
static void test_longrope(void)
{
    const struct gpt_config c = {
        .num_layers = 2, .hidden_size = 30, .num_attention_heads = 6,
        .num_query_groups = 2, .head_size = 8, .ffn_hidden_size = 64,
        .max_positions = 512, .position_embedding = GPT_POSITION_ROPE,
        .rotary_base = 1000, .rotary_percent = 1,
        .rotary_scaling = GPT_SCALING_LONGROPE, .rotary_positions = 12,
        .rotary_short_factors = {1, 1.1, 1.4, 2},
        .rotary_long_factors = {1, 2.5, 7, 19}, .vocab_size = 61,
        .normalization = GPT_RMSNORM, .norm_epsilon = 1e-5, .init_std = 0.02,
        .tied_embeddings = true};
    struct model m;

    open_model(&m, c);
    test_long_texts(&m);
    test_together(&m, false);
    close_model(&m);
}

int main(void)
{
    for (size_t i = 0; i < GPT_COUNT(models); i++) {
        struct model m;
        const struct gpt_config *v = &models[i].variant;
        struct gpt_config c = *v;

        c.num_layers = models[i].l;
        c.hidden_size = models[i].c;
        c.num_attention_heads = models[i].h;
        c.num_query_groups = models[i].g;
        c.head_size = models[i].d;
        c.ffn_hidden_size = models[i].f;
        c.max_positions = 512;
        c.position_embedding = models[i].positions;
        c.rotary_base = 10000;
        c.rotary_percent = 1;
        c.vocab_size = models[i].v;
        c.norm_epsilon = 1e-5;
        c.init_std = 0.02;
        c.tied_embeddings = models[i].tied;

        open_model(&m, c);
        test_forms(&m, models[i].what, models[i].t);
        test_together(&m, models[i].t == 290);
        if (i == 0)
            test_refusals(&m);
        if (i == 0)
            test_abilities(&m);
        close_model(&m);
    }
    test_longrope();
    return tap_done();
}
