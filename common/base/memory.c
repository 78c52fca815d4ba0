/* Memory: blocks, growing lists, arenas, buffers. Start at gpt_alloc(). */
#include "base/memory.h"

#include "base/fault.h"
#include "base/num.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- blocks ----
 *
 * calloc() gives untouched zero pages for large blocks, aligned_alloc() plus
 * memset() would touch them all; so the alignment is made here. The address to
 * free stands in the word before the block. Under AddressSanitizer the block
 * must end where the allocation ends, hence the other form. */

#ifdef __SANITIZE_ADDRESS__

static void *allocate(size_t bytes)
{
    void *p = NULL;

    if (posix_memalign(&p, GPT_ALIGN, bytes ? bytes : 1) != 0)
        return NULL;
    return memset(p, 0, bytes);
}

static void *enlarge(void *old, size_t old_bytes, size_t bytes)
{
    void *p = NULL;

    if (posix_memalign(&p, GPT_ALIGN, bytes) != 0)
        return NULL;
    memcpy(p, old, old_bytes);
    free(old);
    return p;
}

void gpt_free(void *p)
{
    free(p);
}

#else

enum { BEFORE = GPT_ALIGN + sizeof(void *) }; /* bytes that a block may need */

/* The first place for a block in what malloc() gave. */
static char *align(char *raw)
{
    uintptr_t first = (uintptr_t)raw + sizeof(void *);

    return raw + sizeof(void *) + (-first & (GPT_ALIGN - 1));
}

/* memcpy(), because the word in front of a block has no declared type. */
static char *raw_of(const void *p)
{
    char *raw;

    memcpy(&raw, (const char *)p - sizeof(void *), sizeof(raw));
    return raw;
}

static void *allocate(size_t bytes)
{
    char *raw = calloc(1, bytes + BEFORE);

    if (!raw)
        return NULL;
    char *p = align(raw);
    memcpy(p - sizeof(void *), &raw, sizeof(raw));
    return p;
}

/* Large blocks are not copied: realloc() moves their pages. */
static void *enlarge(void *old, size_t old_bytes, size_t bytes)
{
    char *raw = raw_of(old);
    /* realloc() aligns to 16 bytes only, so the block may begin elsewhere after
     * the move. */
    size_t at = (size_t)((char *)old - raw);
    char *moved = realloc(raw, bytes + BEFORE);

    if (!moved)
        return NULL;
    char *p = align(moved);
    if (p != moved + at)
        memmove(p, moved + at, old_bytes);
    memcpy(p - sizeof(void *), &moved, sizeof(moved));
    return p;
}

void gpt_free(void *p)
{
    if (p)
        free(raw_of(p));
}

#endif

/* The one gate of all allocations: products that overflow and injected failures
 * end here. Sizes near PTRDIFF_MAX would overflow in the room for alignment. */
static bool may_allocate(size_t n, size_t size, size_t *bytes)
{
    return !__builtin_mul_overflow(n, size, bytes) &&
           *bytes <= PTRDIFF_MAX - 2 * GPT_ALIGN &&
           !gpt_fault(GPT_FAULT_ALLOC);
}

void *gpt_alloc(size_t n, size_t size)
{
    size_t bytes;

    return may_allocate(n, size, &bytes) ? allocate(bytes) : NULL;
}

/* Gives the advice for the whole pages in a block. */
static void advise(void *p, size_t bytes, int advice)
{
    enum { PAGE = 4096 }; /* the addresses that madvise() takes */
    uintptr_t begin = ((uintptr_t)p + PAGE - 1) / PAGE * PAGE;
    uintptr_t end = ((uintptr_t)p + bytes) / PAGE * PAGE;
    if (begin < end)
        madvise((char *)p + (begin - (uintptr_t)p), end - begin, advice);
}

void gpt_drop_pages(void *p, size_t bytes)
{
    advise(p, bytes, MADV_DONTNEED);
}

static int cannot_allocate(struct gpt_err *err, size_t n, size_t size,
                           const char *what)
{
    return gpt_fail(err, GPT_EFAIL,
                    "cannot allocate %zu x %zu bytes for %s: out of memory", n,
                    size, what);
}

int gpt_no_memory(struct gpt_err *err, const char *what)
{
    return gpt_fail(err, GPT_EFAIL, "out of memory for %s", what);
}

int gpt_new(void *out_pointer, size_t n, size_t size, const char *what,
            struct gpt_err *err)
{
    void *p = gpt_alloc(n, size);

    memcpy(out_pointer, &p, sizeof(p));
    return p ? GPT_OK : cannot_allocate(err, n, size, what);
}

int gpt_new_large_pages(char **memory, char **p, size_t bytes, const char *what,
                        struct gpt_err *err)
{
    enum { LARGE_PAGE = 2 << 20 };
    const size_t whole = (size_t)gpt_round_up((int64_t)bytes, LARGE_PAGE);

    GPT_TRY(gpt_new(memory, whole + LARGE_PAGE, 1, what, err));
    *p = *memory + (-(uintptr_t)*memory & (LARGE_PAGE - 1));
    advise(*p, whole, MADV_HUGEPAGE);
    return GPT_OK;
}

int gpt_grow_now(void *array_pointer, size_t *cap, size_t need, size_t size,
                 const char *what, struct gpt_err *err)
{
    void *old;

    memcpy(&old, array_pointer, sizeof(old));
    /* Half as much again: a list of n elements is moved O(log n) times and
     * wastes a third at most. */
    size_t grown = *cap + *cap / 2 + 8, bytes;
    if (grown < need)
        grown = need;
    void *p = !may_allocate(grown, size, &bytes) ? NULL
              : old                              ? enlarge(old, *cap * size,
                                                           bytes)
                                                 : allocate(bytes);
    if (!p)
        return cannot_allocate(err, grown, size, what);
    memcpy(array_pointer, &p, sizeof(p));
    *cap = grown;
    return GPT_OK;
}

