/* kernels/plugin.h: a plugin that was built with other headers than the program
 * is refused, as its operations have their members in other places. */
#include "plugin.h"

#include "tests/lib/tap.h"

#include <dlfcn.h>

int main(void)
{
    const char *build = getenv("BUILD");
    struct gpt_backend *be = NULL;
    gpt_plugin_open_fn *open;
    struct gpt_err err = {0};
    char path[4096];

    setenv("GPT_PLUGIN_DIR", build ? build : "build", 0);
    snprintf(path, sizeof(path), "%s/libgpt-cuda-emu.so",
             getenv("GPT_PLUGIN_DIR"));
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        skip("%s", dlerror());
        return tap_done();
    }
    void *symbol = dlsym(library, "gpt_plugin_open");
    memcpy(&open, &symbol, sizeof(open));
    is_int(open(&be, GPT_INTERFACE ^ 1, 0, true, &err), GPT_EDEVICE,
           "a program of another build");
    is_str(err.text, "cuda-emu: program and plugin are of different builds",
           "is told so");
    ok(be == NULL, "and gets no backend");
    is_int(gpt_backend_open(&be, "cuda-emu", &err), GPT_OK,
           "one of this build gets one");
    return tap_done();
}
