/* A rank's way through a job: it finds the other ranks (gpt_world_open), agrees
 * with them on what carries bytes (gpt_world_choose_carrier), connects to those
 * of its groups (gpt_world_connect), and reports at the end how it ends
 * (gpt_world_end), so that every rank can name the first failure. All of this
 * goes through the store: a few small values, before there are communicators or
 * when they have failed. */
#include "parallel/meeting.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/num.h"

#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GROUP_NAME = 48, LINE = 160 };

/* No other process is there: in a world of one, and in an imagined one. */
static bool is_alone(const struct gpt_world *w)
{
    return !w->store || w->topology.world_size == 1;
}

/* The next communicator of a walk over all of them; NULL at its end. */
static struct gpt_comm *next_comm(const struct gpt_world *w, int *at)
{
    while (*at <= GPT_N_GROUPS) {
        const int i = (*at)++;
        struct gpt_comm *c = i < GPT_N_GROUPS ? w->comm[i] : w->reduce;

        if (c)
            return c;
    }
    return NULL;
}

/* ---- open ---- */

/* Runs in the links' thread. The communicators fail before the report is
 * posted: where the network is gone, the store does not answer. */
static void fail_of_loss(void *context, int64_t rank, const char *text)
{
    struct gpt_world *w = context;
    struct gpt_err ignored = {0}, failure;
    struct gpt_comm *c;
    int at = 0;

    while (atomic_load(&w->connected) && (c = next_comm(w, &at)))
        gpt_comm_give_up(c, rank, text);
    gpt_fail(&failure, GPT_EFAIL, "%s", text);
    gpt_fail_on_rank(&failure, rank);
    (void)gpt_store_post_failure(w->store, &failure, &ignored);
}

static int meet_ranks(struct gpt_world *w, struct gpt_err *err)
{
    const struct gpt_links_options o = {.rank = w->topology.rank,
                                        .size = w->topology.world_size,
                                        .timeout = w->timeout,
                                        .lost = fail_of_loss,
                                        .context = w};

    return gpt_world_meet(w, &o, err);
}

int gpt_world_open(struct gpt_world **out, const struct gpt_world_options *o,
                   struct gpt_err *err)
{
    struct gpt_launch_env launch;
    struct gpt_topology topology;
    struct gpt_world *w;

    *out = NULL;
    GPT_TRY(gpt_launch_env_detect(&launch, err));
    const bool imagined = o->imagined > 0;
    GPT_TRY(gpt_topology_init(&topology,
                              imagined ? o->imagined : launch.world_size,
                              imagined ? 0 : launch.rank, o->size, o->chunks,
                              err));
    GPT_TRY(gpt_new(&w, 1, sizeof(*w), "the job's ranks", err));
    w->launch = launch;
    w->topology = topology;
    w->timeout = o->timeout;
    w->timeout_later = o->timeout_later;
    int status = imagined ? GPT_OK : meet_ranks(w, err);
    if (status != GPT_OK) {
        status = gpt_world_end(w, status, err);
        gpt_world_close(w);
        return status;
    }
    *out = w;
    return GPT_OK;
}

/* ---- what carries bytes ---- */

/* NCCL must be possible on every rank or is used on none, since a communicator
 * has one carrier. The ranks count in the store those that cannot use it: one
 * or two requests a rank, where rank 0 asking every rank would be as many
 * requests of one process as there are ranks. The barrier between counting and
 * reading makes the count final. */

/* Why this rank cannot use NCCL, or "". Fills `library` with its name. Only
 * ranks after the first one on a GPU find that it is shared. One of them is
 * enough, since one hindrance decides for all. */
static int find_hindrance(struct gpt_world *w, const struct gpt_backend *be,
                          char *why, size_t why_cap, char *library, size_t cap,
                          struct gpt_err *err)
{
    char gpu[96], key[128];
    int64_t sharing;

    why[0] = '\0';
    if (!be->collectives) {
        snprintf(why, why_cap, "device %s has no NCCL", be->name);
        return GPT_OK;
    }
    if (!be->collectives->library(library, cap)) {
        snprintf(why, why_cap, "%s", library);
        return GPT_OK;
    }
    GPT_TRY(be->collectives->device(gpu, sizeof(gpu), err));
    snprintf(key, sizeof(key), "gpu/%s", gpu);
    GPT_TRY(gpt_store_add(w->store, key, 1, &sharing, err));
    if (sharing > 1)
        snprintf(why, why_cap,
                 "ranks share a GPU, and NCCL needs one for each (LOCAL_RANK "
                 "says which)");
    return GPT_OK;
}

