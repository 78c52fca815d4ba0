/* The journal of preprocess_journal.h. Start at gpt_journal_open(). */
#include "data/preprocess_journal.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "data/preprocess_output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BYTES = 1 << 30 };

struct gpt_journal {
    const struct gpt_preprocess_options *o;
    char *path;
    struct gpt_append *file;
    bool has_point;
    int64_t n_sums; /* of inputs, in the file */
};

bool gpt_journal_possible(const struct gpt_preprocess_options *o)
{
    struct stat st;
    for (int64_t i = 0; i < o->n_inputs; i++)
        if (stat(o->inputs[i].path, &st) != 0 || !S_ISREG(st.st_mode))
            return false;
    return !o->quarantine || stat(o->quarantine, &st) != 0 ||
           S_ISREG(st.st_mode);
}

/* ---- lines ---- */

static int add_line(struct gpt_journal *j, const cJSON *object,
                    struct gpt_err *err)
{
    char *text = gpt_json_print(object, false);
    struct gpt_buf line = {0};
    int status = GPT_OK;
    if (!text || gpt_buf_printf(&line, "%08" PRIx32 " %s",
                                gpt_crc32c(0, text, strlen(text)), text) !=
                     GPT_OK)
        status = gpt_fail(err, GPT_EFAIL, "out of memory for '%s'", j->path);
    if (status == GPT_OK)
        status = gpt_append_line(j->file, line.data, err);
    if (status == GPT_OK)
        status = gpt_append_sync(j->file, err);
    gpt_buf_free(&line);
    cJSON_free(text);
    return status;
}

/* The object of the line at *at, which moves behind it; NULL when the line is
 * not whole. */
static cJSON *take_line(const char *data, size_t len, size_t *at)
{
    enum { BEFORE = 9 }; /* the check sum and a blank */
    const char *line = data + *at, *end = memchr(line, '\n', len - *at);
    cJSON *object = NULL;
    char sum[BEFORE + 1];
    if (!end || end - line < BEFORE)
        return NULL;
    size_t n = (size_t)(end - line) - BEFORE;
    snprintf(sum, sizeof sum, "%08" PRIx32 " ",
             gpt_crc32c(0, line + BEFORE, n));
    if (memcmp(line, sum, BEFORE) != 0 ||
        gpt_json_parse(&object, line + BEFORE, n, "journal", NULL) != GPT_OK)
        return NULL;
    *at += (size_t)(end - line) + 1;
    return object;
}

/* ---- what a run is ---- */

static bool put_int(cJSON *object, const char *name, int64_t v)
{
    return cJSON_AddNumberToObject(object, name, (double)v) != NULL;
}

static bool add_inputs(cJSON *run, const struct gpt_preprocess_options *o)
{
    cJSON *inputs = cJSON_AddArrayToObject(run, "inputs");
    bool good = inputs != NULL;
    for (int64_t i = 0; good && i < o->n_inputs; i++) {
        struct stat st;
        cJSON *input = cJSON_CreateObject();
        good = cJSON_AddItemToArray(inputs, input) &&
               stat(o->inputs[i].path, &st) == 0 &&
               cJSON_AddStringToObject(input, "path", o->inputs[i].path) &&
               put_int(input, "begin", o->inputs[i].begin) &&
               put_int(input, "end", o->inputs[i].end) &&
               put_int(input, "bytes", st.st_size) &&
               put_int(input, "mtime", st.st_mtim.tv_sec) &&
               put_int(input, "mtime_ns", st.st_mtim.tv_nsec);
    }
    return good;
}

static bool add_keys(cJSON *run, const struct gpt_preprocess_options *o)
{
    cJSON *keys = cJSON_AddArrayToObject(run, "keys");
    bool good = keys != NULL;
    for (int64_t k = 0; good && k < o->n_keys; k++)
        good = cJSON_AddItemToArray(keys, cJSON_CreateString(o->keys[k]));
    return good;
}

static bool add_tokenizer(cJSON *run, const struct gpt_tokenizer_id *id)
{
    cJSON *list = cJSON_AddArrayToObject(run, "tokenizer");
    bool good = list && (!id || cJSON_AddItemToArray(
                                    list, gpt_tokenizer_to_json(id->options)));
    for (int i = 0; good && id && i < id->n_files; i++)
        good = cJSON_AddItemToArray(list,
                                    cJSON_CreateString(id->files[i].sha256));
    return good;
}

