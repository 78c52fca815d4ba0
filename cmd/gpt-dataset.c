/* gpt-dataset: looks at data sets, checks them, and makes new ones of them. The
 * work is in data/; here are the options, which mode takes which, and what is
 * said. Read `modes` first. */
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/options.h"
#include "base/progress.h"
#include "data/cache.h"
#include "data/convert.h"
#include "data/dump.h"
#include "data/prefixes.h"
#include "data/repair.h"
#include "data/select.h"
#include "data/show.h"
#include "data/verify.h"

#include <stdio.h>
#include <string.h>

struct options {
    struct gpt_common_options common;
    const char *input, *output_prefix, *to, *documents;
    const char *tokenizer_type, *vocab_file, *merge_file;
    const char *cache_path, *split, *tokenizer_like;
    struct gpt_list num_samples;
    bool index_only, json, jsonl, strip_eod;
    int64_t seq_length, seed;
    int64_t count, tail, top, vocab_size, eod, max_findings;
};


static const char *const formats[] = {
    [GPT_SET_MMIDIDX] = "mmididx", [GPT_SET_TNTIDX] = "tntidx",
    [GPT_SET_DS] = "ds",           [GPT_SET_LLMC] = "llmc",
    [GPT_N_SET_FORMATS] = NULL,
};

#define AT(field) .offset = offsetof(struct options, field)
static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_GROUP, .help = "New data sets"},
    {.kind = GPT_OPT_STRING, .name = "output-prefix", .arg = "PREFIX",
     AT(output_prefix), .flags = GPT_OPT_FILE,
     .help = "merge, slice, head, repair, convert: write PREFIX.bin, "
             "PREFIX.idx"},
    {.kind = GPT_OPT_STRING, .name = "input", .arg = "DIR", AT(input),
     .flags = GPT_OPT_DIR,
     .help = "merge: take all sets of a directory, in the order of names"},
    {.kind = GPT_OPT_CHOICE, .name = "to", .arg = "FORMAT", AT(to),
     .def = "mmididx", .choices = formats,
     .help = "convert: format to write, mmididx, tntidx, ds or llmc"},
    {.kind = GPT_OPT_FLAG, .name = "index-only", AT(index_only),
     .help = "repair: write PREFIX.idx alone"},
    {.kind = GPT_OPT_GROUP, .help = "Caches of Megatron-LM (index)"},
    {.kind = GPT_OPT_STRING, .name = "data-cache-path", .arg = "DIR",
     AT(cache_path), .flags = GPT_OPT_DIR,
     .help = "directory to write; default: PREFIX/cache/GPTDataset_indices"},
    {.kind = GPT_OPT_STRING, .name = "tokenizer-like", .arg = "FILE",
     AT(tokenizer_like), .flags = GPT_OPT_FILE,
     .help = "a description.txt of Megatron-LM with the same tokenizer"},
    {.kind = GPT_OPT_LIST, .name = "num-samples", .arg = "N", AT(num_samples),
     .help = "of train, valid and test split; 0: one epoch of it"},
    {.kind = GPT_OPT_INT, .name = "seq-length", .arg = "N", AT(seq_length),
     .def = "1024", .min = 1, .max = INT32_MAX, .help = "tokens of a sample"},
    {.kind = GPT_OPT_INT, .name = "seed", .arg = "N", AT(seed), .def = "1234",
     .min = 0, .max = UINT32_MAX, .help = "of the order of samples"},
    {.kind = GPT_OPT_STRING, .name = "split", .arg = "A,B,C", AT(split),
     .def = "969,30,1", .help = "shares of train, valid and test"},
    {.kind = GPT_OPT_GROUP, .help = "Which documents"},
    {.kind = GPT_OPT_STRING, .name = "documents", .arg = "A:B", AT(documents),
     .help = "documents A to B - 1, counted from 0; either may be left out"},
    {.kind = GPT_OPT_INT, .letter = 'n', .name = "count", .arg = "N",
     AT(count), .def = "10", .min = 0, .max = 1e18,
     .help = "head: how many documents"},
    {.kind = GPT_OPT_INT, .name = "tail", .arg = "N", AT(tail), .def = "0",
     .min = 0, .max = 1e18, .help = "cat: the last N documents"},
    {.kind = GPT_OPT_GROUP, .help = "Output"},
    {.kind = GPT_OPT_FLAG, .name = "json", AT(json),
     .help = "info, stat, verify: a JSON object a set"},
    {.kind = GPT_OPT_FLAG, .name = "jsonl", AT(jsonl),
     .help = "cat: a JSON object a document"},
    {.kind = GPT_OPT_FLAG, .name = "strip-eod", AT(strip_eod),
     .help = "cat: leave out the end-of-document token of the vocabulary"},
    {.kind = GPT_OPT_GROUP, .help = "Vocabulary"},
    {.kind = GPT_OPT_CHOICE, .name = "tokenizer-type", .arg = "TYPE",
     AT(tokenizer_type), .choices = gpt_tokenizer_types,
     .help = "family of the tokenizer; default: GPT2BPETokenizer when there is "
             "a vocabulary file, else none"},
    {.kind = GPT_OPT_STRING, .name = "vocab-file", .arg = "FILE",
     AT(vocab_file), .flags = GPT_OPT_FILE,
     .help = "vocab.json of GPT2BPETokenizer"},
    {.kind = GPT_OPT_STRING, .name = "merge-file", .arg = "FILE",
     AT(merge_file), .flags = GPT_OPT_FILE,
     .help = "merges.txt of GPT2BPETokenizer"},
    {.kind = GPT_OPT_GROUP, .help = "What to look for"},
    {.kind = GPT_OPT_INT, .name = "top", .arg = "N", AT(top), .def = "0",
     .min = 0, .max = 1 << 20,
     .help = "stat: read the tokens and list the N most frequent"},
    {.kind = GPT_OPT_INT, .name = "vocab-size", .arg = "N", AT(vocab_size),
     .def = "0", .min = 0, .max = INT32_MAX,
     .help = "verify: ids must be below N; 0: below what the vocabulary has"},
    {.kind = GPT_OPT_INT, .name = "eod", .arg = "ID", AT(eod), .def = "-1",
     .min = -1, .max = INT32_MAX,
     .help = "verify: each document must end with this token; convert: one of "
             "an llm.c file does; -1: none"},
    {.kind = GPT_OPT_INT, .name = "max-findings", .arg = "N", AT(max_findings),
     .def = "5", .min = 1, .max = 1e6,
     .help = "verify: of a kind to be listed; more are counted"},
    GPT_COMMON_OPTIONS(struct options, common),
};

