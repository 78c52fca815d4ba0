/* Saving a run; see saver.h. gpt_saver_save() takes what is to be saved,
 * write_checkpoint() writes it, here or in a thread of its own, and end_save()
 * reports how that went. What a rank writes is decided once, when the saver is
 * opened, by checkpoint/ownership.h. */
#include "cmd/train/saver.h"

#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/thread.h"
#include "checkpoint/native/native.h"
#include "tokenizer/tokenizer_options.h"

#include <stdatomic.h>

/* What is fixed when the saver is opened, and the save that is under way. The
 * thread reads the copy and `state`, and writes `status`, `err` and `done`; the
 * training thread touches none of these between starting the thread and joining
 * it, except that it reads `done`. */
struct gpt_saver {
    struct gpt_replica *replica;
    const struct gpt_state_context *context;
    struct gpt_ownership_writer writer; /* this rank */
    struct gpt_agreement peers, *all; /* all: NULL when this is the only rank */
    struct gpt_ownership parts[GPT_N_KINDS];
    float *copy;  /* of all parts, kind by kind; NULL: none is needed */
    bool threads; /* save in the background */
    int64_t saved;

    /* the save that is under way */
    pthread_t thread;
    bool running;
    atomic_bool done;
    int64_t iteration;
    bool best; /* it is marked as the best one */
    cJSON *state;
    int status;
    struct gpt_err err;
};

/* ---- open and close ---- */

/* Files can be written from where the replica lies only when nothing changes it
 * meanwhile and the host can read it. */
static bool needs_copy(const struct gpt_replica *r,
                       const struct gpt_train_options *o)
{
    return o->async_save || !r->be->host_memory;
}

/* Lists what a rank writes of a kind: nothing of one that the optimizer does
 * not keep, or that is left out. */
static int list_parts(const struct gpt_replica *r,
                      const struct gpt_train_options *o, enum gpt_kind kind,
                      const struct gpt_ownership_writer *writer,
                      struct gpt_ownership *parts, struct gpt_err *err)
{
    /* an empty list is freed, copied and written like any other */
    *parts = (struct gpt_ownership){.items = NULL};
    if (kind != GPT_KIND_PARAMETERS &&
        (o->no_save_optim ||
         !gpt_optimizer_has(&r->o.optimizer, kind, &r->flat)))
        return GPT_OK;
    GPT_TRY(gpt_ownership_build(parts, &r->flat, gpt_state_compact(r, kind),
                                writer, err));
    /* the optimizer knows what it keeps, and where in its buffers */
    const int status =
        gpt_optimizer_select(&r->o.optimizer, &r->flat, kind, parts, err);
    if (status != GPT_OK)
        gpt_ownership_free(parts);
    return status;
}

/* The same parts as the saver will have: the prediction is exact. */
int gpt_saver_memory(const struct gpt_replica *r,
                     const struct gpt_train_options *o, int64_t dp_rank,
                     int64_t dp_size, int64_t *bytes, struct gpt_err *err)
{
    const struct gpt_ownership_writer writer = {
        .tp_rank = r->o.layout.at[GPT_TP],
        .dp_rank = dp_rank,
        .dp_size = dp_size,
    };
    struct gpt_ownership parts;

    *bytes = 0;
    for (int k = 0; needs_copy(r, o) && k < GPT_N_KINDS; k++) {
        GPT_TRY(list_parts(r, o, (enum gpt_kind)k, &writer, &parts, err));
        *bytes += parts.elements * (int64_t)sizeof(float);
        gpt_ownership_free(&parts);
    }
    return GPT_OK;
}

/* Bytes of the tensors of a checkpoint, of all ranks together: a parameter, and
 * each state that the optimizer keeps for it. */
static int checkpoint_bytes(const struct gpt_replica_options *r,
                            const struct gpt_train_options *o, double *bytes,
                            struct gpt_err *err)
{
    struct gpt_param_table table;
    double elements = 0;

    GPT_TRY(gpt_params_build(&table, &r->config, err));
    for (int64_t i = 0; i < table.n; i++)
        for (int k = 0; k < (o->no_save_optim ? 1 : GPT_N_KINDS); k++)
            if (gpt_optimizer_keeps(&r->optimizer, (enum gpt_kind)k,
                                    &table.rows[i]))
                elements += (double)gpt_param_count(&table.rows[i]);
    gpt_params_free(&table);
    *bytes = elements * (double)sizeof(float);
    return GPT_OK;
}

/* A warning and no error: what a quota or another process leaves is known only
 * when it is written. */
