/* The update of this rank's shards (of all of its flat buffer, when there is no
 * distributed optimizer), with clipping by global norm: Megatron's semantics.
 * AdamW or Adam, gradient descent with momentum, or Muon (muon.h), which
 * updates the matrices of layers and leaves the rest to AdamW. Whatever the
 * optimizer, biases of routers follow how many tokens experts had in the batch
 * (struct gpt_balance).
 *
 * An optimizer keeps states: for each parameter that has one, an element for
 * each of the parameter's. Their kinds are those of checkpoints
 * (checkpoint/names.h), so whatever a rule keeps is saved and loaded; which
 * rule keeps what is one table in optimizer.c. */
#ifndef GPT_TRAIN_OPTIMIZER_H
#define GPT_TRAIN_OPTIMIZER_H

#include "backend.h"
#include "checkpoint/ownership.h"
#include "train/lr_schedule.h"
#include "train/muon.h"

enum gpt_optimizer_kind { GPT_ADAM, GPT_SGD, GPT_MUON };
extern const char *const gpt_optimizer_names[]; /* "adam" ..., then NULL */

struct gpt_optimizer_options {
    enum gpt_optimizer_kind kind;
    double beta1, beta2, eps; /* of Adam */
    bool coupled; /* weight decay is a part of the gradient, as in Adam, and not
                   * of the update, as in AdamW. SGD's always is */
    double momentum;  /* of SGD and Muon; SGD: 0 = none */
    double clip_grad; /* 0 = off */
    double bias_rate; /* of routers' biases: what a step adds or takes */
    struct gpt_muon_options muon;
    struct gpt_comm *tp, *dp; /* for Muon; NULL where a rank is alone */
};

struct gpt_optimizer;

/* Bytes of device memory for `flat`: states, workspace, and what belongs to
 * them. Of `options`, the communicators are not read. */
int64_t gpt_optimizer_memory(const struct gpt_optimizer_options *options,
                             const struct gpt_flat *flat);

/* States are zero. `flat` outlives the optimizer. tp_rank: what is not split
 * counts in the norm on the first tensor parallel rank only. Waits for q. */
int gpt_optimizer_open(struct gpt_optimizer **optimizer, struct gpt_backend *be,
                       struct gpt_queue *q, const struct gpt_flat *flat,
                       int64_t tp_rank,
                       const struct gpt_optimizer_options *options,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_optimizer_close(struct gpt_optimizer *optimizer); /* NULL is fine */

/* ---- states ---- */

/* True when an optimizer of these options keeps a state of this kind for p. */
bool gpt_optimizer_keeps(const struct gpt_optimizer_options *options,
                         enum gpt_kind kind, const struct gpt_param *p);
/* The same for any parameter of `flat`; GPT_KIND_PARAMETERS: true. */
bool gpt_optimizer_has(const struct gpt_optimizer_options *options,
                       enum gpt_kind kind, const struct gpt_flat *flat);
/* Turns boxes of a compact buffer into those of the buffer of a kind: boxes
 * without such a state go, and the others get their places there. */
int gpt_optimizer_select(const struct gpt_optimizer_options *options,
                         const struct gpt_flat *flat, enum gpt_kind kind,
                         struct gpt_ownership *boxes,
                         struct gpt_err *err) GPT_MUST_USE;
/* The buffer of a kind of state, on the device. */
float *gpt_optimizer_buffer(const struct gpt_optimizer *optimizer,
                            enum gpt_kind kind);
/* The number of updates made so far, which belongs to the states. */
int64_t *gpt_optimizer_updates(struct gpt_optimizer *optimizer);

/* ---- a step ---- */

/* This rank's part of the squared L2 norm of all gradients: of its shards,
 * without tied copies. gradients: of the shard of every bucket; without shards
 * one block in the order of the flat buffer. Waits for the queue: errors of the
 * step's operations surface here. */
int gpt_optimizer_squares(struct gpt_optimizer *optimizer, struct gpt_queue *q,
                          float *const *gradients, double *sum,
                          struct gpt_err *err) GPT_MUST_USE;

/* One update with gradients divided by the loss scale, and scaled by
 * clip/(norm + 1e-6) when that is below one. Gradients as above. Muon makes
 * collective calls on its communicators: all ranks update together. */
struct gpt_update {
    float *params;
    bool compact;  /* params holds this rank's shards alone, as states do;
                    * else params is flat, and its shards are updated */
    void *weights; /* flat copy of params in `act`, or NULL */
    enum gpt_dtype act;
    float *const *gradients;
    double loss_scale; /* 1: none */
    double norm;       /* of the gradients once divided */
    double expert_mean; /* tokens of an expert where all have as many */
    struct gpt_rates rates;
};
void gpt_optimizer_update(struct gpt_optimizer *optimizer, struct gpt_queue *q,
                          const struct gpt_update *update);

#endif
