/* The address that a server listens at. */
#ifndef GPT_CMD_GENERATE_SERVE_LISTEN_H
#define GPT_CMD_GENERATE_SERVE_LISTEN_H

#include "base/list.h"
#include "base/memory.h"

/* Listens at "HOST:PORT", "[::1]:PORT" or ":PORT", which is 127.0.0.1. *fd is a
 * socket, or -1 after a failure. GPT_EUSAGE for what is no address, and, unless
 * the server wants keys, for one that other machines can reach. */
int gpt_listen(const char *where, bool has_keys, int *fd,
               struct gpt_err *err) GPT_MUST_USE;

/* Writes "http://HOST:PORT/" of a listening socket: with port 0 the system has
 * chosen one. False when that is not known. */
bool gpt_listen_url(int fd, char *url, size_t cap);

/* The keys in the file at `path`, of which each is a line that is not empty.
 * *keys points into *text; both are the caller's to free. GPT_EDATA where there
 * is none. */
int gpt_listen_read_keys(struct gpt_list *keys, struct gpt_buf *text,
                         const char *path, struct gpt_err *err) GPT_MUST_USE;

#endif
