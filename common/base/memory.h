/* Memory: checked allocation, arenas, and a growing byte buffer. Every size is
 * a product that is checked for overflow; nothing here aborts. */
#ifndef GPT_BASE_MEMORY_H
#define GPT_BASE_MEMORY_H

#include "base/status.h"

#include <string.h>

enum { GPT_ALIGN = 64 }; /* of every block below: a cache line, a vector */

/* n * size bytes, zeroed, 64-byte aligned; NULL when the product overflows or
 * memory is out. Freed with gpt_free(). n * size == 0 gives a valid block. */
void *gpt_alloc(size_t n, size_t size);
void gpt_free(void *p);

/* Zeroed memory for tables that are read at random places: *p begins where a
 * large page does, and is in *memory, which is freed with gpt_free(). */
int gpt_new_large_pages(char **memory, char **p, size_t bytes, const char *what,
                        struct gpt_err *err) GPT_MUST_USE;
/* Gives back the memory under a part of a block that stays allocated, and whose
 * contents are of no use any more. */
void gpt_drop_pages(void *p, size_t bytes);

/* Bytes of memory that this process holds now, and has held at most; 0 where
 * the system does not say. */
double gpt_memory_resident(void);
double gpt_memory_peak(void);

/* gpt_alloc that reports: "cannot allocate N bytes for WHAT". */
int gpt_new(void *out_pointer, size_t n, size_t size, const char *what,
            struct gpt_err *err) GPT_MUST_USE;

/* Reports "out of memory for WHAT" where the size is not known: of a buffer or
 * a tree of JSON. Returns GPT_EFAIL. */
int gpt_no_memory(struct gpt_err *err, const char *what);

int gpt_grow_now(void *array_pointer, size_t *cap, size_t need, size_t size,
                 const char *what, struct gpt_err *err) GPT_MUST_USE;
/* Grows *array_pointer (elements of `size` bytes, capacity *cap) so that at
 * least `need` fit; the new part is not initialised. For lists that grow. */
GPT_MUST_USE static inline int gpt_grow(void *array_pointer, size_t *cap,
                                        size_t need, size_t size,
                                        const char *what, struct gpt_err *err)
{
    void *array;

    memcpy(&array, array_pointer, sizeof(array));
    return array && need <= *cap
               ? GPT_OK
               : gpt_grow_now(array_pointer, cap, need, size, what, err);
}

/* A bump arena: many small blocks, one release. Strings are packed. */
struct gpt_arena {
    struct gpt_arena_chunk *chunks; /* newest first */
    size_t used;                    /* bytes handed out, for reports */
};

void *gpt_arena_alloc(struct gpt_arena *a, size_t n, size_t size); /* zeroed */
char *gpt_arena_strdup(struct gpt_arena *a, const char *s);
char *gpt_arena_printf(struct gpt_arena *a, const char *fmt, ...)
    GPT_PRINTF(2, 3);
void gpt_arena_free(struct gpt_arena *a); /* a is reusable afterwards */

/* A growing byte buffer; .data stays NUL-terminated past .len once non-NULL. */
struct gpt_buf {
    char *data;
    size_t len, cap;
};

/* Append, or make room for that. GPT_EFAIL when memory is out, of which the
 * caller makes a message (gpt_no_memory()); what is in the buffer stays. */
int gpt_buf_add(struct gpt_buf *b, const void *p, size_t n) GPT_MUST_USE;
int gpt_buf_reserve(struct gpt_buf *b, size_t more) GPT_MUST_USE;
int gpt_buf_printf(struct gpt_buf *b, const char *fmt, ...) GPT_PRINTF(2, 3);
/* Gives back the room that is behind its bytes. */
void gpt_buf_fit(struct gpt_buf *b);
void gpt_buf_free(struct gpt_buf *b);

#endif
