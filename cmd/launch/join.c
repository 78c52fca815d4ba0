/* The first steps of a node in the store; see join.h. */
#include "cmd/launch/join.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { JOIN_SECONDS = 600 };

/* Ranks of nodes that count them in different ways would wait for each other
 * until the timeout. A node that the first one does not wait for ends alone: it
 * is of another job, and this one may be running. */
static int compare_shape(struct gpt_store *store,
                         const struct gpt_launcher_options *o,
                         struct gpt_err *err)
{
    long long nnodes = 0, nproc = 0;
    char mine[80];
    void *first = NULL;

    snprintf(mine, sizeof(mine), "%lld %lld", (long long)o->nnodes,
             (long long)o->nproc);
    GPT_TRY(gpt_store_set_once(store, "shape", mine, strlen(mine), &first,
                               err));
    const bool same = strcmp(first, mine) == 0;
    sscanf(first, "%lld %lld", &nnodes, &nproc);
    gpt_free(first);
    if (same)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE,
             "node %lld has --nnodes %lld --nproc-per-node %lld, and the first "
             "one to come --nnodes %lld --nproc-per-node %lld",
             (long long)o->node_rank, (long long)o->nnodes,
             (long long)o->nproc, nnodes, nproc);
    if (o->node_rank < nnodes) {
        struct gpt_err failure = *err, ignored = {0};

        gpt_fail_on_rank(&failure, -1);
        (void)!gpt_store_post_failure(store, &failure, &ignored);
    }
    return gpt_hint(err, "give both to every node with the same values");
}

/* Nodes start in any order: this one waits until node 0 serves. On node 0 the
 * server is this process's own. A launcher that was started for a job that has
 * its node already ends before it starts a rank, and the job goes on. */
int gpt_launch_join(struct gpt_store **store,
                    const struct gpt_launch_env *launch,
                    const struct gpt_launcher_options *o, struct gpt_err *err)
{
    if (o->nproc * o->nnodes == 1)
        return GPT_OK;
    GPT_TRY(gpt_store_open(store, launch, o->node_rank > 0 ? JOIN_SECONDS : 1,
                           err));
    GPT_TRY(gpt_store_take_place(*store, "node", o->node_rank,
                                 "each needs a --node-rank of its own", err));
    return compare_shape(*store, o, err);
}
