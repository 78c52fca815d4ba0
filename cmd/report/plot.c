/* Drawing in characters; see plot.h.
 *
 * A dot is a pixel: two by four of them are a character of braille, one is a
 * letter. A character has one colour, so that of curves which cross in it the
 * last one gives the colour and all of them the dots. Values beyond the borders
 * are cut by set_dot(), which every line passes. Start at gpt_plot_to(). */
#include "cmd/report/plot.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LABEL = 11, COLOURS = 6 };

struct cell {
    uint8_t dots;  /* of braille, in the order of Unicode */
    int16_t curve; /* the last that was drawn here, -1: none */
};

struct gpt_plot {
    struct gpt_plot_options o;
    int64_t across, down; /* dots of a character */
    int pen;              /* the curve that `at` belongs to, -1: none */
    int64_t at[2];        /* the pen, in dots; y downwards */
    struct cell *cells;   /* (lines, columns) */
};

/* Cells know that nothing was drawn in them by a curve of -1: curve 0 is
 * one. */
int gpt_plot_new(struct gpt_plot **plot, const struct gpt_plot_options *o,
                 struct gpt_err *err)
{
    struct gpt_plot *p = NULL;

    assert(o->columns > 0 && o->lines > 0);
    *plot = NULL;
    GPT_TRY(gpt_new(&p, 1, sizeof(*p), "a plot", err));
    *p = (struct gpt_plot){.o = *o, .across = o->ascii ? 1 : 2,
                           .down = o->ascii ? 1 : 4, .pen = -1};
    int status = gpt_new(&p->cells, (size_t)(o->columns * o->lines),
                         sizeof(*p->cells), "a plot", err);
    if (status != GPT_OK) {
        gpt_free(p);
        return status;
    }
    for (int64_t i = 0; i < o->columns * o->lines; i++)
        p->cells[i].curve = -1;
    *plot = p;
    return GPT_OK;
}

void gpt_plot_free(struct gpt_plot *plot)
{
    if (plot)
        gpt_free(plot->cells);
    gpt_free(plot);
}

