/* One kernel of a file: tokens to instructions. Start at build_function().
 * Statements are read once, in their order; what is not known yet gets a number
 * and is put in at the end: labels, registers, which come after all constants,
 * and the place of dynamic shared memory, which comes after all arrays. */
#include "kernels/emu/ptx/build.h"

#include <algorithm>
#include <ctype.h>
#include <stdlib.h>

namespace emu {
namespace ptx {

/* ---- declarations ---- */

/* A kernel declares thousands, most of which have one use: the compiler has
 * not yet given them registers of the machine. */
static void declare_registers(struct builder &b)
{
    std::string_view type = b.m->tokens[b.i++].text;
    unsigned bytes = type == ".pred" ? 0 : type_bytes(type);

    do {
        std::string name(b.m->tokens[b.i++].text);
        uint32_t first = REGISTERS + (uint32_t)b.registers.size(), count = 1;

        if (accept(b, "<")) {
            count = (uint32_t)atoi(text(b).data());
            b.i++;
            want(b, ">");
            b.scopes.back().ranges.push_back({name, first, count});
        } else {
            b.scopes.back().names[name] = first;
        }
        b.registers.resize(b.registers.size() + count, {0, (uint8_t)bytes});
    } while (accept(b, ","));
    want(b, ";");
}

/* ---- instructions ---- */

/* Constants need no questions. */
static void note(std::vector<uint32_t> *list, uint32_t slot)
{
    if (slot != NOWHERE && slot >= REGISTERS)
        list->push_back(slot);
}

static void note_operand(const struct builder &b, const struct operand &o,
                         std::vector<uint32_t> *list)
{
    if (o.kind == operand::REGISTER || o.kind == operand::MEMORY)
        note(list, o.slot);
    for (uint32_t k = 0; k < o.count; k++)
        note(list, b.f->lists[o.first + k]);
}

static unsigned letter_bytes(char c)
{
    return c == 'h' ? 2 : c == 'w' ? 4 : 8;
}

/* Gives an operand the width that the rule asks for. PTX lets some
 * instructions take registers that are wider than the type: the table says
 * which do. For all others another width is a mistake of the text or of the
 * table. */
static void fit(struct builder &b, struct operand *o, char c)
{
    if (c == '?') {
        if (o->kind == operand::NUMBER) {
            o->slot = slot_for(b, *o, 8);
            o->kind = operand::REGISTER;
        }
        return;
    }
    if (strchr("mvl#", c)) {
        enum operand::kind kind = c == 'm'   ? operand::MEMORY
                                  : c == 'v' ? operand::LIST
                                  : c == 'l' ? operand::LABEL
                                             : operand::NUMBER;
        if (o->kind != kind)
            error(b, "an operand is of another kind:", b.at.text);
        return;
    }
    if (isupper((unsigned char)c) && o->kind == operand::LIST)
        return;
    unsigned bytes = c == 'p' ? 0 : letter_bytes((char)tolower(c));
    if (o->kind == operand::NUMBER) {
        o->slot = slot_for(b, *o, bytes);
        o->kind = operand::REGISTER;
    }
    if (o->kind != operand::REGISTER ||
        (o->slot != NOWHERE && bytes_of(b, o->slot) != bytes))
        error(b, "an operand is of another width:", b.at.text);
}

/* `takes`, like "w=ww": what is written, what is read. */
static void read_operands(struct builder &b, const struct rule &r,
                          struct instruction &n)
{
    const char *takes = r.takes;
    bool writes = strchr(takes, '=') != nullptr, optional = false;
    std::vector<uint32_t> from, to;

