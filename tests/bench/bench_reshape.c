/* Speed and memory of gpt-reshape. From memory into memory (/dev/shm, or
 * BENCH_DIR), so that no disk is measured, with memcpy() by as many threads
 * over arrays far past the caches as the floor: range moves, transpositions,
 * casts. A second line has a loop as its floor which does nothing but copy,
 * from a mapped file by pwrite(), in turns with the conversion: each thread
 * into a new file, or all into one where the output is one. The first rows say
 * what of memcpy() is left to such loops, and to one that has its bytes in the
 * cache: no program that writes files there passes that. Then into BENCH_DISK,
 * where that is set, with dd and its sync as the floor.
 *
 * The shape is GPT-2 124M without optimizer state. GPT_BENCH_SHAPE=355m and
 * 1.5b are larger ones of GPT-2, measured once and not three times;
 * GPT_BENCH_STATE=1 adds the state of Adam: they then take 2 x 4.3 and 2 x 18.7
 * GB of memory.
 *
 * The error is that of --verify: 0 means that the output equals the input bit
 * for bit, or after the cast. */
#include "base/memory.h"
#include "base/num.h"
#include "checkpoint/names.h"
#include "checkpoint/native/native.h"
#include "cmd/reshape/reshape.h"
#include "model/params.h"
#include "tests/bench/bench.h"
#include "tests/lib/tree.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TIMES = 3, /* most that a row is measured */
    WRITTEN_BYTES = 512 << 20, /* to learn how fast the kernel takes them */
};

static char top[256], disk[256];
static struct gpt_err err;
static double memory_rate; /* bytes a second that memcpy() copies */

static void die(void)
{
    fprintf(stderr, "bench: %s\n", err.text);
    exit(1);
}

static const char *in_dir(const char *dir, const char *name)
{
    static char path[4][400];
    static int k;

    k = (k + 1) % 4;
    snprintf(path[k], sizeof(path[k]), "%s/%s", dir, name);
    return path[k];
}

/* ---- the model ---- */

static const struct shape {
    const char *name;
    int64_t layers, width, heads;
} shapes[] = {{"124m", 12, 768, 12}, {"355m", 24, 1024, 16},
              {"1.5b", 48, 1600, 25}};

static const struct shape *find_shape(void)
{
    const char *name = getenv("GPT_BENCH_SHAPE");

    for (size_t i = 0; name && i < GPT_COUNT(shapes); i++)
        if (strcmp(name, shapes[i].name) == 0)
            return &shapes[i];
    return &shapes[0];
}

/* A large model takes long, and its time varies little. */
static int times_measured(void)
{
    return find_shape() == &shapes[0] ? TIMES : 1;
}

/* A kind's file, slice by slice from one buffer: the largest parameter is all
 * that is in memory. */
static void write_kind(struct gpt_checkpoint_writer *w,
                       const struct gpt_flat *flat, enum gpt_kind kind)
{
    const char *files[] = {"model_tp00_pp00", "optimizer_exp_avg_tp00_pp00",
                           "optimizer_exp_avg_sq_tp00_pp00"};
    struct gpt_tensor_slice *slices;
    char name[100], (*names)[200];
    int64_t most = 0;
    float *data;

    for (int64_t i = 0; i < flat->n; i++)
        most = gpt_max_i64(most, flat->slices[i].count);
    if (gpt_new(&data, (size_t)most, sizeof(*data), "model", &err) ||
        gpt_new(&slices, (size_t)flat->n, sizeof(*slices), "model", &err) ||
        gpt_new(&names, (size_t)flat->n, sizeof(*names), "model", &err))
        die();
    for (int64_t i = 0; i < most; i++)
        data[i] = (float)(i % 10007 + kind) * 1e-4f;
    for (int64_t i = 0; i < flat->n; i++) {
        const struct gpt_slice *s = &flat->slices[i];

        snprintf(names[i], sizeof(names[i]), "%s%s", gpt_kind_prefix(kind),
                 s->param->name);
        slices[i] = (struct gpt_tensor_slice){
            .name = names[i], .dtype = GPT_F32, .ndim = s->param->ndim,
            .global = {s->shape[0], s->shape[1]},
            .shape = {s->shape[0], s->shape[1]}, .data = data};
    }
    snprintf(name, sizeof(name), "%s.safetensors", files[kind]);
    if (gpt_checkpoint_write(w, name, slices, flat->n, &err))
        die();
    gpt_free(names);
    gpt_free(slices);
    gpt_free(data);
}

