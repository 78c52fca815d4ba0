/* The library takes the first of several lengths, prefers chunks to a length,
 * waits for the end of the connection after a coding that it does not know, and
 * has a name with what stands between it and its colon, or with the value of a
 * folded line. See serve_framing.h. */
#include "cmd/generate/serve_framing.h"

#ifdef GPT_HAVE_MICROHTTPD

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct headers {
    int lengths, codings;
    bool encoded;
    bool longer;     /* a name goes on behind one of the two */
    bool unknown;    /* one of the codings is not that of chunks */
    uint64_t length; /* the library has looked at the number */
};

static bool is_header(struct headers *h, const char *name, const char *wanted)
{
    const size_t n = strlen(wanted);

    if (strncasecmp(name, wanted, n) != 0)
        return false;
    h->longer |= name[n] != '\0';
    return true;
}

static enum MHD_Result note_header(void *user, enum MHD_ValueKind kind,
                                   const char *name, const char *value)
{
    struct headers *h = user;

    (void)kind;
    if (is_header(h, name, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
        h->lengths++;
        h->length = value ? strtoull(value, NULL, 10) : 0;
    } else if (is_header(h, name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
        h->codings++;
        h->unknown |= !value || strcasecmp(value, "chunked") != 0;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_ENCODING) == 0) {
        h->encoded |= value && strcasecmp(value, "identity") != 0;
    }
    return MHD_YES;
}

struct gpt_framing gpt_framing_of(struct MHD_Connection *c)
{
    struct gpt_framing f = {0};
    struct headers h = {0};

    MHD_get_connection_values(c, MHD_HEADER_KIND, note_header, &h);
    if (h.longer)
        f.fault = "Content-Length and Transfer-Encoding take no space before "
                  "the colon, and are not folded";
    else if (h.lengths > 0 && h.codings > 0)
        f.fault = "the request has both Content-Length and Transfer-Encoding";
    else if (h.lengths > 1)
        f.fault = "the request has several headers Content-Length";
    else if (h.codings > 1 || h.unknown)
        f.fault = "Transfer-Encoding may be 'chunked' alone";
    f.encoded = h.encoded;
    f.announced = h.codings > 0 ? 0 : h.length;
    return f;
}

#endif
