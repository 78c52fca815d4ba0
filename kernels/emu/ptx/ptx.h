/* An interpreter of PTX: the emulation runs the very text that nvcc made of a
 * kernel, inline assembly included, where GPT_CUDA_PTX names a directory with a
 * file .ptx for each file .cu of kernels/cuda that has kernels. The host's part
 * of a file is what the C++ compiler made, as without.
 *
 *   launch.cc  from the address of a kernel to its text; parameters
 *   parse.cc   a file's text in parts; build.cc, operands.cc: instructions of
 *              one kernel; flow.cc: where lanes meet
 *   table.cc   what each instruction is called and takes
 *   arith.cc, bits.cc, floating.cc, convert.cc, memory.cc, lanes.cc, meet.cc,
 *   wgmma.cc   what instructions do
 *   block.cc   warps of a block, interleaved
 *   order.cc   what comes before a copy overwrites shared memory
 *
 * A warp runs in lockstep; lanes that part at a branch meet again where all
 * ways from it do. Warps take turns in the order of GPT_CUDA_EMU_ORDER. What a
 * GPU leaves undefined is an error, whose message names the line of the PTX
 * and, by its .loc, that of the source:
 *   - registers and shared memory that are used before they are written
 *   - registers that an asynchronous product still writes or reads; products
 *     without a fence since registers were used
 *   - shared memory that a copy still writes; writes that no proxy fence shows
 *   - shared memory that a copy overwrites, though no barrier, mbarrier or
 *     fence orders it after the accesses before
 *   - addresses outside of allocations, and misaligned ones
 *   - instructions for a whole warp that part of a warp runs
 * Tensor maps, bulk copies, mbarriers and operands of wgmma are those of
 * bulk.cc, async.cc and wgmma.cc. */
#ifndef GPT_EMU_PTX_H
#define GPT_EMU_PTX_H

