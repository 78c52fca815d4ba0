/* Packed blocks become the floats of gguf-py, bit for bit, and any stretch of
 * them is the same part of the whole. */
#include "base/hash.h"
#include "checkpoint/packing.h"
#include "tests/lib/tap.h"

#include <unistd.h>

enum { MOST_BLOCKS = 16 };

/* Blocks of one type, one after the other. */
struct kind {
    const struct gpt_packing *packing;
    uint8_t bytes[MOST_BLOCKS * GPT_PACKED_BYTES];
    float x[MOST_BLOCKS * GPT_PACKING_MOST];
    int n, wrong;
};

/* What NaN a processor makes differs, and what kinds of it there are. */
static uint32_t sum_of(const float *x, int64_t n)
{
    uint32_t bits, crc = 0;

    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, &x[i], sizeof(bits));
        if (isnan(x[i]))
            bits = 0x7fc00000;
        crc = gpt_crc32(crc, &bits, sizeof(bits));
    }
    return crc;
}

static void add_block(struct kind *k, const char *digits, uint32_t crc)
{
    const struct gpt_packing *p = k->packing;
    uint8_t *block = k->bytes + k->n * p->bytes;
    float *x = k->x + k->n * p->elements;
    unsigned byte;

    if (strlen(digits) != 2 * (size_t)p->bytes || k->n == MOST_BLOCKS) {
        k->wrong++;
        return;
    }
    for (int64_t i = 0; i < p->bytes; i++) {
        k->wrong += sscanf(digits + 2 * i, "%2x", &byte) != 1;
        block[i] = (uint8_t)byte;
    }
    p->unpack(x, block);
    k->wrong += sum_of(x, p->elements) != crc;
    k->n++;
}

/* Stretches that begin and end inside of blocks. */
static int64_t count_apart(const struct kind *k)
{
    const struct gpt_packing *p = k->packing;
    const struct gpt_packed all = {
        .packing = p, .begin = 5, .elements = k->n * p->elements};
    float got[MOST_BLOCKS * GPT_PACKING_MOST];
    char path[] = "/tmp/packing-XXXXXX";
    int64_t apart = 0;
    struct gpt_in *in;
    const int fd = mkstemp(path);

    if (fd < 0 || pwrite(fd, k->bytes, (size_t)(k->n * p->bytes), 5) < 0 ||
        gpt_in_open(&in, path, NULL) != GPT_OK)
        return -1;
    for (int64_t at = 0; at < all.elements; at += 37) {
        const int64_t n = at * 7 % 300 < all.elements - at ? at * 7 % 300
                                                           : all.elements - at;

        apart += gpt_packed_read(&all, in, got, at * 4, (size_t)n * 4, NULL) !=
                     GPT_OK ||
                 memcmp(got, k->x + at, (size_t)n * sizeof(*got)) != 0;
    }
    apart += gpt_packed_read(&all, in, got, all.elements * 4 - 4, 8, NULL) !=
             GPT_EDATA;
    gpt_in_close(in);
    close(fd);
    unlink(path);
    return apart;
}

static void end_kind(struct kind *k)
{
    if (!k->packing)
        return;
    ok(k->n == 10 && k->wrong == 0, "%s: the floats of gguf-py",
       k->packing->name);
    is_int(count_apart(k), 0, "%s: stretches are parts", k->packing->name);
    k->n = k->wrong = 0;
}

/* Numbers that a kind holds exactly stay, wherever in the block the one is that
 * its scale follows from, and the least one of kinds that have one. */
static void test_exact(void)
{
    static const struct {
        const char *name;
        float most, least;
    } kinds[] = {{"q8_0", 127, 0}, {"q4_0", -8, 0}, {"q5_0", -16, 0},
                 {"q4_1", 15 + 3, 3}, {"q5_1", 31 + 3, 3}};

    for (size_t i = 0; i < GPT_COUNT(kinds); i++) {
        const struct gpt_packing *p = gpt_packing_named(kinds[i].name);
        int changed = 0;

        for (int at = 0; at < 32; at++) {
            float x[32], want[32];

            for (int k = 0; k < 32; k++)
                want[k] = kinds[i].least + (float)(1 + k % 7);
            want[at] = kinds[i].most;
            want[(at + 1) % 32] = kinds[i].least;
            memcpy(x, want, sizeof(x));
            gpt_packing_round(p, x, 32);
            for (int k = 0; k < 32; k++)
                changed += x[k] < want[k] || x[k] > want[k];
        }
        is_int(changed, 0, "%s holds what it can", p->name);
    }
}

int main(void)
{
    FILE *f = fopen("tests/golden/packings.txt", "r");
    char name[16], digits[2 * GPT_PACKED_BYTES + 1];
    static struct kind k;
    uint32_t crc;
    int kinds = 0, rows = 0;

    while (f && fscanf(f, " %15s %420s %x", name, digits, &crc) == 3) {
        if (!k.packing || strcmp(k.packing->name, name) != 0) {
            end_kind(&k);
            k.packing = gpt_packing_named(name);
            kinds++;
        }
        if (k.packing)
            add_block(&k, digits, crc);
    }
    end_kind(&k);
    for (const struct gpt_packing *p = gpt_packings; p->name; p++)
        rows++;
    is_int(kinds, rows, "every row of the table is there");
    if (f)
        fclose(f);
    test_exact();
    return tap_done();
}
