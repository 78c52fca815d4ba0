/* Cuts the packing of an operand into bands that are read from end to end: see
 * pack.h. Start at cpu_pack_band(). */
#include "cpu/pack.h"
#include "cpu/cpu.h"

static void pack_panel(const struct cpu_packing *o, int64_t i)
{
    int64_t at = i * PAIR_PANEL;
    const struct cpu_pair_band band = {
        .from = cpu_stored_at(&o->from, o->first + at, o->k0),
        .ld = o->from.ld,
        .rows = gpt_min_i64(o->n - at, PAIR_PANEL),
        .columns = o->k,
        .to = o->to + i * o->next,
        .step = PAIR_VALUES,
        .along_k = true,
        .for_a = o->from.is_a};

    cpu_pairs->pack(&band);
}

/* Packs chunk c of all panels: 32 stored rows across k, read from end to
 * end. */
static void pack_across(const struct cpu_packing *o, int64_t c)
{
    int64_t at = c * PAIR_CHUNK;
    const struct cpu_pair_band band = {
        .from = cpu_stored_at(&o->from, o->first, o->k0 + at),
        .ld = o->from.ld,
        .rows = gpt_min_i64(o->k - at, PAIR_CHUNK),
        .columns = o->n,
        .to = o->to + c * PAIR_VALUES,
        .step = o->next,
        .along_k = false,
        .for_a = o->from.is_a};

    cpu_pairs->pack(&band);
}

int64_t cpu_pack_bands(const struct cpu_packing *o)
{
    return o->from.along_k ? cpu_panels_of(o->n) : cpu_panels_of(o->k);
}

void cpu_pack_band(const struct cpu_packing *o, int64_t i)
{
    if (o->from.along_k)
        pack_panel(o, i);
    else
        pack_across(o, i);
}

void cpu_pack_all(const struct cpu_packing *o)
{
    for (int64_t i = 0; i < cpu_pack_bands(o); i++)
        cpu_pack_band(o, i);
}
