/* Event files as TensorBoard reads them: TFRecords of the protocol buffer
 * tensorflow.Event, scalars and texts. Sources: event.proto and summary.proto
 * of tensorflow/core, and the format of TFRecord in TensorFlow's guide. */
#ifndef GPT_CMD_TRAIN_EVENT_FILE_H
#define GPT_CMD_TRAIN_EVENT_FILE_H

#include "base/status.h"

struct gpt_event_file;

/* Begins a new file in a directory, which is made where it is missing. Its name
 * has the time, the host and the process, as TensorBoard expects: it shows all
 * such files of a directory as one run. */
int gpt_event_file_open(struct gpt_event_file **f, const char *dir,
                        struct gpt_err *err) GPT_MUST_USE;
/* One value of a curve. `time`: seconds since 1970. One write(2), so that a
 * reader sees whole events. */
int gpt_event_file_scalar(struct gpt_event_file *f, double time, int64_t step,
                          const char *tag, double value, struct gpt_err *err)
    GPT_MUST_USE;
/* The same of a text, which TensorBoard shows on its page of texts. */
int gpt_event_file_text(struct gpt_event_file *f, double time, int64_t step,
                        const char *tag, const char *text, struct gpt_err *err)
    GPT_MUST_USE;
int gpt_event_file_close(struct gpt_event_file *f, struct gpt_err *err);

/* The name that Megatron-LM gives a field of metrics.jsonl, or the field; and
 * by what its values are multiplied (seconds for milliseconds). `buf` is where
 * a name that is put together is. */
const char *gpt_event_tag(const char *field, char *buf, size_t cap,
                          double *factor);

#endif
