/* Which backends there are, by the name given to --device. */
#include "backend.h"

#include <string.h>

int gpt_backend_open(struct gpt_backend **be, const char *device,
                     struct gpt_err *err)
{
    if (strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0)
        return gpt_backend_cpu(be, err);
    gpt_fail(err, GPT_EDEVICE, "device '%s': not known to this build", device);
    return gpt_hint(err, "use --device cpu (or auto)");
}
