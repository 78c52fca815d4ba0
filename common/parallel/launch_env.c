/* One row a launcher: the variables in which it gives a process its rank. Where
 * the store is follows by one rule for all launchers. Start at
 * gpt_launch_env_detect(). */
#include "parallel/launch_env.h"

#include "base/io.h"
#include "base/json.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { DEFAULT_PORT = 29500 }; /* PyTorch's */

/* The launcher of whom nothing but torchrun's variables is known. */
#define BY_HAND "environment"

/* ---- variables ---- */

static const char *text_of(const char *name)
{
    const char *s = name ? getenv(name) : NULL;

    return s && *s ? s : NULL;
}

static int bad_variable(struct gpt_err *err, const char *launcher,
                        const char *name, int64_t min, int64_t max)
{
    const char *s = text_of(name);

    if (!s && strcmp(launcher, BY_HAND) != 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "environment variable %s is not set, but others of %s are",
                 name, launcher);
        return gpt_hint(err, "start all ranks with one launcher");
    }
    if (!s) {
        gpt_fail(err, GPT_EUSAGE, "environment variable %s is not set; one of "
                 "several ranks needs RANK, WORLD_SIZE, MASTER_ADDR and "
                 "MASTER_PORT", name);
        return gpt_hint(err, "gpt-launch and torchrun set them; without RANK "
                        "and WORLD_SIZE there is one rank");
    }
    return gpt_fail(err, GPT_EUSAGE,
                    "environment variable %s is '%.100s', not a number from "
                    "%lld to %lld",
                    name, s, (long long)min, (long long)max);
}

static int number_of(const char *launcher, const char *name, int64_t min,
                     int64_t max, int64_t *out, struct gpt_err *err)
{
    const char *s = text_of(name);

    if (!s || !gpt_parse_int(s, out) || *out < min || *out > max)
        return bad_variable(err, launcher, name, min, max);
    return GPT_OK;
}

/* A variable that may be missing, but not wrong. */
static int number_or(const char *launcher, const char *name, int64_t def,
                     int64_t min, int64_t max, int64_t *out,
                     struct gpt_err *err)
{
    if (!text_of(name)) {
        *out = def;
        return GPT_OK;
    }
    return number_of(launcher, name, min, max, out, err);
}

/* ---- ranks ---- */

struct launcher {
    const char *name;
    const char *sign; /* set by this launcher and no other */
    const char *rank, *size, *local_rank, *local_size, *node;
    const char *job, *restart; /* make the run's name */
};

/* The first row whose sign is set wins. Launchers nest (torchrun under srun,
 * mpirun in a Slurm allocation) and the inner one's variables describe this
 * process, so rows go from the innermost outwards: what a user sets by hand or
 * torchrun sets, then MPI launchers, then Slurm. */
static const struct launcher launchers[] = {
    {"torchrun", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK",
     "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID",
     "TORCHELASTIC_RESTART_COUNT"},
    {BY_HAND, "RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK",
     "LOCAL_WORLD_SIZE", "GROUP_RANK", NULL, NULL},
    {BY_HAND, "WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK",
     "LOCAL_WORLD_SIZE", "GROUP_RANK", NULL, NULL},
    {"openmpi", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, "PMIX_NAMESPACE", NULL},
    /* srun sets PMI_RANK, too: only a row with a sign of Hydra's own may come
     * before Slurm's, whose variables tell more */
    {"pmi", "MPI_LOCALRANKID", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS", NULL, NULL, NULL},
    {"slurm", "SLURM_PROCID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
     "SLURM_NTASKS_PER_NODE", "SLURM_NODEID", "SLURM_JOB_ID",
     "SLURM_RESTART_COUNT"},
    {"pmi", "PMI_RANK", "PMI_RANK", "PMI_SIZE", NULL, NULL, NULL, NULL, NULL},
};

static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < GPT_COUNT(launchers); i++)
        if (text_of(launchers[i].sign))
            return &launchers[i];
    return NULL;
}

