/* One kernel of a file: tokens to instructions. Start at build_function(). */
#include "kernels/emu/ptx/module.h"

#include <algorithm>
#include <ctype.h>
#include <stdlib.h>

namespace emu {
namespace ptx {

namespace {

/* Registers declared in a pair of braces: by name, or name and count. */
struct scope {
    std::map<std::string, uint32_t, std::less<>> names;
    struct numbered {
        std::string prefix;
        uint32_t first, count;
    };
    std::vector<numbered> ranges;
};

struct patch { /* a constant that is known when all of the kernel is read */
    uint32_t slot;
    int64_t offset;
};

struct builder {
    struct module *m;
    struct function *f;
    size_t i; /* the next token */
    std::vector<scope> scopes;
    std::map<std::string, uint32_t, std::less<>> labels, shared, local;
    std::map<std::pair<uint64_t, unsigned>, uint32_t> constants;
    std::map<std::string, size_t, std::less<>> params;
    std::vector<std::pair<uint32_t, std::string>> jumps;
    std::vector<patch> dynamic;
    struct token at;   /* of the instruction */
    uint32_t source, source_line;
    bool bad;
    std::vector<slot> registers; /* numbered from REGISTERS on until the end */
};

} // namespace

/* Constants are found while registers are numbered: until the end these have
 * numbers of their own. */
static const uint32_t REGISTERS = 1u << 30;

static void error(struct builder &b, const char *what, std::string_view name)
{
    if (!b.bad)
        fail("%s:%u: %s '%.*s'", b.m->path.c_str(), b.at.line, what,
             (int)name.size(), name.data());
    b.bad = true;
}

static std::string_view text(const struct builder &b)
{
    return b.m->tokens[b.i].text;
}

static bool accept(struct builder &b, const char *t)
{
    if (text(b) != t)
        return false;
    b.i++;
    return true;
}

static void want(struct builder &b, const char *t)
{
    if (!accept(b, t))
        error(b, "not expected here:", text(b));
}

/* ---- slots ---- */

static uint32_t fixed_slot(struct builder &b, unsigned bytes)
{
    b.f->slots.push_back({0, (uint8_t)bytes});
    return (uint32_t)b.f->slots.size() - 1;
}

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

static uint32_t special(struct builder &b, std::string_view name)
{
    for (auto &s : b.f->specials)
        if (s.first == name)
            return s.second;
    uint32_t s = fixed_slot(b, 4);
    b.f->specials.emplace_back(std::string(name), s);
    return s;
}

static uint8_t bytes_of(const struct builder &b, uint32_t slot)
{
    return slot >= REGISTERS ? b.registers[slot - REGISTERS].bytes
                             : b.f->slots[slot].bytes;
}

/* ---- declarations ---- */

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

static uint32_t find_register(const struct builder &b, std::string_view name)
{
    for (size_t k = b.scopes.size(); k-- > 0;) {
        uint32_t s = in_scope(b.scopes[k], name);

        if (s != NOWHERE)
            return s;
    }
    return NOWHERE;
}

static uint32_t place(uint32_t *used, const struct variable &v)
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
static uint32_t slot_for(struct builder &b, const struct operand &o,
                         unsigned bytes)
{
    if (o.kind == operand::REGISTER)
        return o.slot;
    bytes = bytes == 1 ? 2 : bytes;
    if (o.symbol)
        return own_constant(b, o.offset, bytes);
    return constant(b, (uint64_t)o.offset, bytes);
}

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

static void read_operand(struct builder &b, struct operand *o, unsigned bytes)
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

/* Gives an operand the width that the rule asks for. */
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
    b.f->code.push_back(n);
}

/* ---- the body ---- */

static void read_location(struct builder &b)
{
    b.source = (uint32_t)atoi(b.m->tokens[b.i + 1].text.data());
    b.source_line = (uint32_t)atoi(b.m->tokens[b.i + 2].text.data());
    b.i = after_line(b.m, b.i);
}

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
