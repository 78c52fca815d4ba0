/* The ring of links between ranks: a rank that is killed is named by its two
 * neighbours, one that leaves is not, and strangers are no ranks. */
#include "parallel/links.h"

#include "tests/lib/job.h"
#include "tests/lib/tap.h"

#include "base/clock.h"
#include "base/memory.h"
#include "parallel/net.h"

#include <stdatomic.h>
#include <string.h>

struct seen {
    atomic_int lost; /* rank + 1 */
};

static void take(void *context, int64_t rank, const char *text)
{
    struct seen *seen = context;

    (void)text;
    atomic_store(&seen->lost, (int)rank + 1);
}

enum { RANKS = 4, VICTIM = 2 };

struct scene {
    bool killed, reported, strangers;
};

/* Connects to the rank's link port and sends something else than its number. */
static void disturb(struct rank *rank)
{
    struct gpt_err err = {0};
    char key[40], address[128], why[100];
    long long port;
    void *value;
    size_t len;

    snprintf(key, sizeof(key), "link/%lld",
             (long long)(rank->rank + 1) % rank->size);
    if (gpt_store_get(rank->store, key, 10, &value, &len, &err) != GPT_OK ||
        sscanf(value, "%127s %lld", address, &port) != 2)
        _exit(20);
    gpt_free(value);
    for (int i = 0; i < 40; i++) {
        int fd = gpt_net_connect(address, port, 1, why, sizeof(why));

        if (fd >= 0 && i % 2 == 0)
            (void)!send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
    }
}

/* The store of job.h counts a rank more than there are, so a barrier of the
 * store would wait for it. */
static bool all_are_here(struct rank *rank)
{
    struct gpt_err err = {0};
    int64_t n = 0;

    if (gpt_store_add(rank->store, "here", 1, &n, &err) != GPT_OK)
        return false;
    for (int i = 0; i < 6000 && n < rank->size; i++) {
        usleep(10000);
        if (gpt_store_add(rank->store, "here", 0, &n, &err) != GPT_OK)
            return false;
    }
    return n == rank->size;
}

/* Ends with 10 + the rank that was lost, or with 10 when none was. */
static int link_rank(struct rank *rank, const void *context)
{
    const struct scene *scene = context;
    struct seen seen = {0};
    const struct gpt_links_options o = {.rank = rank->rank,
                                        .size = rank->size,
                                        .timeout = 60,
                                        .lost = take,
                                        .context = &seen};
    struct gpt_err err = {0};
    struct gpt_links *links;

    if (scene->strangers && rank->rank == 0)
        usleep(500000); /* the others are disturbed before they meet this one */
    if (gpt_links_open(&links, rank->store, &o, &err) != GPT_OK) {
        printf("# %s\n", err.text);
        return 1;
    }
    if (!all_are_here(rank))
        return 2;
    if (rank->rank == VICTIM && scene->killed) {
        if (scene->reported) {
            gpt_fail(&err, GPT_EFAIL, "has a reason");
            gpt_fail_on_rank(&err, VICTIM);
            if (gpt_store_post_failure(rank->store, &err, &err) != GPT_OK)
                return 3;
        }
        raise(SIGKILL);
    }
    if (rank->rank == VICTIM) {
        gpt_links_close(links);
        return 10;
    }
    const bool loses =
        scene->killed && !scene->reported &&
        (rank->rank == VICTIM - 1 || rank->rank == VICTIM + 1);
    const double end = gpt_now() + (loses ? 60 : 3);
    while (gpt_now() < end && !atomic_load(&seen.lost))
        usleep(10000);
    gpt_links_close(links);
    return 10 + atomic_load(&seen.lost);
}

static int exit_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_scene(const char *name, const struct scene *scene,
                       const int *want)
{
    int statuses[MAX_RANKS];
    bool right = true;

    job_run(RANKS, link_rank, scene, statuses);
    for (int r = 0; r < RANKS; r++) {
        right = right && exit_of(statuses[r]) == want[r];
        if (exit_of(statuses[r]) != want[r])
            printf("# rank %d: %d, want %d\n", r, exit_of(statuses[r]),
                   want[r]);
    }
    ok(right, "%s", name);
}

/* A stranger that connects while the ranks meet: rank 3 plays it. */
static int link_among_strangers(struct rank *rank, const void *context)
{
    if (rank->rank == rank->size - 1) {
        disturb(rank);
        return 10;
    }
    struct rank fewer = *rank;

    fewer.size = rank->size - 1;
    return link_rank(&fewer, context);
}

static int wait_alone(struct rank *rank, const void *context)
{
    const struct gpt_links_options o = {
        .rank = rank->rank, .size = 2, .timeout = 0.3};
    struct gpt_err err = {0};
    struct gpt_links *links;

    (void)context;
    return gpt_links_open(&links, rank->store, &o, &err) == GPT_EIO &&
                   strstr(err.text, "no connection to rank 1 within 0.3 s")
               ? 10
               : 1;
}

int main(void)
{
    const struct scene killed = {.killed = true}, left = {0},
                       reported = {.killed = true, .reported = true},
                       strangers = {.strangers = true};
    int statuses[MAX_RANKS];

    test_scene("a rank is killed: its neighbours name it", &killed,
               (int[]){10, 10 + VICTIM + 1, -1, 10 + VICTIM + 1});
    test_scene("a rank that leaves is not lost", &left,
               (int[]){10, 10, 10, 10});
    test_scene("a rank that has said why is not lost either", &reported,
               (int[]){10, 10, -1, 10});
    job_run(1, wait_alone, NULL, statuses);
    ok(exit_of(statuses[0]) == 10, "a neighbour that does not come is named");
    job_run(RANKS, link_among_strangers, &strangers, statuses);
    ok(exit_of(statuses[0]) == 10 && exit_of(statuses[1]) == 10 &&
           exit_of(statuses[2]) == 10 && exit_of(statuses[3]) == 10,
       "strangers are not taken for ranks: %d %d %d %d", exit_of(statuses[0]),
       exit_of(statuses[1]), exit_of(statuses[2]), exit_of(statuses[3]));
    return tap_done();
}
