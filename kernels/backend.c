/* Which backends there are, by the name of a device. Those of GPUs are plugins,
 * opened when they are asked for: a program needs no library of theirs to
 * start. */
#include "plugin.h"

#include "base/dtype.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

float gpt_alibi_slope(int64_t head, int64_t heads)
{
    /* The paper defines slopes for powers of two: 2^(-8/m), its square and so
     * on. Other numbers of heads take every second slope of twice as many, as
     * the authors' code and Hugging Face do. */
    int64_t m = 1;

    while (2 * m <= heads)
        m *= 2;
    return head < m ? exp2f(-8 * (float)(head + 1) / (float)m)
                    : exp2f(-4 * (float)(2 * (head - m) + 1) / (float)m);
}

static float round_bf16(float x)
{
    return gpt_bf16_to_f32(gpt_f32_to_bf16(x));
}

float gpt_alibi_bf16(float slope, int64_t position)
{
    return round_bf16(round_bf16(slope) * round_bf16((float)position));
}

struct plugin {
    void *library;
    gpt_plugin_open_fn *open;
    gpt_plugin_built_fn *built;
};

/* Opens the library `file` from $GPT_PLUGIN_DIR, from the program's folder, or
 * from where `make install` puts it. NULL where none can be loaded. */
static void *find_library(const char *file)
{
    static const char *const places[] = {"", "../lib/gpt/"};
    const char *dir = getenv("GPT_PLUGIN_DIR");
    char folder[GPT_PATH_BYTES], path[GPT_PATH_BYTES + 64];

    /* A folder that GPT_PLUGIN_DIR names is the only one that is searched: an
     * empty folder lets a test behave as on a machine without GPUs. */
    if (dir && *dir) {
        snprintf(path, sizeof(path), "%s/%s", dir, file);
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    gpt_path_program(folder);
    for (size_t i = 0; i < GPT_COUNT(places); i++) {
        snprintf(path, sizeof(path), "%s%s%s", folder, places[i], file);
        /* The first file that exists is opened, even when it cannot be loaded:
         * dlerror() then says why, which is what the user needs to know. */
        if (access(path, R_OK) == 0)
            return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return NULL;
}

/* Finds a function of a library; ISO C has no cast from what dlsym()
 * returns. */
static bool look_up(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);

    memcpy(function, &address, sizeof(address));
    return address != NULL;
}

/* name: "cuda" or "cuda-emu". The library stays loaded until the process ends:
 * backends keep pointers to its functions. */
static int open_plugin(struct plugin *p, const char *name, struct gpt_err *err)
{
    char file[64];

    snprintf(file, sizeof(file), "libgpt-%s.so", name);
    /* dlerror() keeps its message until it is called. This call discards a
     * message of earlier failures, which would be reported as this one's. */
    dlerror();
    p->library = find_library(file);
    if (!p->library) {
        const char *why = dlerror();

        gpt_fail(err, GPT_EDEVICE, "%s: %s", name,
                 why ? why : "this build has no plugin for it");
        return gpt_hint(err, "build it with 'make CUDA=1', or set "
                        "GPT_PLUGIN_DIR to the folder of %s", file);
    }
    if (!look_up(p->library, "gpt_plugin_open", &p->open) ||
        !look_up(p->library, "gpt_plugin_built", &p->built))
        return gpt_fail(err, GPT_EDEVICE, "%s: %s is no plugin", name, file);
    return GPT_OK;
}

/* A number that a user gives must exist (wrap is false). The number of a rank
 * may be beyond the last device, as ranks may share one. */
static int open_device(struct gpt_backend **be, const char *name, int device,
                       bool wrap, struct gpt_err *err)
{
    struct plugin p;

    GPT_TRY(open_plugin(&p, name, err));
    return p.open(be, GPT_INTERFACE, device, wrap, err);
}

static int open_any(struct gpt_backend **be, int rank, struct gpt_err *err)
{
    struct gpt_err why;

    if (open_device(be, "cuda", rank, true, &why) == GPT_OK)
        return GPT_OK;
    /* The reason is logged: without it, a GPU that is not found looks like a
     * slow program. */
    gpt_info("running on the CPU (%s)", why.text);
    return gpt_backend_cpu(be, err);
}

const char *const gpt_device_words[] = {"auto", "cpu", "cuda", "cuda-emu",
                                        NULL};

int gpt_backend_open(struct gpt_backend **be, const char *device,
                     struct gpt_err *err)
{
    return gpt_backend_open_rank(be, device, 0, err);
}

int gpt_backend_open_rank(struct gpt_backend **be, const char *device,
                          int64_t local_rank, struct gpt_err *err)
{
    int64_t number;

    if (strcmp(device, "auto") == 0)
        return open_any(be, (int)local_rank, err);
    if (strcmp(device, "cpu") == 0)
        return gpt_backend_cpu(be, err);
    if (strcmp(device, "cuda") == 0 || strcmp(device, "cuda-emu") == 0)
        return open_device(be, device, (int)local_rank, true, err);
    if (strncmp(device, "cuda:", 5) == 0 &&
        gpt_parse_int(device + 5, &number) && number >= 0 && number < 1024)
        return open_device(be, "cuda", (int)number, false, err);
    gpt_fail(err, GPT_EDEVICE, "device '%s': not known", device);
    return gpt_hint(err, "devices are auto, cpu, cuda and cuda:N");
}

int gpt_backend_version(struct gpt_buf *b)
{
    struct gpt_backend *be;
    struct plugin p;
    struct gpt_err err;
    char text[sizeof(err.text)];

    if (open_plugin(&p, "cuda", &err) != GPT_OK)
        return gpt_buf_printf(b, "GPU: not built (%s)\n", err.text);
    if (p.open(&be, GPT_INTERFACE, 0, false, &err) == GPT_OK)
        be->describe(be, text, sizeof(text));
    else
        snprintf(text, sizeof(text), "%s", err.text);
    return gpt_buf_printf(b, "GPU: built for %s; %s\n", p.built(), text);
}
