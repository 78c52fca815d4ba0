/* Fuzz target: an .idx image beside a .bin of 64 bytes. An index that passes
 * the check is read completely, so that a wrong pointer shows as a read outside
 * of the .bin. The check that continues after findings must have findings
 * exactly when the first check fails. */
#include "data/idx.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BIN_BYTES = 64 };

static volatile unsigned sink;

static void broken(void)
{
    abort(); /* a fuzzer keeps the input */
}

static void found(void *user, enum gpt_damage kind, const struct gpt_err *err)
{
    (void)user;
    if (kind >= GPT_N_DAMAGES || !strstr(err->text, "fuzz.idx"))
        broken();
}

static int64_t findings(const uint8_t *data, size_t size)
{
    struct gpt_damages all = {.most = 3, .found = found};
    struct gpt_idx idx;
    int status = gpt_idx_check(&idx, data, (int64_t)size, BIN_BYTES,
                               "fuzz.idx", &all);

    if (status != GPT_OK && all.count[GPT_DAMAGE_HEADER] == 0 &&
        all.count[GPT_DAMAGE_DTYPE] == 0)
        broken();
    for (int64_t d = 0; status == GPT_OK && d <= idx.n_documents; d++)
        sink += (unsigned)gpt_idx_i64(idx.documents, d);
    return gpt_damages_total(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_err err;
    struct gpt_idx idx;

    if ((gpt_idx_parse(&idx, data, (int64_t)size, BIN_BYTES, "fuzz.idx",
                       &err) == GPT_OK) != (findings(data, size) == 0))
        broken();
    if (gpt_idx_parse(&idx, data, (int64_t)size, BIN_BYTES, "fuzz.idx",
                      &err) != GPT_OK) {
        if (err.status != GPT_EDATA || !strstr(err.text, "fuzz.idx"))
            broken();
        return 0;
    }
    uint8_t *bin = calloc(BIN_BYTES, 1);
    int64_t item = (int64_t)gpt_dtype_bytes(idx.dtype), tokens = 0;
    for (int64_t i = 0; bin && i < idx.n_sequences; i++) {
        int64_t n = gpt_idx_i32(idx.lengths, i);
        int64_t at = gpt_idx_i64(idx.pointers, i);

        for (int64_t k = 0; k < n * item; k++)
            sink += bin[at + k];
        tokens += n;
    }
    free(bin);
    for (int64_t d = 0; d < idx.n_documents; d++)
        if (gpt_idx_i64(idx.documents, d) >
            gpt_idx_i64(idx.documents, d + 1))
            broken();
    if (tokens != idx.n_tokens || tokens * item != BIN_BYTES)
        broken();
    return 0;
}
