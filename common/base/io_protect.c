/* Inputs are never changed. Every file that this process reads as an input is
 * known here by device and inode, so that an output is refused when it is one
 * of them, under whatever name: another spelling, a symbolic or a hard link.
 * The list only grows; it is asked when an output is opened and again when it
 * gets its name. */
#include "base/io_internal.h"

#include "base/memory.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct input {
    dev_t device;
    ino_t inode;
    char *name; /* as it was given, for messages */
    char *full; /* without links, for the directories that hold it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct input *inputs;
static size_t n_inputs, cap_inputs;

/* Adds an input to the list. The lock is held. */
static int add(const char *path, const struct stat *st, struct gpt_err *err)
{
    /* The same file is mostly named again at once, if at all. */
    if (n_inputs > 0 && inputs[n_inputs - 1].device == st->st_dev &&
        inputs[n_inputs - 1].inode == st->st_ino)
        return GPT_OK;
    GPT_TRY(gpt_grow(&inputs, &cap_inputs, n_inputs + 1, sizeof(*inputs),
                     "names of inputs", err));
    struct input in = {st->st_dev, st->st_ino, strdup(path),
                       realpath(path, NULL)};
    if (!in.name || !in.full) {
        free(in.name);
        free(in.full);
        return gpt_no_memory(err, "names of inputs");
    }
    inputs[n_inputs++] = in;
    return GPT_OK;
}

/* Pipes and devices are no files that could be replaced, and a directory is
 * known by the files in it. */
int gpt_in_protect(const char *path, struct gpt_err *err)
{
    struct stat st;

    if (strcmp(path, "-") == 0 || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return GPT_OK;
    pthread_mutex_lock(&lock);
    int status = add(path, &st, err);
    pthread_mutex_unlock(&lock);
    return status;
}

int gpt_in_protect_dir(const char *dir, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];
    DIR *d = opendir(dir);
    int status = GPT_OK;

    if (!d)
        return GPT_OK;
    for (struct dirent *e; status == GPT_OK && (e = readdir(d)) != NULL;) {
        status = gpt_path_join(path, sizeof(path), dir, e->d_name, err);
        if (status == GPT_OK)
            status = gpt_in_protect(path, err);
    }
    closedir(d);
    return status;
}

/* True when `full` is below the directory `dir`. */
static bool is_below(const char *full, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(full, dir, n) == 0 && full[n] == '/';
}

/* Finds the input that an output would replace: the same file, or any file
 * below the directory `dir`, which would go with it. The lock is held. */
static const struct input *find(const struct stat *st, const char *dir)
{
    for (size_t i = 0; i < n_inputs; i++)
        if (dir ? is_below(inputs[i].full, dir)
                : inputs[i].device == st->st_dev &&
                      inputs[i].inode == st->st_ino)
            return &inputs[i];
    return NULL;
}

int gpt_refuse_input(const char *path, struct gpt_err *err)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return GPT_OK; /* what is not there is no input */
    /* A directory is replaced by a rename, with all that it holds. */
    char *dir = S_ISDIR(st.st_mode) ? realpath(path, NULL) : NULL;
    pthread_mutex_lock(&lock);
    const struct input *in =
        S_ISDIR(st.st_mode) && !dir ? NULL : find(&st, dir);
    const char *name = in ? in->name : NULL; /* the list may move, it may not */
    pthread_mutex_unlock(&lock);
    free(dir);
    if (!name)
        return GPT_OK;
    if (S_ISDIR(st.st_mode)) {
        gpt_fail(err, GPT_EUSAGE, "the output '%s' holds the input '%s': "
                 "inputs are never modified", path, name);
        return gpt_hint(err, "give the output another name");
    }
    gpt_fail(err, GPT_EUSAGE, "the output '%s' is the input '%s': inputs are "
             "never modified", path, name);
    return gpt_hint(err, "give the output another name, or leave '%s' out of "
                         "the pattern or folder that names it as input", name);
}
