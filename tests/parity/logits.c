/* Logits of a checkpoint's model. A text is given as token ids: as arguments,
 * or each line of standard input is one. Its first half goes through as a
 * prompt, the rest in steps; in bf16 all of it as in training. Output: a line a
 * position, V numbers.
 *
 *   logits CHECKPOINT ID... > numbers
 *   logits CHECKPOINT < ids > numbers
 *   logits --bf16 CHECKPOINT ID... > numbers */
#include "base/memory.h"
#include "checkpoint/load.h"
#include "model/decode.h"
#include "model/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A loaded model. */
struct model {
    struct gpt_source source;
    struct gpt_backend *be;
    struct gpt_param_table table;
    struct gpt_flat flat;
    void *weights;
};

static int open_model(struct model *m, const char *path, enum gpt_dtype act,
                      struct gpt_err *err)
{
    const struct gpt_source_options verified = {.iteration = -1,
                                                .verify = true};

    GPT_TRY(gpt_source_open(&m->source, path, &verified, err));
    const struct gpt_config *config = &m->source.config;
    struct gpt_layout layout = GPT_LAYOUT_SINGLE(config);
    GPT_TRY(gpt_backend_open(&m->be, "cpu", err));
    GPT_TRY(gpt_params_build(&m->table, config, err));
    GPT_TRY(gpt_flat_build(&m->flat, &m->table, &layout, err));
    return gpt_load_weights(&m->weights, &m->source, &m->flat, act, m->be, err);
}

static void close_model(struct model *m)
{
    m->be->free(m->be, m->weights);
    gpt_flat_free(&m->flat);
    gpt_params_free(&m->table);
    gpt_source_close(&m->source);
}

/* In float, as texts are generated. */
static int decode(struct model *m, char **words, int n_words,
                  struct gpt_err *err)
{
    const struct gpt_config *config = &m->source.config;
    static int32_t ids[MOST];
    struct gpt_decoder *d;
    struct gpt_decoder_options o = {
        .config = config,
        .flat = &m->flat,
        .act = GPT_F32,
        .slots = 1,
        .positions = config->max_positions,
    };
    float *logits = NULL;

    GPT_TRY(gpt_decoder_open(&d, m->be, &o, m->weights, err));
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
    return GPT_OK;
}

/* In bf16, as a model is trained: one text, as arguments. */
static int evaluate(struct model *m, char **words, int n, struct gpt_err *err)
{
    const struct gpt_config *config = &m->source.config;
    const int64_t columns = config->padded_vocab_size;
    static int32_t input[MOST], target[MOST], position[MOST], start[MOST];
    static float weight[MOST], loss[MOST], wide[1 << 20];
    uint16_t *logits = NULL;
    struct gpt_queue *q;
    struct gpt_stage *stage;
    const struct gpt_stage_options o = {
        .config = config,
        .flat = &m->flat,
        .layout = GPT_LAYOUT_SINGLE(config),
        .exec = {.micro_batch = 1, .seq_length = n, .act = GPT_BF16},
        .slots = {1},
    };
    const struct gpt_microbatch mb = {.input = input, .target = target,
                                      .position = position,
                                      .doc_start = start, .weight = weight};

    if (columns > (int64_t)GPT_COUNT(wide))
        return gpt_fail(err, GPT_EUSAGE, "a vocabulary of %lld",
                        (long long)columns);
    for (int i = 0; i < n; i++) {
        input[i] = (int32_t)strtol(words[i], NULL, 10);
        position[i] = i;
    }
    GPT_TRY(gpt_new(&logits, (size_t)(n * columns), sizeof(*logits), "logits",
                    err));
    const struct gpt_stage_result result = {.loss = loss, .logits = logits};
    GPT_TRY(m->be->queue_open(m->be, &q, err));
    GPT_TRY(gpt_stage_open(&stage, m->be, &o, m->weights, NULL, err));
    gpt_stage_forward(stage, q, 0, 0, GPT_STAGE_EVAL, &mb, NULL, &result);
    GPT_TRY(m->be->sync(q, err));
    for (int64_t i = 0; i < n; i++) {
        m->be->cast(q, wide, GPT_F32, logits + i * columns, GPT_BF16, columns);
        for (int64_t j = 0; j < config->vocab_size; j++)
            printf("%.9g%c", (double)wide[j],
                   j + 1 == config->vocab_size ? '\n' : ' ');
    }
    gpt_stage_close(stage);
    m->be->queue_close(q);
    gpt_free(logits);
    return GPT_OK;
}

int main(int argc, char **argv)
{
    struct gpt_err err = {0};
    struct model m;
    const bool narrow = argc > 1 && strcmp(argv[1], "--bf16") == 0;
    const int first = narrow ? 2 : 1, n = argc - first - 1;

    if (n < 0 || n > MOST || (narrow && n < 1)) {
        fprintf(stderr, "usage: logits CHECKPOINT [ID...]\n"
                        "       logits --bf16 CHECKPOINT ID...\n");
        return GPT_EUSAGE;
    }
    int rc = open_model(&m, argv[first], narrow ? GPT_BF16 : GPT_F32, &err);
    if (rc == GPT_OK)
        rc = narrow ? evaluate(&m, argv + first + 1, n, &err)
                    : decode(&m, argv + first + 1, n, &err);
    if (rc == GPT_OK)
        close_model(&m);
    else
        fprintf(stderr, "logits: %s\n", err.text);
    return rc;
}
