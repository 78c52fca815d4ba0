/* The text of PTX (PTX ISA, "Syntax" and "State Spaces, Types, and Variables").
 * open_module() finds what a file has: kernels, arrays, names of sources;
 * build.cc turns a kernel into instructions when it is launched for the first
 * time. Of the language there is what nvcc writes: no functions that are called,
 * no sections of data but tables of constants. The text is that of nvcc or of a
 * test that has put a fault into it, not of a stranger: what is malformed ends
 * the launch, but a file that ends in the middle is not looked for. */
#include "kernels/emu/ptx/module.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

namespace emu {
namespace ptx {

/* ---- tokens ---- */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '$' ||
           c == '%';
}

/* The end of a word: two colons belong to it, one ends a label. */
static size_t word_end(const std::string &s, size_t i)
{
    while (i < s.size() &&
           (is_word(s[i]) || (s[i] == ':' && s[i + 1] == ':' && ++i)))
        i++;
    return i;
}

/* Comments count lines, too: messages have to name those of the file. */
static size_t skip_comment(const std::string &s, size_t i, uint32_t *line)
{
    size_t end = s[i + 1] == '/' ? s.find('\n', i) : s.find("*/", i) + 2;

    for (; i < end && i < s.size(); i++)
        *line += s[i] == '\n';
    return i;
}

/* Tokens point into the text, which the module keeps. Most of a file are
 * kernels that a test never launches: they stay tokens. */
static void split(struct module *m)
{
    const std::string &s = m->text;
    uint32_t line = 1;

    for (size_t i = 0; i < s.size();) {
        size_t begin = i;

        if (s[i] == '/' && (s[i + 1] == '/' || s[i + 1] == '*')) {
            i = skip_comment(s, i, &line);
            continue;
        }
        if (isspace((unsigned char)s[i])) {
            line += s[i++] == '\n';
            continue;
        }
        if (s[i] == '"')
            i = s.find('"', i + 1) + 1;
        else if (is_word(s[i]))
            i = word_end(s, i);
        else
            i++;
        m->tokens.push_back(
            {std::string_view(s).substr(begin, i - begin), line});
    }
    m->tokens.push_back({"", line});
}

/* ---- a file ---- */

/* The token after the braces that open at i. Bodies and sections are passed
 * over as a whole; a section's contents are not PTX. */
static size_t after_braces(const struct module *m, size_t i)
{
    int depth = 0;

    for (; !m->tokens[i].text.empty(); i++) {
        depth += m->tokens[i].text == "{";
        depth -= m->tokens[i].text == "}";
        if (!depth)
            return i + 1;
    }
    return i;
}

/* Directives like .loc and .file end with their line, not with a semicolon. */
size_t after_line(const struct module *m, size_t i)
{
    uint32_t line = m->tokens[i].line;

    while (!m->tokens[i].text.empty() && m->tokens[i].line == line)
        i++;
    return i;
}

/* The number in a type's name is its bits: .b8, .u64. */
unsigned type_bytes(std::string_view type)
{
    size_t digit = type.find_first_of("0123456789");
    unsigned bits =
        digit == type.npos ? 8 : (unsigned)atoi(type.data() + digit);

    /* f16x2 and bf16x2 are two of them. */
    return type.find("x2") != type.npos ? 4 : bits / 8;
}

/* `.align 4 .b8 name[96] = {1, 2}`, up to a semicolon, comma or parenthesis. */
size_t read_variable(const struct module *m, size_t i, struct variable *v)
{
    *v = {"", 1, 0, false, {}};
    unsigned each = 1;
    bool sized = false;
    for (;; i++) {
        std::string_view t = m->tokens[i].text;

        if (t == ".align")
            v->align = (unsigned)atoi(m->tokens[++i].text.data());
        else if (t == ".ptr" || t == ".global" || t == ".shared")
            continue; /* what a parameter points to */
        else if (t[0] == '.')
            each = type_bytes(t);
        else
            break;
    }
    v->align = std::max(v->align, each);
    v->bytes = each;
    v->name = m->tokens[i++].text;
    for (; m->tokens[i].text == "["; i += 2, sized = true)
        if (m->tokens[i + 1].text == "]") {
            v->open = true;
            i--;
        } else {
            v->bytes *= (unsigned)atoi(m->tokens[++i].text.data());
        }
    if (m->tokens[i].text == "=" && sized)
        for (i += 2; m->tokens[i - 1].text != "}"; i += 2) {
            uint64_t x = strtoull(m->tokens[i].text.data(), nullptr, 0);

            v->data.append((const char *)&x, each);
        }
    return i;
}

/* Shared arrays get their place when a kernel names them: all of a file's
 * together would be more than a block may have. Global ones are tables of
 * constants, which live as long as the module. */
static size_t read_global(struct module *m, size_t i)
{
    bool shared = m->tokens[i].text == ".shared";
    struct variable v;

    i = read_variable(m, i + 1, &v);
    if (shared) {
        m->shared[v.name] = v;
    } else {
        v.data.resize(v.bytes);
        m->globals[v.name] = v;
    }
    return i + 1;
}

/* Directives between the parameters and the body limit threads and registers;
 * ptxas checks them. */
static size_t read_entry(struct module *m, size_t i)
{
    std::string_view name = m->tokens[i + 1].text;
    struct entry e = {std::string(name), i + 2, 0};

    for (i += 2; m->tokens[i].text != "{";)
        i++;
    e.body = i;
    m->entries[key_of(name)] = e;
    return after_braces(m, i);
}

static std::string base_name(std::string_view path)
{
    path = path.substr(1, path.size() - 2); /* quotes */
    size_t slash = path.rfind('/');

    return std::string(slash == path.npos ? path : path.substr(slash + 1));
}

struct module *open_module(const std::string &path)
{
    FILE *f = fopen(path.c_str(), "r");
    char part[65536];