/* ---- arenas ---- */

enum { CHUNK_BYTES = 64 * 1024 };

struct gpt_arena_chunk {
    struct gpt_arena_chunk *next;
    size_t used, cap;
    char *data;
};

static struct gpt_arena_chunk *chunk_add(struct gpt_arena *a, size_t bytes)
{
    /* Larger blocks get a chunk of their own size. */
    size_t cap = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    struct gpt_arena_chunk *chunk = malloc(sizeof(*chunk));
    char *data = chunk ? gpt_alloc(cap, 1) : NULL;

    if (!data) {
        free(chunk);
        return NULL;
    }
    *chunk = (struct gpt_arena_chunk){.cap = cap, .data = data};
    /* A chunk made for one large block goes behind the one being filled. */
    if (a->chunks && bytes > CHUNK_BYTES / 2) {
        chunk->next = a->chunks->next;
        a->chunks->next = chunk;
    } else {
        chunk->next = a->chunks;
        a->chunks = chunk;
    }
    return chunk;
}

/* Only the newest chunk is looked at: searching older ones for room would make
 * many small blocks quadratic. */
static void *arena_take(struct gpt_arena *a, size_t bytes, size_t align)
{
    struct gpt_arena_chunk *chunk = a->chunks;
    size_t at = chunk ? (chunk->used + align - 1) & ~(align - 1) : 0;

    if (!chunk || at > chunk->cap || bytes > chunk->cap - at) {
        chunk = chunk_add(a, bytes);
        if (!chunk)
            return NULL;
        at = 0;
    }
    assert(at + bytes <= chunk->cap);
    chunk->used = at + bytes;
    a->used += bytes;
    return chunk->data + at;
}

/* Chunks come zeroed and nothing is ever given back to one, so blocks are
 * zeroed as well. */
void *gpt_arena_alloc(struct gpt_arena *a, size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return arena_take(a, bytes, GPT_ALIGN);
}

char *gpt_arena_strdup(struct gpt_arena *a, const char *s)
{
    size_t bytes = strlen(s) + 1;
    char *copy = arena_take(a, bytes, 1);

    return copy ? memcpy(copy, s, bytes) : NULL;
}

char *gpt_arena_printf(struct gpt_arena *a, const char *fmt, ...)
{
    va_list args, again;

    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n < 0 ? NULL : arena_take(a, (size_t)n + 1, 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

void gpt_arena_free(struct gpt_arena *a)
{
    struct gpt_arena_chunk *next;

    for (struct gpt_arena_chunk *c = a->chunks; c; c = next) {
        next = c->next;
        gpt_free(c->data);
        free(c);
    }
    *a = (struct gpt_arena){0};
}

/* ---- buffers ---- */

/* One byte more than asked, for the NUL that keeps .data a C string.
 * realloc(), not gpt_alloc(): buffers are given to code that knows nothing
 * of alignment. */
int gpt_buf_reserve(struct gpt_buf *b, size_t more)
{
    size_t need;

    if (__builtin_add_overflow(b->len, more, &need) ||
        need > PTRDIFF_MAX - 1)
        return GPT_EFAIL;
    if (b->data && need < b->cap)
        return GPT_OK;
    size_t cap = b->cap + b->cap / 2 + 64;
    if (cap < need + 1)
        cap = need + 1;
    char *data = gpt_fault(GPT_FAULT_ALLOC) ? NULL : realloc(b->data, cap);
    if (!data)
        return GPT_EFAIL;
    data[b->len] = '\0';
    b->data = data;
    b->cap = cap;
    return GPT_OK;
}

int gpt_buf_add(struct gpt_buf *b, const void *p, size_t n)
{
    GPT_TRY(gpt_buf_reserve(b, n));
    if (n > 0)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    assert(b->len < b->cap);
    b->data[b->len] = '\0';
    return GPT_OK;
}

int gpt_buf_printf(struct gpt_buf *b, const char *fmt, ...)
{
    va_list args, again;

    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    int status = n < 0 ? GPT_EFAIL : gpt_buf_reserve(b, (size_t)n);
    if (status == GPT_OK) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return status;
}

void gpt_buf_fit(struct gpt_buf *b)
{
    char *data = b->data ? realloc(b->data, b->len + 1) : NULL;

    if (!data)
        return;
    b->data = data;
    b->cap = b->len + 1;
}

void gpt_buf_free(struct gpt_buf *b)
{
    free(b->data);
    *b = (struct gpt_buf){0};
}

/* ---- the process ---- */

/* The second number of the file is what is resident, in pages. */
double gpt_memory_resident(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    long long pages = 0;

    if (!f)
        return 0;
    if (fscanf(f, "%*s %lld", &pages) != 1)
        pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* The kernel counts in units of 1024 bytes. What getrusage() says includes the
 * process that this one was before exec(), such as a launcher in Python. */
double gpt_memory_peak(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    struct rusage usage;
    long long peak = 0;
    char line[128];

    while (f && peak == 0 && fgets(line, sizeof(line), f))
        sscanf(line, "VmHWM: %lld", &peak);
    if (f)
        fclose(f);
    if (peak == 0 && getrusage(RUSAGE_SELF, &usage) == 0)
        peak = usage.ru_maxrss;
    return 1024.0 * (double)peak;
}
