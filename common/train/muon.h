/* Muon (Jordan 2024): momentum whose matrix is made orthogonal by a few steps
 * of a Newton-Schulz iteration. For matrices of layers; the optimizer updates
 * all else by AdamW. Options and defaults are Megatron-LM's.
 *
 * A matrix X that tensor parallel ranks share is not gathered. Each iteration
 * needs the product of X with itself over the dimension that is cut, which is a
 * sum over ranks: so a rank keeps its part, and the ranks sum a square matrix
 * of the other dimension. Data parallel ranks with shards gather the momentum
 * of a layer, and each makes those matrices orthogonal that its shard is a part
 * of. */
#ifndef GPT_TRAIN_MUON_H
#define GPT_TRAIN_MUON_H

#include "backend.h"
#include "model/params.h"
#include "parallel/comm.h"

/* The factor of an orthogonal update of a matrix (out, in). */
enum gpt_muon_scale {
    GPT_MUON_SPECTRAL,      /* sqrt(max(out, in)): learning rates as AdamW's */
    GPT_MUON_UNIT_RMS_NORM, /* sqrt(out / in) */
    GPT_MUON_SHAPE_SCALING, /* sqrt(max(1, out / in)) */
};
extern const char *const gpt_muon_scales[]; /* Megatron's names, then NULL */

/* Coefficients of the iteration. */
enum gpt_muon_coefficients { GPT_MUON_SIMPLE, GPT_MUON_QUINTIC,
                             GPT_MUON_POLAR_EXPRESS };
extern const char *const gpt_muon_coefficient_types[];

struct gpt_muon_options {
    bool nesterov;
    bool split_qkv; /* queries, keys and values are matrices of their own */
    bool blockwise; /* a tensor parallel rank's part is a matrix of its own */
    enum gpt_muon_scale scale;
    enum gpt_muon_coefficients coefficients;
    int64_t steps;      /* of the iteration */
    double extra_scale; /* times the factor above */
};

/* True for what Muon updates: the matrices of layers. */
bool gpt_muon_updates(const struct gpt_param *p);

/* Bytes of its workspace on the device. */
int64_t gpt_muon_memory(const struct gpt_muon_options *options,
                        const struct gpt_flat *flat);

/* The longest vectors that ranks sum and gather in a call, in elements of
 * float: over tensor parallel ranks, over data parallel ranks (what one of them
 * gives). 0: there is no such call. */
int64_t gpt_muon_sum(const struct gpt_muon_options *options,
                     const struct gpt_flat *flat);
int64_t gpt_muon_gather(const struct gpt_flat *flat);
/* Elements that tensor parallel ranks sum in all calls of a step. */
double gpt_muon_sums(const struct gpt_muon_options *options,
                     const struct gpt_flat *flat);

struct gpt_muon;

/* tp, dp: NULL where a rank is alone. */
int gpt_muon_open(struct gpt_muon **muon, struct gpt_backend *be,
                  const struct gpt_muon_options *options,
                  const struct gpt_flat *flat, struct gpt_comm *tp,
                  struct gpt_comm *dp, struct gpt_err *err) GPT_MUST_USE;
void gpt_muon_close(struct gpt_muon *muon); /* NULL is fine */

/* The place of what ranks make orthogonal together: for this rank's elements
 * [begin, ...) of a bucket, of the flat buffer. Data parallel ranks with shards
 * each fill their own, then make all buckets whole of which gpt_muon_gathers()
 * is true, together and in order. Without shards the place serves one matrix at
 * a time. */
float *gpt_muon_place(struct gpt_muon *muon, int64_t bucket, int64_t begin);
bool gpt_muon_gathers(const struct gpt_flat *flat, int64_t bucket);
void gpt_muon_gather_bucket(struct gpt_muon *muon, struct gpt_queue *q,
                            int64_t bucket);

/* Makes the matrix of a slice orthogonal, where gpt_muon_place() has it: whole
 * here. Returns the slice's elements, which stay until the next call, times
 * the factor of its shape. */
const float *gpt_muon_orthogonal(struct gpt_muon *muon, struct gpt_queue *q,
                                 const struct gpt_slice *slice);

#endif