static void make_model(const char *root)
{
    struct gpt_config c = gpt_config_default();
    struct gpt_param_table table;
    struct gpt_flat flat;
    struct gpt_checkpoint_writer *w;

    const struct shape *shape = find_shape();
    c.num_layers = shape->layers;
    c.hidden_size = shape->width;
    c.num_attention_heads = shape->heads;
    if (gpt_config_complete(&c, 128, 1, &err) ||
        gpt_params_build(&table, &c, &err))
        die();
    struct gpt_layout layout = GPT_LAYOUT_SINGLE(&c);
    if (gpt_flat_build(&flat, &table, &layout, &err) ||
        gpt_checkpoint_create(&w, root, 1, GPT_OUT_NOSYNC, &err))
        die();
    write_kind(w, &flat, GPT_KIND_PARAMETERS);
    if (getenv("GPT_BENCH_STATE")) {
        write_kind(w, &flat, GPT_KIND_EXP_AVG);
        write_kind(w, &flat, GPT_KIND_EXP_AVG_SQ);
    }
    cJSON *state = cJSON_CreateObject();
    cJSON_AddNumberToObject(state, "iteration", 1);
    cJSON_AddNumberToObject(state, "consumed_train_samples", 1);
    cJSON_AddNumberToObject(state, "consumed_valid_samples", 0);
    if (gpt_checkpoint_commit(w, &c, 1, 1, state, &err))
        die();
    cJSON_Delete(state);
    gpt_flat_free(&flat);
    gpt_params_free(&table);
}

/* ---- rows ---- */

/* Pieces as large as tiles of a copy, from `from`, or from memory that each
 * thread has in its cache: into a file of its own, or into the one file of all,
 * where threads wait for each other. */
static void write_pieces(const uint8_t *from, bool one, bool *failed)
{
    enum { PIECE = 512 << 10 };
    static _Thread_local uint8_t piece[PIECE];
    const int me = one ? 0 : omp_get_thread_num();
    char path[300];

    snprintf(path, sizeof(path), "%s/written.%d", top, me);
    const int fd = open(path, O_WRONLY | O_CREAT, 0666);
    memset(piece, 1, PIECE);
#pragma omp for schedule(static, 1)
    for (int64_t k = 0; k < WRITTEN_BYTES / PIECE; k++)
        *failed |= pwrite(fd, from ? from + k * PIECE : piece, PIECE,
                          k * PIECE) != PIECE;
    *failed |= close(fd) != 0;
}

static void remove_written(void)
{
    char path[300];

    for (int i = 0; i < omp_get_max_threads(); i++) {
        snprintf(path, sizeof(path), "%s/written.%d", top, i);
        unlink(path);
    }
}

/* Bytes a second of one such loop; the mapping is new, as a program's is. */
static double run_loop(bool copies, bool one)
{
    const int fd = copies ? open(in_dir(top, "source"), O_RDONLY) : -1;
    const double begin = bench_clock();
    uint8_t *from = copies ? mmap(NULL, WRITTEN_BYTES, PROT_READ, MAP_SHARED,
                                  fd, 0)
                           : NULL;
    bool failed = from == MAP_FAILED;

#pragma omp parallel reduction(| : failed) if (!failed)
    write_pieces(from, one, &failed);
    const double seconds = bench_clock() - begin;
    if (failed) {
        perror(top);
        exit(1);
    }
    if (copies)
        munmap(from, WRITTEN_BYTES);
    close(fd);
    remove_written();
    return WRITTEN_BYTES / seconds;
}

