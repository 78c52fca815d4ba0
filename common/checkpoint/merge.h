/* Elements that are made of those of a file as they are read: the product of
 * two narrow matrices, scaled, is added to a matrix there. So an adapter (LoRA)
 * becomes part of the weights of its model, whatever becomes of these: a merged
 * piece is a piece like any other, and is cut, permuted and transposed without
 * being looked at. Start at gpt_merge_pieces(); adapter/adapter.h says where
 * products come from.
 *
 * Source: Hu et al., LoRA, arXiv 2106.09685, section 4.1; Liu et al., DoRA,
 * arXiv 2402.09353, equation 5. */
#ifndef GPT_CHECKPOINT_MERGE_H
#define GPT_CHECKPOINT_MERGE_H

#include "base/memory.h"
#include "checkpoint/plan.h"

#include <pthread.h>

enum {
    GPT_MERGE_RANK = 4096,       /* the most */
    GPT_MERGE_SCRATCH = 9 << 18, /* bytes of a thread that merges, beside those
                                  * of its tile */
};

/* left (R, rank) x right (rank, C), times scale, for a matrix W (R, C):
 *     W + scale left right
 * Each element of left right is summed in double, in the order of the rank, and
 * rounded to float; so are the product with the scale and the sum. The result
 * is rounded to the type of W, once. The bits do not depend on which elements
 * are read together, or by how many threads. */
struct gpt_product {
    const char *what;              /* names the product in messages */
    struct gpt_tensor left, right; /* right without pieces: ones, and rank 1 */
    struct gpt_tensor left_turned, right_turned;
    float scale;
    bool rounds; /* the product is rounded to the type of W before the sum */
    /* Not without pieces: length of each output after the merge, float. Outputs
     * are rows of W, or columns. */
    struct gpt_tensor lengths;
    bool out_rows;

    /* private: W, and what its outputs are multiplied by, found when the first
     * element is read */
    struct gpt_tensor base;
    int64_t rows, rows_end; /* that base has: of a tensor of two parameters,
                             * those of one */
    pthread_mutex_t lock;
    float *factors;
};

/* Makes *to, with pieces of its own, the transpose of `from`. */
int gpt_tensor_turn(struct gpt_tensor *to, const struct gpt_tensor *from,
                    struct gpt_err *err) GPT_MUST_USE;

/* Completes a product whose left, right, lengths and scalars are set, and which
 * owns them, for tensor `w`, whose pieces are copied where they are needed.
 * After a failure gpt_product_free() is due, too. */
int gpt_product_make(struct gpt_product *p, const struct gpt_tensor *w,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_product_free(struct gpt_product *p); /* zero is fine */

/* Lets every piece of `w`, a vector or a matrix, show its sum with the product,
 * which stays borrowed. GPT_EDATA when elements lie in a file so that neither
 * rows nor columns are together. */
int gpt_merge_pieces(struct gpt_tensor *w, struct gpt_product *p,
                     struct gpt_arena *arena, struct gpt_err *err) GPT_MUST_USE;

/* Lets `w`, whose elements are of types that are not the model's, show them
 * rounded to that type, as they are when they are loaded into the model. What
 * is added later is added to these. */
int gpt_merge_round(struct gpt_tensor *w, enum gpt_dtype type,
                    struct gpt_arena *arena, struct gpt_err *err) GPT_MUST_USE;

/* ---- for move.c ---- */

/* A stretch of a file of which all is a rectangle of W, or lies between its
 * lines. A line is a row of W; of a file that has W transposed, a column. */
struct gpt_merge_room;
struct gpt_merging {
    /* Merged elements [offset, offset + bytes) of the stretch. GPT_EDATA when
     * one is not finite where the file's is. */
    int (*read)(const struct gpt_merging *m, struct gpt_in *in, void *dst,
                int64_t offset, size_t bytes, struct gpt_merge_room **room,
                struct gpt_err *err);
    struct gpt_product *product; /* NULL: elements are rounded alone */
    enum gpt_dtype dtype;
    enum gpt_dtype kept;             /* each element is one of this type */
    const struct gpt_packed *packed; /* what the file holds, or NULL */
    const struct gpt_merging *under; /* what is read in place of the file */
    int64_t begin, end; /* bytes of the file, or of floats that are packed */
    int64_t pitch;      /* bytes from a line to the next */
    bool columns;
    int64_t line, lines; /* the first in W, and how many */
    int64_t at, n;       /* elements of each, the same */
};

/* Memory of a thread; NULL at first. */
struct gpt_merge_room {
    void (*free)(struct gpt_merge_room *room);
};

#endif
