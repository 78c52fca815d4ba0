/* All instructions by name. The names are whole, with all modifiers: one that
 * is not in the table is an instruction that the interpreter does not have, and
 * building the kernel fails with its line. None is passed over. Files that know
 * what instructions do add their own rows. The table has what nvcc makes of the
 * kernels for the first architecture and for Hopper, and their near relations:
 * another version of nvcc may want a row more. */
#include "kernels/emu/ptx/ptx.h"

namespace emu {
namespace ptx {

static void jump(struct warp &, const struct instruction &, uint32_t)
{
    /* block.cc changes the place. */
}

/* bra.uni promises that lanes do not part; if they do, they part here, too. */
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
