/* How the backends record the first failure of a queue. Inside kernels/. */
#ifndef GPT_KERNELS_QUEUE_FAIL_H
#define GPT_KERNELS_QUEUE_FAIL_H

#include "base/status.h"

#include <stdio.h>

/* Sets *err, the queue's, to "DEVICE: OP: text", or "DEVICE: text" with op
 * NULL, unless it holds a failure: later ones follow from the first. */
GPT_PRINTF(4, 0)
static inline void queue_vfail(struct gpt_err *err, const char *device,
                               const char *op, const char *fmt, va_list args)
{
    char text[sizeof(err->text)];

    if (err->status != GPT_OK)
        return;
    vsnprintf(text, sizeof(text), fmt, args);
    gpt_fail(err, GPT_EDEVICE, "%s: %s%s%s", device, op ? op : "",
             op ? ": " : "", text);
}

#endif
