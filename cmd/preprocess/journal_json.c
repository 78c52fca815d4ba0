/* The lines of a journal as JSON: see journal_json.h. The first part of this
 * file is the line that describes the run, the second the lines that are points
 * in it. cJSON holds numbers as doubles: counts up to 2^53 are exact, and a
 * digest, which has 64 bits, is text.
 *
 *     {"version":"0.1.0","tokenizer":[...],"dtype":"U16",...,"keys":["text"],
 *      "inputs":[{"path":"a.jsonl","begin":0,"end":-1,"bytes":81,...}]}
 *     {"input":0,"offset":262144,"lines":400,...,"complete":false,
 *      "on_error":"stop","keys":[{"documents":400,...}],"sums":[]}
 */
#include "cmd/preprocess/journal_json.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int gpt_hint_no_resume(struct gpt_err *err)
{
    return gpt_hint(err, "--no-resume gives the unfinished run up and starts "
                    "over");
}

static void put_int(cJSON *object, const char *name, int64_t v)
{
    cJSON_AddNumberToObject(object, name, (double)v);
}

/* ---- the run ---- */

/* Inputs are recognised by name, size and time of modification: reading them to
 * compare digests would take as long as the work itself. */
static bool add_inputs(cJSON *run, const struct gpt_preprocess_options *o)
{
    cJSON *inputs = cJSON_AddArrayToObject(run, "inputs");

    for (int64_t i = 0; i < o->n_inputs; i++) {
        struct stat st;
        cJSON *input = gpt_json_add(inputs, NULL, cJSON_CreateObject());

        if (stat(o->inputs[i].path, &st) != 0)
            return false;
        cJSON_AddStringToObject(input, "path", o->inputs[i].path);
        put_int(input, "begin", o->inputs[i].begin);
        put_int(input, "end", o->inputs[i].end);
        put_int(input, "bytes", st.st_size);
        put_int(input, "mtime", st.st_mtim.tv_sec);
        put_int(input, "mtime_ns", st.st_mtim.tv_nsec);
    }
    return true;
}

static void add_keys(cJSON *run, const struct gpt_preprocess_options *o)
{
    cJSON *keys = cJSON_AddArrayToObject(run, "keys");

    for (int64_t k = 0; k < o->n_keys; k++)
        gpt_json_add(keys, NULL, cJSON_CreateString(o->keys[k]));
}

/* By digest: a vocabulary that was edited would give other tokens in the middle
 * of a data set. */
static void add_tokenizer(cJSON *run, const struct gpt_tokenizer_id *id)
{
    cJSON *list = cJSON_AddArrayToObject(run, "tokenizer");

    if (!id)
        return;
    gpt_json_add(list, NULL, gpt_tokenizer_to_json(id->options));
    for (int i = 0; i < id->n_files; i++)
        gpt_json_add(list, NULL, cJSON_CreateString(id->files[i].sha256));
}

/* Neither workers nor intervals are here: they have no influence on the bytes,
 * and may change when a run is resumed. */
cJSON *gpt_resume_to_json(const struct gpt_preprocess_options *o,
                          enum gpt_dtype dtype)
{
    cJSON *run = cJSON_CreateObject();

    cJSON_AddStringToObject(run, "version", GPT_VERSION);
    add_tokenizer(run, o->tokenizer_id);
    cJSON_AddStringToObject(run, "dtype", gpt_dtype_name(dtype));
    cJSON_AddBoolToObject(run, "append_eod", o->append_eod);
    put_int(run, "empty", o->empty);
    cJSON_AddBoolToObject(run, "tntidx", o->tntidx);
    cJSON_AddBoolToObject(run, "provenance", o->provenance);
    cJSON_AddBoolToObject(run, "sources", o->sources);
    add_keys(run, o);
    /* It is compared before it is printed, so it must be whole here. */
    if (add_inputs(run, o) && !gpt_json_out_of_memory())
        return run;
    cJSON_Delete(run);
    return NULL;
}

