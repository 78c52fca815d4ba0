/* In place of gloo.cc where Gloo was not there when this was built: then groups
 * have one rank, which needs no communicator, or NCCL. */
#include "parallel/gloo.h"

#ifndef GPT_HAVE_GLOO
int gpt_gloo_open(struct gpt_gloo **t, struct gpt_store *store,
                  const struct gpt_gloo_options *o, struct gpt_err *err)
{
    (void)store;
    *t = NULL;
    gpt_fail(err, GPT_EUSAGE,
             "group '%s' of %lld ranks needs Gloo, and this program was built "
             "without it",
             o->name, (long long)o->size);
    return gpt_hint(err, "install libgloo-dev and build again");
}

void gpt_gloo_close(struct gpt_gloo *t)
{
    (void)t;
}

int gpt_gloo_exchange(struct gpt_gloo *t, struct gpt_move *list,
                      int64_t n, struct gpt_err *err)
{
    (void)t, (void)list, (void)n;
    return gpt_fail(err, GPT_EUSAGE, "built without Gloo");
}

void gpt_gloo_abort(struct gpt_gloo *t)
{
    (void)t;
}
#endif
