/* Lists of rotary factors as texts; see factors.h. */
#include "model/factors.h"

#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t gpt_factors_length(const double *factors)
{
    int64_t n = 0;

    while (n < GPT_ROTARY_PAIRS && factors[n] > 0)
        n++;
    return n;
}

/* A list may have hundreds of letters: its beginning shows which one it is. */
static int refuse(const char *text, struct gpt_err *err)
{
    return gpt_fail(err, GPT_EUSAGE,
                    "'%.200s' is no list of factors: it must be 1 to %d "
                    "numbers above 0 and up to 1e6, with a comma between two",
                    text, GPT_ROTARY_PAIRS);
}

int gpt_factors_parse(double *factors, const char *text, struct gpt_err *err)
{
    const char *at = text;
    int64_t n = 0;

    memset(factors, 0, GPT_ROTARY_PAIRS * sizeof(*factors));
    for (;;) {
        const size_t length = strcspn(at, ",");
        char one[40];

        if (n == GPT_ROTARY_PAIRS || length >= sizeof(one))
            return refuse(text, err);
        snprintf(one, sizeof(one), "%.*s", (int)length, at);
        if (!gpt_parse_real(one, &factors[n]) ||
            !(factors[n] > 0 && factors[n] <= 1e6))
            return refuse(text, err);
        n++;
        if (!at[length])
            return GPT_OK;
        at += length + 1;
    }
}

/* Every double that was typed with few digits is printed with few. */
int gpt_factors_print(struct gpt_buf *b, const double *factors)
{
    const int64_t n = gpt_factors_length(factors);

    for (int64_t i = 0; i < n; i++) {
        char text[40];

        for (int digits = 1; digits <= 17; digits++) {
            snprintf(text, sizeof(text), "%.*g", digits, factors[i]);
            if (strtod(text, NULL) == factors[i])
                break;
        }
        if (gpt_buf_printf(b, "%s%s", i > 0 ? "," : "", text) != GPT_OK)
            return GPT_EFAIL;
    }
    return GPT_OK;
}
