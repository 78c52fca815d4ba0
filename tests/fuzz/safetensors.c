/* Fuzz target: a safetensors file. The tensors of a file that is accepted must
 * tile the data exactly, and each must be found by its name. */
#include "checkpoint/safetensors/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void broken(void)
{
    abort(); /* a fuzzer keeps the input */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_safetensors st;
    struct gpt_err err = {0};
    int64_t at, bytes;

    if (gpt_safetensors_parse(&st, data, size, (int64_t)size, "fuzz", &err)) {
        if (err.status != GPT_EDATA || strncmp(err.text, "fuzz", 4) != 0)
            broken();
        return 0;
    }
    at = st.data_start;
    for (int64_t i = 0; i < st.n; i++) {
        const struct gpt_safetensor *t = &st.tensors[i];

        if (t->begin != at || !gpt_safetensor_bytes(t, &bytes) ||
            t->end - t->begin != bytes ||
            gpt_safetensors_find(&st, t->name) != t)
            broken();
        at = t->end;
    }
    if (at != (int64_t)size)
        broken();
    for (int64_t i = 0; i < st.n_notes; i++)
        if (gpt_safetensors_note(&st, st.notes[i].key) != st.notes[i].value)
            broken();
    gpt_safetensors_close(&st);
    return 0;
}
