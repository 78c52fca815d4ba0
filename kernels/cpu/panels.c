/* Weights in panels (quant.h), where products read them so: see
 * cpu_quant_arrange(). */
#include "cpu/cpu.h"
#include "cpu/few/few.h"

#include <string.h>

/* True when products take the matrix in panels. What they do not take so stays
 * in rows: see few_road(). */
static bool has_panels(const struct gpt_quant *w, int64_t k)
{
    if (w->type == GPT_F32)
        return cpu_float_panels;
    const enum cpu_form form = cpu_form_of(w);

    return cpu_few && cpu_few->road[form] && cpu_few->road[form]->panels &&
           (w->type == GPT_BF16 || w->group || k <= FEW_MOST_BYTES);
}

/* The last panel is whole, whatever is left of n: the rows that it lacks are
 * zeros, and their products are not stored. */
size_t cpu_quant_bytes(const struct gpt_quant *w, int64_t n, int64_t k)
{
    if (!has_panels(w, k))
        return 0;
    const int64_t side = w->type == GPT_F32 ? cpu_isa->nr : CPU_PANEL;

    return (size_t)(gpt_ceil_div(n, side) * cpu_panel_bytes(w, k));
}

/* Copies row `row` of the matrix into its panel, which holds zeros: the values,
 * and the scales of its groups. */
static void put_row(char *to, const struct gpt_quant *w, int64_t row,
                    const char *values, const uint16_t *scales, int64_t k)
{
    const int64_t bytes = w->type == GPT_BF16 ? 2 * k : k;
    const int64_t part = w->group ? CPU_GROUP : bytes;

    for (int64_t begin = 0; begin < bytes; begin += part) {
        const int64_t end = gpt_min_i64(begin + part, bytes);
        char *step = to + cpu_panel_at(w, row, begin, k);

        for (int64_t at = begin; at < end; at += 4, step += CPU_STEP) {
            memcpy(step, values + at, (size_t)gpt_min_i64(end - at, 4));
            for (int64_t i = 0; i < 4; i++)
                step[i] ^= cpu_panel_turn(w, at + i);
        }
    }
    for (int64_t g = 0; w->group && g * CPU_GROUP < k; g++)
        memcpy(to + cpu_panel_scale_at(w, row, g, k), &scales[g],
               sizeof(*scales));
}

/* Arranges floats as panels with a tile's columns. */
static void arrange_floats(float *to, const float *from, int64_t rows,
                           int64_t k)
{
    const int64_t nr = cpu_isa->nr;

#pragma omp parallel for schedule(static) if (cpu_worth_threads(rows * k))
    for (int64_t i = 0; i < rows; i += nr)
        cpu_isa->pack_b(to + i * k, from + i * k, 1, k, k,
                        gpt_min_i64(rows - i, nr));
}

/* `first` begins a panel. All of a panel is cleared first: rows that are not
 * there, and what fills the last step of k, add nothing to a sum. */
void cpu_quant_arrange(void *to, const struct gpt_quant *w, int64_t first,
                       int64_t rows, int64_t k)
{
    if (w->type == GPT_F32) {
        arrange_floats((float *)to + first * k, w->values, rows, k);
        return;
    }
    const int64_t panel = cpu_panel_bytes(w, k);
    const int64_t bytes = w->type == GPT_BF16 ? 2 * k : k;
    const int64_t groups = w->group ? gpt_ceil_div(k, CPU_GROUP) : 0;

    memset((char *)to + first / CPU_PANEL * panel, 0,
           (size_t)(gpt_ceil_div(rows, CPU_PANEL) * panel));
    for (int64_t i = 0; i < rows; i++)
        put_row(to, w, first + i, (const char *)w->values + i * bytes,
                groups ? w->scales + i * groups : NULL, k);
}
