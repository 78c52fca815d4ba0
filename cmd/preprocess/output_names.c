/* Names of outputs, and what is done with the files by their names; see
 * output_names.h. Everything here can be repeated after a crash, as it looks at
 * what is there and not at what was done. */
#include "cmd/preprocess/output_names.h"

#include "base/io.h"
#include "base/memory.h"

#include <string.h>

/* The files of a key by the end of their names: those that a user sees, and
 * those that only the writer of the index needs (data/indexed_writer.c). */
static const char *const published[] = {".bin", ".idx", ".json", ".sources",
                                        NULL};
static const char *const scratch[] = {".lengths", ".documents", NULL};

int gpt_output_name(struct gpt_buf *name,
                    const struct gpt_preprocess_options *o, int64_t key,
                    const char *suffix, struct gpt_err *err)
{
    *name = (struct gpt_buf){0};
    if (gpt_buf_printf(name, "%s_%s_document%s", o->output_prefix,
                       o->keys[key], suffix) == GPT_OK)
        return GPT_OK;
    return gpt_no_memory(err, "a file name");
}

/* Compared as text: the file need not exist. */
bool gpt_is_output(const struct gpt_preprocess_options *o, const char *path)
{
    size_t n = strlen(o->output_prefix);

    if (strncmp(path, o->output_prefix, n) != 0 || path[n] != '_')
        return false;
    for (int64_t k = 0; k < o->n_keys; k++) {
        static const char level[] = "_document";
        const char *rest = path + n + 1;
        size_t len = strlen(o->keys[k]);

        if (strncmp(rest, o->keys[k], len) != 0 ||
            strncmp(rest + len, level, strlen(level)) != 0)
            continue;
        for (int i = 0; published[i]; i++)
            if (strcmp(rest + len + strlen(level), published[i]) == 0)
                return true;
    }
    return false;
}

/* Calls `act` with the name of each file of all keys. */
static int for_each_file(const struct gpt_preprocess_options *o,
                         const char *const *suffixes,
                         int (*act)(const char *path, struct gpt_err *err),
                         struct gpt_err *err)
{
    for (int64_t k = 0; k < o->n_keys; k++) {
        for (int i = 0; suffixes[i]; i++) {
            struct gpt_buf name;

            GPT_TRY(gpt_output_name(&name, o, k, suffixes[i], err));
            int status = act(name.data, err);
            gpt_buf_free(&name);
            GPT_TRY(status);
        }
    }
    return GPT_OK;
}

/* The names of a run's files, in the order of publication. */
struct list {
    struct gpt_arena names;
    const char **paths;
    size_t n;
};

/* Appends the name of one file of each key. */
static int add_names(struct list *l, const struct gpt_preprocess_options *o,
                     const char *suffix, struct gpt_err *err)
{
    for (int64_t k = 0; k < o->n_keys; k++) {
        const char *name = gpt_arena_printf(&l->names, "%s_%s_document%s",
                                            o->output_prefix, o->keys[k],
                                            suffix);

        if (!name)
            return gpt_no_memory(err, "file names");
        l->paths[l->n++] = name;
    }
    return GPT_OK;
}

/* Room for the quarantine and four files of each key, the most that a run
 * publishes. */
static int begin_list(struct list *l, const struct gpt_preprocess_options *o,
                      struct gpt_err *err)
{
    *l = (struct list){.n = 0};
    return gpt_new(&l->paths, 1 + 4 * (size_t)o->n_keys, sizeof(*l->paths),
                   "file names", err);
}

static void free_list(struct list *l)
{
    gpt_free(l->paths);
    gpt_arena_free(&l->names);
}

/* What an older set has beside it and this one has not goes with that set. */
static int list_stale(struct list *l, const struct gpt_preprocess_options *o,
                      struct gpt_err *err)
{
    GPT_TRY(begin_list(l, o, err));
    if (!(o->out_flags & GPT_OUT_FORCE))
        return GPT_OK;
    if (!o->provenance)
        GPT_TRY(add_names(l, o, ".json", err));
    return o->sources ? GPT_OK : add_names(l, o, ".sources", err);
}

/* The quarantine comes first: no data set is there without the lines that it
 * lacks. The .idx of all keys come last, as readers open them first. */
static int list_published(struct list *l,
                          const struct gpt_preprocess_options *o,
                          struct gpt_err *err)
{
    static const char *const order[] = {".bin", ".json", ".sources", ".idx"};

    GPT_TRY(begin_list(l, o, err));
    if (o->quarantine)
        l->paths[l->n++] = o->quarantine;
    for (size_t i = 0; i < GPT_COUNT(order); i++)
        GPT_TRY(add_names(l, o, order[i], err));
    return GPT_OK;
}

int gpt_outputs_publish(const struct gpt_preprocess_options *o,
                        struct gpt_err *err)
{
    struct list files = {.n = 0}, stale = {.n = 0};
    int status;

    GPT_TRY(for_each_file(o, scratch, gpt_out_remove_part, err));
    GPT_TRY_GOTO(status, list_published(&files, o, err), out);
    GPT_TRY_GOTO(status, list_stale(&stale, o, err), out);
    status = gpt_out_publish_parts(files.paths, files.n, stale.paths, stale.n,
                                   err);
out:
    free_list(&files);
    free_list(&stale);
    return status;
}

/* A crash while files are published leaves some with their names and some as
 * PATH.part. */
static int is_there(const char *path, struct gpt_err *err)
{
    struct gpt_buf part = {0};
    bool there = gpt_path_exists(path);

    (void)err;
    if (!there && gpt_buf_printf(&part, "%s.part", path) == GPT_OK)
        there = gpt_path_exists(part.data);
    gpt_buf_free(&part);
    return there ? GPT_OK : GPT_EIO;
}

bool gpt_outputs_are_there(const struct gpt_preprocess_options *o)
{
    static const char *const always[] = {".bin", ".idx", NULL};

    return for_each_file(o, always, is_there, NULL) == GPT_OK &&
           (!o->quarantine || is_there(o->quarantine, NULL) == GPT_OK);
}

/* Files that have their names are of a run that was complete: they are not
 * touched. */
int gpt_outputs_discard(const struct gpt_preprocess_options *o,
                        struct gpt_err *err)
{
    GPT_TRY(for_each_file(o, scratch, gpt_out_remove_part, err));
    if (o->quarantine)
        GPT_TRY(gpt_out_remove_part(o->quarantine, err));
    return for_each_file(o, published, gpt_out_remove_part, err);
}
