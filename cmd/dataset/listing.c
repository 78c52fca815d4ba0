/* Tables and JSON about data sets; see listing.h. JSON objects are built with
 * cJSON, so that every name in them is escaped; an object that is not whole, as
 * memory was out, prints as NULL, which gpt_listing_add() reports. */
#include "cmd/dataset/listing.h"

#include "data/idx.h"

int gpt_listing_print(struct gpt_listing *l, struct gpt_out *out, int status,
                      struct gpt_err *err)
{
    int written = GPT_OK;

    /* The first failure is the one to report: *err is not overwritten. */
    if (l->text.len > 0)
        written = gpt_out_write(out, l->text.data, l->text.len,
                                status == GPT_OK ? err : NULL);
    gpt_buf_free(&l->text);
    return status == GPT_OK ? written : status;
}

int gpt_listing_check(int status, struct gpt_err *err)
{
    return status == GPT_OK
               ? GPT_OK
               : gpt_no_memory(err, "a table");
}

int gpt_listing_add(struct gpt_listing *l, cJSON *object, struct gpt_err *err)
{
    char *line = gpt_json_print(object, false);

    cJSON_Delete(object);
    int status = line ? gpt_buf_printf(&l->text, "%s\n", line) : GPT_EFAIL;
    cJSON_free(line);
    return gpt_listing_check(status, err);
}

void gpt_listing_put_int(cJSON *object, const char *name, int64_t v)
{
    cJSON_AddNumberToObject(object, name, (double)v);
}

int64_t gpt_listing_bin_bytes(const struct gpt_indexed *set)
{
    return gpt_indexed_n_tokens(set) *
           (int64_t)gpt_dtype_bytes(gpt_indexed_dtype(set));
}

int64_t gpt_listing_idx_bytes(const struct gpt_indexed *set)
{
    return gpt_idx_bytes(gpt_indexed_n_sequences(set),
                         gpt_indexed_n_documents(set));
}

/* A name may hold any bytes; a script reads them as the terminal shows them. */
void gpt_listing_put_counts(cJSON *o, const struct gpt_indexed *set)
{
    cJSON_AddStringToObject(o, "prefix", gpt_indexed_prefix(set));
    cJSON_AddStringToObject(o, "format", "MMIDIDX");
    gpt_listing_put_int(o, "version", 1);
    cJSON_AddStringToObject(o, "dtype", gpt_dtype_name(gpt_indexed_dtype(set)));
    gpt_listing_put_int(o, "documents", gpt_indexed_n_documents(set));
    gpt_listing_put_int(o, "sequences", gpt_indexed_n_sequences(set));
    gpt_listing_put_int(o, "tokens", gpt_indexed_n_tokens(set));
    gpt_listing_put_int(o, "bin_bytes", gpt_listing_bin_bytes(set));
    gpt_listing_put_int(o, "idx_bytes", gpt_listing_idx_bytes(set));
}
