/* The JSON of provenance.h. Start at gpt_provenance_write(). */
#include "data/provenance.h"

#include "base/memory.h"
#include "base/num.h"
#include "text/unicode.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 30 };

/* Bucket b holds lengths of b bits, so that it ends at a power of two; the last
 * one holds all that is longer. */
void gpt_key_counts_add(struct gpt_key_counts *c, int64_t document_tokens)
{
    int bucket = 0;

    assert(document_tokens >= 0);
    while (document_tokens >> bucket && bucket < GPT_LENGTH_BUCKETS - 1)
        bucket++;
    c->of_length[bucket]++;
    c->documents++;
}

/* Borrows `option` and `path`. */
int gpt_tokenizer_id_add(struct gpt_tokenizer_id *id, const char *option,
                         const char *path, struct gpt_err *err)
{
    if (!path)
        return GPT_OK;
    if (id->n_files == GPT_TOKENIZER_FILES)
        return gpt_fail(err, GPT_EFAIL, "a tokenizer of more than %d files",
                        GPT_TOKENIZER_FILES);
    /* A digest of the whole file says which vocabulary it was, whatever its
     * name. */
    GPT_TRY(gpt_sha256_file(id->files[id->n_files].sha256,
                            &id->files[id->n_files].bytes, path, err));
    id->files[id->n_files].option = option;
    id->files[id->n_files++].path = path;
    return GPT_OK;
}

/* Members that find no memory are noticed when the whole is printed. */
static void put_int(cJSON *o, const char *name, int64_t v)
{
    cJSON_AddNumberToObject(o, name, (double)v);
}

static void put_string(cJSON *o, const char *name, const char *v)
{
    cJSON_AddStringToObject(o, name, v ? v : "");
}

/* A list with a string for each line: one string of many lines is hard to read
 * in JSON. The lines can be joined to a configuration file that repeats the
 * run. */
static int put_command(cJSON *root, const char *lines, struct gpt_err *err)
{
    cJSON *list = cJSON_AddArrayToObject(root, "command");

    while (lines && *lines) {
        size_t n = strcspn(lines, "\n");
        char *line = strndup(lines, n);

        if (!line)
            return gpt_no_memory(err, "the provenance");
        gpt_json_add(list, NULL, cJSON_CreateString(line));
        free(line);
        lines += lines[n] ? n + 1 : n;
    }
    return GPT_OK;
}

/* Names of files may change, digests do not: two data sets fit together when
 * the digests of their tokenizers are equal. The options are those that change
 * what the tokenizer does, under their names. */
static void put_tokenizer(cJSON *root, const struct gpt_set_origin *o)
{
    const struct gpt_tokenizer_id *id = o->tokenizer_id;
    cJSON *t = cJSON_AddObjectToObject(root, "tokenizer"), *files;

    put_string(t, "type", id ? id->options->type : NULL);
    if (id)
        gpt_json_add(t, "options", gpt_tokenizer_to_json(id->options));
    put_int(t, "vocabulary", gpt_tokenizer_vocab_size(o->tokenizer));
    put_int(t, "eod", gpt_tokenizer_eod(o->tokenizer));
    files = cJSON_AddArrayToObject(t, "files");
    for (int i = 0; id && i < id->n_files; i++) {
        cJSON *file = gpt_json_add(files, NULL, cJSON_CreateObject());

        put_string(file, "option", id->files[i].option);
        put_string(file, "path", id->files[i].path);
        put_int(file, "bytes", id->files[i].bytes);
        put_string(file, "sha256", id->files[i].sha256);
    }
}

/* The offset is written only for parts of files. */
static void put_inputs(cJSON *root, const struct gpt_provenance *p)
{
    cJSON *inputs = cJSON_AddArrayToObject(root, "inputs");

    for (int64_t i = 0; i < p->origin.n_inputs; i++) {
        const struct gpt_input_range *span = &p->origin.inputs[i];
        cJSON *input = gpt_json_add(inputs, NULL, cJSON_CreateObject());
        char digest[17];

        snprintf(digest, sizeof(digest), "%016" PRIx64, p->sums[i].xxh64);
        put_string(input, "path", span->path);
        if (span->begin != 0 || span->end >= 0)
            put_int(input, "offset", p->sums[i].begin);
        put_int(input, "bytes", p->sums[i].bytes);
        put_string(input, "xxh64", digest);
    }
}

