/* Which requests a browser sends for a page that is not the server's own. */
#ifndef GPT_CMD_GENERATE_SERVE_PAGES_H
#define GPT_CMD_GENERATE_SERVE_PAGES_H

#include <stdbool.h>

struct MHD_Connection;

/* Why a request to a server without keys is refused, with 403, or NULL. A page
 * of any address can make the browser that shows it ask a server of the same
 * machine. Two headers show that:
 *
 *   Sec-Fetch-Site   (Fetch Metadata), which browsers send: a request that is
 *                    no GET must come from the server's own page;
 *   Host             which has the name of the page's own machine where that
 *                    was made to lead here after the page was there (DNS
 *                    rebinding): it must be an address, localhost, a name in
 *                    .internal, or the host of `where`, which is that of
 *                    --serve.
 *
 * Other clients send no Sec-Fetch-Site, and a Host that they have connected
 * to. */
const char *gpt_pages_refusal(struct MHD_Connection *c, const char *where,
                              bool reads);

#endif
