/* How a request says what form its body has, and where it ends. */
#ifndef GPT_CMD_GENERATE_SERVE_FRAMING_H
#define GPT_CMD_GENERATE_SERVE_FRAMING_H

#include <stdbool.h>
#include <stdint.h>

struct MHD_Connection;
struct gpt_framing {
    const char *fault; /* why two readers of the request may disagree about its
                        * end, or NULL */
    bool encoded;       /* compressed, or in another form than its own */
    uint64_t announced; /* bytes of the body; 0 where it comes in chunks */
};

/* The head of the request has to be there. RFC 9112 6.3 has each fault answered
 * with 400, and the connection closed: what a proxy before the server takes for
 * the rest of the body could be another request here. */
struct gpt_framing gpt_framing_of(struct MHD_Connection *c);

#endif