/* Replaces an empty `why` by the reason of another rank, where one has any. A
 * reason is set before it is counted: a count above zero says that a reason is
 * there. Where several ranks have one, any of them will do. */
static int share_hindrance(struct gpt_world *w, char *why, size_t cap,
                           struct gpt_err *err)
{
    char text[330]; /* why, and whose */
    int64_t hindered;
    void *value;
    size_t len;

    if (why[0]) {
        snprintf(text, sizeof(text), "rank %lld: %s",
                 (long long)w->launch.rank, why);
        GPT_TRY(gpt_store_set(w->store, "carrier/why", text, strlen(text),
                              err));
        GPT_TRY(gpt_store_add(w->store, "carrier/not", 1, &hindered, err));
    }
    GPT_TRY(gpt_world_wait(w, "carrier", err));
    GPT_TRY(gpt_store_add(w->store, "carrier/not", 0, &hindered, err));
    if (hindered == 0 || why[0]) /* its own reason tells a rank most */
        return GPT_OK;
    GPT_TRY(gpt_store_get(w->store, "carrier/why", w->timeout, &value, &len,
                          err));
    snprintf(why, cap, "%s", (const char *)value);
    gpt_free(value);
    return GPT_OK;
}

/* The ranks share their hindrances even where Gloo is asked for: ranks that
 * were not given the same options all pass the barrier here, and fail together
 * in the comparison of their options, with a better message than a timeout. */
int gpt_world_choose_carrier(struct gpt_world *w, struct gpt_backend *be,
                             const char *asked, char *text, size_t cap,
                             struct gpt_err *err)
{
    const bool gloo = asked && strcmp(asked, "gloo") == 0;
    char why[300], library[160] = "";

    snprintf(text, cap, "Gloo");
    w->carrier = GPT_GLOO;
    if (is_alone(w))
        return GPT_OK;
    GPT_TRY(find_hindrance(w, be, why, sizeof(why), library, sizeof(library),
                           err));
    GPT_TRY(share_hindrance(w, why, sizeof(why), err));
    if (gloo)
        return GPT_OK;
    if (!why[0]) {
        w->carrier = GPT_NCCL;
        snprintf(text, cap, "%s", library);
        return GPT_OK;
    }
    if (asked) {
        gpt_fail(err, GPT_EUSAGE, "%s", why);
        return gpt_hint(err, "Gloo works on the CPU, and lets ranks share a "
                             "GPU");
    }
    if (!be->host_memory)
        snprintf(text, cap, "Gloo (%s)", why);
    return GPT_OK;
}

/* ---- communicators ---- */

/* "tp.0,1": unique within a kind by the first rank alone; of large groups the
 * last ones are left out. */
static void name_group(char *name, const char *kind, const int64_t *ranks,
                       int64_t n)
{
    int at = snprintf(name, GROUP_NAME, "%s.", kind);

    for (int64_t i = 0; i < n; i++) {
        if (at > GROUP_NAME - 16) {
            snprintf(name + at, (size_t)(GROUP_NAME - at), "...");
            return;
        }
        at += snprintf(name + at, (size_t)(GROUP_NAME - at), "%s%lld",
                       i ? "," : "", (long long)ranks[i]);
    }
}

/* Groups of one, or without this rank, need no communicator. */
static int connect_group(struct gpt_world *w, struct gpt_backend *be,
                         enum gpt_group kind, const char *name,
                         int64_t *ranks, struct gpt_comm **comm,
                         struct gpt_err *err)
{
    char unique[GROUP_NAME];
    struct gpt_comm_options o = {
        .store = w->store, .be = be, .carrier = w->carrier,
        .name = unique, .ranks = ranks, .timeout = w->timeout,
    };

    o.n = gpt_topology_group(&w->topology, kind, ranks, &o.index);
    if (o.n < 2 || o.index < 0)
        return GPT_OK;
    name_group(unique, name, ranks, o.n);
    return gpt_comm_open(comm, &o, err);
}

/* Kind by kind on all ranks, in one order: two ranks that have two groups in
 * common never wait for each other in different ones. */
int gpt_world_connect(struct gpt_world *w, struct gpt_backend *be,
                      struct gpt_err *err)
{
    int64_t *ranks;
    int status = GPT_OK;

    if (is_alone(w))
        return GPT_OK;
    GPT_TRY(gpt_new(&ranks, (size_t)w->topology.world_size, sizeof(*ranks),
                    "a list of ranks", err));
    for (int i = 0; i < GPT_N_GROUPS && status == GPT_OK; i++) {
        enum gpt_group kind = (enum gpt_group)i;

        status = connect_group(w, be, kind, gpt_group_name(kind), ranks,
                               &w->comm[kind], err);
    }
    if (status == GPT_OK)
        status = connect_group(w, be, GPT_GROUP_DP, "reduce", ranks,
                               &w->reduce, err);
    gpt_free(ranks);
    atomic_store(&w->connected, true);
    return status;
}

