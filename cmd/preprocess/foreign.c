/* The table of foreign.h. Names of how the work is divided are skipped, as the
 * output does not depend on it; names of a tokenizer on a hub are answered,
 * since its files have to be there. */
#include "cmd/preprocess/foreign.h"

#define MEGATRON "Megatron-LM"
#define FILES \
    "name its files: --vocab-file and --merge-file, or --tokenizer-model"

const struct gpt_foreign_option gpt_preprocess_foreign[] = {
    {"vocab", MEGATRON, .means = "--vocab-file=%"},
    {"chunk-size", MEGATRON, .answer = "lines are handed out as they come",
     .skip = true},
    {"tokenizer-name-or-path", MEGATRON, .answer = FILES},
    {"pretrained-hf-tokenizer", MEGATRON, .answer = FILES},
    {"tokenizer-name", "Transformers", .answer = FILES},
    {"dataset-name", "Transformers",
     .answer = "data sets are not fetched: --input names files of JSON lines"},
    {"output-dir", "Transformers",
     .answer = "--output-prefix names the files: DIR/PREFIX"},
    {"num-proc", "datasets", .means = "--threads=%"},
};

const size_t gpt_preprocess_n_foreign = GPT_COUNT(gpt_preprocess_foreign);
