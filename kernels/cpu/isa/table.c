/* The table of one instruction set. */
#include "cpu/isa/tile.h"

extern const struct cpu_isa ISA(table);
const struct cpu_isa ISA(table) = {
#define ISA_TEXT_(x) #x
#define ISA_TEXT(x) ISA_TEXT_(x)
    .name = ISA_TEXT(GPT_ISA),
    .mr = MR,
    .nr = NR,
#define X(type, name, args) .name = ISA(name),
    CPU_ISA_LIST(X)
#undef X
};
