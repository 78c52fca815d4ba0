/* gpt-dataset's commands that make data sets: merge, slice, head, repair,
 * convert. */
#include "cmd/dataset/commands.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/progress.h"
#include "cmd/dataset/convert.h"
#include "cmd/dataset/prefixes.h"
#include "data/provenance.h"
#include "cmd/dataset/repair.h"
#include "cmd/dataset/select.h"
#include "data/shard_names.h"

#include <string.h>

const char *const gpt_command_formats[] = {
    [GPT_SET_MMIDIDX] = "mmididx", [GPT_SET_TNTIDX] = "tntidx",
    [GPT_SET_DS] = "ds",           [GPT_SET_LLMC] = "llmc",
    [GPT_N_SET_FORMATS] = NULL,
};

static void report(void *progress, int64_t bytes)
{
    gpt_progress_set(progress, bytes, NULL);
}

static int need_output(const struct gpt_command_options *o,
                       struct gpt_err *err)
{
    if (o->output_prefix)
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE, "--output-prefix is needed");
}

static struct gpt_assemble_options
assembling(const struct gpt_command_options *o, struct gpt_progress *p)
{
    return (struct gpt_assemble_options){
        .prefix = o->output_prefix,
        .flags = o->out_flags,
        .index_only = o->index_only,
        .report = report,
        .user = p,
    };
}

static struct gpt_progress *progress(const struct gpt_command_options *o,
                                     const char *what, int64_t bytes)
{
    return gpt_progress_open(o->progress, what, "B", bytes);
}

/* Writes what is selected, and says so. */
static int write_selection(const struct gpt_command_options *o,
                           const char *what, const struct gpt_selection *items,
                           int64_t n, struct gpt_err *err)
{
    int64_t documents = 0, bytes = 0;
    char size[32];

    for (int64_t i = 0; i < n; i++) {
        const struct gpt_indexed *set = items[i].set;

        documents += items[i].end - items[i].begin;
        bytes += (int64_t)gpt_dtype_bytes(gpt_indexed_dtype(set)) *
                 (gpt_indexed_start(set,
                                    gpt_indexed_document(set, items[i].end)) -
                  gpt_indexed_start(
                      set, gpt_indexed_document(set, items[i].begin)));
    }
    struct gpt_progress *p = progress(o, what, bytes);
    struct gpt_assemble_options ao = assembling(o, p);
    int status = gpt_select(items, n, &ao, err);
    gpt_progress_close(p);
    if (status == GPT_OK)
        gpt_info("%s: %lld documents, %s of tokens", o->output_prefix,
                 (long long)documents, gpt_text_bytes(size, (double)bytes));
    return status;
}

/* Shards that are merged without one of them make a smaller data set; who wants
 * that is told all the same. */
static void check_shards(const char *const *sets, int64_t n)
{
    const char *what;
    int64_t n_shards, shard = gpt_shards_gap(sets, n, &n_shards, &what);

    if (shard)
        gpt_warn("shard %lld of %lld is %s", (long long)shard,
                 (long long)n_shards, what);
}

static int merge_sets(const struct gpt_command_options *o,
                      const char *const *sets, int64_t n, struct gpt_err *err)
{
    struct gpt_indexed **open;
    struct gpt_selection *items;

    GPT_TRY(gpt_new(&open, (size_t)n, sizeof(*open), "data sets", err));
    int status = gpt_new(&items, (size_t)n, sizeof(*items), "data sets", err);
    for (int64_t i = 0; i < n && status == GPT_OK; i++) {
        status = gpt_command_open(&open[i], sets[i], err);
        if (status == GPT_OK)
            items[i] = (struct gpt_selection){
                open[i], 0, gpt_indexed_n_documents(open[i])};
    }
    if (status == GPT_OK)
        status = write_selection(o, "merge", items, n, err);
    for (int64_t i = 0; i < n; i++)
        gpt_indexed_close(open[i]);
    gpt_free(items);
    gpt_free(open);
    return status;
}

