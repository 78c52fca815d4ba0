/* The second table of foreign.h: names of programs whose scripts are not taken
 * as they are. Each is answered with the nearest option of this program and
 * what differs; none is translated, so that a run is never another one than its
 * script says. */
#include "cmd/train/foreign.h"

#define MEGATRON "Megatron-LM"
#define OLDER "older versions of Megatron-LM"
#define NEOX "GPT-NeoX"
#define DEEPSPEED "DeepSpeed"
#define TRANSFORMERS "Transformers"
#define LITGPT "LitGPT"
#define LLMC "llm.c"

#define HINT(n, from, text) {.name = (n), .source = (from), .answer = (text)}

/* Answers that several names share. */
#define RANKS                                                                  \
    "gpt-launch starts the ranks, once on each node: --nproc-per-node, "       \
    "--nnodes, --node-rank, --master-addr"
#define SUMS "sums of gradients are of single precision, whatever the ranks are"
#define STEPS                                                                  \
    "--global-batch-size is accumulation steps x --micro-batch-size x data "   \
    "parallel ranks"
#define STAGES                                                                 \
    "stage 1 is --use-distributed-optimizer, stage 2 is "                      \
    "--data-parallel-sharding-strategy optim_grads"
#define BUCKETS "ranks sum and gather layer by layer; there is no size to set"
#define PRECISION "write --bf16 or --fp16; without both, numbers are float"
#define CURVES                                                                 \
    "metrics.jsonl has the figures; --tensorboard-dir and "                    \
    "--log-metrics-command give them to others"
#define TIMES "--timing-log-level 1 logs the times of the parts of a step"
#define NORMS "each line of the log has the norm of the whole gradient alone"
#define FUSED "kernels are fused where that is faster, with the same result"
#define ADAPTERS "all weights are trained"
#define DENSE "the feed-forward layers are dense here, without experts"
#define OWN_WEIGHTS "each layer has weights of its own"
#define WINDOW                                                                 \
    "attention is dense, or sees the last positions: --window-size, "          \
    "--window-attn-skip-freq"
#define RECOMPUTE                                                              \
    "--recompute-granularity full keeps the inputs of layers, on the device"
#define WEIGHTED                                                               \
    "--train-data-path, --valid-data-path and --test-data-path take weights "  \
    "and prefixes in turns: 0.7 A 0.3 B"
#define HUB "nothing is sent; gpt-reshape writes the format of Hugging Face"
#define WHEN_SAVED "--save-interval N saves every N steps and at the end"
#define WHEN_EVALUATED "--eval-interval N validates every N steps"
#define WHEN_LOGGED "--log-interval N logs every N steps, 1 each of them"
#define NO_COPY "data sets are read where they are, and not copied"
#define MODELS                                                                 \
    "--config names a preset, or --num-layers, --hidden-size and so on give "  \
    "the shape"
#define TOKENIZER                                                              \
    "give its files: --vocab-file and --merge-file, or --tokenizer-model"
#define SAME_EVERY_TIME "a run gives the same losses every time"
#define PACKED "documents fill samples one after the other, without padding"
#define FFN "--ffn-hidden-size, which a gate does not make narrower"
#define POSITIONS "positions are learned, rotary or ALiBi"
#define VALIDATED "--eval-iters, in batches of --global-batch-size"
#define SAME_PRECISION "a validation has the precision of training"
#define DATA "--data-path, of a data set by gpt-preprocess"
#define SHARDING                                                               \
    "--data-parallel-sharding-strategy says what data parallel ranks share"
#define RESTARTS                                                               \
    "a launcher starts ranks again, and --load with the same --save resumes"
#define LOCAL_SAVES                                                            \
    "--save-interval N --keep-checkpoints 1 keeps the newest alone"
#define DECODERS "models are decoders"
#define LATENT                                                                 \
    "queries share keys and values in groups: --num-query-groups"
#define NO_STATES "every layer has attention; there are no state space layers"
#define ONE_SHAPE "all layers have one shape"
#define NEXT_TOKEN "the model predicts the next token alone"
#define GENERATES                                                              \
    "gpt-generate continues prompts; --sample-prompts does so here"
