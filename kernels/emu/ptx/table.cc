/* All instructions by name. Arithmetic on 32 lanes at once: arith.cc and
 * convert.cc; what knows of memory or other lanes: memory.cc, collect.cc,
 * wgmma.cc. A modifier that is not in the table is an instruction that the
 * interpreter does not have: none is passed over. */
#include "kernels/emu/ptx/ptx.h"

namespace emu {
namespace ptx {

static void jump(struct warp &, const struct instruction &, uint32_t)
{
    /* block.cc changes the place. */
}

static void add_flow(rules &r)
{
    r["bra"] = r["bra.uni"] = {jump, "l", BRANCH, CARE_ALL, false, {}};
    r["ret"] = r["exit"] = {jump, "", EXIT, CARE_ALL, false, {}};
}

const struct rule *rule_of(const std::string &name)
{
    static rules all;

    if (all.empty()) {
        add_flow(all);
        add_arithmetic(all);
        add_conversions(all);
        add_memory(all);
        add_collectives(all);
        add_wgmma(all);
    }
    auto r = all.find(name);
    return r == all.end() ? nullptr : &r->second;
}

} // namespace ptx
} // namespace emu
