/* gpt-dataset merge: data sets one after the other as one. The tokens are
 * copied as they are, the index is made anew, and what the parts say of their
 * origin is merged, too (merge_provenance.h). Start at run_merge(), at the
 * end. */
#include "cmd/dataset/command.h"

#include "base/log.h"
#include "base/memory.h"
#include "cmd/dataset/merge_provenance.h"
#include "cmd/dataset/write_documents.h"
#include "data/shard_names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the sets of a directory ---- */

struct names {
    struct gpt_arena *arena;
    const char **items;
    size_t n, cap;
};

/* Adds the set of an .idx. A hidden file is the temporary one of a writer. */
static int add_name(struct names *names, const char *dir, const char *name,
                    struct gpt_err *err)
{
    size_t n = strlen(name);

    if (n <= 4 || !gpt_path_ends_in(name, ".idx") || name[0] == '.')
        return GPT_OK;
    GPT_TRY(gpt_grow(&names->items, &names->cap, names->n + 1,
                     sizeof(*names->items), "names", err));
    char *path = gpt_arena_printf(names->arena, "%s/%.*s", dir, (int)(n - 4),
                                  name);
    if (!path)
        return gpt_no_memory(err, "names");
    names->items[names->n++] = path;
    return GPT_OK;
}

/* The order is that of bytes, not of a locale: it is the same everywhere. */
static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts the list by bytes, as readdir() gives any order, and the order of a
 * merge is the order of its documents. It moves into the arena, which then owns
 * list and names. */
static int sort_names(struct names *names, const char *const **prefixes,
                      int64_t *n, struct gpt_err *err)
{
    const char **list = gpt_arena_alloc(names->arena, names->n, sizeof(*list));

    if (!list)
        return gpt_no_memory(err, "names");
    if (names->n > 0)
        memcpy(list, names->items, names->n * sizeof(*list));
    qsort(list, names->n, sizeof(*list), by_name);
    *prefixes = list;
    *n = (int64_t)names->n;
    return GPT_OK;
}

/* Lists "dir/NAME" of every NAME.idx in a directory, sorted; strings and list
 * live in `arena`. GPT_EDATA when there is none. */
static int list_sets(const char *dir, struct gpt_arena *arena,
                     const char *const **prefixes, int64_t *n,
                     struct gpt_err *err)
{
    struct names names = {.arena = arena};
    struct dirent *entry;
    int status = GPT_OK;
    DIR *d;

    /* A set whose .idx waits for its name would be missed. */
    GPT_TRY(gpt_out_complete(dir, err));
    d = opendir(dir);
    if (!d)
        return gpt_fail_errno(err, GPT_EIO, "cannot read directory '%s'", dir);
    /* readdir() reports an error by NULL and errno: a merge must not take that
     * for the end of the directory. */
    while ((errno = 0, entry = readdir(d)) != NULL)
        GPT_TRY_GOTO(status, add_name(&names, dir, entry->d_name, err), out);
    if (errno != 0)
        GPT_TRY_GOTO(status,
                     gpt_fail_errno(err, GPT_EIO, "cannot read directory '%s'",
                                    dir),
                     out);
    if (names.n == 0)
        status = gpt_fail(err, GPT_EDATA, "'%s' holds no data set", dir);
    else
        status = sort_names(&names, prefixes, n, err);
out:
    closedir(d);
    gpt_free(names.items);
    return status;
}

/* ---- the merge ---- */

/* Another order than that of the shards holds the same documents, and may be
 * meant; without a shard the corpus is a smaller one. */
static int check_shards(const struct gpt_dataset_options *o,
                        const char *const *sets, int64_t n,
                        struct gpt_err *err)
{
    const struct gpt_shards shards = gpt_shards_of(sets, n);

    if (shards.misplaced)
        gpt_warn("shard %lld of %lld is out of order",
                 (long long)shards.misplaced, (long long)shards.n);
    if (!shards.missing)
        return GPT_OK;
    gpt_fail(err, GPT_EDATA, "shard %lld of %lld is missing",
             (long long)shards.missing, (long long)shards.n);
    gpt_hint(err, "name all shards, or merge those that there are with "
                  "--allow-missing-shards");
    return gpt_dataset_allow(o->allow_missing_shards, err);
}