/* All that the bytes of the output depend on, but for what is done with bad
 * lines: that may change as long as there was none. */
static cJSON *describe(const struct gpt_preprocess_options *o,
                       enum gpt_dtype dtype)
{
    cJSON *run = cJSON_CreateObject();
    if (run && cJSON_AddStringToObject(run, "version", GPT_VERSION) &&
        add_tokenizer(run, o->tokenizer_id) &&
        cJSON_AddStringToObject(run, "dtype", gpt_dtype_name(dtype)) &&
        cJSON_AddBoolToObject(run, "append_eod", o->append_eod) &&
        put_int(run, "empty", o->empty) &&
        cJSON_AddBoolToObject(run, "tntidx", o->tntidx) &&
        cJSON_AddBoolToObject(run, "provenance", o->provenance) &&
        cJSON_AddBoolToObject(run, "sources", o->sources) &&
        add_keys(run, o) && add_inputs(run, o))
        return run;
    cJSON_Delete(run);
    return NULL;
}

/* The first difference of two descriptions as "inputs[3].bytes is 7, was 5";
 * false when they are alike. `name` is a buffer of `cap` that holds the name of
 * the two so far. */
static bool differ(const cJSON *now, const cJSON *was, char *name, size_t cap,
                   struct gpt_buf *b)
{
    size_t len = strlen(name);
    if (cJSON_IsObject(now) || cJSON_IsArray(now)) {
        const cJSON *item, *other = was ? was->child : NULL;
        int i = 0;
        cJSON_ArrayForEach(item, now) {
            if (item->string)
                snprintf(name + len, cap - len, "%s%s", len ? "." : "",
                         item->string);
            else
                snprintf(name + len, cap - len, "[%d]", i++);
            if (differ(item, other, name, cap, b))
                return true;
            name[len] = '\0';
            other = other ? other->next : NULL;
        }
        if (other)
            gpt_buf_printf(b, "%s has %d items, had %d", name,
                           cJSON_GetArraySize(now), cJSON_GetArraySize(was));
        return other != NULL;
    }
    if (cJSON_Compare(now, was, true))
        return false;
    char *a = gpt_json_print(now, false);
    char *z = was ? gpt_json_print(was, false) : NULL;
    gpt_buf_printf(b, "%s is %s, was %s", name, a ? a : "?", z ? z : "not");
    cJSON_free(a);
    cJSON_free(z);
    return true;
}

static int check_run(const struct gpt_journal *j, const cJSON *now,
                     const cJSON *was, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    char name[256] = "";
    if (!differ(now, was, name, sizeof name, &b))
        return GPT_OK;
    gpt_fail(err, GPT_EEXIST, "'%s' is of a run that was not finished, and "
             "this one is another: %s", j->path, b.data ? b.data : "");
    gpt_buf_free(&b);
    return gpt_hint(err, "--no-resume gives the unfinished run up and starts "
                    "over");
}

/* ---- points ---- */

/* The fields of a point, by name. `keys` and `bad` follow by hand. */
#define POINT_FIELDS(X)                                                        \
    X("input", input)                                                          \
    X("offset", offset)                                                        \
    X("lines", lines)                                                          \
    X("quarantine_bytes", quarantine_bytes)                                    \
    X("documents", stats.documents)                                            \
    X("tokens", stats.tokens)                                                  \
    X("text_bytes", stats.text_bytes)                                          \
    X("line_bytes", stats.line_bytes)                                          \
    X("bad", stats.bad.n)

/* The fields of gpt_key_counts, by name, and then those of its list. */
#define KEY_FIELDS(X)                                                          \
    X(documents)                                                               \
    X(sequences)                                                               \
    X(tokens)                                                                  \
    X(text_bytes)

