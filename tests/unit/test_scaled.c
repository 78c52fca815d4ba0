/* Quantized matrices of several tensors: any stretch of one, with lines longer
 * than what is read at once, is what its elements are one by one. */
#include "base/num.h"
#include "checkpoint/packing.h"
#include "checkpoint/scaled.h"
#include "tests/lib/tap.h"

#include <unistd.h>

enum { ROWS = 40, COLUMNS = 5008, MOST = ROWS * COLUMNS };

static uint8_t bytes[4 * MOST];
static float want[MOST], got[MOST];
static struct gpt_in *in;

/* Number (i, j), from its bits alone. */
static float number(const struct gpt_fields *f, int64_t i, int64_t j)
{
    const int per = f->order ? f->per : 32 / f->bits;
    const int64_t along = f->down ? i : j, unit = along / per, k = along % per;
    const int64_t bit = 8 * (f->begin + (f->down ? unit : i) * f->pitch) +
                        (f->down ? j * 32 : unit * per * f->bits) +
                        (f->order ? f->order[k] : k) * f->bits;
    int v = 0;

    for (int b = 0; b < f->bits; b++)
        v |= (bytes[(bit + b) / 8] >> (bit + b) % 8 & 1) << b;
    if (f->codes)
        return f->codes[v];
    return (float)((v + f->plus) % (1 << f->bits) - f->minus);
}

static float scale(const struct gpt_scaled *s, int64_t i, int64_t j)
{
    const int64_t at = i * s->n_scales + j;
    const uint8_t *p = bytes + s->scales_begin + at * 4;
    float x;

    if (s->nested) {
        const struct gpt_scaled *n = s->nested;
        const float product =
            number(&n->numbers, 0, at) * scale(n, 0, at / n->group_columns);

        return product + s->offset;
    }
    memcpy(&x, p, sizeof(x));
    return x;
}

static void fill_want(const struct gpt_scaled *s)
{
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j++) {
            const int64_t g =
                s->index ? (int64_t)gpt_get_u32(bytes + s->index_begin + 4 * i)
                         : i / s->group_rows;
            const int64_t h = j / s->group_columns;
            const float zero = s->zeros.in ? number(&s->zeros, g, h) : 0;

            want[i * s->columns + j] =
                (number(&s->numbers, i, j) - zero) * scale(s, g, h) * s->after;
        }
}

static void check(const char *what, const struct gpt_scaled *s)
{
    const struct gpt_packed p = {.elements = s->rows * s->columns, .scaled = s};
    int64_t wrong = 0;
    uint64_t random = 5;

    fill_want(s);
    ok(gpt_packed_read(&p, in, got, 0, (size_t)p.elements * 4, NULL) ==
               GPT_OK &&
           memcmp(got, want, (size_t)p.elements * 4) == 0,
       "%s: all at once", what);
    for (int i = 0; i < 200; i++) {
        random = random * 6364136223846793005ULL + 1442695040888963407ULL;
        const int64_t at = (int64_t)(random >> 33) % p.elements;
        const int64_t most = gpt_min_i64(3 * s->columns, p.elements - at);
        const int64_t n = (int64_t)(random >> 13) % (most + 1);

        wrong += gpt_packed_read(&p, in, got, 4 * at, (size_t)n * 4, NULL) !=
                     GPT_OK ||
                 memcmp(got, want + at, (size_t)n * 4) != 0;
    }
    is_int(wrong, 0, "%s: stretches of it", what);
    ok(gpt_packed_read(&p, in, got, 4 * p.elements - 4, 8, NULL) == GPT_EDATA,
       "%s: and no more", what);
}

/* Scales are numbers between 1 and 2, so that all is finite. */
static void fill_bytes(void)
{
    uint64_t x = 1;

    for (size_t i = 0; i < sizeof(bytes); i++) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
        bytes[i] = (uint8_t)(x >> 56);
    }
    for (size_t i = 2 * MOST; i + 4 <= sizeof(bytes); i += 4) {
        bytes[i + 2] = (uint8_t)(0x80 | bytes[i + 2]);
        bytes[i + 3] = 0x3f;
    }
}

