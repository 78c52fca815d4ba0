/* Names in native checkpoints; see names.h. */
#include "checkpoint/names.h"

#include "base/io.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIMIZER "optimizer."
#define ITERATION "iter_"
#define SUFFIX ".safetensors"

/* ---- tensors ---- */

const char *gpt_kind_prefix(enum gpt_kind kind)
{
    static const char *const prefixes[GPT_N_KINDS] = {
        [GPT_KIND_PARAMETERS] = "",
        [GPT_KIND_EXP_AVG] = OPTIMIZER "exp_avg.",
        [GPT_KIND_EXP_AVG_SQ] = OPTIMIZER "exp_avg_sq.",
        [GPT_KIND_MOMENTUM] = OPTIMIZER "momentum_buffer.",
    };

    assert(kind < GPT_N_KINDS);
    return prefixes[kind];
}

bool gpt_name_is_optimizer(const char *tensor)
{
    return strncmp(tensor, OPTIMIZER, strlen(OPTIMIZER)) == 0;
}

const char *gpt_name_parameter(const char *tensor, size_t *prefix)
{
    const char *dot = NULL;

    /* Only the word after "optimizer." names the kind; the parameter's own
     * name has dots, too. */
    if (gpt_name_is_optimizer(tensor))
        dot = strchr(tensor + strlen(OPTIMIZER), '.');
    *prefix = dot ? (size_t)(dot + 1 - tensor) : 0;
    return tensor + *prefix;
}

/* ---- files ---- */

/* Makes "model", or "optimizer_exp_avg" of "optimizer.exp_avg.". The stem is
 * derived from the prefix, so that state of an unknown kind gets a file,
 * too. */
static void make_stem(char *buf, size_t cap, const char *prefix)
{
    size_t n = strlen(prefix);

    snprintf(buf, cap, "%.*s", n ? (int)n - 1 : 5, n ? prefix : "model");
    for (; *buf; buf++)
        if (*buf == '.')
            *buf = '_';
}

void gpt_name_file(char *buf, size_t cap, const char *prefix,
                   const struct gpt_file_rank *rank)
{
    char stem[48], dp[32] = "";

    assert(*prefix == '\0' || gpt_name_is_optimizer(prefix));
    make_stem(stem, sizeof(stem), prefix);
    if (rank->dp_size > 1)
        snprintf(dp, sizeof(dp), "_dp%02lld", (long long)rank->dp_rank);
    snprintf(buf, cap, "%s_tp%02lld_pp%02lld%s" SUFFIX, stem,
             (long long)rank->tp_rank, (long long)rank->pp_rank, dp);
}

bool gpt_name_holds_tensors(const char *file)
{
    const char *dot = strrchr(file, '.');

    return dot && strcmp(dot, SUFFIX) == 0;
}

/* Names come out of manifests and indices that anybody may have written: a
 * slash or a leading dot would reach files outside the directory, and a quote
 * would end a string of the manifest that is printed from them. */
bool gpt_name_is_safe(const char *file)
{
    size_t n = strlen(file);

    if (n == 0 || n > 200 || file[0] == '.')
        return false;
    for (; *file; file++)
        if (*file <= ' ' || *file > '~' || strchr("/\\\"", *file))
            return false;
    return true;
}

/* ---- iterations ---- */

/* Seven digits sort by name as by number up to ten million steps; later ones
 * are longer and only sort otherwise. */
static void name_iteration(char *buf, size_t cap, int64_t iteration)
{
    snprintf(buf, cap, ITERATION "%07lld", (long long)iteration);
}

int gpt_checkpoint_path(char *buf, size_t cap, const char *root,
                        int64_t iteration, struct gpt_err *err)
{
    char name[40];

    name_iteration(name, sizeof(name), iteration);
    return gpt_path_join(buf, cap, root, name, err);
}

/* Prints the number again and compares: "iter_100" or "iter_+000100" would
 * otherwise count as an iteration whose path, made from its number, does not
 * exist. */
bool gpt_name_is_iteration(const char *name, int64_t *iteration)
{
    char again[40], *end;

    if (strncmp(name, ITERATION, strlen(ITERATION)) != 0)
        return false;
    errno = 0;
    long long value = strtoll(name + strlen(ITERATION), &end, 10);
    if (errno || value < 0)
        return false;
    name_iteration(again, sizeof(again), value);
    *iteration = value;
    return strcmp(name, again) == 0;
}
