/* The table of foreign.h: what the converter needs to be told, and this one
 * finds in the checkpoint or does not need. */
#include "cmd/reshape/foreign.h"

#define ACCELERATE "accelerate"
#define MEGATRON "Megatron-LM"

const struct gpt_foreign_option gpt_reshape_foreign[] = {
    {"tokenizer-name", ACCELERATE,
     .answer = "the vocabulary of the input goes along; --vocab-file and "
               "--merge-file name another",
     .skip = true},
    {"target-data-parallel-size", ACCELERATE,
     .answer = "a checkpoint fits any number of data parallel ranks",
     .skip = true},
    {"use-distributed-optimizer", ACCELERATE,
     .answer = "the optimizer's state is stored for any way of sharing it",
     .flag = true, .skip = true},
    {"megatron-path", ACCELERATE, .answer = "this program needs no Megatron-LM",
     .skip = true},
    {"load-dir", MEGATRON, .means = "--load-path=%"},
    {"save-dir", MEGATRON, .means = "--save-path=%"},
    {"target-tensor-parallel-size", MEGATRON,
     .means = "--target-tensor-model-parallel-size=%"},
    {"target-pipeline-parallel-size", MEGATRON,
     .means = "--target-pipeline-model-parallel-size=%"},
};

const size_t gpt_reshape_n_foreign = GPT_COUNT(gpt_reshape_foreign);