int gpt_saver_check_room(const struct gpt_replica_options *r,
                         const struct gpt_train_options *o, struct gpt_err *err)
{
    double bytes, room;
    char a[32], b[32];

    if (!o->save || !gpt_path_room(o->save, &room))
        return GPT_OK;
    GPT_TRY(checkpoint_bytes(r, o, &bytes, err));
    if (bytes > room)
        gpt_warn("--save %s: a checkpoint takes %s, and %s are free there; "
                 "make room, or name another directory",
                 o->save, gpt_text_bytes(a, bytes), gpt_text_bytes(b, room));
    return GPT_OK;
}

/* Without a world there is one rank, which owns everything and agrees with
 * itself. */
static void find_peers(struct gpt_saver *s, const struct gpt_world *w)
{
    s->writer = (struct gpt_ownership_writer){
        .tp_rank = s->replica->o.layout.at[GPT_TP],
        .dp_size = 1,
    };
    if (!w)
        return;
    s->writer.dp_rank = w->topology.at[GPT_DP];
    s->writer.dp_size = w->topology.size[GPT_DP];
    if (gpt_state_peers(&s->peers, w, "save"))
        s->all = &s->peers;
}

/* Allocated once, when training begins: a save in the middle of a run must not
 * find that memory is out. */
static int allocate_copy(struct gpt_saver *s, struct gpt_err *err)
{
    int64_t elements = 0;

    for (int k = 0; k < GPT_N_KINDS; k++) {
        GPT_TRY(list_parts(s->replica, s->context->options, (enum gpt_kind)k,
                           &s->writer, &s->parts[k], err));
        elements += s->parts[k].elements;
    }
    if (!needs_copy(s->replica, s->context->options))
        return GPT_OK;
    return gpt_new(&s->copy, (size_t)elements, sizeof(*s->copy),
                   "the copy that checkpoints are written from", err);
}

int gpt_saver_open(struct gpt_saver **saver, struct gpt_replica *replica,
                   const struct gpt_state_context *context,
                   struct gpt_err *err)
{
    struct gpt_saver *s;

    *saver = NULL;
    GPT_TRY(gpt_new(&s, 1, sizeof(*s), "saving", err));
    s->replica = replica;
    s->context = context;
    s->saved = -1;
    s->threads = context->options->async_save;
    find_peers(s, replica->o.world);
    int status = allocate_copy(s, err);
    if (status != GPT_OK)
        gpt_saver_close(s);
    else
        *saver = s;
    return status;
}

void gpt_saver_close(struct gpt_saver *s)
{
    if (!s)
        return;
    if (s->running)
        gpt_thread_join(s->thread);
    cJSON_Delete(s->state);
    for (int k = 0; k < GPT_N_KINDS; k++)
        gpt_ownership_free(&s->parts[k]);
    gpt_free(s->copy);
    gpt_free(s);
}

/* The checkpoint is there, whatever becomes of its mark: a warning. */
static void mark_best(const struct gpt_train_options *o, int64_t iteration)
{
    struct gpt_err err = {0};

    if (gpt_checkpoint_mark_best(o->save, iteration, &err) != GPT_OK)
        gpt_warn("the checkpoint of iteration %lld is saved, and not marked as "
                 "the best one: %s", (long long)iteration, err.text);
}

/* A checkpoint that is gone was removed by its user. */
void gpt_saver_mark_best(const struct gpt_train_options *o, int64_t iteration)
{
    char path[GPT_PATH_BYTES];
    struct gpt_err err = {0};

    if (o->save_best && iteration > 0 &&
        gpt_checkpoint_path(path, sizeof(path), o->save, iteration, &err) ==
            GPT_OK &&
        gpt_path_is_dir(path))
        mark_best(o, iteration);
}

void gpt_saver_prune(const struct gpt_train_options *o, int64_t iteration)
{
    struct gpt_err err = {0};

    if (gpt_checkpoint_prune_loaded(o->save, o->keep_checkpoints, iteration,
                                    &err) != GPT_OK)
        gpt_warn("old checkpoints are not removed: %s", err.text);
}

int64_t gpt_saver_saved(const struct gpt_saver *s)
{
    return s->saved;
}

/* ---- taking a copy ---- */

static const float *memory_of(const struct gpt_replica *r, int kind, int64_t at)
{
    const float *memory =
        kind == GPT_KIND_PARAMETERS
            ? r->params
            : gpt_optimizer_buffer(r->optimizer, (enum gpt_kind)kind);

    return memory ? memory + at : NULL; /* a rank may own nothing */
}

