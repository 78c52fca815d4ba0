/* Thinning of curves; see thin.h. Every n-th point would lose the spikes for
 * which people look, and means would invent values that the run never had.
 * Stretches have equal numbers of points rather than equal widths: lines of
 * metrics are evenly spaced but where a run changed its log interval. */
#include "cmd/report/thin.h"

#include <math.h>

/* Places of a stretch [from, end): first, least, greatest, last, each once and
 * ascending. NaN is neither least nor greatest; a gap that begins or ends a
 * stretch is kept as its first or last point. */
static size_t keep_stretch(const struct gpt_series *s, size_t from, size_t end,
                           size_t *index)
{
    size_t least = from, greatest = from, n = 0;

    for (size_t i = from; i < end; i++) {
        if (s->value[i] < s->value[least] || isnan(s->value[least]))
            least = i;
        if (s->value[i] > s->value[greatest] || isnan(s->value[greatest]))
            greatest = i;
    }
    const size_t lower = least < greatest ? least : greatest;
    const size_t upper = least < greatest ? greatest : least;
    const size_t places[] = {from, lower, upper, end - 1};

    for (size_t i = 0; i < GPT_COUNT(places); i++)
        if (n == 0 || places[i] > index[n - 1])
            index[n++] = places[i];
    return n;
}

/* Stretches are as equal as whole numbers allow: none is empty, as there are
 * more points than stretches. */
size_t gpt_thin(const struct gpt_series *s, size_t most, size_t *index)
{
    const size_t stretches = most / 4;
    size_t n = 0;

    if (s->n <= most) {
        for (size_t i = 0; i < s->n; i++)
            index[i] = i;
        return s->n;
    }
    for (size_t k = 0; k < stretches; k++) {
        const size_t from = s->n * k / stretches;
        const size_t end = s->n * (k + 1) / stretches;

        n += keep_stretch(s, from, end, index + n);
    }
    return n;
}
