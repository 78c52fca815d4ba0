/* Writing files of a checkpoint; see output.h. */
#include "checkpoint/output.h"

#include "tokenizer/gguf_tokens.h"

/* A directory and a name, as front ends have them. */
int gpt_small_file_write(const char *dir, const char *name, unsigned flags,
                         const void *data, size_t len, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, name, err));
    return gpt_write_file(path, flags, data, len, err);
}

/* Weights are no small file: a GGUF file can only mean the vocabulary in it. */
int gpt_attachment_read(const struct gpt_attachment *a, char **text,
                        size_t *len, struct gpt_err *err)
{
    return gpt_gguf_read(a->name, text, len, a->path, GPT_FILE_LIMIT, err);
}
