/* Maps the files of data sets that may be damaged; see untrusted.h. */
#include "cmd/dataset/untrusted.h"

#include "base/memory.h"
#include "cmd/dataset/write_set.h"

#include <string.h>

static int open_file(struct gpt_in **in, const char *prefix,
                     const char *suffix, struct gpt_err *err)
{
    char *path;

    GPT_TRY(gpt_join_name(&path, prefix, suffix, err));
    int status = gpt_in_open(in, path, err);
    gpt_free(path);
    return status;
}

/* A set that was opened in part is closed like any other. */
int gpt_untrusted_open(struct gpt_untrusted *set, const char *prefix,
                       struct gpt_err *err)
{
    memset(set, 0, sizeof(*set));
    GPT_TRY(open_file(&set->idx_file, prefix, ".idx", err));
    GPT_TRY(open_file(&set->bin_file, prefix, ".bin", err));
    /* As in data/indexed.c: an .idx that is still there has its own .bin. */
    if (!gpt_in_is_current(set->idx_file))
        return gpt_fail(err, GPT_EIO, "%s: another program is replacing it",
                        prefix);
    set->image_bytes = gpt_in_size(set->idx_file);
    set->bin_bytes = gpt_in_size(set->bin_file);
    GPT_TRY(gpt_in_map(set->idx_file, &set->image, err));
    GPT_TRY(gpt_in_map(set->bin_file, &set->bytes, err));
    gpt_in_watch(set->bin_file);
    return GPT_OK;
}

void gpt_untrusted_close(struct gpt_untrusted *set)
{
    gpt_in_close(set->idx_file);
    gpt_in_close(set->bin_file);
    memset(set, 0, sizeof(*set));
}

/* Tokens are copied before they are read, as none in a .bin is aligned by more
 * than chance. */
int64_t gpt_token_at(const uint8_t *bytes, enum gpt_dtype dtype, int64_t i)
{
    switch (dtype) {
#define AT(name, type)                                        \
    case name: {                                              \
        type v;                                               \
        memcpy(&v, bytes + (size_t)i * sizeof(v), sizeof(v)); \
        return v;                                             \
    }
        AT(GPT_U8, uint8_t)
        AT(GPT_I8, int8_t)
        AT(GPT_I16, int16_t)
        AT(GPT_U16, uint16_t)
        AT(GPT_I32, int32_t)
        AT(GPT_I64, int64_t)
#undef AT
    default:
        return -1; /* gpt_idx_dtype() gives no other type */
    }
}
