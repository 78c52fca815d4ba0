/* From a launch to the text of the kernel, and to the run of its blocks. The
 * kernel's address, as the C++ compiler knows it, stands in the symbols of this
 * library beside the name of its source: nvcc has given the same source's
 * function almost the same name. Both compilers mangle names as the Itanium ABI
 * says; nvcc leaves out that a function is static, and some types of the
 * emulation have other names than CUDA's. key_of() keeps what is the same. */
#include "kernels/emu/ptx/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <tuple>

namespace emu {
namespace ptx {

/* ---- symbols of this library ---- */

/* Empty where the file cannot be read: then no symbol is found, and the
 * launch says so. */
static std::string read_file(const char *path)
{
    std::string s;
    FILE *f = fopen(path, "r");
    char part[65536];

    for (size_t n; f && (n = fread(part, 1, sizeof(part), f)) > 0;)
        s.append(part, n);
    if (f)
        fclose(f);
    return s;
}

struct symbols {
    struct name {
        std::string file, function;
    };
    std::map<uintptr_t, name> at;
};

/* Local symbols follow the name of their file, in the order in which the linker
 * took the files in; global ones come after all of these. */
static void read_table(struct symbols *all, const std::string &s,
                       const Elf64_Shdr *table, const Elf64_Shdr *sections,
                       uintptr_t base)
{
    const char *names = s.data() + sections[table->sh_link].sh_offset;
    const Elf64_Sym *first =
        (const Elf64_Sym *)(const void *)(s.data() + table->sh_offset);
    std::string file;

    for (size_t k = 0; k < table->sh_size / sizeof(*first); k++) {
        const Elf64_Sym &y = first[k];
        int type = y.st_info & 15;

        if (type == STT_FILE)
            file = names + y.st_name;
        else if (type == STT_FUNC && y.st_value)
            all->at[base + y.st_value] = {file, names + y.st_name};
    }
}

/* Static functions are in no table that the dynamic linker offers; they are
 * in the file, as long as it is not stripped. */
static struct symbols read_symbols(const void *here)
{
    struct symbols all;
    Dl_info info;

    if (!dladdr(here, &info))
        return all;
    static std::string s; /* the table points into it */
    s = read_file(info.dli_fname);
    if (s.size() < sizeof(Elf64_Ehdr))
        return all;
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)(const void *)s.data();
    const Elf64_Shdr *h =
        (const Elf64_Shdr *)(const void *)(s.data() + e->e_shoff);
    /* A program that is not moved has addresses of its own. */
    uintptr_t base = e->e_type == ET_EXEC ? 0 : (uintptr_t)info.dli_fbase;
    for (unsigned k = 0; k < e->e_shnum; k++)
        if (h[k].sh_type == SHT_SYMTAB)
            read_table(&all, s, &h[k], h, base);
    return all;
}

bool name_function(const void *at, std::string *file, std::string *name)
{
    static struct symbols all = read_symbols((const void *)name_function);
    auto y = all.at.find((uintptr_t)at);

    if (y == all.at.end())
        return false;
    *file = y->second.file;
    *name = y->second.function;
    return true;
}

/* ---- files ---- */

const char *directory()
{
    return getenv("GPT_CUDA_PTX");
}

/* Kernels of one name in two files, like key_grads, are distinguished by the
 * file. A test may name another directory later: faults are put into copies.
 */
struct function *find_function(void *kernel)
{
    static std::map<std::string, struct module *> modules;
    static std::map<std::pair<void *, std::string>, struct function *> known;
    std::string file, name, dir = directory();

    auto k = known.find({kernel, dir});
    if (k != known.end())
        return k->second;
    if (!name_function(kernel, &file, &name)) {
        fail("the library has no symbol of this kernel");
        return nullptr;
    }
    std::string path = dir + "/" + file.substr(0, file.rfind('.')) + ".ptx";
    struct module *&m = modules[path];
    if (!m && !(m = open_module(path)))
        return nullptr;
    struct function *f = build_function(m, key_of(name));
    if (f)
        known[{kernel, dir}] = f;
    return f;
}

/* Tables of constants that the compiler has put beside a kernel. */
bool module_data(const struct function *f, const void *p, size_t bytes)
{
    for (auto &g : f->in->globals) {
        size_t at = (size_t)((const char *)p - g.second.data.data());

        if (at < g.second.data.size() && bytes <= g.second.data.size() - at)
            return true;
    }
    return false;
}

/* ---- launches ---- */

/* Sizes of parameters are compared: both compilers have to lay structures out
 * alike, as they have to between host and device. */
bool launch(const char *name, void *kernel, dim3 grid, dim3 block,
            size_t shared, const struct argument *args, size_t n)
{
    static std::mutex one; /* parameters have one place */
    std::lock_guard<std::mutex> alone(one);

    begin_failures(name);
    struct function *f = find_function(kernel);

    if (!f)
        return false;
    bool same = n == f->param_bytes.size();
    for (size_t k = 0; same && k < n; k++) {
        same = args[k].bytes == f->param_bytes[k];
        if (same)
            memcpy(f->params.get() + f->param_at[k], args[k].at,
                   args[k].bytes);
    }
    if (!same) {
        fail("its parameters are not those of %s", f->name.c_str());
        return false;
    }
    return run(name, f, grid, block, shared);
}

} // namespace ptx
} // namespace emu
