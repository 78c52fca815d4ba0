/* Where Gloo was not there when this was built: groups of one rank only. */
#include "parallel/transport.h"

#ifndef GPT_HAVE_GLOO
int gpt_transport_open(struct gpt_transport **t, struct gpt_store *store,
                       const char *name, int64_t rank, int64_t size,
                       double timeout, struct gpt_err *err)
{
    (void)store, (void)rank, (void)timeout;
    *t = NULL;
    return gpt_fail(err, GPT_EUSAGE,
                    "group '%s' of %lld ranks needs Gloo, which was not there "
                    "when this program was built (Debian: libgloo-dev)",
                    name, (long long)size);
}

void gpt_transport_close(struct gpt_transport *t)
{
    (void)t;
}

int gpt_transport_exchange(struct gpt_transport *t, struct gpt_move *list,
                           int64_t n, struct gpt_err *err)
{
    (void)t, (void)list, (void)n;
    return gpt_fail(err, GPT_EUSAGE, "built without Gloo");
}

void gpt_transport_abort(struct gpt_transport *t)
{
    (void)t;
}
#endif
