/* Connections of a server; see serve_clients.h. The HTTP thread adds and
 * removes, the main thread looks for those that are late; both say whose turn
 * it is. While a client is in the list its descriptor is open, and is no
 * other's. */
#include "cmd/generate/serve_clients.h"

#include "base/clock.h"
#include "base/memory.h"

#include <math.h>
#include <sys/socket.h>

/* In a list both ways: a client leaves from the middle of hundreds. `by` is
 * when its time is over, by gpt_now(). */
struct gpt_client {
    struct gpt_clients *in;
    struct gpt_client *next, *before;
    double by;
    int fd;
};

void gpt_clients_init(struct gpt_clients *c, double seconds, double bytes)
{
    *c = (struct gpt_clients){.seconds = seconds, .bytes = bytes};
    pthread_mutex_init(&c->lock, NULL);
}

void gpt_clients_free(struct gpt_clients *c)
{
    pthread_mutex_destroy(&c->lock);
}

/* Without memory the connection is served all the same, and has no limit of
 * time. */
struct gpt_client *gpt_clients_add(struct gpt_clients *c, int fd)
{
    struct gpt_client *client = gpt_alloc(1, sizeof(*client));

    if (!client)
        return NULL;
    client->in = c;
    client->fd = fd;
    client->by = gpt_now() + c->seconds;
    pthread_mutex_lock(&c->lock);
    client->next = c->first;
    if (client->next)
        client->next->before = client;
    c->first = client;
    pthread_mutex_unlock(&c->lock);
    return client;
}

/* Under the lock, so that the main thread is not about to use the socket. */
void gpt_clients_remove(struct gpt_clients *c, struct gpt_client *client)
{
    if (!client)
        return;
    pthread_mutex_lock(&c->lock);
    if (client->before)
        client->before->next = client->next;
    else
        c->first = client->next;
    if (client->next)
        client->next->before = client->before;
    pthread_mutex_unlock(&c->lock);
    gpt_free(client);
}

static void give_time(struct gpt_client *client, double seconds)
{
    if (!client)
        return;
    pthread_mutex_lock(&client->in->lock);
    client->by = gpt_now() + seconds;
    pthread_mutex_unlock(&client->in->lock);
}

void gpt_client_sends(struct gpt_client *client)
{
    give_time(client, client ? client->in->seconds : 0);
}

void gpt_client_waits(struct gpt_client *client)
{
    give_time(client, (double)INFINITY);
}

/* A long answer takes as long as requests of its length together may take. */
void gpt_client_takes(struct gpt_client *client, size_t n)
{
    if (client)
        give_time(client,
                  client->in->seconds *
                      fmax(1, ceil((double)n / client->in->bytes)));
}

/* A socket that is shut down once is not shut down again at once: the library
 * closes it when it next looks. */
void gpt_clients_end_slow(struct gpt_clients *c)
{
    const double now = gpt_now();

    if (now < c->swept + 0.5)
        return;
    c->swept = now;
    pthread_mutex_lock(&c->lock);
    for (struct gpt_client *x = c->first; x; x = x->next) {
        if (now < x->by)
            continue;
        /* close() would let another connection take the number while the
         * library still uses it */
        shutdown(x->fd, SHUT_RDWR);
        x->by = now + c->seconds;
    }
    pthread_mutex_unlock(&c->lock);
}
