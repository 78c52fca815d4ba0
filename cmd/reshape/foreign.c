/* The table of foreign.h: what the converter needs to be told, and this one
 * finds in the checkpoint or does not need. */
#include "cmd/reshape/foreign.h"

#include "base/foreign.h"

#define TRANSFORMERS "Transformers"

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
    {"target-expert-parallel-size", MEGATRON,
     .means = "--target-expert-model-parallel-size=%"},
};

const size_t gpt_reshape_n_foreign = GPT_COUNT(gpt_reshape_foreign);

/* Names that are answered alone. */
#define FROM "--load-path FILE or DIR, in any format"
#define INTO "--save-path DIR, with --to and the format"
#define SAYS "the files say it"
#define LOCAL "models are files of this machine: --load-path DIR"
#define ALONG                                                                  \
    "the vocabulary of the input goes along; --vocab-file and --merge-file "   \
    "name another"

const struct gpt_foreign_option gpt_reshape_hints[] = {
    HINT("load", MEGATRON, FROM),
    HINT("save", MEGATRON, INTO),
    HINT("input-dir", NEOX, FROM),
    HINT("output-dir", NEOX, INTO),
    HINT("input-folder", DEEPSPEED, FROM),
    HINT("output-folder", DEEPSPEED, INTO),
    HINT("model-path", TRANSFORMERS, FROM),
    HINT("model", TRANSFORMERS, FROM),
    HINT("config-file", NEOX, SAYS),
    HINT("architecture", NEOX, SAYS),
    HINT("pad-token-id", NEOX, SAYS),
    HINT("vocab-is-hf-tokenizer", NEOX, ALONG),
    HINT("no-save-tokenizer", NEOX, ALONG),
    HINT("tokenizer-type", MEGATRON, ALONG),
    HINT("precision", NEOX, "--target-params-dtype TYPE"),
    HINT("target-tp", DEEPSPEED, "--target-tensor-model-parallel-size"),
    HINT("target-pp", DEEPSPEED, "--target-pipeline-model-parallel-size"),
    HINT("target-tp-size", MEGATRON, "--target-tensor-model-parallel-size"),
    HINT("target-pp-size", MEGATRON, "--target-pipeline-model-parallel-size"),
    HINT("tp", NEOX, "--target-tensor-model-parallel-size"),
    HINT("pp", NEOX, "--target-pipeline-model-parallel-size"),
    HINT("pipeline-parallel", NEOX, SAYS),
    HINT("num-output-shards", NEOX, "--target-tensor-model-parallel-size"),
    HINT("for-release", DEEPSPEED, "--to megatron; training goes on from it"),
    HINT("to-hf-ckpt", DEEPSPEED, "--to hf"),
    HINT("hf-ckpt-dir", DEEPSPEED, FROM),
    HINT("hf-ckpt-num-shards", DEEPSPEED, SAYS),
    HINT("load-mode", DEEPSPEED, SAYS),
    HINT("hf-model-name", NEOX, LOCAL),
    HINT("cache-dir", TRANSFORMERS, LOCAL),
    HINT("revision", TRANSFORMERS, LOCAL),
    HINT("trust-remote-code", TRANSFORMERS, "this program is no Python"),
};

const size_t gpt_reshape_n_hints = GPT_COUNT(gpt_reshape_hints);
