/* Inputs, targets, positions and masks: Megatron's rules on small rows. */
#include "data/batch.h"

#include "tests/lib/tap.h"

enum { B = 2, T = 6, EOD = 9 };

/* Row 0: two ends, one of them last. Row 1: an end first, then padding. */
static const int32_t tokens[B * (T + 1)] = {1, 2, 9, 9, 3, 4, 9,
                                            9, 5, 6, 7, 8, -1, -1};

struct want {
    const char *what;
    struct gpt_mask_options options;
    int32_t position[B * T], doc_start[B * T];
    float weight[B * T];
};

static const struct want wants[] = {
    {"nothing",
     {EOD, false, false, false, false, 0},
     {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5},
     {0},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}},
    {"--eod-mask-loss",
     {EOD, true, false, false, false, 0},
     {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5},
     {0},
     {1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0, 0}},
    {"--reset-position-ids",
     {EOD, false, true, false, false, 0},
     {0, 1, 2, 0, 0, 1, 0, 0, 1, 2, 3, 4},
     {0},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}},
    {"--reset-attention-mask",
     {EOD, false, false, true, false, 0},
     {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5},
     {0, 0, 0, 3, 4, 4, 0, 1, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}},
    {"all three",
     {EOD, true, true, true, false, 0},
     {0, 1, 2, 0, 0, 1, 0, 0, 1, 2, 3, 4},
     {0, 0, 0, 3, 4, 4, 0, 1, 1, 1, 1, 1},
     {1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0, 0}},
    {"a padding token, which the data have too",
     {EOD, false, false, false, true, 9},
     {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5},
     {0},
     {1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 0, 0}},
    {"all three, no end known",
     {-1, true, true, true, false, 0},
     {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5},
     {0},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}},
};

int main(void)
{
    static const int32_t plain_inputs[] = {1, 2, 9, 9, 3, 4,
                                           9, 5, 6, 7, 8, 0};
    static const int32_t plain_targets[] = {2, 9, 9, 3, 4, 9,
                                            5, 6, 7, 8, 0, 0};

    for (size_t i = 0; i < GPT_COUNT(wants); i++) {
        const struct want *w = &wants[i];
        int32_t input[B * T], target[B * T], position[B * T], start[B * T];
        int32_t inputs[B * T], targets[B * T];
        float weight[B * T];

        memcpy(inputs, plain_inputs, sizeof(inputs));
        memcpy(targets, plain_targets, sizeof(targets));
        if (w->options.has_pad) /* the last of row 1 */
            inputs[11] = targets[10] = targets[11] = w->options.pad;
        gpt_batch_masks(&w->options, tokens, B, T,
                        &(struct gpt_batch_arrays){input, target, position,
                                                   start, weight});
        ok(memcmp(input, inputs, sizeof(input)) == 0, "%s: inputs", w->what);
        ok(memcmp(target, targets, sizeof(target)) == 0, "%s: targets",
           w->what);
        ok(memcmp(position, w->position, sizeof(position)) == 0,
           "%s: positions", w->what);
        ok(memcmp(start, w->doc_start, sizeof(start)) == 0,
           "%s: first visible", w->what);
        ok(memcmp(weight, w->weight, sizeof(weight)) == 0, "%s: weights",
           w->what);
    }
    return tap_done();
}
