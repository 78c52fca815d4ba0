/* Fuzz target: what lies beside a data set of two documents. Input is the JSON
 * of its origin, a NUL, and the records of its documents. */
#include "cmd/dataset/merge_provenance.h"
#include "data/document_sources.h"
#include "data/provenance.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_both(const char *prefix)
{
    struct gpt_sources *s = NULL;
    struct gpt_source_record record;
    struct gpt_err err = {0};
    const char *path;
    char brief[400];
    cJSON *root;

    const int status = gpt_provenance_read(&root, prefix, &err);
    fuzz_check(status, &err);
    if (status == GPT_OK && root)
        gpt_provenance_brief(brief, sizeof(brief), root);
    cJSON_Delete(root);
    if (gpt_sources_open(&s, prefix, 2, &err) != GPT_OK)
        return;
    for (int64_t i = 0; i < 2; i++)
        fuzz_check(gpt_sources_get(s, i, &record, &path, &err), &err);
    gpt_sources_close(s);
}

/* The set and itself. */
static void merge(const char *prefix)
{
    const char *const sets[] = {prefix, prefix};
    struct gpt_provenance_merge *m = NULL;
    struct gpt_out *files[2] = {NULL, NULL};
    struct gpt_err err = {0};
    char out[160];
    const struct gpt_dataset_options o = {.output_prefix = out};

    snprintf(out, sizeof(out), "%s/merged", fuzz_top);
    int status = gpt_provenance_merge_open(&m, &o, sets, 2, &err);
    fuzz_check(status, &err);
    if (status != GPT_OK)
        return;
    status = gpt_provenance_merge_write(m, files, &err);
    fuzz_check(status, &err);
    for (int i = 0; status == GPT_OK && i < 2; i++)
        gpt_out_abort(files[i]);
    gpt_provenance_merge_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"set.json", "set.sources"};
    char prefix[160];

    fuzz_cut(names, 2, data, size);
    snprintf(prefix, sizeof(prefix), "%s/set", fuzz_top);
    read_both(prefix);
    merge(prefix);
    return 0;
}
