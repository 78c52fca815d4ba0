/* Agreement through the store; see agreement.h.
 *
 * A round: each rank posts a message under its own key, rank 0 reads all of
 * them and posts its answer under one more key, which all ranks read. A message
 * is "ROUND STATUS RANK\nTEXT", where RANK is the rank that a bad status comes
 * from. Keys are used again in the next round, so the store does not grow; the
 * number of the round tells an old message from a new one. No rank can be a
 * round ahead: it hands in only after it has read the last answer, and rank 0
 * answers only after all ranks have handed in.
 *
 * So an answer is final and the same for all: either every rank resumes with
 * success, or every rank fails with the status, rank and text of one failure.
 * That is what makes a checkpoint of many files complete or absent.
 *
 * Signs of life: work between two rounds may take minutes (writing gigabytes),
 * so a timeout cannot tell a slow rank from a dead one. Each rank therefore has
 * a thread that counts up a number in the store, and a rank that waits measures
 * how long that number stands still.
 *
 * Start at gpt_agreement_settle(). */
#include "parallel/agreement.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/thread.h"
#include "parallel/wait.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* More rounds than a session has. Sessions begin at different numbers, so what
 * a failed session has left in the store fits no round of the next one. */
enum { ROUNDS = 1 << 20 };

bool gpt_agreement_first(const struct gpt_agreement *p)
{
    return !p || p->rank == 0;
}

/* ---- messages ---- */

/* The key of a rank's message; rank < 0: of rank 0's answer. */
static void key_of(char *key, size_t cap, const struct gpt_agreement *p,
                   int64_t rank)
{
    if (rank < 0)
        snprintf(key, cap, "checkpoint/%s", p->name);
    else
        snprintf(key, cap, "checkpoint/%s/%lld", p->name, (long long)rank);
}

/* `failed`: the rank that the status is of, -1 when none is known. */
static int post_message(struct gpt_agreement *p, int64_t rank, int status,
                        int64_t failed, const char *text, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    char key[100];

    key_of(key, sizeof(key), p, rank);
    int done = gpt_buf_printf(&b, "%lld %d %lld\n%s", (long long)p->round,
                              status, (long long)failed, text);
    if (done != GPT_OK)
        done = gpt_no_memory(err, "a message of a rank");
    else
        done = gpt_store_set(p->store, key, b.data, b.len, err);
    gpt_buf_free(&b);
    return done;
}

/* Reads the message at a key if it is of this round; else *value is NULL. */
static int read_message(struct gpt_agreement *p, const char *key, char **value,
                        struct gpt_err *err)
{
    bool exists;
    void *found;
    size_t len;

    *value = NULL;
    GPT_TRY(gpt_store_check(p->store, key, &exists, err));
    if (!exists)
        return GPT_OK;
    GPT_TRY(gpt_store_get(p->store, key, p->timeout, &found, &len, err));
    *value = found;
    if (strtoll(*value, NULL, 10) == p->round && strchr(*value, '\n'))
        return GPT_OK;
    gpt_free(*value);
    *value = NULL;
    return GPT_OK;
}

/* ---- signs of life ---- */

struct gpt_pulse {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
};

static void pulse_key(char *key, size_t cap, const struct gpt_agreement *p,
                      int64_t rank)
{
    snprintf(key, cap, "checkpoint/%s/pulse/%lld", p->name, (long long)rank);
}

/* Seconds that a rank may be silent. It signs eight times as often: a store
 * that is slow for a moment is no death. */
static double patience(const struct gpt_agreement *p)
{
    return p->timeout < GPT_AGREEMENT_SILENCE ? p->timeout
                                              : GPT_AGREEMENT_SILENCE;
}

static int post_sign(struct gpt_agreement *p, int64_t n, struct gpt_err *err)
{
    char key[120], text[60];

    pulse_key(key, sizeof(key), p, p->rank);
    snprintf(text, sizeof(text), "%lld %lld", (long long)p->session,
             (long long)n);
    return gpt_store_set(p->store, key, text, strlen(text), err);
}

/* Ends by itself when the store is lost: ranks that wait notice that, too. */
static void *post_signs(void *peers)
{
    struct gpt_agreement *p = peers;
    struct gpt_pulse *pulse = p->pulse;
    struct gpt_err lost;

    pthread_mutex_lock(&pulse->lock);
    for (int64_t n = 1; !pulse->stop; n++) {
        const struct timespec next = gpt_thread_after(patience(p) / 8);

        while (!pulse->stop &&
               pthread_cond_timedwait(&pulse->changed, &pulse->lock, &next) ==
                   0)
            ;
        pthread_mutex_unlock(&pulse->lock);
        bool posted = post_sign(p, n, &lost) == GPT_OK;
        pthread_mutex_lock(&pulse->lock);
        pulse->stop = pulse->stop || !posted;
    }
    pthread_mutex_unlock(&pulse->lock);
    return NULL;
}