/* Unicode numbers the dots of braille by columns, but the lowest row last. */
static uint8_t braille_dot(int64_t x, int64_t y)
{
    static const uint8_t dots[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

    return dots[y][x];
}

/* Lines run out of the picture where values are beyond its borders. */
static void set_dot(struct gpt_plot *p, int curve, int64_t x, int64_t y)
{
    if (x < 0 || y < 0 || x >= p->o.columns * p->across ||
        y >= p->o.lines * p->down)
        return;
    struct cell *cell =
        &p->cells[y / p->down * p->o.columns + x / p->across];

    cell->dots |= braille_dot(x % p->across, y % p->down);
    cell->curve = (int16_t)curve;
}

/* One dot in each step of the longer side. */
static void draw_line(struct gpt_plot *p, int curve, const int64_t a[2],
                      const int64_t b[2])
{
    const int64_t dx = b[0] - a[0], dy = b[1] - a[1];
    const int64_t wide = dx < 0 ? -dx : dx, high = dy < 0 ? -dy : dy;
    const int64_t n = wide > high ? wide : high;

    for (int64_t i = 0; i <= n; i++)
        set_dot(p, curve,
                a[0] + (int64_t)lround((double)(dx * i) / (double)(n ? n : 1)),
                a[1] + (int64_t)lround((double)(dy * i) / (double)(n ? n : 1)));
}

/* A range of one value is drawn in the middle; what is no number nowhere. */
static double along(const double range[2], double v)
{
    /* halves, as the difference of two numbers may be none */
    return range[1] > range[0]
               ? (v / 2 - range[0] / 2) / (range[1] / 2 - range[0] / 2)
               : isfinite(v) ? 0.5 : (double)NAN;
}

/* A value far beyond the borders would make draw_line() count dots that are
 * not seen: it is taken one picture's height away. */
void gpt_plot_to(struct gpt_plot *p, int curve, double x, double y)
{
    const double right = along(p->o.x, x);
    const double up = along(p->o.y, p->o.log ? log10(y) : y);

    if (!isfinite(right) || !isfinite(up)) {
        p->pen = -1;
        return;
    }
    const int64_t at[2] = {
        (int64_t)lround(right * (double)(p->o.columns * p->across - 1)),
        (int64_t)lround((1 - fmin(fmax(up, -1), 2)) *
                        (double)(p->o.lines * p->down - 1))};

    draw_line(p, curve, p->pen == curve ? p->at : at, at);
    memcpy(p->at, at, sizeof(at));
    p->pen = curve;
}

/* ---- text ---- */

/* The terminal's own colours, which its user has made legible. */
static const char *const colours[COLOURS] = {
    "\033[34m", "\033[31m", "\033[32m", "\033[35m", "\033[33m", "\033[36m"};

/* In UTF-8 a sign of braille is three bytes. An empty one is a blank, since
 * many fonts draw rings for dots that are not set. */
static int add_braille(struct gpt_buf *b, uint8_t dots)
{
    const int code = 0x2800 + dots;
    const char text[3] = {(char)(0xE0 | code >> 12),
                          (char)(0x80 | (code >> 6 & 0x3F)),
                          (char)(0x80 | (code & 0x3F))};

    return dots ? gpt_buf_add(b, text, sizeof(text)) : gpt_buf_add(b, " ", 1);
}

/* The colour is set for each character, and reset after it: a line that is cut,
 * by head or a narrow terminal, colours nothing else. */
static int add_cell(const struct gpt_plot *p, const struct cell *cell,
                    struct gpt_buf *b)
{
    const bool tint = p->o.color && cell->curve >= 0;

    if (tint)
        GPT_TRY(gpt_buf_printf(b, "%s", colours[cell->curve % COLOURS]));
    if (p->o.ascii)
        GPT_TRY(gpt_buf_printf(
            b, "%c", cell->curve < 0 ? ' ' : 'a' + cell->curve % 26));
    else
        GPT_TRY(add_braille(b, cell->dots));
    return tint ? gpt_buf_printf(b, "\033[0m") : GPT_OK;
}

/* The value in the middle of a line of characters. */
static void label_value(const struct gpt_plot *p, int64_t line, char text[32])
{
    const double t = p->o.lines > 1
                         ? (double)line / (double)(p->o.lines - 1)
                         : 0.5;
    const double v = (1 - t) * p->o.y[1] + t * p->o.y[0];

    snprintf(text, 32, "%.5g", p->o.log ? pow(10, v) : v);
}

/* Every fourth line has a value, as more would hide the curve. The axis is made
 * of ASCII: it is read by people whose terminal has no braille, too. */
int gpt_plot_text(const struct gpt_plot *p, struct gpt_buf *b)
{
    char left[32], right[32];

    for (int64_t line = 0; line < p->o.lines; line++) {
        const bool labelled =
            line % 4 == 0 || line == p->o.lines - 1;

        label_value(p, line, left);
        GPT_TRY(gpt_buf_printf(b, "%*s %s", LABEL, labelled ? left : "",
                               labelled ? "+" : "|"));
        for (int64_t i = 0; i < p->o.columns; i++)
            GPT_TRY(add_cell(p, &p->cells[line * p->o.columns + i], b));
        GPT_TRY(gpt_buf_printf(b, "\n"));
    }
    snprintf(left, sizeof(left), "%.10g", p->o.x[0]);
    snprintf(right, sizeof(right), "%.10g", p->o.x[1]);
    GPT_TRY(gpt_buf_printf(b, "%*s +", LABEL, ""));
    for (int64_t i = 0; i < p->o.columns; i++)
        GPT_TRY(gpt_buf_printf(b, "-"));
    const int64_t gap = p->o.columns - (int64_t)strlen(left);
    return gpt_buf_printf(b, "\n%*s  %s%*s\n", LABEL, "", left,
                          (int)(gap > 0 ? gap : 1), right);
}

/* Three dots of braille are a piece of a line, which shows the colour well. */
const char *gpt_plot_sign(const struct gpt_plot_options *o, int curve,
                          char text[24])
{
    const char *sign = o->ascii ? (char[]){(char)('a' + curve % 26), '\0'}
                                : "\u2801\u2802\u2804";

    if (o->color)
        snprintf(text, 24, "%s%s\033[0m", colours[curve % COLOURS], sign);
    else
        snprintf(text, 24, "%s", sign);
    return text;
}