/* Calls of the first step wait for ranks that still allocate and load. After it
 * a long silence is more likely a failure, and ends sooner. */
void gpt_world_shorten_timeout(struct gpt_world *w)
{
    struct gpt_comm *c;
    int at = 0;

    if (w->store)
        gpt_store_keep_waiting(w->store);
    w->timeout = w->timeout_later;
    while ((c = next_comm(w, &at)))
        gpt_comm_set_timeout(c, w->timeout);
}

int gpt_world_check(struct gpt_world *w, struct gpt_err *err)
{
    struct gpt_comm *c;
    int at = 0;

    while ((c = next_comm(w, &at)))
        GPT_TRY(gpt_comm_check(c, err));
    return GPT_OK;
}

int gpt_world_wait(struct gpt_world *w, const char *what, struct gpt_err *err)
{
    return is_alone(w) ? GPT_OK
                    : gpt_store_barrier(w->store, what, w->timeout, err);
}

/* ---- comparing texts over all ranks ----
 *
 * Rank 0 posts its text, every other rank compares it with its own and, where
 * they differ, posts one line about it and raises a counter. Two barriers order
 * this: after the first one rank 0's text is there, after the second one the
 * counter is final. Only if it is not zero does a rank ask for each of the
 * others, so a job that agrees costs a constant number of requests a rank. All
 * ranks read the same counter, so all of them fail or none does. */

/* The first line in which two texts differ, cut to LINE bytes each. */
static void first_difference(const char *a, const char *b, char *line_a,
                             char *line_b)
{
    size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");

    while (n == m && strncmp(a, b, n) == 0 && a[n] && b[m]) {
        a += n + 1;
        b += m + 1;
        n = strcspn(a, "\n");
        m = strcspn(b, "\n");
    }
    snprintf(line_a, LINE, "%.*s", (int)n, a);
    snprintf(line_b, LINE, "%.*s", (int)m, b);
}

static void agree_key(char *key, size_t cap, const char *what, int64_t rank)
{
    snprintf(key, cap, "agree/%.60s/%lld", what, (long long)rank);
}

/* Posts this rank's first difference from rank 0, if there is one. The line is
 * set before the counter is raised, so the line of every rank that was counted
 * can be read. */
static int post_difference(struct gpt_world *w, const char *what,
                           const char *text, struct gpt_err *err)
{
    char key[96], here[LINE], there[LINE], says[2 * LINE + 32];
    int64_t differing;
    void *first;
    size_t len;

    agree_key(key, sizeof(key), what, 0);
    GPT_TRY(gpt_store_get(w->store, key, w->timeout, &first, &len, err));
    bool same = strcmp(first, text) == 0;
    if (!same)
        first_difference(text, first, here, there);
    gpt_free(first);
    if (same)
        return GPT_OK;
    snprintf(says, sizeof(says), "'%s', rank 0 has '%s'", here, there);
    agree_key(key, sizeof(key), what, w->launch.rank);
    GPT_TRY(gpt_store_set(w->store, key, says, strlen(says), err));
    agree_key(key, sizeof(key), what, -1);
    return gpt_store_add(w->store, key, 1, &differing, err);
}

/* Fails with the ranks that differ, and the line of the first of them. */
static int name_differing(struct gpt_world *w, const char *what,
                          struct gpt_err *err)
{
    char key[96], names[200] = "", first[2 * LINE + 32] = "";
    size_t at = 0, len;
    int64_t n = 0;
    void *value;
    bool differs;

    for (int64_t r = 1; r < w->launch.world_size; r++) {
        agree_key(key, sizeof(key), what, r);
        GPT_TRY(gpt_store_check(w->store, key, &differs, err));
        if (!differs)
            continue;
        if (n++ == 0) {
            GPT_TRY(gpt_store_get(w->store, key, w->timeout, &value, &len,
                                  err));
            snprintf(first, sizeof(first), "%s", (const char *)value);
            gpt_free(value);
        }
        if (at + 24 < sizeof(names))
            at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%lld",
                                   n > 1 ? ", " : "", (long long)r);
    }
    return gpt_fail(err, GPT_EUSAGE,
                    "the ranks were not given the same %s: rank%s %s%s "
                    "differ%s from rank 0%s: %s",
                    what, n > 1 ? "s" : "", names,
                    at + 24 < sizeof(names) ? "" : ", ...", n > 1 ? "" : "s",
                    n > 1 ? ", the first of them" : "", first);
}

