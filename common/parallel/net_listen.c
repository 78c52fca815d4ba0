/* Listening for TCP connections; see net.h. Start at gpt_net_listen(). */
#include "parallel/net.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Copied out: a generic address is not aligned for the others. */
bool gpt_net_is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        struct sockaddr_in in;

        memcpy(&in, a, sizeof(in));
        return ntohl(in.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, a, sizeof(in6));
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

static int listen_on(const struct addrinfo *a)
{
    int on = 1, off = 0;
    int fd =
        socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* The first of the addresses of `host` (NULL: all interfaces) that works. */
static int listen_any(const char *host, const char *port, bool only_loopback)
{
    const struct addrinfo hints = {.ai_flags = host ? 0 : AI_PASSIVE,
                                   .ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int fd = -1;

    errno = EADDRNOTAVAIL;
    if (getaddrinfo(host, port, &hints, &list) != 0)
        return -1;
    for (int family = 0; family < 2 && fd < 0; family++)
        for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
            /* On all interfaces IPv6 goes first, since it takes IPv4 as well;
             * on loopback IPv4 does, since clients that know only the name try
             * it in any case. */
            bool six = a->ai_family == AF_INET6;
            if (six != (only_loopback ? family == 1 : family == 0) ||
                (only_loopback && !gpt_net_is_loopback(a->ai_addr)))
                continue;
            fd = listen_on(a);
            if (fd < 0 && errno == EADDRINUSE)
                family = 2;
        }
    int saved = errno;
    freeaddrinfo(list);
    errno = saved;
    return fd;
}

static bool host_is_loopback(const char *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    bool loopback = true;

    if (getaddrinfo(host, NULL, &hints, &list) != 0)
        return false;
    for (struct addrinfo *a = list; a; a = a->ai_next)
        loopback = loopback && gpt_net_is_loopback(a->ai_addr);
    freeaddrinfo(list);
    return loopback;
}

int gpt_net_listen(const char *host, int64_t port)
{
    const bool loopback = host_is_loopback(host);
    char service[16];

    snprintf(service, sizeof(service), "%u", (unsigned)port & 0xFFFF);
    return listen_any(loopback ? host : NULL, service, loopback);
}