static int read_ranks(struct gpt_launch_env *l, const struct launcher *w,
                      struct gpt_err *err)
{
    const char *size = w->size;

    /* A step of a Slurm job may be smaller than the job. */
    if (strcmp(w->name, "slurm") == 0 && text_of("SLURM_STEP_NUM_TASKS"))
        size = "SLURM_STEP_NUM_TASKS";
    GPT_TRY(number_of(w->name, size, 1, INT32_MAX, &l->world_size, err));
    GPT_TRY(number_of(w->name, w->rank, 0, l->world_size - 1, &l->rank, err));
    GPT_TRY(number_or(w->name, w->local_size, 0, 1, INT32_MAX, &l->local_size,
                      err));
    GPT_TRY(number_or(w->name, w->local_rank, 0, 0, INT32_MAX, &l->local_rank,
                      err));
    return number_or(w->name, w->node, 0, 0, INT32_MAX, &l->node, err);
}

/* ---- the store ---- */

/* A list like "node[01-03,07],other" is compressed. Digits are copied as text,
 * since their leading zeros are part of the name. */
bool gpt_first_host(const char *list, char *host, size_t cap)
{
    size_t n = strcspn(list, ",[");
    const char *inside = list + n + 1, *rest = "";
    size_t digits = 0, tail = 0;

    if (list[n] == '[') {
        digits = strspn(inside, "0123456789");
        const char *close = strchr(inside, ']');
        if (digits == 0 || !close || !strchr("-,]", inside[digits]))
            return false;
        rest = close + 1;
        tail = strcspn(rest, ",");
        if (memchr(rest, '[', tail)) /* of several dimensions: not needed */
            return false;
    }
    if (n + digits + tail == 0 || n + digits + tail >= cap)
        return false;
    snprintf(host, cap, "%.*s%.*s%.*s", (int)n, list, (int)digits, inside,
             (int)tail, rest);
    return true;
}

static const char *node_list(void)
{
    const char *step = text_of("SLURM_STEP_NODELIST");
    const char *job = text_of("SLURM_JOB_NODELIST");

    return step ? step : job;
}

/* A job on one machine needs no address. For others the first node of Slurm's
 * list is that of rank 0, because Slurm numbers its tasks from there. */
static int find_host(struct gpt_launch_env *l, struct gpt_err *err)
{
    const char *address = text_of("MASTER_ADDR");
    const char *hosts = node_list();

    if (address) {
        if (strlen(address) >= sizeof(l->host))
            return gpt_fail(err, GPT_EUSAGE,
                            "environment variable MASTER_ADDR is longer than "
                            "%zu bytes",
                            sizeof(l->host) - 1);
        snprintf(l->host, sizeof(l->host), "%s", address);
        return GPT_OK;
    }
    if (l->world_size == 1 || l->local_size == l->world_size) {
        snprintf(l->host, sizeof(l->host), "127.0.0.1");
        return GPT_OK;
    }
    if (hosts) {
        if (gpt_first_host(hosts, l->host, sizeof(l->host)))
            return GPT_OK;
        return gpt_fail(err, GPT_EUSAGE,
                        "no first host in the list '%.200s' of "
                        "SLURM_JOB_NODELIST; set MASTER_ADDR",
                        hosts);
    }
    gpt_fail(err, GPT_EUSAGE,
             "environment variable MASTER_ADDR is not set, and %s does not "
             "tell where rank 0 runs",
             l->launcher);
    return gpt_hint(err, "MASTER_ADDR is the name or address of the node of "
                         "rank 0");
}

/* Two jobs on one machine must not meet in one store. Where the launcher
 * numbers jobs the port follows from the number, below the range that the
 * kernel gives to outgoing connections. */
static int64_t port_of_job(const char *launcher, const char *job)
{
    int64_t id = 0;

    if (strcmp(launcher, "slurm") == 0 && job && gpt_parse_int(job, &id) &&
        id >= 0)
        return 15000 + id % 14000;
    return DEFAULT_PORT;
}

