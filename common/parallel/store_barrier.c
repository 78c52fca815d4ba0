/* Where ranks meet, and how the store names those that are missing: places that
 * one process can have, counts of waits, barriers. All is made of requests of
 * store.h. Start at gpt_store_barrier(). */
#include "parallel/store_client.h"

#include "parallel/wait.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- places ---- */

/* Address, process and a random number: processes of two machines may be alike
 * in the first two. */
int gpt_store_take_place(struct gpt_store *s, const char *kind, int64_t number,
                         const char *advice, struct gpt_err *err)
{
    char key[40], mine[200], address[128];
    uint64_t word = 0;
    void *first = NULL;

    gpt_store_local_address(s, address, sizeof(address));
    if (getrandom(&word, sizeof(word), 0) != sizeof(word))
        return gpt_fail_errno(err, GPT_EFAIL, "no random number");
    snprintf(key, sizeof(key), "place/%s/%lld", kind, (long long)number);
    snprintf(mine, sizeof(mine), "%s %lld %llu", address, (long long)getpid(),
             (unsigned long long)word);
    GPT_TRY(gpt_store_set_once(s, key, mine, strlen(mine), &first, err));
    const bool taken = strcmp(first, mine) != 0;
    if (taken)
        gpt_fail(err, GPT_EUSAGE,
                 "two processes are %s %lld, one at %.*s and one at %s, or a "
                 "job before this one had the same store; %s",
                 kind, (long long)number, (int)strcspn(first, " "),
                 (char *)first, address, advice);
    gpt_free(first);
    return taken ? GPT_EUSAGE : GPT_OK;
}

/* ---- waits ---- */

static void wait_key(char *key, size_t cap, int64_t rank)
{
    snprintf(key, cap, "waits/%lld", (long long)rank);
}

void gpt_store_count_wait(struct gpt_store *s, int64_t change)
{
    struct gpt_err ignored = {0};
    int64_t now;
    char key[64];

    wait_key(key, sizeof(key), s->rank);
    (void)!gpt_store_add(s, key, change, &now, &ignored);
}

/* ADD of 0 reads a counter in one request, also one that does not exist. */
bool gpt_store_waits(struct gpt_store *s, int64_t rank)
{
    struct gpt_err ignored = {0};
    int64_t now;
    char key[64];

    wait_key(key, sizeof(key), rank);
    return gpt_store_add(s, key, 0, &now, &ignored) == GPT_OK && now > 0;
}

/* ---- barriers ---- */

/* Names ranks whose count of arrivals is below `round`: "3, 5". idle: only
 * those that do not wait elsewhere. */
static int name_missing(struct gpt_store *s, const char *name, int64_t round,
                        bool idle, char *text, size_t cap, struct gpt_err *err)
{
    char key[256];
    int64_t n = 0, count;
    size_t at = 0;

    text[0] = '\0';
    for (int64_t r = 0; r < s->world_size; r++) {
        snprintf(key, sizeof(key), "barrier/%s/%lld", name, (long long)r);
        GPT_TRY(gpt_store_add(s, key, 0, &count, err));
        if (count >= round || (idle && gpt_store_waits(s, r)))
            continue;
        n++;
        if (at + 40 < cap)
            at += (size_t)snprintf(text + at, cap - at, "%s%lld",
                                   n > 1 ? ", " : "", (long long)r);
        else if (text[at - 1] != '.')
            at += (size_t)snprintf(text + at, cap - at, ", ...");
    }
    return idle && n == 0 ? name_missing(s, name, round, false, text, cap, err)
                          : GPT_OK;
}

static int barrier_late(struct gpt_store *s, const char *name, int64_t round,
                        double timeout, struct gpt_err *err)
{
    char missing[400];

    GPT_TRY(
        name_missing(s, name, round, true, missing, sizeof(missing), err));
    if (missing[0] == '\0') /* the last one came just now */
        return GPT_OK;
    const bool several = strchr(missing, ',') != NULL;
    return gpt_fail(err, GPT_EFAIL,
                    "rank%s %s %s not come to '%.100s' within %g s",
                    several ? "s" : "", missing, several ? "have" : "has",
                    name, timeout);
}

/* Rank 0 speaks for all: naming the missing takes a request a rank. */
static int report_barrier(struct gpt_store *s, const char *name, int64_t round,
                          struct gpt_wait *wait, struct gpt_err *err)
{
    char missing[400];

    if (s->rank > 0 || !gpt_wait_is_long(wait))
        return GPT_OK;
    GPT_TRY(
        name_missing(s, name, round, true, missing, sizeof(missing), err));
    gpt_wait_report(wait, "rank%s %s at '%.100s'",
                    strchr(missing, ',') ? "s" : "", missing, name);
    return GPT_OK;
}

/* Two counters: one a rank, which numbers its rounds, so that a name can be
 * used again; and one of all ranks, which is full at round * world_size. A rank
 * polls the second one only; the first ones are read when the barrier is late,
 * to name the missing. A rank of the next round cannot fill the counter of this
 * one: it would have had to leave this round first. */
int gpt_store_barrier(struct gpt_store *s, const char *name, double timeout,
                      struct gpt_err *err)
{
    struct gpt_wait wait = gpt_wait_begin(timeout);
    bool counted = false;
    char key[256];
    int64_t round, count;

    if (strlen(name) > 200)
        return gpt_fail(err, GPT_EFAIL, "the name of a barrier is too long");
    snprintf(key, sizeof(key), "barrier/%s/%lld", name, (long long)s->rank);
    GPT_TRY(gpt_store_add(s, key, 1, &round, err));
    snprintf(key, sizeof(key), "barrier/%s", name);
    GPT_TRY(gpt_store_add(s, key, 1, &count, err));
    while (count < round * s->world_size) {
        if (gpt_wait_is_over(&wait)) {
            GPT_TRY(barrier_late(s, name, round, timeout, err));
            break;
        }
        if (gpt_wait_is_check_due(&wait)) {
            if (gpt_store_check_wait(s, err) != GPT_OK)
                return gpt_context(err, "barrier '%.100s'", name);
            GPT_TRY(report_barrier(s, name, round, &wait, err));
            if (!counted)
                gpt_store_count_wait(s, 1);
            counted = true;
        }
        gpt_wait_pause(&wait);
        GPT_TRY(gpt_store_add(s, key, 0, &count, err));
    }
    if (counted)
        gpt_store_count_wait(s, -1);
    return GPT_OK;
}
