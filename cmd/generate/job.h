/* Several processes that share a model: the ranks of a launcher. */
#ifndef GPT_CMD_GENERATE_JOB_H
#define GPT_CMD_GENERATE_JOB_H

#include "cmd/generate/options.h"
#include "model/decode_ranks.h"
#include "parallel/world.h"

struct gpt_job {
    struct gpt_world *world; /* NULL: one process */
    struct gpt_decode_ranks cut;
};

/* True on the rank that reads, writes and decides. */
bool gpt_job_first(const struct gpt_job *r);

/* Meets the others, before anything is opened. GPT_EUSAGE when there are not as
 * many processes as the options want. From here on the first rank alone
 * reports. */
int gpt_job_open(struct gpt_job *r, const struct gpt_generate_options *o,
                 struct gpt_err *err) GPT_MUST_USE;

/* The number of this machine's device that is this rank's. */
int64_t gpt_job_device(const struct gpt_job *r);

/* Cuts the model, whose dummy words become more where ranks could not share
 * them, and connects. All ranks call it. `iteration`: of the checkpoint. */
int gpt_job_share(struct gpt_job *r, const struct gpt_generate_options *o,
                  struct gpt_config *c, int64_t iteration,
                  struct gpt_backend *be, struct gpt_err *err) GPT_MUST_USE;

/* Tells the others how large the decoder is, or with slots = 0 that there is
 * none; on other ranks, waits for that, however long it takes. */
int gpt_job_tell_size(struct gpt_job *r, int64_t *slots,
                      int64_t *positions, struct gpt_err *err) GPT_MUST_USE;

/* To be called when all decoders are open. From then on a rank that is silent
 * is given up sooner. */
int gpt_job_begin(struct gpt_job *r, struct gpt_err *err) GPT_MUST_USE;

/* As gpt_world_end(), then frees everything. */
int gpt_job_close(struct gpt_job *r, int status, struct gpt_err *err);

#endif
