/* The checksum of a whole input, taken block by block while its readers need
 * the blocks, in whatever order: so a disk gives each block once, and not once
 * more for the checksum. Start at gpt_in_sum(). */
#include "base/io_internal.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"

#include <stdatomic.h>

enum {
    BLOCK = 1 << 20, /* that one thread sums */
    PIECE = 64 << 10, /* of it, which stays in the second cache */
};

struct gpt_block_sums {
    int64_t n;
    uint32_t *sums;      /* CRC-32C of each block */
    atomic_uchar *taken; /* by a thread that sums it, or has */
};

/* The end of block i; the last block is shorter. */
static int64_t end_of_block(const struct gpt_in *in, int64_t i)
{
    return gpt_min_i64((i + 1) * BLOCK, gpt_in_size(in));
}

/* The sums take five bytes for each MiB of the file. */
int gpt_sums_open(struct gpt_block_sums **sums, int64_t size,
                  struct gpt_err *err)
{
    struct gpt_block_sums *s;
    int status;

    *sums = NULL;
    GPT_TRY(gpt_new(&s, 1, sizeof(*s), "checksums", err));
    s->n = gpt_ceil_div(size, BLOCK);
    GPT_TRY_GOTO(status, gpt_new(&s->sums, (size_t)s->n, sizeof(*s->sums),
                                 "checksums", err), fail);
    GPT_TRY_GOTO(status, gpt_new(&s->taken, (size_t)s->n, sizeof(*s->taken),
                                 "checksums", err), fail);
    *sums = s;
    return GPT_OK;
fail:
    gpt_sums_close(s);
    return status;
}

void gpt_sums_close(struct gpt_block_sums *s)
{
    if (!s)
        return;
    gpt_free(s->sums);
    gpt_free(s->taken);
    gpt_free(s);
}

/* The first thread reads the block, and others go on meanwhile: no sum is
 * needed before the end. A block that could not be read is free again, so that
 * the next reader reports that, too. */
static int sum_block(struct gpt_in *in, struct gpt_block_sums *s, int64_t i,
                     struct gpt_err *err)
{
    const int64_t end = end_of_block(in, i);
    uint8_t piece[PIECE];
    uint32_t crc = 0;

    if (atomic_exchange(&s->taken[i], 1))
        return GPT_OK;
    for (int64_t at = i * BLOCK; at < end; at += PIECE) {
        const size_t n = (size_t)gpt_min_i64(PIECE, end - at);
        const int status = gpt_in_read(in, piece, at, n, err);

        if (status != GPT_OK) {
            atomic_store(&s->taken[i], 0);
            return status;
        }
        crc = gpt_crc32c(crc, piece, n);
    }
    s->sums[i] = crc;
    return GPT_OK;
}

int gpt_in_sum(struct gpt_in *in, int64_t offset, int64_t n,
               struct gpt_err *err)
{
    struct gpt_block_sums *s = gpt_in_sums(in);

    /* a reader that asks for more than there is hears of it from its read */
    if (!s || n <= 0)
        return GPT_OK;
    const int64_t last = gpt_min_i64((offset + n - 1) / BLOCK, s->n - 1);
    for (int64_t i = offset / BLOCK; i <= last; i++)
        GPT_TRY(sum_block(in, s, i, err));
    return GPT_OK;
}

/* Checksums of blocks are joined in the order of the file, whichever thread has
 * taken them, and when. */
int gpt_in_sum_all(struct gpt_in *in, uint32_t *crc, struct gpt_err *err)
{
    int status = gpt_in_keep_sums(in, err);

    *crc = 0;
    GPT_TRY(status);
    struct gpt_block_sums *s = gpt_in_sums(in);
#pragma omp parallel for schedule(dynamic) if (s->n > 1)
    for (int64_t i = 0; i < s->n; i++) {
        struct gpt_err e = {0};
        int failed = gpt_signals_check(&e); /* a file may take minutes */

        if (failed == GPT_OK)
            failed = sum_block(in, s, i, &e);
        if (failed != GPT_OK)
#pragma omp critical(gpt_in_sum_error)
        {
            if (status == GPT_OK && err)
                *err = e;
            status = failed;
        }
    }
    for (int64_t i = 0; i < s->n; i++)
        *crc = gpt_crc_join(GPT_CRC32C_POLYNOMIAL, *crc, s->sums[i],
                            end_of_block(in, i) - i * BLOCK);
    return status;
}
