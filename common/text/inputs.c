/* Expansion of names and division into shards: see inputs.h. Start at
 * gpt_inputs_expand() and gpt_inputs_shard(). The order of paths decides the
 * order of documents, so it must be the same on every machine: by bytes, not by
 * the locale's rules or the order of the directory. */
#include "text/inputs.h"

#include "base/io.h"
#include "base/log.h"
#include "base/num.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 64 }; /* of directories: links may make circles */

struct paths {
    struct gpt_arena *arena;
    const char **items;
    size_t n, cap;
};

/* Adds a copy of a path, as directories and globs lose theirs. */
static int add_path(struct paths *p, const char *path, struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&p->items, &p->cap, p->n + 1, sizeof(*p->items),
                     "input names", err));
    GPT_TRY(gpt_in_protect(path, err));
    const char *copy = gpt_arena_strdup(p->arena, path);
    if (!copy)
        return gpt_no_memory(err, "input names");
    p->items[p->n++] = copy;
    return GPT_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts what one word has added; the words keep their own order. */
static void sort_from(struct paths *p, size_t first)
{
    if (p->n > first)
        qsort(p->items + first, p->n - first, sizeof(*p->items), by_bytes);
}

/* ---- directories ---- */

/* Takes one of n suffixes off the length of a name; false when it has none. */
static bool strip_suffix(const char *name, size_t *len,
                         const char *const *suffixes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t m = strlen(suffixes[i]);

        if (*len > m && memcmp(name + *len - m, suffixes[i], m) == 0) {
            *len -= m;
            return true;
        }
    }
    return false;
}

/* One suffix of a compression, and before it one of JSON Lines. */
bool gpt_inputs_named_jsonl(const char *path)
{
    static const char *const packed[] = {".xz", ".gz", ".zst"};
    static const char *const plain[] = {".jsonl", ".json", ".ndjson"};
    size_t len = strlen(path);

    strip_suffix(path, &len, packed, GPT_COUNT(packed));
    return strip_suffix(path, &len, plain, GPT_COUNT(plain));
}

static int add_directory(struct paths *p, const char *dir, int depth,
                         struct gpt_err *err);

/* A link that leads nowhere is an error where its name is that of an input.
 * Otherwise it is skipped, with a warning, since it may have led to a directory
 * of inputs. What is no link has gone since the directory was read. */
static int without_target(const char *path, const char *name,
                          struct gpt_err *err)
{
    struct stat st;

    if (errno != ENOENT || gpt_inputs_named_jsonl(name))
        return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
    if (lstat(path, &st) == 0)
        gpt_warn("'%s' is a link that leads nowhere: it is skipped", path);
    return GPT_OK;
}

/* Files with other names are left out, and so are hidden ones: what editors and
 * downloads leave beside a corpus. */
static int add_entry(struct paths *p, const char *dir, const char *name,
                     int depth, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];
    struct stat st;

    if (name[0] == '.')
        return GPT_OK;
    GPT_TRY(gpt_path_join(path, sizeof(path), dir, name, err));
    if (stat(path, &st) != 0)
        return without_target(path, name, err);
    if (S_ISDIR(st.st_mode))
        return add_directory(p, path, depth + 1, err);
    return gpt_inputs_named_jsonl(name) ? add_path(p, path, err) : GPT_OK;
}

static int add_directory(struct paths *p, const char *dir, int depth,
                         struct gpt_err *err)
{
    if (depth > MAX_DEPTH)
        return gpt_fail(err, GPT_EDATA, "'%s': more than %d directories in "
                        "each other", dir, MAX_DEPTH);
    DIR *d = opendir(dir);
    if (!d)
        return gpt_fail_errno(err, GPT_EIO, "cannot read directory '%s'", dir);
    int status = GPT_OK;
    for (struct dirent *e; status == GPT_OK && (e = readdir(d)) != NULL;)
        status = add_entry(p, dir, e->d_name, depth, err);
    closedir(d);
    return status;
}

/* Adds all files below a directory, sorted as whole paths. None is an error, as
 * an empty corpus is hardly what was meant. */
