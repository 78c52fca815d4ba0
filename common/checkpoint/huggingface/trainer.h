/* What Trainer of transformers and accelerate keep of a run beside the weights
 * of a model: the state of Adam is read, and the count of steps. The state's
 * parameters are numbers, in two groups, those that decay and the others; which
 * number is which tensor follows from the order of the family's rules
 * (family.h) and from how programs divide parameters (trainer_order.c). Start
 * at gpt_hf_trainer_open(). Source: transformers, trainer.py; accelerate,
 * checkpointing.py. */
#ifndef GPT_CHECKPOINT_HF_TRAINER_H
#define GPT_CHECKPOINT_HF_TRAINER_H

#include "checkpoint/huggingface/importer.h"
#include "checkpoint/torch/adam.h"

/* A tensor that an optimizer has moments of. */
struct gpt_hf_place {
    const char *name; /* as files of weights have it */
    const struct gpt_param *param; /* its first one, where it holds two */
    int ndim;
    int64_t shape[GPT_HF_DIMS];
    int64_t number; /* in the optimizer, */
    int64_t group;  /* and that of its group; -1 where names are the keys */
};

struct gpt_hf_trainer {
    const char *file; /* of the optimizer's state: "optimizer.pt"; NULL: none */
    struct gpt_torch torch;
    struct gpt_torch_adam adam;
    struct gpt_hf_place *places; /* in the order of the model; once it is read,
                                  * by their names */
    int64_t n;
    bool named; /* keys are names */
};

/* True where an optimizer has left its state in `dir`. */
bool gpt_hf_trainer_has(const char *dir);
/* Reads the state that lies in `dir`, of a model that was imported. *why is
 * NULL, or says why it is none that could go on: no failure, as weights alone
 * can be used. A warning tells which parameters decay there and not here.
 * Strings are in the arena. Close it whatever comes back. */
int gpt_hf_trainer_open(struct gpt_hf_trainer *t,
                        const struct gpt_hf_importer *im, const char *dir,
                        struct gpt_arena *arena, const char **why,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_hf_trainer_close(struct gpt_hf_trainer *t); /* zero is fine */
/* A gpt_hf_find of moments; context: the struct gpt_hf_trainer. */
int gpt_hf_trainer_find(void *context, enum gpt_kind kind, const char *name,
                        struct gpt_hf_found *found,
                        struct gpt_err *err) GPT_MUST_USE;

/* The steps that Trainer has counted in `dir`, or else `otherwise`. */
int64_t gpt_hf_trainer_steps(const char *dir, int64_t otherwise);
/* True where Trainer has left its place in `dir`; else accelerate may have. */
bool gpt_hf_trainer_counts(const char *dir);
/* Appends to s->left_out those of their files that are in `dir`, but for the
 * one that was read, or NULL. */
int gpt_hf_trainer_leave_out(struct gpt_source *s, const char *dir,
                             const char *read,
                             struct gpt_err *err) GPT_MUST_USE;

#endif
