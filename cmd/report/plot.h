/* Curves in a terminal: dots of braille, eight in a character, or letters. */
#ifndef GPT_CMD_REPORT_PLOT_H
#define GPT_CMD_REPORT_PLOT_H

#include "base/memory.h"

struct gpt_plot;

struct gpt_plot_options {
    int64_t columns, lines; /* of characters, without axes */
    bool ascii;  /* letters instead of braille */
    bool color;  /* each curve in a colour of its own */
    double x[2], y[2]; /* what the borders are; y on the scale of `log` */
    bool log;    /* values are drawn by their logarithms */
};

int gpt_plot_new(struct gpt_plot **plot, const struct gpt_plot_options *o,
                 struct gpt_err *err) GPT_MUST_USE;
void gpt_plot_free(struct gpt_plot *plot);

/* Continues curve number `curve` to a point, with a line from its last one.
 * NaN ends the line: the next point begins another. */
void gpt_plot_to(struct gpt_plot *plot, int curve, double x, double y);

/* Appends the picture with its axes: `lines` + 2 lines of text. */
int gpt_plot_text(const struct gpt_plot *plot, struct gpt_buf *b) GPT_MUST_USE;

/* How a legend shows the curve: "a", or a piece of a line in its colour. */
const char *gpt_plot_sign(const struct gpt_plot_options *o, int curve,
                          char text[24]);

#endif
