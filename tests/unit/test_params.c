/* The parameter table: counts that Megatron prints, layouts, initial values
 * that do not depend on the layout. */
#include "base/memory.h"
#include "model/params.h"

#include "tests/lib/tap.h"

struct shape {
    const char *name;
    int64_t layers, hidden, heads;
};

static const struct shape gpt2_124m = {"124M", 12, 768, 12};
static const struct shape gpt2_345m = {"345M", 24, 1024, 16};
static const struct shape gpt2_774m = {"774M", 36, 1280, 20};
static const struct shape gpt2_1558m = {"1.5B", 48, 1600, 25};

static struct gpt_config config_of(const struct shape *s, int64_t tp)
{
    struct gpt_config c = gpt_config_default();

    c.num_layers = s->layers;
    c.hidden_size = s->hidden;
    c.num_attention_heads = s->heads;
    struct gpt_err err;
    if (gpt_config_complete(&c, 128, tp, &err))
        printf("# %s\n", err.text);
    return c;
}

static int64_t count_on(const struct shape *s, int64_t tp, int64_t pp,
                        int64_t pp_rank)
{
    struct gpt_config c = config_of(s, tp);
    struct gpt_param_table table;
    struct gpt_flat flat;
    struct gpt_layout layout = gpt_layout_even(&c, tp, 0, pp, pp_rank);
    int64_t count = -1;

    if (gpt_params_build(&table, &c, NULL) == GPT_OK &&
        gpt_flat_build(&flat, &table, &layout, NULL) == GPT_OK) {
        count = flat.count;
        gpt_flat_free(&flat);
    }
    gpt_params_free(&table);
    return count;
}

/* The number of parameters that Megatron-LM prints for a (tensor, pipeline)
 * rank, with the vocabulary padded by 128 x TP. GPT-2 large at TP2 PP2 is from
 * the public log of accelerate's Megatron-LM guide; the others follow from the
 * same rules. */
static const struct {
    const struct shape *shape;
    int64_t tp, pp, pp_rank, want;
} counts[] = {
    {&gpt2_774m, 2, 2, 0, 210753280},  {&gpt2_774m, 2, 2, 1, 209445120},
    {&gpt2_345m, 2, 2, 1, 101437440},  {&gpt2_345m, 2, 2, 0, 102483968},
    {&gpt2_124m, 1, 1, 0, 124475904},  {&gpt2_124m, 2, 1, 0, 62708736},
    {&gpt2_124m, 1, 2, 0, 81947136},   {&gpt2_124m, 1, 2, 1, 81162240},
    {&gpt2_124m, 4, 1, 0, 31825152},   {&gpt2_124m, 2, 4, 0, 30791040},
    {&gpt2_124m, 2, 4, 1, 10638720},   {&gpt2_124m, 2, 4, 3, 30006144},
    {&gpt2_345m, 1, 1, 0, 354871296},  {&gpt2_774m, 1, 1, 0, 774090240},
    {&gpt2_1558m, 1, 1, 0, 1557686400}, {&gpt2_1558m, 1, 2, 0, 819904000},
    {&gpt2_1558m, 1, 2, 1, 818268800},
};

static void test_counts(void)
{
    for (size_t i = 0; i < GPT_COUNT(counts); i++)
        is_int(count_on(counts[i].shape, counts[i].tp, counts[i].pp,
                        counts[i].pp_rank),
               counts[i].want, "GPT-2 %s TP%lld PP%lld stage %lld",
               counts[i].shape->name, (long long)counts[i].tp,
               (long long)counts[i].pp, (long long)counts[i].pp_rank);
}

/* Every slice of a small model at TP2 PP2 equals the same part of the whole. */
static void test_init_is_layout_free(void)
{
    struct shape tiny = {"tiny", 4, 32, 4};
    struct gpt_config c = config_of(&tiny, 2);
    struct gpt_param_table table;
    bool same = gpt_params_build(&table, &c, NULL) == GPT_OK;
    int64_t seen = 0;

    for (int64_t rank = 0; same && rank < 4; rank++) {
        struct gpt_layout layout =
            gpt_layout_even(&c, 2, rank % 2, 2, rank / 2);
        struct gpt_flat flat;

        same = gpt_flat_build(&flat, &table, &layout, NULL) == GPT_OK;
        for (int64_t i = 0; same && i < flat.n; i++) {
            const struct gpt_slice *s = &flat.slices[i];
            struct gpt_slice all = {.param = s->param,
                                    .shape = {s->param->shape[0],
                                              s->param->shape[1]},
                                    .count = gpt_param_count(s->param)};
            float *part = gpt_alloc((size_t)s->count, sizeof(float));
            float *whole = gpt_alloc((size_t)all.count, sizeof(float));

            gpt_param_init(&c, s, 1234, part);
            gpt_param_init(&c, &all, 1234, whole);
            for (int64_t r = 0; r < s->shape[0]; r++)
                same &= memcmp(part + r * s->shape[1],
                               whole + (s->begin[0] + r) * all.shape[1] +
                                   s->begin[1],
                               (size_t)s->shape[1] * sizeof(float)) == 0;
            seen += s->count;
            gpt_free(part);
            gpt_free(whole);
        }
        gpt_flat_free(&flat);
    }
    gpt_params_free(&table);
    ok(same && seen > 0, "initial values do not depend on the layout");
}

