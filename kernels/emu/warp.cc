/* Where lanes of a warp meet. Every operation among lanes is an exchange() that
 * runs once, when the last lane of the mask has come. */
#include "kernels/emu/threads.h"

namespace emu {

static uint32_t waiting[MAX_THREADS / 32]; /* lanes, by warp */

void begin_warps()
{
    memset(waiting, 0, sizeof(waiting));
}

/* All of the mask wait: for the same thing? */
static void check_place(struct thread *warp, uint32_t mask)
{
    for (unsigned i = 0; i < 32; i++) {
        const struct thread *t = &warp[i];

        if ((mask >> i & 1) &&
            (t->mask != mask || t->line != now->line || t->what != now->what ||
             strcmp(t->file, now->file) != 0))
            fail("%s of lanes %08x in %s:%d meets lane %u at %s of lanes %08x "
                 "in %s:%d",
                 now->what, mask, now->file, now->line, i, t->what, t->mask,
                 t->file, t->line);
    }
}

void meet_lanes(const char *what, uint32_t mask, void *slot, exchange f,
                const char *file, int line)
{
    unsigned self = (unsigned)(now - threads), w = self / 32;
    struct thread *warp = &threads[w * 32];
    unsigned lanes = n_threads - w * 32;
    uint32_t there = lanes < 32 ? (1u << lanes) - 1 : ~0u;

    set_waiting(IN_WARP, what, file, line);
    now->mask = mask;
    now->slot = slot;
    /* Undefined on a GPU: a lane that names a mask without itself, or lanes
     * that the block has not. */
    if (!(mask >> self % 32 & 1) || (mask & ~there))
        fail("%s:%d: %s of lanes %08x, called by lane %u of %08x", file, line,
             what, mask, self % 32, there);
    /* The last lane to come does the work of all, with the others' arguments in
     * slots[] on their stacks, which stay while they wait. */
    waiting[w] |= 1u << self % 32;
    if ((waiting[w] & mask) == mask) {
        check_place(warp, mask);
        void *slots[32];
        for (unsigned i = 0; i < 32; i++)
            slots[i] = mask >> i & 1 ? warp[i].slot : nullptr;
        if (f)
            f(slots, mask);
        for (unsigned i = 0; i < 32; i++)
            if (mask >> i & 1)
                warp[i].state = READY;
        waiting[w] &= ~mask;
    }
    yield();
}

static void move_values(void *const slots[32], uint32_t mask)
{
    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1) {
            struct shuffle *s = (struct shuffle *)slots[i];

            /* Reading from a lane that does not take part gives anything. */
            if (!slots[s->from])
                fail("lane %u reads lane %d, which is not in %08x", i, s->from,
                     mask);
            s->out = ((struct shuffle *)slots[s->from])->in;
        }
}

uint64_t shuffled(const char *what, uint32_t mask, uint64_t value, int from,
                  const char *file, int line)
{
    struct shuffle s = {value, 0, from};

    meet_lanes(what, mask, &s, move_values, file, line);
    return s.out;
}

/* Every lane gets the votes of all, as bits by lane. */
static void count_votes(void *const slots[32], uint32_t mask)
{
    uint64_t votes = 0;

    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1)
            votes |= ((struct shuffle *)slots[i])->in << i;
    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1)
            ((struct shuffle *)slots[i])->out = votes;
}

uint32_t ballot(const char *what, uint32_t mask, bool vote, const char *file,
                int line)
{
    struct shuffle s = {vote, 0, 0};

    meet_lanes(what, mask, &s, count_votes, file, line);
    return (uint32_t)s.out;
}

/* a->out begins as 0, in same() below. */
static void compare_values(void *const slots[32], uint32_t mask)
{
    for (unsigned i = 0; i < 32; i++)
        for (unsigned j = 0; j < 32; j++)
            if ((mask >> i & 1) && (mask >> j & 1)) {
                struct shuffle *a = (struct shuffle *)slots[i];
                struct shuffle *b = (struct shuffle *)slots[j];

                a->out |= (uint64_t)(a->in == b->in) << j;
            }
}

uint32_t same(uint32_t mask, uint64_t value, const char *file, int line)
{
    struct shuffle s = {value, 0, 0};

    meet_lanes("__match_any_sync", mask, &s, compare_values, file, line);
    return (uint32_t)s.out;
}

} // namespace emu

void __syncwarp(uint32_t mask, const char *file, int line)
{
    emu::meet_lanes("__syncwarp", mask, nullptr, nullptr, file, line);
}
