/* What a decompressor implements for input.h. A new format is a new row in
 * input.c's table and a file like input_xz.c. A decoder's `read` takes bytes
 * from raw[pos..len), refills that when it is empty, and gives at least one
 * byte or the end. After an error of the data it first hands out what came
 * before. */
#ifndef GPT_TEXT_INPUT_DECODER_H
#define GPT_TEXT_INPUT_DECODER_H

#include "text/input.h"

#include <stdatomic.h>

struct gpt_inflater {
    const char *name;
    const char *magic; /* the bytes that its files begin with */
    size_t magic_len;
    uint8_t loose; /* bits of the first byte that may differ */
    /* the library that this program was built without, which leaves `read`
     * NULL. NULL, and no `read`: the format is recognised, but never
     * supported */
    const char *library;
    /* NULL: nothing to prepare */
    int (*open)(struct gpt_input *in, struct gpt_err *err);
    int (*read)(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                struct gpt_err *err);
    void (*close)(struct gpt_input *in);
};

enum { GPT_INPUT_RAW = 1 << 18 }; /* bytes of a read from the file */

struct gpt_input {
    char *path;
    const char *name;
    int fd;
    int64_t begin, size; /* of the part that is read */
    int64_t limit;       /* bytes that may be read */
    int64_t threads;
    const struct gpt_inflater *decoder;
    void *state; /* of the decoder */
    uint8_t *raw; /* raw[pos..len) is read from the file, not yet used */
    size_t pos, len;
    bool at_end; /* of the file */
    bool regular;
    atomic_bool cancelled;
    atomic_llong consumed; /* bytes of the part */
    struct gpt_xxh64 digest; /* of the raw bytes, unless plain */
};

/* Refills the raw buffer, which is empty; it stays empty at the end. */
int gpt_input_fill(struct gpt_input *in, struct gpt_err *err) GPT_MUST_USE;

/* The offset in the file of the first byte not yet used, for messages. */
int64_t gpt_input_offset(const struct gpt_input *in);

extern const struct gpt_inflater gpt_inflater_xz, gpt_inflater_gzip,
    gpt_inflater_zstd, gpt_inflater_zstd_skip;

#endif
