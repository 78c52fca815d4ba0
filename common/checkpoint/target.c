/* Planning and writing a checkpoint of any format; see target.h. The work is
 * the front ends'. */
#include "checkpoint/format.h"

#include "base/log.h"
#include "base/num.h"
#include "checkpoint/fill.h"
#include "checkpoint/names.h"
#include "checkpoint/resume.h"
#include "checkpoint/run_state.h"
#include "model/params.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* An iteration that is added to others becomes the one that is resumed, which
 * would end the run that wrote them. An iteration whose list of parts is left
 * is this conversion's own: it died after the iteration had got its name. */
static int check_others(const struct gpt_target *t, struct gpt_err *err)
{
    if (!t->format->shares_dir || t->o.force ||
        !t->format->recognises(t->o.save) || gpt_resume_is_left(t->path) ||
        gpt_path_same(t->path, t->source->dir)) /* is refused as the input */
        return GPT_OK;
    gpt_fail(err, GPT_EEXIST, "%s: holds checkpoints already", t->o.save);
    return gpt_hint(err, "name a new directory, or add to them with --force: "
                         "the new one is then what is resumed");
}

static int plan(struct gpt_target *t, struct gpt_err *err)
{
    GPT_TRY(gpt_format_check_place(t->format, t->o.save, err));
    GPT_TRY(t->format->plan(t, err));
    return check_others(t, err);
}

/* Everything that can be wrong with the source, the model or the layout is
 * found here, before the output is touched. A dry run ends after this
 * function. */
int gpt_target_plan(struct gpt_target *t, const struct gpt_format *format,
                    const struct gpt_source *source,
                    const struct gpt_target_options *options,
                    struct gpt_err *err)
{
    *t = (struct gpt_target){.format = format, .source = source, .o = *options};
    t->o.ep_size = gpt_max_i64(1, t->o.ep_size);
    int status = plan(t, err);
    if (status != GPT_OK) {
        gpt_target_close(t);
        return status;
    }
    for (int64_t i = 0; i < t->n_files; i++)
        t->bytes += t->files[i].bytes;
    return GPT_OK;
}

/* The sizes that tensor parallel ranks divide. */
static struct gpt_config divided(const struct gpt_format *format,
                                 const struct gpt_target_options *o)
{
    struct gpt_config c = o->config;

    if (format->divide)
        format->divide(o, &c);
    return c;
}

int gpt_target_check(const struct gpt_format *format,
                     const struct gpt_target_options *o, struct gpt_err *err)
{
    const struct gpt_config c = divided(format, o);

    return gpt_widths_check(&c, o->tp_size, err);
}

/* Only sizes and coordinates of a topology are read; its rank stays 0. */
int gpt_target_layout(const struct gpt_target *t, int64_t tp_rank,
                      int64_t pp_rank, struct gpt_layout *layout,
                      struct gpt_err *err)
{
    const struct gpt_target_options *o = &t->o;
    const int64_t size[GPT_N_DIMS] = {[GPT_TP] = o->tp_size,
                                      [GPT_PP] = o->pp_size};
    const struct gpt_config c = divided(t->format, o);
    struct gpt_topology topology;

    GPT_TRY(gpt_topology_init(&topology, o->tp_size * o->pp_size, 0, size,
                              gpt_max_i64(1, o->chunks), err));
    topology.at[GPT_TP] = tp_rank;
    topology.at[GPT_PP] = pp_rank;
    return gpt_layout_init(layout, &c, &topology, o->first_layers,
                           o->last_layers, err);
}

int gpt_target_files(struct gpt_target *t, int64_t n, struct gpt_err *err)
{
    GPT_TRY(gpt_new(&t->files, (size_t)n, sizeof(*t->files), "files", err));
    t->n_files = n;
    return GPT_OK;
}

int gpt_target_resizes(struct gpt_target *t, int64_t n, struct gpt_err *err)
{
    assert(!t->resized);
    t->room = n;
    return gpt_new(&t->resized, (size_t)n, sizeof(*t->resized),
                   "vocabulary tables", err);
}