static bool put_keys(cJSON *o, const struct gpt_point *p, int64_t n)
{
    cJSON *keys = cJSON_AddArrayToObject(o, "keys");
    bool good = keys != NULL;
    for (int64_t k = 0; good && k < n; k++) {
        cJSON *key = cJSON_CreateObject();
        good = cJSON_AddItemToArray(keys, key);
#define X(field) good = good && put_int(key, #field, p->keys[k].field);
        KEY_FIELDS(X)
#undef X
        cJSON *list = good ? cJSON_AddArrayToObject(key, "lengths") : NULL;
        good = list != NULL;
        for (int b = 0; good && b < GPT_LENGTH_BUCKETS; b++)
            good = cJSON_AddItemToArray(
                list, cJSON_CreateNumber((double)p->keys[k].of_length[b]));
    }
    return good;
}

/* Bytes in hexadecimal digits. */
static bool put_digest(cJSON *o, const struct gpt_xxh64 *h)
{
    const uint8_t *bytes = (const uint8_t *)h;
    char hex[2 * sizeof *h + 1];
    for (size_t i = 0; i < sizeof *h; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return cJSON_AddStringToObject(o, "digest", hex) != NULL;
}

/* Of the inputs that were finished after the last point. */
static bool put_sums(cJSON *o, const struct gpt_point *p, int64_t begin,
                     int64_t end)
{
    cJSON *sums = cJSON_AddArrayToObject(o, "sums");
    bool good = sums != NULL && put_int(o, "first_sum", begin);
    for (int64_t i = begin; good && i < end; i++) {
        const struct gpt_input_sum *s = &p->sums[i];
        char text[80];
        snprintf(text, sizeof text, "%016" PRIx64 " %" PRId64 " %" PRId64,
                 s->xxh64, s->begin, s->bytes);
        good = cJSON_AddItemToArray(sums, cJSON_CreateString(text));
    }
    return good;
}

static bool put_bad(cJSON *o, const struct gpt_bad_report *bad)
{
    cJSON *kinds = cJSON_AddArrayToObject(o, "bad_of_kind");
    cJSON *named = cJSON_AddArrayToObject(o, "bad_named");
    bool good = kinds && named;
    for (int k = 0; good && k < GPT_BAD_KINDS; k++)
        good = cJSON_AddItemToArray(
            kinds, cJSON_CreateNumber((double)bad->of_kind[k]));
    for (int64_t i = 0; good && i < bad->n_named; i++)
        good = cJSON_AddItemToArray(named,
                                    cJSON_CreateString(bad->named[i].text));
    return good;
}

static const char *on_error(const struct gpt_preprocess_options *o)
{
    return o->quarantine ? o->quarantine : o->skip_bad ? "skip" : "stop";
}

int gpt_journal_add(struct gpt_journal *j, const struct gpt_point *p,
                    struct gpt_err *err)
{
    cJSON *o = cJSON_CreateObject();
    bool good = o != NULL;
    int64_t sums = p->complete ? j->o->n_inputs : p->input;
#define X(name, field) good = good && put_int(o, name, p->field);
    POINT_FIELDS(X)
#undef X
    good = good && cJSON_AddBoolToObject(o, "complete", p->complete) &&
           cJSON_AddStringToObject(o, "on_error", on_error(j->o)) &&
           put_keys(o, p, j->o->n_keys) && put_bad(o, &p->stats.bad) &&
           put_digest(o, &p->digest) && put_sums(o, p, j->n_sums, sums);
    int status = good ? add_line(j, o, err)
                      : gpt_fail(err, GPT_EFAIL, "out of memory for '%s'",
                                 j->path);
    cJSON_Delete(o);
    GPT_TRY(status);
    j->has_point = true;
    j->n_sums = sums;
    return GPT_OK;
}

static int get_int(const cJSON *object, const char *name, int64_t *v,
                   const struct gpt_journal *j, struct gpt_err *err)
{
    return gpt_json_int(object, name, 0, INT64_C(1) << 53, v, j->path, err);
}

static int get_keys(const cJSON *o, struct gpt_point *p,
                    const struct gpt_journal *j, struct gpt_err *err)
{
    const cJSON *key, *keys = cJSON_GetObjectItemCaseSensitive(o, "keys");
    if (cJSON_GetArraySize(keys) != j->o->n_keys)
        return gpt_fail(err, GPT_EDATA, "%s: keys: %d items, must be %lld",
                        j->path, cJSON_GetArraySize(keys),
                        (long long)j->o->n_keys);
    struct gpt_key_counts *at = p->keys;
    cJSON_ArrayForEach(key, keys) {
        const cJSON *item;
        int b = 0;
#define X(field) GPT_TRY(get_int(key, #field, &at->field, j, err));
        KEY_FIELDS(X)
#undef X
        cJSON_ArrayForEach(item,
                           cJSON_GetObjectItemCaseSensitive(key, "lengths"))
            if (cJSON_IsNumber(item) && b < GPT_LENGTH_BUCKETS)
                at->of_length[b++] = (int64_t)item->valuedouble;
        at++;
    }
    return GPT_OK;
}

static int get_digest(const cJSON *o, struct gpt_xxh64 *h,
                      const struct gpt_journal *j, struct gpt_err *err)
{
    const char *hex;
    uint8_t *bytes = (uint8_t *)h;
    GPT_TRY(gpt_json_string(o, "digest", &hex, j->path, err));
    for (size_t i = 0; i < sizeof *h; i++, hex += 2)
        if (sscanf(hex, "%2hhx", &bytes[i]) != 1)
            return gpt_fail(err, GPT_EDATA, "%s: digest: not %zu bytes",
                            j->path, sizeof *h);
    return GPT_OK;
}

/* Those of one line; lines follow each other without a gap. */
static int get_sums(const cJSON *o, struct gpt_point *p, struct gpt_journal *j,
                    struct gpt_err *err)
{
    const cJSON *item;
    int64_t i;
    GPT_TRY(gpt_json_int(o, "first_sum", 0, j->n_sums, &i, j->path, err));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o, "sums")) {
        struct gpt_input_sum *s = &p->sums[i];
        if (i++ >= j->o->n_inputs || !cJSON_IsString(item) ||
            sscanf(item->valuestring, "%" SCNx64 " %" SCNd64 " %" SCNd64,
                   &s->xxh64, &s->begin, &s->bytes) != 3)
            return gpt_fail(err, GPT_EDATA, "%s: sums: item %lld", j->path,
                            (long long)i);
    }
    j->n_sums = i;
    return GPT_OK;
}

