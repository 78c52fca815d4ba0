/* How layers are cut into the stages of a pipeline: the options of the programs
 * that train and that convert, with Megatron-LM's names. */
#ifndef GPT_PARALLEL_STAGE_OPTIONS_H
#define GPT_PARALLEL_STAGE_OPTIONS_H

#include "base/options.h"
#include "parallel/topology.h"

struct gpt_stage_layers {
    int64_t layers_per_chunk, chunks;  /* one of them; 0: not given */
    int64_t first_layers, last_layers; /* of an uneven stage; 0: even */
};

/* The virtual stages of each of `stages` ranks, 0 where none are asked for.
 * False where so many layers do not divide into them. */
bool gpt_stage_layers_count(const struct gpt_stage_layers *o, int64_t layers,
                            int64_t stages, int64_t *chunks);

/* What the rows say must go together; GPT_EUSAGE names the options. */
int gpt_stage_layers_check(const struct gpt_stage_layers *o,
                           struct gpt_err *err) GPT_MUST_USE;

/* The rows; `member`, of the program's options, is the struct. */
#define GPT_STAGE_LAYERS_OPTIONS(type, member)                                 \
    {.kind = GPT_OPT_INT, .name = "num-layers-per-virtual-pipeline-stage",     \
     .arg = "N", .def = "0", .offset = offsetof(type, member.layers_per_chunk),\
     .min = 0, .max = 65536,                                                   \
     .help = "interleave: a rank gets several stages of N layers, 0 = one",    \
     .one_of = "virtual stages"},                                              \
    {.kind = GPT_OPT_INT, .name = "num-virtual-stages-per-pipeline-rank",      \
     .arg = "N", .def = "0", .offset = offsetof(type, member.chunks),          \
     .min = 0, .max = GPT_MAX_CHUNKS,                                          \
     .help = "the same by their number, 0 = one",                              \
     .one_of = "virtual stages"},                                              \
    {.kind = GPT_OPT_INT, .name = "decoder-first-pipeline-num-layers",         \
     .arg = "N", .def = "0", .offset = offsetof(type, member.first_layers),    \
     .min = 0, .max = 65536,                                                   \
     .help = "layers of the first stage, 0 = as the others"},                  \
    {.kind = GPT_OPT_INT, .name = "decoder-last-pipeline-num-layers",          \
     .arg = "N", .def = "0", .offset = offsetof(type, member.last_layers),     \
     .min = 0, .max = 65536,                                                   \
     .help = "layers of the last stage, 0 = as the others"}

#endif