int gpt_agreement_begin(struct gpt_agreement *p, struct gpt_err *err)
{
    struct gpt_pulse *pulse;
    char key[120];

    if (!p)
        return GPT_OK;
    snprintf(key, sizeof(key), "checkpoint/%s/session/%lld", p->name,
             (long long)p->rank);
    GPT_TRY(gpt_store_add(p->store, key, 1, &p->session, err));
    p->round = p->session * ROUNDS;
    GPT_TRY(post_sign(p, 0, err));
    GPT_TRY(gpt_new(&pulse, 1, sizeof(*pulse), "agreement", err));
    pthread_mutex_init(&pulse->lock, NULL);
    gpt_thread_cond_init(&pulse->changed);
    p->pulse = pulse;
    int status = gpt_thread_start(&pulse->thread, "agree", post_signs, p, err);
    if (status == GPT_OK)
        return GPT_OK;
    pthread_cond_destroy(&pulse->changed);
    pthread_mutex_destroy(&pulse->lock);
    gpt_free(pulse);
    p->pulse = NULL;
    return status;
}

void gpt_agreement_end(struct gpt_agreement *p)
{
    if (!p || !p->pulse)
        return;
    pthread_mutex_lock(&p->pulse->lock);
    p->pulse->stop = true;
    pthread_cond_signal(&p->pulse->changed);
    pthread_mutex_unlock(&p->pulse->lock);
    gpt_thread_join(p->pulse->thread);
    pthread_cond_destroy(&p->pulse->changed);
    pthread_mutex_destroy(&p->pulse->lock);
    gpt_free(p->pulse);
    p->pulse = NULL;
}

/* How long a rank has been silent. Time in which this process did not run
 * itself does not count: when a whole job is stopped and continued, every rank
 * finds a long silence of all others, and none of them has died. So a step
 * between two looks counts for a second at most. */
struct silence {
    bool came;    /* it is in this session */
    int64_t sign; /* its last number */
    double seconds, checked_at;
};

static int update_silence(struct gpt_agreement *p, int64_t rank,
                          struct silence *s, struct gpt_err *err)
{
    long long session = -1, n = -1;
    double now = gpt_now();
    char key[120];
    void *text;
    size_t len;
    bool exists;

    s->seconds += now - s->checked_at < 1 ? now - s->checked_at : 1;
    s->checked_at = now;
    pulse_key(key, sizeof(key), p, rank);
    GPT_TRY(gpt_store_check(p->store, key, &exists, err));
    if (!exists)
        return GPT_OK;
    GPT_TRY(gpt_store_get(p->store, key, p->timeout, &text, &len, err));
    (void)sscanf(text, "%lld %lld", &session, &n);
    gpt_free(text);
    if (session != p->session || (s->came && n == s->sign))
        return GPT_OK;
    s->came = true;
    s->sign = n;
    s->seconds = 0;
    return GPT_OK;
}

/* Fails when a wait for the rank is in vain. A rank that has not come yet has
 * the long timeout: it may still be in a training step. */
static int check_hope(struct gpt_agreement *p, int64_t rank, struct silence *s,
                      struct gpt_err *err)
{
    const double limit = s->came ? patience(p) : p->timeout;

    GPT_TRY(gpt_store_check_wait(p->store, err));
    GPT_TRY(update_silence(p, rank, s, err));
    if (s->seconds < limit)
        return GPT_OK;
    return gpt_fail(err, GPT_EFAIL,
                    s->came ? "rank %lld died or hangs in '%s': no sign of "
                              "life for %g s"
                            : "rank %lld has not come to '%s' within %g s",
                    (long long)rank, p->name, limit);
}

/* Waits for a rank's message of this round; rank < 0: for rank 0's answer. */
static int wait_for_message(struct gpt_agreement *p, int64_t rank, char **value,
                            struct gpt_err *err)
{
    struct gpt_wait wait = gpt_wait_begin(HUGE_VAL); /* while it lives */
    struct silence silence = {.checked_at = wait.begun};
    char key[100];

    key_of(key, sizeof(key), p, rank);
    for (;;) {
        GPT_TRY(read_message(p, key, value, err));
        if (*value)
            return GPT_OK;
        if (gpt_wait_is_check_due(&wait))
            GPT_TRY(check_hope(p, gpt_max_i64(rank, 0), &silence, err));
        if (rank >= 0 && gpt_wait_is_long(&wait)) /* rank 0 speaks for all */
            gpt_wait_report(&wait, "rank %lld, which works on '%s'",
                            (long long)rank, p->name);
        gpt_wait_pause(&wait);
    }
}

