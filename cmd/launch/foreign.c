/* The table of foreign.h. A name is translated where it means the same here. A
 * name with `skip` only warns, as leaving it out starts the same job; any other
 * name without a translation ends the program with what to write. */
#include "cmd/launch/foreign.h"

#define TORCHRUN "torchrun"
#define ACCELERATE "accelerate"
#define DEEPSPEED "DeepSpeed"
#define EACH_NODE \
    "start gpt-launch on each node: --nnodes N --node-rank I --master-addr HOST"
#define MEETING "ranks meet through the store of node 0"

const struct gpt_foreign_option gpt_launch_foreign[] = {
    {"no-python", TORCHRUN, .answer = "programs are started as they are",
     .flag = true, .skip = true},
    {"rdzv-backend", TORCHRUN, .answer = MEETING, .skip = true},
    {"rdzv-id", TORCHRUN, .answer = MEETING, .skip = true},
    {"rdzv-conf", TORCHRUN, .answer = MEETING, .skip = true},
    {"rdzv-endpoint", TORCHRUN,
     .answer = "write --master-addr HOST --master-port PORT"},
    {"monitor-interval", TORCHRUN,
     .answer = "a process that ends is noticed at once", .skip = true},
    {"start-method", TORCHRUN, .answer = "programs are started as they are",
     .skip = true},
    {"role", TORCHRUN, .answer = "all ranks have one role", .skip = true},
    {"max-restarts", TORCHRUN,
     .answer = "a job that failed is started again with the same command line; "
               "gpt-train resumes from its newest checkpoint"},
    {"tee", TORCHRUN,
     .answer = "lines are shown with the rank in front; --log-dir DIR keeps "
               "them"},
    {"redirects", TORCHRUN,
     .answer = "lines are shown with the rank in front; --log-dir DIR keeps "
               "them"},
    {"local-ranks-filter", TORCHRUN,
     .answer = "rank 0 alone reports; --log-dir DIR has a file a rank"},
    {"module", TORCHRUN, .answer = "give the program itself", .flag = true},
    {"run-path", TORCHRUN, .answer = "give the program itself", .flag = true},
    {"num-machines", ACCELERATE, .means = "--nnodes=%"},
    {"machine-rank", ACCELERATE, .means = "--node-rank=%"},
    {"main-process-ip", ACCELERATE, .means = "--master-addr=%"},
    {"main-process-port", ACCELERATE, .means = "--master-port=%"},
    {"num-processes", ACCELERATE,
     .answer = "write --nproc-per-node, the processes of one node"},
    {"num-cpu-threads-per-process", ACCELERATE, .means = "--threads=%"},
    {"multi-gpu", ACCELERATE, .answer = "--nproc-per-node says it",
     .flag = true, .skip = true},
    {"use-megatron-lm", ACCELERATE, .answer = "gpt-train has these options",
     .flag = true, .skip = true},
    {"num-gpus", DEEPSPEED, .means = "--nproc-per-node=%"},
    {"num-nodes", DEEPSPEED, .means = "--nnodes=%"},
    {"hostfile", DEEPSPEED, .answer = EACH_NODE},
    {"include", DEEPSPEED, .answer = EACH_NODE},
    {"exclude", DEEPSPEED, .answer = EACH_NODE},
};

const size_t gpt_launch_n_foreign = GPT_COUNT(gpt_launch_foreign);
