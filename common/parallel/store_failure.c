/* Reports of failures, which are values of the store. A rank that ends posts
 * why, the server posts it for a rank that was killed, and all ranks look.
 * Start at gpt_store_failed(). */
#include "parallel/store_client.h"

#include "base/num.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reports ---- */

/* "RANK STATUS\nTEXT": values of the store are bytes. Returns their number. */
static size_t format_report(char *report, size_t cap,
                            const struct gpt_err *failure)
{
    int n = snprintf(report, cap, "%lld %d\n%s", (long long)failure->rank,
                     failure->status, failure->text);

    assert(n > 0);
    return (size_t)gpt_min_i64(n, (int64_t)cap - 1);
}

static void parse_report(const char *report, struct gpt_err *failure)
{
    const char *line = strchr(report, '\n');
    char *end;
    const int64_t rank = strtoll(report, &end, 10);
    const int status = (int)strtol(end, NULL, 10);

    gpt_fail(failure, status, "%s", line ? line + 1 : report);
    gpt_fail_on_rank(failure, rank);
}

/* ---- wills ---- */

static void will_key(char *key, size_t cap, int64_t rank)
{
    snprintf(key, cap, "will/%lld", (long long)rank);
}

/* A rank that is killed cannot report it. Its connection ends, which our own
 * server notices: it then posts the will that the rank has left here, see
 * keep_will() there. Where a launcher serves there is no will: it sees how the
 * process ended, and reports that. */
int gpt_store_leave_will(struct gpt_store *s, struct gpt_err *err)
{
    struct gpt_err will;
    char key[32], report[128];

    if (s->agent_store || s->table)
        return GPT_OK;
    gpt_fail(&will, GPT_EFAIL,
             "ended without a word: its connection to the store was closed");
    gpt_fail_on_rank(&will, s->rank);
    will_key(key, sizeof(key), s->rank);
    s->has_will = true;
    return gpt_store_set(s, key, report,
                         format_report(report, sizeof(report), &will), err);
}

void gpt_store_withdraw_will(struct gpt_store *s)
{
    struct gpt_err ignored = {0};
    char key[32];

    if (!s->has_will)
        return;
    s->has_will = false;
    will_key(key, sizeof(key), s->rank);
    (void)!gpt_store_delete(s, key, &ignored);
}

/* ---- failures ---- */

static const char failure_key[] = "failure";

int gpt_store_post_failure(struct gpt_store *s, const struct gpt_err *failure,
                           struct gpt_err *err)
{
    char report[1024];
    const size_t n = format_report(report, sizeof(report), failure);
    void *first = NULL;

    if (failure->rank == s->rank)
        atomic_store(&s->posted, true);
    const int status =
        gpt_store_set_once(s, failure_key, report, n, &first, err);

    gpt_free(first);
    return status;
}

bool gpt_store_failed(struct gpt_store *s, struct gpt_err *failure)
{
    void *value = NULL;
    size_t len;
    bool exists = false;

    if (gpt_store_get_if_set(s, failure_key, &exists, &value, &len, failure) !=
        GPT_OK) {
        /* a failure of that process, not an I/O error of this one */
        failure->status = GPT_EFAIL;
        gpt_fail_on_rank(failure, s->agent_store ? -1 : 0);
        return true;
    }
    if (!exists)
        return false;
    parse_report(value, failure);
    gpt_free(value);
    return failure->rank != s->rank || !atomic_load(&s->posted);
}

/* The failure comes first: a launcher that reports one sends the other ranks a
 * signal, too, and that says less. */
int gpt_store_check_wait(struct gpt_store *s, struct gpt_err *err)
{
    struct gpt_err failure;

    if (!gpt_store_failed(s, &failure))
        return gpt_store_check_signal(s, err);
    if (failure.rank < 0)
        return gpt_fail(err, GPT_EFAIL, "the launcher failed: %s",
                        failure.text);
    return gpt_fail(err, GPT_EFAIL, "rank %lld failed: %s",
                    (long long)failure.rank, failure.text);
}
