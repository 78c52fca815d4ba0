/* Fuzz target: a file for the decompressors. Every read gives bytes, the end,
 * or GPT_EDATA with a message, and after a failure the same failure. */
#include "text/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_OUT = 1 << 22 }; /* a few bytes may become any number */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_failure(int status, const struct gpt_err *err)
{
    if (status != GPT_EDATA || !err->text[0])
        abort();
}

static void read_all(struct gpt_input *in, size_t cap)
{
    static char out[4096];
    struct gpt_err err = {0};
    size_t got = 1, total = 0;
    int status = GPT_OK;

    while (status == GPT_OK && got && total < MAX_OUT) {
        status = gpt_input_read(in, out, cap, &got, &err);
        total += status == GPT_OK ? got : 0;
    }
    if (status == GPT_OK && got)
        return;
    if (status != GPT_OK)
        check_failure(status, &err);
    if (gpt_input_read(in, out, cap, &got, &err) != status)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t caps[] = {1, 4096};
    struct gpt_err err = {0};
    char path[64];
    int fd = memfd_create("input", 0);

    if (fd < 0)
        return 0;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (write(fd, data, size) == (ssize_t)size && access(path, R_OK) == 0)
        for (int i = 0; i < 2; i++) {
            struct gpt_input *in = NULL;
            int status = gpt_input_open(&in, path, 1, &err);

            if (status == GPT_OK)
                read_all(in, caps[i]);
            else
                check_failure(status, &err);
            gpt_input_close(in);
        }
    close(fd);
    return 0;
}
