/* Fewer points that draw the same curve. */
#ifndef GPT_CMD_REPORT_THIN_H
#define GPT_CMD_REPORT_THIN_H

#include "cmd/report/metrics.h"

/* Chooses at most `most` (>= 4) of s->n points: where points are left out, each
 * stretch of the axis keeps its first, last, least and greatest one, which is
 * what a line of that many pixels shows (Jugel et al. 2014, "M4"). index[]
 * (most) gets their places, ascending. Returns their number. */
size_t gpt_thin(const struct gpt_series *s, size_t most, size_t *index);

#endif
