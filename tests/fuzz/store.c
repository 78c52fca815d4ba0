/* Fuzz target: what a client sends to the store. The bytes come as one message
 * after the other, each in two parts, and the table answers; a message that
 * comes whole is read as the same. */
#include "parallel/store_wire.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads data[0..n) first, then all. */
static enum gpt_wire_status read_parts(struct gpt_wire_request *r,
                                       const uint8_t *data, size_t n,
                                       size_t size)
{
    const enum gpt_wire_status status = gpt_wire_read(r, data, n);

    return status == GPT_WIRE_MORE ? gpt_wire_read(r, data, size) : status;
}

/* One message: its length, 0 where it does not end or is none. */
static size_t take(struct gpt_store_table *t, struct gpt_wire_request *r,
                   const uint8_t *data, size_t size)
{
    struct gpt_wire_request whole = {0};
    struct gpt_buf reply = {0};
    const enum gpt_wire_status status = read_parts(r, data, size / 2, size);

    if (gpt_wire_read(&whole, data, size) != status || whole.n != r->n ||
        whole.end != r->end)
        abort();
    gpt_wire_free(&whole);
    if (status != GPT_WIRE_DONE)
        return 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->fields[i].at > size || r->fields[i].len > size - r->fields[i].at)
            abort();
    if (r->code != GPT_WIRE_VALIDATE && r->code != GPT_WIRE_WAIT &&
        r->code != GPT_WIRE_CANCEL_WAIT)
        (void)gpt_store_table_apply(t, r, data, &reply);
    gpt_buf_free(&reply);
    return r->end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_store_table *t = gpt_store_table_open();
    struct gpt_wire_request r = {0};

    if (!t)
        return 0;
    for (size_t n; size > 0 && (n = take(t, &r, data, size)) > 0;) {
        gpt_wire_restart(&r);
        data += n;
        size -= n;
    }
    gpt_wire_free(&r);
    gpt_store_table_close(t);
    return 0;
}
