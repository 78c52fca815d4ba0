/* How noisy gradients are: the squared norms of the gradient of one microbatch
 * and of the whole batch, of which the gradient noise scale is estimated
 * (McCandlish et al. 2018, appendix A.1). Both are of those matrices of layers
 * alone, of which every gradient is complete on one rank before ranks sum
 * anything; and the microbatch is the first one of the global batch. So the two
 * numbers do not depend on the layout. Start at gpt_noise_hooks(). */
#ifndef GPT_TRAIN_NOISE_H
#define GPT_TRAIN_NOISE_H

#include "model/stage.h"

struct gpt_noise;

struct gpt_noise_options {
    const struct gpt_flat *flat;        /* outlives it */
    float *const *buckets;              /* gradients while backward runs ... */
    float *const *shards;               /* ... and after all sums */
    struct gpt_gradient_hooks hooks;    /* that are called besides */
    struct gpt_queue *q;                /* on which backward runs */
    int64_t dp_rank;
};

/* Bytes of device memory. */
int64_t gpt_noise_memory(const struct gpt_flat *flat);
int gpt_noise_open(struct gpt_noise **noise, struct gpt_backend *be,
                   const struct gpt_noise_options *options,
                   struct gpt_err *err) GPT_MUST_USE;
void gpt_noise_close(struct gpt_noise *noise); /* NULL is fine */

/* For gpt_stage_open(), in the place of options->hooks. */
struct gpt_gradient_hooks gpt_noise_hooks(struct gpt_noise *noise);

/* Begins a step. */
void gpt_noise_begin(struct gpt_noise *noise);
/* After all sums: this rank's parts of both squared norms. They are scaled as
 * the gradients are: by the loss scale, and *small by the weights of the
 * microbatch, too. Waits for the queue. */
int gpt_noise_squares(struct gpt_noise *noise, double *small, double *big,
                      struct gpt_err *err) GPT_MUST_USE;

/* The noise scale in samples, from squared norms of the gradients of means over
 * n_small and n_big samples: tr(S) = (small - big) / (1 / n_small - 1 / n_big)
 * over |G|^2 = (n_big big - n_small small) / (n_big - n_small). Sums of many
 * steps may be given, as both are without bias and their ratio is not. NaN
 * where the estimate of |G|^2 is not positive. */
double gpt_noise_scale(double small, double big, double n_small, double n_big);

#endif
