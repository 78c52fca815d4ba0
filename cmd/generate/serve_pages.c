/* Requests that a page of another address has sent; see serve_pages.h. */
#include "cmd/generate/serve_pages.h"

#ifdef GPT_HAVE_MICROHTTPD

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A name of this machine for itself (RFC 6761 6.3). */
static bool is_localhost(const char *host)
{
    static const char name[] = "localhost";
    const size_t n = strlen(host), len = sizeof(name) - 1;

    return n >= len && strcasecmp(host + n - len, name) == 0 &&
           (n == len || host[n - len - 1] == '.');
}

/* Without its port; an address of version 6 is in brackets, and has colons of
 * its own. A page cannot be at an address and be led elsewhere. */
static bool is_own(const char *given, const char *where)
{
    const char *served = strrchr(where, ':');
    struct in_addr address;
    char host[256];

    if (given[0] == '[')
        return true;
    snprintf(host, sizeof(host), "%.*s", (int)strcspn(given, ":"), given);
    return inet_pton(AF_INET, host, &address) == 1 || is_localhost(host) ||
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
        return "a page of another address cannot ask here";
    return host && !is_own(host, where)
               ? "the header Host has a name that is not this server's; ask it "
                 "by its address or as localhost, or serve with --api-key-file"
               : NULL;
}

#endif
