/* What the operands of an instruction name: registers, numbers, arrays, labels.
 * Each becomes a slot, so that instructions need not ask which it was. */
#include "kernels/emu/ptx/build.h"

#include <ctype.h>
#include <stdlib.h>

namespace emu {
namespace ptx {

void error(struct builder &b, const char *what, std::string_view name)
{
    if (!b.bad)
        fail("%s:%u: %s '%.*s'", b.m->path.c_str(), b.at.line, what,
             (int)name.size(), name.data());
    b.bad = true;
}

std::string_view text(const struct builder &b)
{
    return b.m->tokens[b.i].text;
}

bool accept(struct builder &b, const char *t)
{
    if (text(b) != t)
        return false;
    b.i++;
    return true;
}

void want(struct builder &b, const char *t)
{
    if (!accept(b, t))
        error(b, "not expected here:", text(b));
}

/* ---- slots ---- */

uint32_t fixed_slot(struct builder &b, unsigned bytes)
{
    b.f->slots.push_back({0, (uint8_t)bytes});
    return (uint32_t)b.f->slots.size() - 1;
}

/* Equal numbers of equal width share a slot. A negative number is cut to the
 * width of its use. */
static uint32_t constant(struct builder &b, uint64_t x, unsigned bytes)
{
    if (bytes && bytes < 8)
        x &= ((uint64_t)1 << bytes * 8) - 1;
    auto key = std::make_pair(x, bytes);
    auto c = b.constants.find(key);

    if (c != b.constants.end())
        return c->second;
    return b.constants[key] = fixed_slot(b, bytes);
}

/* A constant that no other use shares. */
static uint32_t own_constant(struct builder &b, int64_t offset, unsigned bytes)
{
    uint32_t s = fixed_slot(b, bytes);

    b.dynamic.push_back({s, offset});
    return s;
}

/* All that kernels here use have 32 bits; block.cc fails for those that it
 * does not know. */
static uint32_t special(struct builder &b, std::string_view name)
{
    for (auto &s : b.f->specials)
        if (s.first == name)
            return s.second;
    uint32_t s = fixed_slot(b, 4);
    b.f->specials.emplace_back(std::string(name), s);
    return s;
}

/* Registers are numbered apart until the kernel is read. */
uint8_t bytes_of(const struct builder &b, uint32_t slot)
{
    return slot >= REGISTERS ? b.registers[slot - REGISTERS].bytes
                             : b.f->slots[slot].bytes;
}

/* A declaration like %r<9> names %r0 to %r8. Names in inline assembly, like
 * p, are without numbers, and each pair of braces has its own. */
static uint32_t in_scope(const struct scope &s, std::string_view name)
{
    auto exact = s.names.find(name);

    if (exact != s.names.end())
        return exact->second;
    for (auto &r : s.ranges)
        if (name.size() > r.prefix.size() &&
            name.compare(0, r.prefix.size(), r.prefix) == 0 &&
            isdigit((unsigned char)name[r.prefix.size()])) {
            uint32_t n = (uint32_t)atoi(name.data() + r.prefix.size());

            return n < r.count ? r.first + n : NOWHERE;
        }
    return NOWHERE;
}

/* Inner braces hide what outer ones declare. */
uint32_t find_register(const struct builder &b, std::string_view name)
{
    for (size_t k = b.scopes.size(); k-- > 0;) {
        uint32_t s = in_scope(b.scopes[k], name);

        if (s != NOWHERE)
            return s;
    }
    return NOWHERE;
}

/* Arrays lie one after another in the order in which the kernel names them;
 * ptxas may order them otherwise, and no kernel may depend on it. */
uint32_t place(uint32_t *used, const struct variable &v)
{
    uint32_t at = (*used + v.align - 1) / v.align * v.align;

    *used = at + v.bytes;
    return at;
}

/* ---- operands ---- */

/* What a name stands for, when it is neither register nor label. */
static bool find_symbol(struct builder &b, std::string_view name,
                        struct operand *o)
{
    auto param = b.params.find(name);
    auto local = b.local.find(name);
    auto global = b.m->globals.find(name);
    auto shared = b.shared.find(name);
    auto declared = b.m->shared.find(name);

