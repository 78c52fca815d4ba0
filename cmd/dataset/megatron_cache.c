/* Writes the files that Megatron looks for before it builds a sample order: a
 * description, whose digest is in all names, and three arrays of numpy. The
 * digest is an MD5 of the description's bytes, so that each blank and each
 * digit of a number must be Python's: one that differs makes a cache that
 * Megatron never finds, and builds again. Start at gpt_cache_write(), at the
 * end. */
#include "cmd/dataset/megatron_cache.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/num.h"
#include "cmd/dataset/python_json.h"
#include "data/blend.h"
#include "data/corpus.h"
#include "data/sample_index.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- the description ---- */

/* The edges of the splits, as Python prints a list of pairs with indent=4; a
 * split without a share is None there. */
static int add_matrix(struct gpt_buf *b, const double edge[4])
{
    for (int i = 0; i < 3; i++) {
        GPT_TRY(gpt_buf_printf(b, i ? ",\n        " : "\n        "));
        if (!(edge[i + 1] > edge[i])) {
            GPT_TRY(gpt_buf_printf(b, "null"));
            continue;
        }
        GPT_TRY(gpt_buf_printf(b, "[\n            "));
        if (i == 0) /* Megatron's list starts with the integer 0, not 0.0 */
            GPT_TRY(gpt_buf_printf(b, "0"));
        else
            GPT_TRY(gpt_python_float(b, edge[i]));
        GPT_TRY(gpt_buf_printf(b, ",\n            "));
        GPT_TRY(gpt_python_float(b, edge[i + 1]));
        GPT_TRY(gpt_buf_printf(b, "\n        ]"));
    }
    return GPT_OK;
}

/* The fields are those of Megatron's GPTDatasetConfig, sorted by name. */
static int describe(struct gpt_buf *b, const struct gpt_indexed *set, int split,
                    int64_t wanted, const double edge[4],
                    const struct gpt_cache_options *o)
{
    /* json.dumps(indent=4): an item a line, no comma after the last, ": " after
     * a name. */
    GPT_TRY(gpt_buf_printf(b, "{\n    \"class\": \"GPTDataset\",\n"
                              "    \"dataset_path\": "));
    GPT_TRY(gpt_python_string(b, gpt_indexed_prefix(set)));
    GPT_TRY(gpt_buf_printf(b, ",\n    \"num_samples\": "));
    /* Megatron's number is None where no number of samples was asked for. */
    if (wanted > 0)
        GPT_TRY(gpt_buf_printf(b, "%" PRId64, wanted));
    else
        GPT_TRY(gpt_buf_printf(b, "null"));
    GPT_TRY(gpt_buf_printf(b, ",\n    \"index_split\": \"%s\",\n"
                              "    \"random_seed\": %" PRIu32 ",\n"
                              "    \"sequence_length\": %" PRId64 ",\n"
                              "    \"split\": ",
                           gpt_split_names[split], o->seed, o->seq_length));
    GPT_TRY(gpt_python_string(b, o->split));
    GPT_TRY(gpt_buf_printf(b, ",\n    \"split_matrix\": ["));
    GPT_TRY(add_matrix(b, edge));
    GPT_TRY(gpt_buf_printf(b, "\n    ],\n    \"tokenizer\": "));
    GPT_TRY(gpt_python_json(b, o->tokenizer, 1));
    return gpt_buf_printf(b, "\n}");
}

/* ---- files ---- */

/* Version 1.0 of the .npy format; `columns` 0: one dimension. numpy 2 leaves
 * blanks after the shape, so that it can grow in place to 21 digits, and fills
 * the header up to a multiple of 64 bytes; files must be equal byte for
 * byte. */
static int write_npy_header(struct gpt_out *out, const char *type, int64_t rows,
                            int columns, struct gpt_err *err)
{
    enum { ALIGN = 64, BEFORE = 10, SHAPE_DIGITS = 21 };
    char number[32], text[256], start[BEFORE] = "\x93NUMPY\1";
    char tail[8] = "";
    int digits = snprintf(number, sizeof(number), "%" PRId64, rows);
    if (columns)
        snprintf(tail, sizeof(tail), " %d", columns);
    int n = snprintf(text, sizeof(text),
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%s,%s),"
                     " }%*s", type, number, tail, SHAPE_DIGITS - digits, "");
    int all = (BEFORE + n + 1) / ALIGN * ALIGN + ALIGN - BEFORE;
    gpt_put_u16(start + 8, (uint16_t)all);
    GPT_TRY(gpt_out_write(out, start, BEFORE, err));
    return gpt_out_printf(out, err, "%s%*s\n", text, all - n - 1, "");
}

/* Words are written as they are in memory: "<i4" and "<u4" are little-endian,
 * and data/idx.h asserts that this machine is. */
static int write_words(struct gpt_out *out, const char *type,
                       const uint32_t *words, int64_t n, struct gpt_err *err)
{
    GPT_TRY(write_npy_header(out, type, n, 0, err));
    return gpt_out_write(out, words, (size_t)n * sizeof(*words), err);
}

