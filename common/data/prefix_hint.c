/* A prefix names no file itself, and is easily mistaken: for a file, for what
 * gpt-preprocess was given, for a set that is not complete yet, or by a letter.
 * Start at gpt_hint_at_prefix(). */
#include "data/prefix_hint.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/options.h"

#include <dirent.h>
#include <string.h>

enum { MOST_SETS = 200 }; /* of a directory, that a prefix is compared with */

/* A file name is often given as the prefix. */
static bool hint_at_file(const char *prefix, struct gpt_err *err)
{
    size_t n = strlen(prefix);
    bool is_file = n > 4 && gpt_path_exists(prefix) &&
                   (gpt_path_ends_in(prefix, ".bin") ||
                    gpt_path_ends_in(prefix, ".idx"));

    if (is_file)
        gpt_hint(err, "a data set is named without .bin and .idx: %.*s",
                 (int)(n - 4), prefix);
    return is_file;
}

/* A data set of text is often called by the prefix that it was made with,
 * to which the key of the text was added. */
static bool hint_at_key(const char *prefix, struct gpt_err *err)
{
    struct gpt_buf path = {0};
    bool found;

    found = gpt_buf_printf(&path, "%s_text_document.idx", prefix) == GPT_OK &&
            gpt_path_exists(path.data);
    if (found)
        gpt_hint(err, "there is a data set %s_text_document", prefix);
    gpt_buf_free(&path);
    return found;
}

/* What an interrupted run leaves: the journal beside its prefix, the parts
 * beside the set's. True when there was such a file. */
static bool hint_at_unfinished(const char *prefix, struct gpt_err *err)
{
    static const char *const left[] = {".resume", ".bin.part"};
    bool found = false;

    for (size_t i = 0; i < GPT_COUNT(left) && !found; i++) {
        struct gpt_buf path = {0};

        found = gpt_buf_printf(&path, "%s%s", prefix, left[i]) == GPT_OK &&
                gpt_path_exists(path.data);
        if (found)
            gpt_hint(err, "'%s' is of a gpt-preprocess that has not finished: "
                          "the same command resumes it", path.data);
        gpt_buf_free(&path);
    }
    return found;
}

/* The names of data sets in the open directory, without .idx; how many. */
static size_t list_sets(DIR *dir, struct gpt_arena *arena,
                        const char *names[MOST_SETS])
{
    struct dirent *e;
    size_t n = 0;

    while (n < MOST_SETS && (e = readdir(dir))) {
        size_t len = strlen(e->d_name);

        if (len <= 4 || !gpt_path_ends_in(e->d_name, ".idx"))
            continue;
        names[n] = gpt_arena_printf(arena, "%.*s", (int)(len - 4), e->d_name);
        n += names[n] != NULL;
    }
    return n;
}

/* A set in the same directory whose name differs by a letter or two. */
static void hint_at_near(const char *prefix, struct gpt_err *err)
{
    const char *name = gpt_path_name(prefix);
    const int before = (int)(name - prefix);
    const char *names[MOST_SETS], *near = NULL;
    struct gpt_arena arena = {0};
    char *path = gpt_arena_printf(&arena, "%.*s.", before, prefix);
    DIR *dir = path ? opendir(path) : NULL;

    if (dir) {
        near = gpt_did_you_mean(name, names, list_sets(dir, &arena, names));
        closedir(dir);
    }
    /* the set itself is there when it cannot be opened */
    if (near && strcmp(near, name) != 0)
        gpt_hint(err, "did you mean %.*s%s?", before, prefix, near);
    gpt_arena_free(&arena);
}

void gpt_hint_at_prefix(const char *prefix, struct gpt_err *err)
{
    if (!hint_at_file(prefix, err) && !hint_at_unfinished(prefix, err) &&
        !hint_at_key(prefix, err))
        hint_at_near(prefix, err);
}
