/* Prints the sample order of data sets, for samples_parity.py, which compares
 * it with Megatron's. The output is numbers, one array on each line.
 *
 *   samples_dump index PREFIX BEGIN END SEQ WANTED SEED
 *   samples_dump blend SIZE WEIGHT...        weights as they are used
 *   samples_dump corpus SEQ SEED TRAIN VALID TEST SPLIT ARG...
 *   samples_dump splits SEQ SEED TRAIN VALID TEST TRAIN_ARG... / ... / ...
 *   samples_dump masks EOD LOSS POSITIONS ATTENTION TOKEN...  (flags 0 or 1)
 *   samples_dump write PREFIX DTYPE          a document a line: tokens, with
 *                                            | between sequences, - for none
 */
#include "base/memory.h"
#include "data/batch.h"
#include "data/blend.h"
#include "data/corpus.h"
#include "data/indexed.h"
#include "data/sample_index.h"
#include "tests/lib/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t number(const char *s)
{
    return strtoll(s, NULL, 10);
}

#define PRINT(name, array, n)                                                  \
    do {                                                                       \
        printf("%s", name);                                                    \
        for (int64_t i_ = 0; i_ < (n); i_++)                                   \
            printf(" %" PRId64, (int64_t)(array)[i_]);                         \
        printf("\n");                                                          \
    } while (0)

static int dump_index(char **a, struct gpt_err *err)
{
    struct gpt_indexed *set;
    struct gpt_samples s;

    GPT_TRY(gpt_indexed_open(&set, a[0], NULL, err));
    struct gpt_samples_source source = {
        .lengths = gpt_indexed_lengths(set),
        .begin = number(a[1]),
        .end = number(a[2]),
        .seq_length = number(a[3]),
        .wanted = number(a[4]),
        .seed = (uint32_t)number(a[5]),
    };
    int status = gpt_samples_build(&s, &source, err);
    if (status == GPT_OK) {
        PRINT("document", s.document, s.n_visits);
        PRINT("visit", s.visit, s.plan.n + 1);
        PRINT("offset", s.offset, s.plan.n + 1);
        PRINT("shuffle", s.shuffle, s.plan.n);
        gpt_samples_free(&s);
    }
    gpt_indexed_close(set);
    return status;
}

static int dump_blend(int n, char **a, struct gpt_err *err)
{
    struct gpt_blend b;
    double w[1024];

    if (n < 2 || n > 1024)
        return gpt_fail(err, GPT_EUSAGE, "number of weights");
    for (int i = 1; i < n; i++)
        w[i - 1] = strtod(a[i], NULL);
    GPT_TRY(gpt_blend_build(&b, w, n - 1, number(a[0]), err));
    PRINT("set", b.set, b.size);
    PRINT("sample", b.sample, b.size);
    gpt_blend_free(&b);
    return GPT_OK;
}

static int dump_split(const struct gpt_corpus *c, enum gpt_split split,
                      int64_t seq_length, struct gpt_err *err)
{
    int64_t n = gpt_corpus_size(c, split);
    int32_t *tokens;

    GPT_TRY(gpt_new(&tokens, (size_t)seq_length + 1, sizeof(*tokens), "tokens",
                    err));
    printf("split %d %" PRId64 "\n", (int)split, n);
    int status = GPT_OK;
    for (int64_t i = 0; i < n && status == GPT_OK; i++) {
        status = gpt_corpus_get(c, split, i, tokens, err);
        PRINT("tokens", tokens, seq_length + 1);
    }
    gpt_free(tokens);
    return status;
}

