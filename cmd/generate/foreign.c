/* The table of foreign.h. A name is accepted where it means the same; else the
 * answer says what there is in its place, so that no command line is run in
 * another sense than it was written. */
#include "cmd/generate/foreign.h"

#define TRANSFORMERS "transformers"
#define LLAMA "llama.cpp"
#define VLLM "vLLM"
#define MEGATRON "Megatron-LM"

/* Kinds of choice that there are none of, told in one way. */
#define RULES "tokens are chosen by --temperature, --top-k, --top-p or --greedy"

const struct gpt_foreign_option gpt_generate_foreign[] = {
    {"model", VLLM, .means = "--load=%"},
    {"model-name-or-path", TRANSFORMERS, .means = "--load=%"},
    {"load-dir", MEGATRON, .means = "--load=%"},
    {"max-tokens", VLLM, .means = "--tokens=%"},
    {"n-predict", LLAMA, .means = "--tokens=%"},
    {"length", TRANSFORMERS, .means = "--tokens=%"},
    {"max-length", TRANSFORMERS,
     .answer = "it counts the prompt, too; --tokens counts what is added"},
    {"num-return-sequences", TRANSFORMERS, .means = "--num-samples=%"},
    {"file", LLAMA, .means = "--prompt-file=%"},
    {"temp", LLAMA, .means = "--temperature=%"},
    {"do-sample", TRANSFORMERS,
     .answer = "tokens are drawn by their probability unless --greedy or "
               "--num-beams is given",
     .flag = true, .skip = true},
    {"no-repeat-ngram-size", TRANSFORMERS, .answer = RULES},
    {"ignore-eos", VLLM, .means = "--ignore-eod", .flag = true},
    {"tokenizer", VLLM, .means = "--tokenizer-model=%"},
    {"tokenizer-name", TRANSFORMERS,
     .answer = "name its files: --vocab-file and --merge-file, or "
               "--tokenizer-model"},
    {"sample-output-file", MEGATRON,
     .answer = "texts go to standard output: write > FILE"},
    {"genfile", MEGATRON,
     .answer = "texts go to standard output: write > FILE"},
    {"num-samples-per-prompt", MEGATRON, .means = "--num-samples=%"},
    {"stream", LLAMA, .answer = "a text is written as it grows", .flag = true,
     .skip = true},
};

const size_t gpt_generate_n_foreign = GPT_COUNT(gpt_generate_foreign);
