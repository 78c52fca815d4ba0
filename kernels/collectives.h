/* Collectives of a device's own library (NCCL), which a plugin may bring beside
 * its operations. They are put on a queue and run there, as operations do.
 * common/parallel/comm.h is the door for everybody else: it numbers the calls,
 * watches them, and says whose fault a failure is. */
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
    /* "NCCL 2.28.9"; false: why it is not there */
    bool (*library)(char *text, size_t cap);
    /* What no other GPU of the world is called. */
    int (*device)(char *text, size_t cap, struct gpt_err *err);

    /* One rank makes an id, and all ranks open with it. open() returns at once;
     * the clique is BUSY until all are connected. */
    int (*make_id)(void *id, struct gpt_err *err);
    int (*open)(struct gpt_clique **c, const void *id, const char *name,
                int64_t size, int64_t rank, struct gpt_err *err);
    /* FAILED: `why` says how. Waits for nobody. */
    enum gpt_clique_state (*state)(struct gpt_clique *c, char *why, size_t cap);

    /* Puts a call on the queue, numbers from 1 on. Returns when it is there,
     * which may take the other ranks (connections are made when they are used
     * first) or one of GPT_CLIQUE_CALLS earlier ones to end; or after abort().
     */
    int (*put)(struct gpt_clique *c, struct gpt_queue *q,
               const struct gpt_collective *call, int64_t number,
               struct gpt_err *err);
    /* The call that the queue has come to and that is not over; 0: none. */
    int64_t (*running)(struct gpt_clique *c);
    /* Ends what is on the queue, and all further use. Returns within seconds,
     * whatever the library does; queues that it leaves stuck are given up. */
    void (*abort)(struct gpt_clique *c);
    void (*close)(struct gpt_clique *c); /* NULL is fine */
};

#endif
