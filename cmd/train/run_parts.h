/* The parts of gpt_run_open(), for run.c and the run_*.c alone, by the files
 * that have them; run.c has the order of the calls. Each takes what the parts
 * that are called before it have left in *r, and leaves there what it opens:
 * gpt_run_close() closes it, also after a failure. What only one rank may do
 * (speak, lock, make directories), rank 0 does, and the others wait for it. */
#ifndef GPT_CMD_TRAIN_RUN_PARTS_H
#define GPT_CMD_TRAIN_RUN_PARTS_H

#include "cmd/train/run.h"

/* True of the rank that speaks, locks and makes directories. */
static inline bool gpt_run_is_first(const struct gpt_run *r)
{
    return r->world->topology.rank == 0;
}

/* True of a run of one process, which waits for no other. */
static inline bool gpt_run_is_alone(const struct gpt_run *r)
{
    return r->world->topology.world_size == 1;
}

/* True when the plan is for a GPU that need not be here: nothing is asked of
 * r->be but how much memory its kernels want. */
static inline bool gpt_run_is_absent(const struct gpt_run *r)
{
    return r->be == &r->absent;
}

/* True where a run resumes in the directory that it saves into: it may be the
 * first start of a command that is started again and again. */
static inline bool gpt_run_resumes_own(const struct gpt_train_options *o)
{
    return o->load && o->save && gpt_path_same(o->load, o->save);
}

/* ---- run_world.c ---- */

/* Opens the world, real or planned. GPT_EUSAGE names options whose sizes do not
 * fit together, without waiting for any rank. */
int gpt_run_open_world(struct gpt_run *r, struct gpt_err *err) GPT_MUST_USE;

/* Sets the CPU threads to this rank's part of the machine, unless an option or
 * the environment gives a number. All ranks call it. */
int gpt_run_share_cores(struct gpt_run *r, struct gpt_err *err) GPT_MUST_USE;
/* Warns of more threads than cores. */
void gpt_run_report_threads(const struct gpt_run *r);

/* ---- run_length.c ---- */

/* Makes the plan. --epochs N becomes a number of steps, and is all that follows
 * from it. */
int gpt_run_plan(struct gpt_run *r, struct gpt_err *err) GPT_MUST_USE;

/* Once the checkpoint is read: a run that resumes with another batch has other
 * steps left, and may need more samples, than the `planned` steps of a new
 * one. */
int gpt_run_fit_rest(struct gpt_run *r, int64_t planned,
                     struct gpt_err *err) GPT_MUST_USE;

/* ---- run_device.c ---- */

/* Opens the device, or plans for the one of --hardware, and chooses what
 * carries bytes between ranks. GPT_EUSAGE names an option that asks for what
 * the device cannot do. */
int gpt_run_open_device(struct gpt_run *r, struct gpt_err *err) GPT_MUST_USE;

/* ---- run_print.c ---- */

/* Logs device, ranks, model and memory, as decided and not as asked for; rank 0
 * alone. */
int gpt_run_print_model(const struct gpt_run *r,
                        const struct gpt_memory *memory,
                        struct gpt_err *err) GPT_MUST_USE;

/* ---- run_data.c ---- */

/* Reads --data-stages into the plan: predictions of memory count them. */
int gpt_run_read_stages(struct gpt_run *r, struct gpt_err *err) GPT_MUST_USE;
/* Opens the corpus, where the options name one, and reports its splits. */
int gpt_run_open_corpus(struct gpt_run *r, struct gpt_err *err) GPT_MUST_USE;
/* Opens what hands batches to the replica, which must be open. */
int gpt_run_open_feed(struct gpt_run *r, struct gpt_err *err) GPT_MUST_USE;

/* ---- run_memory.c ---- */

/* Prints the memory of every rank, the product of a dry run. */
int gpt_run_print_plan(const struct gpt_run *r,
                       struct gpt_err *err) GPT_MUST_USE;
/* GPT_EDEVICE, with advice, where the run needs more memory than there is. */
int gpt_run_check_memory(const struct gpt_run *r,
                         const struct gpt_memory *memory,
                         struct gpt_err *err) GPT_MUST_USE;
/* Allocates the replica; the same advice where that fails. */
int gpt_run_allocate(struct gpt_run *r, const struct gpt_memory *memory,
                     struct gpt_err *err) GPT_MUST_USE;

/* ---- run_files.c ---- */

/* Locks --save, makes it, and refuses it where it holds another run's. All
 * ranks call it. */
int gpt_run_open_save(struct gpt_run *r, struct gpt_err *err) GPT_MUST_USE;
/* *load is whether --load holds a checkpoint, and becomes whether the run
 * begins with what is there. GPT_EIO where --finetune has nothing to begin
 * from. */
int gpt_run_has_to_load(const struct gpt_train_options *o, bool *load,
                        struct gpt_err *err) GPT_MUST_USE;
/* For a dry run: fails where --save is another run's, or where the run could
 * not begin with what is in --load. */
int gpt_run_look_at_places(struct gpt_run *r,
                           struct gpt_err *err) GPT_MUST_USE;
/* Iterations of --save up to this one are this run's; -1: none. */
int64_t gpt_run_own_iterations(const struct gpt_run *r);
/* Checks, before anything is read, that the report can be opened. */
int gpt_run_check_report(const struct gpt_run *r,
                         struct gpt_err *err) GPT_MUST_USE;
/* Opens the report last: it cuts off lines of the metrics that the run will
 * write again. GPT_EEXIST where the lines are another run's. */
int gpt_run_open_report(struct gpt_run *r, struct gpt_err *err) GPT_MUST_USE;

#endif