/* ---- what the modes share ---- */

/* NULL when the options name none. */
static int open_tokenizer(struct gpt_tokenizer **tok, const struct options *o,
                          struct gpt_err *err)
{
    struct gpt_tokenizer_options to = {.type = o->tokenizer_type,
                                       .vocab_file = o->vocab_file,
                                       .merge_file = o->merge_file};
    *tok = NULL;
    if (!o->tokenizer_type && !o->vocab_file && !o->merge_file)
        return GPT_OK;
    if (!to.type)
        to.type = gpt_tokenizer_types[0];
    return gpt_tokenizer_open(tok, &to, err);
}

/* "A:B", "A:", ":B" or "A" of n documents; NULL is all. */
static int parse_range(const char *text, int64_t n, const char *prefix,
                       int64_t *begin, int64_t *end, struct gpt_err *err)
{
    char first[32];
    *begin = 0;
    *end = n;
    if (!text)
        return GPT_OK;
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : strlen(text);
    bool good = len < sizeof first;
    if (good) {
        memcpy(first, text, len);
        first[len] = '\0';
    }
    if (good && len > 0)
        good = gpt_parse_int(first, begin);
    else if (!colon)
        good = false;
    if (good && !colon)
        *end = *begin < INT64_MAX ? *begin + 1 : *begin;
    else if (good && colon[1])
        good = gpt_parse_int(colon + 1, end);
    if (!good || *begin < 0 || *end < *begin)
        return gpt_fail(err, GPT_EUSAGE,
                        "--documents is '%.100s', must be A:B with A <= B",
                        text);
    if (*end > n)
        return gpt_fail(err, GPT_EUSAGE,
                        "--documents is '%.100s', %.300s has %lld documents",
                        text, prefix, (long long)n);
    return GPT_OK;
}