int gpt_target_find(struct gpt_target *t, const char *name,
                    const struct gpt_param *param,
                    const struct gpt_tensor **out, struct gpt_err *err)
{
    const struct gpt_tensor *in = gpt_source_find(t->source, name);

    if (!in)
        return gpt_fail(err, GPT_EDATA, "%s: no tensor '%s'", t->source->dir,
                        name);
    if (in->ndim != param->ndim || in->shape[0] < 1 ||
        (in->ndim == 2 && in->shape[1] != param->shape[1]) ||
        (in->shape[0] != param->shape[0] && !param->vocab_rows))
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s' is %lld x %lld, its model says "
                        "%lld x %lld",
                        t->source->dir, name, (long long)in->shape[0],
                        (long long)(in->ndim == 2 ? in->shape[1] : 1),
                        (long long)param->shape[0], (long long)param->shape[1]);
    *out = in;
    if (in->shape[0] == param->shape[0])
        return GPT_OK;
    assert(t->n_resized < t->room);
    struct gpt_tensor *to = &t->resized[t->n_resized++];
    *to = gpt_tensor_make(in->name, in->dtype, param->ndim, param->shape);
    *out = to;
    return gpt_tensor_resize(to, in, strcmp(name, param->name) == 0, err);
}

/* The plan's tensors are views of the source's, so a target is closed before
 * its source. */
void gpt_target_close(struct gpt_target *t)
{
    if (t->format)
        t->format->free_plan(t);
    for (int64_t i = 0; i < t->n_resized; i++)
        gpt_tensor_free(&t->resized[i]);
    gpt_free(t->resized);
    gpt_free(t->files);
    gpt_arena_free(&t->arena);
    *t = (struct gpt_target){0};
}

/* The whole output must fit beside what is there: what it replaces is removed
 * when it is complete. held: what an earlier run has written of it. A file
 * system that ends in the middle of the work would say the same after hours. */
static int check_room(const struct gpt_target *t, int64_t held,
                      struct gpt_err *err)
{
    const double bytes = (double)t->bytes - (double)held;
    char need[32], have[32];
    double room;

    /* what a quota leaves is not known: that is reported when it is reached */
    if (!gpt_path_room(t->o.save, &room) || bytes <= room)
        return GPT_OK;
    gpt_fail(err, GPT_EIO, "'%s': the output takes %s, and %s are free there",
             t->o.save, gpt_text_bytes(need, bytes),
             gpt_text_bytes(have, room));
    return gpt_hint(err, "make room, or name a place on another file system");
}

/* The list of what is whole lies beside the output, whose directory may be that
 * of a root that is not there yet. */
static int open_resume(struct gpt_resume **r, const struct gpt_target *t,
                       struct gpt_err *err)
{
    const char **names;

    if (t->format->shares_dir && !gpt_path_is_dir(t->o.save)) {
        /* nothing of an earlier run is there: nothing is made for nothing */
        GPT_TRY(check_room(t, 0, err));
        GPT_TRY(gpt_path_mkdirs(t->o.save, err));
    }
    GPT_TRY(gpt_new(&names, (size_t)t->n_files, sizeof(*names), "names", err));
    for (int64_t i = 0; i < t->n_files; i++)
        names[i] = t->files[i].name;
    int status = gpt_resume_open(r, t->path, t->format->is_file, names,
                                 t->n_files, err);
    gpt_free(names);
    return status;
}

/* Adds an id to the list of those that have no place; below 0 there is none. */
static void add_id(char *text, size_t cap, const char *what, int64_t id)
{
    const size_t n = strlen(text);

    if (id >= 0)
        snprintf(text + n, cap - n, "%s%s %lld", n ? ", " : "", what,
                 (long long)id);
}

/* Names the tokens that begin and end texts and have no place in the format. A
 * vocabulary that is copied may tell them again. */
