/* See variables.h. */
#include "kernels/emu/variables.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

namespace emu {

static const char *value_of(const char *name)
{
    const char *value = getenv(name);

    return value ? value : "";
}

void refuse(const char *name)
{
    fprintf(stderr, "cuda-emu: cannot read %s='%s'\n", name, value_of(name));
    _exit(2);
}

static bool is_known(const char *text, size_t len, words known)
{
    for (const char *w : known)
        if (strlen(w) == len && memcmp(w, text, len) == 0)
            return true;
    return false;
}

const char *word(const char *name, words known)
{
    const char *value = value_of(name);

    if (*value && !is_known(value, strlen(value), known))
        refuse(name);
    return value;
}

/* Digits up to `end`, one at least. */
static uint64_t read_number(const char *name, const char *text, char end)
{
    char *rest;
    uint64_t n = strtoull(text, &rest, 10);

    if (*text < '0' || *text > '9' || (*rest && *rest != end))
        refuse(name);
    return n;
}

uint64_t number(const char *name, uint64_t otherwise)
{
    const char *value = value_of(name);

    return *value ? read_number(name, value, '\0') : otherwise;
}

uint64_t number_of(const char *name, const char *asked, words known)
{
    const char *p = value_of(name);
    uint64_t found = 0;

    while (*p) {
        const size_t all = strcspn(p, ","), len = strcspn(p, ",=");

        if (!is_known(p, len, known))
            refuse(name);
        uint64_t n = len < all ? read_number(name, p + len + 1, ',') : 1;
        if (is_known(p, len, {asked}))
            found = n;
        p += all;
        p += strspn(p, ", ");
    }
    return found;
}

} // namespace emu
