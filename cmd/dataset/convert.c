/* gpt-dataset convert: a data set in the format of another program, or one of
 * another program as ours. convert_read.c and convert_write.c know the formats;
 * the tokens stay the same bytes. */
#include "cmd/dataset/command.h"

#include "base/log.h"
#include "base/num.h"
#include "cmd/dataset/convert.h"

#include <assert.h>
#include <string.h>

/* Names of enum gpt_set_format, NULL-terminated: choices of --to. */
static const char *const formats[] = {
    [GPT_SET_MMIDIDX] = "mmididx", [GPT_SET_TNTIDX] = "tntidx",
    [GPT_SET_DS] = "ds",           [GPT_SET_LLMC] = "llmc",
    [GPT_N_SET_FORMATS] = NULL,
};

static enum gpt_set_format find_format(const char *name)
{
    enum gpt_set_format f = 0;

    while (strcmp(name, formats[f]) != 0) {
        f++;
        assert(f < GPT_N_SET_FORMATS); /* the option is a choice of these */
    }
    return f;
}

/* Only files of llm.c do not say where documents end. */
static int check_eod(const struct gpt_dataset_options *o,
                     const struct gpt_foreign *source, const char *prefix,
                     struct gpt_err *err)
{
    if (o->eod < 0 || source->format == GPT_SET_LLMC)
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE, "%s is no file of llm.c: its index says "
                    "where documents end, and --eod is not taken", prefix);
}

static int run_convert(const struct gpt_dataset_options *o,
                       const char *const *sets, int n, struct gpt_err *err)
{
    struct gpt_foreign source;
    struct gpt_progress *p = NULL;
    int status;

    (void)n;
    GPT_TRY(gpt_dataset_check_output(o, err));
    /* The whole index is checked here, before an output is opened. */
    GPT_TRY_GOTO(status, gpt_foreign_open(&source, sets[0], o->eod, err), out);
    GPT_TRY_GOTO(status, check_eod(o, &source, sets[0], err), out);
    /* The number of bytes is known before, as tokens keep their width. */
    p = gpt_dataset_open_progress(o, "convert", source.part.bytes);
    const struct gpt_write_set_options wo = gpt_dataset_writing(o, p);
    status = gpt_convert_set(&source, find_format(o->to), &wo, err);
    gpt_progress_close(p);
    const int64_t tokens =
        source.part.bytes / (int64_t)gpt_dtype_bytes(source.dtype);
    if (status == GPT_OK)
        gpt_info("%s: %s from %s, %lld document%s, %lld token%s",
                 o->output_prefix, o->to, formats[source.format],
                 (long long)source.part.n_documents,
                 gpt_plural(source.part.n_documents), (long long)tokens,
                 gpt_plural(tokens));
out:
    gpt_foreign_close(&source);
    return status;
}

static const struct gpt_opt options[] = {
    GPT_DATASET_OUTPUT_PREFIX,
    {.kind = GPT_OPT_CHOICE, .name = "to", .arg = "FORMAT", GPT_DATASET_AT(to),
     .def = "mmididx", .choices = formats,
     .help = "format to write, mmididx, tntidx, ds or llmc"},
    GPT_DATASET_GROUP("What to look for"),
    GPT_DATASET_EOD("token that ends a document of an llm.c file; -1: none"),
};

const struct gpt_dataset_command gpt_dataset_convert = {
    .name = "convert",
    .run = run_convert,
    .min_sets = 1,
    .max_sets = 1,
    .options = options,
    .n_options = GPT_COUNT(options),
    .usage = "convert PREFIX [--to FORMAT] --output-prefix PREFIX",
};
