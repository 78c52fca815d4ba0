/* Memory of a conversion: at most 256 MiB, whatever the model is. A model of
 * 420 MB, most of which is a hole in its file, goes from Hugging Face's order
 * to ranks in bf16, transposed and rounded, by as many threads as are ever
 * used; what this process has held at most is measured. Then the same with an
 * adapter merged into its largest matrices. */
#include "base/io.h"
#include "checkpoint/fill.h"
#include "cmd/reshape/reshape.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

enum { C = 2048, V = 1024, T = 64 };

static struct gpt_err err;
static char top[300];

/* Appends an entry to a header of safetensors. */
static void add(char *text, size_t cap, const char *name, int64_t rows,
                int64_t columns, int64_t *at)
{
    const size_t n = strlen(text);
    const int64_t end = *at + rows * (columns ? columns : 1) * 4;
    char shape[60];

    snprintf(shape, sizeof(shape), columns ? "%lld,%lld" : "%lld",
             (long long)rows, (long long)columns);
    snprintf(text + n, cap - n,
             "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],"
             "\"data_offsets\":[%lld,%lld]}",
             n > 1 ? "," : "", name, shape, (long long)*at, (long long)end);
    *at = end;
}

static void write_text(const char *name, const void *text, size_t n)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/hf/%s", top, name);
    if (gpt_write_file(path, GPT_OUT_NOSYNC, text, n, &err) != GPT_OK)
        abort();
}

/* Two layers of GPT-2; all weights are zero, of which no block is on disk. */
static void make_model(void)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } rows[] = {
        {"ln_1.weight", C, 0},         {"ln_1.bias", C, 0},
        {"attn.c_attn.weight", C, 3 * C}, {"attn.c_attn.bias", 3 * C, 0},
        {"attn.c_proj.weight", C, C},  {"attn.c_proj.bias", C, 0},
        {"ln_2.weight", C, 0},         {"ln_2.bias", C, 0},
        {"mlp.c_fc.weight", C, 4 * C}, {"mlp.c_fc.bias", 4 * C, 0},
        {"mlp.c_proj.weight", 4 * C, C}, {"mlp.c_proj.bias", C, 0}};
    static char text[16384];
    char name[400], config[600];
    uint8_t head[8] = {0};
    int64_t at = 0;

    snprintf(text, sizeof(text), "{");
    add(text, sizeof(text), "wte.weight", V, C, &at);
    add(text, sizeof(text), "wpe.weight", T, C, &at);
    for (int layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < GPT_COUNT(rows); i++) {
            snprintf(name, sizeof(name), "h.%d.%s", layer, rows[i].name);
            add(text, sizeof(text), name, rows[i].rows, rows[i].columns, &at);
        }
    add(text, sizeof(text), "ln_f.weight", C, 0, &at);
    add(text, sizeof(text), "ln_f.bias", C, 0, &at);
    strcat(text, "}");
    snprintf(config, sizeof(config),
             "{\"model_type\":\"gpt2\",\"vocab_size\":%d,\"n_positions\":%d,"
             "\"n_embd\":%d,\"n_layer\":2,\"n_head\":16,"
             "\"activation_function\":\"gelu_new\","
             "\"layer_norm_epsilon\":1e-5}", V, T, C);
    write_text("config.json", config, strlen(config));
    const size_t n = strlen(text);
    memmove(text + 8, text, n);
    head[0] = (uint8_t)(n & 255);
    head[1] = (uint8_t)(n >> 8);
    memcpy(text, head, 8);
    write_text("model.safetensors", text, n + 8);
    snprintf(name, sizeof(name), "%s/hf/model.safetensors", top);
    if (truncate(name, (off_t)n + 8 + at) != 0)
        abort();
}

/* An adapter, whose numbers are zero, too. */
static void make_adapter(void)
{
    enum { RANK = 16 };
    static char text[4096];
    char name[400];
    int64_t at = 0;

    snprintf(name, sizeof(name), "{\"peft_type\":\"LORA\",\"r\":%d}", RANK);
    write_text("../adapter/adapter_config.json", name, strlen(name));
    snprintf(text, sizeof(text), "{");
    for (int layer = 0; layer < 2; layer++) {
        snprintf(name, sizeof(name), "transformer.h.%d.mlp.c_fc.lora_A.weight",
                 layer);
        add(text, sizeof(text), name, RANK, C, &at);
        snprintf(name, sizeof(name), "transformer.h.%d.mlp.c_fc.lora_B.weight",
                 layer);
        add(text, sizeof(text), name, 4 * C, RANK, &at);
    }
    strcat(text, "}");
    const size_t n = strlen(text);
    memmove(text + 8, text, n);
    memset(text, 0, 8);
    text[0] = (char)(n & 255);
    text[1] = (char)(n >> 8);
    write_text("../adapter/adapter_model.safetensors", text, n + 8);
    snprintf(name, sizeof(name), "%s/adapter/adapter_model.safetensors", top);
    if (truncate(name, (off_t)n + 8 + at) != 0)
        abort();
}

static void convert(const struct gpt_reshape_options *o)
{
    struct gpt_reshape r;
    struct rusage usage;

    is_int(gpt_reshape_open(&r, o, &err), GPT_OK, "opens: %s", err.text);
    is_int(gpt_reshape_write(&r, NULL, NULL, &err), GPT_OK, "converts: %s",
           err.text);
    ok(r.source.weight_bytes > 400000000, "a model larger than the limit");
    is_int(getrusage(RUSAGE_SELF, &usage), 0, "is measured");
#ifdef __SANITIZE_ADDRESS__
    skip("AddressSanitizer keeps memory that was given back");
#else
    ok(usage.ru_maxrss < 256 * 1024, "%ld KiB, at most 256 MiB",
       (long)usage.ru_maxrss);
#endif
    ok(gpt_reshape_memory(&r) < 256 << 20, "and so says the plan");
    gpt_reshape_close(&r);
}

int main(void)
{
    char load[400], save[400], adapter[400];
    const char *tmp = getenv("TMPDIR"), *dir = adapter;
    const struct gpt_list adapters = {&dir, 1};

    snprintf(top, sizeof(top), "%s/gpt-memory.XXXXXX", tmp ? tmp : "/tmp");
    make_tree(top);
    snprintf(load, sizeof(load), "%s/hf", top);
    snprintf(save, sizeof(save), "%s/native", top);
    snprintf(adapter, sizeof(adapter), "%s/adapter", top);
    if (gpt_path_mkdirs(load, &err) != GPT_OK ||
        gpt_path_mkdirs(adapter, &err) != GPT_OK)
        return 1;
    make_model();
    make_adapter();
    omp_set_num_threads(GPT_FILL_THREADS);
    struct gpt_reshape_options o = {
        .load = load, .save = save, .to = &gpt_format_native, .tp = 2, .pp = 2,
        .divisible_by = 128, .dtype = GPT_BF16};
    convert(&o);
    o.force = true;
    o.adapters = &adapters;
    convert(&o);
    remove_tree(top);
    return tap_done();
}