static void print(const struct gpt_buf *b)
{
    if (b->len > 0)
        fwrite(b->data, 1, b->len, stdout); /* gpt_main() checks stdout */
}

static int damaged(int status, struct gpt_err *err)
{
    if (status == GPT_EDATA && err && !err->hint[0])
        gpt_hint(err, "gpt-dataset verify lists all that is wrong");
    return status;
}

static int open_set(struct gpt_indexed **set, const char *prefix,
                    struct gpt_err *err)
{
    return damaged(gpt_indexed_open(set, prefix, NULL, err), err);
}

/* ---- info, stat, verify ---- */

static int run_info(const struct options *o, const char *const *sets, int n,
                    struct gpt_err *err)
{
    struct gpt_buf b = {0};
    struct gpt_show show = {.b = &b, .json = o->json};
    int status = GPT_OK;
    for (int i = 0; i < n && status == GPT_OK; i++) {
        struct gpt_indexed *set;
        status = open_set(&set, sets[i], err);
        if (status == GPT_OK)
            status = gpt_show_info(&show, set, err);
        gpt_indexed_close(set);
    }
    if (status == GPT_OK)
        status = gpt_show_info_end(&show, err);
    print(&b);
    gpt_buf_free(&b);
    return status;
}

static int stat_set(const struct options *o, struct gpt_show *show,
                    const char *prefix, const struct gpt_tokenizer *tok,
                    struct gpt_err *err)
{
    struct gpt_stat_options so = {
        .tokens = o->top > 0 || tok, .top = o->top, .tokenizer = tok};
    struct gpt_indexed *set;
    struct gpt_stat s;
    GPT_TRY(open_set(&set, prefix, err));
    int status = gpt_stat(&s, set, &so, err);
    if (status == GPT_OK) {
        status = gpt_show_stat(show, set, &s, tok, err);
        gpt_stat_free(&s);
    }
    gpt_indexed_close(set);
    return status;
}

static int run_stat(const struct options *o, const char *const *sets, int n,
                    struct gpt_err *err)
{
    struct gpt_buf b = {0};
    struct gpt_show show = {.b = &b, .json = o->json};
    struct gpt_tokenizer *tok;
    int status = open_tokenizer(&tok, o, err);
    for (int i = 0; i < n && status == GPT_OK; i++)
        status = stat_set(o, &show, sets[i], tok, err);
    gpt_tokenizer_close(tok);
    print(&b);
    gpt_buf_free(&b);
    return status;
}

static int verify_set(const struct options *o, struct gpt_show *show,
                      const char *prefix, int64_t vocab_size, int64_t *n,
                      struct gpt_err *err)
{
    struct gpt_verify_options vo = {.vocab_size = vocab_size, .eod = o->eod};
    struct gpt_findings f;
    gpt_findings_open(&f, o->max_findings);
    int status = gpt_verify(prefix, &vo, &f.damages, err);
    if (status == GPT_OK)
        status = gpt_show_findings(show, prefix, &f, err);
    *n += gpt_damages_total(&f.damages);
    gpt_findings_close(&f);
    return status;
}

static int run_verify(const struct options *o, const char *const *sets, int n,
                      struct gpt_err *err)
{
    struct gpt_buf b = {0};
    struct gpt_show show = {.b = &b, .json = o->json};
    struct gpt_tokenizer *tok;
    int64_t findings = 0, vocab_size = o->vocab_size;
    int status = open_tokenizer(&tok, o, err);
    if (status == GPT_OK && tok && vocab_size == 0)
        vocab_size = gpt_tokenizer_vocab_size(tok);
    gpt_tokenizer_close(tok);
    for (int i = 0; i < n && status == GPT_OK; i++)
        status = verify_set(o, &show, sets[i], vocab_size, &findings, err);
    print(&b);
    gpt_buf_free(&b);
    if (status == GPT_OK && findings > 0)
        return gpt_fail(err, GPT_EDATA, "%lld finding%s", (long long)findings,
                        findings == 1 ? "" : "s");
    return status;
}

/* ---- cat ---- */