static int dump_corpus(int n, char **a, bool per_split, struct gpt_err *err)
{
    struct gpt_corpus_options o = {
        .seq_length = number(a[0]),
        .seed = (uint64_t)number(a[1]),
        .n_samples = {number(a[2]), number(a[3]), number(a[4])},
    };
    struct gpt_corpus *c;
    const char *args[512];
    int first = per_split ? 5 : 6, split = 0;

    for (int i = 0; i < n && i < 512; i++)
        args[i] = a[i];
    if (!per_split) {
        o.split = a[5];
        o.data_path = args + first;
        o.n_data_path = n - first;
    }
    for (int i = first; per_split && i < n; i++) {
        if (args[i][0] == '/' && args[i][1] == '\0') {
            split++;
            continue;
        }
        if (o.n_split_path[split]++ == 0)
            o.split_path[split] = args + i;
    }
    GPT_TRY(gpt_corpus_open(&c, &o, err));
    int status = GPT_OK;
    for (int k = 0; k < GPT_N_SPLITS && status == GPT_OK; k++)
        status = dump_split(c, (enum gpt_split)k, o.seq_length, err);
    gpt_corpus_close(c);
    return status;
}

static int dump_masks(int n, char **a, struct gpt_err *err)
{
    enum { MOST = 1024 };
    static int32_t tokens[MOST], input[MOST], target[MOST], position[MOST];
    static int32_t start[MOST];
    static float weight[MOST];
    const struct gpt_mask_options o = {
        .eod = (int32_t)number(a[0]),
        .eod_mask_loss = number(a[1]),
        .reset_position_ids = number(a[2]),
        .reset_attention_mask = number(a[3]),
    };
    int t = n - 5;

    if (t > MOST - 1)
        return gpt_fail(err, GPT_EUSAGE, "number of tokens");
    for (int i = 0; i <= t; i++)
        tokens[i] = (int32_t)number(a[4 + i]);
    gpt_batch_masks(&o, tokens, 1, t,
                    &(struct gpt_batch_arrays){input, target, position, start,
                                               weight});
    PRINT("position", position, t);
    PRINT("weight", weight, t);
    PRINT("start", start, t);
    return GPT_OK;
}

/* One document from a line of stdin. */
static int write_document(struct gpt_indexed_writer *w, enum gpt_dtype dtype,
                          char *line, struct gpt_err *err)
{
    static int32_t tokens[65536];
    static uint16_t narrow[65536];
    static int32_t lengths[65536];
    int32_t n = 0, sequences = 0, before = 0;

    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        if (*word == '-')
            break;
        if (*word == '|') {
            lengths[sequences++] = n - before;
            before = n;
            continue;
        }
        tokens[n] = (int32_t)number(word);
        narrow[n] = (uint16_t)tokens[n];
        n++;
    }
    if (n > before)
        lengths[sequences++] = n - before;
    const struct gpt_indexed_block block = {
        dtype == GPT_U16 ? (const void *)narrow : tokens, n, lengths,
        sequences, &sequences, 1};
    return gpt_indexed_writer_add(w, &block, err);
}

static int write_set(char **a, struct gpt_err *err)
{
    static char line[1 << 20];
    struct gpt_indexed_writer *w;
    enum gpt_dtype dtype;

    if (!gpt_dtype_parse(a[1], &dtype))
        return gpt_fail(err, GPT_EUSAGE, "type %s", a[1]);
    GPT_TRY(writer_open(&w, a[0], dtype, 0, err));
    while (fgets(line, sizeof(line), stdin)) {
        int status = write_document(w, dtype, line, err);

        if (status != GPT_OK) {
            gpt_indexed_writer_abort(w);
            return status;
        }
    }
    return writer_commit(w, err);
}

int main(int argc, char **argv)
{
    struct gpt_err err = {0};
    const char *mode = argc > 1 ? argv[1] : "";
    int status = GPT_EUSAGE, n = argc - 2;
    char **a = argv + 2;

    if (strcmp(mode, "index") == 0 && n == 6)
        status = dump_index(a, &err);
    else if (strcmp(mode, "blend") == 0)
        status = dump_blend(n, a, &err);
    else if (strcmp(mode, "corpus") == 0 && n > 6)
        status = dump_corpus(n, a, false, &err);
    else if (strcmp(mode, "splits") == 0 && n > 5)
        status = dump_corpus(n, a, true, &err);
    else if (strcmp(mode, "masks") == 0 && n > 5)
        status = dump_masks(n, a, &err);
    else if (strcmp(mode, "write") == 0 && n == 2)
        status = write_set(a, &err);
    if (status != GPT_OK)
        fprintf(stderr, "samples_dump: %s\n", err.text);
    return status;
}
