/* Ports for tests that name one before it is served. */
#ifndef GPT_TESTS_LIB_PORT_H
#define GPT_TESTS_LIB_PORT_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* A port that no socket has. It is below those that the kernel gives out, of
 * which a test that runs beside this one could get the same, and below those of
 * port.sh. Processes begin at places of their own. */
static int64_t free_port(void)
{
    enum { FIRST = 4000, N = 6000 };
    static int64_t next;
    int failed;

    do {
        const int64_t i = ((int64_t)getpid() * 7 + next++) % N;
        const struct sockaddr_in at = {
            .sin_family = AF_INET,
            .sin_port = htons((uint16_t)(FIRST + i)),
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        const int fd = socket(AF_INET, SOCK_STREAM, 0);

        failed = bind(fd, (const struct sockaddr *)&at, sizeof(at));
        close(fd);
        if (!failed)
            return FIRST + i;
    } while (next < N);
    return 0;
}

#endif
