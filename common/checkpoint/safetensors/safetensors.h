/* Safetensors files: u64 header length | JSON header | bytes. Reading starts
 * at gpt_safetensors_open(), writing at gpt_safetensors_create(). Source of
 * the format: huggingface/safetensors, README "Format" and tensor.rs.
 *
 * The reader believes nothing: the header is scanned without building a tree
 * (memory is a small multiple of its text), and the tensors must tile the data
 * exactly, so that a truncated file, trailing bytes, overlaps, holes, sizes
 * that overflow and doubled names are all GPT_EDATA with a byte offset. */
#ifndef GPT_CHECKPOINT_SAFETENSORS_H
#define GPT_CHECKPOINT_SAFETENSORS_H

#include "base/dtype.h"
#include "base/io.h"
#include "base/memory.h"

enum {
    GPT_SAFETENSORS_DIMS = 8,
    GPT_SAFETENSORS_NAME = 512,            /* longest name, bytes */
    GPT_SAFETENSORS_HEADER_MAX = 100000000, /* the format's own limit */
};

struct gpt_safetensor {
    const char *name;
    enum gpt_dtype dtype;
    int ndim; /* 0: a scalar */
    int64_t shape[GPT_SAFETENSORS_DIMS];
    int64_t begin, end; /* bytes in the file; not read by the writer */
    /* Bytes from an element to the next in each dimension, in files of other
     * formats; NULL: row-major and tight, as safetensors always are. */
    const int64_t *strides;
};

struct gpt_part;
struct gpt_fill;
struct gpt_safetensors_note {
    const char *key, *value;
};

struct gpt_safetensors {
    struct gpt_safetensor *tensors; /* in the order of the file */
    int64_t n;
    struct gpt_safetensors_note *notes; /* __metadata__ */
    int64_t n_notes;
    int64_t data_start; /* offset of the first byte after the header */
    struct gpt_in *in;  /* NULL after gpt_safetensors_parse() */
    struct gpt_safetensor **by_name;
    struct gpt_arena arena;
};

/* Opens and checks the header; the data is read through ->in. */
int gpt_safetensors_open(struct gpt_safetensors *st, const char *path,
                         struct gpt_err *err) GPT_MUST_USE;
void gpt_safetensors_close(struct gpt_safetensors *st);

/* The parser alone: data[0..len) is the start of a file of `file_size` bytes,
 * at least its header when that lies within the file. `what` names the file.
 * Free with gpt_safetensors_close(). */
int gpt_safetensors_parse(struct gpt_safetensors *st, const void *data,
                          size_t len, int64_t file_size, const char *what,
                          struct gpt_err *err) GPT_MUST_USE;

/* NULL when there is none. */
const struct gpt_safetensor *
gpt_safetensors_find(const struct gpt_safetensors *st, const char *name);
const char *gpt_safetensors_note(const struct gpt_safetensors *st,
                                 const char *key);

/* ---- writing ---- */

/* The writer keeps the official order (element type descending, then name), so
 * that every tensor is aligned to its element, and pads the header with spaces
 * so that the data starts at a multiple of 4096: big matrices then mostly lie
 * on pages, which copying by reference and direct I/O need. "format": "pt" is
 * always among the notes, as readers of PyTorch files expect it. */
struct gpt_safetensors_writer;

/* Creates a file of what the list holds: tensors and notes alone are read of
 * it, and copied. flags: GPT_OUT_*. GPT_EDATA for a doubled name. */
int gpt_safetensors_create(struct gpt_safetensors_writer **w, const char *path,
                           unsigned flags, const struct gpt_safetensors *list,
                           struct gpt_err *err) GPT_MUST_USE;
/* Writes the data: parts[i] is that of list->tensors[i], in all but its place
 * in the file, which is filled in. name: as gpt_fill() has it. */
int gpt_safetensors_fill(struct gpt_safetensors_writer *w, struct gpt_fill *p,
                         const char *name, struct gpt_part *parts,
                         struct gpt_err *err) GPT_MUST_USE;
/* Publishes; frees w whatever the result. Size and CRC-32C of the whole file
 * when not NULL. */
int gpt_safetensors_commit(struct gpt_safetensors_writer *w, int64_t *size,
                           uint32_t *crc, struct gpt_err *err) GPT_MUST_USE;
void gpt_safetensors_abort(struct gpt_safetensors_writer *w);

/* Size of the file that the same list would make. */
int gpt_safetensors_size(const struct gpt_safetensors *list, int64_t *size,
                         struct gpt_err *err) GPT_MUST_USE;

/* Bytes of a tensor's data; false on overflow. */
bool gpt_safetensor_bytes(const struct gpt_safetensor *t, int64_t *bytes);

#endif
