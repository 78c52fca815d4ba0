/* What there is at a path of the server, and which requests need a key. */
#ifndef GPT_CMD_GENERATE_SERVE_ROUTES_H
#define GPT_CMD_GENERATE_SERVE_ROUTES_H

#include "cmd/generate/serve_info.h"

/* A row of the table in serve_routes.c. HEAD is another word for GET, whose
 * answer goes out without its body. */
struct gpt_route {
    const char *path;   /* with a slash at its end: the model's name follows */
    const char *method; /* its one; a request with another gets 405 */
    const char *type;   /* of what `info` writes */
    bool open;          /* needs no key */
    gpt_informer *info; /* NULL: a call is queued */
    bool chat;
};

/* The path of a request's target, which may be a whole "http://HOST/PATH". */
const char *gpt_route_path(const char *target);
/* True of a method that only reads: GET or HEAD. */
bool gpt_route_reads(const char *method);
/* By the head of a request alone; `authorization` is that header, or NULL.
 * Returns NULL for a request that is refused, with the status of HTTP in
 * *refusal. */
const struct gpt_route *gpt_route_find(const struct gpt_server *s,
                                       const char *path, const char *method,
                                       const char *authorization,
                                       int *refusal);
/* The one method of a path that there is. */
const char *gpt_route_method(const struct gpt_server *s, const char *path);
/* The message for a path that there is not. */
const char *gpt_route_absent(const char *path);

#endif
