/* Collectives of a device's own library (NCCL), which a plugin may bring beside
 * its operations. They are put on a queue and run there, as operations do.
 * All other code uses common/parallel/comm.h, which numbers the calls, watches
 * them, and reports which rank caused a failure. */
#ifndef GPT_KERNELS_COLLECTIVES_H
#define GPT_KERNELS_COLLECTIVES_H

#include "backend.h"

enum gpt_reduce { GPT_SUM, GPT_MAX };

/* A send or a receive; buf is of the device. */
struct gpt_transfer {
    bool send;
    int64_t peer; /* index in the group */
    void *buf;
    int64_t bytes;
};

enum gpt_collective_kind {
    GPT_ALL_REDUCE,
    GPT_REDUCE_SCATTER,
    GPT_ALL_GATHER,
    GPT_BROADCAST,
    GPT_EXCHANGE,
    GPT_BARRIER,
};

/* One call; comm.h says what in, out, n and the rest mean for each kind. */
struct gpt_collective {
    enum gpt_collective_kind kind;
    const void *in;
    void *out;
    int64_t n;
    enum gpt_dtype type;
    enum gpt_reduce op;
    int64_t root;
    const struct gpt_transfer *list; /* of an exchange */
    int64_t n_list;
};

/* A rank's end of a group. Threads may share it: one puts calls, another looks
 * and aborts. */
struct gpt_clique;
enum gpt_clique_state { GPT_CLIQUE_READY, GPT_CLIQUE_BUSY, GPT_CLIQUE_FAILED };
enum {
    GPT_CLIQUE_ID = 128,   /* bytes that bring a group together */
    GPT_CLIQUE_CALLS = 512 /* that may be on the queue and not yet over */
};

struct gpt_collectives {
    /* The library's name and version, "NCCL 2.28.9". False where there is no
     * library: the text is then the reason. */
    bool (*library)(char *text, size_t cap);
    /* A name of the device that no other GPU in the world has. */
    int (*device)(char *text, size_t cap, struct gpt_err *err);

    /* One rank makes an id, and all ranks open with it. open() returns at once;
     * the clique is BUSY until all are connected. */
    int (*make_id)(void *id, struct gpt_err *err);
    int (*open)(struct gpt_clique **c, const void *id, const char *name,
                int64_t size, int64_t rank, struct gpt_err *err);
    /* The clique's state, without waiting. When the state is FAILED, `why`
     * gets the reason. */
    enum gpt_clique_state (*state)(struct gpt_clique *c, char *why, size_t cap);

    /* Puts a call on the queue; calls are numbered from 1 on. put() returns
     * when the call is on the queue, or after abort(). Before that it may wait
     * for the other ranks (a connection is made at its first use), or for the
     * end of an earlier call when GPT_CLIQUE_CALLS of them are not over. */
    int (*put)(struct gpt_clique *c, struct gpt_queue *q,
               const struct gpt_collective *call, int64_t number,
               struct gpt_err *err);
    /* The number of the call that the queue now runs; 0: none. */
    int64_t (*running)(struct gpt_clique *c);
    /* Ends the calls on the queue; the clique takes no more. abort() returns
     * within seconds, whatever the library does. A queue that the library then
     * still blocks is abandoned. */
    void (*abort)(struct gpt_clique *c);
    void (*close)(struct gpt_clique *c); /* NULL is fine */
};

#endif
