/* Prints the logits of a native checkpoint for given tokens, by the decoder's
 * pass over a prompt: one line a position, V numbers of 9 digits.
 * Usage: logits_dump CHECKPOINT TOKEN... */
#include "checkpoint/load.h"
#include "model/decode.h"

#include <stdio.h>
#include <stdlib.h>

static int dump(const char *path, const int32_t *tokens, int64_t n,
                struct gpt_err *err)
{
    struct gpt_checkpoint *ck;
    struct gpt_backend *be;
    struct gpt_param_table table;
    struct gpt_flat flat;
    struct gpt_decoder *decoder;
    void *weights;
    GPT_TRY(gpt_checkpoint_open(&ck, path, -1, true, err));
    const struct gpt_config *c = gpt_checkpoint_config(ck);
    struct gpt_layout layout = GPT_LAYOUT_SINGLE(c);
    GPT_TRY(gpt_backend_open(&be, "cpu", err));
    GPT_TRY(gpt_params_build(&table, c, err));
    GPT_TRY(gpt_flat_build(&flat, &table, &layout, err));
    GPT_TRY(gpt_load_weights(&weights, ck, &flat, GPT_F32, be, err));
    struct gpt_decoder_options o = {.config = c, .flat = &flat, .act = GPT_F32,
                                    .slots = 1,
                                    .positions = c->max_positions};
    GPT_TRY(gpt_decoder_open(&decoder, be, &o, weights, err));
    float *logits = calloc((size_t)(n * c->vocab_size), sizeof *logits);
    if (!logits)
        return gpt_fail(err, GPT_EFAIL, "out of memory");
    GPT_TRY(gpt_decoder_append(decoder, 0, tokens, n, GPT_LOGITS_ALL, logits,
                               err));
    for (int64_t i = 0; i < n * c->vocab_size; i++)
        printf("%.9g%c", (double)logits[i],
               (i + 1) % c->vocab_size ? ' ' : '\n');
    free(logits);
    gpt_decoder_close(decoder);
    be->free(be, weights);
    gpt_flat_free(&flat);
    gpt_params_free(&table);
    gpt_checkpoint_close(ck);
    return GPT_OK;
}

int main(int argc, char **argv)
{
    struct gpt_err err = {0};
    int32_t tokens[1024];
    int n = 0;
    if (argc < 3 || argc > 1026) {
        fprintf(stderr, "usage: logits_dump CHECKPOINT TOKEN...\n");
        return 2;
    }
    for (; n < argc - 2; n++)
        tokens[n] = atoi(argv[n + 2]);
    int status = dump(argv[1], tokens, n, &err);
    if (status != GPT_OK)
        fprintf(stderr, "logits_dump: %s\n", err.text);
    return status;
}