static void check_blocks(const float *codes)
{
    struct gpt_scaled s = {.name = "blocks",
                           .rows = ROWS,
                           .columns = COLUMNS - 1,
                           .numbers = {.in = in,
                                       .begin = 3,
                                       .pitch = COLUMNS - 1,
                                       .bits = 8,
                                       .codes = codes},
                           .group_rows = 16,
                           .group_columns = 100,
                           .n_groups = 3,
                           .n_scales = 51,
                           .after = 1,
                           .scales = in,
                           .scales_begin = 2 * MOST,
                           .scale_type = GPT_F32};

    check("codes of 8 bits in blocks", &s);
    s.group_rows = 1;
    s.group_columns = s.columns;
    s.n_groups = ROWS;
    s.n_scales = 1;
    s.after = 0.37F;
    s.numbers.codes = NULL;
    s.numbers.plus = s.numbers.minus = 128;
    s.zeros = s.numbers;
    s.zeros.pitch = 1;
    check("bytes with a zero point a row", &s);
}

static void check_words(void)
{
    static const uint8_t order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    struct gpt_scaled s = {.name = "words",
                           .rows = ROWS,
                           .columns = COLUMNS,
                           .numbers = {.in = in,
                                       .begin = 4,
                                       .pitch = 4 * COLUMNS,
                                       .bits = 4,
                                       .down = true},
                           .zeros = {.in = in,
                                     .begin = MOST,
                                     .pitch = COLUMNS / 2,
                                     .bits = 4,
                                     .plus = 1},
                           .group_rows = 8,
                           .group_columns = 1,
                           .n_groups = 5,
                           .n_scales = COLUMNS,
                           .after = 1,
                           .scales = in,
                           .scales_begin = 2 * MOST,
                           .scale_type = GPT_F32};

    check("4 bits down the rows", &s);
    s.index = in;
    s.index_begin = 8;
    check("rows of any group", &s);
    s.index = NULL;
    s.numbers.bits = 2;
    check("2 bits down the rows", &s);
    s.numbers = s.zeros;
    s.numbers.begin = 1;
    s.numbers.order = s.zeros.order = order;
    s.numbers.per = s.zeros.per = 8;
    check("4 bits in AWQ's order", &s);
}

static void check_nested(const float *codes)
{
    static const uint8_t order[2] = {1, 0};
    const struct gpt_scaled nested = {.name = "nested",
                                      .rows = 1,
                                      .columns = MOST / 64,
                                      .numbers = {.in = in,
                                                  .begin = MOST,
                                                  .pitch = MOST / 64,
                                                  .bits = 8,
                                                  .codes = codes},
                                      .group_rows = 1,
                                      .group_columns = 256,
                                      .n_groups = 1,
                                      .n_scales = MOST / 64 / 256 + 1,
                                      .after = 1,
                                      .scales = in,
                                      .scales_begin = 3 * MOST,
                                      .scale_type = GPT_F32};
    const struct gpt_scaled s = {.name = "flat",
                                 .rows = 1,
                                 .columns = MOST,
                                 .numbers = {.in = in,
                                             .begin = 9,
                                             .pitch = MOST / 2,
                                             .bits = 4,
                                             .order = order,
                                             .per = 2,
                                             .codes = codes},
                                 .group_rows = 1,
                                 .group_columns = 64,
                                 .n_groups = 1,
                                 .n_scales = MOST / 64,
                                 .after = 1,
                                 .nested = &nested,
                                 .offset = 0.25F};

    check("scales that are codes", &s);
}

int main(void)
{
    char path[] = "/tmp/scaled-XXXXXX";
    const int fd = mkstemp(path);
    float codes[256];

    for (int i = 0; i < 256; i++)
        codes[i] = (float)(i * i % 251) / 16 - 7;
    fill_bytes();
    /* groups of rows in any order, which GPTQ's index is of */
    for (int i = 0; i < ROWS; i++)
        gpt_put_u32(bytes + 8 + 4 * i, (uint32_t)(i * 7 % 5));
    if (fd < 0 || write(fd, bytes, sizeof(bytes)) != sizeof(bytes) ||
        gpt_in_open(&in, path, NULL) != GPT_OK)
        return 1;
    check_blocks(codes);
    check_words();
    check_nested(codes);
    gpt_in_close(in);
    close(fd);
    unlink(path);
    return tap_done();
}