static int merge_with_provenance(const struct gpt_command_options *o,
                                 const char *const *sets, int64_t n,
                                 struct gpt_err *err)
{
    struct gpt_provenance_merge *beside;

    check_shards(sets, n);
    GPT_TRY(gpt_provenance_merge_open(&beside, o->output_prefix, sets, n,
                                      o->out_flags, err));
    int status = merge_sets(o, sets, n, err);
    if (status == GPT_OK)
        status = gpt_provenance_merge_commit(beside, err);
    gpt_provenance_merge_close(beside);
    return status;
}

int gpt_command_merge(const struct gpt_command_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_arena arena = {0};
    int64_t n_sets = n;

    GPT_TRY(need_output(o, err));
    if ((n > 0) == (o->input != NULL))
        return gpt_fail(err, GPT_EUSAGE,
                        "merge needs PREFIX... or --input, one of the two");
    int status = GPT_OK;
    if (o->input)
        status = gpt_prefixes_in(o->input, &arena, &sets, &n_sets, err);
    if (status == GPT_OK)
        status = merge_with_provenance(o, sets, n_sets, err);
    gpt_arena_free(&arena);
    return status;
}

int gpt_command_slice(const struct gpt_command_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_selection item;
    struct gpt_indexed *set;

    (void)n;
    GPT_TRY(need_output(o, err));
    if (!o->documents)
        return gpt_fail(err, GPT_EUSAGE, "--documents is needed");
    GPT_TRY(gpt_command_open(&set, sets[0], err));
    item.set = set;
    int status = gpt_command_range(o->documents, gpt_indexed_n_documents(set),
                             sets[0], &item.begin, &item.end, err);
    if (status == GPT_OK)
        status = write_selection(o, "slice", &item, 1, err);
    gpt_indexed_close(set);
    return status;
}

int gpt_command_head(const struct gpt_command_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_indexed *set;

    (void)n;
    GPT_TRY(need_output(o, err));
    GPT_TRY(gpt_command_open(&set, sets[0], err));
    struct gpt_selection item = {
        set, 0, gpt_min_i64(o->count, gpt_indexed_n_documents(set))};
    int status = write_selection(o, "head", &item, 1, err);
    gpt_indexed_close(set);
    return status;
}

int gpt_command_repair(const struct gpt_command_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    bool was_damaged;

    (void)n;
    GPT_TRY(need_output(o, err));
    struct gpt_progress *p = progress(o, "repair", 0);
    struct gpt_assemble_options ao = assembling(o, p);
    int status = gpt_repair(sets[0], &ao, &was_damaged, err);
    gpt_progress_close(p);
    if (status == GPT_OK && was_damaged)
        gpt_info("%s: written", o->output_prefix);
    else if (status == GPT_OK)
        gpt_warn("%s: nothing is wrong with it; nothing is written", sets[0]);
    return status;
}

int gpt_command_convert(const struct gpt_command_options *o,
                     const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_foreign source;
    enum gpt_set_format to = 0;

    (void)n;
    GPT_TRY(need_output(o, err));
    while (strcmp(o->to, gpt_command_formats[to]) != 0)
        to++;
    int status = gpt_foreign_open(&source, sets[0], o->eod, err);
    if (status == GPT_OK && o->eod >= 0 && source.format != GPT_SET_LLMC)
        status = gpt_fail(err, GPT_EUSAGE, "%s is no file of llm.c: its"
                          " documents are known, --eod is not taken", sets[0]);
    if (status == GPT_OK) {
        struct gpt_progress *p = progress(o, "convert", source.part.bytes);
        struct gpt_assemble_options ao = assembling(o, p);

        status = gpt_convert_set(&source, to, &ao, err);
        gpt_progress_close(p);
    }
    if (status == GPT_OK)
        gpt_info("%s: %s from %s, %lld documents, %lld tokens",
                 o->output_prefix, o->to, gpt_command_formats[source.format],
                 (long long)source.part.n_documents,
                 (long long)(source.part.bytes /
                             (int64_t)gpt_dtype_bytes(source.dtype)));
    gpt_foreign_close(&source);
    return status;
}