#define OPTIMIZERS "--optimizer is adam, sgd or muon"
#define FEW_BITS "--fp8-format has the fewest bits that there are"
#define AS_IT_IS "documents are trained on as they are"
#define LOCAL_FILES "data sets and checkpoints are files of this machine"

const struct gpt_foreign_option gpt_train_hints[] = {
    /* what is in Megatron-LM and not here; its names without effect, and those
     * that one sentence of foreign.c answers, are there */
    HINT("moe-*", MEGATRON, DENSE),
    HINT("overlap-moe-expert-parallel-comm", MEGATRON, DENSE),
    HINT("use-fused-weighted-squared-relu", MEGATRON, DENSE),
    HINT("mamba-*", MEGATRON, NO_STATES),
    HINT("hybrid-*", MEGATRON, NO_STATES),
    HINT("is-hybrid-model", MEGATRON, NO_STATES),
    HINT("disable-mamba-mem-eff-path", MEGATRON, NO_STATES),
    HINT("linear-attention-*", MEGATRON, NO_STATES),
    HINT("experimental-attention-variant", MEGATRON, NO_STATES),
    HINT("heterogeneous-layers-*", MEGATRON, ONE_SHAPE),
    HINT("q-lora-rank", MEGATRON, LATENT),
    HINT("kv-lora-rank", MEGATRON, LATENT),
    HINT("qk-head-dim", MEGATRON, LATENT),
    HINT("qk-pos-emb-head-dim", MEGATRON, LATENT),
    HINT("v-head-dim", MEGATRON, LATENT),
    HINT("cache-mla-latents", MEGATRON, LATENT),
    HINT("mscale", MEGATRON, "--rotary-attention-factor, with yarn"),
    HINT("mscale-all-dim", MEGATRON, "--rotary-attention-factor, with yarn"),
    HINT("mtp-*", MEGATRON, NEXT_TOKEN),
    HINT("fim-*", MEGATRON, AS_IT_IS),
    HINT("mask-prob", MEGATRON, NEXT_TOKEN),
    HINT("short-seq-prob", MEGATRON, NEXT_TOKEN),
    HINT("bert-*", MEGATRON, NEXT_TOKEN),
    HINT("retro-*", MEGATRON, NEXT_TOKEN),
    HINT("retriever-*", MEGATRON, NEXT_TOKEN),
    HINT("biencoder-*", MEGATRON, NEXT_TOKEN),
    HINT("ict-*", MEGATRON, NEXT_TOKEN),
    HINT("vision-*", MEGATRON, NEXT_TOKEN),
    HINT("dino-*", MEGATRON, NEXT_TOKEN),
    HINT("rl-*", MEGATRON, NEXT_TOKEN),
    HINT("grpo-*", MEGATRON, NEXT_TOKEN),
    HINT("perform-rl-step", MEGATRON, NEXT_TOKEN),
    HINT("inference-*", MEGATRON, GENERATES),
    HINT("flash-decode", MEGATRON, GENERATES),
    HINT("max-tokens-to-oom", OLDER, GENERATES),
    HINT("decoder-num-layers", MEGATRON, "--num-layers; " DECODERS),
    HINT("pipeline-model-parallel-split-rank", OLDER,
         "--pipeline-model-parallel-size; " DECODERS),
    HINT("relative-attention-*", MEGATRON, POSITIONS),
    HINT("mrope-section", MEGATRON, POSITIONS),
    HINT("attention-output-gate", MEGATRON,
         "what attention gives has no gate"),
    HINT("qk-clip*", MEGATRON, "--clip-qkv X keeps elements from -X to X"),
    HINT("qk-l2-norm", MEGATRON, "--qk-layernorm --no-norm-weight"),
    HINT("activation-func-clamp-value", MEGATRON,
         "activations are not limited"),
    HINT("fp4-*", MEGATRON, FEW_BITS),
    HINT("reuse-grad-buf-for-mxfp8-param-ag", MEGATRON,
         "--fp8-recipe tensorwise scales by the tensor at hand"),
    HINT("te-precision-config-file", MEGATRON,
         "--num-layers-at-start-in-bf16 and --num-layers-at-end-in-bf16 leave "
         "layers out of --fp8-format"),
    HINT("kitchen-*", MEGATRON,
         "--fp8-format rounds; there is no choice for each layer"),
    HINT("cpu-offloading*", MEGATRON, RECOMPUTE),
    HINT("fine-grained-*", MEGATRON, RECOMPUTE),
    HINT("offload-modules", MEGATRON, RECOMPUTE),
    HINT("dsa-*", MEGATRON, WINDOW),
    HINT("softmax-scale", MEGATRON,
         "--query-pre-attn-scalar X divides by its root"),
    HINT("yarn-*", MEGATRON,
         "--rotary-scaling-type yarn, with --rotary-beta-fast, "
         "--rotary-beta-slow and --rotary-original-positions"),
    HINT("mup-*", MEGATRON,
         "rates and initial weights do not follow from the width"),
    HINT("soap-*", MEGATRON, OPTIMIZERS),
    HINT("lion-*", MEGATRON, OPTIMIZERS),
    HINT("adaptive-muon-*", MEGATRON, OPTIMIZERS),
    HINT("start-eval-at-iter", MEGATRON, WHEN_EVALUATED),
    HINT("override-ckpt-iteration", MEGATRON,
         "--load DIR/iter_0000100 resumes from step 100, --finetune begins at "
         "step 0"),
    HINT("logits-*", MEGATRON, "a run trains on its data alone"),
    HINT("megatron-fsdp-*", MEGATRON, SHARDING),
    HINT("fsdp-*", MEGATRON, SHARDING),
    HINT("torch-fsdp2-*", MEGATRON, SHARDING),
    HINT("outer-dp-sharding-strategy", MEGATRON, SHARDING),
    HINT("enable-full-sharding-in-hsdp", MEGATRON, SHARDING),
    HINT("no-strict-fsdp-dtensor-load", MEGATRON, SHARDING),
    HINT("hierarchical-context-parallel-sizes", MEGATRON,
         "--tensor-model-parallel-size and --sequence-parallel cut layers and "
         "sequences"),
    HINT("fake-process-group", MEGATRON,
         "--dry-run --world-size N plans for ranks that are not started"),
    HINT("inprocess-*", MEGATRON, RESTARTS),
    HINT("replication*", MEGATRON, RESTARTS),
    HINT("non-persistent-*", MEGATRON, LOCAL_SAVES),
    HINT("ckpt-convert-*", MEGATRON, "gpt-reshape converts checkpoints"),
    HINT("distributed-timeout-seconds-after-init", MEGATRON,
         "--distributed-step-timeout-minutes M, in minutes"),
    HINT("no-use-tokenizer-model-from-checkpoint-args", MEGATRON,
         "--use-checkpoint-args takes the tokenizer, too: without it the "
         "options say both"),
    HINT("iterations-to-skip", MEGATRON,
         "no step is left out by its number; --max-nan-iterations skips steps "
         "that are not finite"),
    HINT("no-weight-decay-cond-type", MEGATRON,
         "matrices have weight decay, biases and norms have none"),
    HINT("full-validation", MEGATRON, VALIDATED),
    HINT("phase-transition-iterations", MEGATRON,
         "--data-stages FILE says from which sample on data change"),
    HINT("allow-ambiguous-pad-tokens", MEGATRON,
         "--pad-token-id says which token is padding"),
    HINT("object-storage-cache-path", MEGATRON, LOCAL_FILES),
    HINT("s3-cache-path", OLDER, LOCAL_FILES),
    HINT("sample-rate", MEGATRON, AS_IT_IS),
    HINT("tokenizer-metadata", MEGATRON, TOKENIZER),
    HINT("tokenizer-hf-use-fast", MEGATRON, TOKENIZER),
    HINT("tokenizer-sentencepiece-legacy", MEGATRON, TOKENIZER),
    HINT("tiktoken-special-tokens", OLDER, "--tokenizer-special-tokens"),
    HINT("sft-*", MEGATRON,
         "--document-samples makes a sample of each document"),

    /* GPT-NeoX, whose configuration has keys of DeepSpeed in it */
    HINT("pipe-parallel-size", NEOX,
         "--pipeline-model-parallel-size; for 0 write 1"),
    HINT("is-pipe-parallel", NEOX, "--pipeline-model-parallel-size says it"),
    HINT("pipe-partition-method", NEOX,
         "layers are divided evenly; --decoder-first-pipeline-num-layers and "
         "--decoder-last-pipeline-num-layers change the ends"),
    HINT("output-layer-parallelism", NEOX,
         "tensor parallel ranks divide the vocabulary of the output layer"),
    HINT("num-gpus", DEEPSPEED, RANKS),
    HINT("num-nodes", DEEPSPEED, RANKS),
    HINT("hostfile", DEEPSPEED, RANKS),
    HINT("include", DEEPSPEED, RANKS),
    HINT("exclude", DEEPSPEED, RANKS),
    HINT("launcher", DEEPSPEED, RANKS),
    HINT("force-multi", DEEPSPEED, RANKS),
    HINT("deepspeed-mpi", NEOX, "mpirun and srun start ranks as they are"),
    HINT("user-script", NEOX, RANKS),
    HINT("global-num-gpus", NEOX, RANKS),
    HINT("detect-nvlink-pairs", NEOX,
         "tensor parallel ranks are neighbours: rank 0, 1 and so on"),
    HINT("model-arch", NEOX, "models are decoders; there is no other kind"),
    HINT("num-encoder-layers", NEOX, "--num-layers; models are decoders"),
    HINT("decoder-seq-length", NEOX, "--seq-length; models are decoders"),
    HINT("feedforward-size", NEOX, FFN),
    HINT("intermediate-size", NEOX, FFN),
    HINT("mlp-multiple-of", NEOX,
         "--ffn-hidden-size, which is taken as it is and not rounded"),
    HINT("norm", NEOX, "--normalization LayerNorm, or RMSNorm"),
    HINT("rms-norm-epsilon", NEOX, "--norm-epsilon, for every kind of norm"),
    HINT("scalenorm-epsilon", NEOX, "--normalization has no ScaleNorm"),
    HINT("pos-emb", NEOX,
         "--position-embedding-type: learned is learned_absolute, rotary, "
         "alibi and none are the same, others are not there"),
    HINT("rpe-num-buckets", NEOX, POSITIONS),
    HINT("rpe-max-distance", NEOX, POSITIONS),
    HINT("opt-pos-emb-offset", NEOX, "--position-offset"),
    HINT("rotary-pct", NEOX, "--rotary-percent"),
    HINT("rotary-emb-base", NEOX, "--rotary-base"),
    HINT("no-weight-tying", NEOX,
         "--untie-embeddings-and-output-weights takes no value"),
    HINT("gpt-j-residual", NEOX,
         "--parallel-residual; layers have two norms unless --shared-norm is "
         "given"),
    HINT("gpt-j-tied", NEOX, "--parallel-residual --shared-norm"),
    HINT("activation", NEOX,
         "--activation-function; geglu and swiglu are --geglu and --swiglu"),
    HINT("use-qk-layernorm", NEOX, "--qk-layernorm"),
    HINT("use-bias-in-norms", NEOX,
         "norms have biases; --no-norm-bias takes them away"),
    HINT("use-bias-in-attn-linear", NEOX,
         "layers have biases; --no-attention-bias takes those of attention "
         "away"),
    HINT("use-bias-in-mlp", NEOX,
         "layers have biases; --no-mlp-bias takes those of the feed-forward "
         "layer away"),
    HINT("init-method", NEOX,
         "weights are drawn from a normal distribution: --init-method-std"),
    HINT("output-layer-init-method", NEOX,
         "projections to the residual stream have --init-method-std over the "
         "root of 2 x layers"),
    HINT("num-unique-layers", NEOX, OWN_WEIGHTS),
    HINT("param-sharing-style", NEOX, OWN_WEIGHTS),
    HINT("attention-config", NEOX, WINDOW),
    HINT("sparsity-config", NEOX, WINDOW),
    HINT("sparse-attention", DEEPSPEED, WINDOW),
    HINT("moe-num-experts", NEOX, DENSE),
    HINT("soft-prompt-tuning", NEOX, ADAPTERS),
    HINT("scaled-upper-triang-masked-softmax-fusion", NEOX, FUSED),
    HINT("scaled-masked-softmax-fusion", NEOX, FUSED),
    HINT("bias-gelu-fusion", NEOX, FUSED),
    HINT("bias-dropout-fusion", NEOX, FUSED),
    HINT("use-flashattn-swiglu", NEOX, FUSED),
    HINT("precision", NEOX, PRECISION),
    HINT("dynamic-loss-scale", NEOX,
         "--fp16 has a loss scale that adapts, unless --loss-scale is given"),
    HINT("min-scale", NEOX, "--min-loss-scale"),
    HINT("optimizer-type", NEOX,
         "--optimizer; what it holds is in single precision, on the device"),
    HINT("use-bnb-optimizer", NEOX,
         "the optimizer's state is of single precision"),
    HINT("scheduler", DEEPSPEED,
         "--lr, --lr-decay-style, --lr-warmup-iters, and --lr-warmup-style "
         "for the warm-up of DeepSpeed"),
    HINT("gas", NEOX, STEPS),
    HINT("zero-optimization", DEEPSPEED, STAGES),
    HINT("zero-optimization.stage", DEEPSPEED, STAGES),
    HINT("zero-reduce-scatter", NEOX, BUCKETS),
    HINT("zero-contiguous-gradients", NEOX, BUCKETS),
    HINT("zero-reduce-bucket-size", NEOX, BUCKETS),
    HINT("zero-allgather-bucket-size", NEOX, BUCKETS),
    HINT("fp32-allreduce", DEEPSPEED, SUMS),
    HINT("communication-data-type", DEEPSPEED, SUMS),
    HINT("prescale-gradients", DEEPSPEED, SUMS),
    HINT("gradient-predivide-factor", DEEPSPEED, SUMS),
    HINT("sparse-gradients", DEEPSPEED,
         "the gradient of the embedding is summed as the others are"),
    HINT("amp", DEEPSPEED, PRECISION),
    HINT("data-types", DEEPSPEED, SUMS),
    HINT("activation-checkpointing", DEEPSPEED, RECOMPUTE),
    HINT("contiguous-checkpointing", NEOX, RECOMPUTE),
    HINT("checkpoint-in-cpu", NEOX, RECOMPUTE),
    HINT("synchronize-each-layer", NEOX, RECOMPUTE),
    HINT("curriculum-learning", DEEPSPEED,
         "--data-stages changes the data of a run; the length of samples "
         "stays"),
    HINT("data-efficiency", DEEPSPEED,
         "--data-stages changes the data of a run; every sample is read"),
    HINT("elasticity", DEEPSPEED,
         "a run resumes with any number of ranks; its batch stays "
         "--global-batch-size"),
    HINT("load-universal", NEOX, "--load takes a checkpoint of any layout"),
    HINT("wall-clock-breakdown", DEEPSPEED, TIMES),
    HINT("flops-profiler", DEEPSPEED, TIMES),
    HINT("comms-logger", DEEPSPEED, TIMES),
    HINT("autotuning", DEEPSPEED,
         "'gpt-train advise' compares the layouts of a machine"),
    HINT("csv-monitor", DEEPSPEED,
         "gpt-report --csv makes a table of metrics.jsonl"),
    HINT("use-wandb", NEOX, CURVES),
    HINT("wandb-group", NEOX, CURVES),
    HINT("wandb-team", NEOX, CURVES),
    HINT("wandb-host", NEOX, CURVES),
    HINT("wandb-init-all-ranks", NEOX, CURVES),
    HINT("log-dir", NEOX,
         "gpt-launch --log-dir keeps what each rank prints; --metrics names "
         "the file of figures"),
    HINT("log-param-norm", NEOX, NORMS),
    HINT("log-grad-norm", NEOX, NORMS),
    HINT("log-grad-pct-zeros", NEOX, NORMS),
    HINT("log-optimizer-states", NEOX, NORMS),
    HINT("gradient-noise-scale-n-batches", NEOX,
         "--log-gradient-noise-scale averages over the steps of a log line"),
    HINT("gradient-noise-scale-cpu-offload", NEOX,
         "--log-gradient-noise-scale keeps no gradient"),
    HINT("char-level-ppl", NEOX,
         "gpt-report --bytes-per-token shows losses in bits a byte"),
    HINT("train-data-paths", NEOX, WEIGHTED),
    HINT("valid-data-paths", NEOX, WEIGHTED),
    HINT("test-data-paths", NEOX, WEIGHTED),
    HINT("train-data-weights", NEOX, WEIGHTED),
    HINT("valid-data-weights", NEOX, WEIGHTED),
    HINT("test-data-weights", NEOX, WEIGHTED),
    HINT("weight-by-num-documents", NEOX, WEIGHTED),
    HINT("weighted-sampler-alpha", NEOX, WEIGHTED),
    HINT("checkpoint-factor", NEOX, WHEN_SAVED),
    HINT("checkpoint-scale", NEOX, WHEN_SAVED),
    HINT("extra-save-iters", NEOX, WHEN_SAVED),
    HINT("keep-last-n-checkpoints", NEOX, "--keep-checkpoints"),

    /* Transformers and its examples */
    HINT("per-gpu-train-batch-size", TRANSFORMERS, "--micro-batch-size"),
    HINT("auto-find-batch-size", TRANSFORMERS,
         "--dry-run prints the largest micro batch that fits"),
    HINT("max-seq-length", TRANSFORMERS, "--seq-length"),
    HINT("max-length", TRANSFORMERS, "--seq-length"),
    HINT("max-train-samples", TRANSFORMERS,
         "--train-samples, which go on with another epoch where the data end"),
    HINT("max-eval-samples", TRANSFORMERS, VALIDATED),
    HINT("validation-split-percentage", TRANSFORMERS,
         "--split 95,5,0 makes 5 % of the data the validation set"),
    HINT("group-by-length", TRANSFORMERS, PACKED),
    HINT("dataloader-drop-last", TRANSFORMERS, PACKED),
    HINT("data-seed", TRANSFORMERS, "--seed is that of the data, too"),
    HINT("ignore-data-skip", TRANSFORMERS,
         "a run that resumes goes on with the next sample"),
    HINT("full-determinism", TRANSFORMERS, SAME_EVERY_TIME),
    HINT("streaming", TRANSFORMERS, NO_COPY),
    HINT("cache-dir", TRANSFORMERS, NO_COPY),
    HINT("overwrite-cache", TRANSFORMERS, NO_COPY),
    HINT("optim", TRANSFORMERS,
         "--optimizer: adamw_torch is adam, which decouples weight decay"),
    HINT("optim-args", TRANSFORMERS,
         "--adam-beta1, --adam-beta2 and --adam-eps"),
    HINT("lr-scheduler-kwargs", TRANSFORMERS,
         "--min-lr, --lr-decay-iters and --lr-wsd-decay-iters"),
    HINT("fsdp", TRANSFORMERS, STAGES),
    HINT("fsdp-config", TRANSFORMERS, STAGES),
    HINT("sharded-ddp", TRANSFORMERS, STAGES),
    HINT("ddp-backend", TRANSFORMERS, "--distributed-backend"),
    HINT("ddp-timeout", TRANSFORMERS,
         "--distributed-timeout-minutes, in minutes and not in seconds"),
    HINT("use-cpu", TRANSFORMERS, "--device cpu"),
    HINT("no-cuda", TRANSFORMERS, "--device cpu"),
    HINT("torch-dtype", TRANSFORMERS, PRECISION),
    HINT("half-precision-backend", TRANSFORMERS, PRECISION),
    HINT("fp16-opt-level", TRANSFORMERS, PRECISION),
    HINT("bf16-full-eval", TRANSFORMERS, SAME_PRECISION),
    HINT("fp16-full-eval", TRANSFORMERS, SAME_PRECISION),
    HINT("torch-compile", TRANSFORMERS, FUSED),
    HINT("use-liger-kernel", TRANSFORMERS, FUSED),
    HINT("neftune-noise-alpha", TRANSFORMERS, "embeddings get no noise"),
    HINT("eval-strategy", TRANSFORMERS, WHEN_EVALUATED),
    HINT("evaluation-strategy", TRANSFORMERS, WHEN_EVALUATED),
    HINT("save-strategy", TRANSFORMERS, WHEN_SAVED),
    HINT("save-only-model", TRANSFORMERS, "--no-save-optim"),
    HINT("load-best-model-at-end", TRANSFORMERS,
         "--save-best keeps a second checkpoint"),
    HINT("metric-for-best-model", TRANSFORMERS,
         "--save-best keeps the lowest validation loss"),
    HINT("logging-strategy", TRANSFORMERS, WHEN_LOGGED),
    HINT("logging-first-step", TRANSFORMERS, WHEN_LOGGED),
    HINT("logging-dir", TRANSFORMERS, CURVES),
    HINT("run-name", TRANSFORMERS, CURVES),
    HINT("disable-tqdm", TRANSFORMERS, "--progress never"),
    HINT("push-to-hub", TRANSFORMERS, HUB),
    HINT("hub-model-id", TRANSFORMERS, HUB),
    HINT("do-predict", TRANSFORMERS,
         "gpt-generate writes what a checkpoint continues"),
    HINT("config-overrides", TRANSFORMERS, MODELS),
    HINT("use-fast-tokenizer", TRANSFORMERS, TOKENIZER),

    /* LitGPT's command line and the keys of its files */
    HINT("model-name", LITGPT, MODELS),
    HINT("model-config", LITGPT, MODELS),
    HINT("initial-checkpoint-dir", LITGPT,
         "--load DIR --finetune starts from the weights there"),
    HINT("resume", LITGPT, "--load DIR goes on from its newest checkpoint"),
    HINT("tokenizer-dir", LITGPT, TOKENIZER),
    HINT("devices", LITGPT, RANKS),
    HINT("logger-name", LITGPT, CURVES),
    HINT("data", LITGPT, DATA),
    HINT("data.data-path", LITGPT, DATA),
    HINT("train.global-batch-size", LITGPT,
         "--global-batch-size, of all nodes"),
    HINT("train.micro-batch-size", LITGPT, "--micro-batch-size"),
    HINT("train.max-tokens", LITGPT,
         "--train-samples is the number of tokens over --seq-length"),
    HINT("train.max-steps", LITGPT, "--train-iters"),
    HINT("train.epochs", LITGPT, "--epochs"),
    HINT("train.max-seq-length", LITGPT, "--seq-length"),
    HINT("train.lr-warmup-steps", LITGPT, "--lr-warmup-iters"),
    HINT("train.lr-warmup-fraction", LITGPT, "--lr-warmup-fraction"),
    HINT("train.min-lr", LITGPT, "--min-lr"),
    HINT("train.max-norm", LITGPT, "--clip-grad"),
    HINT("train.tie-embeddings", LITGPT,
         "embeddings are tied unless --untie-embeddings-and-output-weights is "
         "given"),
    HINT("train.save-interval", LITGPT, WHEN_SAVED),
    HINT("train.log-interval", LITGPT,
         "--log-interval, in steps and not in microbatches"),
    HINT("eval.interval", LITGPT, WHEN_EVALUATED),
    HINT("eval.max-iters", LITGPT, VALIDATED),
    HINT("eval.initial-validation", LITGPT,
         "--eval-only --load DIR validates before a run"),
    HINT("eval.final-validation", LITGPT,
         "a run ends with a validation and a test"),
    HINT("optimizer.lr", LITGPT, "--lr"),
    HINT("optimizer.class-path", LITGPT,
         "--optimizer: AdamW is adam, which decouples weight decay"),

    /* llm.c's copy of nanoGPT's trainer */
    HINT("input-bin", LLMC,
         "--data-path, of what gpt-dataset convert makes of the file"),
    HINT("input-val-bin", LLMC,
         "--valid-data-path, of what gpt-dataset convert makes of the file"),
    HINT("model", LLMC, MODELS),
    HINT("sequence-length", LLMC, "--seq-length"),
    HINT("total-batch-size", LLMC,
         "--global-batch-size, in samples and not in tokens"),
    HINT("num-iterations", LLMC, "--train-iters"),
    HINT("learning-rate-decay-frac", LLMC,
         "--min-lr, a rate and not a share of --lr"),
    HINT("val-loss-every", LLMC, WHEN_EVALUATED),
    HINT("val-max-steps", LLMC, VALIDATED),
    HINT("sample-every", LLMC, "--sample-interval, with --sample-prompts"),
    HINT("inference-only", LLMC, "gpt-generate, or --eval-only"),
};

const size_t gpt_train_n_hints = GPT_COUNT(gpt_train_hints);