/* ---- gather and answer ---- */

/* *text is the message without its head; a bad status in the head becomes
 * *err. */
static int open_message(char *value, char **text, struct gpt_err *err)
{
    char *line = strchr(value, '\n');
    int status = GPT_EFAIL;
    long long failed = -1;

    (void)sscanf(value, "%*d %d %lld", &status, &failed);
    if (status == GPT_OK) {
        *text = line + 1;
        return GPT_OK;
    }
    gpt_fail(err, status, "%s", line + 1);
    return gpt_fail_on_rank(err, failed);
}

/* Waits for one rank's part and blanks it in the store: it may be long. */
static int take_part(struct gpt_agreement *p, int64_t rank, char **part,
                     struct gpt_err *err)
{
    char key[100], *value, *text;

    GPT_TRY(wait_for_message(p, rank, &value, err));
    int status = open_message(value, &text, err);
    if (status == GPT_OK)
        memmove(value, text, strlen(text) + 1);
    key_of(key, sizeof(key), p, rank);
    struct gpt_err lost;
    int blanked = gpt_store_set(p->store, key, "", 0, &lost);
    if (status == GPT_OK && blanked != GPT_OK) {
        *err = lost;
        status = blanked;
    }
    *part = value;
    return status;
}

void gpt_agreement_free_parts(const struct gpt_agreement *p, char **parts)
{
    for (int64_t r = 0; parts && r < p->size; r++)
        gpt_free(parts[r]);
    gpt_free(parts);
}

/* All ranks are waited for even when one has failed, since they still write
 * files that rank 0 is going to remove; not when one is gone. */
static int take_parts(struct gpt_agreement *p, char **parts,
                      struct gpt_err *err)
{
    int first = GPT_OK;

    for (int64_t r = 1; r < p->size; r++) {
        struct gpt_err failure = {0};
        int status = take_part(p, r, &parts[r], &failure);

        if (status != GPT_OK && first == GPT_OK) {
            *err = failure;
            first = status;
        }
        if (status != GPT_OK && !parts[r])
            break;
    }
    return first;
}

int gpt_agreement_gather(struct gpt_agreement *p, int status, const char *text,
                         char ***parts, struct gpt_err *err)
{
    struct gpt_err others = {0};

    *parts = NULL;
    if (!p)
        return status;
    assert(p->session > 0 && p->rank < p->size);
    if (p->rank > 0)
        return post_message(p, p->rank, status, p->rank,
                            status == GPT_OK ? text : err->text,
                            status == GPT_OK ? err : &others);
    if (status != GPT_OK)
        gpt_fail_on_rank(err, 0);
    GPT_TRY(gpt_new(parts, (size_t)p->size, sizeof(**parts), "ranks", &others));
    int failed = take_parts(p, *parts, &others);
    if (status == GPT_OK && failed != GPT_OK) {
        *err = others;
        status = failed;
    }
    if (status != GPT_OK) {
        gpt_agreement_free_parts(p, *parts);
        *parts = NULL;
    }
    return status;
}

int gpt_agreement_answer(struct gpt_agreement *p, int status, const char *text,
                         char **told, struct gpt_err *err)
{
    struct gpt_err lost = {0};
    char *value, *body;

    if (told)
        *told = NULL;
    if (!p)
        return status;
    if (p->rank == 0) {
        const bool well = status == GPT_OK;
        int posted = post_message(p, -1, status, well ? -1 : err->rank,
                                  well ? text : err->text, well ? err : &lost);

        p->round++;
        return status == GPT_OK ? posted : status;
    }
    GPT_TRY(wait_for_message(p, -1, &value, err));
    p->round++;
    status = open_message(value, &body, err);
    if (status == GPT_OK && told) {
        memmove(value, body, strlen(body) + 1);
        *told = value;
    } else {
        gpt_free(value);
    }
    return status;
}

int gpt_agreement_settle(struct gpt_agreement *p, int status, const char *text,
                         char **told, struct gpt_err *err)
{
    char **parts;

    if (told)
        *told = NULL;
    if (!p)
        return status;
    int gathered = gpt_agreement_gather(p, status, "", &parts, err);
    if (p->rank == 0)
        gpt_agreement_free_parts(p, parts);
    else if (gathered != GPT_OK)
        return status == GPT_OK ? gathered : status;
    return gpt_agreement_answer(p, gathered, text, told, err);
}
