/* Runs a call of emulated NCCL when its stream has come to it. Every member
 * sends every other member the data that this one needs, with a header that
 * describes the call (nccl_wire.h). */
#ifndef GPT_EMU_NCCL_CALL_H
#define GPT_EMU_NCCL_CALL_H

#include "kernels/emu/nccl_wire.h"

enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECEIVE };

struct call {
    enum kind kind;
    const char *in;
    char *out;
    size_t n; /* elements of a part */
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or root */
};

size_t bytes_of(ncclDataType_t t);

/* Runs one call, or the sends and receives of a group. False on failure: the
 * wires have result and why. */
bool make_calls(struct wires *wires, int size, int rank,
                const std::vector<call> &calls);

#endif
