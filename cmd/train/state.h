/* The position of a run, as a checkpoint has it, and loading a run: weights,
 * optimizer, and position. The state is a JSON object in the checkpoint's
 * manifest; see gpt-checkpoint(5). Saving is in saver.h. */
#ifndef GPT_CMD_TRAIN_STATE_H
#define GPT_CMD_TRAIN_STATE_H

#include "base/json.h"
#include "parallel/agreement.h"
#include "checkpoint/ownership.h"
#include "checkpoint/source.h"
#include "cmd/train/best.h"
#include "cmd/train/plan.h"
#include "train/replica.h"

/* The position of a run. */
struct gpt_train_state {
    int64_t iteration;      /* steps made */
    int64_t consumed_train; /* samples */
    int64_t scheduled;      /* ... of steps that were not skipped: these move
                             * learning rate and weight decay on */
    int64_t consumed_valid;
    struct gpt_best best;
    int64_t restarts; /* times that the run was resumed */
    /* What the samples were, of a checkpoint that is resumed from: the digest
     * of its corpus, and its sequence length (0: a new run). */
    uint64_t corpus_digest;
    uint64_t corpus_sets_digest; /* 0: of an old program */
    int64_t seq_length;
    /* Which tokens begin and end texts, by the files that the weights came
     * from; false: there are none. */
    bool has_tokens;
    int64_t bos_token_id, eos_token_id; /* < 0: not known, or none */
    struct gpt_end_ids ends;
    const char *family; /* gpt_source's, of those files */
};

/* What else a checkpoint records, and is compared with on resume. */
struct gpt_state_context {
    const struct gpt_train_options *options;
    const struct gpt_train_plan *plan;
    const char *option_text; /* as --print-config shows it */
    uint64_t corpus_digest, corpus_sets_digest;
    /* Iterations of options->save beyond this one are another run's, which this
     * run replaces with its first checkpoint; INT64_MAX: all are this run's. */
    int64_t own_until;
};

/* What a manifest says of the run, freed with cJSON_Delete(); NULL when out of
 * memory. */
cJSON *gpt_state_to_json(const struct gpt_replica *replica,
                         const struct gpt_train_state *state,
                         const struct gpt_state_context *context);

/* The ranks of the job, to agree on a checkpoint; false when there is one
 * (world may be NULL). `name`: see parallel/agreement.h. */
bool gpt_state_peers(struct gpt_agreement *peers, const struct gpt_world *world,
                     const char *name);

/* Loads from options->load, on all ranks or on none: weights and, unless
 * options say otherwise, optimizer, loss scale and position. The length of
 * *plan, which is the context's, is fitted to the position, and its schedule to
 * both; it becomes the checkpoint's when that one is to be used. GPT_EDATA or
 * GPT_EUSAGE name the field that does not fit. */
int gpt_state_load(struct gpt_replica *replica, struct gpt_train_state *state,
                   const struct gpt_state_context *context,
                   struct gpt_train_plan *plan,
                   struct gpt_err *err) GPT_MUST_USE;
/* Checks that what is in plan->options->load can be loaded: its model, its
 * vocabulary, and that it is a run where one is to be resumed. Reads no
 * weights. */
int gpt_state_check(const struct gpt_replica *replica,
                    const struct gpt_train_plan *plan,
                    struct gpt_err *err) GPT_MUST_USE;
/* Warns where a run that resumes has other samples than its checkpoint: after
 * context->corpus_digest became that of the data as they will be read. */
void gpt_state_compare_data(const struct gpt_train_state *state,
                            const struct gpt_state_context *context);

/* True when the replica's buffer of this kind holds its shards alone.
 * Checkpoints hold exact parameters, whatever the type of the weights. */
bool gpt_state_compact(const struct gpt_replica *replica, enum gpt_kind kind);

#endif
