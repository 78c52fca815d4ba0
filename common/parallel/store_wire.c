/* Reading requests from clients that may be hostile. A request may arrive in
 * any number of parts: gpt_wire_read() resumes where the last call stopped, so
 * no byte is read twice and a slow client costs no more than a quick one.
 * Lengths are checked against limits before anything is waited for, and memory
 * grows only with what has arrived, never with what a length promises. Start at
 * `forms`, then gpt_wire_read(). */
#include "parallel/store_wire.h"

#include "base/num.h"
#include "parallel/store.h"

#include <assert.h>

enum { LIST = -1, PAIRS = -2 }; /* a count comes first */

/* A message is its code, the count of a list, the strings, and the number, in
 * this order; a form says which of them a code has. The codes and forms are
 * PyTorch's. */
static const struct {
    int strings, number; /* fixed strings or LIST, PAIRS; bytes of a number */
} forms[GPT_WIRE_CODES] = {
    [GPT_WIRE_VALIDATE] = {0, 4},     [GPT_WIRE_SET] = {2, 0},
    [GPT_WIRE_COMPARE_SET] = {3, 0},  [GPT_WIRE_GET] = {1, 0},
    [GPT_WIRE_ADD] = {1, 8},          [GPT_WIRE_CHECK] = {LIST, 0},
    [GPT_WIRE_WAIT] = {LIST, 0},      [GPT_WIRE_NUM_KEYS] = {0, 0},
    [GPT_WIRE_DELETE] = {1, 0},       [GPT_WIRE_APPEND] = {2, 0},
    [GPT_WIRE_MULTI_GET] = {LIST, 0}, [GPT_WIRE_MULTI_SET] = {PAIRS, 0},
    [GPT_WIRE_CANCEL_WAIT] = {0, 0},  [GPT_WIRE_PING] = {0, 4},
};

/* Keys have a smaller limit than values. SET, APPEND and COMPARE_SET have the
 * key first and values after it; in a list of pairs every second string is a
 * value. */
static bool is_value(const struct gpt_wire_request *r, size_t field)
{
    return r->code == GPT_WIRE_MULTI_SET
               ? field % 2 == 1
               : forms[r->code].strings > 0 && field > 0;
}

/* `counted` is kept apart from `want`, because a list of no keys is a valid
 * request whose count must not be read again. */
static enum gpt_wire_status read_count(struct gpt_wire_request *r,
                                       const uint8_t *data, size_t len)
{
    const int strings = forms[r->code].strings;

    if (r->counted || strings >= 0)
        return GPT_WIRE_DONE;
    if (len - r->end < 8)
        return GPT_WIRE_MORE;
    uint64_t n = gpt_get_u64(data + r->end);
    if (n > GPT_WIRE_KEYS)
        return GPT_WIRE_BAD;
    r->end += 8;
    r->want = (size_t)n * (strings == PAIRS ? 2 : 1);
    r->counted = true;
    return GPT_WIRE_DONE;
}

static enum gpt_wire_status read_field(struct gpt_wire_request *r,
                                       const uint8_t *data, size_t len)
{
    assert(r->end <= len);
    if (len - r->end < 8)
        return GPT_WIRE_MORE;
    uint64_t n = gpt_get_u64(data + r->end);
    /* n is at most 8 MiB after this, so the sums below cannot overflow */
    if (n > (is_value(r, r->n) ? GPT_STORE_VALUE : GPT_STORE_KEY) ||
        r->end + 8 + n > GPT_WIRE_MESSAGE)
        return GPT_WIRE_BAD;
    if (len - r->end - 8 < n)
        return GPT_WIRE_MORE;
    if (gpt_grow(&r->fields, &r->cap, r->n + 1, sizeof(*r->fields), "a request",
                 NULL) != GPT_OK)
        return GPT_WIRE_BAD;
    /* places are kept, not pointers: the caller's buffer moves as it grows */
    r->fields[r->n++] = (struct gpt_wire_field){r->end + 8, (size_t)n};
    r->end += 8 + (size_t)n;
    return GPT_WIRE_DONE;
}

static enum gpt_wire_status read_number(struct gpt_wire_request *r,
                                        const uint8_t *data, size_t len)
{
    const size_t n = (size_t)forms[r->code].number;

    if (len - r->end < n)
        return GPT_WIRE_MORE;
    if (n > 0)
        r->number =
            n == 4 ? gpt_get_u32(data + r->end) : gpt_get_u64(data + r->end);
    r->end += n;
    return GPT_WIRE_DONE;
}

/* Each part advances r->end only when it is whole. A call that returns
 * GPT_WIRE_MORE therefore leaves the request at the beginning of the part that
 * is missing bytes. */
enum gpt_wire_status gpt_wire_read(struct gpt_wire_request *r,
                                   const uint8_t *data, size_t len)
{
    enum gpt_wire_status status;

    if (!r->started) {
        if (len == 0)
            return GPT_WIRE_MORE;
        if (data[0] >= GPT_WIRE_CODES)
            return GPT_WIRE_BAD;
        r->code = (enum gpt_wire_code)data[0];
        r->want =
            forms[r->code].strings > 0 ? (size_t)forms[r->code].strings : 0;
        r->end = 1;
        r->started = true;
    }
    status = read_count(r, data, len);
    while (status == GPT_WIRE_DONE && r->n < r->want)
        status = read_field(r, data, len);
    return status == GPT_WIRE_DONE ? read_number(r, data, len) : status;
}

/* The list of fields keeps its memory, which a client's next request needs
 * again. */
void gpt_wire_restart(struct gpt_wire_request *r)
{
    *r = (struct gpt_wire_request){.fields = r->fields, .cap = r->cap};
}

void gpt_wire_free(struct gpt_wire_request *r)
{
    gpt_free(r->fields);
    *r = (struct gpt_wire_request){0};
}

/* ---- building ---- */

int gpt_wire_put_code(struct gpt_buf *b, enum gpt_wire_code code)
{
    const uint8_t byte = (uint8_t)code;

    return gpt_buf_add(b, &byte, 1);
}

int gpt_wire_put_u64(struct gpt_buf *b, uint64_t v)
{
    uint8_t raw[8];

    gpt_put_u64(raw, v);
    return gpt_buf_add(b, raw, sizeof(raw));
}

int gpt_wire_put_u32(struct gpt_buf *b, uint32_t v)
{
    uint8_t raw[4];

    gpt_put_u32(raw, v);
    return gpt_buf_add(b, raw, sizeof(raw));
}

int gpt_wire_put_bytes(struct gpt_buf *b, const void *p, size_t n)
{
    GPT_TRY(gpt_wire_put_u64(b, n));
    return gpt_buf_add(b, p, n);
}
