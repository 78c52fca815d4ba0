/* Connections of a server; see serve_clients.h. The HTTP thread adds, marks and
 * removes, the main thread looks for those that are late. While a client is in
 * the list its descriptor is open, and is no other's. */
#include "cmd/generate/serve_clients.h"

#include "base/clock.h"
#include "base/memory.h"

#include <sys/socket.h>

/* In a list both ways: a client leaves from the middle of hundreds. `since` is
 * when the client last did something, or was shut down. */
struct gpt_client {
    struct gpt_client *next, *before;
    double since;
    int fd;
    bool busy;
};

void gpt_clients_init(struct gpt_clients *c)
{
    *c = (struct gpt_clients){.first = NULL};
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
    client->fd = fd;
    client->since = gpt_now();
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

void gpt_clients_mark(struct gpt_clients *c, struct gpt_client *client,
                      bool busy)
{
    if (!client)
        return;
    pthread_mutex_lock(&c->lock);
    client->busy = busy;
    client->since = gpt_now();
    pthread_mutex_unlock(&c->lock);
}

/* A socket that is shut down once is not shut down again at once: the library
 * closes it when it next looks. */
void gpt_clients_end_slow(struct gpt_clients *c, double seconds)
{
    const double now = gpt_now();

    if (now < c->swept + 0.5)
        return;
    c->swept = now;
    pthread_mutex_lock(&c->lock);
    for (struct gpt_client *x = c->first; x; x = x->next) {
        if (x->busy || now < x->since + seconds)
            continue;
        /* close() would let another connection take the number while the
         * library still uses it */
        shutdown(x->fd, SHUT_RDWR);
        x->since = now;
    }
    pthread_mutex_unlock(&c->lock);
}
