/* The table of foreign.h. A name is accepted where it means the same; else the
 * answer says what there is in its place, so that no command line is run in
 * another sense than it was written. */
#include "cmd/generate/foreign.h"

#include "base/foreign.h"

#define TRANSFORMERS "Transformers"
#define VLLM "vLLM"

/* Kinds of choice that there are none of, told in one way. */
#define RULES "tokens are chosen by --temperature, --top-k, --top-p or --greedy"

#define SAYS "the checkpoint says it"

/* Megatron-LM's scripts have to say again what the checkpoint says, and how its
 * programs compute. Its loader refuses what contradicts the checkpoint, so that
 * a script that worked there says nothing new here. */
#define SAID(n) {n, MEGATRON, .answer = SAYS, .skip = true}
#define SAID_FLAG(n)                                                           \
    {n, MEGATRON, .answer = SAYS, .flag = true, .skip = true}
#define SKIP(n, why) {n, MEGATRON, .answer = why, .skip = true}
#define SKIP_FLAG(n, why) {n, MEGATRON, .answer = why, .flag = true,           \
                           .skip = true}
#define ON_ONE_DEVICE "all layers are on one device: --device cuda or cpu"
#define SPEED "--batch-size says how many texts share a step"

const struct gpt_foreign_option gpt_generate_foreign[] = {
    SAID("num-layers"),
    SAID("hidden-size"),
    SAID("ffn-hidden-size"),
    SAID("num-attention-heads"),
    SAID("num-query-groups"),
    SAID("num-experts"),
    SAID("moe-router-topk"),
    SAID("moe-ffn-hidden-size"),
    SAID("moe-layer-freq"),
    SAID("moe-shared-expert-intermediate-size"),
    SAID("moe-router-score-function"),
    SAID_FLAG("moe-router-pre-softmax"),
    SAID_FLAG("moe-grouped-gemm"),
    SAID("moe-token-dispatcher-type"),
    SAID("moe-router-load-balancing-type"),
    SAID("moe-aux-loss-coeff"),
    SAID_FLAG("group-query-attention"),
    SAID("kv-channels"),
    SAID("max-position-embeddings"),
    SAID("position-embedding-type"),
    SAID_FLAG("use-rotary-position-embeddings"),
    SAID_FLAG("no-position-embedding"),
    SAID_FLAG("use-rope-scaling"),
    SAID("rope-scaling-factor"),
    SAID("rotary-base"),
    SAID("rotary-percent"),
    SAID("normalization"),
    SAID("norm-epsilon"),
    SAID("layernorm-epsilon"),
    SAID_FLAG("apply-layernorm-1p"),
    SAID_FLAG("qk-layernorm"),
    SAID_FLAG("add-qkv-bias"),
    SAID_FLAG("swiglu"),
    SAID_FLAG("squared-relu"),
    SAID_FLAG("disable-bias-linear"),
    SAID_FLAG("untie-embeddings-and-output-weights"),
    SAID("make-vocab-size-divisible-by"),
    SAID_FLAG("use-checkpoint-args"),
    /* lengths and batches, of which the defaults there are those of training */
    SKIP("seq-length", "a text ends with --tokens, or the model's positions"),
    SKIP("inference-max-seq-length",
         "a text ends with --tokens, or the model's positions"),
    SKIP("micro-batch-size", SPEED),
    SKIP("global-batch-size", SPEED),
    SKIP("inference-max-requests", SPEED),
    SKIP("max-tokens-to-oom", SPEED),
    {"max-batch-size", MEGATRON, .means = "--batch-size=%"},
    /* how it is computed: the text is the same */
    SKIP_FLAG("recompute", "keys and values of a text are kept"),
    SKIP_FLAG("fp16", "--weights says how matrices are kept"),
    SKIP_FLAG("bf16", "--weights says how matrices are kept"),
    SKIP("attention-dropout", "nothing is dropped out of a text"),
    SKIP("hidden-dropout", "nothing is dropped out of a text"),
    SKIP_FLAG("use-mcore-models", ONE_MODEL),
    SKIP_FLAG("use-legacy-models", ONE_MODEL),
    SKIP_FLAG("use-flash-attn", ONE_MODEL),
    /* fused kernels, which published scripts switch off to be exact, and
     * attention's own choices */
    SKIP_FLAG("no-masked-softmax-fusion", ONE_MODEL),
    SKIP_FLAG("no-bias-gelu-fusion", ONE_MODEL),
    SKIP_FLAG("no-bias-swiglu-fusion", ONE_MODEL),
    SKIP_FLAG("no-bias-dropout-fusion", ONE_MODEL),
    SKIP_FLAG("no-rope-fusion", ONE_MODEL),
    SKIP_FLAG("no-gradient-accumulation-fusion", ONE_MODEL),
    SKIP_FLAG("attention-softmax-in-fp32", ONE_MODEL),
    SKIP_FLAG("flash-decode", ONE_MODEL),
    SKIP("transformer-impl", ONE_MODEL),
    SKIP("attention-backend", ONE_MODEL),
    SKIP_FLAG("no-load-optim", "no state of an optimizer is read"),
    /* what is loaded, and when that is refused */
    SKIP("ckpt-format", "every format is read"),
    SKIP_FLAG("auto-detect-ckpt-format", "every format is read"),
    SKIP("dist-ckpt-strictness", "another model's checkpoint is refused"),
    SKIP_FLAG("exit-on-missing-checkpoint", "without one the program ends"),
    SKIP_FLAG("no-load-rng", "random numbers follow from --seed"),
    {"expert-model-parallel-size", MEGATRON,
     .answer = EXPERT_RANKS, .skip = true, .only = "1"},
    SKIP_FLAG("inference-ckpt-non-strict", ONE_MODEL),
    SKIP_FLAG("te-rng-tracker", "random numbers follow from --seed"),
    SKIP_FLAG("inference-rng-tracker", "random numbers follow from --seed"),
    SKIP_FLAG("deterministic-mode", "random numbers follow from --seed"),
    SKIP_FLAG("sequence-parallel", ONE_MODEL),
    SKIP("cuda-graph-impl", ONE_MODEL),
    SKIP("model-provider", ONE_MODEL),
    SKIP("log-interval", "a text is written as it grows"),
    SKIP("timing-log-level", "--stats-file FILE has the times"),
    SKIP_FLAG("no-use-tokenizer-model-from-checkpoint-args",
              "files that are named replace the checkpoint's vocabulary"),
    {"out-dir", NANOGPT, .means = "--load=%"},
    {"init-from", NANOGPT, .answer = "--load DIR names the model", .skip = true,
     .only = "resume"},
    {"compile", NANOGPT, .answer = ONE_MODEL, .skip = true},
    {"port", MEGATRON, .answer = "--serve HOST:PORT answers OpenAI's API"},
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
    /* Letters mean other things in every program: they are answered, and none
     * is taken. */
    {"m", LLAMA, .answer = "--load FILE names the model"},
    {"n", LLAMA, .answer = "--tokens N is how many are added"},
    {"c", LLAMA, .answer = "--max-positions N is for a text with its prompt"},
    {"t", LLAMA, .answer = "--threads N"},
    {"s", LLAMA, .answer = "--seed N"},
    {"ngl", LLAMA, .answer = ON_ONE_DEVICE},
    {"cnv", LLAMA, .answer = "--interactive --chat"},
    {"n-gpu-layers", LLAMA, .answer = ON_ONE_DEVICE},
    {"conversation", LLAMA, .answer = "--interactive --chat", .flag = true},
    {"no-display-prompt", LLAMA,
     .answer = "the prompt is repeated with --echo alone", .flag = true,
     .skip = true},
    {"jinja", LLAMA, .answer = "every template is read as Jinja's",
     .flag = true, .skip = true},
    {"chat-template-file", LLAMA, .means = "--chat-template=%"},
    {"alias", LLAMA, .means = "--served-model-name=%"},
    {"host", LLAMA, .answer = "--serve HOST:PORT answers OpenAI's API"},
    {"api-key", LLAMA, .answer = "--api-key-file FILE holds keys, a line each"},
    {"dtype", VLLM, .answer = "--weights says how matrices are kept"},
    {"stream", LLAMA, .answer = "a text is written as it grows", .flag = true,
     .skip = true},
};

