/* Every name that a native checkpoint is made of, in one place: its files, its
 * iterations, and the tensors of each kind. What the files hold is described in
 * gpt-checkpoint(5). Names of another format are in that format's front end. */
#ifndef GPT_CHECKPOINT_NAMES_H
#define GPT_CHECKPOINT_NAMES_H

#include "base/status.h"

#define GPT_MANIFEST "manifest.json"
#define GPT_TRACKER "latest_checkpointed_iteration.txt"
#define GPT_BEST "best" /* a link to an iteration */

enum { GPT_NATIVE_FILE_NAME = 112 }; /* room for a name of a file of tensors */

/* ---- tensors ---- */

/* The kinds of tensors that a run keeps: parameters, and states of its
 * optimizer, which may have one for some parameters alone. Each kind has the
 * names and shapes of the parameter table, after the prefix of the kind. */
enum gpt_kind {
    GPT_KIND_PARAMETERS,
    GPT_KIND_EXP_AVG,    /* Adam: mean gradient */
    GPT_KIND_EXP_AVG_SQ, /* Adam: mean squared gradient */
    GPT_KIND_MOMENTUM,   /* SGD and Muon */
    GPT_N_KINDS,
    /* parameters and the state of Adam, which is all that formats of others
     * hold */
    GPT_N_ADAM_KINDS = GPT_KIND_EXP_AVG_SQ + 1
};
const char *gpt_kind_prefix(enum gpt_kind kind); /* "optimizer.exp_avg." */

/* True for optimizer state, of these kinds or of others that a newer program
 * may have written. */
bool gpt_name_is_optimizer(const char *tensor);
/* The parameter that a tensor belongs to: "optimizer.exp_avg.NAME" gives NAME.
 * *prefix: the length of what is before it, 0 for the parameter itself. */
const char *gpt_name_parameter(const char *tensor, size_t *prefix);

/* ---- files ---- */

/* The file that one rank writes for the tensors of a prefix:
 * "model_tp00_pp01.safetensors", "optimizer_exp_avg_tp00_pp01.safetensors",
 * with "_dp02" before the suffix when several data parallel ranks write. */
struct gpt_file_rank {
    int64_t tp_rank, pp_rank, dp_rank, dp_size;
};
void gpt_name_file(char *buf, size_t cap, const char *prefix,
                   const struct gpt_file_rank *rank);

/* True for files of tensors; every other file was attached. */
bool gpt_name_holds_tensors(const char *file);
/* True for a name that stays in its directory and prints as it is. */
bool gpt_name_is_safe(const char *file);

/* ---- iterations ---- */

/* "ROOT/iter_0000100". */
int gpt_checkpoint_path(char *buf, size_t cap, const char *root,
                        int64_t iteration, struct gpt_err *err) GPT_MUST_USE;
/* True when `name` is that of an iteration's directory, as it is written. */
bool gpt_name_is_iteration(const char *name, int64_t *iteration);

#endif