/* The name is the prefix of all keys in the store: a job that is restarted
 * under a launcher whose store lives on must not read what its former self
 * wrote. */
static int name_run(struct gpt_launch_env *l, const struct launcher *w,
                    struct gpt_err *err)
{
    const char *job = text_of(w->job), *step = NULL;
    const char *restart = text_of(w->restart);

    if (strcmp(w->name, "slurm") == 0)
        step = text_of("SLURM_STEP_ID");
    int n =
        snprintf(l->run_id, sizeof(l->run_id), "%s.%s.%s", job ? job : w->name,
                 step ? step : "0", restart ? restart : "0");
    if (n < 0 || (size_t)n >= sizeof(l->run_id))
        return gpt_fail(err, GPT_EUSAGE,
                        "environment variable %s is longer than %zu bytes",
                        w->job, sizeof(l->run_id) - 20);
    return GPT_OK;
}

static int find_store(struct gpt_launch_env *l, const struct launcher *w,
                      struct gpt_err *err)
{
    const char *agent = text_of("TORCHELASTIC_USE_AGENT_STORE");
    const bool by_hand = strcmp(w->rank, "RANK") == 0;

    if (by_hand && l->world_size > 1 && !text_of("MASTER_ADDR"))
        return bad_variable(err, w->name, "MASTER_ADDR", 0, 0);
    if (by_hand && l->world_size > 1 && !text_of("MASTER_PORT"))
        return bad_variable(err, w->name, "MASTER_PORT", 1, 65535);
    GPT_TRY(find_host(l, err));
    GPT_TRY(number_or(w->name, "MASTER_PORT",
                      port_of_job(w->name, text_of(w->job)), 1, 65535, &l->port,
                      err));
    l->agent_store = by_hand && agent && strcasecmp(agent, "true") == 0;
    return name_run(l, w, err);
}

/* Fills in *l but for the store; *w is NULL without a launcher. */
static int find_ranks(struct gpt_launch_env *l, const struct launcher **w,
                      struct gpt_err *err)
{
    *l = (struct gpt_launch_env){.launcher = "none",
                             .world_size = 1,
                             .local_size = 1,
                             .host = "127.0.0.1",
                             .port = DEFAULT_PORT,
                             .run_id = "none.0.0"};
    *w = find_launcher();
    if (!*w)
        return GPT_OK;
    l->launcher = (*w)->name;
    return read_ranks(l, *w, err);
}

int gpt_launch_env_detect(struct gpt_launch_env *l, struct gpt_err *err)
{
    const struct launcher *w;

    GPT_TRY(find_ranks(l, &w, err));
    return w ? find_store(l, w, err) : GPT_OK;
}

int64_t gpt_launch_env_local_rank(void)
{
    const struct launcher *w;
    struct gpt_launch_env l;

    return find_ranks(&l, &w, NULL) == GPT_OK ? l.local_rank : 0;
}

int64_t gpt_launch_env_size(void)
{
    const struct launcher *w;
    struct gpt_launch_env l;

    return find_ranks(&l, &w, NULL) == GPT_OK ? l.world_size : 1;
}

/* ---- the end ---- */

/* Writes the file that torchrun's agent reads when a process fails; its format
 * is that of ProcessFailure in
 * torch/distributed/elastic/multiprocessing/errors. */
void gpt_launch_env_report(const char *reason)
{
    const char *path = text_of("TORCHELASTIC_ERROR_FILE");
    struct gpt_err ignored = {0};
    struct gpt_out *out;

    if (!path || gpt_out_open(&out, path, GPT_OUT_FORCE | GPT_OUT_NOSYNC, 0,
                              &ignored) != GPT_OK)
        return;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "message", reason);
    cJSON_AddNumberToObject(json, "timestamp", (double)time(NULL));
    char *text = gpt_json_print(json, false);
    if (text &&
        gpt_out_write(out, text, strlen(text), &ignored) == GPT_OK)
        (void)!gpt_out_commit(out, &ignored);
    else
        gpt_out_abort(out);
    cJSON_free(text);
    cJSON_Delete(json);
}
