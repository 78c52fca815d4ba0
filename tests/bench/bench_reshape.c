/* Speed of gpt-reshape with GPT-2 124M (475 MiB), beside a plain copy of the
 * bytes that it writes, on the same file system, which is memory (/dev/shm or
 * BENCH_DIR), so that the disk is not measured. The error is that of --verify:
 * 0 means that the output equals the input bit for bit. */
#include "base/memory.h"
#include "base/num.h"
#include "checkpoint/native.h"
#include "cmd/reshape/reshape.h"
#include "model/params.h"
#include "tests/bench/bench.h"
#include "tests/lib/tree.h"

#include <unistd.h>

static char top[256];
static struct gpt_err err;

static void die(void)
{
    fprintf(stderr, "bench: %s\n", err.text);
    exit(1);
}

static const char *in_top(const char *name)
{
    static char path[2][400];
    static int k;

    k = !k;
    snprintf(path[k], sizeof(path[k]), "%s/%s", top, name);
    return path[k];
}

static void make_model(void)
{
    struct gpt_config c = gpt_config_default();
    struct gpt_param_table table;
    struct gpt_flat flat;
    struct gpt_checkpoint_writer *w;
    struct gpt_tensor_slice *slices;
    float *data;

    if (gpt_config_complete(&c, 128, 1, &err) ||
        gpt_params_build(&table, &c, &err))
        die();
    struct gpt_layout layout = GPT_LAYOUT_SINGLE(&c);
    if (gpt_flat_build(&flat, &table, &layout, &err) ||
        gpt_new(&data, (size_t)flat.elements, sizeof(*data), "model", &err) ||
        gpt_new(&slices, (size_t)flat.n, sizeof(*slices), "model", &err))
        die();
    for (int64_t i = 0; i < flat.elements; i++)
        data[i] = (float)(i % 10007) * 1e-4f;
    for (int64_t i = 0; i < flat.n; i++) {
        const struct gpt_slice *s = &flat.slices[i];

        slices[i] = (struct gpt_tensor_slice){
            .name = s->param->name, .dtype = GPT_F32, .ndim = s->param->ndim,
            .global = {s->shape[0], s->shape[1]},
            .shape = {s->shape[0], s->shape[1]}, .data = data + s->offset};
    }
    if (gpt_checkpoint_create(&w, in_top("native"), 1, 0, &err) ||
        gpt_checkpoint_write(w, "model_tp00_pp00.safetensors", slices, flat.n,
                             &err) ||
        gpt_checkpoint_commit(w, &c, 1, 1, NULL, &err))
        die();
    gpt_free(slices);
    gpt_free(data);
    gpt_flat_free(&flat);
    gpt_params_free(&table);
}

/* Seconds to copy `bytes` of the model's file with large reads and writes. */
static double copy(int64_t bytes)
{
    struct gpt_in *in;
    struct gpt_out *out;
    uint8_t *tile = malloc(GPT_TILE_BYTES);
    double begin = bench_clock();

    if (gpt_in_open(&in, in_top("native/iter_0000001/"
                                "model_tp00_pp00.safetensors"), &err) ||
        gpt_out_open(&out, in_top("copy"), 0, bytes, &err))
        die();
    for (int64_t at = 0; at < bytes; at += GPT_TILE_BYTES) {
        size_t n = (size_t)gpt_min_i64(GPT_TILE_BYTES, bytes - at);
        int64_t from = gpt_min_i64(at, gpt_in_size(in) - (int64_t)n);

        if (gpt_in_read(in, tile, from, n, &err) ||
            gpt_out_write(out, tile, n, &err))
            die();
    }
    if (gpt_out_commit(out, &err))
        die();
    double seconds = bench_clock() - begin;
    unlink(in_top("copy"));
    gpt_in_close(in);
    free(tile);
    return seconds;
}

/* Medians of five: opening, planning, moving, publishing. The last output is
 * verified and kept. */
static void row(const char *name, const char *from, const char *to,
                struct gpt_reshape_options o)
{
    double times[5], copies[5], error = 0;
    int64_t bytes = 0;
    char load[400], save[400];

    snprintf(load, sizeof(load), "%s", in_top(from));
    snprintf(save, sizeof(save), "%s", in_top(to));
    o.load = load;
    o.save = save;
    o.divisible_by = 128;
    o.max_shard_size = 5000000000;
    for (int i = 0; i < 5; i++) {
        struct gpt_reshape r;

        remove_tree(save);
        double begin = bench_clock();
        if (gpt_reshape_open(&r, &o, &err) ||
            gpt_reshape_write(&r, NULL, NULL, &err))
            die();
        times[i] = bench_clock() - begin;
        bytes = r.target.bytes;
        if (i == 4)
            error = gpt_reshape_verify(&r, &err) != GPT_OK;
        gpt_reshape_close(&r);
        copies[i] = copy(bytes);
    }
    bench_row(name, (double)bytes / bench_median(times, 5) / 1e6, "MB/s",
              (double)bytes / bench_median(copies, 5) / 1e6, error);
}

int main(void)
{
    const char *dir = getenv("BENCH_DIR");

    snprintf(top, sizeof(top), "%s/gpt-bench.XXXXXX", dir ? dir : "/dev/shm");
    if (!mkdtemp(top)) {
        perror(top);
        return 1;
    }
    make_model();
    struct gpt_reshape_options keep = {
        .to = &gpt_format_native, .dtype = GPT_N_DTYPES};
    struct gpt_reshape_options o = keep;
    o.tp = o.pp = 2;
    row("reshape/1x1-to-2x2", "native", "cut", o);
    o.verify_input = true;
    row("reshape/1x1-to-2x2-checked", "native", "cut", o);
    o = keep;
    o.tp = o.pp = 1;
    row("reshape/2x2-to-1x1", "cut", "joined", o);
    o = keep;
    o.to = &gpt_format_hf;
    row("reshape/to-huggingface", "native", "hf", o);
    row("reshape/from-huggingface", "hf", "again", keep);
    o = keep;
    o.dtype = GPT_BF16;
    row("reshape/to-bf16", "native", "half", o);
    remove_tree(top);
    return 0;
}