/* All sets are opened, and so checked, before the first byte is written. */
static int merge_sets(const struct gpt_dataset_options *o,
                      const char *const *sets, int64_t n,
                      struct gpt_out **beside, struct gpt_err *err)
{
    struct gpt_indexed **open = NULL;
    struct gpt_document_range *ranges = NULL;
    int status;

    GPT_TRY_GOTO(status, gpt_new(&open, (size_t)n, sizeof(*open), "data sets",
                                 err), out);
    GPT_TRY_GOTO(status, gpt_new(&ranges, (size_t)n, sizeof(*ranges),
                                 "data sets", err), out);
    for (int64_t i = 0; i < n; i++) {
        GPT_TRY_GOTO(status, gpt_dataset_open_set(&open[i], sets[i], err),
                     out);
        ranges[i] = (struct gpt_document_range){
            open[i], 0, gpt_indexed_n_documents(open[i])};
    }
    status = gpt_write_documents(o, "merge", ranges, n, beside, err);
out:
    for (int64_t i = 0; open && i < n; i++)
        gpt_indexed_close(open[i]);
    gpt_free(ranges);
    gpt_free(open);
    return status;
}

/* The provenance gets its name with the tokens: it never speaks of a set that
 * is not there. */
static int merge_with_provenance(const struct gpt_dataset_options *o,
                                 const char *const *sets, int64_t n,
                                 struct gpt_err *err)
{
    struct gpt_out *files[2] = {NULL, NULL};
    struct gpt_provenance_merge *beside;
    int status;

    GPT_TRY(check_shards(o, sets, n, err));
    GPT_TRY(gpt_provenance_merge_open(&beside, o, sets, n, err));
    GPT_TRY_GOTO(status, gpt_provenance_merge_write(beside, files, err), out);
    status = merge_sets(o, sets, n, files, err);
out:
    /* NULL once the set has taken them. */
    gpt_out_abort(files[0]);
    gpt_out_abort(files[1]);
    gpt_provenance_merge_close(beside);
    return status;
}

static int run_merge(const struct gpt_dataset_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_arena arena = {0};
    int64_t n_sets = n;
    int status;

    GPT_TRY(gpt_dataset_check_output(o, err));
    if ((n > 0) == (o->input != NULL))
        return gpt_fail(err, GPT_EUSAGE,
                        "merge takes PREFIX... or --input DIR, and not both");
    if (o->input)
        GPT_TRY_GOTO(status, list_sets(o->input, &arena, &sets, &n_sets, err),
                     out);
    /* Those of the command line are known already. */
    if (o->input)
        GPT_TRY_GOTO(status, gpt_dataset_protect(sets, n_sets, err), out);
    status = merge_with_provenance(o, sets, n_sets, err);
out:
    gpt_arena_free(&arena);
    return status;
}

static const struct gpt_opt options[] = {
    GPT_DATASET_OUTPUT_PREFIX,
    {.kind = GPT_OPT_STRING, .name = "input", .arg = "DIR",
     GPT_DATASET_AT(input), .flags = GPT_OPT_DIR,
     .help = "take all sets of a directory, in the order of names"},
    {.kind = GPT_OPT_FLAG, .name = "allow-missing-shards",
     GPT_DATASET_AT(allow_missing_shards),
     .help = "merge the shards that there are"},
    {.kind = GPT_OPT_FLAG, .name = "allow-vocab-mismatch",
     GPT_DATASET_AT(allow_vocab_mismatch),
     .help = "merge sets of different tokenizers"},
};

const struct gpt_dataset_command gpt_dataset_merge = {
    .name = "merge",
    .run = run_merge,
    .min_sets = 0,
    .max_sets = INT32_MAX,
    .options = options,
    .n_options = GPT_COUNT(options),
    .usage = "merge PREFIX... | --input DIR --output-prefix PREFIX",
    .example = "gpt-dataset merge --input parts --output-prefix all",
};
