/* Small files of a checkpoint; see small_file.h. */
#include "checkpoint/small_file.h"

int gpt_small_file_write(const char *dir, const char *name, unsigned flags,
                         const void *data, size_t len, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, name, err));
    return gpt_write_file(path, flags, data, len, err);
}