/* Waits for gathering first, which may still be reading or writing the
 * parameters on another queue. Training continues when the copy is complete. */
static int take_copy(struct gpt_saver *s, struct gpt_err *err)
{
    struct gpt_replica *r = s->replica;
    float *to = s->copy;

    gpt_gatherer_wait(r->gatherer);
    for (int k = 0; s->copy && k < GPT_N_KINDS; k++) {
        for (size_t i = 0; i < s->parts[k].n; i++) {
            const struct gpt_owned_box *p = &s->parts[k].items[i];

            r->be->copy_out(r->q, to, memory_of(r, k, p->at),
                            (size_t)p->count * sizeof(*to));
            to += p->count;
        }
    }
    return r->be->sync(r->q, err);
}

/* ---- writing ---- */

/* The parts of a kind as slices; `copy` is where they begin in the copy. A
 * slice says which part of the whole tensor it is, so that a checkpoint can be
 * read by any other layout. */
static int describe_parts(const struct gpt_saver *s, int kind,
                          const float *copy, struct gpt_arena *arena,
                          struct gpt_tensor_slice *out, struct gpt_err *err)
{
    const struct gpt_ownership *parts = &s->parts[kind];

    for (size_t i = 0; i < parts->n; i++) {
        const struct gpt_owned_box *p = &parts->items[i];
        const struct gpt_param *param = p->slice->param;
        struct gpt_tensor_slice *t = &out[i];

        *t = (struct gpt_tensor_slice){
            .name = gpt_arena_printf(arena, "%s%s",
                                     gpt_kind_prefix((enum gpt_kind)kind),
                                     param->name),
            .dtype = GPT_F32,
            .ndim = param->ndim,
            .data = s->copy ? copy : memory_of(s->replica, kind, p->at),
        };
        for (int d = 0; d < param->ndim; d++) {
            t->global[d] = param->shape[d];
            t->begin[d] = p->begin[d];
            t->shape[d] = p->shape[d];
        }
        if (!t->name)
            return gpt_no_memory(err, "a checkpoint");
        copy += s->copy ? p->count : 0;
    }
    return GPT_OK;
}

static void name_file(char *name, size_t cap, const struct gpt_saver *s,
                      int kind)
{
    const struct gpt_layout *layout = &s->replica->o.layout;
    const struct gpt_file_rank rank = {
        .tp_rank = layout->at[GPT_TP],
        .pp_rank = layout->at[GPT_PP],
        .dp_rank = s->writer.dp_rank,
        .dp_size = s->writer.dp_size,
    };

    gpt_name_file(name, cap, gpt_kind_prefix((enum gpt_kind)kind), &rank);
}

/* A rank that owns nothing of a kind writes no file for it. */
static int write_kind(struct gpt_saver *s, struct gpt_checkpoint_writer *w,
                      int kind, const float *copy, struct gpt_err *err)
{
    const size_t n = s->parts[kind].n;
    struct gpt_arena arena = {.chunks = NULL};
    struct gpt_tensor_slice *slices;
    char name[GPT_NATIVE_FILE_NAME];

    if (n == 0)
        return GPT_OK;
    GPT_TRY(gpt_new(&slices, n, sizeof(*slices), "a checkpoint", err));
    int status;
    GPT_TRY_GOTO(status, describe_parts(s, kind, copy, &arena, slices, err),
                 out);
    name_file(name, sizeof(name), s, kind);
    status = gpt_checkpoint_write(w, name, slices, (int64_t)n, err);
out:
    gpt_free(slices);
    gpt_arena_free(&arena);
    return status;
}

/* One rank writes the vocabulary for all. */
static int write_files(struct gpt_saver *s, struct gpt_checkpoint_writer *w,
                       struct gpt_err *err)
{
    const struct gpt_train_options *o = s->context->options;
    const float *copy = s->copy;
    struct gpt_tokenizer_file files[GPT_TOKENIZER_FILES];
    size_t n;

    for (int k = 0; k < GPT_N_KINDS; k++) {
        GPT_TRY(write_kind(s, w, k, copy, err));
        copy += s->copy ? s->parts[k].elements : 0;
    }
    if (!gpt_agreement_first(s->all))
        return GPT_OK;
    GPT_TRY(gpt_tokenizer_files(&o->tokenizer, files, &n, err));
    for (size_t i = 0; i < n; i++)
        GPT_TRY(gpt_checkpoint_attach(w, files[i].name, files[i].path, err));
    return GPT_OK;
}