/* Kinds that did not occur are left out, as in the summary of a run. */
static void put_bad(cJSON *root, const struct gpt_bad_report *bad)
{
    cJSON *kinds = cJSON_AddObjectToObject(root, "bad_lines");

    for (int k = 0; k < GPT_BAD_KINDS; k++)
        if (bad->of_kind[k])
            put_int(kinds, gpt_bad_word(k), bad->of_kind[k]);
}

/* Counts up to 2^53 are exact in the doubles of cJSON. */
static void put_counts(cJSON *root, const struct gpt_key_counts *c)
{
    double per_token =
        c->tokens ? (double)c->text_bytes / (double)c->tokens : 0.0;
    cJSON *lengths;

    put_int(root, "documents", c->documents);
    put_int(root, "sequences", c->sequences);
    put_int(root, "tokens", c->tokens);
    put_int(root, "text_bytes", c->text_bytes);
    cJSON_AddNumberToObject(root, "bytes_per_token", per_token);
    lengths = cJSON_AddArrayToObject(root, "lengths");
    for (int b = 0; b < GPT_LENGTH_BUCKETS; b++) {
        if (!c->of_length[b])
            continue;
        cJSON *row = gpt_json_add(lengths, NULL, cJSON_CreateObject());
        put_int(row, "from", b ? INT64_C(1) << (b - 1) : 0);
        put_int(row, "to", (INT64_C(1) << b) - 1);
        put_int(row, "documents", c->of_length[b]);
    }
}

/* A set that was not made in parts has no numbers of shards. */
static void put_shard(cJSON *root, const struct gpt_set_origin *o)
{
    if (o->n_shards == 0)
        return;
    put_int(root, "shard", o->shard);
    put_int(root, "shards", o->n_shards);
}

int gpt_provenance_write(struct gpt_out *out, const struct gpt_provenance *p,
                         struct gpt_err *err)
{
    const struct gpt_set_origin *o = &p->origin;
    cJSON *root = cJSON_CreateObject();
    char *text = NULL;
    int status;

    /* The order of the fields is part of the bytes: same input, same file. */
    put_string(root, "tool", "gpt-preprocess " GPT_VERSION);
    put_string(root, "unicode", GPT_UNICODE_VERSION);
    GPT_TRY_GOTO(status, put_command(root, o->command, err), out);
    put_string(root, "key", p->key);
    put_string(root, "index", o->tntidx ? "TNTIDX" : "MMIDIDX");
    put_string(root, "dtype", p->dtype == GPT_U16 ? "uint16" : "int32");
    put_shard(root, o);
    put_tokenizer(root, o);
    put_counts(root, p->counts);
    put_bad(root, p->bad);
    put_inputs(root, p);
    text = gpt_json_print(root, true);
    status = text ? gpt_out_printf(out, err, "%s\n", text)
                  : gpt_no_memory(err, "the provenance");
out:
    cJSON_free(text);
    cJSON_Delete(root);
    return status;
}

static const char *text_of(const cJSON *o, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);

    return cJSON_IsString(item) ? item->valuestring : "?";
}

/* The file may be of another program: a field that is missing, or of another
 * kind, prints as "?" or 0. */
void gpt_provenance_brief(char *buf, size_t cap, const cJSON *root)
{
    const cJSON *inputs = cJSON_GetObjectItemCaseSensitive(root, "inputs");
    const cJSON *t = cJSON_GetObjectItemCaseSensitive(root, "tokenizer");
    const cJSON *input, *n;
    double bytes = 0;
    char size[32];

    cJSON_ArrayForEach(input, inputs) {
        n = cJSON_GetObjectItemCaseSensitive(input, "bytes");
        bytes += cJSON_IsNumber(n) ? n->valuedouble : 0;
    }
    n = cJSON_GetObjectItemCaseSensitive(t, "vocabulary");
    snprintf(buf, cap, "%.100s, %d input%s, %s, %.100s of %.0f tokens",
             text_of(root, "tool"), cJSON_GetArraySize(inputs),
             gpt_plural(cJSON_GetArraySize(inputs)),
             gpt_text_bytes(size, bytes), text_of(t, "type"),
             cJSON_IsNumber(n) ? n->valuedouble : 0);
}

int gpt_provenance_read(cJSON **root, const char *prefix, struct gpt_err *err)
{
    struct gpt_buf path = {0};
    int status = GPT_OK;

    /* A set without the file is good; what made it is not known. */
    *root = NULL;
    if (gpt_buf_printf(&path, "%s.json", prefix) != GPT_OK)
        status = gpt_no_memory(err, "a file name");
    else if (gpt_path_exists(path.data))
        status = gpt_json_read(root, path.data, MAX_BYTES, err);
    gpt_buf_free(&path);
    return status;
}
