/* Fuzz target: a checkpoint of DeepSpeed. The same bytes are the file of the
 * model and that of the one rank, since a seed has the keys of both. What is
 * accepted is covered by its parts, and the last element of each tensor can be
 * read. */
#include "checkpoint/deepspeed.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char top[64];
static const char *const names[] = {
    "mp_rank_00_model_states.pt",
    "zero_pp_rank_0_mp_rank_00_optim_states.pt",
    "config.json",
};

static void remove_files(void)
{
    char path[160];

    for (size_t i = 0; i < GPT_COUNT(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", top, names[i]);
        unlink(path);
    }
    rmdir(top);
}

static void write_files(const uint8_t *data, size_t size)
{
    char path[160];

    if (!*top) {
        snprintf(top, sizeof(top), "/tmp/fuzz-deepspeed.%d", (int)getpid());
        if (mkdir(top, 0700) != 0)
            exit(1);
        atexit(remove_files);
    }
    for (size_t i = 0; i < GPT_COUNT(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", top, names[i]);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || (size && write(fd, data, size) < 0))
            exit(1);
        close(fd);
    }
}

static void check_tensor(const struct gpt_tensor *t, struct gpt_err *err)
{
    int64_t begin[GPT_TENSOR_DIMS] = {0}, shape[GPT_TENSOR_DIMS] = {1, 1, 1, 1};
    uint8_t element[8];

    for (int d = 0; d < t->ndim; d++)
        if ((begin[d] = t->shape[d] - 1) < 0)
            return;
    if (t->n &&
        gpt_tensor_gather(t, begin, shape, t->dtype, element, err) != GPT_OK)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_deepspeed d = {0};
    struct gpt_err err = {0};

    write_files(data, size);
    if (!gpt_deepspeed_find(&d, top))
        abort();
    int status = gpt_deepspeed_open(&d, true, &err);
    if (status != GPT_OK && (status != GPT_EDATA || !err.text[0]))
        abort();
    for (int64_t i = 0; status == GPT_OK && i < d.n; i++)
        for (int k = 0; k < GPT_N_ADAM_KINDS; k++)
            check_tensor(&d.params[i].kinds[k], &err);
    gpt_deepspeed_close(&d);
    return 0;
}
