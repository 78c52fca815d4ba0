/* The table of foreign.h. A name is translated only where it means the same
 * here; where the meaning differs, the answer says what to write. */
#include "cmd/train/foreign.h"
#include "cmd/train/foreign_words.h"

/* A value follows: it replaces '%'. */
#define MEANS(n, from, words) {.name = (n), .source = (from), .means = (words)}
#define FLAG_MEANS(n, from, words)                                             \
    {.name = (n), .source = (from), .means = (words), .flag = true}
#define ANSWER(n, from, text) {.name = (n), .source = (from), .answer = (text)}
#define SKIP(n, from, why)                                                     \
    {.name = (n), .source = (from), .answer = (why), .skip = true}
#define SKIP_FLAG(n, from, why)                                                \
    {.name = (n), .source = (from), .answer = (why), .flag = true, .skip = true}
/* Without effect with one value, which is the default where it comes from: what
 * another value asks for is not here. */
#define ONLY(n, from, value, why)                                              \
    {.name = (n), .source = (from), .answer = (why), .skip = true,             \
     .only = (value)}

/* ... of which several words may follow. */
#define SKIP_LIST(n, from, why)                                                \
    {.name = (n), .source = (from), .answer = (why), .skip = true, .list = true}
#define ONLY_LIST(n, from, value, why)                                         \
    {.name = (n), .source = (from), .answer = (why), .skip = true,             \
     .only = (value), .list = true}

/* Reasons as those of foreign_words.h, which rows of this table alone share. */
#define GRAPHS "--cuda-graph-impl records all passes that can be recorded"
#define IN_BLOCKS "attention is computed in blocks"
#define WHOLE_SUMS "sums of tensor parallel ranks are not cut into parts"
#define ONE_NORM "of norms, the log has the gradient's alone"
#define ORDER                                                                  \
    "--num-virtual-stages-per-pipeline-rank makes stages wait less"
#define ONE_MODEL "there is one implementation of the model"
#define FLOAT_SUMS "sums and softmax are computed in single precision"
#define READER "one thread of this program reads the data ahead"
#define RANDOM "random numbers follow from the seed and the step"
#define NO_PYTHON "this program is no Python"
#define ONE_WAY "stages send to each other in one way"
#define ONCE "a step is not made twice"
#define NOTICED "ranks notice themselves that another one hangs"
#define NO_FAULTS "no wrong results are made"
#define LOUDNESS "--quiet and --verbose say how much"
#define CUTS                                                                   \
    "ranks share a layer by --tensor-model-parallel-size and "                 \
    "--sequence-parallel; whole sequences are not cut over ranks of their own"
#define ALWAYS "that is always done"
#define ROUNDED "factors are rounded for each product"
#define ON_DEVICE                                                              \
    "the optimizer's state is in the memory of the device; "                   \
    "--use-distributed-optimizer shares it among ranks"
#define OWN_PART "all ranks write what is theirs"
#define SAVES "SIGTERM and SIGUSR2 always save before the run ends"
/* Sums have one order whatever buckets and layouts are: the first fact that
 * these names would change is the speed. */
#define ONE_SUM "gradients are summed in one way"
#define ONE_FORMAT                                                             \
    "checkpoints have a format of their own, which gpt-reshape converts"
#define ASYNC "--async-save writes in a thread, from a copy in memory"
#define NCCL_ALONE "NCCL is set up by its own environment variables"
#define FLOAT_STATE                                                            \
    "sums of gradients and the optimizer's state are of single precision"
#define WEIGHTS                                                                \
    "--train-data-path, --valid-data-path and --test-data-path take weights"
#define BY_WIDTH                                                               \
    "rates and initial weights do not follow from the width: --lr, "           \
    "--decoupled-lr and --init-method-std set them"
#define NO_HISTORY                                                             \
    "there is no delayed scaling: leave it out, and --fp8-recipe tensorwise "  \
    "scales by the tensor at hand"

/* A name with ANSWER ends the program, as the run would otherwise be another
 * one than the user means; a name with SKIP only warns, as it could not change
 * a result. Names are grouped as the options that they concern. */