static int get_bad(const cJSON *o, struct gpt_bad_report *bad,
                   const struct gpt_journal *j, struct gpt_err *err)
{
    const cJSON *item;
    int k = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o, "bad_of_kind"))
        if (cJSON_IsNumber(item) && k < GPT_BAD_KINDS)
            bad->of_kind[k++] = (int64_t)item->valuedouble;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o, "bad_named"))
        if (cJSON_IsString(item) && bad->n_named < GPT_BAD_NAMED)
            gpt_fail(&bad->named[bad->n_named++], GPT_EDATA, "%s",
                     item->valuestring);
    if (k == GPT_BAD_KINDS && bad->n_named <= bad->n)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "%s: bad_of_kind: %d items, must be %d",
                    j->path, k, GPT_BAD_KINDS);
}

static int get_point(const cJSON *o, struct gpt_point *p,
                     const struct gpt_journal *j, struct gpt_err *err)
{
    const char *was;
#define X(name, field) GPT_TRY(get_int(o, name, &p->field, j, err));
    POINT_FIELDS(X)
#undef X
    GPT_TRY(gpt_json_bool_or(o, "complete", false, &p->complete, j->path,
                             err));
    GPT_TRY(gpt_json_string(o, "on_error", &was, j->path, err));
    GPT_TRY(get_keys(o, p, j, err));
    GPT_TRY(get_bad(o, &p->stats.bad, j, err));
    GPT_TRY(get_digest(o, &p->digest, j, err));
    if (p->input >= j->o->n_inputs)
        return gpt_fail(err, GPT_EDATA, "%s: input is %lld, must be below %lld",
                        j->path, (long long)p->input,
                        (long long)j->o->n_inputs);
    if (p->stats.bad.n == 0 || strcmp(was, on_error(j->o)) == 0)
        return GPT_OK;
    gpt_fail(err, GPT_EEXIST, "'%s' is of a run that was not finished, and has "
             "left out bad lines with --on-error %s%s", j->path,
             strcmp(was, "skip") == 0 ? "" : "quarantine=", was);
    return gpt_hint(err, "--no-resume gives the unfinished run up and starts "
                    "over");
}

/* ---- open, close ---- */

