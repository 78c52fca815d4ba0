/* What there is at a path of the server, and which requests need a key. */
#ifndef GPT_CMD_GENERATE_SERVE_ROUTES_H
#define GPT_CMD_GENERATE_SERVE_ROUTES_H

#include "cmd/generate/serve_info.h"

struct gpt_route {
    const char *path, *method, *type;
    bool open;          /* needs no key */
    gpt_informer *info; /* NULL: a call is queued */
    bool chat;
};

/* By the head of a request alone; `authorization` is that header, or NULL.
 * Returns NULL for a request that is refused, with the status of HTTP in
 * *refusal. */
const struct gpt_route *gpt_route_find(const struct gpt_server *s,
                                       const char *path, const char *method,
                                       const char *authorization,
                                       int *refusal);
/* The one method of a path that there is. */
const char *gpt_route_method(const struct gpt_server *s, const char *path);

#endif