static void loop_row(const char *name, bool copies, bool one)
{
    double rates[TIMES];

    for (int i = 0; i < TIMES; i++)
        rates[i] = run_loop(copies, one);
    bench_row(name, bench_median(rates, TIMES) / 1e6, "MB/s",
              memory_rate / 1e6, -1);
}

static void make_source(void)
{
    static uint8_t piece[1 << 20];
    const int fd = open(in_dir(top, "source"), O_WRONLY | O_CREAT, 0666);
    bool failed = fd < 0;

    memset(piece, 1, sizeof(piece));
    for (int i = 0; !failed && i < WRITTEN_BYTES / (int)sizeof(piece); i++)
        failed = write(fd, piece, sizeof(piece)) != sizeof(piece);
    if (!failed && close(fd) == 0)
        return;
    perror(top);
    exit(1);
}

/* What a conversion does at least. */
static void loops(void)
{
    loop_row("reshape/write from the cache, a file a thread", false, false);
    loop_row("reshape/write from the cache, one file", false, true);
    loop_row("reshape/copy loop, a file a thread", true, false);
    loop_row("reshape/copy loop, one file", true, true);
}

struct made {
    int64_t bytes, files;
};

/* Opening, planning, moving, publishing. The output is kept, and compared with
 * the input where `error` is asked for. */
static double convert_once(struct gpt_reshape_options *o, struct made *made,
                           double *error)
{
    struct gpt_reshape r;
    const char *how;

    remove_tree(o->save);
    const double begin = bench_clock();
    if (gpt_reshape_open(&r, o, &err) ||
        gpt_reshape_write(&r, NULL, NULL, &err))
        die();
    const double seconds = bench_clock() - begin;
    *made = (struct made){r.target.bytes, r.target.n_files};
    if (error)
        *error = gpt_reshape_verify(&r, &how, &err) != GPT_OK;
    gpt_reshape_close(&r);
    return seconds;
}

/* Bytes a second of the conversion, and of the loop, in turns: the speed of a
 * machine's memory changes within minutes. */
static double measure(struct gpt_reshape_options *o, double *loop,
                      double *error)
{
    const int n = times_measured();
    double rates[TIMES], loops[TIMES];
    struct made made;

    for (int i = 0; i < n; i++) {
        const double s = convert_once(o, &made, i == n - 1 ? error : NULL);

        rates[i] = (double)made.bytes / s;
        loops[i] = run_loop(true, made.files == 1);
    }
    *loop = bench_median(loops, n);
    return bench_median(rates, n);
}

static void row(const char *name, const char *from, const char *to,
                struct gpt_reshape_options o)
{
    double error = 0, loop;
    char beside[100];

    o.load = in_dir(top, from);
    o.save = in_dir(top, to);
    o.divisible_by = 128;
    o.max_shard_size = 5000000000;
    const double rate = measure(&o, &loop, &error);
    bench_row(name, rate / 1e6, "MB/s", memory_rate / 1e6, error);
    snprintf(beside, sizeof(beside), "%s, beside loop", name);
    bench_row(beside, rate / 1e6, "MB/s", loop / 1e6, -1);
}

/* dd reads the same bytes from memory and syncs, as the program does; in turns,
 * as disks change their speed. */
static void disk_row(struct gpt_reshape_options o)
{
    char command[1000];
    const int n = times_measured();
    double ours[TIMES], dd[TIMES];
    struct made made;

    o.load = in_dir(top, "native");
    o.save = in_dir(disk, "cut");
    o.divisible_by = 128;
    snprintf(command, sizeof(command),
             "cat %s/native/iter_0000001/*.safetensors | dd of=%s/copy bs=4M "
             "iflag=fullblock conv=fsync status=none && rm %s/copy",
             top, disk, disk);
    for (int i = 0; i < n; i++) {
        ours[i] = convert_once(&o, &made, NULL);
        const double begin = bench_now();

        if (system(command) != 0)
            exit(1);
        dd[i] = bench_now() - begin;
    }
    bench_row("reshape/disk 1x1-to-2x2, dd",
              (double)made.bytes / bench_median(ours, n) / 1e6, "MB/s",
              (double)made.bytes / bench_median(dd, n) / 1e6, -1);
    remove_tree(o.save);
}

