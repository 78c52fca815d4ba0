/* Paths and keys of the server; see serve_routes.h. Start at routes[]. */
#include "cmd/generate/serve_routes.h"

#include <string.h>
#include <strings.h>

#define JSON "application/json"

/* A row answers by itself (info), or queues a call. */
static const struct gpt_route routes[] = {
    {"/", "GET", "text/html; charset=utf-8", true, gpt_info_page, false},
    {"/health", "GET", JSON, true, gpt_info_health, false},
    {"/metrics", "GET", "text/plain; version=0.0.4", false, gpt_info_metrics,
     false},
    {"/v1/models", "GET", JSON, false, gpt_info_models, false},
    {"/v1/models/", "GET", JSON, false, gpt_info_model, false},
    {"/v1/completions", "POST", JSON, false, NULL, false},
    {"/v1/chat/completions", "POST", JSON, false, NULL, true},
    {"/tokenize", "POST", JSON, false, gpt_info_tokenize, false},
    {"/detokenize", "POST", JSON, false, gpt_info_detokenize, false},
    {"/tokenizer_info", "GET", JSON, false, gpt_info_tokenizer, false},
};

/* Every byte of both is looked at, so that the time says nothing of how much of
 * a guess was right. */
static bool same_key(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    unsigned different = n != m;

    for (size_t i = 0; i < n; i++)
        different |= (unsigned char)a[i] ^ (unsigned char)b[m ? i % m : 0];
    return !different;
}

/* All keys are compared, whether one before was right or not, so that the time
 * does not say which one it was. */
static bool has_key(const struct gpt_server *s, const char *header)
{
    bool found = s->keys.n == 0;

    for (int64_t i = 0; i < s->keys.n; i++)
        found |= header && strncasecmp(header, "Bearer ", 7) == 0 &&
                 same_key(header + 7, s->keys.items[i]);
    return found;
}

/* RFC 9112 3.2.2 wants the form in which proxies are asked taken. */
const char *gpt_route_path(const char *target)
{
    static const char scheme[] = "http://";
    const char *host = target + sizeof(scheme) - 1;

    if (strncasecmp(target, scheme, sizeof(scheme) - 1) != 0)
        return target;
    const char *path = strchr(host, '/');
    return path ? path : "/";
}

bool gpt_route_reads(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

/* A path that ends with a slash is followed by the name of the model. */
static bool is_path(const struct gpt_server *s, const struct gpt_route *route,
                    const char *path)
{
    const size_t n = strlen(route->path);

    if (n == 1 || route->path[n - 1] != '/')
        return strcmp(path, route->path) == 0;
    return strncmp(path, route->path, n) == 0 &&
           strcmp(path + n, s->model) == 0;
}

/* No path has two methods. NULL: there is no such path. */
static const struct gpt_route *find_path(const struct gpt_server *s,
                                         const char *path)
{
    for (size_t i = 0; i < GPT_COUNT(routes); i++)
        if (is_path(s, &routes[i], path))
            return &routes[i];
    return NULL;
}

/* Which of them has a slash at its end and more behind it, is_path() says. */
const char *gpt_route_absent(const char *path)
{
    for (size_t i = 0; i < GPT_COUNT(routes); i++) {
        const size_t n = strlen(routes[i].path);

        if (n > 1 && routes[i].path[n - 1] == '/' &&
            strncmp(path, routes[i].path, n) == 0)
            return "'model': there is no such model here; GET /v1/models "
                   "names the one there is";
    }
    return "there is nothing at this path; POST /v1/completions makes texts";
}

const char *gpt_route_method(const struct gpt_server *s, const char *path)
{
    return find_path(s, path)->method;
}

/* The path is looked for before the key: a client with a wrong path learns of
 * it, and no path is a secret. HEAD is GET without the body, which the library
 * leaves out. */
const struct gpt_route *gpt_route_find(const struct gpt_server *s,
                                       const char *path, const char *method,
                                       const char *authorization, int *refusal)
{
    const char *as = strcmp(method, "HEAD") == 0 ? "GET" : method;
    const struct gpt_route *route = find_path(s, path);

    /* in the order in which a client can do something about it */
    if (!route)
        *refusal = 404;
    else if (strcmp(as, route->method) != 0)
        *refusal = 405;
    else if (!route->open && !has_key(s, authorization))
        *refusal = 401;
    else
        return route;
    return NULL;
}
