/* The ranks of a run: sizes that fit together, the world, and each rank's share
 * of its machine's cores. */
#include "cmd/train/run_parts.h"

#include "base/log.h"
#include "base/num.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* The rules of gpt_topology_init() that options can break, checked before it to
 * name them. The launcher's environment is enough for it: no rank is waited
 * for, and a wrong size is reported in an instant. */
static int check_sizes(const struct gpt_world_options *o, struct gpt_err *err)
{
    const int64_t tp = o->size[GPT_TP], pp = o->size[GPT_PP];
    struct gpt_launch_env launch;

    GPT_TRY(gpt_launch_env_detect(&launch, err));
    const int64_t ranks = o->imagined > 0 ? o->imagined : launch.world_size;
    if (ranks % (tp * pp) != 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "%lld rank%s not a multiple of "
                 "--tensor-model-parallel-size %lld x "
                 "--pipeline-model-parallel-size %lld",
                 (long long)ranks, ranks == 1 ? " is" : "s are", (long long)tp,
                 (long long)pp);
        if (o->imagined > 0)
            return gpt_hint(err, "--world-size %lld is the least; its "
                                 "multiples have more data parallel ranks",
                            (long long)(tp * pp));
        return gpt_hint(err, "gpt-launch --standalone --nproc-per-node %lld "
                             "gpt-train ... starts as many on this machine",
                        (long long)(tp * pp));
    }
    if (o->chunks > 1 && pp == 1)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld virtual stages need "
                        "--pipeline-model-parallel-size of at least 2",
                        (long long)o->chunks);
    return GPT_OK;
}

/* A dry run of one process plans for as many ranks as the layout needs. */
static int plan_smallest_world(struct gpt_world_options *w,
                               const struct gpt_train_options *o,
                               struct gpt_err *err)
{
    const int64_t ranks = w->size[GPT_TP] * w->size[GPT_PP];
    struct gpt_launch_env launch;

    if (w->imagined > 0 || ranks == 1 || !(o->dry_run || o->simulate))
        return GPT_OK;
    GPT_TRY(gpt_launch_env_detect(&launch, err));
    if (launch.world_size == 1)
        w->imagined = ranks;
    return GPT_OK;
}

/* A dry run of one process without --world-size says for how many ranks it
 * plans: no option has that number. */
int gpt_run_open_world(struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_world_options options;

    GPT_TRY(gpt_train_world_options(&options, r->o, err));
    GPT_TRY(plan_smallest_world(&options, r->o, err));
    GPT_TRY(check_sizes(&options, err));
    GPT_TRY(gpt_world_open(&r->world, &options, err));
    /* From here on only rank 0 reports; the failures of all ranks are still
     * printed. */
    r->planned = options.imagined > 0;
    if (!gpt_run_is_first(r))
        gpt_log_limit(GPT_LOG_ERROR);
    else if (r->o->dry_run)
        gpt_log_lines_to_stdout();
    if (r->planned && r->o->world_size == 0 && r->o->dry_run)
        gpt_log_line(" > planned for %lld ranks, the fewest that the layout "
                     "needs; --world-size plans for more",
                     (long long)options.imagined);
    return GPT_OK;
}

/* Sets the CPU threads to this rank's part of the machine, unless an option or
 * the environment gives a number. torchrun sets 1 where the user sets none:
 * that is kept, as a user may mean it, and reported. */
int gpt_run_share_cores(struct gpt_run *r, struct gpt_err *err)
{
    const char *threads = getenv("OMP_NUM_THREADS");
    const bool torchrun = getenv("TORCHELASTIC_RUN_ID") != NULL;
    int64_t cores;

    if (gpt_run_is_alone(r))
        return GPT_OK;
    /* All ranks call this before any of them returns: it counts the ranks of a
     * machine through the store. */
    GPT_TRY(gpt_world_cores(r->world, &cores, err));
    if (r->o->common.threads > 0)
        return GPT_OK;
    if (!threads || !*threads)
        omp_set_num_threads((int)gpt_min_i64(cores, omp_get_max_threads()));
    else if (torchrun && strcmp(threads, "1") == 0 && cores > 1)
        gpt_log_line(" > one CPU thread a rank, as torchrun sets "
                     "OMP_NUM_THREADS=1; --threads %lld would use all cores",
                     (long long)cores);
    return GPT_OK;
}

/* More threads than cores wait for each other: every operation ends with its
 * slowest thread. */
void gpt_run_report_threads(const struct gpt_run *r)
{
    const int64_t asked = r->o->common.threads, cores = omp_get_num_procs();

    if (asked > cores && gpt_run_is_first(r))
        gpt_warn("--threads %lld: this process has %lld core%s, and more "
                 "threads than cores are slower",
                 (long long)asked, (long long)cores, gpt_plural(cores));
}