static int cat_set(const struct options *o, struct gpt_out *out,
                   const char *prefix, const struct gpt_tokenizer *tok,
                   struct gpt_err *err)
{
    struct gpt_dump_options d = {
        .tokenizer = tok, .jsonl = o->jsonl, .strip_eod = o->strip_eod};
    struct gpt_indexed *set;
    GPT_TRY(open_set(&set, prefix, err));
    int64_t n = gpt_indexed_n_documents(set);
    int status = parse_range(o->documents, n, prefix, &d.begin, &d.end, err);
    if (o->tail > 0)
        d.begin = gpt_max_i64(d.begin, d.end - o->tail);
    if (status == GPT_OK)
        status = gpt_dump(out, set, &d, err);
    gpt_indexed_close(set);
    return status;
}

static int run_cat(const struct options *o, const char *const *sets, int n,
                   struct gpt_err *err)
{
    struct gpt_tokenizer *tok;
    struct gpt_out *out;
    GPT_TRY(open_tokenizer(&tok, o, err));
    int status = GPT_OK;
    if (o->strip_eod && !tok)
        status = gpt_fail(err, GPT_EUSAGE, "--strip-eod needs a vocabulary");
    if (status == GPT_OK)
        status = gpt_out_open(&out, "-", 0, 0, err);
    if (status == GPT_OK) {
        for (int i = 0; i < n && status == GPT_OK; i++)
            status = cat_set(o, out, sets[i], tok, err);
        struct gpt_err late;
        int ended = gpt_out_commit(out, &late); /* what was printed, too */
        if (status == GPT_OK && ended != GPT_OK) {
            *err = late;
            status = ended;
        }
    }
    gpt_tokenizer_close(tok);
    return status;
}

/* ---- merge, slice, head, repair ---- */

static void report(void *progress, int64_t bytes)
{
    gpt_progress_set(progress, bytes, NULL);
}

static int need_output(const struct options *o, struct gpt_err *err)
{
    if (o->output_prefix)
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE, "--output-prefix is needed");
}

static struct gpt_assemble_options assembling(const struct options *o,
                                              struct gpt_progress *p)
{
    return (struct gpt_assemble_options){
        .prefix = o->output_prefix,
        .flags = o->common.force ? GPT_OUT_FORCE : 0,
        .index_only = o->index_only,
        .report = report,
        .user = p,
    };
}

static struct gpt_progress *progress(const struct options *o, const char *what,
                                     int64_t bytes)
{
    return gpt_progress_open(o->common.quiet ? "never" : o->common.progress,
                             what, "B", bytes);
}

/* Writes what is selected, and says so. */
static int write_selection(const struct options *o, const char *what,
                           const struct gpt_selection *items, int64_t n,
                           struct gpt_err *err)
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

static int merge_sets(const struct options *o, const char *const *sets,
                      int64_t n, struct gpt_err *err)
{
    struct gpt_indexed **open;
    struct gpt_selection *items;
    GPT_TRY(gpt_new(&open, (size_t)n, sizeof *open, "data sets", err));
    int status = gpt_new(&items, (size_t)n, sizeof *items, "data sets", err);
    for (int64_t i = 0; i < n && status == GPT_OK; i++) {
        status = open_set(&open[i], sets[i], err);
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

static int run_merge(const struct options *o, const char *const *sets, int n,
                     struct gpt_err *err)
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
        status = merge_sets(o, sets, n_sets, err);
    gpt_arena_free(&arena);
    return status;
}

static int run_slice(const struct options *o, const char *const *sets, int n,
                     struct gpt_err *err)
{
    struct gpt_selection item;
    struct gpt_indexed *set;
    (void)n;
    GPT_TRY(need_output(o, err));
    if (!o->documents)
        return gpt_fail(err, GPT_EUSAGE, "--documents is needed");
    GPT_TRY(open_set(&set, sets[0], err));
    item.set = set;
    int status = parse_range(o->documents, gpt_indexed_n_documents(set),
                             sets[0], &item.begin, &item.end, err);
    if (status == GPT_OK)
        status = write_selection(o, "slice", &item, 1, err);
    gpt_indexed_close(set);
    return status;
}

static int run_head(const struct options *o, const char *const *sets, int n,
                    struct gpt_err *err)
{
    struct gpt_indexed *set;
    (void)n;
    GPT_TRY(need_output(o, err));
    GPT_TRY(open_set(&set, sets[0], err));
    struct gpt_selection item = {
        set, 0, gpt_min_i64(o->count, gpt_indexed_n_documents(set))};
    int status = write_selection(o, "head", &item, 1, err);
    gpt_indexed_close(set);
    return status;
}

static int run_repair(const struct options *o, const char *const *sets, int n,
                      struct gpt_err *err)
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

static int run_convert(const struct options *o, const char *const *sets, int n,
                       struct gpt_err *err)
{
    struct gpt_foreign source;
    enum gpt_set_format to = 0;
    (void)n;
    GPT_TRY(need_output(o, err));
    while (strcmp(o->to, formats[to]) != 0)
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
                 o->output_prefix, o->to, formats[source.format],
                 (long long)source.part.n_documents,
                 (long long)(source.part.bytes /
                             (int64_t)gpt_dtype_bytes(source.dtype)));
    gpt_foreign_close(&source);
    return status;
}

