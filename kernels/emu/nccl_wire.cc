/* Sockets of emulated NCCL; see nccl_wire.h. */
#include "kernels/emu/nccl_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Always false, for callers that return it. */
bool wires::fail(ncclResult_t r, const std::string &text)
{
    result = r;
    why = text;
    return false;
}

/* ---- connecting: to members before this one, from those behind it ---- */

/* A name that is no file and ends with its process. */
static socklen_t address(struct sockaddr_un *a, const std::string &id, int rank)
{
    memset(a, 0, sizeof(*a));
    /* A leading zero byte: the abstract namespace of Linux. */
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "%s.%d",
                     id.c_str(), rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int new_socket()
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

bool wires::reach(const std::string &id, int peer)
{
    struct sockaddr_un a;
    const socklen_t n = address(&a, id, peer);
    const int32_t self = rank_;

    while (!aborted) {
        int fd = new_socket();

        if (fd < 0)
            return fail(ncclSystemError, strerror(errno));
        /* The other process may not listen yet: tried again until it does, or
         * an abort ends the waiting. The first message is the caller's rank. */
        if (::connect(fd, (const struct sockaddr *)&a, n) == 0 &&
            send(fd, &self, sizeof(self), MSG_NOSIGNAL) == sizeof(self)) {
            fds_[(size_t)peer] = fd;
            return true;
        }
        ::close(fd);
        usleep(2000);
    }
    return fail(ncclInternalError, "aborted");
}

bool wires::welcome()
{
    int32_t peer;

    while (!aborted) {
        struct pollfd p = {listening_, POLLIN, 0};

        /* 20 ms, then `aborted` is looked at again. */
        if (poll(&p, 1, 20) <= 0)
            continue;
        int fd = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0)
            return fail(ncclSystemError, strerror(errno));
        if (recv(fd, &peer, sizeof(peer), MSG_WAITALL) != sizeof(peer) ||
            peer <= rank_ || peer >= (int32_t)fds_.size() ||
            fds_[(size_t)peer] >= 0) {
            ::close(fd);
            continue;
        }
        fds_[(size_t)peer] = fd;
        return true;
    }
    return fail(ncclInternalError, "aborted");
}

bool wires::connect(const std::string &id, int rank, int size)
{
    struct sockaddr_un a;
    const socklen_t n = address(&a, id, rank);

    rank_ = rank;
    fds_.assign((size_t)size, -1);
    listening_ = new_socket();
    if (listening_ < 0 ||
        bind(listening_, (const struct sockaddr *)&a, n) != 0 ||
        listen(listening_, size) != 0)
        return fail(ncclSystemError, strerror(errno));
    /* One socket a pair: the later member of it calls, the earlier listens. All
     * listen before they call, so they cannot wait in a circle. */
    for (int r = 0; r < rank; r++)
        if (!reach(id, r))
            return false;
    for (int r = rank + 1; r < size; r++)
        if (!welcome())
            return false;
    for (int fd : fds_)
        if (fd >= 0)
            /* From here on poll() decides which sockets send and receive. */
            fcntl(fd, F_SETFL, O_NONBLOCK);
    return true;
}

/* Peers read the end of the stream, and learn that this member is gone. */
void wires::close()
{
    for (int fd : fds_)
        if (fd >= 0)
            ::close(fd);
    if (listening_ >= 0)
        ::close(listening_);
}

/* ---- messages ---- */

namespace {

/* What goes to or comes from a member, and how far it is. */
struct flow {
    std::vector<const message *> list;
    size_t i = 0, at = 0; /* message; byte of its header and data */
    struct header seen;
    bool over() const { return i == list.size(); }
};

enum progress { MOVED, BLOCKED, CLOSED, MISMATCH };

} // namespace

static enum progress progress_of(ssize_t n)
{
    /* n == 0: the peer's process has ended, or closed the communicator. */
    return n > 0                                   ? MOVED
           : n < 0 && (errno == EAGAIN || errno == EINTR) ? BLOCKED
                                                   : CLOSED;
}

