/* Instructions by which the lanes of a warp meet: shuffles, votes, and matrix
 * instructions. A GPU of today may run lanes of a warp apart for as long as it
 * likes, and lets them meet at an instruction that names them all. Here lanes
 * that have parted meet where their ways do (flow.cc), as machine code makes
 * them: an instruction that names lanes which are elsewhere is an error, also
 * where a GPU would wait for them, because ptxas then has to have put the
 * meeting before it. */
#include "kernels/emu/ptx/ptx.h"

#include <algorithm>

namespace emu {
namespace ptx {

/* ---- lanes of a warp ---- */

/* The lanes that an instruction names must be those that run it. */
static bool check_mask(struct warp &w, const struct instruction &i,
                       const struct operand &o, uint32_t lanes)
{
    row<uint32_t> mask = get<uint32_t>(w, o.slot);

    for (unsigned l = 0; l < 32; l++)
        if ((lanes >> l & 1) && (mask.v[l] & w.live) != lanes) {
            fail("%s of lanes %08x is run by lanes %08x of %08x", i.name,
                 mask.v[l], lanes, w.live);
            return false;
        }
    return true;
}

enum shuffle_way { UP, DOWN, BUTTERFLY, INDEX };

/* PTX ISA, shfl.sync: the lane that lane l reads, or -1. c has two numbers: the
 * last lane that may be read, and the bits of a lane's number that stay as they
 * are, which cut the warp into parts. */
static int source_lane(int way, int l, uint32_t b, uint32_t c)
{
    int segment = (int)(c >> 8 & 31), by = (int)(b & 31);
    int top = (l & segment) | ((int)(c & 31) & ~segment), low = l & segment;

    switch (way) {
    case UP:
        return l - by >= top ? l - by : -1;
    case DOWN:
        return l + by <= top ? l + by : -1;
    case BUTTERFLY:
        return (l ^ by) <= top ? l ^ by : -1;
    }
    int from = low | (by & ~segment);
    return from <= top ? from : -1;
}

/* Lanes that have ended may be named: their part of the mask does not count.
 */
static void run_shuffle(struct warp &w, const struct instruction &i,
                        uint32_t lanes)
{
    row<uint32_t> a = get<uint32_t>(w, i.at[2].slot), d = a;
    row<uint32_t> b = get<uint32_t>(w, i.at[3].slot);
    row<uint32_t> c = get<uint32_t>(w, i.at[4].slot);
    uint32_t inside = 0;

    if (!check_mask(w, i, i.at[5], lanes))
        return;
    for (int l = 0; l < 32; l++) {
        int from = source_lane(i.number[1], l, b.v[l], c.v[l]);

        if (from < 0)
            continue;
        inside |= 1u << l;
        d.v[l] = a.v[from];
        /* A lane that does not take part gives anything. */
        if (!(lanes >> from & 1))
            w.unknown |= 1u << l;
    }
    put(w, i.at[0].slot, d, lanes);
    put_predicate(w, i.at[1].slot, inside, lanes);
}

enum vote { ALL, ANY, SAME, BALLOT };

/* Votes of lanes that do not run it do not count. */
static void run_vote(struct warp &w, const struct instruction &i,
                     uint32_t lanes)
{
    uint32_t yes = get_predicate(w, i.at[1].slot) & lanes;
    row<uint32_t> d;

    if (!check_mask(w, i, i.at[2], lanes))
        return;
    if (i.number[1] == BALLOT) {
        std::fill(d.v, d.v + 32, yes);
        put(w, i.at[0].slot, d, lanes);
        return;
    }
    bool result = i.number[1] == ALL   ? yes == lanes
                  : i.number[1] == ANY ? yes != 0
                                       : yes == lanes || !yes;
    put_predicate(w, i.at[0].slot, result ? ~0u : 0, lanes);
}

/* Each lane gets the lanes that have its number. */
static void run_match(struct warp &w, const struct instruction &i,
                      uint32_t lanes)
{
    row<uint32_t> d = {};

    if (!check_mask(w, i, i.at[2], lanes))
        return;
    for (unsigned l = 0; l < 32; l++)
        for (unsigned k = 0; k < 32; k++)
            if ((lanes >> k & 1) && get_any(w, i.at[1].slot, l) ==
                                        get_any(w, i.at[1].slot, k))
                d.v[l] |= 1u << k;
    put(w, i.at[0].slot, d, lanes);
}

static void run_warp_barrier(struct warp &w, const struct instruction &i,
                             uint32_t lanes)
{
    check_mask(w, i, i.at[0], lanes);
    order_lanes(w, lanes);
}

/* ---- matrix instructions of a warp ---- */

/* Lane 8 m + r brings the address of row r of matrix m; a lane gets two
 * neighbours of a row, or of a column. As ldmatrix() of tensor.cc, whose
 * fibers this warp has not. */
static void run_ldmatrix(struct warp &w, const struct instruction &i, uint32_t)
{
    row<uint64_t> a = addresses(w, i.at[1]);
    const uint32_t *to = w.f->lists.data() + i.at[0].first;
    const char *rows[32];

    for (unsigned l = 0; l < i.at[0].count * 8; l++) {
        if (a.v[l] % 16)
            return fail("%s: lane %u has address %#llx, no multiple of 16",
                        i.name, l, (unsigned long long)a.v[l]);
        if (!(rows[l] = shared_for((unsigned)a.v[l], 16, false, l)))
            return;
        order_use((unsigned)a.v[l], 16, w.live, USE_READ); /* all get parts */
    }
    for (unsigned m = 0; m < i.at[0].count; m++)
        for (unsigned l = 0; l < 32; l++) {
            uint16_t pair[2];

            for (unsigned k = 0; k < 2; k++) {
                unsigned r = l / 4, c = l % 4 * 2 + k;

                if (i.number[1])
                    std::swap(r, c);
                memcpy(&pair[k], rows[m * 8 + r] + c * 2, 2);
            }
            put_any(w, to[m], l, (uint32_t)pair[0] | (uint32_t)pair[1] << 16);
        }
}

/* d = a b + c; number: enum mma_type. d and c are mostly the same registers: c is
 * read before d is written. */
static void run_mma(struct warp &w, const struct instruction &i, uint32_t)
{
    const uint32_t *lists = w.f->lists.data();
    float d[32][4];
    uint32_t a[32][4], b[32][2];

    for (unsigned l = 0; l < 32; l++) {
        for (unsigned k = 0; k < 4; k++) {
            uint32_t c = (uint32_t)get_any(w, lists[i.at[3].first + k], l);

            memcpy(&d[l][k], &c, sizeof(c));
            a[l][k] = (uint32_t)get_any(w, lists[i.at[1].first + k], l);
        }
        for (unsigned k = 0; k < 2; k++)
            b[l][k] = (uint32_t)get_any(w, lists[i.at[2].first + k], l);
    }
    mma_of_warp(d, a, b, (enum mma_type)i.number[1]);
    for (unsigned l = 0; l < 32; l++)
        for (unsigned k = 0; k < 4; k++) {
            uint32_t bits;

            memcpy(&bits, &d[l][k], sizeof(bits));
            put_any(w, lists[i.at[0].first + k], l, bits);
        }
}

/* ---- the table ---- */

/* The name of a shuffle has no mask: it is the last operand. */
static void add_lanes(rules &r)
{
    static const char *const ways[] = {"up", "down", "bfly", "idx"};
    static const char *const votes[] = {"all.pred", "any.pred", "uni.pred",
                                        "ballot.b32"};

    for (int k = 0; k < 4; k++) {
        r[std::string("shfl.sync.") + ways[k] + ".b32"] = {
            run_shuffle, "wp=wwww", NEXT, CARE_ALL, false, {0, k, 0, 0}};
        r[std::string("vote.sync.") + votes[k]] = {
            run_vote, k == BALLOT ? "w=pw" : "p=pw", NEXT, CARE_ALL, false,
            {0, k, 0, 0}};
    }
    r["match.any.sync.b32"] = {run_match, "w=ww", NEXT, CARE_ALL, false, {}};
    r["bar.warp.sync"] = {run_warp_barrier, "w", NEXT, CARE_ALL, false, {}};
}

static void add_matrices(rules &r)
{
    auto whole = [&](const std::string &name, action *run, const char *takes,
                     int x) {
        r[name] = {run, takes, NEXT, CARE_ALL, true, {0, x, 0, 0}};
    };

    for (const char *n : {"1", "2", "4"})
        for (int t = 0; t < 2; t++)
            whole(std::string("ldmatrix.sync.aligned.m8n8.x") + n +
                      (t ? ".trans" : "") + ".shared.b16",
                  run_ldmatrix, "v=m", t);
    whole("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", run_mma, "v=vvv",
          MMA_F16);
    whole("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", run_mma,
          "v=vvv", MMA_BF16);
    whole("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", run_mma,
          "v=vvv", MMA_TF32);
}

void add_collectives(rules &r)
{
    add_lanes(r);
    add_matrices(r);
    add_meetings(r);
}

} // namespace ptx
} // namespace emu
