/* A rank's way through a job: it finds the others (gpt_world_open), connects to
 * those of its groups (gpt_world_connect), and says at the end how it ends
 * (gpt_world_end), so that every rank can name the first failure. */
#include "parallel/world.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/num.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROUP_NAME = 48, LINE = 160 };

/* Also in a world that is only imagined. */
static bool alone(const struct gpt_world *w)
{
    return !w->store || w->topology.world_size == 1;
}

/* ---- open ---- */

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
    int status = imagined ? GPT_OK
                          : gpt_store_open(&w->store, &w->launch, w->timeout,
                                           err);
    if (status != GPT_OK) {
        gpt_free(w);
        return status;
    }
    *out = w;
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
    int64_t index;
    int64_t n = gpt_topology_group(&w->topology, kind, ranks, &index);

    if (n < 2 || index < 0)
        return GPT_OK;
    name_group(unique, name, ranks, n);
    return gpt_comm_open(comm, w->store, be, w->carrier, unique, ranks, n,
                         index, w->timeout, err);
}

/* Kind by kind on all ranks, in one order: two ranks that have two groups in
 * common never wait for each other in different ones. */
int gpt_world_connect(struct gpt_world *w, struct gpt_backend *be,
                      struct gpt_err *err)
{
    int64_t *ranks;
    int status = GPT_OK;

    if (alone(w))
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
                               &w->reduce[GPT_GROUP_DP], err);
    gpt_free(ranks);
    return status;
}

/* All communicators in turn; NULL at the end. */
static struct gpt_comm *next_comm(const struct gpt_world *w, int *at)
{
    while (*at < 2 * GPT_N_GROUPS) {
        int i = (*at)++;
        struct gpt_comm *c =
            i < GPT_N_GROUPS ? w->comm[i] : w->reduce[i - GPT_N_GROUPS];

        if (c)
            return c;
    }
    return NULL;
}

void gpt_world_settled(struct gpt_world *w)
{
    struct gpt_comm *c;
    int at = 0;

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
    return alone(w) ? GPT_OK
                    : gpt_store_barrier(w->store, what, w->timeout, err);
}

/* ---- agreement ---- */

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

/* Sets this rank's difference from rank 0, if there is one. */
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

/* Which ranks differ, and what the first of them has. */
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

    if (alone(w))
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

int gpt_world_cores(struct gpt_world *w, int64_t *cores, struct gpt_err *err)
{
    char host[128] = "", key[192];
    int64_t sharing = 1;
    cpu_set_t mine;

    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
        return gpt_fail_errno(err, GPT_EFAIL, "cannot see this rank's cores");
    *cores = omp_get_num_procs();
    if (alone(w))
        return GPT_OK;
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(key, sizeof(key), "cores/%s/%016llx", host,
             (unsigned long long)gpt_hash64(&mine, sizeof(mine), 0));
    GPT_TRY(gpt_store_add(w->store, key, 1, &sharing, err));
    GPT_TRY(gpt_world_wait(w, "cores", err));
    GPT_TRY(gpt_store_add(w->store, key, 0, &sharing, err));
    *cores = gpt_max_i64(1, *cores / sharing);
    return GPT_OK;
}

/* ---- the end ---- */

/* Reports of ranks begin with the word of their status, "bad-data: ...", so
 * that all end with the same one. Reports of launchers and communicators do
 * not. */
static int status_of(const char **text)
{
    for (int status = 1; status <= GPT_EEXIST; status++) {
        const char *word = gpt_status_word(status);
        size_t n = strlen(word);

        if (strncmp(*text, word, n) == 0 && strncmp(*text + n, ": ", 2) == 0) {
            *text += n + 2;
            return status;
        }
    }
    return GPT_EFAIL;
}

/* Who failed: this rank, unless its error begins with "rank N: ", which is
 * then cut off. */
static int64_t who_failed(const struct gpt_world *w, struct gpt_err *err)
{
    long long rank;
    int n = 0;

    if (sscanf(err->text, "rank %lld: %n", &rank, &n) != 1 || n == 0)
        return w->launch.rank;
    memmove(err->text, err->text + n, strlen(err->text + n) + 1);
    return rank;
}

/* Posts the failure, and takes over the first one posted: of this rank, too,
 * whose communicators may have said why before something else went wrong. */
static int first_failure(struct gpt_world *w, int status, struct gpt_err *err)
{
    struct gpt_err ignored = {0};
    char text[sizeof(err->text) + 32];
    const char *why = text;
    int64_t rank = who_failed(w, err), first = w->launch.rank;

    snprintf(text, sizeof(text), "%s: %s", gpt_status_word(status), err->text);
    (void)gpt_store_post_failure(w->store, rank, text, &ignored);
    (void)gpt_store_failed(w->store, &first, text, sizeof(text));
    if (first >= 0) { /* else the launcher is gone, and this rank knows more */
        status = err->status = status_of(&why);
        if (strcmp(why, err->text) != 0) /* the same here: keep the hint */
            gpt_fail(err, status, "%s", why);
        rank = first;
    }
    gpt_context(err, "rank %lld", (long long)rank);
    gpt_launch_env_report(err->text);
    return status;
}

int gpt_world_end(struct gpt_world *w, int status, struct gpt_err *err)
{
    if (!w || alone(w))
        return status;
    if (status == GPT_OK)
        status = gpt_world_wait(w, "end", err);
    return status == GPT_OK ? GPT_OK : first_failure(w, status, err);
}

void gpt_world_close(struct gpt_world *w)
{
    if (!w)
        return;
    for (int i = 0; i < GPT_N_GROUPS; i++) {
        gpt_comm_close(w->comm[i]);
        gpt_comm_close(w->reduce[i]);
    }
    gpt_store_close(w->store);
    gpt_free(w);
}