static int add_tree(struct paths *p, const char *dir, struct gpt_err *err)
{
    size_t first = p->n, len = strlen(dir);
    char name[GPT_PATH_BYTES];

    /* "corpus/" and "corpus" give the same paths, and the same order */
    while (len > 1 && dir[len - 1] == '/')
        len--;
    if (len >= sizeof(name))
        return gpt_fail(err, GPT_EIO, "'%.100s...': the name is too long", dir);
    memcpy(name, dir, len);
    name[len] = '\0';
    GPT_TRY(add_directory(p, name, 1, err));
    sort_from(p, first);
    if (p->n > first)
        return GPT_OK;
    gpt_fail(err, GPT_EDATA, "directory '%s' holds no file named *.jsonl, "
             "*.json or *.ndjson, plain or with .gz, .xz or .zst", dir);
    return gpt_hint(err, "name other files by a pattern, as '%s/*.txt'", dir);
}

/* ---- words ---- */

static int add_one(struct paths *p, const char *path, struct gpt_err *err)
{
    return gpt_path_is_dir(path) ? add_tree(p, path, err)
                                 : add_path(p, path, err);
}

/* Expands a pattern that the shell has left as it is. GLOB_NOSORT, because
 * glob() would sort by the locale. */
static int add_pattern(struct paths *p, const char *pattern,
                       struct gpt_err *err)
{
    glob_t found;
    int result = glob(pattern, GLOB_ERR | GLOB_NOSORT, NULL, &found);

    if (result == GLOB_NOMATCH)
        return gpt_fail(err, GPT_EIO, "no file matches '%s'", pattern);
    if (result != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot look for '%s'", pattern);
    qsort(found.gl_pathv, found.gl_pathc, sizeof(*found.gl_pathv), by_bytes);
    int status = GPT_OK;
    for (size_t i = 0; i < found.gl_pathc; i++)
        GPT_TRY_GOTO(status, add_one(p, found.gl_pathv[i], err), out);
out:
    globfree(&found);
    return status;
}

/* Corpora are often given as a link to them. */
static int cannot_open(const char *word, struct gpt_err *err)
{
    int status = gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", word);

    if (strstr(word, "://"))
        gpt_hint(err, "nothing is fetched from the network: download it first, "
                      "or give it as standard input");
    return status;
}

/* A word is a pattern only when no file has that very name, which may hold '['.
 */
static int add_word(struct paths *p, const char *word, struct gpt_err *err)
{
    struct stat st;

    if (strcmp(word, "-") != 0 && stat(word, &st) != 0) {
        if (strpbrk(word, "*?["))
            return add_pattern(p, word, err);
        return cannot_open(word, err);
    }
    return add_one(p, word, err);
}

/* ---- files that are there twice ---- */

struct file {
    dev_t device;
    ino_t inode;
    size_t at; /* of the list */
};

/* Names of one file become neighbours, in the order in which they are read. */
static int by_file(const void *a, const void *b)
{
    const struct file *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode)
        return x->inode < y->inode ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* Fills the regular files of the list: a pipe can be read once only. */
static size_t look_at_files(struct file *files, const struct paths *p)
{
    size_t n = 0;
    struct stat st;

    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->items[i], "-") != 0 && stat(p->items[i], &st) == 0 &&
            S_ISREG(st.st_mode))
            files[n++] = (struct file){st.st_dev, st.st_ino, i};
    return n;
}

/* Patterns that overlap, or a link beside its file, double documents, and
 * nothing later would notice. Some users mean it, to give a file more weight: a
 * warning, and one for all of them, as there may be thousands. */
static int warn_of_twins(const struct paths *p, struct gpt_err *err)
{
    const struct file *first = NULL, *twin = NULL;
    struct file *files;
    size_t n_twins = 0;

    GPT_TRY(gpt_new(&files, p->n, sizeof(*files), "input names", err));
    const size_t n = look_at_files(files, p);
    if (n > 1)
        qsort(files, n, sizeof(*files), by_file);
    /* The one that is read first is named: the order of inodes would give
     * another message on each machine. */
    for (size_t i = 1; i < n; i++) {
        if (files[i].device != files[i - 1].device ||
            files[i].inode != files[i - 1].inode)
            continue;
        n_twins++;
        if (!twin || files[i].at < twin->at) {
            twin = &files[i];
            first = &files[i - 1];
        }
    }
    if (n_twins == 1)
        gpt_warn("input '%s' is the same file as '%s': its documents are read "
                 "twice", p->items[twin->at], p->items[first->at]);
    else if (n_twins > 1)
        gpt_warn("%zu inputs are files that other inputs name, too, the first "
                 "'%s', the same file as '%s': their documents are read again",
                 n_twins, p->items[twin->at], p->items[first->at]);
    gpt_free(files);
    return GPT_OK;
}

/* ---- all words ---- */

/* The list that grew is freed here; the caller gets a copy in the arena, beside
 * the names. */
