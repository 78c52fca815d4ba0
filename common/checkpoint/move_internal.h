/* Moving one box of elements from a file into memory: what move.c, which cuts
 * tensors into boxes, hands to move_box.c. */
#ifndef GPT_CHECKPOINT_MOVE_INTERNAL_H
#define GPT_CHECKPOINT_MOVE_INTERNAL_H

#include "checkpoint/plan.h"

enum { GPT_BOX_WINDOW = 1 << 20 }; /* of a file, read at once */

/* One box: shape and strides in bytes, outermost dimension first. */
struct gpt_box {
    struct gpt_in *in;
    const struct gpt_packed *packed; /* as in struct gpt_file_box */
    int64_t shape[GPT_TENSOR_DIMS], from[GPT_TENSOR_DIMS], to[GPT_TENSOR_DIMS];
    int64_t offset;
    uint8_t *dst;
    enum gpt_dtype src_type, dst_type;
    int64_t src_size, dst_size;
    uint8_t *raw, *cast; /* scratch, `room` bytes each */
    int64_t room;
    uint8_t *window; /* NULL: not to be used */
    const struct gpt_in *window_in; /* that it holds a part of, */
    const struct gpt_packed *window_packed; /* unpacked from this, or NULL */
    int64_t window_at, window_bytes;
};

/* Copies, converts or transposes it. Changes the box; its scratch stays for the
 * next one. in NULL: zeros. */
int gpt_box_move(struct gpt_box *b, struct gpt_err *err) GPT_MUST_USE;
/* True when rows are tight in the source and columns are not. */
bool gpt_box_transposed(const struct gpt_box *b);

#endif
