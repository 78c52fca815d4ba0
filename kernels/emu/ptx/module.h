/* The text of a file of PTX, in parts: what parse.cc finds and build.cc turns
 * into instructions. */
#ifndef GPT_EMU_PTX_MODULE_H
#define GPT_EMU_PTX_MODULE_H

#include "kernels/emu/ptx/ptx.h"

namespace emu {
namespace ptx {

struct token {
    std::string_view text; /* empty: the end */
    uint32_t line;
};

struct variable {
    std::string name;
    unsigned align, bytes;
    bool open; /* an array whose size the launch gives */
    std::string data;
};

struct entry {
    std::string name;
    size_t params, body; /* tokens: "(" and "{" */
};

struct module {
    std::string path, text;
    std::vector<token> tokens;
    std::map<std::string, variable, std::less<>> shared, globals;
    std::map<std::string, entry> entries; /* by key_of() */
    std::map<uint32_t, std::string> sources;
};

unsigned type_bytes(std::string_view type);
/* Both return the token after. */
size_t read_variable(const struct module *m, size_t i, struct variable *v);
size_t after_line(const struct module *m, size_t i);

} // namespace ptx
} // namespace emu

#endif
