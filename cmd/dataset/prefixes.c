/* Lists data sets; see prefixes.h. */
#include "cmd/dataset/prefixes.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

struct names {
    struct gpt_arena *arena;
    const char **items;
    size_t n, cap;
};

static int add_name(struct names *names, const char *dir, const char *name,
                    struct gpt_err *err)
{
    size_t n = strlen(name);

    if (n <= 4 || strcmp(name + n - 4, ".idx") != 0 || name[0] == '.')
        return GPT_OK;
    GPT_TRY(gpt_grow(&names->items, &names->cap, names->n + 1,
                     sizeof(*names->items), "names", err));
    char *path = gpt_arena_printf(names->arena, "%s/%.*s", dir, (int)(n - 4),
                                  name);
    if (!path)
        return gpt_fail(err, GPT_EFAIL, "out of memory for names");
    names->items[names->n++] = path;
    return GPT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The list moves into the arena, too: one owner. */
static int keep(struct names *names, const char *const **prefixes, int64_t *n,
                struct gpt_err *err)
{
    const char **list = gpt_arena_alloc(names->arena, names->n, sizeof(*list));

    if (!list)
        return gpt_fail(err, GPT_EFAIL, "out of memory for names");
    if (names->n > 0)
        memcpy(list, names->items, names->n * sizeof(*list));
    qsort(list, names->n, sizeof(*list), by_name);
    *prefixes = list;
    *n = (int64_t)names->n;
    return GPT_OK;
}

int gpt_prefixes_in(const char *dir, struct gpt_arena *arena,
                    const char *const **prefixes, int64_t *n,
                    struct gpt_err *err)
{
    struct names names = {.arena = arena};
    struct dirent *entry;
    int status = GPT_OK;
    DIR *d = opendir(dir);

    if (!d)
        return gpt_fail_errno(err, GPT_EIO, "cannot read directory '%s'", dir);
    while (status == GPT_OK && (entry = readdir(d)) != NULL)
        status = add_name(&names, dir, entry->d_name, err);
    closedir(d);
    if (status == GPT_OK && names.n == 0)
        status = gpt_fail(err, GPT_EDATA, "'%s' holds no data set", dir);
    if (status == GPT_OK)
        status = keep(&names, prefixes, n, err);
    gpt_free(names.items);
    return status;
}