const size_t gpt_generate_n_foreign = GPT_COUNT(gpt_generate_foreign);

/* Families, and names that are answered alone. */
#define RANKS "gpt-launch --stdio starts the ranks: write it in front"
#define TO_OUTPUT "texts go to standard output: write > FILE"
#define TRAINS "this program trains nothing; gpt-train does"
#define SERVER "--serve HOST:PORT; --batch-size, --max-positions set its size"

const struct gpt_foreign_option gpt_generate_hints[] = {
    HINT("start", NANOGPT,
         "--prompt TEXT; FILE:NAME there is --prompt-file NAME here"),
    HINT("prompts", MEGATRON, "--prompt takes several texts"),
    HINT("prompt-file-num-truncate", MEGATRON,
         "--prompt-file - reads standard input: head -n N FILE | gpt-generate"),
    HINT("return-log-probs", MEGATRON, "--logprobs N, with --jsonl"),
    HINT("output-path", MEGATRON, TO_OUTPUT),
    HINT("output", TRANSFORMERS, TO_OUTPUT),
    HINT("termination-id", MEGATRON,
         "a text ends with the token that ends documents, or with --stop TEXT"),
    HINT("inference-*", MEGATRON, SERVER),
    HINT("enable-chunked-prefill", MEGATRON, SERVER),
    HINT("incoming-requests-*", MEGATRON, SERVER),
    HINT("num-speculative-tokens", MEGATRON,
         "tokens are chosen one after the other, by the model alone"),
    HINT("moe-*", MEGATRON, SAYS),
    HINT("mlp-type", DEEPSPEED, SAYS),
    HINT("num-gpus", DEEPSPEED, RANKS),
    HINT("num-nodes", DEEPSPEED, RANKS),
    TORCHRUN_HINTS(RANKS),
    HINT("tensor-parallel-size", VLLM,
         "--tensor-model-parallel-size; gpt-launch starts the ranks"),
    HINT("lr", MEGATRON, TRAINS),
    HINT("optimizer", MEGATRON, TRAINS),
    HINT("save", MEGATRON, TRAINS),
    HINT("train-iters", MEGATRON, TRAINS),
};

const size_t gpt_generate_n_hints = GPT_COUNT(gpt_generate_hints);