/* Appends the first difference of two descriptions, as "inputs[3].bytes is 7,
 * was 5"; returns false when they are alike. `name` is a buffer of `cap` that
 * holds the name of the two. The fields are compared in order, as both were
 * written by gpt_resume_to_json(); the depth is that of its objects. */
static bool describe_difference(const cJSON *now, const cJSON *was, char *name,
                                size_t cap, struct gpt_buf *b)
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
            if (describe_difference(item, other, name, cap, b))
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

/* Says of the first input that differs what a user can have done to it: the
 * fields of its size and times make one sentence. False: the inputs are
 * others, or other parts of files, which the names of the fields say. */
static bool describe_input(const cJSON *now, const cJSON *was,
                           struct gpt_buf *b)
{
    static const char *const fields[] = {"path", "begin", "end"};
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(now, "inputs")->child;
    const cJSON *z = cJSON_GetObjectItemCaseSensitive(was, "inputs");

    z = z ? z->child : NULL;
    while (a && z && cJSON_Compare(a, z, true)) {
        a = a->next;
        z = z->next;
    }
    if (!a || !z)
        return false;
    for (size_t i = 0; i < GPT_COUNT(fields); i++)
        if (!cJSON_Compare(cJSON_GetObjectItemCaseSensitive(a, fields[i]),
                           cJSON_GetObjectItemCaseSensitive(z, fields[i]),
                           true))
            return false;
    gpt_buf_printf(b, "input '%s' was modified since it began",
                   cJSON_GetObjectItemCaseSensitive(a, "path")->valuestring);
    return true;
}

int gpt_resume_check(const struct gpt_journal_about *j, const cJSON *now,
                     const cJSON *was, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    char name[256] = "";

    if (!describe_difference(now, was, name, sizeof(name), &b))
        return GPT_OK;
    if (strncmp(name, "inputs[", strlen("inputs[")) == 0) {
        struct gpt_buf words = {0};

        /* the difference in a user's words takes the place of the field's */
        if (describe_input(now, was, &words)) {
            gpt_buf_free(&b);
            b = words;
        }
    }
    gpt_fail(err, GPT_EEXIST, "'%s' belongs to an unfinished run, which "
             "differs from this one: %s", j->path, b.data ? b.data : "");
    gpt_buf_free(&b);
    return gpt_hint_no_resume(err);
}

/* ---- points: written ---- */

/* The fields of a point, by name; one table for both directions. `keys` and
 * `bad` are not numbers and have functions of their own. */
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

/* An array in the order of the keys of the run, whose names are in its
 * description. */
static void put_keys(cJSON *o, const struct gpt_point *p, int64_t n)
{
    cJSON *keys = cJSON_AddArrayToObject(o, "keys");

    for (int64_t k = 0; k < n; k++) {
        cJSON *key = gpt_json_add(keys, NULL, cJSON_CreateObject());

#define X(field) put_int(key, #field, p->keys[k].field);
        KEY_FIELDS(X)
#undef X
        cJSON *list = cJSON_AddArrayToObject(key, "lengths");
        for (int b = 0; b < GPT_LENGTH_BUCKETS; b++)
            gpt_json_add(list, NULL, cJSON_CreateNumber(
                                         (double)p->keys[k].of_length[b]));
    }
}

/* The state of the digest, as bytes in hexadecimal digits: a resumed run
 * continues the sum in the middle of an input. It is read on the same machine
 * only. */
