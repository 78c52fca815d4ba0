/* Files of the source tree as bytes of a program, which then needs no installed
 * file to show a page. The assembler includes them and the compiler does not
 * see them: the Makefile names them as prerequisites of the object. */
#ifndef GPT_BASE_ASSET_H
#define GPT_BASE_ASSET_H

#include <stddef.h>
#include <stdint.h>

struct gpt_asset {
    const char *data; /* not terminated */
    size_t len;
};

/* Defines gpt_asset_NAME(), which returns the file at `path`, from the top of
 * the tree, where make runs. The assembler counts the bytes: in C a difference
 * of two symbols is not defined. The labels are global, so that a linker that
 * drops what C does not name keeps them together. */
#define GPT_ASSET(name, path)                                                  \
    __asm__(".section .rodata\n"                                               \
            ".global gpt_" #name "_begin\n"                                    \
            ".global gpt_" #name "_bytes\n"                                    \
            "gpt_" #name "_begin: .incbin \"" path "\"\n"                      \
            "1: .balign 8\n"                                                   \
            "gpt_" #name "_bytes: .quad 1b - gpt_" #name "_begin\n"            \
            ".previous\n");                                                    \
    extern const char gpt_##name##_begin[];                                    \
    extern const uint64_t gpt_##name##_bytes;                                  \
    static struct gpt_asset gpt_asset_##name(void)                             \
    {                                                                          \
        return (struct gpt_asset){gpt_##name##_begin,                          \
                                  (size_t)gpt_##name##_bytes};                 \
    }

#endif
