/* Blocks of matrix products by oneDNN, 2.x or 3.x, each in the calling thread.
 * Floats by dnnl_sgemm; bf16, where the processor multiplies it, by a matmul
 * primitive, of which each thread keeps those that it made. */
#include "cpu/product.h"

#include "base/thread.h"

#include <string.h>

#ifdef GPT_HAVE_DNNL
#include <assert.h>
#include <dnnl.h>
#include <omp.h>
#include <pthread.h>
#include <sys/mman.h>

/* The shape and types for which a primitive is compiled. Shapes are compared
 * bit by bit, so the struct has no padding. */
struct shape {
    int64_t m, n, k, lda, ldb, ldc;
    int64_t ta, tb, add, narrow;
};

enum { SRC, WEIGHTS, DST, OPERANDS };
static const int operand_names[OPERANDS] = {
    DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};

struct primitive {
    struct shape shape;
    dnnl_primitive_t run; /* NULL: none */
    dnnl_memory_t mem[OPERANDS];
};

/* A layer has few shapes: 4 products forward, 8 backward, and for edges of the
 * blocks as many again. Compiling one takes milliseconds. */
enum { KEPT = 32 };
struct kept {
    dnnl_stream_t stream;
    struct primitive list[KEPT];
    unsigned next; /* to be replaced */
};
/* The primitives of one thread: operands are set before each run, which two
 * threads could not share. OpenMP keeps its threads, and they keep these. */
static _Thread_local struct kept kept;

/* ---- what 2.x and 3.x call by different names ---- */

struct layout {
    dnnl_dims_t dims, strides;
    dnnl_data_type_t type;
};

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t desc;

static bool init_desc(desc *d, const struct layout *l)
{
    return dnnl_memory_desc_create_with_strides(d, 2, l->dims, l->type,
                                                l->strides) == dnnl_success;
}

static void free_desc(desc *d)
{
    dnnl_memory_desc_destroy(*d);
}

static bool open_memory(dnnl_memory_t *mem, const desc *d, dnnl_engine_t engine)
{
    return dnnl_memory_create(mem, *d, engine, DNNL_MEMORY_NONE) ==
           dnnl_success;
}

static bool append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef) ==
           dnnl_success;
}

static bool plan_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                        const desc d[OPERANDS],
                        const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, d[SRC], d[WEIGHTS],
                                             NULL, d[DST],
                                             attr) == dnnl_success;
}
#else
typedef dnnl_memory_desc_t desc;

static bool init_desc(desc *d, const struct layout *l)
{
    return dnnl_memory_desc_init_by_strides(d, 2, l->dims, l->type,
                                            l->strides) == dnnl_success;
}

static void free_desc(desc *d)
{
    (void)d;
}

static bool open_memory(dnnl_memory_t *mem, const desc *d, dnnl_engine_t engine)
{
    return dnnl_memory_create(mem, d, engine, DNNL_MEMORY_NONE) ==
           dnnl_success;
}

static bool append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1) == dnnl_success;
}

static bool plan_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                        const desc d[OPERANDS],
                        const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t op;

    return dnnl_matmul_desc_init(&op, &d[SRC], &d[WEIGHTS], NULL, &d[DST]) ==
               dnnl_success &&
           dnnl_primitive_desc_create(pd, &op, attr, engine, NULL) ==
               dnnl_success;
}
#endif

/* ---- memory ---- */

/* Without memory for its code oneDNN throws an exception of C++, which nothing
 * here can catch, or crashes: a limit (ulimit -v) would end the program by a
 * signal. So it is asked before whether there is as much. */
static bool has_room(size_t bytes)
{
    void *p =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return false;
    munmap(p, bytes);
    return true;
}

/* ---- primitives ---- */

/* The engine, one for all threads. It is opened at the first product, not
 * before main(): oneDNN reads the processor and its environment then. */
static dnnl_engine_t the_engine(void)
{
    static dnnl_engine_t engine; /* for the life of the program */
    dnnl_engine_t e = NULL;
#pragma omp critical(cpu_library_engine)
    {
        if (!engine && dnnl_engine_create(&engine, dnnl_cpu, 0) !=
                           dnnl_success)
            engine = NULL;
        e = engine;
    }
    return e;
}

static void release_primitive(struct primitive *p)
{
    if (p->run)
        dnnl_primitive_destroy(p->run);
    for (int i = 0; i < OPERANDS; i++)
        if (p->mem[i])
            dnnl_memory_destroy(p->mem[i]);
    *p = (struct primitive){.run = NULL};
}

/* Compiles p->run for the described operands; `beta` says whether it adds to
 * what is there. */
