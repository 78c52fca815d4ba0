/* What a checkpoint keeps of a run beside its tensors: a JSON object, as
 * gpt-checkpoint(5) describes it. gpt-train writes and reads all of it
 * (cmd/train/state.c); front ends make of it what files of other programs say.
 * The keys that more than one of these files knows are here. */
#ifndef GPT_CHECKPOINT_RUN_STATE_H
#define GPT_CHECKPOINT_RUN_STATE_H

#include "base/json.h"
#include "checkpoint/source.h"

/* The run's place: steps and samples so far. */
#define GPT_RUN_ITERATION "iteration"
#define GPT_RUN_TRAIN_SAMPLES "consumed_train_samples"
#define GPT_RUN_VALID_SAMPLES "consumed_valid_samples"
#define GPT_RUN_SCHEDULED_SAMPLES "scheduled_train_samples"
#define GPT_RUN_OPTIMIZER_STEP "optimizer_step"
/* What a run that resumes compares, or takes over. */
#define GPT_RUN_OPTIMIZER "optimizer"
#define GPT_RUN_PRECISION "precision"
#define GPT_RUN_SEED "seed"
#define GPT_RUN_SEQ_LENGTH "seq_length"
#define GPT_RUN_CORPUS_DIGEST "corpus_digest"
#define GPT_RUN_SCHEDULE "schedule"
#define GPT_RUN_TOKENIZER "tokenizer"
/* An object of the scale and its two counters. */
#define GPT_RUN_LOSS_SCALE "loss_scale"
#define GPT_RUN_SCALE "scale"
#define GPT_RUN_SCALE_GOOD "good"
#define GPT_RUN_SCALE_LEFT "left"
/* The format that weights come from: there is no run to resume. */
#define GPT_RUN_CONVERTED "converted_from"
/* A list: adapters that were merged into them then. */
#define GPT_RUN_MERGED "merged_adapters"
/* Hugging Face's type of the model that a run began with. */
#define GPT_RUN_FAMILY "model_type"

/* The default of Megatron-LM and of gpt-train. */
enum { GPT_RUN_SEED_UNKNOWN = 1234 };

/* A new object with the place of a run. */
cJSON *gpt_run_state_make(int64_t iteration, int64_t train_samples,
                          int64_t valid_samples);
/* Adds what gpt-train resumes a run of another program by. Its corpus is not
 * known: the digest is a word that equals none. */
void gpt_run_state_put_run(cJSON *state, int64_t optimizer_step, int64_t seed,
                           const char *program);
void gpt_run_state_put_scale(cJSON *state, float scale, int64_t good,
                             int64_t left);
/* Adds which tokens begin and end texts: those that are known. */
void gpt_run_state_put_tokens(cJSON *state, int64_t bos, int64_t eos,
                              const struct gpt_end_ids *ends);
/* Adds what the files that the model came from call such models; NULL adds
 * nothing. */
void gpt_run_state_put_family(cJSON *state, const char *family);

/* The family that a state keeps, borrowed from it; NULL: none. It may be one
 * that this version does not know. */
const char *gpt_run_state_family(const cJSON *state);

/* Fills in what the state of an open source says of its model's texts: the
 * tokens that begin and end them. What a state does not have, or has out of
 * range, stays unknown. */
void gpt_run_state_take_origin(struct gpt_source *s);

/* A count; 0 where there is no state (NULL), or it does not have it. */
int64_t gpt_run_state_count(const cJSON *state, const char *key);

#endif
