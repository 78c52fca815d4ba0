/* State of a run of llm.c; see state.h. Start at gpt_llmc_state_open().
 *
 * A file has 256 numbers of 32 bits, then the moments m and v, then the weights
 * in fp32 where the run had them, then what its data loader needs, which is not
 * read. Elements are in the order of the model's file. With ZeRO-1, a rank has
 * an equal part of each tensor of each layer, and these parts follow each other
 * in its file; without it, every rank has all. */
#include "checkpoint/llmc/state.h"

#include "base/memory.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>

enum {
    MAGIC = 20240527,
    VERSION = 1,
    HEAD_BYTES = 1024,
    MAX_RANKS = 4096,
    DIGITS = 8, /* of the step in names */
};

/* Files that were not opened are NULL. */
void gpt_llmc_state_close(struct gpt_llmc_state *st)
{
    for (int64_t i = 0; st->files && i < st->n; i++)
        gpt_in_close(st->files[i]);
    gpt_free(st->files);
    *st = (struct gpt_llmc_state){0};
}

/* "DIR/state_00001000_00002.bin" beside "DIR/model_00001000.bin"; false where
 * the model has another name. */
static bool name_file(char *buf, size_t cap, const char *model, int64_t rank)
{
    const char *name = gpt_path_name(model);
    const size_t dir = (size_t)(name - model);

    if (strncmp(name, "model_", 6) != 0 ||
        strspn(name + 6, "0123456789") != DIGITS ||
        strcmp(name + 6 + DIGITS, ".bin") != 0)
        return false;
    return (size_t)snprintf(buf, cap, "%.*sstate_%.*s_%05lld.bin", (int)dir,
                            model, DIGITS, name + 6, (long long)rank) < cap;
}

/* Numbers of all ranks must be the same, but for their own. */
static int read_head(struct gpt_llmc_state *st, struct gpt_in *in, int64_t rank,
                     int64_t *ranks, struct gpt_err *err)
{
    uint8_t head[HEAD_BYTES];
    int64_t words[11];

    GPT_TRY(gpt_in_read(in, head, 0, sizeof(head), err));
    for (size_t i = 0; i < GPT_COUNT(words); i++)
        words[i] = (int32_t)gpt_get_u32(head + 4 * i);
    if (words[0] != MAGIC || words[1] != VERSION)
        return gpt_fail(err, GPT_EDATA,
                        "'%s' begins with %lld, %lld; llm.c's state with %d, "
                        "%d",
                        gpt_in_path(in), (long long)words[0],
                        (long long)words[1], MAGIC, VERSION);
    if (words[2] < 1 || words[2] > MAX_RANKS || words[3] != rank ||
        words[4] < 0 || words[4] > 1 || words[10] < 0 ||
        (rank > 0 && (words[2] != *ranks || words[10] != st->step ||
                      words[4] != st->masters)))
        return gpt_fail(err, GPT_EDATA,
                        "'%s': rank %lld of %lld, step %lld: its name says "
                        "another rank, or its neighbours another run",
                        gpt_in_path(in), (long long)words[3],
                        (long long)words[2], (long long)words[10]);
    *ranks = words[2];
    st->masters = words[4] == 1;
    st->step = words[10];
    return GPT_OK;
}

/* Equal parts, or all: the size of the file tells. What comes behind is a few
 * permutations of numbers, far less than another part. */
static int set_elements(struct gpt_llmc_state *st, int64_t ranks,
                        int64_t elements, struct gpt_err *err)
{
    const int64_t kinds = st->masters ? 3 : 2;
    const int64_t have =
        (gpt_in_size(st->files[0]) - HEAD_BYTES) / 4 / kinds;

    if (have >= elements)
        st->elements = elements;
    else if (elements % ranks == 0 && have >= elements / ranks)
        st->elements = elements / ranks;
    else
        return gpt_fail(err, GPT_EDATA,
                        "'%s' has %lld elements of each kind, its model "
                        "%lld for %lld ranks",
                        gpt_in_path(st->files[0]), (long long)have,
                        (long long)elements, (long long)ranks);
    return GPT_OK;
}

/* The first file says how many there are. */
static int open_files(struct gpt_llmc_state *st, const char *model,
                      int64_t elements, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];
    int64_t ranks = 1;

    GPT_TRY(gpt_new(&st->files, MAX_RANKS, sizeof(*st->files), "files", err));
    for (int64_t i = 0; i < ranks; i++) {
        if (!name_file(path, sizeof(path), model, i))
            return gpt_fail(err, GPT_EDATA, "'%s': its name is too long",
                            model);
        GPT_TRY(gpt_in_open(&st->files[i], path, err));
        st->n = i + 1;
        GPT_TRY(read_head(st, st->files[i], i, &ranks, err));
        if (i == 0) {
            GPT_TRY(gpt_in_allow(ranks, err));
            GPT_TRY(set_elements(st, ranks, elements, err));
        }
        if (gpt_in_size(st->files[i]) < gpt_in_size(st->files[0]))
            return gpt_fail(err, GPT_EDATA,
                            "'%s' is shorter than the file of rank 0", path);
        /* each rank has all: one is enough */
        if (st->elements == elements)
            break;
    }
    return GPT_OK;
}

/* A model without state beside it is what most users have. */
int gpt_llmc_state_open(struct gpt_llmc_state *st, const char *model,
                        int64_t elements, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    *st = (struct gpt_llmc_state){0};
    if (!name_file(path, sizeof(path), model, 0) || !gpt_path_exists(path))
        return GPT_OK;
    int status = open_files(st, model, elements, err);
    if (status != GPT_OK)
        gpt_llmc_state_close(st);
    return status;
}

/* Rows that only pad the word table are at its end, and are left out. */
int gpt_llmc_state_add(const struct gpt_llmc_state *st, struct gpt_tensor *t,
                       enum gpt_llmc_kind kind, int64_t first, int64_t count,
                       struct gpt_err *err)
{
    const int64_t wanted = t->shape[0] * (t->ndim > 1 ? t->shape[1] : 1);
    const int64_t n = st->n;

    if (first % n != 0 || count % n != 0)
        return gpt_fail(err, GPT_EDATA,
                        "'%s': tensor '%s' has %lld elements, which %lld ranks "
                        "cannot share",
                        gpt_in_path(st->files[0]), t->name, (long long)count,
                        (long long)n);
    for (int64_t r = 0; r < n; r++) {
        const int64_t begin = count / n * r;
        const int64_t end = gpt_min_i64(count / n * (r + 1), wanted);
        const int64_t at = HEAD_BYTES + ((int64_t)kind * st->elements +
                                         first / n) * 4;

        if (begin < end)
            GPT_TRY(gpt_tensor_add_span(t, st->files[r], at, GPT_F32, begin,
                                        end, err));
    }
    return GPT_OK;
}
