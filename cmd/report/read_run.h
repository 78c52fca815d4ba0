/* A run, as a command line names it. */
#ifndef GPT_CMD_REPORT_READ_RUN_H
#define GPT_CMD_REPORT_READ_RUN_H

#include "cmd/report/metrics.h"

/* Reads RUN: a file of metrics, a log of gpt-train or Megatron-LM, or a
 * directory that holds metrics.jsonl; "NAME=RUN" gives it a name. A last line
 * without an end is being written and is left out. GPT_EDATA names file and
 * line of what is neither. */
int gpt_metrics_read(struct gpt_metrics *h, const char *run,
                     struct gpt_err *err) GPT_MUST_USE;

#endif