    if (!f) {
        fail("there is no %s", path.c_str());
        return nullptr;
    }
    struct module *m = new struct module;
    m->path = path;
    for (size_t n; (n = fread(part, 1, sizeof(part), f)) > 0;)
        m->text.append(part, n);
    fclose(f);
    m->text += '\n';
    split(m);
    for (size_t i = 0; !m->tokens[i].text.empty();) {
        std::string_view t = m->tokens[i].text;

        if (t == ".file") {
            m->sources[(uint32_t)atoi(m->tokens[i + 1].text.data())] =
                base_name(m->tokens[i + 2].text);
            i = after_line(m, i);
        } else if (t == ".shared" || t == ".global" || t == ".const") {
            i = read_global(m, i);
        } else if (t == ".entry") {
            i = read_entry(m, i);
        } else if (t == ".extern" || t == ".visible" || t == ".weak") {
            i++;
        } else if (t == "{") {
            i = after_braces(m, i); /* of .section */
        } else {
            i++;
        }
    }
    return m;
}

/* ---- names ---- */

/* _ZL and _ZN..INTERNAL.. are how compilers mark what is static; types of
 * parameters may be named differently. What is left tells kernels apart. */
std::string key_of(std::string_view s)
{
    size_t i = 2, end;

    if (s.substr(0, 2) != "_Z")
        return std::string(s);
    i += s[i] == 'L';
    end = i;
    while (end < s.size() && isdigit((unsigned char)s[end]))
        end++;
    end += (size_t)atoi(s.data() + i);
    if (end >= s.size() || s[end] != 'I')
        return std::string(s.substr(i, end - i));
    int depth = 0;
    do {
        if (s[end] == 'I') {
            depth++, end++;
        } else if (s[end] == 'E') {
            depth--, end++;
        } else if (s[end] == 'L') { /* a constant: Lb1E */
            end = s.find('E', end) + 1;
        } else if (isdigit((unsigned char)s[end])) {
            size_t length = (size_t)atoi(s.data() + end);

            while (isdigit((unsigned char)s[end]))
                end++;
            end += length;
        } else {
            end++;
        }
    } while (depth && end < s.size());
    return std::string(s.substr(i, end - i));
}

} // namespace ptx
} // namespace emu
