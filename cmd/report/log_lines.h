/* Logs of training, by gpt-train and by Megatron-LM. */
#ifndef GPT_CMD_REPORT_LOG_LINES_H
#define GPT_CMD_REPORT_LOG_LINES_H

#include "cmd/report/metrics.h"

/* The lines of metrics in a log, text[0..len); others are skipped. GPT_EDATA
 * when there is none in a text that is not empty. */
int gpt_metrics_read_log(struct gpt_metrics *h, const char *text, size_t len,
                         struct gpt_err *err) GPT_MUST_USE;

#endif
