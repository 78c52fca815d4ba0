/* Beginnings of prompts; see prefix.h. Start at gpt_prefixes_copy(). */
#include "generate/prefix.h"

#include "base/memory.h"
#include "base/num.h"

#include <string.h>

/* One beginning. Its tokens are kept beside the cache: ids are compared, and a
 * hash that agrees by chance would give another prompt's text. */
struct prefix {
    int64_t slot;
    int32_t *tokens; /* (positions) */
    int64_t n;       /* 0: empty; a multiple of GPT_DECODE_CHUNK */
    uint64_t used;   /* when, by the cache's own clock */
};

struct gpt_prefixes {
    struct prefix *prefixes; /* (n) */
    int64_t n;
    uint64_t clock;
};

int64_t gpt_prefix_common(const int32_t *before, int64_t n_before,
                          const int32_t *prompt, int64_t n)
{
    const int64_t most = gpt_min_i64(n_before, n - 1);
    int64_t same = 0;

    while (same < most && before[same] == prompt[same])
        same++;
    return same / GPT_DECODE_CHUNK * GPT_DECODE_CHUNK;
}

/* A search over all: there are few, and each differs from the prompt early,
 * or is worth the comparison. */
static struct prefix *find_longest(const struct gpt_prefixes *p,
                                   const int32_t *prompt, int64_t n,
                                   int64_t *common)
{
    struct prefix *best = NULL;

    *common = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const struct prefix *x = &p->prefixes[i];
        const int64_t same = gpt_prefix_common(x->tokens, x->n, prompt, n);

        if (same > *common) {
            best = &p->prefixes[i];
            *common = same;
        }
    }
    return best;
}

/* The place for a new prefix: that of `grown` where the new one has all of it,
 * since nothing is lost then; else an empty one, or the oldest. */
static struct prefix *find_room(struct gpt_prefixes *p, struct prefix *grown,
                                int64_t common)
{
    struct prefix *oldest = &p->prefixes[0];

    if (grown && grown->n == common)
        return grown;
    for (int64_t i = 1; i < p->n; i++)
        if (p->prefixes[i].used < oldest->used)
            oldest = &p->prefixes[i];
    return oldest;
}

int64_t gpt_prefixes_find(const struct gpt_prefixes *p, const int32_t *prompt,
                          int64_t n)
{
    int64_t common = 0;

    if (p)
        find_longest(p, prompt, n, &common);
    return common;
}

int gpt_prefixes_copy(struct gpt_prefixes *p, struct gpt_decoder *d,
                      int64_t slot, const int32_t *prompt, int64_t n,
                      int64_t *cached, struct gpt_err *err)
{
    struct prefix *from = NULL;

    *cached = 0;
    gpt_decoder_truncate(d, slot, 0);
    if (p)
        from = find_longest(p, prompt, n, cached);
    if (!from)
        return GPT_OK;
    from->used = ++p->clock;
    return gpt_decoder_copy(d, from->slot, slot, *cached, err);
}

/* The text in the slot is longer than what is kept. An entry counts only when
 * its copy is there. Prompts that were computed since this one was copied may
 * have kept the same. */
int gpt_prefixes_keep(struct gpt_prefixes *p, struct gpt_decoder *d,
                      int64_t slot, const int32_t *prompt, int64_t n,
                      struct gpt_err *err)
{
    const int64_t whole = (n - 1) / GPT_DECODE_CHUNK * GPT_DECODE_CHUNK;
    int64_t common;

    if (!p)
        return GPT_OK;
    struct prefix *from = find_longest(p, prompt, n, &common);
    if (common == whole)
        return GPT_OK;
    struct prefix *x = find_room(p, from, common);
    x->n = 0;
    gpt_decoder_truncate(d, x->slot, 0);
    GPT_TRY(gpt_decoder_copy(d, slot, x->slot, whole, err));
    memcpy(x->tokens, prompt, (size_t)whole * sizeof(*prompt));
    x->n = whole;
    x->used = ++p->clock;
    return GPT_OK;
}

/* For reports; a walk over a few entries. */
void gpt_prefixes_count(const struct gpt_prefixes *p, int64_t *entries,
                        int64_t *tokens)
{
    *entries = *tokens = 0;
    for (int64_t i = 0; p && i < p->n; i++) {
        *entries += p->prefixes[i].n > 0;
        *tokens += p->prefixes[i].n;
    }
}

/* Keys and values of all layers, as the decoder allocates them. */
int64_t gpt_prefix_bytes(const struct gpt_config *config, int64_t positions,
                         enum gpt_dtype cache)
{
    return 2 * config->num_layers * gpt_widths_of(config, 1).keys *
           gpt_cache_rows(positions) * (int64_t)gpt_dtype_bytes(cache);
}

/* The list of tokens is allocated whole: a request does not fail for the
 * memory of a cache. */
int gpt_prefixes_open(struct gpt_prefixes **out, struct gpt_decoder *d,
                      int64_t first, int64_t n, struct gpt_err *err)
{
    const size_t positions = (size_t)gpt_decoder_shape(d)->positions;
    struct gpt_prefixes *p;
    int status;

    GPT_TRY(gpt_new(&p, 1, sizeof(*p), "a cache of prompts", err));
    GPT_TRY_GOTO(status, gpt_new(&p->prefixes, (size_t)n, sizeof(*p->prefixes),
                                 "a cache of prompts", err), fail);
    for (; p->n < n; p->n++) {
        struct prefix *x = &p->prefixes[p->n];

        x->slot = first + p->n;
        GPT_TRY_GOTO(status, gpt_new(&x->tokens, positions, sizeof(*x->tokens),
                                     "a cache of prompts", err), fail);
    }
    *out = p;
    return GPT_OK;
fail:
    gpt_prefixes_close(p);
    return status;
}

/* The decoder's slots stay, and are cut by their next user. */
void gpt_prefixes_close(struct gpt_prefixes *p)
{
    if (!p)
        return;
    for (int64_t i = 0; i < p->n; i++)
        gpt_free(p->prefixes[i].tokens);
    gpt_free(p->prefixes);
    gpt_free(p);
}
