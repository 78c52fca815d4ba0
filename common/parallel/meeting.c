/* How a process joins a job; see meeting.h. Start at gpt_world_meet(). */
#include "parallel/meeting.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* Adds `change` to the number of ranks that have met. True when all ranks of
 * the job have. */
static bool have_met(struct gpt_world *w, int64_t change)
{
    struct gpt_err ignored = {0};
    int64_t met;

    return gpt_store_add(w->store, "met", change, &met, &ignored) == GPT_OK &&
           met >= w->topology.world_size;
}

/* While the ranks meet, a second process of a rank is in the place of another
 * rank, which all would wait for: all ranks fail by it. A job that runs
 * continues when one more process is started for it. */
static int take_rank(struct gpt_world *w, struct gpt_err *err)
{
    int status =
        gpt_store_take_place(w->store, "rank", w->topology.rank,
                             "each needs a RANK, and each node a number, of "
                             "its own", err);

    if (status == GPT_EUSAGE && have_met(w, 0)) {
        struct gpt_err failure = {.rank = -1};

        /* The other one may be dead, and its job with it. */
        if (gpt_store_failed(w->store, &failure))
            status = gpt_fail(err, GPT_EFAIL,
                              "the job that rank %lld would join has failed "
                              "(%s): start all of its ranks again",
                              (long long)w->topology.rank, failure.text);
        gpt_store_close(w->store);
        w->store = NULL;
    }
    return status;
}

/* In the script of a job, Slurm sets the variables of its first task, too: only
 * srun, which numbers its steps, starts the others. */
static void warn_of_batch(const struct gpt_world *w)
{
    if (strcmp(w->launch.launcher, "slurm") == 0 && w->launch.rank == 0 &&
        w->launch.world_size > 1 && !getenv("SLURM_STEP_ID"))
        gpt_warn("SLURM_NTASKS is %lld, and SLURM_STEP_ID is not set: unless "
                 "srun starts this program, the other ranks will not come; "
                 "gpt-launch starts ranks, too",
                 (long long)w->launch.world_size);
}

/* Ranks that have met are counted after their links stand: as long as one is
 * missing, its neighbours wait in gpt_links_open(). */
int gpt_world_meet(struct gpt_world *w, const struct gpt_links_options *o,
                   struct gpt_err *err)
{
    warn_of_batch(w);
    GPT_TRY(gpt_store_open(&w->store, &w->launch, w->timeout, err));
    if (w->topology.world_size == 1)
        return GPT_OK;
    GPT_TRY(take_rank(w, err));
    GPT_TRY(gpt_store_leave_will(w->store, err));
    GPT_TRY(gpt_links_open(&w->links, w->store, o, err));
    (void)have_met(w, 1);
    return GPT_OK;
}