int gpt_inputs_expand(struct gpt_arena *arena, const char *const *words,
                      int64_t n_words, const char *const **paths, int64_t *n,
                      struct gpt_err *err)
{
    struct paths p = {.arena = arena};
    int status = GPT_OK;

    for (int64_t i = 0; i < n_words; i++)
        GPT_TRY_GOTO(status, add_word(&p, words[i], err), out);
    GPT_TRY_GOTO(status, warn_of_twins(&p, err), out);
    const char **list = gpt_arena_alloc(arena, p.n, sizeof(*list));
    if (!list) {
        status = gpt_no_memory(err, "input names");
        goto out;
    }
    if (p.n > 0)
        memcpy(list, p.items, p.n * sizeof(*list));
    *paths = list;
    *n = (int64_t)p.n;
out:
    gpt_free(p.items);
    return status;
}

/* ---- shards ----
 *
 * The files one after the other are a line of bytes, as long as they are on
 * disk, and a shard is an interval of it. Where the intervals' ends fall inside
 * a line of text is settled by input.c, for both shards by the same rule. So no
 * shard needs to read what is another's. */

/* Shards need sizes that another machine finds as well. */
static int size_of(const char *path, int64_t *bytes, struct gpt_err *err)
{
    struct stat st;

    if (strcmp(path, "-") == 0)
        return gpt_fail(err, GPT_EUSAGE, "standard input cannot be divided "
                        "into shards");
    if (stat(path, &st) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
    if (!S_ISREG(st.st_mode))
        return gpt_fail(err, GPT_EUSAGE, "'%s' cannot be divided into shards: "
                        "it is no regular file", path);
    *bytes = st.st_size;
    return GPT_OK;
}

/* total * part / of without the overflow of the product, for part <= of < 2^31:
 * the remainder is below `of`. */
static int64_t share_of(int64_t total, int64_t part, int64_t of)
{
    return total / of * part + total % of * part / of;
}

static void add_range(struct gpt_input_range *ranges, int64_t *n,
                      const char *path, int64_t begin, int64_t end)
{
    ranges[(*n)++] = (struct gpt_input_range){path, begin, end};
}

/* Neighbouring shards compute their common border by the same formula from the
 * same sizes. So every byte is in one shard, and no shard needs to know what
 * another one does. */
int gpt_inputs_shard(struct gpt_arena *arena, const char *const *paths,
                     int64_t n_paths, int64_t shard, int64_t n_shards,
                     const struct gpt_input_range **ranges, int64_t *n,
                     struct gpt_err *err)
{
    struct gpt_input_range *list =
        gpt_arena_alloc(arena, (size_t)n_paths, sizeof(*list));
    int64_t total = 0, at = 0, bytes = 0;

    if (!list)
        return gpt_no_memory(err, "input names");
    assert(n_shards >= 1 && shard >= 1 && shard <= n_shards);
    *ranges = list;
    *n = 0;
    if (n_shards == 1) { /* sizes are not needed: pipes will do */
        for (int64_t i = 0; i < n_paths; i++)
            add_range(list, n, paths[i], 0, -1);
        return GPT_OK;
    }
    for (int64_t i = 0; i < n_paths; i++) {
        GPT_TRY(size_of(paths[i], &bytes, err));
        total += bytes;
    }
    int64_t first = share_of(total, shard - 1, n_shards);
    int64_t last = share_of(total, shard, n_shards);
    for (int64_t i = 0; i < n_paths; i++, at += bytes) {
        GPT_TRY(size_of(paths[i], &bytes, err));
        int64_t begin = first > at ? first - at : 0;
        int64_t end = last - at < bytes ? last - at : bytes;
        assert(begin >= 0 && end <= bytes);
        if (begin < end)
            /* -1 and not the size, so that a file that is in one shard as a
             * whole is read as such, compressed or not */
            add_range(list, n, paths[i], begin, end == bytes ? -1 : end);
    }
    return GPT_OK;
}

/* -1 when a size is not known beforehand, as that of a pipe. */
int64_t gpt_inputs_bytes(const struct gpt_input_range *inputs, int64_t n)
{
    int64_t total = 0;

    for (int64_t i = 0; i < n; i++) {
        struct stat st;

        if (stat(inputs[i].path, &st) != 0 || !S_ISREG(st.st_mode))
            return -1;
        int64_t end = inputs[i].end < 0 ? st.st_size : inputs[i].end;
        if (!gpt_add(total, end - inputs[i].begin, &total))
            return -1;
    }
    return total;
}
