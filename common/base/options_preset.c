/* Presets: files of options that come with the programs, known by their names.
 * Read preset_dir() for where they are, then gpt_opt_find_preset(). */
#include "base/options_internal.h"

#include "base/io.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where presets are, in order: the environment, the place of installation,
 * beside the program as installed, and as built: in the sources, or by the link
 * that make leaves where the build folder is elsewhere. */
static bool preset_dir(int i, char *buf)
{
    char dir[GPT_PATH_BYTES];
    const char *data = getenv("GPT_DATADIR");

    if (i == 0 && data && *data)
        return snprintf(buf, GPT_PATH_BYTES, "%s/presets", data) <
               GPT_PATH_BYTES;
    if (i == 1)
        return snprintf(buf, GPT_PATH_BYTES, "%s", GPT_DATADIR "/presets") > 0;
    /* The program itself shows where presets are when it is run from a build
     * folder, or from a place of installation that was moved. */
    if (i < 2 || !gpt_path_program(dir))
        return false;
    static const char *const beside[] = {"../share/gpt/presets",
                                         "../share/presets", "presets"};
    return snprintf(buf, GPT_PATH_BYTES, "%s%s", dir, beside[i - 2]) <
           GPT_PATH_BYTES;
}

enum { PRESET_DIRS = 5 };

/* A name without '/' that is no file may be that of a preset. A file of that
 * name wins, so that a preset which is added later changes no command that
 * works today. */
void gpt_opt_find_preset(const char *name, char *path)
{
    char dir[GPT_PATH_BYTES];

    snprintf(path, GPT_PATH_BYTES, "%s", name);
    if (strchr(name, '/') || gpt_path_exists(name))
        return;
    for (int i = 0; i < PRESET_DIRS; i++) {
        char candidate[GPT_PATH_BYTES];

        if (preset_dir(i, dir) &&
            snprintf(candidate, sizeof(candidate), "%s/%s.conf", dir, name) <
                GPT_PATH_BYTES &&
            gpt_path_exists(candidate)) {
            snprintf(path, GPT_PATH_BYTES, "%s", candidate);
            return;
        }
    }
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* ".conf" alone is no preset without a name. */
static int is_preset(const struct dirent *e)
{
    size_t n = strlen(e->d_name);

    return n > 5 && strcmp(e->d_name + n - 5, ".conf") == 0;
}

/* Only the first directory that has presets is listed: it is the one that would
 * have been used. *entries is freed by free_presets(). */
static int scan_presets(char *dir, struct dirent ***entries)
{
    int n = 0;

    for (int i = 0; i < PRESET_DIRS && n <= 0; i++)
        n = preset_dir(i, dir) ? scandir(dir, entries, is_preset, by_name) : 0;
    return n > 0 ? n : 0;
}

/* The entries and their list are blocks of malloc(), as scandir() promises: not
 * gpt_free()'s. */
static void free_presets(struct dirent **entries, int n)
{
    for (int i = 0; i < n; i++)
        free(entries[i]);
    if (n > 0)
        free(entries);
}

/* The name less ".conf", which is_preset() has seen. */
static int preset_name_length(const struct dirent *e)
{
    return (int)strlen(e->d_name) - 5;
}

/* True when every name of the file is one of this program's options. Values are
 * not looked at: a preset with a wrong one is worth its message. */
static bool can_read_preset(const struct gpt_program *program, const char *path)
{
    struct gpt_err err;
    char *text, *rest;
    size_t len;
    bool can = true;

    if (gpt_read_file(path, GPT_CONFIG_LIMIT, &text, &len, &err) != GPT_OK)
        return false;
    rest = text;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        line += strspn(line, " \t");
        size_t n = strcspn(line, "= \t\r");

        if (n > 0 && *line != '#' && !gpt_opt_find(program, line, n, NULL))
            can = false;
    }
    gpt_free(text);
    return can;
}

/* "presets: gpt2-124m tiny" as the hint, of those with options of the program;
 * or what shows where presets are. */
void gpt_opt_hint_presets(const struct gpt_program *program,
                          struct gpt_err *err)
{
    char dir[GPT_PATH_BYTES], path[2 * GPT_PATH_BYTES];
    char text[sizeof(err->hint)] = "presets:";
    struct dirent **entries;
    int n = scan_presets(dir, &entries);
    const size_t start = strlen(text);
    size_t at = start;

    for (int i = 0; i < n; i++) {
        int len = preset_name_length(entries[i]);

        snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
        if (at + (size_t)len + 2 < sizeof(text) &&
            can_read_preset(program, path))
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %.*s", len,
                                   entries[i]->d_name);
    }
    free_presets(entries, n);
    if (at > start)
        gpt_hint(err, "%s", text);
    else if (n == 0)
        gpt_hint(err, "no presets were found either: GPT_DATADIR names the "
                      "directory that holds presets/");
}

/* Presets are files of options: those with options of another program are of no
 * use to this one. */
int gpt_opt_list_presets(const struct gpt_program *program, struct gpt_buf *b)
{
    char dir[GPT_PATH_BYTES], path[2 * GPT_PATH_BYTES];
    struct dirent **entries;
    int status = GPT_OK, n = scan_presets(dir, &entries);

    for (int i = 0; i < n && status == GPT_OK; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
        if (can_read_preset(program, path))
            status = gpt_buf_printf(b, "%.*s\n", preset_name_length(entries[i]),
                                    entries[i]->d_name);
    }
    free_presets(entries, n);
    return status;
}
