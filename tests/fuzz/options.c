/* Fuzz target: a configuration file (the input up to the first 0x01 byte) and
 * the words of a command line (the rest, separated by line ends). Options that
 * are accepted are printed, and the result must be accepted again. */
#include "base/memory.h"
#include "base/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct options {
    struct gpt_common_options common;
    const char *input, *kind;
    int64_t layers, bytes;
    double rate;
    bool bias;
    struct gpt_list data;
};

static const char *const kinds[] = {"linear", "cosine", NULL};

static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_STRING, .letter = 'i', .name = "input",
     .offset = offsetof(struct options, input)},
    {.kind = GPT_OPT_CHOICE, .name = "kind", .choices = kinds,
     .offset = offsetof(struct options, kind)},
    {.kind = GPT_OPT_INT, .letter = 'n', .name = "layers", .max = 100,
     .offset = offsetof(struct options, layers)},
    {.kind = GPT_OPT_BYTES, .name = "bytes",
     .offset = offsetof(struct options, bytes)},
    {.kind = GPT_OPT_REAL, .name = "rate",
     .offset = offsetof(struct options, rate)},
    {.kind = GPT_OPT_FLAG, .letter = 'b', .name = "bias",
     .offset = offsetof(struct options, bias)},
    {.kind = GPT_OPT_LIST, .name = "data",
     .offset = offsetof(struct options, data)},
    GPT_COMMON_OPTIONS(struct options, common),
};

static const struct gpt_program program = {
    .name = "gpt-fuzz", .options = table, .n_options = GPT_COUNT(table),
    .options_bytes = sizeof(struct options), .max_positional = 3};

/* A file that has this content, as "/proc/self/fd/N" in path. */
static int make_file(const void *p, size_t n, char path[64])
{
    int fd = memfd_create("config", 0);

    if (fd < 0 || write(fd, p, n) != (ssize_t)n)
        abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* The configuration as printed must give the same configuration. */
static void check_print(const struct options *o, const struct gpt_args *args,
                        struct gpt_arena *arena)
{
    struct options again;
    struct gpt_args unused;
    struct gpt_err err;
    struct gpt_buf b = {0};
    char path[64], name[] = "gpt-fuzz", option[] = "--config";

    if (gpt_options_print(&program, o, args, &b) != GPT_OK)
        abort();
    int fd = make_file(b.data, b.len, path);
    char *const argv[] = {name, option, path, NULL};
    if (b.len <= 1 << 20 &&
        (gpt_options_parse(&program, 3, argv, &again, &unused, arena, &err) ||
         again.layers != o->layers || again.data.n != o->data.n))
        abort();
    close(fd);
    gpt_buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_arena arena = {0};
    struct gpt_args args;
    struct gpt_err err;
    struct options o;
    char path[64], name[] = "gpt-fuzz", option[] = "--config";
    char *argv[40] = {name, option, path};
    int argc = 3;

    /* --config could name a pipe or terminal, and wait: "-" gets nothing, and
     * without slashes other files are hard to find. */
    if (!freopen("/dev/null", "r", stdin))
        abort();
    const uint8_t *mark = size > 0 ? memchr(data, 1, size) : NULL;
    size_t n = mark ? (size_t)(mark - data) : size;
    int fd = make_file(data, n, path);
    char *words = gpt_arena_alloc(&arena, size - n + 1, 1);
    if (mark)
        memcpy(words, mark + 1, size - n - 1);
    for (char *slash = words; (slash = strchr(slash, '/')) != NULL;)
        *slash = '_';
    for (char *w = words; w && *w && argc < 39;) {
        argv[argc++] = w;
        w = strchr(w, '\n');
        if (w)
            *w++ = '\0';
    }
    if (gpt_options_parse(&program, argc, argv, &o, &args, &arena, &err) ==
        GPT_OK)
        check_print(&o, &args, &arena);
    close(fd);
    gpt_arena_free(&arena);
    return 0;
}
