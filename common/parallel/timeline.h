/* A pipeline schedule as a picture: time from left to right, a line a stage,
 * each forward and backward with the number of its microbatch. From the spans
 * of gpt_pipeline_plan_simulate(), or of a run. */
#ifndef GPT_PARALLEL_TIMELINE_H
#define GPT_PARALLEL_TIMELINE_H

#include "base/memory.h"
#include "parallel/schedule.h"

struct gpt_timeline {
    const struct gpt_pipeline_plan *plans;          /* a stage each */
    const struct gpt_interval *const *times;   /* as long as the plans */
    int64_t stages, chunks, microbatches;
    double total;  /* seconds: end of the last action */
    double column; /* seconds that a column of text stands for, > 0 */
};

/* "stage 0 |0>>1>>...0<<<<<": forward >, backward <, idle a dot; a letter
 * after the number is the chunk, when there is more than one. What does not fit
 * into a column is left out. Appends; false when memory is short. */
bool gpt_timeline_text(const struct gpt_timeline *t,
                       struct gpt_buf *out) GPT_MUST_USE;

/* The same as a picture of its own: forward blue, backward green, lighter for
 * later chunks; titles name stage, action, microbatch and times. */
bool gpt_timeline_svg(const struct gpt_timeline *t,
                      struct gpt_buf *out) GPT_MUST_USE;

#endif
