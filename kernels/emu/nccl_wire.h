/* Messages between the members of an emulated NCCL communicator: a socket for
 * each pair. Both ends describe each message by a header, and a message whose
 * headers differ is an error. */
#ifndef GPT_EMU_NCCL_WIRE_H
#define GPT_EMU_NCCL_WIRE_H

#include "kernels/emu/nccl.h"

#include <atomic>
#include <string>
#include <vector>

struct header {
    int32_t kind, type, op, root;
    uint64_t bytes;
};

struct message {
    int peer;
    bool send;
    struct header header;
    const char *from; /* header.bytes of them */
    char *to;
};

struct wires {
    std::atomic<bool> aborted{false};
    bool silent = false; /* true: waits for a member that has ended */
    ncclResult_t result = ncclSuccess; /* of the last failure */
    std::string why;

    /* Connects to all members; waits for them until aborted. */
    bool connect(const std::string &id, int rank, int size);
    /* Sends and receives all messages, those of one peer in their order. False
     * on failure, which `result` and `why` describe. */
    bool exchange(const std::vector<message> &list);
    void close();

  private:
    int rank_ = 0, listening_ = -1;
    std::vector<int> fds_; /* by member */

    bool fail(ncclResult_t r, const std::string &text);
    bool reach(const std::string &id, int peer);
    bool welcome();
};

#endif