int gpt_world_agree(struct gpt_world *w, const char *what, const char *text,
                    struct gpt_err *err)
{
    char key[96];
    int64_t differing;

    if (is_alone(w))
        return GPT_OK;
    agree_key(key, sizeof(key), what, 0);
    if (w->launch.rank == 0)
        GPT_TRY(gpt_store_set(w->store, key, text, strlen(text), err));
    GPT_TRY(gpt_world_wait(w, what, err));
    GPT_TRY(post_difference(w, what, text, err));
    GPT_TRY(gpt_world_wait(w, what, err));
    agree_key(key, sizeof(key), what, -1);
    GPT_TRY(gpt_store_add(w->store, key, 0, &differing, err));
    return differing == 0 ? GPT_OK : name_differing(w, what, err);
}

/* ---- processors ---- */

/* Ranks share cores when they run on one host under one affinity mask: where a
 * launcher binds each rank to cores of its own, the masks differ and each rank
 * counts itself alone. */
int gpt_world_cores(struct gpt_world *w, int64_t *cores, struct gpt_err *err)
{
    char host[128] = "", key[192];
    int64_t sharing = 1;
    cpu_set_t mine;

    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
        return gpt_fail_errno(err, GPT_EFAIL, "cannot see this rank's cores");
    *cores = omp_get_num_procs();
    if (is_alone(w))
        return GPT_OK;
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(key, sizeof(key), "host/%lld", (long long)w->launch.rank);
    GPT_TRY(gpt_store_set(w->store, key, host, strlen(host), err));
    snprintf(key, sizeof(key), "cores/%s/%016llx", host,
             (unsigned long long)gpt_hash64(&mine, sizeof(mine), 0));
    GPT_TRY(gpt_store_add(w->store, key, 1, &sharing, err));
    GPT_TRY(gpt_world_wait(w, "cores", err));
    GPT_TRY(gpt_store_add(w->store, key, 0, &sharing, err));
    *cores = gpt_max_i64(1, *cores / sharing);
    return GPT_OK;
}

/* A name is no reason to end a run: where the store does not answer at once,
 * there is none. */
void gpt_world_host(struct gpt_world *w, int64_t rank, char *name, size_t cap)
{
    void *value = NULL;
    char key[64];
    size_t len;

    snprintf(name, cap, "?");
    snprintf(key, sizeof(key), "host/%lld", (long long)rank);
    if (is_alone(w) ||
        gpt_store_get(w->store, key, 1, &value, &len, NULL) != GPT_OK)
        return;
    snprintf(name, cap, "%s", (const char *)value);
    gpt_free(value);
}

/* ---- the end ---- */

/* Posts this rank's failure, or the one that it has from another rank
 * (err->rank), and takes over the first one posted, so that all ranks end with
 * the same status and reason. The first one may be of this rank, too: its
 * communicators say why before what else goes wrong in consequence. */
static int report_first_failure(struct gpt_world *w, int status,
                                struct gpt_err *err)
{
    struct gpt_err ignored = {0}, first = {.rank = -1};

    err->status = status;
    if (err->rank < 0)
        err->rank = w->launch.rank;
    (void)gpt_store_post_failure(w->store, err, &ignored);
    (void)gpt_store_failed(w->store, &first);
    if (first.rank >= 0) { /* else the launcher is gone: this rank knows more */
        if (strcmp(first.text, err->text) != 0) /* the same keeps its hint */
            gpt_fail(err, GPT_EFAIL, "%s", first.text);
        err->status = first.status != GPT_OK ? first.status : GPT_EFAIL;
        gpt_fail_on_rank(err, first.rank);
    }
    gpt_context(err, "rank %lld", (long long)err->rank);
    gpt_launch_env_report(err->text);
    return err->status;
}

/* A rank that ends well waits for the others: were it to leave, its closed
 * connections would look like a failure to ranks that still work. The same wait
 * tells it of a failure elsewhere, so that it ends with that status. */
int gpt_world_end(struct gpt_world *w, int status, struct gpt_err *err)
{
    if (!w || is_alone(w))
        return status;
    if (status == GPT_OK)
        status = gpt_world_wait(w, "end", err);
    return status == GPT_OK ? GPT_OK : report_first_failure(w, status, err);
}

void gpt_world_close(struct gpt_world *w)
{
    if (!w)
        return;
    /* The links' thread uses the communicators, and their watchers the store:
     * they are closed in this order. */
    gpt_links_close(w->links);
    for (int i = 0; i < GPT_N_GROUPS; i++)
        gpt_comm_close(w->comm[i]);
    gpt_comm_close(w->reduce);
    gpt_store_close(w->store);
    gpt_free(w);
}