static bool compile_primitive(struct primitive *p, const desc d[OPERANDS],
                              dnnl_engine_t engine)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t pd = NULL;

    /* beta: the sum that oneDNN adds to is c itself, as a post-operation. */
    bool good = dnnl_primitive_attr_create(&attr) == dnnl_success &&
                dnnl_post_ops_create(&ops) == dnnl_success &&
                (!p->shape.add || append_sum(ops)) &&
                dnnl_primitive_attr_set_post_ops(attr, ops) == dnnl_success &&
                plan_matmul(&pd, engine, d, attr) &&
                dnnl_primitive_create(&p->run, pd) == dnnl_success;
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return good;
}

static bool make_primitive(struct primitive *p, const struct shape *s)
{
    dnnl_engine_t engine = the_engine();
    dnnl_data_type_t in = s->narrow ? dnnl_bf16 : dnnl_f32;
    /* A transposed operand is the same memory with its strides exchanged. c is
     * float even for bf16 factors: the epilogue rounds, once. */
    const struct layout layouts[OPERANDS] = {
        [SRC] = {{s->m, s->k}, {s->ta ? 1 : s->lda, s->ta ? s->lda : 1}, in},
        [WEIGHTS] = {{s->k, s->n},
                     {s->tb ? 1 : s->ldb, s->tb ? s->ldb : 1},
                     in},
        [DST] = {{s->m, s->n}, {s->ldc, 1}, dnnl_f32}};
    desc d[OPERANDS];
    int made = 0;

    p->shape = *s;
    /* `made` counts how far this came, so that a failure half-way frees what
     * there is. */
    while (engine && made < OPERANDS && init_desc(&d[made], &layouts[made]) &&
           open_memory(&p->mem[made], &d[made], engine))
        made++;
    bool good = made == OPERANDS && compile_primitive(p, d, engine);
    for (int i = 0; i < made; i++)
        free_desc(&d[i]);
    if (!good)
        release_primitive(p);
    return good;
}

static struct primitive *find_primitive(const struct shape *s)
{
    for (int i = 0; i < KEPT; i++)
        if (kept.list[i].run &&
            memcmp(&kept.list[i].shape, s, sizeof(*s)) == 0)
            return &kept.list[i];
    /* The oldest is replaced: shapes of one model come round in order, and 32
     * hold them all. */
    struct primitive *p = &kept.list[kept.next++ % KEPT];
    release_primitive(p);
    bool made;
    /* one thread at a time, as all of them would find the same room */
#pragma omp critical(cpu_library_compile)
    made = has_room((size_t)32 << 20) && make_primitive(p, s);
    return made ? p : NULL;
}

/* OpenMP ends threads when a smaller team is asked for, and a thread's own
 * variables go without a word: what they point to is released here. */
static pthread_key_t at_exit;
static bool has_key;

static void release_kept(void *own)
{
    struct kept *k = own;

    for (int i = 0; i < KEPT; i++)
        release_primitive(&k->list[i]);
    dnnl_stream_destroy(k->stream);
}

static void make_key(void)
{
    /* without a key an ending thread leaves its primitives behind */
    has_key = pthread_key_create(&at_exit, release_kept) == 0;
}

static bool open_stream(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (dnnl_stream_create(&kept.stream, the_engine(),
                           dnnl_stream_default_flags) != dnnl_success)
        return false;
    pthread_once(&once, make_key);
    if (has_key)
        pthread_setspecific(at_exit, &kept);
    return true;
}

static bool run_primitive(const struct cpu_product *b)
{
    struct shape s = {b->m,  b->n,  b->k,         b->lda,   b->ldb, b->ldc,
                      b->ta, b->tb, b->beta != 0, b->narrow};
    struct primitive *p = find_primitive(&s);

    assert(b->m > 0 && b->n > 0 && b->k > 0); /* oneDNN has no empty sums */
    if (!p || (!kept.stream && !open_stream()))
        return false;
    /* memory that is read is not written to */
    void *operands[OPERANDS] = {(void *)(uintptr_t)b->a,
                                (void *)(uintptr_t)b->b, b->c};
    dnnl_exec_arg_t args[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        if (dnnl_memory_set_data_handle(p->mem[i], operands[i]) !=
            dnnl_success)
            return false;
        args[i] = (dnnl_exec_arg_t){operand_names[i], p->mem[i]};
    }
    return dnnl_primitive_execute(p->run, kept.stream, OPERANDS, args) ==
               dnnl_success &&
           dnnl_stream_wait(kept.stream) == dnnl_success;
}

