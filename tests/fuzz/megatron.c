/* Fuzz target: the file of a rank in a classic Megatron checkpoint. Of one that
 * is accepted every tensor is covered by its parts, and the last element of
 * each can be read. Input with the first key of distrib_optim.pt is both that
 * file and the one of the rank. */
#include "checkpoint/megatron.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char top[64], file[128], shards[128];

static void remove_files(void)
{
    char dir[96];

    unlink(file);
    unlink(shards);
    snprintf(dir, sizeof(dir), "%s/mp_rank_00", top);
    rmdir(dir);
    rmdir(top);
}

static void make_directory(void)
{
    char dir[96];

    snprintf(top, sizeof(top), "/tmp/fuzz-megatron.%d", (int)getpid());
    snprintf(dir, sizeof(dir), "%s/mp_rank_00", top);
    snprintf(file, sizeof(file), "%s/%s", dir, GPT_MEGATRON_FILE);
    snprintf(shards, sizeof(shards), "%s/%s", dir, GPT_MEGATRON_SHARDS);
    if (mkdir(top, 0700) != 0 || mkdir(dir, 0700) != 0)
        exit(1);
    atexit(remove_files);
}

static void check_tensor(const struct gpt_tensor *t, struct gpt_err *err)
{
    int64_t begin[GPT_TENSOR_DIMS] = {0}, shape[GPT_TENSOR_DIMS] = {1, 1, 1, 1};
    uint8_t element[8];

    if (gpt_tensor_check(t, "fuzz", err) != GPT_OK)
        abort();
    for (int d = 0; d < t->ndim; d++)
        if ((begin[d] = t->shape[d] - 1) < 0)
            return;
    if (gpt_tensor_gather(t, begin, shape, t->dtype, element, err) != GPT_OK)
        abort();
}

static void write_file(const char *path, const uint8_t *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0 || (size && write(fd, data, size) < 0))
        exit(1);
    close(fd);
}

static bool contains(const uint8_t *data, size_t size, const char *text)
{
    const size_t n = strlen(text);

    for (size_t i = 0; i + n <= size; i++)
        if (memcmp(data + i, text, n) == 0)
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_megatron *m;
    struct gpt_err err = {0};

    if (!*top)
        make_directory();
    write_file(file, data, size);
    unlink(shards);
    if (contains(data, size, "buckets_coalesced"))
        write_file(shards, data, size);
    int status = gpt_megatron_open(&m, top, -1, true, &err);
    if (status != GPT_OK) {
        if ((status != GPT_EDATA && status != GPT_EUSAGE) || !err.text[0])
            abort();
        return 0;
    }
    for (int64_t i = 0; i < m->n; i++)
        check_tensor(&m->tensors[i], &err);
    cJSON *state = cJSON_Duplicate(m->state, true);
    if (!state)
        abort();
    cJSON_Delete(state);
    gpt_megatron_close(m);
    return 0;
}
