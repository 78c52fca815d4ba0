/* The table of foreign.h: what the converter needs to be told, and this one
 * finds in the checkpoint or does not need. */
#include "cmd/reshape/foreign.h"

#define ACCELERATE "accelerate"
#define LLAMA "llama.cpp"
#define MEGATRON "Megatron-LM"

const struct gpt_foreign_option gpt_reshape_foreign[] = {
    {"tokenizer-name", ACCELERATE,
     .answer = "the vocabulary of the input goes along; --vocab-file and "
               "--merge-file name another",
     .skip = true},
    /* Only the script's way to Megatron-LM has this: a checkpoint fits any
     * number of data parallel ranks. */
    {"target-data-parallel-size", ACCELERATE, .means = "--to=megatron"},
    {"megatron-path", ACCELERATE, .answer = "this program needs no Megatron-LM",
     .skip = true},
    {"model-type", MEGATRON, .answer = "only GPT is converted", .skip = true},
    {"loader", MEGATRON, .answer = "the format is recognised by the files",
     .skip = true},
    {"saver", MEGATRON, .means = "--to=megatron"},
    {"max-queue-size", MEGATRON, .answer = "memory is the same for any model",
     .skip = true},
    /* What loaders of other models' files have to be told. */
    {"model-size", MEGATRON, .answer = "the files say it", .skip = true},
    {"checkpoint-type", MEGATRON,
     .answer = "the format is recognised by the files", .skip = true},
    {"tokenizer-model", MEGATRON,
     .answer = "the vocabulary of the input goes along; --vocab-file and "
               "--merge-file name another",
     .skip = true},
    {"position-embedding-type", MEGATRON, .answer = "the files say it",
     .skip = true},
    {"no-checking", MEGATRON,
     .answer = "what an output cannot hold is always named", .flag = true,
     .skip = true},
    /* In Megatron-LM these give the type in which the input is read, and so the
     * output's. */
    {"bf16", MEGATRON, .means = "--target-params-dtype=bf16", .flag = true},
    {"fp16", MEGATRON, .means = "--target-params-dtype=fp16", .flag = true},
    {"target-expert-parallel-size", MEGATRON,
     .answer = "the feed-forward layers are dense here, without experts",
     .skip = true, .only = "1"},
    {"loader-transformer-impl", MEGATRON,
     .answer = "names of tensors are recognised", .skip = true},
    {"load-dir", MEGATRON, .means = "--load-path=%"},
    {"save-dir", MEGATRON, .means = "--save-path=%"},
    /* Its types have other names: f16, f32. */
    {"outtype", LLAMA, .answer = "--target-params-dtype TYPE, with --to gguf"},
    {"outfile", LLAMA, .answer = "--save-path FILE.gguf"},
    /* As gpt-train and gpt-generate call them. */
    {"tensor-model-parallel-size", MEGATRON,
     .means = "--target-tensor-model-parallel-size=%"},
    {"pipeline-model-parallel-size", MEGATRON,
     .means = "--target-pipeline-model-parallel-size=%"},
    {"target-tensor-parallel-size", MEGATRON,
     .means = "--target-tensor-model-parallel-size=%"},
    {"target-pipeline-parallel-size", MEGATRON,
     .means = "--target-pipeline-model-parallel-size=%"},
};

const size_t gpt_reshape_n_foreign = GPT_COUNT(gpt_reshape_foreign);
