/* Messages of the store, and the table that they act on. A request is a code,
 * for some a count, strings of a 64-bit length each, and for some a number; all
 * integers little-endian. Inside parallel/ only. */
#ifndef GPT_PARALLEL_STORE_WIRE_H
#define GPT_PARALLEL_STORE_WIRE_H

#include "base/memory.h"

enum gpt_wire_code {
    GPT_WIRE_VALIDATE,
    GPT_WIRE_SET,
    GPT_WIRE_COMPARE_SET,
    GPT_WIRE_GET,
    GPT_WIRE_ADD,
    GPT_WIRE_CHECK,
    GPT_WIRE_WAIT,
    GPT_WIRE_NUM_KEYS,
    GPT_WIRE_DELETE,
    GPT_WIRE_APPEND,
    GPT_WIRE_MULTI_GET,
    GPT_WIRE_MULTI_SET,
    GPT_WIRE_CANCEL_WAIT,
    GPT_WIRE_PING,
    GPT_WIRE_CODES
};

#define GPT_WIRE_MAGIC UINT32_C(0x3C85F7CE) /* the number of VALIDATE */

enum {                         /* replies of one byte */
       GPT_WIRE_READY = 0,     /* to CHECK */
       GPT_WIRE_NOT_READY = 1, /* to CHECK */
       GPT_WIRE_STOP_WAITING = 0,
       GPT_WIRE_CANCELED = 1,
};

enum { /* limits of a request; those of keys and values are in store.h */
       GPT_WIRE_KEYS = 131072,
       GPT_WIRE_MESSAGE = 64 << 20,
};

/* Seconds of silence after which either end takes the other's machine for
 * gone. */
enum { GPT_WIRE_GONE = 12 };

/* ---- requests as they arrive ---- */

struct gpt_wire_field {
    size_t at, len; /* within the message */
};

struct gpt_wire_request {
    bool started, counted; /* the code is read; so is how many strings come */
    enum gpt_wire_code code;
    struct gpt_wire_field *fields; /* (n) read, of `want` */
    size_t n, want, cap;
    uint64_t number; /* of a message that has one */
    size_t end; /* bytes read; when done, the length of the message */
};

enum gpt_wire_status { GPT_WIRE_MORE, GPT_WIRE_DONE, GPT_WIRE_BAD };

/* Resumes reading the message at data[0..len) where the last call stopped. The
 * caller keeps all of its bytes until the message is done. */
enum gpt_wire_status gpt_wire_read(struct gpt_wire_request *r,
                                   const uint8_t *data, size_t len);
void gpt_wire_restart(struct gpt_wire_request *r); /* for the next message */
void gpt_wire_free(struct gpt_wire_request *r);

/* ---- building ---- */
int gpt_wire_put_code(struct gpt_buf *b, enum gpt_wire_code code) GPT_MUST_USE;
int gpt_wire_put_u64(struct gpt_buf *b, uint64_t v) GPT_MUST_USE;
int gpt_wire_put_u32(struct gpt_buf *b, uint32_t v) GPT_MUST_USE;
int gpt_wire_put_bytes(struct gpt_buf *b, const void *p, size_t n) GPT_MUST_USE;

/* ---- the table ---- */
struct gpt_store_table;

struct gpt_store_table *gpt_store_table_open(void); /* NULL: out of memory */
void gpt_store_table_close(struct gpt_store_table *t);
bool gpt_store_table_has(const struct gpt_store_table *t, const void *key,
                         size_t len);
/* Executes a complete request other than VALIDATE, WAIT and CANCEL_WAIT;
 * appends the reply. False when the request fails: an ADD to what is no number,
 * a value or reply beyond its limit, or out of memory. */
bool gpt_store_table_apply(struct gpt_store_table *t,
                           const struct gpt_wire_request *r,
                           const uint8_t *data, struct gpt_buf *reply);
/* Counts changes that may end a wait. */
uint64_t gpt_store_table_changes(const struct gpt_store_table *t);

#endif
