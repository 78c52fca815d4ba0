/* The table of foreign.h. Names of how the work is divided are skipped, as the
 * output does not depend on it, or it does where nothing is split into
 * sentences; names of a tokenizer on a hub are answered, since its files have
 * to be there. */
#include "cmd/preprocess/foreign.h"

#include "base/foreign.h"

#define DATATROVE "datatrove"
#define SENTENCEPIECE "SentencePiece"
#define SPECIALS                                                               \
    "a tokenizer says which tokens begin a text; --append-eod ends it"
#define WHOLE "texts are stored whole; gpt-train --seq-length cuts samples"
#define FILES \
    "name its files: --vocab-file and --merge-file, or --tokenizer-model"
#define ALL_CORES                                                              \
    "there is nothing to search: --workers 0, the default, takes all cores, " \
    "and any number gives the same files"

const struct gpt_foreign_option gpt_preprocess_foreign[] = {
    {"vocab", MEGATRON, .means = "--vocab-file=%"},
    {"chunk-size", MEGATRON, .answer = "lines are handed out as they come",
     .skip = true},
    /* A script that asks for sentences wants another data set, so that going on
     * would be wrong. The two options that only shape sentences mean nothing
     * alone. */
    {"split-sentences", MEGATRON, .flag = true,
     .answer = "a text is one sequence, as GPT reads it; for sentences, as "
               "BERT reads them, write a list of strings in place of the text"},
    {"keep-newlines", MEGATRON, .answer = "newlines of a text always stay",
     .flag = true, .skip = true},
    {"lang", MEGATRON, .answer = "texts are not split into sentences",
     .skip = true},
    /* These ask for a measurement, and would write no data set. */
    {"find-optimal-num-workers", MEGATRON, .answer = ALL_CORES, .flag = true},
    {"workers-to-check", MEGATRON, .answer = ALL_CORES},
    {"max-documents", MEGATRON, .answer = ALL_CORES},
    {"performance-dir", MEGATRON, .answer = ALL_CORES},
    {"vocab-extra-ids", MEGATRON, .answer = "they are for masks of T5",
     .skip = true},
    {"trust-remote-code", MEGATRON, .answer = "no code of a tokenizer is run",
     .flag = true, .skip = true},
    {"tokenizer-hf-no-use-fast", MEGATRON,
     .answer = "there is one implementation of a tokenizer", .flag = true,
     .skip = true},
    {"tokenizer-name-or-path", MEGATRON, .answer = FILES},
    {"pretrained-hf-tokenizer", MEGATRON, .answer = FILES},
    {"tokenizer-name", "Transformers", .answer = FILES},
    {"dataset-name", "Transformers",
     .answer = "data sets are not fetched: --input names files of JSON lines"},
    {"output-dir", "Transformers",
     .answer = "--output-prefix names the files: DIR/PREFIX"},
    {"jsonl-keys", NEOX,
     .answer = "--json-keys, with blanks between several and not commas"},
    {"num-docs", NEOX,
     .answer = "progress is counted in bytes of the input, which are known"},
    {"ftfy", NEOX, .answer = "texts are taken as they are"},
    {"text-column", "Transformers", .answer = "--json-keys"},
    {"text-key", DATATROVE, .answer = "--json-keys"},
    {"eos-token", DATATROVE,
     .answer = "--append-eod adds that of the tokenizer"},
    {"n-tasks", DATATROVE,
     .answer = "--workers N in one program, --shard I/N in several"},
    {"tokenizer", DATATROVE, .answer = FILES},
    {"bos-id", SENTENCEPIECE, .answer = SPECIALS},
    {"eos-id", SENTENCEPIECE, .answer = SPECIALS},
    {"add-bos", SENTENCEPIECE, .answer = SPECIALS},
    {"append-bos", SENTENCEPIECE, .answer = SPECIALS},
    {"prepend-bos", SENTENCEPIECE, .answer = SPECIALS},
    {"seq-length", MEGATRON, .answer = WHOLE},
    {"concat-tokens", "llm-foundry", .answer = WHOLE},
    {"make-vocab-size-divisible-by", MEGATRON,
     .answer = "it pads the model and not the data: gpt-train takes it"},
    {"multimodal", MEGATRON, .answer = "texts alone are read"},
    {"num-proc", "datasets", .means = "--threads=%"},
};

const size_t gpt_preprocess_n_foreign = GPT_COUNT(gpt_preprocess_foreign);
