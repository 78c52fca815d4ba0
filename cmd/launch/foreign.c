/* The table of foreign.h. A name is translated where it means the same here. A
 * name with `skip` only warns, as leaving it out starts the same job; any other
 * name without a translation ends the program with what to write. */
#include "cmd/launch/foreign.h"

#include "base/foreign.h"

#define MPIRUN "mpirun"
#define SLURM "Slurm"
#define EACH_NODE \
    "start gpt-launch on each node: --nnodes N --node-rank I --master-addr HOST"
#define THEIRS "these are options of gpt-train: write them after its name"
#define PLACED \
    "ranks run where the system puts them; numactl and taskset place a node's"
#define EACH_RANK                                                              \
    "lines are shown with the rank in front; --log-dir DIR keeps them"
#define COUNTS "write --nproc-per-node and --nnodes"
#define AS_IT_IS "programs are started as they are"
#define ITSELF "give the program itself"
#define NO_TPU "devices are CPUs and GPUs: write --device after gpt-train"
#define ENVIRONMENT "ranks have the environment of gpt-launch"
#define OF_SLURM                                                               \
    "sbatch and srun take it; srun starts gpt-train itself, without gpt-launch"
#define MEETING "ranks meet through the store of node 0"

const struct gpt_foreign_option gpt_launch_foreign[] = {
    {"no-python", TORCHRUN, .answer = AS_IT_IS, .flag = true, .skip = true},
    {"rdzv-backend", TORCHRUN, .answer = MEETING, .skip = true},
    {"rdzv-id", TORCHRUN, .answer = MEETING, .skip = true},
    {"rdzv-conf", TORCHRUN, .answer = MEETING, .skip = true},
    {"rdzv-endpoint", TORCHRUN,
     .answer = "write --master-addr HOST --master-port PORT"},
    {"monitor-interval", TORCHRUN,
     .answer = "a process that ends is noticed at once", .skip = true},
    {"start-method", TORCHRUN, .answer = AS_IT_IS, .skip = true},
    {"role", TORCHRUN, .answer = "all ranks have one role", .skip = true},
    {"max-restarts", TORCHRUN,
     .answer = "a job that failed is started again with the same command line; "
               "gpt-train resumes from its newest checkpoint"},
    {"tee", TORCHRUN, .answer = EACH_RANK},
    {"redirects", TORCHRUN, .answer = EACH_RANK},
    {"log-line-prefix-template", TORCHRUN, .answer = EACH_RANK},
    {"logs-specs", TORCHRUN, .answer = EACH_RANK},
    {"duplicate-stdout-filters", TORCHRUN, .answer = EACH_RANK},
    {"duplicate-stderr-filters", TORCHRUN, .answer = EACH_RANK},
    {"event-log-handler", TORCHRUN, .answer = EACH_RANK},
    {"signals-to-handle", TORCHRUN,
     .answer = "SIGTERM, SIGINT, SIGHUP and SIGUSR2 always reach the ranks"},
    {"local-addr", TORCHRUN,
     .answer = "write --master-addr, the address of node 0, on every node"},
    {"numa-binding", TORCHRUN, .answer = PLACED},
    {"virtual-local-rank", TORCHRUN,
     .answer = "CUDA_VISIBLE_DEVICES says which devices ranks share"},
    {"local-ranks-filter", TORCHRUN,
     .answer = "rank 0 alone reports; --log-dir DIR has a file a rank"},
    {"module", TORCHRUN, .answer = ITSELF, .flag = true},
    {"m", TORCHRUN, .answer = ITSELF, .flag = true},
    {"run-path", TORCHRUN, .answer = ITSELF, .flag = true},
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
    {"mixed-precision", ACCELERATE, .answer = THEIRS},
    {"gradient-accumulation-steps", ACCELERATE, .answer = THEIRS},
    {"use-fsdp", ACCELERATE, .answer = THEIRS},
    {"use-deepspeed", ACCELERATE, .answer = THEIRS},
    {"zero-stage", ACCELERATE, .answer = THEIRS},
    {"cpu", ACCELERATE, .answer = "write --device cpu after gpt-train"},
    {"gpu-ids", ACCELERATE,
     .answer = "CUDA_VISIBLE_DEVICES says which devices ranks get"},
    {"config-file", ACCELERATE,
     .answer = "write its values as options: here --nproc-per-node, --nnodes "
               "and --node-rank, the others after gpt-train"},
    {"same-network", ACCELERATE, .answer = MEETING},
    {"dynamo-backend", ACCELERATE, .answer = AS_IT_IS},
    {"main-training-function", ACCELERATE, .answer = ITSELF},
    {"np", MPIRUN, .answer = COUNTS},
    {"n", MPIRUN, .answer = COUNTS},
    {"host", MPIRUN, .answer = EACH_NODE},
    {"map-by", MPIRUN, .answer = PLACED},
    {"bind-to", MPIRUN, .answer = PLACED},
    {"ntasks", SLURM, .answer = COUNTS},
    {"ntasks-per-node", SLURM, .answer = COUNTS},
    {"gpus-per-node", SLURM, .answer = COUNTS},
    {"launcher", DEEPSPEED, .answer = EACH_NODE},
    {"force-multi", DEEPSPEED, .answer = EACH_NODE},
    {"ssh-port", DEEPSPEED, .answer = EACH_NODE},
    {"bind-cores-to-rank", DEEPSPEED, .answer = PLACED},
    {"no-local-rank", DEEPSPEED,
     .answer = "ranks get their place by the environment alone"},
    {"enable-each-rank-log", DEEPSPEED, .answer = EACH_RANK},
    {"num-gpus", DEEPSPEED, .means = "--nproc-per-node=%"},
    {"num-nodes", DEEPSPEED, .means = "--nnodes=%"},
    {"hostfile", DEEPSPEED, .answer = EACH_NODE},
    {"include", DEEPSPEED, .answer = EACH_NODE},
    {"exclude", DEEPSPEED, .answer = EACH_NODE},
};