static void put_digest(cJSON *o, const struct gpt_xxh64 *h)
{
    const uint8_t *bytes = (const uint8_t *)h;
    char hex[2 * sizeof(*h) + 1];

    for (size_t i = 0; i < sizeof(*h); i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    cJSON_AddStringToObject(o, "digest", hex);
}

/* The sums of inputs [begin, end): those that were finished after the point
 * before. Each line has only these, so that a journal of many inputs does not
 * grow with their square. */
static void put_sums(cJSON *o, const struct gpt_point *p, int64_t begin,
                     int64_t end)
{
    cJSON *sums = cJSON_AddArrayToObject(o, "sums");

    put_int(o, "first_sum", begin);
    for (int64_t i = begin; i < end; i++) {
        const struct gpt_input_sum *s = &p->sums[i];
        char text[80];

        snprintf(text, sizeof(text), "%016" PRIx64 " %" PRId64 " %" PRId64,
                 s->xxh64, s->begin, s->bytes);
        gpt_json_add(sums, NULL, cJSON_CreateString(text));
    }
}

/* Counts by number of kind: the version of the program is part of the
 * description, so that kinds do not change between writing and reading. */
static void put_bad(cJSON *o, const struct gpt_bad_report *bad)
{
    cJSON *kinds = cJSON_AddArrayToObject(o, "bad_of_kind");
    cJSON *named = cJSON_AddArrayToObject(o, "bad_named");

    for (int k = 0; k < GPT_BAD_KINDS; k++)
        gpt_json_add(kinds, NULL, cJSON_CreateNumber((double)bad->of_kind[k]));
    for (int64_t i = 0; i < bad->n_named; i++)
        gpt_json_add(named, NULL, cJSON_CreateString(bad->named[i].text));
}

/* What is done with bad lines, as the user wrote it. */
static const char *on_error(const struct gpt_preprocess_options *o)
{
    return o->quarantine ? o->quarantine : o->skip_bad ? "skip" : "stop";
}

cJSON *gpt_point_to_json(const struct gpt_journal_about *j,
                         const struct gpt_point *p, int64_t n_sums)
{
    cJSON *o = cJSON_CreateObject();

#define X(name, field) put_int(o, name, p->field);
    POINT_FIELDS(X)
#undef X
    cJSON_AddBoolToObject(o, "complete", p->complete);
    cJSON_AddStringToObject(o, "on_error", on_error(j->o));
    put_keys(o, p, j->o->n_keys);
    put_bad(o, &p->stats.bad);
    put_digest(o, &p->digest);
    put_sums(o, p, j->n_sums, n_sums);
    return o;
}

/* ---- points: read ---- */

static int read_int(const cJSON *object, const char *name, int64_t *v,
                    const struct gpt_journal_about *j, struct gpt_err *err)
{
    return gpt_json_int(object, name, 0, GPT_JSON_EXACT, v, j->path, err);
}

/* Reads a list of n counts. */
static int read_counts(const cJSON *object, const char *name, int64_t *to,
                       int n, const struct gpt_journal_about *j,
                       struct gpt_err *err)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, name), *item;

    if (cJSON_GetArraySize(list) != n)
        return gpt_fail(err, GPT_EDATA, "%s: '%s' has %d items, must have %d",
                        j->path, name, cJSON_GetArraySize(list), n);
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
            item->valuedouble > 0x1p53)
            return gpt_fail(err, GPT_EDATA, "%s: %s: not a list of counts",
                            j->path, name);
        *to++ = (int64_t)item->valuedouble;
    }
    return GPT_OK;
}

static int read_keys(const cJSON *o, struct gpt_point *p,
                     const struct gpt_journal_about *j, struct gpt_err *err)
{
    const cJSON *key, *keys = cJSON_GetObjectItemCaseSensitive(o, "keys");

    if (cJSON_GetArraySize(keys) != j->o->n_keys)
        return gpt_fail(err, GPT_EDATA,
                        "%s: 'keys' has %d items, must have %lld", j->path,
                        cJSON_GetArraySize(keys), (long long)j->o->n_keys);
    struct gpt_key_counts *at = p->keys;
    cJSON_ArrayForEach(key, keys) {
#define X(field) GPT_TRY(read_int(key, #field, &at->field, j, err));
        KEY_FIELDS(X)
#undef X
        GPT_TRY(read_counts(key, "lengths", at->of_length, GPT_LENGTH_BUCKETS,
                            j, err));
        at++;
    }
    return GPT_OK;
}

