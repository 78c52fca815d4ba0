/* The state of Adam as state_dict() of PyTorch's optimizers has it: a dict
 * "state" of what each parameter has, and a list "param_groups". Parameters are
 * numbers, in the order in which the optimizer was given them, or names where a
 * program has put names in their place. What tensors these are is for the
 * caller to say. Start at gpt_torch_adam_open(). Source:
 * torch/optim/optimizer.py. */
#ifndef GPT_CHECKPOINT_TORCH_ADAM_H
#define GPT_CHECKPOINT_TORCH_ADAM_H

#include "checkpoint/torch/torch.h"

struct gpt_torch_adam {
    struct gpt_safetensors moments; /* "3.exp_avg"; without a file */
    struct gpt_pickle_value **groups;
    int64_t n_groups;
    int64_t n;          /* parameters that have a state */
    int64_t step;       /* of all of them */
    const char *others; /* what they have beside Adam's, or NULL */
};

/* Reads the state that is below a value of an open file, which outlives it.
 * *why is NULL, or says why that is no state of Adam that could go on: no
 * failure, as weights alone can be used. Strings are in the arena. Close it
 * whatever comes back. */
int gpt_torch_adam_open(struct gpt_torch_adam *a, const struct gpt_torch *t,
                        const struct gpt_pickle_value *optimizer,
                        struct gpt_arena *arena, const char **why,
                        struct gpt_err *err) GPT_MUST_USE;
/* NULL, or why the settings of a group say that a state with Adam's two moments
 * is not Adam's. group: a dict of param_groups. In the arena, or a constant. */
const char *gpt_torch_adam_denied(const struct gpt_pickle_value *group,
                                  struct gpt_arena *arena);
void gpt_torch_adam_close(struct gpt_torch_adam *a); /* zero is fine */

/* The moments of a kind of the parameter of that key, a number or a name, or
 * NULL. O(log n). */
const struct gpt_safetensor *
gpt_torch_adam_moment(const struct gpt_torch_adam *a, enum gpt_kind kind,
                      const char *key);
/* The items of a list of a group, "params"; NULL and *n = 0 when it has none.
 */
struct gpt_pickle_value **gpt_torch_adam_list(const struct gpt_torch_adam *a,
                                              int64_t group, const char *key,
                                              int64_t *n);
/* True when both moments of the parameter of a key have its dimensions; else
 * *other is one that has not, or NULL where there is none. */
bool gpt_torch_adam_fits(const struct gpt_torch_adam *a, const char *key,
                         int ndim, const int64_t *shape,
                         const struct gpt_safetensor **other);

#endif
