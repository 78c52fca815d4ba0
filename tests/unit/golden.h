/* Reads tests/golden files: each line has a name, a count and as many numbers.
 * Tests run in the top folder of the tree. */
#ifndef GPT_TESTS_GOLDEN_H
#define GPT_TESTS_GOLDEN_H

#include "tests/lib/tap.h"

enum { GOLDEN_MAX = 1024 };

static FILE *golden_open(const char *path)
{
    FILE *f = fopen(path, "r");

    if (!f) {
        perror(path);
        exit(1);
    }
    return f;
}

/* The next line must be `name`, then n numbers; doubles hold all of them. */
static int golden_array(FILE *f, const char *name, double *values)
{
    char word[64];
    int n = -1;

    if (fscanf(f, " %63s %d", word, &n) != 2 || strcmp(word, name) != 0 ||
        n < 0 || n > GOLDEN_MAX) {
        printf("# golden file: %s expected\n", name);
        exit(1);
    }
    for (int i = 0; i < n; i++) {
        if (fscanf(f, " %63s", word) != 1)
            exit(1);
        values[i] = strtod(word, NULL);
    }
    return n;
}

/* Moves to the next line that starts with `kind` and parses the rest. */
__attribute__((unused)) static bool
golden_next(FILE *f, const char *kind, char *rest, int cap)
{
    char line[GOLDEN_MAX * 32];
    size_t n = strlen(kind);

    while (fgets(line, sizeof(line), f))
        if (strncmp(line, kind, n) == 0 && line[n] == ' ') {
            snprintf(rest, (size_t)cap, "%.*s", cap - 1, line + n);
            return true;
        }
    return false;
}

/* GOLDEN_IS(array, n, values): equal elements, of any integer type. */
#define GOLDEN_IS(f, name, array, n, ...)                                      \
    do {                                                                       \
        double want_[GOLDEN_MAX];                                              \
        int n_ = golden_array((f), (name), want_);                             \
        bool same_ = n_ == (n);                                                \
        for (int i_ = 0; same_ && i_ < n_; i_++)                               \
            same_ = (double)(array)[i_] == want_[i_];                          \
        ok(same_, __VA_ARGS__);                                                \
    } while (0)

#endif
