/* One kernel on its way from tokens to instructions: build.cc reads statements,
 * operands.cc what they name. */
#ifndef GPT_EMU_PTX_BUILD_H
#define GPT_EMU_PTX_BUILD_H

#include "kernels/emu/ptx/module.h"

namespace emu {
namespace ptx {

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

/* Constants are found while registers are numbered: until the end these have
 * numbers of their own. */
static const uint32_t REGISTERS = 1u << 30;

/* Fails, and ends the reading of the kernel. */
void error(struct builder &b, const char *what, std::string_view name);
/* The next token; passes over it where it is t, or where it has to be. */
std::string_view text(const struct builder &b);
bool accept(struct builder &b, const char *t);
void want(struct builder &b, const char *t);

/* A slot that is no register. */
uint32_t fixed_slot(struct builder &b, unsigned bytes);
uint8_t bytes_of(const struct builder &b, uint32_t slot);
uint32_t find_register(const struct builder &b, std::string_view name);
/* Gives a variable its place after `used` bytes. */
uint32_t place(uint32_t *used, const struct variable &v);
/* `bytes`: of numbers in a list. */
void read_operand(struct builder &b, struct operand *o, unsigned bytes);
/* The slot of a register or number; a number of so many bytes. */
uint32_t slot_for(struct builder &b, const struct operand &o, unsigned bytes);

} // namespace ptx
} // namespace emu

#endif
