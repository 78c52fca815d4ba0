/* Fuzz target: any bytes to tokens and back, twice, the second time with the
 * cache. */
#include "base/memory.h"
#include "tokenizer/pretok.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct gpt_tokenizer *tok;

static struct gpt_encoder *open_encoder(void)
{
    struct gpt_encoder *enc = NULL;
    struct gpt_err err;
    struct gpt_tokenizer_options o = {
        .type = "GPT2BPETokenizer",
        .vocab_file = "tests/golden/gpt2/vocab.json",
        .merge_file = "tests/golden/gpt2/merges.txt"};

    if (gpt_tokenizer_open(&tok, &o, &err) != GPT_OK ||
        gpt_encoder_open(&enc, tok, &err) != GPT_OK)
        abort();
    return enc;
}

static void check_back(const struct gpt_ids *ids, const char *text, size_t len)
{
    size_t at = 0, n;

    for (size_t i = 0; i < ids->len; i++, at += n) {
        const char *bytes = gpt_token_bytes(tok, ids->data[i], &n);

        if (n == 0 || at + n > len || memcmp(bytes, text + at, n) != 0)
            abort();
    }
    if (at != len)
        abort();
}

/* Every piece has a length, and the fast form has the same ends. */
static void check_pieces(const char *text, size_t size)
{
    struct gpt_stretch s[3];
    size_t ends[2 * GPT_STRETCH + 3], n = 0, k = 0, base = 0;
    gpt_cut_fn *cut = gpt_cut_like(gpt_pretok_gpt2);

    for (size_t at = 0; at < size; k++) {
        if (cut && k == n) {
            base = at;
            n = gpt_stretch_ends(s, cut(text + at, size - at, s, 2), ends);
            k = 0;
        }
        size_t piece = gpt_pretok_gpt2(text + at, size - at);
        if (piece == 0 || piece > size - at)
            abort();
        at += piece;
        if (cut && (k >= n || base + ends[k] != at))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gpt_encoder *enc;
    struct gpt_err err;
    struct gpt_ids ids = {0}, again = {0};

    if (!enc)
        enc = open_encoder();
    char *text = malloc(size ? size : 1);
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    check_pieces(text, size);
    if (gpt_encode(enc, text, size, &ids, &err) != GPT_OK ||
        gpt_encode(enc, text, size, &again, &err) != GPT_OK)
        abort();
    check_back(&ids, text, size);
    if (ids.len != again.len ||
        (ids.len &&
         memcmp(ids.data, again.data, ids.len * sizeof(*ids.data)) != 0))
        abort();
    gpt_free(ids.data);
    gpt_free(again.data);
    free(text);
    return 0;
}
