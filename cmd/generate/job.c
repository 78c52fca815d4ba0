/* The ranks of a job; see job.h. The first rank runs the command as a single
 * process would, and its decoder tells the others what to compute; they know
 * neither prompts nor options of choice. Start at gpt_job_open(). */
#include "cmd/generate/job.h"

#include "base/log.h"
#include "base/num.h"
#include "parallel/wait.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

const char *const gpt_generate_backends[] = {"nccl", "gloo", NULL};

bool gpt_job_first(const struct gpt_job *r)
{
    return !r->world || r->world->topology.rank == 0;
}

int64_t gpt_job_device(const struct gpt_job *r)
{
    return r->world ? r->world->launch.local_rank : 0;
}

/* ---- meeting ---- */

/* The launcher's environment is enough for it: no rank is waited for, and a
 * wrong number is reported at once. */
static int check_number(const struct gpt_generate_options *o, int64_t ranks,
                        struct gpt_err *err)
{
    const int64_t wanted = o->tp_size * o->pp_size;

    if (ranks == wanted)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE,
             "%lld process%s, but --tensor-model-parallel-size %lld x "
             "--pipeline-model-parallel-size %lld are %lld",
             (long long)ranks, ranks == 1 ? "" : "es", (long long)o->tp_size,
             (long long)o->pp_size, (long long)wanted);
    return gpt_hint(err, "gpt-launch --standalone --stdio --nproc-per-node "
                         "%lld gpt-generate ... starts as many on this machine",
                    (long long)wanted);
}

/* This rank's part of the machine, unless an option or the environment gives a
 * number. */
static int share_cores(struct gpt_job *r,
                       const struct gpt_generate_options *o,
                       struct gpt_err *err)
{
    const char *threads = getenv("OMP_NUM_THREADS");
    int64_t cores;

    /* All ranks call this before any of them returns: it counts them. */
    GPT_TRY(gpt_world_cores(r->world, &cores, err));
    if (o->common.threads == 0 && (!threads || !*threads))
        omp_set_num_threads((int)gpt_min_i64(cores, omp_get_max_threads()));
    return GPT_OK;
}

/* A wrong number of processes ends all of them before any waits for another;
 * after the meeting the first one alone speaks, as messages of all would be the
 * same ones several times. */
int gpt_job_open(struct gpt_job *r, const struct gpt_generate_options *o,
                 struct gpt_err *err)
{
    struct gpt_launch_env launch;
    const struct gpt_world_options options = {
        .size = {[GPT_TP] = o->tp_size, [GPT_PP] = o->pp_size},
        .chunks = 1,
        .timeout = 60 * o->timeout_mins,
        .timeout_later = 60 * o->timeout_mins,
    };

    GPT_TRY(gpt_launch_env_detect(&launch, err));
    GPT_TRY(check_number(o, launch.world_size, err));
    if (launch.world_size == 1)
        return GPT_OK;
    GPT_TRY(gpt_world_open(&r->world, &options, err));
    if (!gpt_job_first(r)) {
        gpt_log_limit(GPT_LOG_ERROR);
        /* A signal goes to all ranks: the first one obeys it, and the others
         * stay until its texts have ended. */
        gpt_store_keep_waiting(r->world->store);
    }
    /* A kernel that is loaded late may wait for a collective that waits for
     * it. CUDA reads the variable when it starts. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    return share_cores(r, o, err);
}

/* ---- sharing ---- */

/* Ranks that read other checkpoints, from directories that are not shared or
 * not in step, would compute a text of none of them. */
static int compare(struct gpt_job *r, const struct gpt_config *c,
                   int64_t iteration, struct gpt_err *err)
{
    char text[256];

    snprintf(text, sizeof(text),
             "iteration = %lld\nlayers = %lld\nwidth = %lld\nheads = %lld\n"
             "words = %lld\npositions = %lld\n",
             (long long)iteration, (long long)c->num_layers,
             (long long)c->hidden_size, (long long)c->num_attention_heads,
             (long long)c->vocab_size, (long long)c->max_positions);
    return gpt_world_agree(r->world, "checkpoint", text, err);
}

/* From what is known at once to what takes time: the cut, what others have
 * read, then connections. */
int gpt_job_share(struct gpt_job *r, const struct gpt_generate_options *o,
                  struct gpt_config *c, int64_t iteration,
                  struct gpt_backend *be, struct gpt_err *err)
{
    const int64_t tp = o->tp_size;
    char carrier[320];

