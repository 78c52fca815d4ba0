/* Fuzz target: what an interrupted conversion has left, the list of its parts
 * beside two files. Only files of the list stay, and only of this conversion;
 * a file elsewhere is never touched. */
#include "checkpoint/resume.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const files[] = {"a", "d/b"};
    static const uint8_t byte = 1;
    struct gpt_resume *r;
    struct gpt_err err = {0};
    char path[160], other[160];
    uint32_t crc;
    bool kept;

    fuzz_write(".out.resume", data, size);
    fuzz_write(".out.part/a", &byte, 1);
    fuzz_write(".out.part/d/b", &byte, 1);
    fuzz_write("other", &byte, 1);
    snprintf(path, sizeof(path), "%s/out", fuzz_top);
    snprintf(other, sizeof(other), "%s/other", fuzz_top);
    if (gpt_resume_open(&r, path, false, files, 2, &err) != GPT_OK)
        abort();
    (void)gpt_resume_find(r, 1, 2, &crc);
    if (gpt_resume_note(r, "a", 7, 1, 5, &err) != GPT_OK)
        abort();
    gpt_resume_close(r, false, &kept);
    if (access(other, R_OK) != 0)
        abort();
    return 0;
}
