/* A main() for fuzz targets (LLVMFuzzerTestOneInput) without a fuzzer. Its
 * inputs are every file of tests/fuzz/corpus/NAME, all its beginnings (64 of a
 * long file) and 200 versions with a few changed bytes. The test is that
 * nothing crashes; sanitizers make it stricter. */
#include "base/io.h"
#include "base/memory.h"
#include "base/rng.h"
#include "tests/lib/tap.h"

#include <dirent.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHANGED = 200, BEGINNINGS = 64, SECONDS = 120 };

/* Copies the input to a block of exactly its size, so that AddressSanitizer
 * detects reads after its end. */
static void feed(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    if (!copy)
        return;
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void feed_beginnings(const uint8_t *data, size_t size)
{
    size_t step = size / BEGINNINGS + 1;

    for (size_t n = 0; n < size; n += step)
        feed(data, n);
}

static void feed_changed(uint8_t *data, size_t size)
{
    struct gpt_rng r = gpt_rng_open(size, "replay");
    uint64_t draw = 0;

    for (int i = 0; i < CHANGED && size > 0; i++) {
        size_t at[4];
        uint8_t old[4];
        int n = 1 + i % 4;

        for (int k = 0; k < n; k++) {
            at[k] = gpt_rng_u32(r, draw++) % size;
            old[k] = data[at[k]];
            uint32_t x = gpt_rng_u32(r, draw++);
            data[at[k]] = x & 1 ? (uint8_t)(old[k] ^ (1u << (x >> 8 & 7)))
                                : (uint8_t)(x >> 16);
        }
        feed(data, size);
        for (int k = n; k-- > 0;)
            data[at[k]] = old[k];
    }
}

static void replay(const char *path)
{
    struct gpt_err err = {0};
    char *data;
    size_t size;

    if (gpt_read_file(path, 1 << 24, &data, &size, &err) != GPT_OK) {
        ok(false, "%s: %s", path, err.text);
        return;
    }
    alarm(SECONDS); /* ends a hang as a failure, on a busy machine too */
    feed((uint8_t *)data, size);
    feed_beginnings((uint8_t *)data, size);
    feed_changed((uint8_t *)data, size);
    alarm(0);
    ok(true, "%s", path);
    gpt_free(data);
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    char dir[512], path[1024];
    struct dirent **entries = NULL;
    const char *slash = strrchr(argv[0], '/');
    const char *name = slash ? slash + 1 : argv[0];

    (void)argc;
    snprintf(dir, sizeof(dir), "tests/fuzz/corpus/%.*s",
             (int)strcspn(name, "."), name);
    int n = scandir(dir, &entries, visible, alphasort);
    ok(n > 0, "%s has files", dir);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
        replay(path);
        free(entries[i]);
    }
    free(entries);
    return tap_done();
}
