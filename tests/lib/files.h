/* Files that tests write and read as bytes, past the functions under test. */
#ifndef GPT_TESTS_FILES_H
#define GPT_TESTS_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The path of a name in a directory, valid until four more were asked for. */
static inline const char *path_in(const char *dir, const char *name)
{
    static char paths[4][256];
    static int next;
    char *p = paths[next++ % 4];

    snprintf(p, sizeof(paths[0]), "%s/%s", dir, name);
    return p;
}

/* Ends the test where the file cannot be made. */
static inline void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

static inline void put_text(const char *path, const char *text)
{
    put_file(path, text, strlen(text));
}

/* Reads at most `cap` bytes; returns how many, 0 where there is no file. */
static inline size_t get_file(const char *path, void *bytes, size_t cap)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(bytes, 1, cap, f) : 0;

    if (f)
        fclose(f);
    return n;
}

#endif
