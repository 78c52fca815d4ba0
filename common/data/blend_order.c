/* Sample t of a blend comes from the data set with the largest lag,
 * weight * t - given, the first one of equals; given then grows by one. A scan
 * finds it in n steps, which is what Megatron does and best for few data sets.
 *
 * For many, a kinetic tournament does it in about log n. Lags are straight
 * lines in t, so the winner of a pair stays the winner until a time that can be
 * computed: each node of a binary tree keeps the winner of its half and the
 * earliest time at which any winner below may change. Only nodes whose time has
 * come, and those above the set that was just drawn from, are played again.
 * (Basch, Guibas and Hershberger, "Data structures for mobile data", 1997.)
 *
 * A game is decided by the same rounded values as in the scan. Only times are
 * estimated, early by more than rounding can do, so the order is equal bit for
 * bit. Start at gpt_blend_order_next(). */
#include "data/blend_order.h"

#include "base/memory.h"

#include <assert.h>

/* Up to SCAN_UP_TO data sets the scan is faster than the tree. */
enum { NO_SET = -1, SCAN_UP_TO = 700 };

struct node {
    int32_t winner;  /* data set, or NO_SET */
    int64_t expires; /* play again from this t on */
};

struct gpt_blend_order {
    const double *weight;
    double *given;
    int64_t n, next; /* the next sample */
    int64_t leaves;  /* a power of two >= n; 0: scan */
    struct node *node; /* (2 * leaves): 1 is the root, leaves come last */
    double slack;      /* more than any lag is rounded by */
    int64_t end;
};

/* Rounded as Megatron's C++ rounds it: a product, then a difference. */
static double lag_of(const struct gpt_blend_order *o, int64_t i, int64_t t)
{
    return o->weight[i] * (double)t - o->given[i];
}

/* The first one of equal lags wins: ">" and not ">=" is part of the order. */
static int64_t scan_sets(const struct gpt_blend_order *o, int64_t t)
{
    int64_t best = 0;
    double most = lag_of(o, 0, t);

    for (int64_t i = 1; i < o->n; i++) {
        double lag = lag_of(o, i, t);

        if (lag > most) {
            most = lag;
            best = i;
        }
    }
    return best;
}

/* The time until which a winner that leads by `lead` surely stays the winner.
 * Equal weights never overtake each other: they are rounded alike and differ by
 * whole samples. `slack` keeps the estimate below the true time, as an early
 * replay costs a little and a late one the order. */
static int64_t winner_until(const struct gpt_blend_order *o, int64_t winner,
                            int64_t loser, double lead, int64_t t)
{
    double closing = o->weight[loser] - o->weight[winner];

    if (closing == 0 || (closing < 0 && lead > o->slack))
        return o->end;
    double steps = closing < 0 ? 0 : (lead - o->slack) / closing;
    if (steps < 2)
        return t + 1;
    return steps < (double)(o->end - t) ? t + (int64_t)steps : o->end;
}

/* Plays the games below node `at` whose time has come, then its own. The depth
 * is that of the tree, at most 15. */
static void play_games(struct gpt_blend_order *o, int64_t at, int64_t t)
{
    struct node *me = &o->node[at];
    struct node *a = &o->node[2 * at], *b = a + 1;

    if (me->expires > t)
        return;
    play_games(o, 2 * at, t);
    play_games(o, 2 * at + 1, t);
    me->winner = a->winner;
    me->expires = o->end;
    if (b->winner != NO_SET) { /* then the half before it is full */
        double x = lag_of(o, a->winner, t), y = lag_of(o, b->winner, t);

        me->winner = y > x ? b->winner : a->winner;
        me->expires = y > x ? winner_until(o, b->winner, a->winner, y - x,
                                           t)
                            : winner_until(o, a->winner, b->winner, x - y,
                                           t);
    }
    if (a->expires < me->expires)
        me->expires = a->expires;
    if (b->expires < me->expires)
        me->expires = b->expires;
}

/* Megatron multiplies by max(t, 1): at sample 0 the largest weight wins. */
int64_t gpt_blend_order_next(struct gpt_blend_order *o, int64_t *given)
{
    int64_t t = o->next > 0 ? o->next : 1, i;

    o->next++;
    if (o->leaves == 0) {
        i = scan_sets(o, t);
    } else {
        play_games(o, 1, t);
        i = o->node[1].winner;
        assert(i >= 0 && i < o->n);
        /* Its lag falls by one whole sample, at no time that was foreseen. */
        for (int64_t at = (o->leaves + i) / 2; at > 0; at /= 2)
            o->node[at].expires = 0;
    }
    *given = (int64_t)o->given[i];
    o->given[i] += 1;
    return i;
}

/* All times are 0 in a new tree: the first call plays every game. */
static int make_tree(struct gpt_blend_order *o, struct gpt_err *err)
{
    o->leaves = 1;
    while (o->leaves < o->n)
        o->leaves *= 2;
    GPT_TRY(gpt_new(&o->node, 2 * (size_t)o->leaves, sizeof(*o->node),
                    "a blend", err));
    for (int64_t i = 0; i < o->leaves; i++) {
        struct node *leaf = &o->node[o->leaves + i];

        leaf->winner = i < o->n ? (int32_t)i : NO_SET;
        leaf->expires = o->end;
    }
    return GPT_OK;
}

int gpt_blend_order_open(struct gpt_blend_order **out, const double *weight,
                         int64_t n, int64_t size, struct gpt_err *err)
{
    struct gpt_blend_order *o;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&o, 1, sizeof(*o), "a blend", err));
    o->weight = weight;
    o->n = n;
    o->end = size + 2; /* later than any t */
    /* A game compares two lags below size + 2, each rounded twice. */
    o->slack = (double)(size + 2) * 0x1p-49;
    GPT_TRY_GOTO(status, gpt_new(&o->given, (size_t)n, sizeof(*o->given),
                                 "a blend", err), fail);
    if (n > SCAN_UP_TO)
        GPT_TRY_GOTO(status, make_tree(o, err), fail);
    *out = o;
    return GPT_OK;
fail:
    gpt_blend_order_close(o);
    return status;
}

void gpt_blend_order_close(struct gpt_blend_order *o)
{
    if (!o)
        return;
    gpt_free(o->given);
    gpt_free(o->node);
    gpt_free(o);
}