/* Looks for the last whole line; what follows it is cut off. */
static int read_points(struct gpt_journal *j, const char *data, size_t len,
                       size_t at, struct gpt_point *p, struct gpt_err *err)
{
    cJSON *last = NULL, *next;
    int status = GPT_OK;
    while (status == GPT_OK && at < len &&
           (next = take_line(data, len, &at)) != NULL) {
        cJSON_Delete(last);
        last = next;
        status = get_sums(last, p, j, err);
    }
    if (status == GPT_OK)
        status = gpt_append_cut(j->file, (int64_t)at, err);
    if (status == GPT_OK && last)
        status = get_point(last, p, j, err);
    j->has_point = last != NULL;
    cJSON_Delete(last);
    return status;
}

/* Takes over the journal that is there, or begins it. */
static int begin(struct gpt_journal *j, const cJSON *run, const char *data,
                 size_t len, struct gpt_point *p, struct gpt_err *err)
{
    size_t at = 0;
    cJSON *was = len > 0 ? take_line(data, len, &at) : NULL;
    if (!was) {
        GPT_TRY(gpt_append_cut(j->file, 0, err));
        return add_line(j, run, err);
    }
    j->has_point = true; /* until it is known: nothing is removed */
    int status = check_run(j, run, was, err);
    cJSON_Delete(was);
    GPT_TRY(status);
    return read_points(j, data, len, at, p, err);
}

static int name_journal(struct gpt_journal *j, struct gpt_err *err)
{
    size_t n = strlen(j->o->output_prefix) + sizeof ".resume";
    GPT_TRY(gpt_new(&j->path, n, 1, "a file name", err));
    snprintf(j->path, n, "%s.resume", j->o->output_prefix);
    return GPT_OK;
}

static int lock_journal(struct gpt_journal *j, struct gpt_err *err)
{
    GPT_TRY(gpt_append_open(&j->file, j->path, err));
    int status = gpt_append_lock(j->file, err);
    j->has_point = status != GPT_OK; /* it is not ours to remove */
    return status;
}

static int open_file(struct gpt_journal *j, enum gpt_dtype dtype,
                     struct gpt_point *p, struct gpt_err *err)
{
    size_t len;
    char *data;
    GPT_TRY(name_journal(j, err));
    GPT_TRY(lock_journal(j, err));
    GPT_TRY(gpt_read_file(j->path, MAX_BYTES, &data, &len, err));
    cJSON *run = describe(j->o, dtype);
    int status = run ? begin(j, run, data, len, p, err)
                 : gpt_fail(err, GPT_EFAIL, "cannot describe the run: an input "
                            "is not there, or memory is out");
    cJSON_Delete(run);
    gpt_free(data);
    return status;
}

int gpt_journal_open(struct gpt_journal **journal,
                     const struct gpt_preprocess_options *options,
                     enum gpt_dtype dtype, struct gpt_point *point,
                     bool *found, struct gpt_err *err)
{
    struct gpt_journal *j;
    GPT_TRY(gpt_new(&j, 1, sizeof *j, "a journal", err));
    j->o = options;
    int status = open_file(j, dtype, point, err);
    *found = j->has_point;
    if (status != GPT_OK)
        gpt_journal_close(j);
    else
        *journal = j;
    return status;
}

bool gpt_journal_has_point(const struct gpt_journal *j)
{
    return j->has_point;
}

/* Unlinked while it is locked, so that nobody else's is. */
static void close_journal(struct gpt_journal *j, bool remove)
{
    if (j->file && remove)
        unlink(j->path);
    (void)gpt_append_close(j->file, NULL);
    gpt_free(j->path);
    gpt_free(j);
}

void gpt_journal_close(struct gpt_journal *j)
{
    if (j)
        close_journal(j, !j->has_point);
}

void gpt_journal_remove(struct gpt_journal *j)
{
    close_journal(j, true);
}

int gpt_journal_discard(const struct gpt_preprocess_options *options,
                        struct gpt_err *err)
{
    struct gpt_journal j = {.o = options};
    GPT_TRY(name_journal(&j, err));
    int status = GPT_OK;
    if (gpt_path_exists(j.path)) {
        status = lock_journal(&j, err);
        if (status == GPT_OK)
            status = gpt_outputs_discard(options, err);
        if (status == GPT_OK)
            unlink(j.path);
        (void)gpt_append_close(j.file, NULL);
    }
    gpt_free(j.path);
    return status;
}
