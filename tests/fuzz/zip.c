/* Fuzz target: a zip archive. The entries of one that is accepted lie in it one
 * after another, before the list; each is found by its name; and the archive
 * reads the same where it is a window of a longer file. */
#include "checkpoint/torch/zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort(); /* a fuzzer keeps the input */
}

static bool is_inside(const struct gpt_zip_entry *e, int64_t begin,
                      int64_t end)
{
    return e->header >= begin && e->begin > e->header && e->bytes >= 0 &&
           e->begin + e->bytes <= end;
}

static bool overlap(const struct gpt_zip_entry *a,
                    const struct gpt_zip_entry *b)
{
    return a->header < b->begin + b->bytes && b->header < a->begin + a->bytes;
}

/* A part that is "..", not one that only ends in it. */
static bool leaves(const char *name)
{
    const size_t n = strlen(name);

    return *name == '/' || strncmp(name, "../", 3) == 0 ||
           strcmp(name, "..") == 0 || strstr(name, "/../") ||
           (n >= 3 && strcmp(name + n - 3, "/..") == 0);
}

static void check_entries(const struct gpt_zip *zip, int64_t begin, int64_t end)
{
    require(zip->n > 0 && gpt_zip_find(zip, zip->first));
    for (int64_t i = 0; i < zip->n; i++) {
        const struct gpt_zip_entry *e = &zip->entries[i];

        require(is_inside(e, begin, end));
        require(gpt_zip_find(zip, e->name) == e); /* so names are different */
        require(!leaves(e->name));
        for (int64_t k = 0; k < i && k < 64; k++) /* time is limited */
            require(!overlap(e, &zip->entries[k]));
    }
}

/* A window's offsets are those of the file, `by` further on. */
static void check_same(const struct gpt_zip *a, const struct gpt_zip *b,
                       int64_t by)
{
    require(a->n == b->n && strcmp(a->first, b->first) == 0);
    for (int64_t i = 0; i < a->n; i++) {
        const struct gpt_zip_entry *x = &a->entries[i], *y = &b->entries[i];

        require(strcmp(x->name, y->name) == 0 && x->bytes == y->bytes &&
                x->crc == y->crc && x->header + by == y->header &&
                x->begin + by == y->begin);
    }
}

static void open_both(struct gpt_in *in, int64_t size)
{
    struct gpt_zip zip, window;
    struct gpt_err err = {0}, window_err = {0};
    const int status = gpt_zip_open(&zip, in, 0, size, &err);

    require(gpt_zip_open(&window, in, size, size, &window_err) == status);
    if (status == GPT_OK) {
        check_entries(&zip, 0, size);
        check_same(&zip, &window, size);
        gpt_zip_close(&zip);
        gpt_zip_close(&window);
        return;
    }
    require(status == GPT_EDATA && err.text[0] && window_err.text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_in *in;
    struct gpt_err err = {0};
    char path[32];
    int fd = memfd_create("zip", 0);

    if (fd < 0)
        exit(1);
    for (int twice = 0; twice < 2; twice++)
        if (size && write(fd, data, size) != (ssize_t)size)
            exit(1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (gpt_in_open(&in, path, &err) != GPT_OK)
        exit(1);
    open_both(in, (int64_t)size);
    gpt_in_close(in);
    close(fd);
    return 0;
}