const size_t gpt_launch_n_foreign = GPT_COUNT(gpt_launch_foreign);

/* Families, and names that are answered alone. */
const struct gpt_foreign_option gpt_launch_hints[] = {
    HINT("shutdown-timeout", TORCHRUN, "write --grace SECONDS"),
    HINT("redirect", TORCHRUN, EACH_RANK),
    HINT("megatron-lm-*", ACCELERATE, THEIRS),
    HINT("fsdp-*", ACCELERATE, THEIRS),
    HINT("fp8-*", ACCELERATE, THEIRS),
    HINT("gradient-clipping", ACCELERATE, THEIRS),
    HINT("offload-*", ACCELERATE, THEIRS),
    HINT("zero3-*", ACCELERATE, THEIRS),
    HINT("parallelism-config-*", ACCELERATE, THEIRS),
    HINT("use-parallelism-config", ACCELERATE, THEIRS),
    HINT("deepspeed-config-file", ACCELERATE, THEIRS),
    HINT("deepspeed-*", ACCELERATE, EACH_NODE),
    HINT("mpirun-hostfile", ACCELERATE, EACH_NODE),
    HINT("dynamo-*", ACCELERATE, AS_IT_IS),
    HINT("enable-cpu-affinity", ACCELERATE, PLACED),
    HINT("tpu*", ACCELERATE, NO_TPU),
    HINT("no-tpu-cluster", ACCELERATE, NO_TPU),
    HINT("downcast-bf16", ACCELERATE, NO_TPU),
    HINT("hosts", MPIRUN, EACH_NODE),
    HINT("machinefile", MPIRUN, EACH_NODE),
    HINT("npernode", MPIRUN, COUNTS),
    HINT("ppn", MPIRUN, COUNTS),
    HINT("N", MPIRUN, COUNTS),
    HINT("x", MPIRUN, ENVIRONMENT),
    HINT("mca", MPIRUN, MEETING),
    HINT("allow-run-as-root", MPIRUN, "any user may start ranks"),
    HINT("oversubscribe", MPIRUN,
         "--nproc-per-node may be more than there are processors"),
    HINT("report-bindings", MPIRUN, PLACED),
    HINT("tag-output", MPIRUN, EACH_RANK),
    HINT("nodes", SLURM, COUNTS),
    HINT("gpus", SLURM, COUNTS),
    HINT("gpus-per-task", SLURM, COUNTS),
    HINT("gres", SLURM, COUNTS),
    HINT("cpus-per-task", SLURM, "write --threads N"),
    HINT("cpu-bind", SLURM, PLACED),
    HINT("export", SLURM, ENVIRONMENT),
    HINT("output", SLURM, EACH_RANK),
    HINT("error", SLURM, EACH_RANK),
    HINT("label", SLURM, EACH_RANK),
    HINT("unbuffered", SLURM, "lines are shown as they come"),
    HINT("kill-on-bad-exit", SLURM, "a rank that fails ends the others"),
    HINT("wait", SLURM, "write --grace SECONDS"),
    HINT("partition", SLURM, OF_SLURM),
    HINT("account", SLURM, OF_SLURM),
    HINT("time", SLURM, OF_SLURM),
    HINT("mem", SLURM, OF_SLURM),
    HINT("job-name", SLURM, OF_SLURM),
    HINT("exclusive", SLURM, OF_SLURM),
    HINT("nodelist", SLURM, OF_SLURM),
    HINT("mpi", SLURM, OF_SLURM),
    HINT("container-*", SLURM, OF_SLURM),
};

const size_t gpt_launch_n_hints = GPT_COUNT(gpt_launch_hints);
