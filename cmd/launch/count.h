/* How many nodes a job has, and how many processes a node gets. */
#ifndef GPT_CMD_LAUNCH_COUNT_H
#define GPT_CMD_LAUNCH_COUNT_H

#include "base/status.h"

/* Processes of this node from "8", "gpu", "cpu" or "auto", into *n. */
int gpt_launcher_count(int64_t *n, const char *text, struct gpt_err *err)
    GPT_MUST_USE;

/* Nodes from "2" or, as torchrun writes it, "2:2", into *n. */
int gpt_launcher_nodes(int64_t *n, const char *text, struct gpt_err *err)
    GPT_MUST_USE;

#endif
