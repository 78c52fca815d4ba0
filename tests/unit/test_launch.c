/* Environments of launchers, complete and broken. */
#include "parallel/launch_env.h"

#include "tests/lib/tap.h"

#define E(...) ((const char *const[]){__VA_ARGS__, NULL})

#define TORCHRUN                                                          \
    "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=2", "RANK=5", \
        "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1"
#define SLURM                                                 \
    "SLURM_JOB_ID=28001", "SLURM_PROCID=5", "SLURM_NTASKS=8", \
        "SLURM_LOCALID=1", "SLURM_NODEID=1"

static void set_environment(const char *const *env)
{
    clearenv();
    for (; *env; env++) {
        char name[64];
        const char *equals = strchr(*env, '=');

        snprintf(name, sizeof(name), "%.*s", (int)(equals - *env), *env);
        setenv(name, equals + 1, 1);
    }
}

static void test_detected(void)
{
    const struct {
        const char *const *env;
        const char *launcher;
        int64_t world, rank, local_size, local_rank, node;
        const char *host;
        int64_t port;
        bool agent;
        const char *run_id;
    } rows[] = {
        {E("HOME=/"), "none", 1, 0, 1, 0, 0, "127.0.0.1", 29500, false,
         "none.0.0"},
        {E(TORCHRUN, "MASTER_ADDR=n0", "MASTER_PORT=1234",
           "TORCHELASTIC_USE_AGENT_STORE=True"),
         "torchrun", 8, 5, 4, 1, 1, "n0", 1234, true, "none.0.2"},
        {E(TORCHRUN, "MASTER_ADDR=::1", "MASTER_PORT=65535",
           "TORCHELASTIC_USE_AGENT_STORE=False"),
         "torchrun", 8, 5, 4, 1, 1, "::1", 65535, false, "none.0.2"},
        {E("RANK=0", "WORLD_SIZE=1"), "environment", 1, 0, 0, 0, 0, "127.0.0.1",
         29500, false, "environment.0.0"},
        {E("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=29500"),
         "environment", 2, 1, 0, 0, 0, "a", 29500, false, "environment.0.0"},
        {E(SLURM, "SLURM_JOB_NODELIST=gpu[007-009,12],login"), "slurm", 8, 5, 0,
         1, 1, "gpu007", 15001, false, "28001.0.0"},
        {E(SLURM, "SLURM_JOB_NODELIST=a,b", "SLURM_STEP_NODELIST=b",
           "SLURM_STEP_NUM_TASKS=6", "SLURM_STEP_ID=3", "SLURM_RESTART_COUNT=1",
           "MASTER_PORT=99"),
         "slurm", 6, 5, 0, 1, 1, "b", 99, false, "28001.3.1"},
        {E(SLURM, "SLURM_JOB_NODELIST=a,b", "MASTER_ADDR=10.0.0.1",
           "PMI_RANK=5", "PMI_SIZE=8"),
         "slurm", 8, 5, 0, 1, 1, "10.0.0.1", 15001, false, "28001.0.0"},
        {E("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
           "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2"),
         "openmpi", 2, 1, 2, 1, 0, "127.0.0.1", 29500, false, "openmpi.0.0"},
        /* mpirun within a Slurm job: its daemons pass Slurm's variables on */
        {E(SLURM, "SLURM_JOB_NODELIST=n[3-4]", "OMPI_COMM_WORLD_RANK=2",
           "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0",
           "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=77"),
         "openmpi", 4, 2, 2, 0, 0, "n3", 29500, false, "77.0.0"},
        {E(SLURM, "PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=3",
           "MPI_LOCALNRANKS=4"),
         "pmi", 4, 3, 4, 3, 0, "127.0.0.1", 29500, false, "pmi.0.0"},
        {E("PMI_RANK=0", "PMI_SIZE=2", "MASTER_ADDR=h"), "pmi", 2, 0, 0, 0, 0,
         "h", 29500, false, "pmi.0.0"},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        struct gpt_launch_env l;
        struct gpt_err err = {0};

        set_environment(rows[i].env);
        if (!ok(gpt_launch_env_detect(&l, &err) == GPT_OK, "row %zu: %s", i,
                rows[i].launcher)) {
            printf("# %s\n", err.text);
            continue;
        }
        is_str(l.launcher, rows[i].launcher, "launcher");
        ok(l.world_size == rows[i].world && l.rank == rows[i].rank, "rank");
        ok(l.local_size == rows[i].local_size &&
               l.local_rank == rows[i].local_rank && l.node == rows[i].node,
           "place on the node");
        is_str(l.host, rows[i].host, "host");
        is_int(l.port, rows[i].port, "port");
        is_int(l.agent_store, rows[i].agent, "who listens");
        is_str(l.run_id, rows[i].run_id, "name of the run");
    }
}