/* dnnl_sgemm() is row-major and takes leading dimensions as they are. It needs
 * no primitive, and hence no cache of them. */
static bool run_sgemm(const struct cpu_product *b)
{
    return dnnl_sgemm(b->ta ? 'T' : 'N', b->tb ? 'T' : 'N', b->m, b->n, b->k, 1,
                      b->a, b->lda, b->b, b->ldb, b->beta, b->c,
                      b->ldc) == dnnl_success;
}

/* Called by one thread of a team, oneDNN uses that thread alone. Elsewhere it
 * cuts the product for omp_get_max_threads() threads, and leaves out what those
 * would have computed that OpenMP does not give it: with OMP_DYNAMIC, or
 * OMP_THREAD_LIMIT=1, a team may be a single thread, which counts as none. So
 * the number is set to 1 there. */
static bool run_alone(bool (*run)(const struct cpu_product *b),
                      const struct cpu_product *b)
{
    const int threads = omp_get_max_threads();
    const bool set = threads > 1 && !omp_in_parallel();

    if (set)
        omp_set_num_threads(1);
    const bool good = run(b);
    if (set)
        omp_set_num_threads(threads);
    return good;
}

/* Products of oneDNN (2.6.3, and still 3.11: its issue 4845) use the stack
 * pointer as one more register, which then points into the heap. The frame of a
 * handler, written there when a signal comes meanwhile, destroys what the heap
 * holds. So signals wait until the block is done. */
static bool run_held(bool (*run)(const struct cpu_product *b),
                     const struct cpu_product *b)
{
    sigset_t old;

    gpt_thread_hold_signals(&old);
    const bool good = run_alone(run, b);
    gpt_thread_release_signals(&old);
    return good;
}

bool cpu_library_primitive(const struct cpu_product *b)
{
    return run_held(run_primitive, b);
}

bool cpu_library(const struct cpu_product *b)
{
    return run_held(b->narrow ? run_primitive : run_sgemm, b);
}

/* Makes oneDNN compile its products of floats, which it does at the first. */
static void compile_products(void)
{
    enum { N = 64 };
    static float a[N * N], b[N * N], c[N * N];

    for (int i = 0; i < 4; i++) {
        const struct cpu_product p = {.m = N, .n = N, .k = N, .lda = N,
                                      .ldb = N, .ldc = N, .ta = i & 1,
                                      .tb = i & 2, .a = a, .b = b, .c = c};

        (void)cpu_library(&p);
    }
}

static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static bool had_room;

static void prepare(void)
{
    had_room = has_room((size_t)64 << 20);
    if (had_room)
        compile_products();
}

/* Now, before other threads and buffers, there is most room. Later products of
 * floats need buffers alone, and say so where they get none. */
bool cpu_library_prepare(void)
{
    pthread_once(&prepared, prepare);
    return had_room;
}

/* An emulator or a hypervisor may announce instructions that it does not carry
 * out rightly; a small product is tried before bf16 is trusted to them. Sums of
 * small whole numbers are exact, whatever their order. */
static bool multiplies(void)
{
    enum { N = 40 };
    uint16_t a[N * N], b[N * N];
    float c[N * N];
    const struct cpu_product p = {.m = N, .n = N, .k = N, .lda = N, .ldb = N,
                                  .ldc = N, .tb = true, .narrow = true,
                                  .a = a, .b = b, .c = c, .beta = 1};

    for (int i = 0; i < N * N; i++) {
        a[i] = gpt_f32_to_bf16((float)(i % 13 - 6));
        b[i] = gpt_f32_to_bf16((float)(i % 11 - 5));
        c[i] = 1;
    }
    if (!cpu_library_primitive(&p))
        return false;
    for (int i = 0; i < N * N; i++) {
        int sum = 1;

        for (int l = 0; l < N; l++)
            sum += ((i / N * N + l) % 13 - 6) * ((i % N * N + l) % 11 - 5);
        if (c[i] != (float)sum)
            return false;
    }
    return true;
}

bool cpu_library_bf16(void)
{
    /* The effective set: ONEDNN_MAX_CPU_ISA may hide what the processor has.
     * Sets are bit masks that include one another. */
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
    unsigned bf16 = dnnl_cpu_isa_avx512_core_bf16;

    return (isa & bf16) == bf16 && multiplies();
}
#else
bool cpu_library_prepare(void)
{
    return true;
}

bool cpu_library_primitive(const struct cpu_product *b)
{
    (void)b;
    return false;
}

bool cpu_library(const struct cpu_product *b)
{
    (void)b;
    return false;
}

bool cpu_library_bf16(void)
{
    return false;
}
#endif
