/* How a node comes to the others of its job. */
#ifndef GPT_CMD_LAUNCH_JOIN_H
#define GPT_CMD_LAUNCH_JOIN_H

#include "cmd/launch/ranks.h"
#include "parallel/store.h"

/* Opens the store of node 0, waiting for it, and takes this node's place there;
 * *store stays NULL for a job of one rank. GPT_EUSAGE where the place is taken,
 * or where the nodes count their ranks in different ways. The caller closes
 * *store, also after a failure. */
int gpt_launch_join(struct gpt_store **store,
                    const struct gpt_launch_env *launch,
                    const struct gpt_launcher_options *o,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
