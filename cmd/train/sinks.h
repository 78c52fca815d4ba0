/* Where the numbers of a run go: metrics.jsonl, event files of TensorBoard, the
 * standard input of a command. */
#ifndef GPT_CMD_TRAIN_SINKS_H
#define GPT_CMD_TRAIN_SINKS_H

#include "base/status.h"

/* One number of a line. NaN and infinities are null in JSON, and no value
 * elsewhere. */
struct gpt_metric {
    const char *name;
    double value;
    int decimals; /* of its text; -1: nine digits */
};

struct gpt_sink_options {
    const char *metrics;     /* file, or NULL */
    const char *tensorboard; /* directory, or NULL */
    const char *command;     /* for sh, or NULL */
    const char *samples;     /* file of texts, or NULL */
    int64_t iteration;       /* that the run continues from; INT64_MAX: it adds
                              * lines, and makes no step again */
    bool keep;               /* `metrics` may be another run's: no line of it is
                              * cut off */
};

struct gpt_sinks;

/* Before anything is loaded: GPT_EIO when the file or the directory cannot be
 * written. Makes nothing. `save`: a directory that will be there by then, or
 * NULL. */
int gpt_sinks_check(const struct gpt_sink_options *o, const char *save,
                    struct gpt_err *err) GPT_MUST_USE;
/* Lines of both files after `iteration` are cut off: those steps will be made
 * again. GPT_EEXIST where `keep` forbids that. */
int gpt_sinks_open(struct gpt_sinks **sinks, const struct gpt_sink_options *o,
                   struct gpt_err *err) GPT_MUST_USE;
/* One line of n numbers. A command that does not read, or has ended, is
 * reported once, and loses lines instead of holding up the run. */
int gpt_sinks_write(struct gpt_sinks *sinks, int64_t iteration,
                    const struct gpt_metric *metrics, size_t n,
                    struct gpt_err *err) GPT_MUST_USE;
/* A text that the model wrote: a line of JSON for the file of samples, and a
 * text under a tag for TensorBoard. */
int gpt_sinks_sample(struct gpt_sinks *sinks, int64_t iteration,
                     const char *line, const char *tag, const char *text,
                     struct gpt_err *err) GPT_MUST_USE;
/* Waits until the command has ended. NULL is fine. */
int gpt_sinks_close(struct gpt_sinks *sinks, struct gpt_err *err);

#endif
