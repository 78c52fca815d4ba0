/* What the two tables of foreign.h share beside base/foreign.h: more programs
 * whose names they have, and the reasons that rows of both give. A reason ends
 * a warning or makes a hint: it says what is so here, and nothing of the other
 * program. */
#ifndef GPT_CMD_TRAIN_FOREIGN_WORDS_H
#define GPT_CMD_TRAIN_FOREIGN_WORDS_H

#include "base/foreign.h"

#define OLDER "older versions of Megatron-LM"
#define TRANSFORMERS "Transformers"
#define LITGPT "LitGPT"
#define LLMC "llm.c"

#define FUSED "kernels are fused where that is faster, with the same result"
#define DECODERS "models are decoders, without an encoder"
#define NEXT_TOKEN "the model predicts the next token alone"
#define FLOAT_SUMS "sums and softmax are computed in single precision"
#define NORMAL "weights are drawn from a normal distribution: --init-method-std"
#define NO_CAPACITY "no token is dropped, whatever its expert has to do"
#define DECAYED "matrices have weight decay, biases and norms have none"
#define EVEN                                                                   \
    "layers are divided evenly; --decoder-first-pipeline-num-layers and "      \
    "--decoder-last-pipeline-num-layers change the ends"
#define SHARDING                                                               \
    "--data-parallel-sharding-strategy says what data parallel ranks share"
#define STAGES                                                                 \
    "stage 1 is --use-distributed-optimizer, stage 2 is "                      \
    "--data-parallel-sharding-strategy optim_grads"
#define STEPS                                                                  \
    "--global-batch-size is accumulation steps x --micro-batch-size x data "   \
    "parallel ranks"
#define TOKENS "--train-samples is the number of tokens over --seq-length"
#define TOKENIZER                                                              \
    "give its files: --vocab-file and --merge-file, or --tokenizer-model"
#define READER "one thread of this program reads the data ahead"
#define NOTICED "ranks notice themselves that another one hangs"
#define LOCAL_FILES "data sets and checkpoints are files of this machine"
#define LOCAL_SAVES                                                            \
    "--save-interval N --keep-checkpoints 1 keeps the newest alone"
#define CURVES                                                                 \
    "metrics.jsonl has the figures; --tensorboard-dir and "                    \
    "--log-metrics-command give them to others"
#define TIMES "--timing-log-level 1 logs the times of the parts of a step"

#endif
