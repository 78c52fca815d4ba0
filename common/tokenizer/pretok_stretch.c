/* The stretches of pretok.h, as ends of pieces. */
#include "tokenizer/pretok_vector.h"

size_t gpt_stretch_ends(const struct gpt_stretch *stretches, size_t n,
                        size_t *ends)
{
    return gpt_store_ends(stretches, n, ends);
}