#include "kernels/emu/threads.h"

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace emu {
namespace ptx {

static const uint32_t NOWHERE = ~0u;

/* A place for 32 numbers, one a lane: a register, a constant, or what the lane
 * has of its own like %tid. A predicate is one word, a bit a lane. */
struct slot {
    uint32_t at;   /* bytes from the warp's first */
    uint8_t bytes; /* 0 (a predicate), 2, 4, 8; 2 takes as much room as 4 */
};

struct operand {
    enum kind : uint8_t { NUMBER, REGISTER, MEMORY, LIST, LABEL } kind;
    bool symbol;           /* NUMBER: of a dynamic array, placed last */
    uint32_t slot;         /* REGISTER; MEMORY: the address */
    int64_t offset;        /* MEMORY; NUMBER: itself */
    uint32_t first, count; /* LIST, coordinates of MEMORY: in function.lists */
};

struct warp;
struct instruction;
/* `lanes` run it. */
typedef void action(struct warp &w, const struct instruction &i,
                    uint32_t lanes);

enum flow : uint8_t { NEXT, BRANCH, EXIT };
/* What is asked of registers: that those read are known and free; free, as what
 * is unknown moves along, or as the instruction itself says what is unknown;
 * nothing, as the instruction asks itself. */
enum care : uint8_t { CARE_ALL, CARE_MOVE, CARE_CHOICE, CARE_SELF };

struct instruction {
    action *run;
    enum flow flow;
    enum care care;
    bool whole;     /* for all lanes of a warp that have not ended */
    bool guard_not;
    uint8_t n;
    uint32_t guard; /* NOWHERE: none */
    struct operand at[8];
    int32_t number[4];            /* of the instruction's modifiers */
    uint32_t read, n_read, written, n_written; /* slots, in function.lists */
    uint32_t target, join;        /* BRANCH; where ways meet: NOWHERE */
    uint32_t line, source, source_line;
    const char *name;
};

struct function {
    std::string name;
    const struct module *in;
    std::vector<slot> slots;
    std::vector<uint32_t> lists;
    std::vector<instruction> code;
    uint32_t bytes;          /* of a warp's slots */
    std::vector<char> image; /* how they begin: constants; then registers */
    uint32_t n_fixed;        /* slots that are no registers are the first */
    std::vector<std::pair<std::string, uint32_t>> specials; /* %tid.x.. */
    uint32_t shared, dynamic; /* bytes of static arrays; dynamic ones' place */
    uint32_t local;          /* bytes of local arrays, of a lane */
    uint32_t local_slot;     /* NOWHERE, or its address */
    bool copies;             /* it begins asynchronous copies */
    std::vector<size_t> param_at, param_bytes;
    std::shared_ptr<char> params;
    size_t params_bytes;
};

/* Shared memory begins there, as in async.cc. */
enum { SHARED_FIRST = 1024 };

/* What an instruction may be called, and what it takes: before '=' what it
 * writes. p h w d: predicate, 16, 32, 64 bits; H W D: or a list; ?: of any
 * width, or a list; m: memory; v: a list; l: a label; #: a number. After *:
 * what may be missing. */
struct rule {
    action *run;
    const char *takes;
    enum flow flow;
    enum care care;
    bool whole;
    int32_t number[4];
};
/* NULL: there is no such instruction. */
const struct rule *rule_of(const std::string &name);
typedef std::unordered_map<std::string, rule> rules;
void add_arithmetic(rules &r);
void add_conversions(rules &r);
void add_memory(rules &r);
void add_collectives(rules &r);
void add_meetings(rules &r);
void add_wgmma(rules &r);

/* The kernel whose address is `kernel`; NULL after fail(). */
struct function *find_function(void *kernel);
/* The text of one file. */
struct module *open_module(const std::string &path);
struct function *build_function(struct module *m, const std::string &key);
void find_joins(struct function *f);
/* A name's part that compilers agree on: function and template arguments. */
std::string key_of(std::string_view mangled);
/* Name and file of a static function; false: not found. */
bool module_data(const struct function *f, const void *p, size_t bytes);
bool name_function(const void *at, std::string *file, std::string *name);

/* ---- a block that runs ---- */

struct level { /* of lanes that have parted */
    uint32_t pc, join, lanes;
};

struct product { /* a wgmma under way */
    const struct instruction *i;
    uint64_t desc_a, desc_b;
    unsigned group;
    bool add, done;
};

struct small_copy { /* a cp.async under way */
    unsigned to, size, bytes, group; /* `bytes` of `size`; the rest: zeros */
    const char *from;
};

struct warp {
    const struct function *f;
    unsigned index;
    uint32_t live; /* lanes that have not ended */
    std::vector<level> levels;
    std::vector<char> rows, local;
    /* By slot: lanes that have a number; when it was used last; whether a
     * product writes (1) or reads (2) it, 0: none. */
    std::vector<uint32_t> known, used;
    std::vector<uint8_t> flight;
    uint32_t time, fence; /* instructions so far; at the last wgmma.fence */
    unsigned group;       /* of the next wgmma */
    uint64_t trace;       /* the same in a warpgroup's warps */
    std::vector<product> products;
    std::vector<small_copy> copies[32];
    unsigned copy_group;
    bool blocked;         /* the instruction has to be tried again */
    uint32_t unknown;     /* lanes to which it gave anything */
    bool in_barrier;      /* it has come to a barrier and waits */
    unsigned round;
    unsigned registers;
    const struct instruction *now;
    uint32_t lanes;       /* that run it */
};

extern std::vector<warp> warps; /* of the block that runs */
extern const struct function *running;
extern struct warp *current; /* NULL: none runs */

/* All blocks of a launch. */
bool run(const char *name, const struct function *f, dim3 grid, dim3 block,
         size_t dynamic);

/* Runs one instruction; false when the warp has to wait. */
bool step(struct warp &w);
/* Forgets the barriers of the block before. */
void begin_barriers();
void begin_shared(char *shared, size_t bytes);
/* What is under way when a warp ends is a failure. trace(): a step that the
 * warps of a warpgroup have to take alike. */
void begin_products();
void end_products();
void trace(struct warp &w, uint64_t x);

/* ---- order.cc ---- */

/* What threads have done before they came to a barrier: this time; the last
 * time, when all had come. */
struct meeting {
    std::vector<uint32_t> coming, over;
};
/* Forgets the block before; bytes: of shared memory. */
void begin_order(size_t bytes);
/* `lanes` come to a barrier; all have come; `lanes` go on after it. */
void order_release(const struct warp &w, uint32_t lanes, struct meeting *m);
void order_met(struct meeting *m);
void order_acquire(const struct warp &w, uint32_t lanes,
                   const struct meeting &m);
/* What each of `lanes` did is over for itself; for all of them. */
void order_fence(const struct warp &w, uint32_t lanes);
void order_lanes(const struct warp &w, uint32_t lanes);
/* `lanes` of the running warp use shared memory. A product is over when they
 * have waited for it together. */
enum use_way { USE_READ, USE_WRITE, USE_PRODUCT };
void order_use(unsigned address, unsigned bytes, uint32_t lanes,
               enum use_way way);
/* Fails unless all uses that a copy's way (it writes there, or reads) has to
 * come after are over for the running thread, which begins the copy. `own`:
 * what that thread did itself is over. */
void check_order(unsigned address, unsigned bytes, bool writes, bool own);

/* Where the running instruction came from. */
const char *source_file();
int source_line();

/* ---- numbers of a warp ---- */

template <class T> struct row {
    T v[32];
};

static inline char *row_at(struct warp &w, uint32_t slot)
{
    return w.rows.data() + w.f->slots[slot].at;
}

template <class T> static inline row<T> get(struct warp &w, uint32_t slot)
{
    row<T> r;
    if constexpr (sizeof(T) == 2) {
        uint32_t wide[32];

        memcpy(wide, row_at(w, slot), sizeof(wide));
        for (int l = 0; l < 32; l++) {
            uint16_t low = (uint16_t)wide[l];

            memcpy(&r.v[l], &low, sizeof(low));
        }
    } else {
        memcpy(&r, row_at(w, slot), sizeof(r));
    }
    return r;
}

template <class T>
static inline void put(struct warp &w, uint32_t slot, const row<T> &x,
                       uint32_t lanes)
{
    if (slot == NOWHERE)
        return;
    char *to = row_at(w, slot);
    if constexpr (sizeof(T) == 2) {
        for (int l = 0; l < 32; l++)
            if (lanes >> l & 1) {
                uint16_t low;

                memcpy(&low, &x.v[l], sizeof(low));
                uint32_t wide = low;
                memcpy(to + l * 4, &wide, sizeof(wide));
            }
    } else if (lanes == ~0u) {
        memcpy(to, &x, sizeof(x));
    } else {
        for (int l = 0; l < 32; l++)
            if (lanes >> l & 1)
                memcpy(to + l * sizeof(T), &x.v[l], sizeof(T));
    }
}

static inline uint32_t get_predicate(struct warp &w, uint32_t slot)
{
    uint32_t bits;

    memcpy(&bits, row_at(w, slot), sizeof(bits));
    return bits;
}

static inline void put_predicate(struct warp &w, uint32_t slot, uint32_t x,
                                 uint32_t lanes)
{
    if (slot == NOWHERE)
        return;
    x = (get_predicate(w, slot) & ~lanes) | (x & lanes);
    memcpy(row_at(w, slot), &x, sizeof(x));
}

/* A number of any width, of one lane: without sign. */
uint64_t get_any(struct warp &w, uint32_t slot, unsigned lane);
void put_any(struct warp &w, uint32_t slot, unsigned lane, uint64_t x);

/* The lanes' addresses of an operand. */
row<uint64_t> addresses(struct warp &w, const struct operand &o);
/* Memory that a lane may use; NULL after fail(). Shared memory is written, or
 * was. */
char *shared_for(unsigned address, unsigned bytes, bool write, unsigned lane);
/* Marks shared memory as being written by a copy. */
void put_in_flight(unsigned at, unsigned bytes, bool reads);
/* True when a product reads any of these that a warp has not yet waited for. */
bool read_by_products(unsigned address, unsigned bytes);
void take_from_flight(unsigned address, unsigned bytes);
char *global_for(uint64_t address, unsigned bytes);

} // namespace ptx
} // namespace emu

#endif