/* ---- index ---- */

/* What Megatron calls the tokenizer is a field of each description. */
static int read_identity(cJSON **root, const cJSON **tokenizer,
                         const struct options *o, struct gpt_err *err)
{
    *root = NULL;
    if (!o->tokenizer_like)
        return gpt_fail(err, GPT_EUSAGE, "--tokenizer-like is needed");
    GPT_TRY(gpt_json_read(root, o->tokenizer_like, 1 << 20, err));
    *tokenizer = cJSON_GetObjectItemCaseSensitive(*root, "tokenizer");
    if (cJSON_IsObject(*tokenizer))
        return GPT_OK;
    cJSON_Delete(*root);
    *root = NULL;
    return gpt_fail(err, GPT_EDATA, "%s: no object 'tokenizer'",
                    o->tokenizer_like);
}

static int index_split(const struct options *o, const struct gpt_indexed *set,
                       int split, const struct gpt_cache_options *co,
                       struct gpt_err *err)
{
    const char *text = o->num_samples.items[split];
    int64_t wanted;
    char digest[33];
    if (!gpt_parse_int(text, &wanted) || wanted < 0)
        return gpt_fail(err, GPT_EUSAGE, "--num-samples is '%.100s', must be a"
                        " number >= 0", text);
    GPT_TRY(gpt_cache_write(set, split, wanted, co, digest, err));
    if (digest[0])
        gpt_info("%s: split %d is %s", gpt_indexed_prefix(set), split, digest);
    else
        gpt_info("%s: split %d has no share", gpt_indexed_prefix(set), split);
    return GPT_OK;
}

static int run_index(const struct options *o, const char *const *sets, int n,
                     struct gpt_err *err)
{
    struct gpt_cache_options co = {
        .directory = o->cache_path,
        .split = o->split,
        .seq_length = o->seq_length,
        .seed = (uint32_t)o->seed,
        .flags = o->common.force ? GPT_OUT_FORCE : 0,
    };
    cJSON *root;
    (void)n;
    if (o->num_samples.n < 1 || o->num_samples.n > 3)
        return gpt_fail(err, GPT_EUSAGE, "--num-samples needs one to three"
                        " numbers, of the train, valid and test split");
    GPT_TRY(read_identity(&root, &co.tokenizer, o, err));
    struct gpt_indexed *set;
    int status = open_set(&set, sets[0], err);
    for (int i = 0; i < o->num_samples.n && status == GPT_OK; i++)
        status = index_split(o, set, i, &co, err);
    gpt_indexed_close(set);
    cJSON_Delete(root);
    return status;
}

/* ---- the modes ---- */

struct mode {
    const char *name;
    int (*run)(const struct options *o, const char *const *sets, int n,
               struct gpt_err *err);
    int min_sets, max_sets;
    const char *options; /* that it takes, besides the common ones */
};

