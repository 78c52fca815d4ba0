/* The checkpoint plan: a tensor is a list of pieces, boxes of it that lie
 * somewhere in files with some strides. Every format is a front end that makes
 * such tensors; a change of layout, order, padding or direction is a view,
 * which makes pieces of pieces and moves nothing. Bytes move once, a few
 * megabytes at a time.
 *
 * Read gpt_tensor_view() for how conversions are written, gpt_fill() of
 * checkpoint/fill.h for how they are carried out. */
#ifndef GPT_CHECKPOINT_PLAN_H
#define GPT_CHECKPOINT_PLAN_H

#include "base/dtype.h"
#include "base/io.h"
#include "checkpoint/packing.h"

struct gpt_merging;
enum {
    GPT_TENSOR_DIMS = 4,
    GPT_TENSOR_PIECES = 65536, /* most pieces of one tensor */
    GPT_TILE_BYTES = 8 << 20,  /* of output that a thread handles at once */
    GPT_TILE_SCRATCH = 3 << 20, /* and beside it */
};

/* Elements box[begin, begin + shape) of a tensor: element (i, j, ...) of the
 * box lies at byte offset + i * stride[0] + j * stride[1] + ... of `in`. */
struct gpt_file_box {
    int64_t begin[GPT_TENSOR_DIMS], shape[GPT_TENSOR_DIMS];
    struct gpt_in *in; /* borrowed; NULL: zeros */
    int64_t offset;
    int64_t stride[GPT_TENSOR_DIMS]; /* bytes; 0 repeats */
    enum gpt_dtype dtype;
    /* NULL, or what `in` holds instead of plain elements: then dtype is
     * GPT_F32, and offset and strides are those in the stretch of floats. */
    const struct gpt_packed *packed;
    /* NULL, or what is added to the elements as they are read (merge.h); it
     * knows how they are packed, and `packed` is NULL. */
    const struct gpt_merging *merge;
};

struct gpt_tensor {
    const char *name; /* borrowed */
    enum gpt_dtype dtype;
    int ndim;
    int64_t shape[GPT_TENSOR_DIMS];
    struct gpt_file_box *pieces;
    size_t n, cap;
};

/* A tensor without pieces yet. */
struct gpt_tensor gpt_tensor_make(const char *name, enum gpt_dtype dtype,
                                  int ndim, const int64_t *shape);
void gpt_tensor_free(struct gpt_tensor *t);

/* Appends a copy of a piece, which is checked with the others later
 * (gpt_tensor_check()). GPT_EDATA when there are GPT_TENSOR_PIECES. */
int gpt_tensor_add(struct gpt_tensor *t, const struct gpt_file_box *p,
                   struct gpt_err *err) GPT_MUST_USE;
/* Before pieces of a type are added: the tensor gets the smallest type that
 * holds every value of those that it has and of these. */
void gpt_tensor_widen(struct gpt_tensor *t, enum gpt_dtype of_pieces);
/* The box at `begin` of `shape`, which lies row-major and tight at byte
 * `offset` of `in`. */
int gpt_tensor_add_rows(struct gpt_tensor *t, struct gpt_in *in,
                        int64_t offset, enum gpt_dtype dtype,
                        const int64_t *begin, const int64_t *shape,
                        struct gpt_err *err) GPT_MUST_USE;

/* Elements [from, end) of a box, in row-major order, which lie tight at its
 * offset: of a stretch that other things cut. Its strides are not read. At most
 * two dimensions. */
int gpt_tensor_add_flat(struct gpt_tensor *t, const struct gpt_file_box *box,
                        int64_t from, int64_t end,
                        struct gpt_err *err) GPT_MUST_USE;
/* The same of the whole tensor: its elements [from, end). */
int gpt_tensor_add_span(struct gpt_tensor *t, struct gpt_in *in, int64_t offset,
                        enum gpt_dtype dtype, int64_t from, int64_t end,
                        struct gpt_err *err) GPT_MUST_USE;

/* The pieces lie inside the tensor, do not overlap and cover it: else
 * GPT_EDATA; also when more than 1024 have a row in common. */
int gpt_tensor_check(const struct gpt_tensor *t, const char *what,
                     struct gpt_err *err) GPT_MUST_USE;

/* One rule of a view: the box at to[] of `shape` shows source elements from
 * from[] on; dimension d follows source dimension perm[d], or stays at from[]
 * when hold[d] (so that a row is repeated). */
struct gpt_map {
    int64_t to[GPT_TENSOR_DIMS], shape[GPT_TENSOR_DIMS];
    int64_t from[GPT_TENSOR_DIMS]; /* indexed by source dimension */
    int perm[GPT_TENSOR_DIMS];
    bool hold[GPT_TENSOR_DIMS];
};

/* Appends to `out` (made by gpt_tensor_make(), as many dimensions as `in`)
 * what the rules show of `in`. */
int gpt_tensor_view(struct gpt_tensor *out, const struct gpt_tensor *in,
                    const struct gpt_map *maps, int64_t n,
                    struct gpt_err *err) GPT_MUST_USE;

/* Appends to `out` the rows of `in` that both have, and for rows that only
 * `out` has the last row of `in` (as Megatron's converters do when they grow a
 * vocabulary table) or zeros. */
int gpt_tensor_resize(struct gpt_tensor *out, const struct gpt_tensor *in,
                      bool repeat_last, struct gpt_err *err) GPT_MUST_USE;

/* Elements [begin, begin + shape) as `dtype` into dst, row-major and tight;
 * several threads when it is large. GPT_EDATA when the box leaves the tensor,
 * the pieces do not cover it, or the types do not convert. */
int gpt_tensor_gather(const struct gpt_tensor *t, const int64_t *begin,
                      const int64_t *shape, enum gpt_dtype dtype, void *dst,
                      struct gpt_err *err) GPT_MUST_USE;

/* Hears the bytes of tensors that were written so far. */
typedef void gpt_bytes_done(void *context, int64_t bytes);

#endif
