/* TCP connections as ranks use them: connecting ends on a signal or at a limit,
 * and silence of the other end becomes an error within seconds. */
#ifndef GPT_PARALLEL_NET_H
#define GPT_PARALLEL_NET_H

#include "base/status.h"

#include <netdb.h>
#include <sys/socket.h>

/* Tries all addresses of `host` once, `seconds` at most. Returns a descriptor
 * that blocks, or -1 with the reason in `why`. The caller tries again: a host
 * may start later, and its name be known later still. A signal that asks to
 * stop ends it early, within two seconds. */
int gpt_net_connect(const char *host, int64_t port, double seconds, char *why,
                    size_t cap);

/* Listens on the loopback interface when `host` is a loopback address or name,
 * else on all; port 0 takes a free one. Returns a descriptor that does not
 * block, or -1 with errno. */
int gpt_net_listen(const char *host, int64_t port);
/* 127.0.0.0/8 or ::1; of addresses that getaddrinfo() has found. */
bool gpt_net_is_loopback(const struct sockaddr *address);

/* Sends what is written at once, and finds out when the other machine or the
 * network is gone: reads and writes then fail with ETIMEDOUT about `seconds`
 * later (at least 4), also where nothing is under way. */
void gpt_net_set_options(int fd, int seconds);

/* The port that a socket has, 0 when it has none. */
int64_t gpt_net_port(int fd);
/* This end's address as digits; false when it has none. */
bool gpt_net_address(int fd, char *text, size_t cap);

#endif
