/* Logits of a checkpoint's model. A text is given as token ids: as arguments,
 * or each line of standard input is one. Its first half goes through as a
 * prompt, the rest in steps. Output: a line a position, V numbers.
 *
 *   logits CHECKPOINT ID... > numbers
 *   logits CHECKPOINT < ids > numbers */
#include "base/memory.h"
#include "checkpoint/load.h"
#include "model/decode.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 4096 };

static int64_t read_ids(int32_t *ids)
{
    static char line[MOST * 8];
    int64_t n = 0;

    if (!fgets(line, sizeof(line), stdin))
        return 0;
    char *at = line, *end;
    for (;; at = end) {
        long id = strtol(at, &end, 10);

        if (end == at || n == MOST)
            return n;
        ids[n++] = (int32_t)id;
    }
}

static int dump(struct gpt_decoder *d, const int32_t *ids, int64_t n,
                float *logits, struct gpt_err *err)
{
    int64_t v = gpt_decoder_shape(d)->config->vocab_size, half = n / 2 + 1;
    int32_t slot = 0;

    gpt_decoder_truncate(d, slot, 0);
    GPT_TRY(gpt_decoder_append(d, slot, ids, half, GPT_LOGITS_ALL, logits,
                               err));
    for (int64_t i = half; i < n; i++)
        GPT_TRY(gpt_decoder_step(d, &slot, ids + i, 1, logits + i * v, err));
    for (int64_t i = 0; i < n * v; i++)
        printf("%.9g%c", (double)logits[i], (i + 1) % v == 0 ? '\n' : ' ');
    return GPT_OK;
}

static int run(const char *path, char **words, int n_words,
               struct gpt_err *err)
{
    const struct gpt_source_options verified = {.iteration = -1,
                                                .verify = true};
    struct gpt_source source;
    struct gpt_backend *be;
    struct gpt_param_table table;
    struct gpt_flat flat;
    struct gpt_decoder *d;
    static int32_t ids[MOST];
    void *weights;

    GPT_TRY(gpt_source_open(&source, path, &verified, err));
    const struct gpt_config *config = &source.config;
    struct gpt_layout layout = GPT_LAYOUT_SINGLE(config);
    GPT_TRY(gpt_backend_open(&be, "cpu", err));
    GPT_TRY(gpt_params_build(&table, config, err));
    GPT_TRY(gpt_flat_build(&flat, &table, &layout, err));
    GPT_TRY(gpt_load_weights(&weights, &source, &flat, GPT_F32, be, err));
    struct gpt_decoder_options o = {
        .config = config,
        .flat = &flat,
        .act = GPT_F32,
        .slots = 1,
        .positions = config->max_positions,
    };
    GPT_TRY(gpt_decoder_open(&d, be, &o, weights, err));
    float *logits = NULL;
    GPT_TRY(gpt_new(&logits, (size_t)(o.positions * config->vocab_size),
                    sizeof(*logits), "logits", err));
    for (int i = 0; i < n_words; i++)
        ids[i] = (int32_t)strtol(words[i], NULL, 10);
    if (n_words > 0)
        GPT_TRY(dump(d, ids, n_words, logits, err));
    for (int64_t n; n_words == 0 && (n = read_ids(ids)) > 0;)
        GPT_TRY(dump(d, ids, n, logits, err));
    gpt_free(logits);
    gpt_decoder_close(d);
    be->free(be, weights);
    gpt_flat_free(&flat);
    gpt_params_free(&table);
    gpt_source_close(&source);
    return GPT_OK;
}

int main(int argc, char **argv)
{
    struct gpt_err err = {0};

    if (argc < 2 || argc - 2 > MOST) {
        fprintf(stderr, "usage: logits CHECKPOINT [ID...]\n");
        return GPT_EUSAGE;
    }
    int rc = run(argv[1], argv + 2, argc - 2, &err);
    if (rc != GPT_OK)
        fprintf(stderr, "logits: %s\n", err.text);
    return rc;
}
