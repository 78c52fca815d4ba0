/* Fuzz target: data sets of other programs. The first byte chooses: 't' an
 * index of TNTIDX, 'd' a .ds.index, each beside 22 bytes of tokens, 'l' a file
 * of llm.c. A set that is accepted must be consistent. */
#include "cmd/dataset/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/tmp/gpt-fuzz-convert.XXXXXX";
static const uint8_t tokens[22] = {1, 0, 2, 0, 1};

static void write_file(const char *name, const void *p, size_t n)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/x%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f) != 0)
        abort();
}

static void remove_files(void)
{
    static const char *const names[] = {".bin", ".idx", ".ds", ".ds.index"};

    for (size_t i = 0; i < GPT_COUNT(names); i++) {
        char path[128];

        snprintf(path, sizeof(path), "%s/x%s", dir, names[i]);
        unlink(path);
    }
}

static void leave(void)
{
    remove_files();
    rmdir(dir);
}

static void check(const struct gpt_foreign *s)
{
    const struct gpt_set_range *p = &s->part;
    int64_t sum = 0, before = 0;

    for (int64_t i = 0; i < p->n_sequences; i++)
        sum += gpt_idx_i32(p->lengths, i);
    if (sum * (int64_t)gpt_dtype_bytes(s->dtype) != p->bytes)
        abort();
    for (int64_t d = 0; d <= p->n_documents; d++) {
        int64_t v = gpt_idx_i64(p->documents, d);

        if (v < before || v > p->n_sequences || (d == 0 && v != 0))
            abort();
        before = v;
    }
    if (before != p->n_sequences)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    struct gpt_foreign s;
    struct gpt_err err = {0};
    char prefix[64];

    if (!made && !mkdtemp(dir))
        abort();
    if (!made)
        atexit(leave);
    made = true;
    if (size == 0)
        return 0;
    remove_files();
    if (data[0] == 'l')
        write_file(".bin", data + 1, size - 1);
    else if (data[0] == 'd')
        write_file(".ds.index", data + 1, size - 1);
    else
        write_file(".idx", data + 1, size - 1);
    if (data[0] != 'l')
        write_file(data[0] == 'd' ? ".ds" : ".bin", tokens, sizeof(tokens));
    snprintf(prefix, sizeof(prefix), "%s/x", dir);
    if (gpt_foreign_open(&s, prefix, 2, &err) == GPT_OK)
        check(&s);
    else if (err.status != GPT_EDATA || !strstr(err.text, dir))
        abort();
    gpt_foreign_close(&s);
    return 0;
}
