/* gpt-launch: starts the ranks of a job on this node, as torchrun does. This
 * file is the table of options and what they must fulfil together; the work is
 * in ranks.c. */
#include "base/memory.h"
#include "base/options.h"
#include "cmd/launch/count.h"
#include "cmd/launch/foreign.h"
#include "cmd/launch/ranks.h"

#include <string.h>

struct options {
    struct gpt_common_options common;
    int64_t node_rank, master_port;
    const char *nproc, *nnodes, *master_addr, *log_dir;
    bool standalone, stdio;
    double grace;
};

#define AT(field) .offset = offsetof(struct options, field)
#define COMMON(field) AT(common.field)
static const char *const nproc_words[] = {"gpu", "cpu", "auto", NULL};

/* Options that torchrun has are called the same here, so that its command lines
 * work. The common options are listed one by one: those that have no meaning
 * for a launcher are left out. */
static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_GROUP, .help = "Processes"},
    {.kind = GPT_OPT_STRING, .name = "nproc-per-node", .arg = "N", AT(nproc),
     .def = "1", .choices = nproc_words,
     .help = "processes on this node: a number, gpu (one a GPU), cpu (one a "
             "core), auto (gpu where there is one, else cpu)"},
    {.kind = GPT_OPT_STRING, .name = "nnodes", .arg = "N", AT(nnodes),
     .def = "1",
     .help = "nodes; gpt-launch is started on each of them"},
    {.kind = GPT_OPT_INT, .name = "node-rank", .arg = "N", AT(node_rank),
     .def = "0", .min = 0, .max = 65535, .help = "this node, from 0"},
    {.kind = GPT_OPT_STRING, .name = "master-addr", .arg = "HOST",
     AT(master_addr), .def = "127.0.0.1",
     .help = "name or address of node 0, as the others reach it"},
    {.kind = GPT_OPT_INT, .name = "master-port", .arg = "PORT",
     AT(master_port), .def = "29500", .min = 1, .max = 65535,
     .help = "of the store on node 0"},
    {.kind = GPT_OPT_FLAG, .name = "standalone", AT(standalone),
     .help = "one node, any free port"},
    {.kind = GPT_OPT_INT, .name = "threads", .arg = "N", COMMON(threads),
     .def = "0", .min = 0, .max = GPT_MOST_THREADS,
     .help = "CPU threads of a process, 0 = cores / processes"},
    /* Programs that read and write, as a filter does. */
    {.kind = GPT_OPT_FLAG, .name = "stdio", AT(stdio),
     .help = "rank 0 reads this standard input, and writes to this standard "
             "output as it is"},
    {.kind = GPT_OPT_GROUP, .help = "Ends and logs"},
    {.kind = GPT_OPT_REAL, .name = "grace", .arg = "SECONDS", AT(grace),
     .def = "30", .min = 0, .max = 86400,
     .help = "from SIGTERM to SIGKILL, after a process failed"},
    {.kind = GPT_OPT_STRING, .name = "log-dir", .arg = "DIR", AT(log_dir),
     .flags = GPT_OPT_DIR, .help = "write DIR/rank-N.log as well"},
    {.kind = GPT_OPT_FLAG, .letter = 'f', .name = "force", COMMON(force),
     .help = "replace logs that exist, instead of appending to them"},
    {.kind = GPT_OPT_GROUP, .help = "Common"},
    {.kind = GPT_OPT_STRING, .name = "config", .arg = "FILE", COMMON(config),
     .flags = GPT_OPT_FILE | GPT_OPT_INPUT,
     .help = "read options from FILE: lines 'name = value'"},
    {.kind = GPT_OPT_FLAG, .name = "print-config", COMMON(print_config),
     .help = "print all options as such a file, and stop"},
    {.kind = GPT_OPT_CHOICE, .name = "color", .arg = "WHEN", .def = "auto",
     .choices = gpt_when_choices, COMMON(color),
     .help = "colour in messages; NO_COLOR is honoured"},
    {.kind = GPT_OPT_CHOICE, .name = "log-format", .arg = "FORMAT",
     .def = "text", .choices = gpt_log_format_choices, COMMON(log_format),
     .help = "messages as text, or as lines of json"},
    {.kind = GPT_OPT_FLAG, .letter = 'q', .name = "quiet", COMMON(quiet),
     .one_of = "loudness", .help = "errors and warnings only"},
    {.kind = GPT_OPT_FLAG, .letter = 'v', .name = "verbose", COMMON(verbose),
     .one_of = "loudness", .help = "say more"},
};

