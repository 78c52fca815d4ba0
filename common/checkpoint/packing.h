/* Packed elements: blocks of whole numbers with a scale, as GGUF files hold
 * them. Unpacking gives float; packing rounds as llama.cpp's reference code
 * does, byte for byte. Source: ggml, ggml-quants.c, the functions *_ref. */
#ifndef GPT_CHECKPOINT_PACKING_H
#define GPT_CHECKPOINT_PACKING_H

#include "base/io.h"

enum {
    GPT_PACKING_MOST = 256, /* elements of a block */
    GPT_PACKED_BYTES = 210, /* of one */
};

struct gpt_packing {
    const char *name;   /* "q8_0" */
    uint32_t ggml_type; /* by which GGUF files name it */
    uint32_t file_type; /* general.file_type of a file of them */
    int64_t elements;   /* of a block; consecutive in the last dimension */
    int64_t bytes;      /* of a block */
    void (*unpack)(float *to, const uint8_t *block);
    void (*pack)(uint8_t *block, const float *from); /* NULL: read only */
    const char *how; /* for a sentence: "after adding 1"; NULL: the name says
                      * it */
};

/* Ended by a row without a name. */
extern const struct gpt_packing gpt_packings[];
/* NULL when there is none. */
const struct gpt_packing *gpt_packing_of_type(uint32_t ggml_type);
const struct gpt_packing *gpt_packing_named(const char *name);

/* Blocks in a file, as a stretch of `elements` floats; or what is computed of
 * several stored tensors. */
struct gpt_scaled;
struct gpt_packed {
    const struct gpt_packing *packing; /* NULL: `scaled` */
    int64_t begin; /* of the first block, in the file */
    int64_t elements;
    const struct gpt_scaled *scaled;
};

/* Floats [offset, offset + bytes) of the stretch, both in bytes of float and
 * multiples of 4. GPT_EDATA when they leave it. */
int gpt_packed_read(const struct gpt_packed *p, struct gpt_in *in, void *dst,
                    int64_t offset, size_t bytes,
                    struct gpt_err *err) GPT_MUST_USE;
/* The same of lines of so many bytes, which begin `pitch` bytes apart: one
 * after the other into dst. */
int gpt_packed_read_lines(const struct gpt_packed *p, struct gpt_in *in,
                          void *dst, int64_t offset, int64_t pitch,
                          int64_t lines, size_t bytes,
                          struct gpt_err *err) GPT_MUST_USE;

/* n elements, a multiple of the block's, as they are after packing and
 * unpacking. In place. */
void gpt_packing_round(const struct gpt_packing *p, float *x, int64_t n);

#endif
