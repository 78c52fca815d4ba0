/* Moving elements from files into memory: tiles, which fill.c asks move.c for,
 * and boxes, which move.c hands to move_box.c. */
#ifndef GPT_CHECKPOINT_MOVE_INTERNAL_H
#define GPT_CHECKPOINT_MOVE_INTERNAL_H

#include "checkpoint/plan.h"

enum {
    GPT_BOX_WINDOW = 1 << 20,  /* of a file, read at once */
    GPT_BOX_SCRATCH = 1 << 20, /* bytes of each of a box's two buffers */
};

/* Bytes of a file from the first element of n dimensions to the end of the last
 * one; strides and size in bytes. */
static inline int64_t gpt_span_of(const int64_t *shape, const int64_t *stride,
                                  int n, int64_t size)
{
    for (int d = 0; d < n; d++)
        size += (shape[d] - 1) * stride[d];
    return size;
}

/* One box: shape and strides in bytes, outermost dimension first. */
struct gpt_box {
    struct gpt_in *in;
    const struct gpt_packed *packed; /* as in struct gpt_file_box */
    const struct gpt_merging *merge;   /* the same */
    struct gpt_merge_room *room_to_merge;
    int64_t shape[GPT_TENSOR_DIMS], from[GPT_TENSOR_DIMS], to[GPT_TENSOR_DIMS];
    int64_t offset;
    uint8_t *dst;
    enum gpt_dtype src_type, dst_type;
    int64_t src_size, dst_size;
    uint8_t *raw, *cast; /* scratch, `room` bytes each */
    int64_t room;
    int64_t span; /* most bytes of a file, from the first to the last of a box,
                   * that are looked at; 0: it is read */
    bool near;    /* this one is looked at */
    uint8_t *window; /* NULL: not to be used */
    const struct gpt_in *window_in; /* that it holds a part of, */
    const struct gpt_packed *window_packed; /* unpacked from this, or NULL, */
    const struct gpt_merging *window_merge; /* and merged by this, or NULL */
    int64_t window_at, window_bytes;
};

/* Copies, converts or transposes it. Changes the box; its scratch stays for the
 * next one. in NULL: zeros. */
int gpt_box_move(struct gpt_box *b, struct gpt_err *err) GPT_MUST_USE;
/* True when rows are tight in the source and columns are not. */
bool gpt_box_transposed(const struct gpt_box *b);
/* The source of a transposition as the kernel keeps it, at element 0 of the
 * box's last two dimensions from `offset` on; NULL: it is to be read. */
const uint8_t *gpt_box_look(const struct gpt_box *b, int64_t offset);
/* True when it is one stretch of the source. Changes the box. */
bool gpt_box_is_run(struct gpt_box *b);
void gpt_box_free(struct gpt_box *b); /* its scratch; zero is fine */

/* A box of a tensor in tiles, each of which is a stretch of the box's bytes. */
struct gpt_tiling {
    const struct gpt_tensor *t;
    enum gpt_dtype dtype; /* of the tiles */
    int64_t n;            /* tiles */
    int64_t most;         /* bytes of the largest */

    /* private: the box with N dimensions, its pitch in bytes, and the dimension
     * that is cut into `each` pieces of `step` bytes; `ends`: where the file
     * has multiples of it, the box being `at` bytes behind one */
    int64_t begin[GPT_TENSOR_DIMS], shape[GPT_TENSOR_DIMS];
    int64_t pitch[GPT_TENSOR_DIMS], step, each, at, span;
    bool ends;
    int d;
};
struct gpt_tile_place {
    int64_t span;  /* as in struct gpt_box, of files that are shown
                    * (gpt_in_look_begin()) */
    int64_t at;    /* where the box begins in its file */
    int64_t block; /* of that file (gpt_out_block()); 0: the tiles are not as
                    * they will be in it */
};
/* As gpt_tensor_gather() checks the box. */
int gpt_tiling_make(struct gpt_tiling *g, const struct gpt_tensor *t,
                    const int64_t *begin, const int64_t *shape,
                    enum gpt_dtype dtype, struct gpt_tile_place place,
                    struct gpt_err *err) GPT_MUST_USE;
/* Where tile i begins in the box, bytes, and how many it has: 0 is possible. */
void gpt_tiling_place(const struct gpt_tiling *g, int64_t i, int64_t *at,
                      int64_t *bytes);
/* Tile i into dst, with one thread. scratch is zero at first, and freed by
 * gpt_box_free(). */
int gpt_tiling_gather(const struct gpt_tiling *g, int64_t i,
                      struct gpt_box *scratch, void *dst,
                      struct gpt_err *err) GPT_MUST_USE;
/* Sums what tile i reads of files whose sums are kept (gpt_in_keep_sums()): it
 * is then near when the tile is made. */
int gpt_tiling_sum(const struct gpt_tiling *g, int64_t i,
                   struct gpt_err *err) GPT_MUST_USE;
/* True when tile i is bytes of a file as they are there, in one stretch. */
bool gpt_tiling_run(const struct gpt_tiling *g, int64_t i, struct gpt_in **in,
                    int64_t *offset);

/* Looks at the files of a tensor that is about to be moved, until it was. */
void gpt_tensor_look_begin(const struct gpt_tensor *t);
void gpt_tensor_look_drop(const struct gpt_tensor *t);

#endif