static const struct gpt_param *row(const struct gpt_param_table *t,
                                   const char *name)
{
    return gpt_params_find(t, name);
}

/* Which rows a model has, by the column `present`. */
static void test_presence(void)
{
    static const struct {
        int64_t positions;
        bool tied, table, output;
    } cases[] = {
        {GPT_POSITION_LEARNED, true, true, false},
        {GPT_POSITION_LEARNED, false, true, true},
        {GPT_POSITION_ROPE, true, false, false},
        {GPT_POSITION_NONE, false, false, true},
    };
    struct shape tiny = {"tiny", 2, 32, 4};

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        struct gpt_config c = config_of(&tiny, 1);
        struct gpt_param_table t;

        c.position_embedding = cases[i].positions;
        c.tied_embeddings = cases[i].tied;
        if (!ok(gpt_params_build(&t, &c, NULL) == GPT_OK, "case %zu", i))
            continue;
        ok(!!row(&t, "embedding.position_embeddings.weight") == cases[i].table,
           "a table of positions where they are learned");
        ok(!!row(&t, "output_layer.weight") == cases[i].output,
           "an output layer's matrix where it is untied");
        gpt_params_free(&t);
    }
}

/* How rows are cut, by the column `split`: parts of all ranks are in order,
 * equal, and never begin within what belongs together. */
static void test_splits(void)
{
    struct gpt_config c = config_of(&gpt2_124m, 2);
    struct gpt_param_table t;
    struct gpt_flat flat;
    bool whole = true, apart = true;

    c.num_query_groups = 4; /* of 3 query heads each, which have 5 D rows */
    if (!ok(gpt_params_build(&t, &c, NULL) == GPT_OK, "table"))
        return;
    is_int(row(&t, "decoder.layers.0.self_attention.linear_qkv.weight")
               ->split_unit,
           5 * 64, "a query group's queries, key and value are one unit");
    for (int64_t rank = 0; rank < 2; rank++) {
        const struct gpt_layout layout = gpt_layout_even(&c, 2, rank, 1, 0);

        if (!ok(gpt_flat_build(&flat, &t, &layout, NULL) == GPT_OK, "rank"))
            continue;
        for (int64_t i = 0; i < flat.n; i++) {
            const struct gpt_slice *s = &flat.slices[i];
            const struct gpt_param *p = s->param;
            const int d = p->split == GPT_SPLIT_COLUMNS ? 1 : 0;
            const bool cut = p->split != GPT_SPLIT_NONE;

            whole = whole && s->shape[!d] == p->shape[!d] &&
                    s->begin[!d] == 0 &&
                    s->shape[d] == p->shape[d] / (cut ? 2 : 1) &&
                    s->begin[d] == (cut ? rank * s->shape[d] : 0);
            apart = apart && s->begin[d] % p->split_unit == 0;
        }
        gpt_flat_free(&flat);
    }
    ok(whole, "a split cuts one dimension in equal parts");
    ok(apart, "between units");
    gpt_params_free(&t);
}

/* Matrices of layers are overwritten, and what they are not is added to. */
static void test_first_writes(void)
{
    struct gpt_config c = config_of(&gpt2_124m, 1);
    struct gpt_param_table t;
    bool good = true;

    if (!ok(gpt_params_build(&t, &c, NULL) == GPT_OK, "table"))
        return;
    for (int64_t i = 0; i < t.n; i++) {
        const struct gpt_param *p = &t.rows[i];
        const bool product = p->place == GPT_PLACE_LAYER && p->ndim == 2;

        good = good && (p->first_write == GPT_FIRST_PRODUCT) == product;
    }
    ok(good, "products write the gradients of a layer's matrices");
    is_int(row(&t, "embedding.word_embeddings.weight")->first_write,
           GPT_FIRST_OUTPUT, "and the output layer that of the word table");
    is_int(row(&t, "embedding.position_embeddings.weight")->first_write,
           GPT_FIRST_ADDS, "positions are only added to");
    gpt_params_free(&t);
}