static void test_refused(void)
{
    const struct {
        const char *const *env;
        const char *says;
    } rows[] = {
        {E("RANK=0"), "WORLD_SIZE is not set; one of "
                      "several ranks needs RANK, WORLD_SIZE, MASTER_ADDR"},
        {E("WORLD_SIZE=2"), "RANK is not set"},
        {E("RANK=2", "WORLD_SIZE=2"), "RANK is '2', not a number from 0 to 1"},
        {E("RANK=x", "WORLD_SIZE=2"), "RANK is 'x'"},
        {E("RANK=0", "WORLD_SIZE=0"), "WORLD_SIZE is '0'"},
        {E("RANK=-1", "WORLD_SIZE=4"), "RANK is '-1'"},
        {E("RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=a"), "LOCAL_RANK is 'a'"},
        {E(TORCHRUN, "MASTER_PORT=1"),
         "MASTER_ADDR is not set, but others of torchrun are"},
        {E(TORCHRUN, "MASTER_ADDR=a"), "MASTER_PORT is not set"},
        {E(TORCHRUN, "MASTER_ADDR=a", "MASTER_PORT=65536"),
         "MASTER_PORT is '65536', not a number from 1 to 65535"},
        {E("SLURM_PROCID=0"),
         "SLURM_NTASKS is not set, but others of slurm are"},
        {E(SLURM), "MASTER_ADDR is not set, and slurm does not tell"},
        {E(SLURM, "SLURM_JOB_NODELIST=a[b"), "no first host in the list 'a[b'"},
        {E("OMPI_COMM_WORLD_SIZE=2"), "OMPI_COMM_WORLD_RANK is not set"},
        {E("OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0",
           "OMPI_COMM_WORLD_LOCAL_SIZE=1"),
         "MASTER_ADDR is not set, and openmpi"},
        {E("PMI_RANK=0"), "PMI_SIZE is not set"},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        struct gpt_launch_env l;
        struct gpt_err err = {0};

        set_environment(rows[i].env);
        ok(gpt_launch_env_detect(&l, &err) == GPT_EUSAGE &&
               strstr(err.text, rows[i].says),
           "refused: %s", err.text);
    }
    char address[400] = "MASTER_ADDR=";
    struct gpt_launch_env l;
    struct gpt_err err = {0};
    memset(address + 12, 'a', 300);
    set_environment(E("RANK=0", "WORLD_SIZE=2", "MASTER_PORT=1", address));
    ok(gpt_launch_env_detect(&l, &err) == GPT_EUSAGE &&
           strstr(err.text, "MASTER_ADDR is longer"),
       "refused: %s", err.text);
}

static void test_first_host(void)
{
    static const struct {
        const char *list, *host;
    } rows[] = {
        {"n1", "n1"},
        {"n1,n2", "n1"},
        {"n[1-4]", "n1"},
        {"n[01,05-07]", "n01"},
        {"n[1-2]-ib,x", "n1-ib"},
        {"rack1-n[10]", "rack1-n10"},
        {"[1-2]", "1"},
        {"", NULL},
        {",a", NULL},
        {"n[", NULL},
        {"n[1", NULL},
        {"n[]", NULL},
        {"n[a]", NULL},
        {"n[1x]", NULL},
        {"n[1-2]m[3-4]", NULL},
    };
    char host[16];

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        bool found = gpt_first_host(rows[i].list, host, sizeof(host));

        ok(found == (rows[i].host != NULL) &&
               (!found || strcmp(host, rows[i].host) == 0),
           "first host of '%s'", rows[i].list);
    }
    ok(!gpt_first_host("a-very-long-name", host, sizeof(host)), "too long");
    ok(gpt_first_host("a-short-name---", host, sizeof(host)), "just fits");
}

int main(void)
{
    test_detected();
    test_refused();
    test_first_host();
    return tap_done();
}
