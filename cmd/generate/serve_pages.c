/* Requests that a page of another address has sent; see serve_pages.h. */
#include "cmd/generate/serve_pages.h"

#ifdef GPT_HAVE_MICROHTTPD

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* True when the last part of a name is this one: "model.localhost". */
static bool is_under(const char *host, const char *last)
{
    const size_t n = strlen(host), len = strlen(last);

    return n >= len && strcasecmp(host + n - len, last) == 0 &&
           (n == len || host[n - len - 1] == '.');
}

/* Names that the public DNS does not have, so that no page is there: localhost
 * (RFC 6761 6.3) and those of private networks, as host.docker.internal, by
 * which containers ask this machine. */
static bool is_private(const char *host)
{
    return is_under(host, "localhost") || is_under(host, "internal");
}

/* Without its port and the dot that may end a name; an address of version 6 is
 * in brackets, and has colons of its own. A page cannot be at an address and be
 * led elsewhere, and browsers send no empty name. */
static bool is_own(const char *given, const char *where)
{
    const char *served = strrchr(where, ':');
    struct in_addr address;
    char host[256];
    size_t n = strcspn(given, ":");

    if (given[0] == '[')
        return true;
    n -= n > 1 && given[n - 1] == '.';
    snprintf(host, sizeof(host), "%.*s", (int)n, given);
    return n == 0 || inet_pton(AF_INET, host, &address) == 1 ||
           is_private(host) ||
           (served && strlen(host) == (size_t)(served - where) &&
            strncasecmp(host, where, strlen(host)) == 0);
}

const char *gpt_pages_refusal(struct MHD_Connection *c, const char *where,
                              bool reads)
{
    const char *site =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Sec-Fetch-Site");
    const char *host =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);

    if (site && !reads && strcasecmp(site, "same-origin") != 0 &&
        strcasecmp(site, "none") != 0)
        return "a page of another address cannot ask here; put one proxy "
               "before both";
    return host && !is_own(host, where)
               ? "the header Host has a name that is not this server's; ask it "
                 "by its address or as localhost, or serve with --api-key-file"
               : NULL;
}

#endif
