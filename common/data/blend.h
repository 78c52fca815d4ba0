/* Blends: which data set gives which sample, by weights, equal to Megatron's
 * BlendedDataset bit for bit. Start at gpt_blend_build(). */
#ifndef GPT_DATA_BLEND_H
#define GPT_DATA_BLEND_H

#include "base/status.h"

enum { GPT_BLEND_MAX = 32766 }; /* data sets of one blend */

/* The parts of a data path: prefixes, or weights and prefixes in turns. */
struct gpt_blend_parts {
    int64_t n;
    const char **prefix; /* borrowed strings */
    double *weight;      /* NULL when none are given; as given, > 0 */
};

/* GPT_EUSAGE names the argument. */
int gpt_blend_parse(struct gpt_blend_parts *parts, const char *const *args,
                    int64_t n_args, struct gpt_err *err) GPT_MUST_USE;
void gpt_blend_parts_free(struct gpt_blend_parts *parts);

/* The three shares of a split "949,50,1" as fractions: split i covers
 * [edge[i], edge[i + 1]). GPT_EUSAGE when it has no positive number, more
 * than three, or what is no number. */
int gpt_split_parse(double edge[4], const char *text, struct gpt_err *err)
    GPT_MUST_USE;

/* numpy.sum of doubles: pairwise, with eight partial sums. */
double gpt_pairwise_sum(const double *a, int64_t n);
/* w[i] /= sum. Megatron applies it twice to weights that a user gave. */
void gpt_normalize(double *w, int64_t n);

/* Samples that a data set of normalized weight w gives to a blend of `size`,
 * and the number to build, with Megatron's surplus of half a percent. */
int64_t gpt_blend_share(int64_t size, double w);
int64_t gpt_blend_share_built(int64_t size, double w);

struct gpt_blend {
    int64_t size;
    uint16_t *set;    /* (size) number of the data set ... */
    uint32_t *sample; /* (size) ... and of the sample in it */
    int64_t *taken;   /* (n) samples that each data set gives */
};

/* Sample t comes from the data set whose count is furthest below weight * t. */
int gpt_blend_build(struct gpt_blend *blend, const double *weight, int64_t n,
                    int64_t size, struct gpt_err *err) GPT_MUST_USE;
void gpt_blend_free(struct gpt_blend *blend);
/* Bytes of the order of so many samples. */
int64_t gpt_blend_bytes(int64_t size);

#endif
