/* Connections of a server, and since when each owes a whole request. The HTTP
 * library's own timeout begins again with every byte: a client that sends one
 * now and then would hold its connection for ever. */
#ifndef GPT_CMD_GENERATE_SERVE_CLIENTS_H
#define GPT_CMD_GENERATE_SERVE_CLIENTS_H

#include <pthread.h>
#include <stdbool.h>

struct gpt_client;
struct gpt_clients { /* start with gpt_clients_init() */
    pthread_mutex_t lock;
    struct gpt_client *first;
    double swept; /* of gpt_clients_end_slow(), by gpt_now() */
};

void gpt_clients_init(struct gpt_clients *clients);
void gpt_clients_free(struct gpt_clients *clients); /* all are removed */

/* A connection begins. NULL when memory is out: it is then not watched. */
struct gpt_client *gpt_clients_add(struct gpt_clients *clients, int fd);
/* It ends; the socket is closed after this. NULL is fine. */
void gpt_clients_remove(struct gpt_clients *clients, struct gpt_client *client);
/* Its request is whole, and it owes nothing, or it begins another one. */
void gpt_clients_mark(struct gpt_clients *clients, struct gpt_client *client,
                      bool busy);

/* Shuts down the sockets of those that have owed a request for `seconds`, which
 * makes the library close them. Does its work twice a second, however often it
 * is called. */
void gpt_clients_end_slow(struct gpt_clients *clients, double seconds);

#endif