/* Rules between options. Without an address the other nodes would look for the
 * store on themselves, and wait in vain. */
static int check_options(const struct options *o, int64_t nnodes,
                         const struct gpt_args *args, struct gpt_err *err)
{
    if (args->n_positional == 0) {
        gpt_fail(err, GPT_EUSAGE, "no program to start");
        return gpt_hint(err, "gpt-launch --nproc-per-node 2 gpt-train ...");
    }
    if (o->node_rank >= nnodes)
        return gpt_fail(err, GPT_EUSAGE,
                        "--node-rank: %lld is not below --nnodes %lld",
                        (long long)o->node_rank, (long long)nnodes);
    if (o->standalone && (nnodes > 1 ||
                          gpt_option_given(args, "master-addr") ||
                          gpt_option_given(args, "master-port")))
        return gpt_fail(err, GPT_EUSAGE,
                        "--standalone starts one node with a free port: leave "
                        "out --nnodes, --master-addr and --master-port");
    if (nnodes > 1 && !gpt_option_given(args, "master-addr"))
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld nodes need --master-addr, the name or address "
                        "of node 0",
                        (long long)nnodes);
    return GPT_OK;
}

static int start_job(const void *options, const struct gpt_args *args,
                     struct gpt_err *err)
{
    const struct options *o = options;
    char **command;
    int64_t nproc, nnodes;

    GPT_TRY(gpt_launcher_count(&nproc, o->nproc, err));
    GPT_TRY(gpt_launcher_nodes(&nnodes, o->nnodes, err));
    GPT_TRY(check_options(o, nnodes, args, err));
    GPT_TRY(gpt_new(&command, (size_t)args->n_positional + 1, sizeof(*command),
                    "a command", err));
    /* execvp() takes pointers to char that is not const, though it changes
     * nothing: they are copied byte by byte instead of cast. The list was
     * zeroed, so that it ends with NULL. */
    for (int i = 0; i < args->n_positional; i++)
        memcpy(&command[i], &args->positional[i], sizeof(*command));
    const struct gpt_launcher_options lo = {
        .command = command,
        .nproc = nproc,
        .nnodes = nnodes,
        .node_rank = o->node_rank,
        .master_addr = o->master_addr,
        .master_port = o->standalone ? 0 : o->master_port,
        .threads = o->common.threads,
        .force_threads = gpt_option_given(args, "threads"),
        .grace = o->grace,
        .log_dir = o->log_dir,
        .force = o->common.force,
        .stdio = o->stdio,
    };
    int status = gpt_launcher_run(&lo, err);
    gpt_free(command);
    return status;
}

int main(int argc, char **argv)
{
    static const char *const usage[] = {
        "[--nproc-per-node N] [OPTION]... PROGRAM [ARGUMENT]...",
        "--nnodes N --node-rank N --master-addr HOST [OPTION]... PROGRAM "
        "[ARGUMENT]...",
        NULL,
    };
    static const char *const examples[] = {
        "gpt-launch --standalone --nproc-per-node 4 gpt-train --config "
        "run.conf",
        "gpt-launch --nnodes 2 --node-rank 0 --master-addr node0 "
        "--nproc-per-node 8 gpt-train --config run.conf",
        NULL,
    };
    const struct gpt_program program = {
        .name = "gpt-launch",
        .purpose = "Start a program as several ranks, on one node or many.",
        .usage = usage,
        .examples = examples,
        .options = table,
        .n_options = GPT_COUNT(table),
        .foreign = gpt_launch_foreign,
        .n_foreign = gpt_launch_n_foreign,
        .hints = gpt_launch_hints,
        .n_hints = gpt_launch_n_hints,
        .options_bytes = sizeof(struct options),
        .max_positional = -1,
        .stop_at_positional = true,
        .positional = "PROGRAM [ARGUMENT]...",
        .run = start_job,
    };

    return gpt_main(&program, argc, argv);
}