/* What follows a checkpoint that is on disk and has its name: it is saved
 * whatever becomes of this, so that a failure is a warning. Old checkpoints are
 * removed only now, so at every moment at least one is there. */
static void tidy_up(const struct gpt_saver *s)
{
    const struct gpt_train_options *o = s->context->options;
    struct gpt_err err = {0};
    int status = GPT_OK;

    /* A checkpoint is the best one from when it is whole. A run that ends
     * between the two marks it when it resumes (gpt_saver_mark_best). */
    if (s->best)
        mark_best(o, s->iteration);
    if (s->saved < 0)
        status = gpt_checkpoint_replace(o->save, s->context->own_until,
                                        s->iteration, &err);
    if (status == GPT_OK)
        status = gpt_checkpoint_prune(o->save, o->keep_checkpoints, &err);
    if (status != GPT_OK)
        gpt_warn("the checkpoint of iteration %lld is saved; old ones are not "
                 "removed: %s", (long long)s->iteration, err.text);
}

/* A commit that failed on any rank has failed on all. */
static int write_all(struct gpt_saver *s, struct gpt_err *err)
{
    const struct gpt_replica *r = s->replica;
    const struct gpt_train_options *o = s->context->options;
    struct gpt_checkpoint_writer *w;

    /* FORCE: a damaged newer checkpoint may be in the way; that a run does not
     * write over another one's is checked when it starts. */
    GPT_TRY(gpt_checkpoint_create_all(&w, o->save, s->iteration, GPT_OUT_FORCE,
                                      s->all, err));
    int status = write_files(s, w, err);
    GPT_TRY(gpt_checkpoint_commit_all(w, status, &r->o.config,
                                      r->o.layout.size[GPT_TP],
                                      r->o.layout.size[GPT_PP], s->state,
                                      err));
    if (gpt_agreement_first(s->all))
        tidy_up(s);
    return GPT_OK;
}

static int write_checkpoint(struct gpt_saver *s, struct gpt_err *err)
{
    GPT_TRY(gpt_agreement_begin(s->all, err));
    int status = write_all(s, err);
    gpt_agreement_end(s->all);
    return status;
}

/* ---- saving ---- */

/* Runs beside training: ranks agree through the store and not through a
 * communicator, which training uses. `done` is stored last, so that status and
 * err are complete for a reader that sees it. */
static void *write_thread(void *saver)
{
    struct gpt_saver *s = saver;

    s->status = write_checkpoint(s, &s->err);
    atomic_store(&s->done, true);
    return NULL;
}

/* Takes over how the save went, after the thread is joined. */
static int end_save(struct gpt_saver *s, struct gpt_err *err)
{
    cJSON_Delete(s->state);
    s->state = NULL;
    if (s->status != GPT_OK) {
        /* The checkpoint before stays: the failed one was never published. */
        *err = s->err;
        return s->status;
    }
    s->saved = s->iteration;
    return GPT_OK;
}

int gpt_saver_wait(struct gpt_saver *s, struct gpt_err *err)
{
    if (!s->running)
        return GPT_OK;
    gpt_thread_join(s->thread);
    s->running = false;
    return end_save(s, err);
}

/* Between steps: a failure of a save in the background ends the run at the next
 * step, not at its end. */
int gpt_saver_check(struct gpt_saver *s, struct gpt_err *err)
{
    if (!s->running || !atomic_load(&s->done))
        return GPT_OK;
    return gpt_saver_wait(s, err);
}

/* One save at a time: there is one copy, and checkpoints must become complete
 * in the order of their iterations. A thread that cannot be started is no
 * failure, the save then happens here. */
int gpt_saver_save(struct gpt_saver *s, const struct gpt_train_state *state,
                   struct gpt_err *err)
{
    GPT_TRY(gpt_saver_wait(s, err));
    GPT_TRY(take_copy(s, err));
    if (s->all) /* it became shorter after the first step */
        s->peers.timeout = s->replica->o.world->timeout;
    s->iteration = state->iteration;
    s->best = s->context->options->save_best &&
              state->best.iteration == state->iteration;
    s->state = gpt_state_to_json(s->replica, state, s->context);
    if (gpt_json_out_of_memory()) /* another thread may print it */
        return gpt_no_memory(err, "the state of a checkpoint");
    s->err = (struct gpt_err){0};
    atomic_store(&s->done, false);
    s->running = s->threads &&
                 gpt_thread_start(&s->thread, "save", write_thread, s, NULL) ==
                     GPT_OK;
    if (s->running)
        return GPT_OK;
    write_thread(s);
    return end_save(s, err);
}
