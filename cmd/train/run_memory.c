/* The memory of a run: what a rank can get, what the plan needs, and advice
 * where that is more. */
#include "cmd/train/run_parts.h"

#include "base/log.h"
#include "base/num.h"
#include "cmd/train/advise.h"
#include "cmd/train/estimate.h"

/* Memory that this rank can get: what is free on its device, or its part of
 * this machine. 0: not known. */
static double own_memory(const struct gpt_run *r)
{
    int64_t available, total;

    if (gpt_run_is_absent(r))
        return r->absent_has.memory;
    r->be->memory(r->be, &available, &total);
    if (!r->be->host_memory)
        return (double)available;
    return (double)total /
           (double)gpt_max_i64(1, r->world->launch.local_size);
}

/* Memory that a rank may use: the option's value, or what the rank can get. */
static double memory_limit(const struct gpt_run *r)
{
    if (r->o->memory_limit > 0)
        return (double)r->o->memory_limit;
    return r->planned && !gpt_run_is_absent(r) ? 0 : own_memory(r);
}

/* A sentence about options that would make the run fit into the limit. */
static void advise_memory(const struct gpt_run *r, double limit, char *text,
                          size_t cap)
{
    const struct gpt_advice_options options = {
        .be = r->be,
        .limit = limit,
        .more = r->o->memory_limit > 0 ? GPT_MORE_PLANNED
                : r->be->host_memory   ? GPT_MORE_MACHINES
                                       : GPT_MORE_GPUS,
        .local_ranks = gpt_max_i64(1, r->world->launch.local_size),
        .starts = !r->o->dry_run,
    };

    gpt_advise(&r->plan, &r->args, &options, text, cap);
}

/* The hint is cut at the room that an error has for it, after the options. */
static int hint_of_memory(const struct gpt_run *r, double limit,
                          struct gpt_err *err)
{
    char text[sizeof(err->hint)];

    advise_memory(r, limit, text, sizeof(text));
    return gpt_hint(err, "%s", text);
}

/* The product of a dry run, and what the plan lacks. */
int gpt_run_print_plan(const struct gpt_run *r, struct gpt_err *err)
{
    const double limit = memory_limit(r);
    char text[512], bytes[32];
    double most;

    GPT_TRY(gpt_estimate_print(&r->plan, r->be, limit, err));
    GPT_TRY(gpt_estimate_largest(&r->plan, r->be, &most, err));
    if (limit <= 0 || most <= limit)
        return GPT_OK;
    advise_memory(r, limit, text, sizeof(text));
    gpt_log_line(" > the plan does not fit: a rank needs %s; %s",
                 gpt_text_bytes(bytes, most), text);
    return GPT_OK;
}

/* Compares the prediction with the memory that there is. The system promises
 * memory of the host freely and kills the process when it is touched; and a
 * device that is too small is better found before minutes of loading. */
int gpt_run_check_memory(const struct gpt_run *r,
                         const struct gpt_memory *memory, struct gpt_err *err)
{
    const double needs = gpt_memory_device(memory, r->be);
    const double has = memory_limit(r);
    int64_t available, total;
    char a[32], b[32];

    if (has <= 0 || needs <= has)
        return GPT_OK;
    r->be->memory(r->be, &available, &total);
    if (r->o->memory_limit > 0)
        gpt_fail(err, GPT_EDEVICE,
                 "the run needs %s of memory a rank, --memory-limit is %s",
                 gpt_text_bytes(a, needs), gpt_text_bytes(b, has));
    else if (r->be->host_memory)
        gpt_fail(err, GPT_EDEVICE,
                 "the run needs %s of memory a rank, this machine has %s "
                 "for each",
                 gpt_text_bytes(a, needs), gpt_text_bytes(b, has));
    else
        gpt_fail(err, GPT_EDEVICE,
                 "%s: out of memory: the run needs %.0f bytes, %lld of %lld "
                 "are free",
                 r->be->name, needs, (long long)available, (long long)total);
    return hint_of_memory(r, has, err);
}

/* Another process may have taken memory since gpt_run_check_memory(): then the
 * hint is of a smaller limit. */
int gpt_run_allocate(struct gpt_run *r, const struct gpt_memory *memory,
                     struct gpt_err *err)
{
    const double needs = gpt_memory_device(memory, r->be);
    int status = gpt_replica_open(r->replica, err);

    if (status != GPT_EDEVICE || own_memory(r) > needs)
        return status;
    /* How much is left is not known to last either: advice for a tenth less
     * than the need is likely to fit. */
    return hint_of_memory(r, 0.9 * needs, err);
}
