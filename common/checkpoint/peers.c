/* Agreement through the store; see peers.h. A message is "ROUND STATUS\nTEXT";
 * its key is used again in the next round, so that the store does not grow.
 * Nobody can be ahead: a rank hands in only after it was told the last result,
 * and rank 0 tells only after all have handed in. */
#include "checkpoint/peers.h"

#include "base/memory.h"
#include "base/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool gpt_peers_first(const struct gpt_peers *p)
{
    return !p || p->rank == 0;
}

/* ---- messages ---- */

/* rank < 0: what rank 0 tells. */
static void key_of(char *key, size_t cap, const struct gpt_peers *p,
                   int64_t rank)
{
    if (rank < 0)
        snprintf(key, cap, "checkpoint/%s", p->name);
    else
        snprintf(key, cap, "checkpoint/%s/%lld", p->name, (long long)rank);
}

static int post(struct gpt_peers *p, int64_t rank, int status,
                const char *text, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    char key[100];

    key_of(key, sizeof key, p, rank);
    int done = gpt_buf_printf(&b, "%lld %d\n%s", (long long)p->round, status,
                              text);
    if (done != GPT_OK)
        done = gpt_fail(err, GPT_EFAIL, "out of memory");
    else
        done = gpt_store_set(p->store, key, b.data, b.len, err);
    gpt_buf_free(&b);
    return done;
}

/* What a failed rank says of itself replaces the wait for it. */
static int check_alive(struct gpt_peers *p, struct gpt_err *err)
{
    char text[600];
    int64_t rank;

    if (!gpt_store_failed(p->store, &rank, text, sizeof text))
        return GPT_OK;
    if (rank < 0)
        return gpt_fail(err, GPT_EFAIL, "the launcher failed: %s", text);
    return gpt_fail(err, GPT_EFAIL, "rank %lld failed: %s", (long long)rank,
                    text);
}

/* The value of a key if it is of this round, else *value NULL. */
static int look(struct gpt_peers *p, const char *key, char **value,
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

static int await(struct gpt_peers *p, int64_t rank, char **value,
                 struct gpt_err *err)
{
    const double end = gpt_now() + p->timeout;
    double look_at = gpt_now() + 0.5;
    struct timespec pause = {0, 1000000};
    char key[100];

    key_of(key, sizeof key, p, rank);
    for (;;) {
        GPT_TRY(look(p, key, value, err));
        if (*value)
            return GPT_OK;
        if (gpt_now() >= look_at) {
            GPT_TRY(check_alive(p, err));
            look_at = gpt_now() + 0.5;
        }
        if (gpt_now() >= end)
            return gpt_fail(err, GPT_EFAIL,
                            "rank %lld has not come to '%s' within %g s",
                            (long long)(rank < 0 ? 0 : rank), p->name,
                            p->timeout);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 50000000)
            pause.tv_nsec *= 2;
    }
}

/* Takes the head off a message, or fails as it says. */
static int open_message(char *value, char **text, struct gpt_err *err)
{
    char *line = strchr(value, '\n');
    int status = GPT_EFAIL;

    (void)sscanf(value, "%*d %d", &status);
    if (status == GPT_OK) {
        *text = line + 1;
        return GPT_OK;
    }
    return gpt_fail(err, status, "%s", line + 1);
}

/* ---- gather and tell ---- */

/* Waits for one rank's part; blanks it in the store, which may be long. */
static int take_part(struct gpt_peers *p, int64_t rank, char **part,
                     struct gpt_err *err)
{
    char key[100], *value, *text;

    GPT_TRY(await(p, rank, &value, err));
    int status = open_message(value, &text, err);
    if (status == GPT_OK)
        memmove(value, text, strlen(text) + 1);
    else
        gpt_context(err, "rank %lld", (long long)rank);
    key_of(key, sizeof key, p, rank);
    struct gpt_err lost;
    int blanked = gpt_store_set(p->store, key, "", 0, &lost);
    if (status == GPT_OK && blanked != GPT_OK) {
        *err = lost;
        status = blanked;
    }
    *part = value;
    return status;
}

void gpt_peers_free_parts(const struct gpt_peers *p, char **parts)
{
    for (int64_t r = 0; parts && r < p->size; r++)
        gpt_free(parts[r]);
    gpt_free(parts);
}

/* All ranks are waited for even when one failed, since they still write; not
 * when one is gone. */
static int take_parts(struct gpt_peers *p, char **parts, struct gpt_err *err)
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

int gpt_peers_gather(struct gpt_peers *p, int status, const char *text,
                     char ***parts, struct gpt_err *err)
{
    struct gpt_err others = {0};

    *parts = NULL;
    if (!p)
        return status;
    if (p->rank > 0)
        return post(p, p->rank, status, status == GPT_OK ? text : err->text,
                    status == GPT_OK ? err : &others);
    if (status != GPT_OK)
        gpt_context(err, "rank 0");
    GPT_TRY(gpt_new(parts, (size_t)p->size, sizeof **parts, "ranks", &others));
    int failed = take_parts(p, *parts, &others);
    if (status == GPT_OK && failed != GPT_OK) {
        *err = others;
        status = failed;
    }
    if (status != GPT_OK) {
        gpt_peers_free_parts(p, *parts);
        *parts = NULL;
    }
    return status;
}

int gpt_peers_tell(struct gpt_peers *p, int status, const char *text,
                   char **told, struct gpt_err *err)
{
    struct gpt_err lost = {0};
    char *value, *body;

    if (told)
        *told = NULL;
    if (!p)
        return status;
    if (p->rank == 0) {
        int posted = post(p, -1, status, status == GPT_OK ? text : err->text,
                          status == GPT_OK ? err : &lost);
        p->round++;
        return status == GPT_OK ? posted : status;
    }
    GPT_TRY(await(p, -1, &value, err));
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

int gpt_peers_agree(struct gpt_peers *p, int status, struct gpt_err *err)
{
    char **parts;

    if (!p)
        return status;
    int gathered = gpt_peers_gather(p, status, "", &parts, err);
    if (p->rank == 0)
        gpt_peers_free_parts(p, parts);
    else if (gathered != GPT_OK)
        return status == GPT_OK ? gathered : status;
    return gpt_peers_tell(p, gathered, "", NULL, err);
}