#define VOCABULARY " tokenizer-type vocab-file merge-file "
static const struct mode modes[] = {
    {"info", run_info, 1, INT32_MAX, " json "},
    {"stat", run_stat, 1, INT32_MAX, " json top" VOCABULARY},
    {"cat", run_cat, 1, INT32_MAX,
     " documents tail jsonl strip-eod" VOCABULARY},
    {"verify", run_verify, 1, INT32_MAX,
     " json vocab-size eod max-findings" VOCABULARY},
    {"merge", run_merge, 0, INT32_MAX, " output-prefix input "},
    {"slice", run_slice, 1, 1, " output-prefix documents "},
    {"head", run_head, 1, 1, " output-prefix count "},
    {"repair", run_repair, 1, 1, " output-prefix index-only "},
    {"convert", run_convert, 1, 1, " output-prefix to eod "},
    {"index", run_index, 1, 1,
     " data-cache-path tokenizer-like num-samples seq-length seed split "},
};

static int find_mode(const struct mode **mode, const char *name,
                     struct gpt_err *err)
{
    const char *names[GPT_COUNT(modes)], *near;
    for (size_t i = 0; i < GPT_COUNT(modes); i++) {
        names[i] = modes[i].name;
        *mode = &modes[i];
        if (strcmp(name, names[i]) == 0)
            return GPT_OK;
    }
    gpt_fail(err, GPT_EUSAGE, "unknown command '%.100s'", name);
    near = gpt_did_you_mean(name, names, GPT_COUNT(names));
    return near ? gpt_hint(err, "did you mean '%s'?", near)
                : gpt_hint(err, "try 'gpt-dataset --help'");
}

/* No option is taken and then ignored. */
static int check_options(const struct mode *mode, const struct gpt_args *args,
                         struct gpt_err *err)
{
    for (size_t i = 0; strcmp(table[i].name ? table[i].name : "", "config");
         i++) {
        char word[64];
        snprintf(word, sizeof word, " %s ", table[i].name ? table[i].name : "");
        if (table[i].name && gpt_option_given(args, table[i].name) &&
            !strstr(mode->options, word))
            return gpt_fail(err, GPT_EUSAGE, "%s takes no --%s", mode->name,
                            table[i].name);
    }
    return GPT_OK;
}

static int run(const void *options, const struct gpt_args *args,
               struct gpt_err *err)
{
    const struct mode *mode;
    int n = args->n_positional - 1;
    if (n < 0) {
        gpt_fail(err, GPT_EUSAGE, "what to do is missing");
        return gpt_hint(err, "try 'gpt-dataset --help'");
    }
    GPT_TRY(find_mode(&mode, args->positional[0], err));
    GPT_TRY(check_options(mode, args, err));
    if (n < mode->min_sets || n > mode->max_sets)
        return gpt_fail(err, GPT_EUSAGE, "%s needs %s PREFIX", mode->name,
                        mode->max_sets == 1 ? "one" : "at least one");
    return mode->run(options, args->positional + 1, n, err);
}

static const char *const usage[] = {
    "info PREFIX... [--json]",
    "stat PREFIX... [--top N] [--vocab-file FILE --merge-file FILE] [--json]",
    "cat PREFIX... [--documents A:B] [--tail N] [--jsonl]",
    "verify PREFIX... [--vocab-size N] [--eod ID] [--json]",
    "merge PREFIX... | --input DIR --output-prefix PREFIX",
    "slice PREFIX --documents A:B --output-prefix PREFIX",
    "head PREFIX [-n N] --output-prefix PREFIX",
    "repair PREFIX [--index-only] --output-prefix PREFIX",
    "convert PREFIX [--to FORMAT] --output-prefix PREFIX",
    "index PREFIX --tokenizer-like FILE --num-samples N... [--seq-length N]",
    NULL,
};
static const char *const examples[] = {
    "gpt-dataset info my_text_document",
    "gpt-dataset cat my_text_document --tail 3 --vocab-file my-vocab.json "
    "--merge-file my-merges.txt",
    "gpt-dataset verify my_text_document --vocab-size 50257 --eod 50256",
    "gpt-dataset merge --input parts --output-prefix all",
    NULL,
};

int main(int argc, char **argv)
{
    static const struct gpt_program program = {
        .name = "gpt-dataset",
        .purpose = "Look at, check and rearrange data sets of tokens.",
        .usage = usage,
        .examples = examples,
        .options = table,
        .n_options = GPT_COUNT(table),
        .options_bytes = sizeof(struct options),
        .max_positional = -1,
        .positional = "COMMAND PREFIX...",
        .run = run,
    };
    return gpt_main(&program, argc, argv);
}