    for (; *takes; takes++) {
        if (*takes == '=' || *takes == '*') {
            writes = writes && *takes != '=';
            optional = *takes == '*';
            continue;
        }
        /* A predicate beside a result: %r1|%p1. */
        bool beside = n.n && writes && *takes == 'p';
        if (n.n && !accept(b, beside ? "|" : ",")) {
            if (beside) {
                n.at[n.n++] = {operand::REGISTER, false, NOWHERE, 0, 0, 0};
                continue;
            }
            if (optional)
                break;
            error(b, "too few operands:", b.at.text);
            return;
        }
        struct operand *o = &n.at[n.n++];
        read_operand(b, o, r.number[0] > 0 ? (unsigned)r.number[0] : 4);
        fit(b, o, *takes);
        note_operand(b, *o, writes && o->kind != operand::MEMORY ? &to : &from);
    }
    want(b, ";");
    n.read = (uint32_t)b.f->lists.size();
    n.n_read = (uint32_t)from.size();
    n.written = n.read + n.n_read;
    n.n_written = (uint32_t)to.size();
    b.f->lists.insert(b.f->lists.end(), from.begin(), from.end());
    b.f->lists.insert(b.f->lists.end(), to.begin(), to.end());
}

/* A predicate before the instruction decides which lanes run it. */
static void read_instruction(struct builder &b)
{
    struct instruction n = {};

    n.guard = n.join = n.target = NOWHERE;
    b.at = b.m->tokens[b.i];
    n.line = b.at.line;
    n.source = b.source;
    n.source_line = b.source_line;
    if (accept(b, "@")) {
        n.guard_not = accept(b, "!");
        n.guard = find_register(b, text(b));
        b.i++;
        if (n.guard == NOWHERE)
            error(b, "no predicate:", b.m->tokens[b.i - 1].text);
        b.at = b.m->tokens[b.i];
    }
    std::string name(b.m->tokens[b.i++].text);
    const struct rule *r = rule_of(name);
    if (!r)
        return error(b, "the interpreter has no instruction", name);
    n.run = r->run;
    n.flow = r->flow;
    n.care = r->care;
    n.whole = r->whole;
    n.name = strdup(name.c_str()); /* kept as long as the process */
    memcpy(n.number, r->number, sizeof(n.number));
    read_operands(b, *r, n);
    b.f->copies = b.f->copies || name.compare(0, 3, "cp.") == 0;
    b.f->code.push_back(n);
}

/* ---- the body ---- */

static void read_location(struct builder &b)
{
    b.source = (uint32_t)atoi(b.m->tokens[b.i + 1].text.data());
    b.source_line = (uint32_t)atoi(b.m->tokens[b.i + 2].text.data());
    b.i = after_line(b.m, b.i);
}

/* Compilers gather a kernel's local arrays in one, whose address each lane
 * has in a slot of its own. */
static void read_array(struct builder &b, bool shared)
{
    struct variable v;

    b.i = read_variable(b.m, b.i, &v);
    if (shared)
        b.shared[v.name] = place(&b.f->shared, v);
    else
        b.local[v.name] = place(&b.f->local, v);
    if (!shared && b.f->local_slot == NOWHERE)
        b.f->local_slot = fixed_slot(b, 8);
    want(b, ";");
}

static void read_body(struct builder &b)
{
    do {
        std::string_view t = text(b);

        b.at = b.m->tokens[b.i];
        if (accept(b, "{")) {
            b.scopes.emplace_back();
        } else if (accept(b, "}")) {
            b.scopes.pop_back();
        } else if (accept(b, ".reg")) {
            declare_registers(b);
        } else if (t == ".shared" || t == ".local") {
            b.i++;
            read_array(b, t == ".shared");
        } else if (t == ".loc") {
            read_location(b);
        } else if (t == ".pragma") {
            b.i += 3;
        } else if (accept(b, ";")) {
            continue;
        } else if (b.m->tokens[b.i + 1].text == ":") {
            b.labels[std::string(t)] = (uint32_t)b.f->code.size();
            b.i += 2;
        } else {
            read_instruction(b);
        }
    } while (!b.scopes.empty() && !b.bad);
}

/* A launch writes its arguments there. Each begins at a multiple of 128, as
 * much as any type asks for: a tensor map has to lie at one of 64. */
static void read_params(struct builder &b, size_t at)
{
    struct variable v;
    size_t bytes = 0;

    b.i = at + 1;
    if (b.m->tokens[at].text != "(" || accept(b, ")"))
        return;
    do {
        want(b, ".param");
        b.i = read_variable(b.m, b.i, &v);
        b.params[v.name] = bytes;
        b.f->param_at.push_back(bytes);
        b.f->param_bytes.push_back(v.bytes);
        bytes = (bytes + v.bytes + 127) / 128 * 128;
    } while (accept(b, ","));
    b.f->params_bytes = bytes;
    b.f->params.reset((char *)aligned_alloc(128, bytes), free);
}

/* Registers get their numbers after those of constants, and all their
 * places. */
static void finish_slots(struct builder &b)
{
    struct function *f = b.f;
    uint32_t fixed = (uint32_t)f->slots.size(), bytes = 0;
    auto moved = [&](uint32_t &s) {
        if (s != NOWHERE && s >= REGISTERS)
            s = s - REGISTERS + fixed;
    };

    f->n_fixed = fixed;
    f->slots.insert(f->slots.end(), b.registers.begin(), b.registers.end());
    for (uint32_t &s : f->lists)
        moved(s);
    for (struct instruction &n : f->code) {
        moved(n.guard);
        for (unsigned k = 0; k < n.n; k++)
            moved(n.at[k].slot);
    }
    for (struct slot &s : f->slots) {
        s.at = bytes;
        bytes += s.bytes == 8 ? 256 : s.bytes ? 128 : 8;
    }
    f->bytes = bytes;
    f->dynamic = (f->shared + 1023) / 1024 * 1024;
    f->image.assign(f->slots.size() > fixed ? f->slots[fixed].at : bytes, 0);
    auto fill = [&](uint32_t slot, uint64_t x) {
        char *to = f->image.data() + f->slots[slot].at;
        size_t each = f->slots[slot].bytes == 8 ? 8 : 4;

        for (size_t l = 0; l < (f->slots[slot].bytes ? 32 : 1); l++)
            memcpy(to + l * each, &x, each);
    };
    for (auto &c : b.constants)
        fill(c.second, c.first.second ? c.first.first
                                      : (c.first.first ? ~0u : 0));
    for (auto &p : b.dynamic)
        fill(p.slot, SHARED_FIRST + f->dynamic + (uint64_t)p.offset);
}

/* Once a launch: launch.cc keeps what was built. */
struct function *build_function(struct module *m, const std::string &key)
{
    auto e = m->entries.find(key);

    if (e == m->entries.end()) {
        fail("%s has no kernel %s", m->path.c_str(), key.c_str());
        return nullptr;
    }
    struct function *f = new function();
    struct builder b = {};
    f->name = e->second.name;
    f->in = m;
    f->local_slot = NOWHERE;
    f->copies = false;
    b.m = m;
    b.f = f;
    read_params(b, e->second.params);
    b.i = e->second.body;
    read_body(b);
    for (auto &j : b.jumps) {
        auto to = b.labels.find(j.second);

        if (to == b.labels.end())
            error(b, "not known:", j.second);
        else
            f->code[j.first].target = to->second;
    }
    if (b.bad) {
        delete f;
        return nullptr;
    }
    finish_slots(b);
    find_joins(f);
    return f;
}

} // namespace ptx
} // namespace emu