/* Peak of a process of its own, which does nothing else. */
static void memory_row(const char *program, const char *to, const char *flag)
{
    char name[100];
    struct rusage usage;
    int status;

    remove_tree(in_dir(top, "peak"));
    const pid_t child = fork();
    if (child == 0) {
        execl(program, program, "convert", in_dir(top, "native"),
              in_dir(top, "peak"), "--to", to, flag, "--quiet", (char *)NULL);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) < 0 || status != 0)
        return;
    snprintf(name, sizeof(name), "reshape/memory, to %s %s", to, flag);
    bench_row(name, (double)usage.ru_maxrss / 1024, "MiB", 256, -1);
    remove_tree(in_dir(top, "peak"));
}

static void range_moves(void)
{
    struct gpt_reshape_options o = {.to = &gpt_format_native,
                                    .dtype = GPT_N_DTYPES, .tp = 1, .pp = 4};

    row("reshape/1x1-to-1x4", "native", "cut", o);
    o.verify_input = true;
    row("reshape/1x1-to-1x4, checked", "native", "cut", o);
    o.verify_input = false;
    o.tp = o.pp = 2;
    row("reshape/1x1-to-2x2", "native", "cut", o);
    o.tp = o.pp = 1;
    row("reshape/2x2-to-1x1", "cut", "joined", o);
    remove_tree(in_dir(top, "joined"));
    remove_tree(in_dir(top, "cut"));
    o.to = &gpt_format_megatron;
    row("reshape/to-megatron", "native", "megatron", o);
    remove_tree(in_dir(top, "megatron"));
}

static void transpositions(void)
{
    struct gpt_reshape_options o = {.to = &gpt_format_hf,
                                    .dtype = GPT_N_DTYPES};

    row("reshape/to-huggingface", "native", "hf", o);
    o.to = &gpt_format_native;
    row("reshape/from-huggingface", "hf", "again", o);
    remove_tree(in_dir(top, "hf"));
    remove_tree(in_dir(top, "again"));
}

static void casts(void)
{
    struct gpt_reshape_options o = {.to = &gpt_format_native,
                                    .dtype = GPT_BF16};

    row("reshape/to-bf16", "native", "half", o);
    o.dtype = GPT_F16;
    row("reshape/to-fp16", "native", "other", o);
    o.dtype = GPT_F32;
    row("reshape/from-bf16", "half", "again", o);
    row("reshape/from-fp16", "other", "again", o);
    remove_tree(in_dir(top, "half"));
    remove_tree(in_dir(top, "other"));
    remove_tree(in_dir(top, "again"));
}

int main(int argc, char **argv)
{
    const char *dir = getenv("BENCH_DIR"), *to = getenv("BENCH_DISK");
    char program[400];
    double read, copy;

    (void)argc;
    snprintf(top, sizeof(top), "%s/gpt-bench.XXXXXX", dir ? dir : "/dev/shm");
    make_tree(top);
    bench_bandwidth(&read, &copy);
    memory_rate = copy / 2; /* it counts bytes read and bytes written */
    make_source();
    loops();
    make_model(in_dir(top, "native"));
    range_moves();
    transpositions();
    casts();
    const char *tail = strstr(argv[0], "tests/bench/");
    snprintf(program, sizeof(program), "%.*sgpt-reshape",
             tail ? (int)(tail - argv[0]) : 0, argv[0]);
    memory_row(program, "native", "--target-params-dtype=bf16");
    memory_row(program, "hf", "--no-verify-input");
    if (to) {
        struct gpt_reshape_options o = {.to = &gpt_format_native,
                                        .dtype = GPT_N_DTYPES, .tp = 2,
                                        .pp = 2};

        snprintf(disk, sizeof(disk), "%s/gpt-bench.XXXXXX", to);
        make_tree(disk);
        disk_row(o);
        remove_tree(disk);
    }
    remove_tree(top);
    return 0;
}
