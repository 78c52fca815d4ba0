/* Connections of a server, and by when each has to send its request or to take
 * its answer. The HTTP library's own timeout begins again with every byte: a
 * client that sends or takes one now and then would hold its connection for
 * ever, and the memory of its answer. */
#ifndef GPT_CMD_GENERATE_SERVE_CLIENTS_H
#define GPT_CMD_GENERATE_SERVE_CLIENTS_H

#include <pthread.h>
#include <stddef.h>

struct gpt_client;
struct gpt_clients { /* start with gpt_clients_init() */
    pthread_mutex_t lock;
    struct gpt_client *first;
    double seconds, bytes; /* see gpt_clients_init() */
    double swept; /* of gpt_clients_end_slow(), by gpt_now() */
};

/* A client has `seconds` for a request, and for each `bytes` of an answer. */
void gpt_clients_init(struct gpt_clients *clients, double seconds,
                      double bytes);
void gpt_clients_free(struct gpt_clients *clients); /* all are removed */

/* A connection begins. NULL when memory is out: it is then not watched. */
struct gpt_client *gpt_clients_add(struct gpt_clients *clients, int fd);
/* It ends; the socket is closed after this. NULL is fine. */
void gpt_clients_remove(struct gpt_clients *clients, struct gpt_client *client);

/* What is next on a connection; NULL is fine. The client sends a request; */
void gpt_client_sends(struct gpt_client *client);
/* it waits for as long as the server makes an answer; */
void gpt_client_waits(struct gpt_client *client);
/* and it takes one of which n bytes are left. */
void gpt_client_takes(struct gpt_client *client, size_t n);

/* Shuts down the sockets of those whose time is over, which makes the library
 * close them. Does its work twice a second, however often it is called. */
void gpt_clients_end_slow(struct gpt_clients *clients);

#endif
