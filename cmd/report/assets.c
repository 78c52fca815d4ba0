/* Files as bytes of the program, taken in by the assembler; see assets.h. The
 * paths are from the top of the tree, where make runs. Makefile makes this
 * object anew when one of the files changes, which the compiler cannot see. */
#include "cmd/report/assets.h"

/* The labels are global, so that a linker that drops what C does not name keeps
 * them together. */
#define ASSET(name, file)                                                      \
    __asm__(".section .rodata\n"                                               \
            ".global gpt_" name "_begin\n"                                     \
            ".global gpt_" name "_end\n"                                       \
            "gpt_" name "_begin: .incbin \"share/report/" file "\"\n"          \
            "gpt_" name "_end: .byte 0\n"                                      \
            ".previous\n")

ASSET("page_html", "page.html");
ASSET("page_css", "page.css");
ASSET("page_js", "page.js");

extern const char gpt_page_html_begin[], gpt_page_html_end[];
extern const char gpt_page_css_begin[], gpt_page_css_end[];
extern const char gpt_page_js_begin[], gpt_page_js_end[];

/* The difference of two symbols is known to the linker alone: no constant. */
struct gpt_asset gpt_asset_of(enum gpt_asset_name name)
{
    const struct {
        const char *begin, *end;
    } files[] = {
        [GPT_ASSET_HTML] = {gpt_page_html_begin, gpt_page_html_end},
        [GPT_ASSET_CSS] = {gpt_page_css_begin, gpt_page_css_end},
        [GPT_ASSET_JS] = {gpt_page_js_begin, gpt_page_js_end},
    };

    return (struct gpt_asset){
        files[name].begin, (size_t)(files[name].end - files[name].begin)};
}
