/* Where lanes that part at a branch meet again: the nearest instruction that
 * all ways from the branch come to (its immediate post-dominator). Computed as
 * Cooper, Harvey and Kennedy do (A Simple, Fast Dominance Algorithm, 2001), on
 * the graph with its edges turned round. ptxas puts the meeting of lanes at the
 * same place (BSSY and BSYNC of the machine code), unless it knows that lanes
 * do not part at all. */
#include "kernels/emu/ptx/ptx.h"

#include <algorithm>

namespace emu {
namespace ptx {

namespace {

struct part { /* instructions without a way in or out between */
    uint32_t first, last;
    std::vector<uint32_t> after, before;
};

struct graph {
    std::vector<part> parts; /* the last one is the end */
    std::vector<uint32_t> of; /* by instruction */
    std::vector<uint32_t> order, rank; /* from the end, in postorder */
    std::vector<uint32_t> next; /* immediate post-dominators */
};

} // namespace

/* Instructions that branches lead to, and those after branches, begin parts.
 */
static void cut(struct graph &g, const std::vector<instruction> &code)
{
    std::vector<bool> begins(code.size() + 1);

    begins[0] = true;
    for (size_t i = 0; i < code.size(); i++)
        if (code[i].flow != NEXT) {
            begins[i + 1] = true;
            if (code[i].flow == BRANCH && code[i].target < code.size())
                begins[code[i].target] = true;
        }
    g.of.resize(code.size() + 1);
    for (uint32_t i = 0; i < code.size(); i++) {
        if (begins[i])
            g.parts.push_back({i, i, {}, {}});
        g.parts.back().last = i;
        g.of[i] = (uint32_t)g.parts.size() - 1;
    }
    g.of[code.size()] = (uint32_t)g.parts.size();
    g.parts.push_back({(uint32_t)code.size(), (uint32_t)code.size(), {}, {}});
}

/* A branch under a predicate goes both ways; so does an exit, whose other
 * lanes go on. */
static void connect(struct graph &g, const std::vector<instruction> &code)
{
    uint32_t end = (uint32_t)g.parts.size() - 1;

    for (uint32_t p = 0; p < end; p++) {
        const struct instruction &i = code[g.parts[p].last];
        std::vector<uint32_t> &to = g.parts[p].after;

        if (i.flow == BRANCH)
            to.push_back(g.of[std::min<size_t>(i.target, code.size())]);
        if (i.flow == EXIT)
            to.push_back(end);
        if (i.flow == NEXT || i.guard != NOWHERE)
            to.push_back(p + 1);
        for (uint32_t t : to)
            g.parts[t].before.push_back(p);
    }
}

/* Parts from which the end is reached, each after those it leads to. */
static void walk(struct graph &g)
{
    uint32_t end = (uint32_t)g.parts.size() - 1;
    std::vector<std::pair<uint32_t, size_t>> way = {{end, 0}};
    std::vector<bool> seen(g.parts.size());

    seen[end] = true;
    g.rank.assign(g.parts.size(), NOWHERE);
    while (!way.empty()) {
        auto &[p, k] = way.back();

        if (k < g.parts[p].before.size()) {
            uint32_t q = g.parts[p].before[k++];

            if (!seen[q]) {
                seen[q] = true;
                way.emplace_back(q, 0);
            }
            continue;
        }
        g.rank[p] = (uint32_t)g.order.size();
        g.order.push_back(p);
        way.pop_back();
    }
}

/* Goes up both chains of post-dominators until they are one. Ranks count from
 * the end, so that the one further away goes first. */
static uint32_t meet(const struct graph &g, uint32_t a, uint32_t b)
{
    while (a != b) {
        while (g.rank[a] < g.rank[b])
            a = g.next[a];
        while (g.rank[b] < g.rank[a])
            b = g.next[b];
    }
    return a;
}

/* Repeats until nothing changes: two or three times for the graphs that
 * compilers make. A part that never comes to the end, as in a loop without
 * exit, has no post-dominator. */
static void dominate(struct graph &g)
{
    uint32_t end = (uint32_t)g.parts.size() - 1;
    bool changed = true;

    g.next.assign(g.parts.size(), NOWHERE);
    g.next[end] = end;
    while (changed) {
        changed = false;
        for (size_t k = g.order.size(); k-- > 0;) {
            uint32_t p = g.order[k], to = NOWHERE;

            if (p == end)
                continue;
            for (uint32_t a : g.parts[p].after)
                if (g.next[a] != NOWHERE)
                    to = to == NOWHERE ? a : meet(g, a, to);
            if (to != g.next[p]) {
                g.next[p] = to;
                changed = true;
            }
        }
    }
}

void find_joins(struct function *f)
{
    struct graph g;

    cut(g, f->code);
    connect(g, f->code);
    walk(g);
    dominate(g);
    uint32_t end = (uint32_t)g.parts.size() - 1;
    for (uint32_t p = 0; p < end; p++) {
        struct instruction &i = f->code[g.parts[p].last];

        /* At the end no lanes meet. */
        if (i.flow == BRANCH && g.next[p] != NOWHERE && g.next[p] != end)
            i.join = g.parts[g.next[p]].first;
    }
}

} // namespace ptx
} // namespace emu