static int read_digest(const cJSON *o, struct gpt_xxh64 *h,
                       const struct gpt_journal_about *j, struct gpt_err *err)
{
    const char *hex;
    uint8_t *bytes = (uint8_t *)h;

    GPT_TRY(gpt_json_string(o, "digest", &hex, j->path, err));
    bool good = strlen(hex) == 2 * sizeof(*h);
    for (size_t i = 0; good && i < sizeof(*h); i++)
        good = sscanf(hex + 2 * i, "%2hhx", &bytes[i]) == 1;
    return good ? GPT_OK
                : gpt_fail(err, GPT_EDATA, "%s: digest: is not %zu bytes in "
                           "hexadecimal", j->path, sizeof(*h));
}

int gpt_sums_from_json(struct gpt_journal_about *j, const cJSON *o,
                       struct gpt_point *p, struct gpt_err *err)
{
    const cJSON *item;
    int64_t i;

    /* At most where the lines before ended: no sum is left out, and one that is
     * there twice is written over. */
    GPT_TRY(gpt_json_int(o, "first_sum", 0, j->n_sums, &i, j->path, err));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o, "sums")) {
        struct gpt_input_sum *s = &p->sums[i];

        if (i++ >= j->o->n_inputs || !cJSON_IsString(item) ||
            sscanf(item->valuestring, "%" SCNx64 " %" SCNd64 " %" SCNd64,
                   &s->xxh64, &s->begin, &s->bytes) != 3)
            return gpt_fail(err, GPT_EDATA, "%s: sums: item %lld is damaged, "
                            "or more than there are inputs", j->path,
                            (long long)i);
    }
    j->n_sums = i;
    return GPT_OK;
}

static int read_bad(const cJSON *o, struct gpt_bad_report *bad,
                    const struct gpt_journal_about *j, struct gpt_err *err)
{
    const cJSON *item;

    GPT_TRY(read_counts(o, "bad_of_kind", bad->of_kind, GPT_BAD_KINDS, j, err));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o, "bad_named"))
        if (cJSON_IsString(item) && bad->n_named < GPT_BAD_NAMED)
            gpt_fail(&bad->named[bad->n_named++], GPT_EDATA, "%s",
                     item->valuestring);
    if (bad->n_named <= bad->n)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "%s: bad_named: has more items than the "
                    "%lld bad lines", j->path, (long long)bad->n);
}

int gpt_point_from_json(const struct gpt_journal_about *j, const cJSON *o,
                        struct gpt_point *p, struct gpt_err *err)
{
    const char *was;
#define X(name, field) GPT_TRY(read_int(o, name, &p->field, j, err));
    POINT_FIELDS(X)
#undef X
    GPT_TRY(gpt_json_bool_or(o, "complete", false, &p->complete, j->path,
                             err));
    GPT_TRY(gpt_json_string(o, "on_error", &was, j->path, err));
    GPT_TRY(read_keys(o, p, j, err));
    GPT_TRY(read_bad(o, &p->stats.bad, j, err));
    GPT_TRY(read_digest(o, &p->digest, j, err));
    /* The number will index the inputs and their sums. */
    if (p->input >= j->o->n_inputs)
        return gpt_fail(err, GPT_EDATA, "%s: input is %lld, must be below %lld",
                        j->path, (long long)p->input,
                        (long long)j->o->n_inputs);
    if (p->stats.bad.n == 0 || strcmp(was, on_error(j->o)) == 0)
        return GPT_OK;
    /* After a bad line a run cannot change what becomes of them: half of them
     * would be in the quarantine file. */
    gpt_fail(err, GPT_EEXIST, "'%s' belongs to an unfinished run, which "
             "skipped bad lines with --on-error %s%s", j->path,
             strcmp(was, "skip") == 0 ? "" : "quarantine=", was);
    return gpt_hint_no_resume(err);
}
