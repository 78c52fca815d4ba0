/* The table of checkpoint formats, names in native checkpoints, and a source
 * that a directory of Hugging Face becomes. */
#include "checkpoint/format.h"
#include "checkpoint/names.h"
#include "checkpoint/nearest.h"

#include "tests/lib/tap.h"

#define HF "tests/golden/hf"

static struct gpt_err err;

static void test_table(void)
{
    size_t n = 0, writes = 0;

    for (; gpt_formats[n]; n++) {
        const struct gpt_format *f = gpt_formats[n];

        writes += f->write != NULL;
        if (f->write)
            is_str(f->name, gpt_format_names[writes - 1],
                   "row %zu has its name", n);
        ok(gpt_format_named(f->name) == f, "%s is found", f->name);
        ok(f->title && f->recognises && f->open && f->close && f->list &&
               (!f->write || (f->plan && f->free_plan)),
           "%s is complete", f->name);
    }
    ok(writes > 3 && !gpt_format_names[writes],
       "no name is without a row that is written");
    ok(!gpt_format_named("pickle"), "no such format");
    ok(!gpt_format_of("/nonexistent"), "nothing there, nothing recognised");
    bool exists = true;
    ok(gpt_source_exists(&exists, "/nonexistent", NULL) == GPT_OK && !exists,
       "nor does it exist");
}

static void test_names(void)
{
    static const struct {
        enum gpt_kind kind;
        int64_t dp_size;
        const char *file;
    } cases[] = {
        {GPT_KIND_PARAMETERS, 1, "model_tp03_pp12.safetensors"},
        {GPT_KIND_PARAMETERS, 2, "model_tp03_pp12_dp01.safetensors"},
        {GPT_KIND_EXP_AVG, 1, "optimizer_exp_avg_tp03_pp12.safetensors"},
        {GPT_KIND_EXP_AVG_SQ, 120,
         "optimizer_exp_avg_sq_tp03_pp12_dp01.safetensors"},
    };
    char name[GPT_NATIVE_FILE_NAME];
    int64_t iteration = -1;
    size_t prefix;

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        const struct gpt_file_rank rank = {3, 12, 1, cases[i].dp_size};

        gpt_name_file(name, sizeof(name), gpt_kind_prefix(cases[i].kind),
                      &rank);
        is_str(name, cases[i].file, "file of a rank");
    }
    is_str(gpt_name_parameter("optimizer.exp_avg.decoder.w", &prefix),
           "decoder.w", "the parameter of a moment");
    is_int((int64_t)prefix, 18, "after its prefix");
    is_str(gpt_name_parameter("decoder.w", &prefix), "decoder.w",
           "the parameter itself");
    is_int((int64_t)prefix, 0, "has none");
    ok(gpt_name_is_iteration("iter_0000120", &iteration) && iteration == 120,
       "an iteration");
    ok(!gpt_name_is_iteration("iter_120", &iteration) &&
           !gpt_name_is_iteration("iter_-000001", &iteration) &&
           !gpt_name_is_iteration("iter_0000120.tmp", &iteration),
       "what would be written otherwise is none");
    ok(!gpt_name_is_safe("../a") && !gpt_name_is_safe(".a") &&
           !gpt_name_is_safe("a b") && gpt_name_is_safe("vocab.json"),
       "names that leave the directory are not safe");
}

/* The last row of the word table, and the one that padding has added. */
static bool repeats_last_row(const struct gpt_source *s)
{
    const struct gpt_tensor *t =
        gpt_source_find(s, "embedding.word_embeddings.weight");
    const int64_t width = s->config.hidden_size;
    const int64_t shape[] = {1, width};
    int64_t last[] = {s->config.vocab_size - 1, 0};
    int64_t padded[] = {s->config.padded_vocab_size - 1, 0};
    float a[256], b[256];

    return t && width <= 256 && last[0] < padded[0] &&
           gpt_tensor_gather(t, last, shape, GPT_F32, a, &err) == GPT_OK &&
           gpt_tensor_gather(t, padded, shape, GPT_F32, b, &err) == GPT_OK &&
           memcmp(a, b, (size_t)width * sizeof(*a)) == 0;
}

static void test_hugging_face(void)
{
    struct gpt_source_options o = {
        .iteration = -1, .divisible_by = 8, .tp_size = 2};
    struct gpt_source s;

    is_int(gpt_source_open(&s, HF, NULL, &err), GPT_OK, "opens: %s", err.text);
    is_str(s.format->name, "hf", "by its own front end");
    is_int(s.config.padded_vocab_size, s.config.vocab_size,
           "without dummy rows");
    ok(!s.state, "holds no run");
    is_int(s.eos_token_id, 66, "and an id of the end of a text");
    ok(!gpt_source_find(&s, "optimizer.exp_avg.decoder.final_layernorm.bias"),
       "nor an optimizer");
    is_int(s.n_attached, 0, "nor a vocabulary");
    gpt_source_close(&s);

    is_int(gpt_source_open(&s, HF, &o, &err), GPT_OK, "padded for two ranks");
    is_int(s.config.padded_vocab_size, 80, "to a multiple of 8 x 2");
    ok(repeats_last_row(&s), "by copies of the last row");
    gpt_source_close(&s);

    o.iteration = 7;
    is_int(gpt_source_open(&s, HF, &o, &err), GPT_EUSAGE,
           "an iteration of it: %s", err.text);
    gpt_source_close(&s);
    is_int(gpt_source_open(&s, "/nonexistent", NULL, &err), GPT_EIO,
           "nothing there: %s", err.text);
}

/* A row that differs in all names the field that says so. */
static void test_nearest(void)
{
    const struct gpt_misfit all = {"gptj", {"config.json"}, SIZE_MAX};
    const struct gpt_misfit some = {"gpt2", {"a", "b", "c", "d", "e", "f"}, 8};
    struct gpt_nearest near = {.n = 0};

    gpt_nearest_keep(&near, &all);
    gpt_nearest_keep(&near, &some);
    is_int(gpt_nearest_fail(&near, "family", 9, &err), GPT_EDATA, "none fits");
    is_str(err.text, "no family is this model; the nearest of 9 differ: "
           "gpt2 in a, b, c, d, e, f and 2 more; gptj in config.json",
           "the nearest first");
}

int main(void)
{
    test_nearest();
    test_table();
    test_names();
    test_hugging_face();
    return tap_done();
}