static void report_ends(const struct gpt_target *t)
{
    const struct gpt_source *s = t->source;
    const int keeps = t->format->keeps_ends;
    int n = s->eos_token_id >= 0;
    char text[32 * (2 + GPT_ENDS)] = "";

    if (keeps == 0) {
        add_id(text, sizeof(text), "bos_token_id", s->bos_token_id);
        add_id(text, sizeof(text), "eos_token_id", s->eos_token_id);
    }
    for (int i = 0; i < s->ends.n; i++)
        if (s->ends.ids[i] != s->eos_token_id && n++ >= keeps)
            add_id(text, sizeof(text), "eos_token_id", s->ends.ids[i]);
    if (text[0])
        gpt_info("%s: left out, as format %s has no place for them: %s",
                 t->path, t->format->name, text);
}

/* Says by name what the source has of a run and the output has not. */
static void report_left_out(const struct gpt_target *t)
{
    const struct gpt_source *s = t->source;
    const bool run =
        cJSON_GetObjectItemCaseSensitive(s->state, GPT_RUN_SCHEDULE) != NULL;
    const int64_t samples =
        gpt_run_state_count(s->state, GPT_RUN_TRAIN_SAMPLES);
    bool optimizer =
        cJSON_GetObjectItemCaseSensitive(s->state, GPT_RUN_OPTIMIZER);

    if (s->left_out)
        gpt_info("%s: left out: %s", t->path, s->left_out);
    if (s->unused_settings)
        gpt_info("%s: left out, as no format here keeps how tokens are chosen: "
                 "%s", t->path, s->unused_settings);
    report_ends(t);
    if (t->format->keeps_state)
        return;
    for (int64_t i = 0; i < s->n_tensors && !optimizer; i++)
        optimizer = gpt_name_is_optimizer(s->tensors[i].name);
    if (optimizer || run)
        gpt_info("%s: left out, as format %s holds weights alone:%s%s "
                 "iteration %lld, %lld consumed samples",
                 t->path, t->format->name, optimizer ? " optimizer state," : "",
                 run ? " schedule of the learning rate," : "",
                 (long long)s->iteration, (long long)samples);
}

/* The list is opened first, as what an earlier run has written counts as room
 * on the disk, and closed last, as its lock guards the publication.
 *
 * A failure whose reason goes away leaves what is whole to the next run, and so
 * does the death of this one. */
int gpt_target_write(struct gpt_target *t, gpt_bytes_done *done, void *context,
                     struct gpt_err *err)
{
    struct gpt_fill fill = {
        .done = done,
        .context = context,
        .flags = GPT_OUT_PART | (t->o.force ? GPT_OUT_FORCE : 0),
        .source = t->source,
        .stops = true,
    };
    char taken[32];
    const size_t there = gpt_path_there(t->o.save);
    bool kept;
    int status = open_resume(&fill.resume, t, err);

    if (status != GPT_OK) {
        gpt_path_rmdirs(t->o.save, there);
        return status;
    }
    /* The run that made it died between its name and the end: nothing has
     * reported it, and its tracker may not name it. The same command makes it
     * again. */
    if (gpt_resume_unfinished(fill.resume))
        fill.flags |= GPT_OUT_FORCE;
    status = check_room(t, gpt_resume_held(fill.resume), err);
    if (status == GPT_OK)
        status = t->format->write(t, &fill, err);
    if (status == GPT_OK)
        report_left_out(t);
    if (status == GPT_OK && fill.infinite)
        gpt_warn("%s: infinite as fp16, which ends at 65504: %lld element%s, "
                 "as of '%s'; bf16 and fp32 hold them",
                 t->path, (long long)fill.infinite, gpt_plural(fill.infinite),
                 fill.infinite_in);
    if (fill.spoilt)
        gpt_resume_forget(fill.resume);
    gpt_resume_close(fill.resume, status == GPT_OK, &kept);
    if (status != GPT_OK && !kept)
        gpt_path_rmdirs(t->o.save, there);
    if (status == GPT_OK && fill.taken > 0)
        gpt_info("%s: %s of it were complete after an interruption, and were "
                 "kept",
                 t->path, gpt_text_bytes(taken, (double)fill.taken));
    if (kept && err && !err->hint[0])
        return gpt_hint(err, "what is complete was kept: the same command "
                             "resumes from there");
    return status;
}
