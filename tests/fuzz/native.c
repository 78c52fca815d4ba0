/* Fuzz target: a native checkpoint of one file. Input is the length of the
 * manifest in four bytes, the manifest up to its checksum, which is added here,
 * and the file. Of what is accepted the last element of each tensor can be
 * read, and the state of the run is read or refused. */
#include "base/num.h"
#include "checkpoint/native/manifest.h"
#include "checkpoint/source.h"
#include "cmd/train/best.h"
#include "cmd/train/lr_schedule_json.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_manifest(const uint8_t *data, size_t size)
{
    struct gpt_buf b = {0};

    if (gpt_buf_add(&b, data, size) != GPT_OK ||
        gpt_manifest_seal(&b) != GPT_OK)
        abort();
    fuzz_write(GPT_MANIFEST, (const uint8_t *)b.data, b.len);
    gpt_buf_free(&b);
}

static void read_state(const struct gpt_source *s)
{
    struct gpt_lr_schedule schedule;
    struct gpt_best best = {0};
    struct gpt_err err = {0};

    fuzz_check(gpt_lr_schedule_from_json(&schedule, s->state, "fuzz", &err),
               &err);
    fuzz_check(gpt_best_from_json(&best, s->state, "fuzz", &err), &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct gpt_source_options newest = {.iteration = -1};
    struct gpt_source s;
    struct gpt_err err = {0};

    if (size < 4)
        return 0;
    const size_t n = (size_t)gpt_min_i64((int64_t)gpt_get_u32(data),
                                         (int64_t)size - 4);
    write_manifest(data + 4, n);
    fuzz_write("model_tp00_pp00.safetensors", data + 4 + n, size - 4 - n);
    const int status = gpt_source_open(&s, fuzz_top, &newest, &err);
    fuzz_check(status, &err);
    if (status != GPT_OK)
        return 0;
    fuzz_read_tensors(&s, &err);
    read_state(&s);
    gpt_source_close(&s);
    return 0;
}
