/* Pictures of schedules; see timeline.h. Both kinds draw computing only: what
 * is left blank is a wait, which is what a reader looks for. */
#include "parallel/timeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    ROW = 24,    /* points: height of a stage in the SVG */
    MARGIN = 80, /* left of it, for the stage's name */
    WIDTH = 1600,
    FONT = 11,
};

/* True for actions that are drawn. */
static bool computes(const struct gpt_action *a)
{
    return a->kind == GPT_ACT_FORWARD || a->kind == GPT_ACT_BACKWARD;
}

/* ---- text ---- */

/* "12b": microbatch, and chunk when there are several. Letters repeat after 26
 * chunks; the shade of a block and its title in the SVG still tell chunks
 * apart. */
static int label(const struct gpt_timeline *t, const struct gpt_action *a,
                 char text[24])
{
    if (t->chunks == 1)
        return snprintf(text, 24, "%d", a->microbatch);
    return snprintf(text, 24, "%d%c", a->microbatch, 'a' + a->chunk % 26);
}

/* Both ends are rounded from the absolute time. Blocks that touch therefore
 * share an edge, and rounding errors do not add up along the row. A block too
 * short for a column is not drawn. */
static void draw(const struct gpt_timeline *t, const struct gpt_action *a,
                 const struct gpt_interval *span, char *line)
{
    char text[24];
    int64_t begin = llround(span->begin / t->column);
    int64_t end = llround(span->end / t->column);
    int64_t n = label(t, a, text);

    if (end <= begin)
        return;
    memset(line + begin, a->kind == GPT_ACT_FORWARD ? '>' : '<',
           (size_t)(end - begin));
    memcpy(line + begin, text, (size_t)(n < end - begin ? n : end - begin));
}

/* The row is written into reserved memory and counted afterwards. No action
 * ends after t->total, so no block leaves the row. */
bool gpt_timeline_text(const struct gpt_timeline *t, struct gpt_buf *out)
{
    size_t columns = (size_t)llround(t->total / t->column);

    for (int64_t s = 0; s < t->stages; s++) {
        const struct gpt_pipeline_plan *p = &t->plans[s];

        if (gpt_buf_printf(out, "stage %-3lld|", (long long)s) != GPT_OK ||
            gpt_buf_reserve(out, columns + 2) != GPT_OK)
            return false;
        char *line = out->data + out->len;
        memset(line, '.', columns);
        for (int64_t i = 0; i < p->n; i++) {
            if (computes(&p->actions[i]))
                draw(t, &p->actions[i], &t->times[s][i], line);
        }
        out->len += columns;
        if (gpt_buf_add(out, "|\n", 2) != GPT_OK)
            return false;
    }
    return true;
}

/* ---- SVG ---- */

static int svg_begin(const struct gpt_timeline *t, struct gpt_buf *out)
{
    int64_t height = ROW * (t->stages + 1);

    return gpt_buf_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
        "height=\"%lld\" font-family=\"sans-serif\" font-size=\"%d\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        MARGIN + WIDTH + ROW, (long long)height, FONT);
}

static int svg_block(const struct gpt_timeline *t, int64_t stage,
                     const struct gpt_action *a,
                     const struct gpt_interval *span, struct gpt_buf *out)
{
    double scale = WIDTH / t->total;
    double x = MARGIN + span->begin * scale;
    double width = (span->end - span->begin) * scale;
    bool forward = a->kind == GPT_ACT_FORWARD;
    /* chunks from 65 % to 85 % lightness */
    double light = 65 + 20.0 * a->chunk / (double)t->chunks;
    char text[24];
    int letters = label(t, a, text);

    /* A letter is about half as wide as it is high. A number that does not fit
     * is left to the title, which viewers show under the pointer. */
    if (width * 2 < letters * FONT)
        text[0] = '\0';
    return gpt_buf_printf(
        out,
        "<g><title>stage %lld: %s of microbatch %d, chunk %d: %.6g to %.6g "
        "s</title><rect x=\"%.2f\" y=\"%lld\" width=\"%.2f\" height=\"%d\" "
        "fill=\"hsl(%d,60%%,%.0f%%)\" stroke=\"white\" stroke-width=\"0.5\"/>"
        "<text x=\"%.2f\" y=\"%lld\" text-anchor=\"middle\">%s</text></g>\n",
        (long long)stage, gpt_action_name(a->kind), a->microbatch, a->chunk,
        span->begin, span->end, x, (long long)(ROW / 2 + ROW * stage), width,
        ROW - 4, forward ? 215 : 130, light, x + width / 2,
        (long long)(ROW / 2 + ROW * stage + ROW / 2 + 2), text);
}

bool gpt_timeline_svg(const struct gpt_timeline *t, struct gpt_buf *out)
{
    if (svg_begin(t, out) != GPT_OK)
        return false;
    for (int64_t s = 0; s < t->stages; s++) {
        const struct gpt_pipeline_plan *p = &t->plans[s];

        if (gpt_buf_printf(out, "<text x=\"8\" y=\"%lld\">stage %lld</text>\n",
                           (long long)(ROW / 2 + ROW * s + ROW / 2 + 2),
                           (long long)s) != GPT_OK)
            return false;
        for (int64_t i = 0; i < p->n; i++) {
            if (computes(&p->actions[i]) &&
                svg_block(t, s, &p->actions[i], &t->times[s][i], out) != GPT_OK)
                return false;
        }
    }
    return gpt_buf_printf(out, "</svg>\n") == GPT_OK;
}
