/* Planning and writing a checkpoint of any format; see target.h. The work is
 * the front ends'. */
#include "checkpoint/format.h"

#include "base/num.h"

/* Everything that can be wrong with the source, the model or the layout is
 * found here, before the output is touched. A dry run ends after this
 * function. */
int gpt_target_plan(struct gpt_target *t, const struct gpt_format *format,
                    const struct gpt_source *source,
                    const struct gpt_target_options *options,
                    struct gpt_err *err)
{
    *t = (struct gpt_target){.format = format, .source = source, .o = *options};
    int status = gpt_format_check_place(format, options->save, err);
    if (status == GPT_OK)
        status = format->plan(t, err);
    if (status != GPT_OK) {
        gpt_target_close(t);
        return status;
    }
    for (int64_t i = 0; i < t->n_files; i++)
        t->bytes += t->files[i].bytes;
    return GPT_OK;
}

int gpt_target_files(struct gpt_target *t, int64_t n, struct gpt_err *err)
{
    GPT_TRY(gpt_new(&t->files, (size_t)n, sizeof(*t->files), "files", err));
    t->n_files = n;
    return GPT_OK;
}

/* The plan's tensors are views of the source's, so a target is closed before
 * its source. */
void gpt_target_close(struct gpt_target *t)
{
    if (t->format)
        t->format->free_plan(t);
    gpt_free(t->files);
    gpt_arena_free(&t->arena);
    *t = (struct gpt_target){0};
}

/* The whole output must fit beside what is there: what it replaces is removed
 * when it is complete. A file system that ends in the middle of the work would
 * say the same after hours. */
static int check_room(const struct gpt_target *t, struct gpt_err *err)
{
    char need[32], have[32];
    double room;

    /* what a quota leaves is not known: that is reported when it is reached */
    if (!gpt_path_room(t->o.save, &room) || (double)t->bytes <= room)
        return GPT_OK;
    gpt_fail(err, GPT_EIO, "'%s': the output takes %s, and %s are free there",
             t->o.save, gpt_text_bytes(need, (double)t->bytes),
             gpt_text_bytes(have, room));
    return gpt_hint(err, "make room, or name a place on another file system");
}

int gpt_target_write(struct gpt_target *t, gpt_bytes_done *done, void *context,
                     struct gpt_err *err)
{
    GPT_TRY(check_room(t, err));
    return t->format->write(t, done, context, err);
}
