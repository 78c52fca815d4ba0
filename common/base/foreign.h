/* What tables of foreign options share (struct gpt_foreign_option): names of
 * the programs that they are of, answers that several programs give, and rows.
 * For the files of these tables alone. */
#ifndef GPT_BASE_FOREIGN_H
#define GPT_BASE_FOREIGN_H

#include "base/options.h"

#define ACCELERATE "accelerate"
#define DEEPSPEED "DeepSpeed"
#define LLAMA "llama.cpp"
#define MEGATRON "Megatron-LM"
#define NANOGPT "nanoGPT"
#define NEOX "GPT-NeoX"
#define TORCHRUN "torchrun"

#define EXPERT_RANKS                                                           \
    "tensor parallel ranks share the experts, whole ones each"
#define ONE_MODEL "there is one implementation of the model"

/* A name that is answered alone. */
#define HINT(n, from, text) {.name = (n), .source = (from), .answer = (text)}

/* torchrun's names in front of a program that is started without it. */
#define TORCHRUN_HINTS(text)                                                   \
    HINT("nproc-per-node", TORCHRUN, text),                                    \
    HINT("nnodes", TORCHRUN, text),                                            \
    HINT("node-rank", TORCHRUN, text),                                         \
    HINT("master-addr", TORCHRUN, text),                                       \
    HINT("master-port", TORCHRUN, text),                                       \
    HINT("standalone", TORCHRUN, text)

#endif