    o->kind = operand::NUMBER;
    if (param != b.params.end()) {
        o->offset = (int64_t)(b.f->params.get() + param->second);
    } else if (local != b.local.end()) {
        *o = {};
        o->kind = operand::REGISTER;
        o->slot = b.f->local_slot;
        return local->second == 0; /* one array, as compilers make it */
    } else if (global != b.m->globals.end()) {
        o->offset = (int64_t)global->second.data.data();
    } else if (shared != b.shared.end()) {
        o->offset = SHARED_FIRST + shared->second;
    } else if (declared != b.m->shared.end()) {
        if (declared->second.open) {
            o->symbol = true;
            /* Its alignment is that of the block's memory: 1024. */
            return true;
        }
        b.shared[std::string(name)] = place(&b.f->shared, declared->second);
        o->offset = SHARED_FIRST + b.shared[std::string(name)];
    } else {
        return false;
    }
    return true;
}

/* 0f and 0d are followed by the bits of a float or double. */
static bool read_number(struct builder &b, struct operand *o)
{
    bool minus = accept(b, "-");
    std::string t(text(b));

    if (t.empty() || !isdigit((unsigned char)t[0])) {
        if (minus)
            error(b, "no number:", t);
        return false;
    }
    o->kind = operand::NUMBER;
    bool bits = t.size() > 2 && t[0] == '0' && strchr("fFdD", t[1]);
    o->offset = (int64_t)strtoull(t.c_str() + 2 * bits, nullptr,
                                  bits ? 16 : 0);
    if (minus)
        o->offset = -o->offset;
    b.i++;
    return true;
}

/* A register, number or symbol. */
static bool read_simple(struct builder &b, struct operand *o)
{
    *o = {};
    if (read_number(b, o))
        return true;
    std::string_view name = text(b);
    o->slot = name == "_" ? NOWHERE : find_register(b, name);
    o->kind = operand::REGISTER;
    b.i++;
    if (name == "_" || o->slot != NOWHERE)
        return true;
    if (name[0] == '%') {
        o->slot = special(b, name);
        return true;
    }
    return find_symbol(b, name, o);
}

/* Numbers of lists are constants of 32 bits, or of what fits. */
uint32_t slot_for(struct builder &b, const struct operand &o, unsigned bytes)
{
    if (o.kind == operand::REGISTER)
        return o.slot;
    bytes = bytes == 1 ? 2 : bytes;
    if (o.symbol)
        return own_constant(b, o.offset, bytes);
    return constant(b, (uint64_t)o.offset, bytes);
}

/* Parts of a list are slots at once: what a list's numbers are wide is known
 * from the instruction. */
static void read_list(struct builder &b, struct operand *o, unsigned bytes)
{
    std::vector<uint32_t> slots;
    struct operand each;

    do {
        if (!read_simple(b, &each))
            error(b, "not known:", b.m->tokens[b.i - 1].text);
        slots.push_back(slot_for(b, each, bytes));
    } while (accept(b, ","));
    want(b, "}");
    o->first = (uint32_t)b.f->lists.size();
    o->count = (uint32_t)slots.size();
    b.f->lists.insert(b.f->lists.end(), slots.begin(), slots.end());
}

/* `[%rd1+8]`, `[name]`, `[%rd1, {%r1, %r2}]` */
static void read_memory(struct builder &b, struct operand *o)
{
    struct operand base, add = {};

    if (!read_simple(b, &base))
        error(b, "not known:", b.m->tokens[b.i - 1].text);
    if (accept(b, "+"))
        read_number(b, &add);
    *o = {};
    o->kind = operand::MEMORY;
    o->offset = add.offset;
    o->slot = slot_for(b, base, 8);
    if (accept(b, ",")) {
        want(b, "{");
        read_list(b, o, 4);
    }
    want(b, "]");
}

/* A name that stands for nothing else is a label, which may come later in the
 * text. */
void read_operand(struct builder &b, struct operand *o, unsigned bytes)
{
    *o = {};
    if (accept(b, "[")) {
        read_memory(b, o);
    } else if (accept(b, "{")) {
        read_list(b, o, bytes);
        o->kind = operand::LIST;
    } else if (!read_simple(b, o)) {
        o->kind = operand::LABEL;
        b.jumps.emplace_back((uint32_t)b.f->code.size(),
                             std::string(b.m->tokens[b.i - 1].text));
    }
}

} // namespace ptx
} // namespace emu