    if (!r->world)
        return GPT_OK;
    /* a checkpoint without dummy words, or with others */
    c->padded_vocab_size = gpt_ceil_div(c->padded_vocab_size, tp) * tp;
    GPT_TRY(gpt_decode_layout(&r->cut.layout, c, tp, o->pp_size,
                              r->world->topology.rank, err));
    GPT_TRY(compare(r, c, iteration, err));
    const int status = gpt_world_choose_carrier(r->world, be, o->backend,
                                                carrier, sizeof(carrier), err);
    if (status != GPT_OK && o->backend)
        gpt_context(err, "--distributed-backend %s", o->backend);
    GPT_TRY(status);
    GPT_TRY(gpt_world_connect(r->world, be, err));
    r->cut.tp = r->world->comm[GPT_GROUP_TP];
    r->cut.pp = r->world->comm[GPT_GROUP_PP];
    r->cut.world = r->world->comm[GPT_GROUP_WORLD];
    gpt_info("%lld ranks: tensor %lld, pipeline %lld; through %s",
             (long long)r->world->topology.world_size, (long long)tp,
             (long long)o->pp_size, carrier);
    return GPT_OK;
}

static const char size_key[] = "decoder";

/* The first rank may read its prompts for as long as it likes: its end is
 * noticed, its silence is no failure. */
static int wait_for_size(struct gpt_job *r, struct gpt_err *err)
{
    struct gpt_store *store = r->world->store;
    struct gpt_wait wait = gpt_wait_begin(HUGE_VAL);
    bool exists = false;

    for (;;) {
        GPT_TRY(gpt_store_check(store, size_key, &exists, err));
        if (exists)
            return GPT_OK;
        if (gpt_wait_is_check_due(&wait))
            GPT_TRY(gpt_store_check_wait(store, err));
        gpt_wait_pause(&wait);
    }
}

/* Through the store, as there may be nothing to connect for. */
int gpt_job_tell_size(struct gpt_job *r, int64_t *slots, int64_t *positions,
                      struct gpt_err *err)
{
    char text[64], *end = NULL;
    void *value;
    size_t len;

    if (!r->world)
        return GPT_OK;
    if (gpt_job_first(r)) {
        const int n = snprintf(text, sizeof(text), "%lld %lld",
                               (long long)*slots, (long long)*positions);

        return gpt_store_set(r->world->store, size_key, text, (size_t)n, err);
    }
    GPT_TRY(wait_for_size(r, err));
    GPT_TRY(gpt_store_get(r->world->store, size_key, r->world->timeout, &value,
                          &len, err));
    *slots = strtoll(value, &end, 10);
    *positions = strtoll(end, NULL, 10);
    gpt_free(value);
    return GPT_OK;
}

/* Waits until all ranks have read their weights. From then on the shorter
 * timeout holds, as no rank is still reading from its disk. */
int gpt_job_begin(struct gpt_job *r, struct gpt_err *err)
{
    if (!r->world)
        return GPT_OK;
    GPT_TRY(gpt_world_wait(r->world, "weights", err));
    gpt_world_shorten_timeout(r->world);
    return GPT_OK;
}

/* The ranks tell each other how they end: all of them return the status of the
 * first that failed, with its reason, as those of gpt-train do. */
int gpt_job_close(struct gpt_job *r, int status, struct gpt_err *err)
{
    status = gpt_world_end(r->world, status, err);
    gpt_world_close(r->world);
    r->world = NULL;
    return status;
}