/* The sample index: a visit and an offset a row. */
static int write_pairs(struct gpt_out *out, const struct gpt_samples *s,
                       struct gpt_err *err)
{
    GPT_TRY(write_npy_header(out, "<i4", s->plan.n + 1, 2, err));
    for (int64_t k = 0; k <= s->plan.n; k++) {
        uint32_t pair[2] = {s->visit[k], (uint32_t)s->offset[k]};

        GPT_TRY(gpt_out_write(out, pair, sizeof(pair), err));
    }
    return GPT_OK;
}

struct cache {
    const char *directory, *digest;
    int split;
    unsigned flags;
    const struct gpt_buf *description;
    const struct gpt_samples *samples;
};

/* Writes number `which` of the four. Megatron takes the arrays for complete
 * when all four are there; the description comes last, so that an interrupted
 * run leaves none that could be taken. */
static int write_file(const struct cache *c, int which, struct gpt_err *err)
{
    static const char *const ends[] = {"document_index.npy", "sample_index.npy",
                                       "shuffle_index.npy", "description.txt"};
    const struct gpt_samples *s = c->samples;
    char name[128], path[GPT_PATH_BYTES];
    struct gpt_out *out;
    int status;

    snprintf(name, sizeof(name), "%s-GPTDataset-%s-%s", c->digest,
             gpt_split_names[c->split], ends[which]);
    GPT_TRY(gpt_path_join(path, sizeof(path), c->directory, name, err));
    /* The name holds the digest: a cache of other settings is another file, and
     * only the same one is replaced. */
    GPT_TRY(gpt_out_open(&out, path, c->flags, 0, err));
    switch (which) {
    case 0:
        status = write_words(out, "<i4", s->document, s->n_visits, err);
        break;
    case 1:
        status = write_pairs(out, s, err);
        break;
    case 2:
        status = write_words(out, "<u4", s->shuffle, s->plan.n, err);
        break;
    default:
        status = gpt_out_write(out, c->description->data, c->description->len,
                               err);
    }
    if (status == GPT_OK)
        return gpt_out_commit(out, err);
    gpt_out_abort(out);
    return status;
}

/* The directory is made with all that is missing above it, as Megatron makes
 * it. */
static int write_files(const struct cache *c, struct gpt_err *err)
{
    GPT_TRY(gpt_path_mkdirs(c->directory, err));
    for (int i = 0; i < 4; i++)
        GPT_TRY(write_file(c, i, err));
    return GPT_OK;
}

/* ---- all ---- */

/* rint() rounds halves to even, as Python's round() does. */
static int build_samples(struct gpt_samples *s, const struct gpt_indexed *set,
                         int split, int64_t wanted, const double edge[4],
                         const struct gpt_cache_options *o, struct gpt_err *err)
{
    double n = (double)gpt_indexed_n_sequences(set);
    const struct gpt_samples_source source = {
        .lengths = gpt_indexed_lengths(set),
        .begin = (int64_t)rint(edge[split] * n),
        .end = gpt_min_i64((int64_t)rint(edge[split + 1] * n), (int64_t)n),
        .seq_length = o->seq_length,
        .wanted = wanted,
        .seed = o->seed,
    };
    int status = gpt_samples_build(s, &source, err);

    if (status == GPT_EDATA)
        gpt_context(err, "%s: %s split", gpt_indexed_prefix(set),
                    gpt_split_names[split]);
    /* Our index numbers visits in 32 bits without a sign, numpy's array there
     * has one. */
    if (status != GPT_OK || s->n_visits <= INT32_MAX)
        return status;
    gpt_fail(err, GPT_EDATA, "%s: the index has %" PRId64 " visits, "
             "Megatron-LM takes at most 2147483647", gpt_indexed_prefix(set),
             s->n_visits);
    gpt_samples_free(s);
    return GPT_EDATA;
}

/* The default is the directory that Megatron looks in without
 * --data-cache-path. */
static int cache_directory(char *path, size_t cap,
                           const struct gpt_indexed *set,
                           const struct gpt_cache_options *o,
                           struct gpt_err *err)
{
    int n = o->directory
                ? snprintf(path, cap, "%s", o->directory)
                : snprintf(path, cap, "%s/cache/GPTDataset_indices",
                           gpt_indexed_prefix(set));

    if (n > 0 && (size_t)n < cap)
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE, "the name of the cache's directory has %d "
                    "bytes, must have less than %zu", n, cap);
}

int gpt_cache_write(const struct gpt_indexed *set, int split, int64_t wanted,
                    const struct gpt_cache_options *o, char digest[33],
                    struct gpt_err *err)
{
    char directory[GPT_PATH_BYTES];
    double edge[4];
    struct gpt_buf text = {0};
    struct gpt_samples samples;

    digest[0] = '\0';
    GPT_TRY(gpt_split_parse(edge, o->split, err));
    /* Megatron makes no data set for such a split, and looks for no files. */
    if (!(edge[split + 1] > edge[split]))
        return GPT_OK;
    GPT_TRY(cache_directory(directory, sizeof(directory), set, o, err));
    GPT_TRY(build_samples(&samples, set, split, wanted, edge, o, err));
    int status;
    if (describe(&text, set, split, wanted, edge, o) != GPT_OK) {
        status = gpt_no_memory(err, "a description");
        goto out;
    }
    gpt_md5(digest, text.data, text.len);
    const struct cache c = {directory, digest,  split,
                            o->flags,  &text, &samples};
    status = write_files(&c, err);
out:
    gpt_buf_free(&text);
    gpt_samples_free(&samples);
    return status;
}