const struct gpt_foreign_option gpt_train_foreign[] = {
    /* fused kernels and implementations to choose from */
    SKIP_FLAG("no-masked-softmax-fusion", MEGATRON, FUSED),
    SKIP_FLAG("no-scaled-masked-softmax-fusion", OLDER, FUSED),
    SKIP_FLAG("no-bias-gelu-fusion", MEGATRON, FUSED),
    SKIP_FLAG("no-bias-swiglu-fusion", MEGATRON, FUSED),
    SKIP_FLAG("no-bias-dropout-fusion", MEGATRON, FUSED),
    SKIP_FLAG("no-rope-fusion", MEGATRON, FUSED),
    SKIP_FLAG("no-gradient-accumulation-fusion", MEGATRON, FUSED),
    SKIP_FLAG("no-persist-layer-norm", MEGATRON, FUSED),
    SKIP_FLAG("cross-entropy-loss-fusion", MEGATRON, FUSED),
    SKIP("cross-entropy-fusion-impl", MEGATRON, FUSED),
    SKIP_FLAG("use-te-activation-func", MEGATRON, FUSED),
    SKIP_FLAG("disable-jit-fuser", MEGATRON, FUSED),
    FLAG_MEANS("external-cuda-graph", MEGATRON,
               "--cuda-graph-impl=transformer_engine"),
    SKIP_LIST("cuda-graph-scope", MEGATRON, GRAPHS),
    SKIP("cuda-graph-warmup-steps", MEGATRON, GRAPHS),
    SKIP_FLAG("abort-on-unmet-fused-kernel-constraints", DEEPSPEED, FUSED),
    SKIP_FLAG("use-flash-attn", MEGATRON, IN_BLOCKS),
    SKIP_FLAG("use-flash-attn-v1", DEEPSPEED, IN_BLOCKS),
    SKIP_FLAG("use-flash-attn-v2", DEEPSPEED, IN_BLOCKS),
    SKIP_FLAG("use-flash-attn-triton", DEEPSPEED, IN_BLOCKS),
    SKIP("attention-backend", MEGATRON, IN_BLOCKS),
    SKIP("transformer-impl", MEGATRON, ONE_MODEL),
    SKIP_FLAG("use-mcore-models", MEGATRON, ONE_MODEL),
    SKIP_FLAG("use-legacy-models", MEGATRON, ONE_MODEL),
    SKIP_FLAG("legacy-tokenizer", MEGATRON,
              "a tokenizer is read from its files in one way"),
    SKIP_FLAG("test-mode", MEGATRON, "no test runs beside a training"),
    SKIP_FLAG("enable-experimental", MEGATRON, ONE_MODEL),
    SKIP_FLAG("attention-softmax-in-fp32", MEGATRON, FLOAT_SUMS),
    SKIP_FLAG("apply-query-key-layer-scaling", MEGATRON, FLOAT_SUMS),
    SKIP_FLAG("fp16-lm-cross-entropy", MEGATRON, FLOAT_SUMS),
    SKIP_FLAG("disable-bf16-reduced-precision-matmul", MEGATRON, FLOAT_SUMS),
    SKIP_FLAG("no-query-key-layer-scaling", OLDER, FLOAT_SUMS),
    SKIP_FLAG("accumulate-allreduce-grads-in-fp32", MEGATRON, FLOAT_SUMS),
    SKIP_FLAG("use-cpu-initialization", MEGATRON, RANDOM),
    /* of weights that are loaded: drawing them takes no time here */
    SKIP_FLAG("no-initialization", MEGATRON, RANDOM),
    SKIP_FLAG("te-rng-tracker", MEGATRON, RANDOM),
    SKIP_FLAG("inference-rng-tracker", MEGATRON, RANDOM),
    ANSWER("data-parallel-random-init", MEGATRON,
           "the replicas of a model have the same weights"),
    SKIP_FLAG("no-save-rng", MEGATRON, RANDOM),
    SKIP_FLAG("no-load-rng", MEGATRON, RANDOM),
    ANSWER("fp32-residual-connection", MEGATRON,
           "the residual stream has the type of activations: leave out --bf16 "
           "or --fp16 for single precision"),

    /* processes, data, memory */
    SKIP("local-rank", MEGATRON, "the launcher's environment says it"),
    SKIP("DDP-impl", OLDER, ONE_SUM),
    SKIP_FLAG("no-contiguous-buffers-in-local-ddp", OLDER, ONE_SUM),
    SKIP_FLAG("no-scatter-gather-tensors-in-pipeline", OLDER,
              "with --sequence-parallel stages exchange parts, else whole "
              "activations"),
    SKIP_FLAG("use-contiguous-buffers-in-ddp", OLDER, ONE_SUM),
    SKIP("ddp-num-buckets", MEGATRON, ONE_SUM),
    SKIP("ddp-bucket-size", MEGATRON, ONE_SUM),
    SKIP("suggested-communication-unit-size", MEGATRON, ONE_SUM),
    SKIP_FLAG("ddp-pad-buckets-for-high-nccl-busbw", MEGATRON, ONE_SUM),
    SKIP_FLAG("ddp-average-in-collective", MEGATRON, ONE_SUM),
    SKIP_FLAG("no-gradient-reduce-div-fusion", MEGATRON, ONE_SUM),
    SKIP_FLAG("no-align-grad-reduce", MEGATRON, ONE_SUM),
    SKIP_FLAG("no-align-param-gather", MEGATRON, ONE_SUM),
    SKIP_FLAG("overlap-param-gather-with-optimizer-step", MEGATRON, ONE_SUM),
    SKIP_FLAG("defer-embedding-wgrad-compute", MEGATRON, ONE_SUM),
    SKIP("wgrad-deferral-limit", MEGATRON, ONE_SUM),
    SKIP_FLAG("delay-wgrad-compute", MEGATRON, ONE_SUM),
    SKIP_FLAG("ddp-reduce-scatter-with-fp32-accumulation", MEGATRON, ONE_SUM),
    SKIP_FLAG("no-delay-grad-reduce", OLDER, ONE_SUM),
    SKIP_FLAG("delay-param-gather", OLDER, ONE_SUM),
    /* of a model that is drawn by all ranks at once */
    SKIP_FLAG("init-model-with-meta-device", MEGATRON, RANDOM),
    SKIP_FLAG("no-clone-scatter-output-in-embedding", MEGATRON, ONE_MODEL),
    /* a fact of the order of sums, which a test compares bit by bit */
    SKIP("check-weight-hash-across-dp-replicas-interval", MEGATRON,
         "replicas have the same sums, and so the same weights"),
    SKIP_FLAG("sync-tp-duplicated-parameters", DEEPSPEED,
              "what tensor parallel ranks both have is the same to the last "
              "bit"),
    SKIP_FLAG("use-tp-pp-dp-mapping", MEGATRON,
              "ranks are numbered in one way, stages last"),
    /* how the library that carries sums works */
    SKIP_FLAG("nccl-ub", MEGATRON, NCCL_ALONE),
    SKIP_FLAG("use-nccl-ub", MEGATRON, NCCL_ALONE),
    SKIP_FLAG("disable-symmetric-registration", MEGATRON, NCCL_ALONE),
    SKIP_FLAG("use-sharp", MEGATRON, NCCL_ALONE),
    SKIP("sharp-enabled-group", MEGATRON, NCCL_ALONE),
    SKIP_LIST("high-priority-stream-groups", MEGATRON, NCCL_ALONE),
    SKIP_FLAG("create-all-gather-group", MEGATRON, NCCL_ALONE),
    SKIP("nccl-communicator-config-path", MEGATRON, NCCL_ALONE),
    SKIP("pipeline-model-parallel-comm-backend", MEGATRON, NCCL_ALONE),
    SKIP("tp-comm-bootstrap-backend", MEGATRON, NCCL_ALONE),
    SKIP_FLAG("disable-gloo-process-groups", MEGATRON,
              "NCCL carries GPUs' sums, Gloo processors'"),
    ONLY("context-parallel-size", MEGATRON, "1", CUTS),
    ONLY("ds-sequence-parallel-size", DEEPSPEED, "1", CUTS),
    ONLY("expert-model-parallel-size", MEGATRON, "1", DENSE),
    ONLY("expert-tensor-parallel-size", MEGATRON, "1", DENSE),
    ONLY("moe-expert-parallel-size", DEEPSPEED, "1", DENSE),
    ONLY("encoder-tensor-model-parallel-size", OLDER, "0", DECODERS),
    ONLY("encoder-pipeline-model-parallel-size", OLDER, "0", DECODERS),
    /* only with more than one context parallel rank, which is refused above */
    SKIP_LIST("cp-comm-type", MEGATRON, CUTS),
    ANSWER("num-experts", MEGATRON, DENSE),
    ANSWER("moe-ffn-hidden-size", MEGATRON, DENSE),
    ANSWER("moe-grouped-gemm", MEGATRON, DENSE),
    ANSWER("moe-loss-coeff", DEEPSPEED, DENSE),
    ANSWER("moe-train-capacity-factor", DEEPSPEED, DENSE),
    ANSWER("moe-eval-capacity-factor", DEEPSPEED, DENSE),
    ANSWER("moe-min-capacity", DEEPSPEED, DENSE),
    ANSWER("moe-router-topk", MEGATRON, DENSE),
    ANSWER("moe-router-load-balancing-type", MEGATRON, DENSE),
    ANSWER("moe-aux-loss-coeff", MEGATRON, DENSE),
    ANSWER("moe-token-dispatcher-type", MEGATRON, DENSE),
    ANSWER("pipeline-model-parallel-layout", MEGATRON, EVEN),
    ANSWER("account-for-embedding-in-pipeline-split", MEGATRON, EVEN),
    ANSWER("account-for-loss-in-pipeline-split", MEGATRON, EVEN),
    ANSWER("standalone-embedding-stage", MEGATRON, EVEN),
    /* which its program takes with one stage alone */
    SKIP_FLAG("no-pipeline-parallel", DEEPSPEED,
              "--pipeline-model-parallel-size 1 is one stage"),
    ANSWER("enable-zbh1-pipeline", DEEPSPEED, ORDER),
    ANSWER("enable-zbh1-exact-semantics", DEEPSPEED, ORDER),
    ANSWER("pp-partition-method", DEEPSPEED, EVEN),
    /* changes how long stages wait, and no number */
    SKIP("microbatch-group-size-per-virtual-pipeline-stage", MEGATRON,
         "a chunk takes as many microbatches in a row as there are stages"),
    ONLY("num-distributed-optimizer-instances", MEGATRON, "1", SHARDING),
    /* several systems that share states, of which a script takes one */
    ANSWER("use-torch-fsdp2", MEGATRON, SHARDING),
    ANSWER("use-megatron-fsdp", MEGATRON, SHARDING),
    ANSWER("use-custom-fsdp", MEGATRON, SHARDING),
    /* the types that these may have; another one would be another run */
    ANSWER("use-precision-aware-optimizer", MEGATRON, FLOAT_STATE),
    ONLY("main-grads-dtype", MEGATRON, "fp32", FLOAT_STATE),
    ONLY("main-params-dtype", MEGATRON, "fp32", FLOAT_STATE),
    ONLY("exp-avg-dtype", MEGATRON, "fp32", FLOAT_STATE),
    ONLY("exp-avg-sq-dtype", MEGATRON, "fp32", FLOAT_STATE),
    ONLY_LIST("recompute-modules", MEGATRON, "core_attn",
              "--recompute-activations recomputes attention alone"),
    SKIP_FLAG("grad-reduce-in-bf16", MEGATRON,
              "gradients are summed in single precision"),
    SKIP_FLAG("no-overlap-p2p-communication", MEGATRON, ONE_WAY),
    SKIP_FLAG("overlap-p2p-communication", OLDER, ONE_WAY),
    SKIP_FLAG("overlap-p2p-communication-warmup-flush", MEGATRON, ONE_WAY),
    SKIP_FLAG("use-ring-exchange-p2p", MEGATRON, ONE_WAY),
    SKIP_FLAG("tp-comm-overlap", MEGATRON, WHOLE_SUMS),
    SKIP("tp-comm-overlap-cfg", MEGATRON, WHOLE_SUMS),
    SKIP_FLAG("tp-comm-overlap-rs-dgrad", MEGATRON, WHOLE_SUMS),
    SKIP_FLAG("disable-tp-comm-overlap-ag", MEGATRON, WHOLE_SUMS),
    SKIP_FLAG("disable-tp-comm-overlap-rs", MEGATRON, WHOLE_SUMS),
    SKIP_FLAG("disable-tp-comm-split-ag", MEGATRON, WHOLE_SUMS),
    SKIP_FLAG("disable-tp-comm-split-rs", MEGATRON, WHOLE_SUMS),
    SKIP_FLAG("disable-tp-comm-bulk-dgrad", MEGATRON, WHOLE_SUMS),
    SKIP_FLAG("disable-tp-comm-bulk-wgrad", MEGATRON, WHOLE_SUMS),
    SKIP_FLAG("distribute-saved-activations", MEGATRON,
              "--sequence-parallel keeps a part on each rank"),
    SKIP_FLAG("distribute-checkpointed-activations", OLDER,
              "--sequence-parallel keeps a part on each rank"),
    SKIP_FLAG("partition-activations", DEEPSPEED,
              "--sequence-parallel keeps a part on each rank"),
    SKIP_FLAG("deepspeed-activation-checkpointing", DEEPSPEED,
              "--recompute-granularity says what is computed again"),
    ANSWER("optimizer-cpu-offload", MEGATRON, ON_DEVICE),
    ANSWER("optimizer-offload-fraction", MEGATRON, ON_DEVICE),
    ANSWER("cpu-optimizer", DEEPSPEED, ON_DEVICE),
    ANSWER("overlap-cpu-optimizer-d2h-h2d", MEGATRON, ON_DEVICE),
    ANSWER("use-torch-optimizer-for-cpu-offload", MEGATRON, ON_DEVICE),
    SKIP_FLAG("no-pin-cpu-grads", MEGATRON, ON_DEVICE),
    SKIP_FLAG("no-pin-cpu-params", MEGATRON, ON_DEVICE),
    SKIP_FLAG("deterministic-mode", MEGATRON,
              "the same run gives the same numbers always"),
    SKIP_FLAG("no-check-for-nan-in-loss-and-grad", MEGATRON,
              "--max-nan-iterations says how many of them end the run"),
    SKIP("rerun-mode", MEGATRON, ONCE),
    SKIP_FLAG("check-for-spiky-loss", MEGATRON, ONCE),
    SKIP_FLAG("check-for-large-grads", MEGATRON, ONCE),
    SKIP("result-rejected-tracker-filename", MEGATRON, ONCE),
    ONLY("error-injection-rate", MEGATRON, "0", NO_FAULTS),
    SKIP("error-injection-type", MEGATRON, NO_FAULTS),
    SKIP("train-sync-interval", MEGATRON,
         "ranks wait for each other in every step"),
    /* a restart is what other launchers do; noticing is what it needs */
    SKIP_FLAG("enable-ft-package", MEGATRON, NOTICED),
    SKIP_FLAG("calc-ft-timeouts", MEGATRON, NOTICED),
    SKIP("ft-num-warmup-iters", MEGATRON, NOTICED),
    SKIP_FLAG("adlr-autoresume", MEGATRON, SAVES),
    SKIP("adlr-autoresume-interval", MEGATRON, SAVES),
    SKIP("lazy-mpu-init", MEGATRON, NO_PYTHON),
    SKIP("empty-unused-memory-level", MEGATRON,
         "memory is allocated once, before the first step"),
    SKIP_FLAG("manual-gc", MEGATRON, NO_PYTHON),
    SKIP("manual-gc-interval", MEGATRON, NO_PYTHON),
    SKIP_FLAG("no-manual-gc-eval", MEGATRON, NO_PYTHON),
    SKIP_FLAG("trust-remote-code", MEGATRON, NO_PYTHON),
    SKIP("num-workers", MEGATRON, READER),
    SKIP("num-dataset-builder-threads", MEGATRON, READER),
    SKIP_FLAG("no-mmap-bin-files", MEGATRON, READER),
    SKIP_FLAG("dataloader-fast-cache-load", MEGATRON, READER),
    SKIP_FLAG("dataloader-defer-npy-index-mmap", MEGATRON, READER),
    SKIP_FLAG("mmap-warmup", OLDER, READER),
    SKIP("per-dataset-sequences-path", MEGATRON,
         "sequences are counted by the index of a data set"),
    SKIP_FLAG("disable-msc", MEGATRON, LOCAL_FILES),
    SKIP_FLAG("no-create-attention-mask-in-dataloader", MEGATRON,
              "attention masks are never stored"),
    SKIP("ckpt-format", MEGATRON, ONE_FORMAT),
    SKIP("dist-ckpt-format", MEGATRON, ONE_FORMAT),
    SKIP_FLAG("use-dist-ckpt", MEGATRON, ONE_FORMAT),
    SKIP_FLAG("dist-ckpt-save-pre-mcore-014", MEGATRON, ONE_FORMAT),
    SKIP_FLAG("verify-integrity", MEGATRON, ALWAYS),
    SKIP("async-strategy", MEGATRON, ASYNC),
    SKIP_FLAG("async-ckpt-use-cpu-shm", MEGATRON, ASYNC),
    /* which of Megatron's levels: a model that differs is never loaded */
    SKIP("dist-ckpt-strictness", MEGATRON,
         "a checkpoint of another model is always refused"),
    SKIP_FLAG("use-persistent-ckpt-worker", MEGATRON, NO_PYTHON),
    SKIP_FLAG("no-ckpt-fully-parallel-save", MEGATRON, OWN_PART),
    SKIP_FLAG("ckpt-fully-parallel-save", MEGATRON, OWN_PART),
    SKIP("dist-ckpt-workers", MEGATRON, OWN_PART),
    SKIP_FLAG("ckpt-fully-parallel-load", MEGATRON,
              "all ranks read what is theirs"),
    SKIP_FLAG("ckpt-assume-constant-structure", MEGATRON, NO_PYTHON),
    SKIP_FLAG("auto-detect-ckpt-format", MEGATRON, ALWAYS),
    SKIP_FLAG("dist-ckpt-optim-fully-reshardable", MEGATRON, ALWAYS),
    SKIP_FLAG("distrib-optim-fully-reshardable-mem-efficient", MEGATRON,
              OWN_PART),
    SKIP_FLAG("ckpt-convert-update-legacy-dist-opt-format", MEGATRON,
              ONE_FORMAT),
    /* checkpoints have the exact weights always */
    SKIP_FLAG("load-main-params-from-ckpt", MEGATRON, ALWAYS),
    SKIP_FLAG("exit-signal-handler", MEGATRON, SAVES),
    SKIP_FLAG("exit-signal-handler-for-dataloader", MEGATRON, SAVES),
    SKIP_FLAG("exit-signal-handler-for-training", MEGATRON, SAVES),
    ONLY("exit-signal", MEGATRON, "SIGTERM", SAVES),
    ANSWER("kill-switch-path", DEEPSPEED,
           "SIGUSR2 saves and ends the run, as does SIGTERM"),
    ANSWER("non-persistent-save-interval", MEGATRON, LOCAL_SAVES),
    ANSWER("save-retain-interval", MEGATRON,
           "--keep-checkpoints N keeps the newest N"),
    ANSWER("ckpt-step", MEGATRON,
           "--load DIR/iter_0000100 resumes from step 100"),
    ANSWER("yaml-cfg", MEGATRON,
           "--config FILE reads options, one a line: name = value"),
    ANSWER("apply-wd-to-qk-layernorm", MEGATRON, "norms have no weight decay"),
    ANSWER("sft", MEGATRON,
           "--document-samples makes a sample of each document, and "
           "--loss-plugin chooses the tokens whose loss counts"),
    ANSWER("exit-on-missing-checkpoint", MEGATRON,
           "--load DIR without the same --save DIR fails where there is none"),
    ANSWER("pretrained-checkpoint", MEGATRON,
           "--load DIR --finetune begins from it; the restarts have --load and "
           "--save of the new run"),
    ONLY("dataloader-type", MEGATRON, "single",
         "samples are read in the order of the run, which resuming goes on "
         "with"),
    SKIP("data-cache-path", MEGATRON,
         "the order of samples is computed and never stored"),
    SKIP("mid-level-dataset-surplus", MEGATRON,
         "samples of a blend are counted and not estimated"),
    SKIP_FLAG("renormalize-blend-weights", OLDER,
              "samples of a blend are counted and not estimated"),
    ANSWER("vocab-extra-ids", MEGATRON,
           "add the tokens to the vocabulary, or raise --vocab-size"),
    ANSWER("eval-global-batch-size", MEGATRON,
           "a validation has --eval-iters batches of --global-batch-size"),
    SKIP("eval-micro-batch-size", MEGATRON,
         "a validation has the --micro-batch-size of training"),
    ANSWER("spec", MEGATRON, ONE_MODEL),

    /* reports; a profiler of PyTorch's has no counterpart, the times of a step
     * have */
    SKIP_FLAG("log-params-norm", MEGATRON, ONE_NORM),
    SKIP_FLAG("log-num-zeros-in-grad", MEGATRON,
              "of the gradient, the log has the norm alone"),
    SKIP_FLAG("log-optimizer-states-to-tensorboard", DEEPSPEED, ONE_NORM),
    SKIP_FLAG("log-progress", MEGATRON, CURVES),
    SKIP_FLAG("log-energy", MEGATRON, CURVES),
    SKIP_FLAG("log-straggler", MEGATRON, ALWAYS),
    SKIP_FLAG("disable-straggler-on-startup", MEGATRON, ALWAYS),
    SKIP("straggler-minmax-count", MEGATRON, ALWAYS),
    SKIP("straggler-ctrlr-port", MEGATRON, ALWAYS),
    SKIP_FLAG("no-barrier-with-level-1-timing", MEGATRON, TIMES),
    SKIP("timing-log-option", MEGATRON, TIMES),
    SKIP_FLAG("use-pytorch-profiler", MEGATRON, TIMES),
    SKIP_FLAG("record-memory-history", MEGATRON, TIMES),
    SKIP("memory-snapshot-path", MEGATRON, TIMES),
    SKIP("logging-level", MEGATRON, LOUDNESS),
    SKIP("log-level", DEEPSPEED, LOUDNESS),
    SKIP("log-level-replica", DEEPSPEED, LOUDNESS),
    SKIP("codecarbon-dir", DEEPSPEED, CURVES),
    SKIP_FLAG("profile", MEGATRON, TIMES),
    SKIP("profile-step-start", MEGATRON, TIMES),
    SKIP("profile-step-end", MEGATRON, TIMES),
    ANSWER("profile-ranks", MEGATRON, TIMES),
    SKIP("tensorboard-log-interval", MEGATRON, CURVES),
    SKIP("tensorboard-queue-size", MEGATRON, CURVES),
    SKIP_FLAG("log-timers-to-tensorboard", MEGATRON, CURVES),
    SKIP_FLAG("log-batch-size-to-tensorboard", MEGATRON, CURVES),
    SKIP_FLAG("log-learning-rate-to-tensorboard", MEGATRON, CURVES),
    SKIP_FLAG("log-loss-scale-to-tensorboard", MEGATRON, CURVES),
    SKIP_FLAG("log-validation-ppl-to-tensorboard", MEGATRON, CURVES),
    SKIP_FLAG("log-memory-to-tensorboard", MEGATRON, CURVES),
    SKIP_FLAG("log-world-size-to-tensorboard", MEGATRON, CURVES),
    SKIP_FLAG("no-log-loss-scale-to-tensorboard", MEGATRON, CURVES),
    SKIP_FLAG("enable-one-logger", MEGATRON, CURVES),
    SKIP_FLAG("no-one-logger", MEGATRON, CURVES),
    SKIP_FLAG("one-logger-async", MEGATRON, CURVES),
    SKIP("one-logger-project", MEGATRON, CURVES),
    SKIP("one-logger-entity", MEGATRON, CURVES),
    SKIP_FLAG("no-log-learnig-rate-to-tensorboard", OLDER, CURVES),
    SKIP("config-logger-dir", MEGATRON, "--print-config prints all options"),
    SKIP("dump-param-to-param-group-map", MEGATRON, DECAYED),
    SKIP_FLAG("run-workload-inspector-server", MEGATRON, TIMES),
    SKIP("one-logger-run-name", MEGATRON, CURVES),
    SKIP("app-tag-run-name", MEGATRON, CURVES),
    SKIP("app-tag-run-version", MEGATRON, CURVES),
    SKIP("wandb-project", MEGATRON, CURVES),
    SKIP("wandb-entity", MEGATRON, CURVES),
    SKIP("wandb-exp-name", MEGATRON, CURVES),
    SKIP("wandb-save-dir", MEGATRON, CURVES),
    SKIP_FLAG("with-tracking", TRANSFORMERS, CURVES),
    SKIP("report-to", TRANSFORMERS, CURVES),
    SKIP("wandb-log", NANOGPT, CURVES),
    SKIP("wandb-run-name", NANOGPT, CURVES),

    /* the model */
    FLAG_MEANS("use-rotary-position-embeddings", MEGATRON,
               "--position-embedding-type=rope"),
    {"no-position-embedding", MEGATRON, "--position-embedding-type=none",
     .over = "learned_absolute absolute", .flag = true},
    FLAG_MEANS("use-rope-scaling", MEGATRON, "--rotary-scaling-type=llama3"),
    ONLY("rope-type", MEGATRON, "rope",
         "--rotary-scaling-type says how rotary positions are stretched"),
    ONLY("softmax-type", MEGATRON, "vanilla",
         "the softmax of attention has no offset"),
    ONLY("glu-linear-offset", MEGATRON, "0.0",
         "a gate multiplies what it gates as it is"),
    MEANS("rope-scaling-factor", MEGATRON, "--rotary-scaling-factor=%"),
    MEANS("encoder-num-layers", MEGATRON, "--num-layers=%"),
    MEANS("num-key-value-heads", DEEPSPEED, "--num-query-groups=%"),
    ANSWER("padded-vocab-size", MEGATRON,
           "--vocab-size and --make-vocab-size-divisible-by make it"),
    ANSWER("pad-vocab-size-to", DEEPSPEED,
           "--make-vocab-size-divisible-by N pads to a multiple of N x "
           "--tensor-model-parallel-size"),
    ANSWER("embedding-init-method-std", MEGATRON,
           "all weights are drawn with the deviation of --init-method-std"),
    ANSWER("use-mup", MEGATRON, BY_WIDTH),
    ANSWER("mup-base-hidden-size", MEGATRON, BY_WIDTH),
    ANSWER("quick-geglu", MEGATRON,
           "--geglu has the tanh form; --activation-function names others"),
    ANSWER("glu-activation", OLDER, "write --swiglu or --geglu"),
    MEANS("rotary-seq-len-interpolation-factor", MEGATRON,
          "--rotary-scaling-type=linear --rotary-scaling-factor=%"),
    MEANS("n-layer", NANOGPT, "--num-layers=%"),
    MEANS("n-head", NANOGPT, "--num-attention-heads=%"),
    MEANS("n-embd", NANOGPT, "--hidden-size=%"),
    MEANS("dropout", NANOGPT, "--hidden-dropout=% --attention-dropout=%"),
    MEANS("block-size", TRANSFORMERS, "--seq-length=%"),
    MEANS("config-name", TRANSFORMERS, "--config=%"),
    MEANS("model-name-or-path", TRANSFORMERS, "--load=% --finetune"),
    ANSWER("multi-latent-attention", MEGATRON, LATENT),
    ANSWER("mtp-num-layers", MEGATRON, NEXT_TOKEN),
    ANSWER("apply-residual-connection-post-layernorm", MEGATRON,
           "the residual stream is taken before the norm of a layer"),
    ANSWER("openai-gelu", MEGATRON,
           "--activation-function gelu is the tanh form; gelu_exact the other"),
    ANSWER("init-method-xavier-uniform", MEGATRON, NORMAL),
    FLAG_MEANS("use-mp-args-from-checkpoint-args", MEGATRON,
               "--use-checkpoint-args"),
    ANSWER("bias", NANOGPT,
           "layers have biases; --disable-bias-linear and --no-norm-bias take "
           "them away"),
    ONLY("decay-lr", NANOGPT, "True",
         "--lr-decay-style constant keeps the learning rate"),
    SKIP("always-save-checkpoint", NANOGPT,
         "--save-interval says when, --save-best keeps the best"),
    SKIP("backend", NANOGPT, "NCCL carries GPUs' sums, Gloo processors'"),
    ANSWER("tokenizer-name", TRANSFORMERS, TOKENIZER),
    ANSWER("tokenizer-name-or-path", DEEPSPEED, TOKENIZER),
    ANSWER("init-from", NANOGPT,
           "--load DIR resumes, --load DIR --finetune starts from weights"),

    /* layout and memory */
    MEANS("megatron-lm-tp-degree", ACCELERATE,
          "--tensor-model-parallel-size=%"),
    MEANS("megatron-lm-pp-degree", ACCELERATE,
          "--pipeline-model-parallel-size=%"),
    MEANS("megatron-lm-sequence-parallelism", ACCELERATE,
          "--sequence-parallel=%"),
    MEANS("megatron-lm-recompute-activations", ACCELERATE,
          "--recompute-activations=%"),
    MEANS("megatron-lm-use-distributed-optimizer", ACCELERATE,
          "--use-distributed-optimizer=%"),
    MEANS("megatron-lm-gradient-clipping", ACCELERATE, "--clip-grad=%"),
    ANSWER("megatron-lm-num-micro-batches", ACCELERATE,
           "--global-batch-size is micro batches x --micro-batch-size x data "
           "parallel ranks"),
    FLAG_MEANS("checkpoint-activations", OLDER, "--recompute-granularity=full"),
    MEANS("checkpoint-num-layers", OLDER, "--recompute-num-layers=%"),
    MEANS("activations-checkpoint-method", OLDER,
          "--recompute-granularity=full --recompute-method=%"),
    MEANS("activations-checkpoint-num-layers", OLDER,
          "--recompute-num-layers=%"),
    FLAG_MEANS("gradient-checkpointing", TRANSFORMERS,
               "--recompute-granularity=full"),
    FLAG_MEANS("fp8-hybrid", OLDER, "--fp8-format=hybrid"),
    FLAG_MEANS("fp8-e4m3", OLDER, "--fp8-format=e4m3"),
    ANSWER("fp8-margin", MEGATRON, NO_HISTORY),
    ANSWER("fp8-interval", MEGATRON, NO_HISTORY),
    ANSWER("fp8-amax-history-len", MEGATRON, NO_HISTORY),
    ANSWER("fp8-amax-compute-algo", MEGATRON, NO_HISTORY),
    ANSWER("no-fp8-wgrad", MEGATRON,
           "all three products of a linear layer have factors of eight bits"),
    SKIP_FLAG("fp8-param-gather", MEGATRON,
              "weights are exchanged in bfloat16, and rounded to eight bits "
              "for each product"),
    SKIP_FLAG("tp-only-amax-red", MEGATRON,
              "scales are those of tensors, which tensor parallel ranks alone "
              "share"),
    SKIP_FLAG("keep-fp8-weight-transpose-cache", MEGATRON, ROUNDED),
    SKIP_FLAG("keep-fp8-transpose-cache", MEGATRON, ROUNDED),
    ANSWER("mixed-precision", ACCELERATE, "write --bf16 or --fp16"),
    ANSWER("dtype", NANOGPT, "write --bf16 or --fp16"),
    ANSWER("deepspeed", DEEPSPEED,
           "write the options themselves; gpt-train(1) lists the keys"),
    ANSWER("deepspeed-config", DEEPSPEED,
           "write the options themselves; gpt-train(1) lists the keys"),
    ANSWER("zero-stage", DEEPSPEED, STAGES),
    SKIP("compile", NANOGPT, NO_PYTHON),

    /* data */
    ANSWER("train-weighted-split-paths", DEEPSPEED, WEIGHTS),
    ANSWER("valid-weighted-split-paths", DEEPSPEED, WEIGHTS),
    ANSWER("test-weighted-split-paths", DEEPSPEED, WEIGHTS),
    ANSWER("train-weighted-split-paths-path", DEEPSPEED, WEIGHTS),
    ANSWER("valid-weighted-split-paths-path", DEEPSPEED, WEIGHTS),
    ANSWER("test-weighted-split-paths-path", DEEPSPEED, WEIGHTS),
    ANSWER("dataset-name", TRANSFORMERS,
           "gpt-preprocess makes a data set of JSON lines, for --data-path"),
    ANSWER("dataset-config-name", TRANSFORMERS,
           "gpt-preprocess makes a data set of JSON lines, for --data-path"),
    ANSWER("dataset", NANOGPT,
           "gpt-preprocess makes a data set of JSON lines, for --data-path"),
    ANSWER("train-file", TRANSFORMERS,
           "gpt-preprocess makes a data set of it, for --data-path"),
    ANSWER("validation-file", TRANSFORMERS,
           "gpt-preprocess makes a data set of it, for --valid-data-path"),
    SKIP("preprocessing-num-workers", TRANSFORMERS, READER),
    SKIP("dataloader-num-workers", TRANSFORMERS, READER),

    /* batches and length */
    ANSWER("train-tokens", DEEPSPEED, TOKENS),
    ANSWER("lr-decay-tokens", DEEPSPEED,
           "--lr-decay-samples is the number of tokens over --seq-length"),
    ANSWER("lr-warmup-tokens", DEEPSPEED,
           "--lr-warmup-samples is the number of tokens over --seq-length"),
    SKIP_FLAG("decrease-batch-size-if-needed", MEGATRON,
              "a global batch that the ranks cannot share is refused"),
    ANSWER("batch-size", OLDER,
           "--micro-batch-size is the batch of one rank, --global-batch-size "
           "that of all"),
    MEANS("per-device-train-batch-size", TRANSFORMERS, "--micro-batch-size=%"),
    MEANS("train-micro-batch-size-per-gpu", DEEPSPEED, "--micro-batch-size=%"),
    SKIP("per-device-eval-batch-size", TRANSFORMERS,
         "validation takes the batches of training"),
    ANSWER("train-batch-size", DEEPSPEED, "write --global-batch-size"),
    ANSWER("gradient-accumulation-steps", TRANSFORMERS, STEPS),
    MEANS("num-train-epochs", TRANSFORMERS, "--epochs=%"),
    MEANS("max-train-steps", TRANSFORMERS, "--train-iters=%"),
    MEANS("max-steps", TRANSFORMERS, "--train-iters=%"),
    MEANS("max-iters", NANOGPT, "--train-iters=%"),

    /* learning rate and optimizer */
    MEANS("learning-rate", TRANSFORMERS, "--lr=%"),
    MEANS("lr-scheduler-type", TRANSFORMERS, "--lr-decay-style=%"),
    MEANS("num-warmup-steps", TRANSFORMERS, "--lr-warmup-iters=%"),
    MEANS("warmup-steps", TRANSFORMERS, "--lr-warmup-iters=%"),
    MEANS("warmup-iters", NANOGPT, "--lr-warmup-iters=%"),
    MEANS("warmup-ratio", TRANSFORMERS, "--lr-warmup-fraction=%"),
    MEANS("warmup", OLDER, "--lr-warmup-fraction=%"),
    FLAG_MEANS("override-lr-scheduler", OLDER,
               "--override-opt-param-scheduler"),
    FLAG_MEANS("use-checkpoint-lr-scheduler", OLDER,
               "--use-checkpoint-opt-param-scheduler"),
    MEANS("label-smoothing-factor", TRANSFORMERS, "--label-smoothing=%"),
    SKIP("muon-fp32-matmul-prec", MEGATRON,
         "Muon's products are of single precision, or TF32 with --tf32"),
    SKIP_FLAG("muon-use-syrk", MEGATRON, FUSED),
    MEANS("beta1", NANOGPT, "--adam-beta1=%"),
    MEANS("beta2", NANOGPT, "--adam-beta2=%"),
    MEANS("adam-epsilon", TRANSFORMERS, "--adam-eps=%"),
    MEANS("max-grad-norm", TRANSFORMERS, "--clip-grad=%"),
    MEANS("gradient-clipping", DEEPSPEED, "--clip-grad=%"),
    MEANS("grad-clip", NANOGPT, "--clip-grad=%"),

    /* checkpoints and intervals */
    MEANS("output-dir", TRANSFORMERS, "--save=%"),
    MEANS("out-dir", NANOGPT, "--save=%"),
    MEANS("resume-from-checkpoint", TRANSFORMERS, "--load=%"),
    FLAG_MEANS("overwrite-output-dir", TRANSFORMERS, "--force"),
    MEANS("save-steps", TRANSFORMERS, "--save-interval=%"),
    MEANS("persistent-save-interval", MEGATRON, "--save-interval=%"),
    MEANS("save-total-limit", TRANSFORMERS, "--keep-checkpoints=%"),
    MEANS("logging-steps", TRANSFORMERS, "--log-interval=%"),
    MEANS("steps-per-print", DEEPSPEED, "--log-interval=%"),
    MEANS("eval-steps", TRANSFORMERS, "--eval-interval=%"),
    SKIP_FLAG("do-train", TRANSFORMERS, "gpt-train trains"),
    SKIP_FLAG("do-eval", TRANSFORMERS,
              "validation runs every --eval-interval steps"),
};

const size_t gpt_train_n_foreign = GPT_COUNT(gpt_train_foreign);
