/* Documents and their lines: see document_sources.h. The records are mapped,
 * not read: a lookup touches one page, however many documents there are. */
#include "data/document_sources.h"

#include "base/memory.h"
#include "base/num.h"
#include "data/provenance.h"

#include <assert.h>

#include <string.h>

struct gpt_sources {
    struct gpt_in *in;
    const uint8_t *records;
    int64_t n;
    cJSON *root;
    const char **paths; /* of inputs; in root */
    int64_t n_paths;
};

/* The record is written field by field: it has no padding and is the same on
 * any machine. */
void gpt_source_put(uint8_t record[GPT_SOURCE_BYTES],
                    const struct gpt_source_record *s)
{
    gpt_put_u32(record, s->input);
    gpt_put_u32(record + 4, s->line);
    gpt_put_u64(record + 8, s->offset);
}

/* The names of the inputs, which the records number, are in the JSON. */
static int read_paths(struct gpt_sources *s, const char *prefix,
                      struct gpt_err *err)
{
    const cJSON *input;

    GPT_TRY(gpt_provenance_read(&s->root, prefix, err));
    const cJSON *inputs = cJSON_GetObjectItemCaseSensitive(s->root, "inputs");
    if (!cJSON_IsArray(inputs))
        return gpt_fail(err, GPT_EDATA, "%s.json has no list 'inputs'", prefix);
    GPT_TRY(gpt_new(&s->paths, (size_t)cJSON_GetArraySize(inputs),
                    sizeof(*s->paths), "names of inputs", err));
    cJSON_ArrayForEach(input, inputs)
        GPT_TRY(gpt_json_string(input, "path", &s->paths[s->n_paths++], prefix,
                                err));
    return GPT_OK;
}

/* The size is known exactly, so that a file of another set, or a torn one, is
 * refused before a record is read. */
int gpt_sources_check(struct gpt_in *in, int64_t n_documents,
                      struct gpt_err *err)
{
    const int64_t rest = gpt_in_size(in) - GPT_SOURCES_HEADER;
    char magic[GPT_SOURCES_HEADER] = {0};

    /* a shorter file has no magic, and is refused for that */
    if (rest >= 0)
        GPT_TRY(gpt_in_read(in, magic, 0, sizeof(magic), err));
    if (memcmp(magic, GPT_SOURCES_MAGIC, sizeof(magic)) != 0)
        return gpt_fail(err, GPT_EDATA, "%s: is no file of document sources: "
                        "it does not begin with " GPT_SOURCES_MAGIC,
                        gpt_in_path(in));
    if (rest == n_documents * GPT_SOURCE_BYTES)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "%s: it has %lld bytes of records, but "
                    "%lld documents need %lld", gpt_in_path(in),
                    (long long)rest,
                    (long long)n_documents,
                    (long long)(n_documents * GPT_SOURCE_BYTES));
}

/* The mapping ends with s->in. */
static int map_records(struct gpt_sources *s, const char *prefix,
                       struct gpt_err *err)
{
    struct gpt_buf path = {0};

    if (gpt_buf_printf(&path, "%s.sources", prefix) != GPT_OK)
        return gpt_no_memory(err, "a file name");
    int status = gpt_in_open(&s->in, path.data, err);
    gpt_buf_free(&path);
    GPT_TRY(status);
    /* before the mapping: records are looked up without further checks */
    GPT_TRY(gpt_sources_check(s->in, s->n, err));
    return gpt_in_map(s->in, &s->records, err);
}

int gpt_sources_open(struct gpt_sources **sources, const char *prefix,
                     int64_t n_documents, struct gpt_err *err)
{
    struct gpt_sources *s;

    GPT_TRY(gpt_new(&s, 1, sizeof(*s), "sources", err));
    s->n = n_documents;
    int status;
    GPT_TRY_GOTO(status, map_records(s, prefix, err), fail);
    GPT_TRY_GOTO(status, read_paths(s, prefix, err), fail);
    *sources = s;
    return GPT_OK;
fail:
    gpt_sources_close(s);
    return status;
}

void gpt_sources_close(struct gpt_sources *s)
{
    if (!s)
        return;
    gpt_in_close(s->in);
    cJSON_Delete(s->root);
    gpt_free(s->paths);
    gpt_free(s);
}

int gpt_sources_get(const struct gpt_sources *s, int64_t document,
                    struct gpt_source_record *source, const char **path,
                    struct gpt_err *err)
{
    assert(document >= 0 && document < s->n);
    const uint8_t *record =
        s->records + GPT_SOURCES_HEADER + GPT_SOURCE_BYTES * document;

    source->input = gpt_get_u32(record);
    source->line = gpt_get_u32(record + 4);
    source->offset = gpt_get_u64(record + 8);
    /* A hostile file may name any input. */
    if (source->input >= s->n_paths)
        return gpt_fail(err, GPT_EDATA, "%s: document %lld comes from input "
                        "number %u, must be below %lld", gpt_in_path(s->in),
                        (long long)document, source->input,
                        (long long)s->n_paths);
    *path = s->paths[source->input];
    return GPT_OK;
}
