/* Files of the source tree as bytes of a program, which then needs no installed
 * file to show a page. The assembler takes them in, of which the compiler does
 * not know: the Makefile names them as prerequisites of the object. */
#ifndef GPT_BASE_ASSET_H
#define GPT_BASE_ASSET_H

#include <stddef.h>

struct gpt_asset {
    const char *data; /* not terminated */
    size_t len;
};

/* Defines gpt_asset_NAME(), which returns the file at `path`, from the top of
 * the tree, where make runs. The labels are global, so that a linker that drops
 * what C does not name keeps them together. */
#define GPT_ASSET(name, path)                                                  \
    __asm__(".section .rodata\n"                                               \
            ".global gpt_" #name "_begin\n"                                    \
            ".global gpt_" #name "_end\n"                                      \
            "gpt_" #name "_begin: .incbin \"" path "\"\n"                      \
            "gpt_" #name "_end: .byte 0\n"                                     \
            ".previous\n");                                                    \
    extern const char gpt_##name##_begin[], gpt_##name##_end[];                \
    static struct gpt_asset gpt_asset_##name(void)                             \
    {                                                                          \
        return (struct gpt_asset){                                             \
            gpt_##name##_begin,                                                \
            (size_t)(gpt_##name##_end - gpt_##name##_begin)};                  \
    }

#endif