static void test_init_moments(void)
{
    struct gpt_config c = config_of(&gpt2_124m, 1);
    struct gpt_param_table table;

    if (!ok(gpt_params_build(&table, &c, NULL) == GPT_OK, "table"))
        return;
    const struct gpt_param *p =
        gpt_params_find(&table, "decoder.layers.3.mlp.linear_fc2.weight");
    struct gpt_slice s = {.param = p, .shape = {64, p->shape[1]}};
    s.count = s.shape[0] * s.shape[1];
    float *x = gpt_alloc((size_t)s.count, sizeof(float));
    gpt_param_init(&c, &s, 7, x);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < s.count; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    double n = (double)s.count, std = 0.02 / sqrt(24.0);
    is_near(sum / n, 0, 0, 4 * std / sqrt(n), "mean of output weights is 0");
    is_near(sqrt(squares / n), std, 0.01, 0, "deviation is 0.02/sqrt(2L)");
    gpt_free(x);
    gpt_params_free(&table);
}

static void test_config_json(void)
{
    struct gpt_config c = config_of(&gpt2_345m, 2), back = {0};
    struct gpt_err err;
    cJSON *json = gpt_config_to_json(&c);

    is_int(gpt_config_from_json(&back, json, "x.json", &err), GPT_OK,
           "config survives JSON");
    ok(gpt_config_difference(&c, &back) == NULL &&
           back.padded_vocab_size == c.padded_vocab_size &&
           back.init_std == c.init_std,
       "every field is the same");
    back.hidden_size++;
    is_str(gpt_config_difference(&c, &back), "hidden_size",
           "the field that differs is named");
    back.gated = !back.gated;
    back.tied_embeddings = !back.tied_embeddings;
    back.init_std = 1;
    const char *names[3] = {NULL, NULL, "kept"};
    is_int((int64_t)gpt_config_differences(&c, &back, names, 2), 3,
           "all that differ are counted");
    is_str(names[1], "gated", "as many as asked for are named");
    is_str(names[2], "kept", "and no more");

    cJSON_SetNumberValue(cJSON_GetObjectItem(json, "num_layers"), 1e15);
    is_int(gpt_config_from_json(&back, json, "x.json", &err), GPT_EDATA,
           "a silly size is refused");
    is_str(err.text, "x.json: num_layers is 1e+15, must be 1 to 65536",
           "with field, value and limit");
    cJSON_SetNumberValue(cJSON_GetObjectItem(json, "num_layers"), 2.5);
    is_int(gpt_config_from_json(&back, json, "x.json", &err), GPT_EDATA,
           "half a layer is refused");
    cJSON_SetNumberValue(cJSON_GetObjectItem(json, "num_layers"), 2);
    cJSON_ReplaceItemInObject(json, "position_embedding",
                              cJSON_CreateString("rope"));
    cJSON_ReplaceItemInObject(json, "rotary_base", cJSON_CreateNumber(1e4));
    cJSON_ReplaceItemInObject(json, "rotary_percent", cJSON_CreateNumber(1));
    is_int(gpt_config_from_json(&back, json, "x.json", &err), GPT_OK,
           "a choice is read by name");
    is_int(back.position_embedding, GPT_POSITION_ROPE, "as its number");
    cJSON_ReplaceItemInObject(json, "position_embedding",
                              cJSON_CreateString("spiral"));
    is_int(gpt_config_from_json(&back, json, "x.json", &err), GPT_EDATA,
           "a choice that is none is refused");
    cJSON_DeleteItemFromObject(json, "num_layers");
    is_int(gpt_config_from_json(&back, json, "x.json", &err), GPT_EDATA,
           "a missing field is refused");
    cJSON_Delete(json);
}

/* Whether a layout of so many ranks and stages is allowed. */
static int try_layout(const struct gpt_config *c, int64_t tp_size,
                      int64_t pp_size, struct gpt_err *err)
{
    const int64_t size[GPT_N_DIMS] = {[GPT_TP] = tp_size, [GPT_PP] = pp_size};
    struct gpt_topology t;
    struct gpt_layout layout;

    GPT_TRY(gpt_topology_init(&t, tp_size * pp_size, 0, size, 1, err));
    return gpt_layout_init(&layout, c, &t, 0, 0, err);
}

static void test_rules(void)
{
    struct gpt_config c = gpt_config_default();
    struct gpt_err err;

    c.num_attention_heads = 7;
    is_int(gpt_config_complete(&c, 128, 1, &err), GPT_EUSAGE,
           "hidden size must divide by heads");
    c = config_of(&gpt2_1558m, 1);
    is_int(try_layout(&c, 2, 1, &err), GPT_EUSAGE,
           "25 heads do not divide by TP2");
    is_int(try_layout(&c, 1, 48, &err), GPT_OK, "48 stages of a layer");
    is_int(try_layout(&c, 1, 5, &err), GPT_EUSAGE, "not 5 stages");
    is_int(gpt_config_padded_vocab(50257, 128, 2), 50432, "vocab 50257 at TP2");
}

int main(void)
{
    test_counts();
    test_init_is_layout_free();
    test_presence();
    test_splits();
    test_first_writes();
    test_init_moments();
    test_config_json();
    test_rules();
    return tap_done();
}