static void advance_flow(flow &f, ssize_t n)
{
    f.at += (size_t)n;
    if (f.at == sizeof(struct header) + f.list[f.i]->header.bytes) {
        f.at = 0;
        f.i++;
    }
}

/* As much as the socket takes: the header, then the data. */
static enum progress send_some(int fd, flow &f)
{
    const message &m = *f.list[f.i];
    const size_t head = sizeof(m.header);
    const char *from = f.at < head ? (const char *)&m.header + f.at
                                   : m.from + (f.at - head);
    const size_t left = f.at < head ? head - f.at
                                    : head + m.header.bytes - f.at;
    ssize_t n = send(fd, from, left, MSG_NOSIGNAL);
    if (n > 0)
        advance_flow(f, n);
    return progress_of(n);
}

static enum progress receive_some(int fd, flow &f)
{
    const message &m = *f.list[f.i];
    const size_t head = sizeof(m.header);
    char *to = f.at < head ? (char *)&f.seen + f.at : m.to + (f.at - head);
    const size_t left = f.at < head ? head - f.at
                                    : head + m.header.bytes - f.at;
    ssize_t n = recv(fd, to, left, 0);
    if (n <= 0)
        return progress_of(n);
    /* Compared as soon as it is whole: the data may be of another length. */
    if (f.at < head && f.at + (size_t)n == head &&
        memcmp(&f.seen, &m.header, head) != 0)
        return MISMATCH;
    advance_flow(f, n);
    return MOVED;
}

static std::string describe_header(const struct header &h)
{
    static const char *const kinds[] = {"all-reduce", "reduce-scatter",
                                        "all-gather", "broadcast", "send"};
    char text[120];

    snprintf(text, sizeof(text),
             "%s of %llu bytes, type %d, operation %d, root %d",
             kinds[h.kind % 5], (unsigned long long)h.bytes, h.type, h.op,
             h.root);
    return text;
}

bool wires::exchange(const std::vector<message> &list)
{
    std::vector<flow> out(fds_.size()), in(fds_.size());
    size_t open = 0;
    for (const message &m : list) {
        flow &f = (m.send ? out : in)[(size_t)m.peer];
        open += f.list.empty();
        f.list.push_back(&m);
    }
    /* `open` counts flows that are not over; `gone` those whose member is. */
    std::vector<bool> gone(fds_.size());
    /* All flows at once, in both directions: were they one after another, two
     * members could each wait for the other to receive. */
    while (open > 0) {
        std::vector<struct pollfd> polled;
        for (size_t r = 0; r < fds_.size(); r++)
            polled.push_back({gone[r] ? -1 : fds_[r],
                              (short)((out[r].over() ? 0 : POLLOUT) |
                                      (in[r].over() ? 0 : POLLIN)),
                              0});
        poll(polled.data(), polled.size(), 20);
        if (aborted)
            return fail(ncclInternalError, "aborted");
        for (size_t r = 0; r < fds_.size(); r++) {
            for (int way = 0; way < 2 && !gone[r]; way++) {
                flow &f = way ? out[r] : in[r];
                enum progress p = BLOCKED;
                if (polled[r].revents && !f.over())
                    p = way ? send_some(fds_[r], f)
                            : receive_some(fds_[r], f);
                if (p == MOVED)
                    open -= f.over();
                else if (p == CLOSED && !silent)
                    return fail(ncclRemoteError, "the connection to rank " +
                                std::to_string(r) + " of the group is closed");
                else if (p == CLOSED)
                    /* Silent: the call then waits for ever, as NCCL does when
                     * a member vanishes without closing its sockets. */
                    gone[r] = true;
                else if (p == MISMATCH)
                    return fail(ncclInvalidUsage,
                                "rank " + std::to_string(r) +
                                    " of the group makes another call: " +
                                    describe_header(f.seen) + "; this one: " +
                                    describe_header(f.list[f.i]->header));
            }
        }
    }
    return true;
}
