/* The rendezvous store: a few small values that all ranks can set, wait for
 * and count. Speaks PyTorch's TCPStore protocol (the one with VALIDATE and
 * PING, torch >= 2.4), as client of torchrun's or gpt-launch's server, and as
 * server on rank 0 where no launcher serves. Unique ids, named barriers and
 * reports of failure go through it. Start at gpt_store_open(). */
#ifndef GPT_PARALLEL_STORE_H
#define GPT_PARALLEL_STORE_H

#include "parallel/launch_env.h"

struct gpt_store;

/* Connects (rank 0 starts the server first unless agent_store), retrying until
 * `timeout` seconds: GPT_EIO names host, port and reason. A store of a world
 * of one needs no network. */
int gpt_store_open(struct gpt_store **s, const struct gpt_launch_env *l,
                   double timeout, struct gpt_err *err) GPT_MUST_USE;
/* From here on a rank that ends without closing the store that rank 0 serves
 * counts as failed, and is reported to the others: called when its place is
 * known to be its own, or the end of a second process for the rank would be
 * reported as that of the first. Where a launcher serves, it reports itself. */
int gpt_store_leave_will(struct gpt_store *s, struct gpt_err *err) GPT_MUST_USE;
/* The server of rank 0 first waits until the others have closed, at most 5
 * seconds, so that they can read why the job ends. NULL is fine. */
void gpt_store_close(struct gpt_store *s);

/* Values are bytes, at most GPT_STORE_VALUE; keys are prefixed with run_id.
 * All are thread-safe. After GPT_EIO the connection is lost for good. */
enum { GPT_STORE_KEY = 8 << 10, GPT_STORE_VALUE = 8 << 20 };

int gpt_store_set(struct gpt_store *s, const char *key, const void *value,
                  size_t len, struct gpt_err *err) GPT_MUST_USE;
/* Waits until the key exists; GPT_EFAIL after `timeout` seconds. *value is
 * freed with gpt_free() and has a NUL after its last byte. */
int gpt_store_get(struct gpt_store *s, const char *key, double timeout,
                  void **value, size_t *len, struct gpt_err *err) GPT_MUST_USE;
/* Sets the key where it is not set. *first is the value that it has then, of
 * this process or of an earlier one, as gpt_store_get() returns it. */
int gpt_store_set_once(struct gpt_store *s, const char *key, const void *value,
                       size_t len, void **first,
                       struct gpt_err *err) GPT_MUST_USE;
int gpt_store_add(struct gpt_store *s, const char *key, int64_t delta,
                  int64_t *result, struct gpt_err *err) GPT_MUST_USE;
int gpt_store_check(struct gpt_store *s, const char *key, bool *exists,
                    struct gpt_err *err) GPT_MUST_USE;

/* Returns when all ranks have called it with this name as often as this rank.
 * GPT_EFAIL after `timeout` seconds names the ranks that are missing: "ranks 3,
 * 5 have not come to 'data' within 600 s". GPT_EFAIL at once where
 * gpt_store_check_wait() fails. Rank 0 reports a wait of 5 seconds. */
int gpt_store_barrier(struct gpt_store *s, const char *name, double timeout,
                      struct gpt_err *err) GPT_MUST_USE;

/* Takes a place that one process of the job can have: kind "rank" or "node",
 * and its number. GPT_EUSAGE when another process has it: names both addresses,
 * and ends with `advice`. Nothing is posted. */
int gpt_store_take_place(struct gpt_store *s, const char *kind, int64_t number,
                         const char *advice,
                         struct gpt_err *err) GPT_MUST_USE;

/* Failure reports: a rank posts why it ends, a launcher why one of its ranks
 * ended: rank, text and status of *failure. Status GPT_OK stands for "not
 * known": a launcher sees an exit code only. The first report that is posted
 * is the one that gpt_store_failed() shows, on all ranks. */
int gpt_store_post_failure(struct gpt_store *s, const struct gpt_err *failure,
                           struct gpt_err *err);
/* True when another rank failed: fills rank, status and text of *failure. A
 * lost connection counts as a failure of the process at its other end, which is
 * rank 0 or (rank -1) the launcher. Also true when another process has posted
 * that this rank failed: that it is lost, or there twice. False when no rank
 * failed, or when this process has posted its own failure; *failure is filled
 * in the second case, too. */
bool gpt_store_failed(struct gpt_store *s, struct gpt_err *failure);

/* Counts the long waits that this rank is in: change is 1 when one begins and
 * -1 when it ends. A rank that waits is not the one that holds up the others:
 * in a chain of ranks that wait for each other, messages name the rank at the
 * end. A wait that fails is not counted down. */
void gpt_store_count_wait(struct gpt_store *s, int64_t change);
bool gpt_store_waits(struct gpt_store *s, int64_t rank);

/* True after GPT_EIO. */
bool gpt_store_lost(struct gpt_store *s);

/* For loops that wait for other ranks: GPT_EFAIL when the wait is in vain,
 * because a rank or the launcher has failed, or because a signal asks this
 * process to stop. */
int gpt_store_check_wait(struct gpt_store *s, struct gpt_err *err) GPT_MUST_USE;
/* From now on signals do not end waits: until ranks have met nothing can be
 * lost, and later a step or a save would be. */
void gpt_store_keep_waiting(struct gpt_store *s);

/* This machine's address on the way to the store, as digits, into text: where
 * other ranks reach this one. "127.0.0.1" in a world of one. */
void gpt_store_local_address(const struct gpt_store *s, char *text,
                             size_t cap);

/* ---- the server alone, for launchers ---- */
struct gpt_store_server;

/* Listens on the loopback interface when `host` is a loopback address or name,
 * else on all; port 0 takes a free one. One thread serves all clients. */
int gpt_store_server_open(struct gpt_store_server **v, const char *host,
                          int64_t port, struct gpt_err *err) GPT_MUST_USE;
int64_t gpt_store_server_port(const struct gpt_store_server *v);
/* Waits at most `linger` seconds for clients to leave. */
void gpt_store_server_close(struct gpt_store_server *v, double linger);

#endif
