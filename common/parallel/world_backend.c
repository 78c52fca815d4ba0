/* What carries bytes between ranks: gpt_world_choose(), of world.h. Ranks tell
 * the store what they find and read the sum of it: as many requests as ranks,
 * however many there are. */
#include "parallel/world.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* What stands against NCCL on this rank: "" when nothing does. Fills `library`
 * with its name. */
static int find_hindrance(struct gpt_world *w, const struct gpt_backend *be,
                          char *why, size_t why_cap, char *library, size_t cap,
                          struct gpt_err *err)
{
    char gpu[96], key[128];
    int64_t sharing;

    why[0] = '\0';
    if (!be->collectives) {
        snprintf(why, why_cap, "device %s has no NCCL", be->name);
        return GPT_OK;
    }
    if (!be->collectives->library(library, cap)) {
        snprintf(why, why_cap, "%s", library);
        return GPT_OK;
    }
    GPT_TRY(be->collectives->device(gpu, sizeof(gpu), err));
    snprintf(key, sizeof(key), "gpu/%s", gpu);
    GPT_TRY(gpt_store_add(w->store, key, 1, &sharing, err));
    if (sharing > 1)
        snprintf(why, why_cap,
                 "ranks share a GPU, and NCCL needs one for each (LOCAL_RANK "
                 "says which)");
    return GPT_OK;
}

/* The hindrance of some rank, or "". */
static int share_hindrance(struct gpt_world *w, char *why, size_t cap,
                           struct gpt_err *err)
{
    char text[330]; /* why, and whose */
    int64_t hindered;
    void *value;
    size_t len;

    if (why[0]) {
        snprintf(text, sizeof(text), "rank %lld: %s",
                 (long long)w->launch.rank, why);
        GPT_TRY(gpt_store_set(w->store, "carrier/why", text, strlen(text),
                              err));
        GPT_TRY(gpt_store_add(w->store, "carrier/not", 1, &hindered, err));
    }
    GPT_TRY(gpt_world_wait(w, "carrier", err));
    GPT_TRY(gpt_store_add(w->store, "carrier/not", 0, &hindered, err));
    if (hindered == 0 || why[0]) /* one's own says most */
        return GPT_OK;
    GPT_TRY(gpt_store_get(w->store, "carrier/why", w->timeout, &value, &len,
                          err));
    snprintf(why, cap, "%s", (const char *)value);
    gpt_free(value);
    return GPT_OK;
}

/* Also where Gloo is asked for, so that ranks that are not asked the same come
 * to where that is noticed. */
int gpt_world_choose(struct gpt_world *w, struct gpt_backend *be,
                     const char *asked, char *text, size_t cap,
                     struct gpt_err *err)
{
    const bool gloo = asked && strcmp(asked, "gloo") == 0;
    char why[300], library[160] = "";

    snprintf(text, cap, "Gloo");
    w->carrier = GPT_GLOO;
    if (!w->store || w->topology.world_size == 1)
        return GPT_OK;
    GPT_TRY(find_hindrance(w, be, why, sizeof(why), library, sizeof(library),
                           err));
    GPT_TRY(share_hindrance(w, why, sizeof(why), err));
    if (gloo)
        return GPT_OK;
    if (!why[0]) {
        w->carrier = GPT_NCCL;
        snprintf(text, cap, "%s", library);
        return GPT_OK;
    }
    if (asked) {
        gpt_fail(err, GPT_EUSAGE, "%s", why);
        return gpt_hint(err, "Gloo works on the CPU, and lets ranks share a "
                             "GPU");
    }
    if (!be->host_memory)
        snprintf(text, cap, "Gloo (%s)", why);
    return GPT_OK;
}
