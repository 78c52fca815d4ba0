/* What a plugin of a device exports: libgpt-cuda.so and libgpt-cuda-emu.so.
 * backend.c opens them at run time, so that no program needs their libraries.
 * GPT_INTERFACE is a number that the Makefile makes of the text of all headers
 * that program and plugin share. */
#ifndef GPT_KERNELS_PLUGIN_H
#define GPT_KERNELS_PLUGIN_H

#include "backend.h"

/* "gpt_plugin_open": the backend of device number `device`, or (wrap) of that
 * number modulo how many there are. It is one for the whole process and valid
 * until its end. GPT_EDEVICE when it cannot be had, or when `interface`, the
 * caller's GPT_INTERFACE, is not the plugin's. */
typedef int gpt_plugin_open_fn(struct gpt_backend **be, uint32_t interface,
                               int device, bool wrap, struct gpt_err *err);

/* "gpt_plugin_built": what it was built for, in a few words. */
typedef const char *gpt_plugin_built_fn(void);

#endif
