/* Writing a classic Megatron checkpoint: one file for each rank of the layout,
 * with the parts of the parameters that the rank holds, and one beside it for a
 * distributed optimizer. What goes where is planned (megatron_plan.c) and said
 * in pickles (megatron_pickle.c) before; here bytes move. Start at
 * gpt_megatron_write(). */
#include "checkpoint/megatron_write.h"

#include "checkpoint/output.h"

#include <stdio.h>
#include <string.h>

/* Tiles go to the file that is open; bytes count over all of them. */
struct pour {
    struct gpt_torch_writer *file;
    gpt_bytes_done *done;
    void *context;
    int64_t bytes;
    void *tile;
};

/* A gpt_sink. The writer takes the checksum of what passes. */
static int pour_tile(void *context, const void *data, size_t bytes,
                     struct gpt_err *err)
{
    struct pour *p = context;

    GPT_TRY(gpt_torch_put(p->file, data, bytes, err));
    p->bytes += (int64_t)bytes;
    if (p->done)
        p->done(p->context, p->bytes);
    return GPT_OK;
}

/* The gap in front of a parameter: fewer than 64 elements. */
static int pour_zeros(struct pour *pour, int64_t elements, struct gpt_err *err)
{
    const float zeros[64] = {0};

    return elements ? pour_tile(pour, zeros, (size_t)elements * sizeof(*zeros),
                                err)
                    : GPT_OK;
}

/* Boxes of a cut have rows of one width, so they follow each other. */
static int pour_cut(struct pour *pour, const struct gpt_megatron_output *p,
                    const struct gpt_megatron_block *block,
                    const struct gpt_megatron_cut *c, struct gpt_err *err)
{
    const enum gpt_dtype dtype = gpt_megatron_cut_dtype(p, block, c);

    for (int i = 0; i < c->n_boxes; i++)
        GPT_TRY(gpt_tensor_pour(p->sources[block->kind][c->boxes[i].row],
                                c->boxes[i].begin, c->boxes[i].shape, dtype,
                                pour->tile, pour_tile, pour, err));
    return GPT_OK;
}

/* ---- the model's file ---- */

/* Sizes of the storages, numbered as in the pickle; the loss scale, if there is
 * one, is the last. */
static int64_t size_model(const struct gpt_target *t,
                          const struct gpt_megatron_rank_plan *r,
                          int64_t *sizes)
{
    const struct gpt_megatron_output *p = t->data;
    int64_t n = 0;
    float scale;

    for (int b = 0; b < p->n_blocks; b++)
        for (int64_t i = 0; i < r->n; i++)
            sizes[n++] = r->cuts[i].count *
                         (int64_t)gpt_dtype_bytes(gpt_megatron_cut_dtype(
                             p, &p->blocks[b], &r->cuts[i]));
    if (gpt_megatron_scale(t, &scale))
        sizes[n++] = sizeof(scale);
    return n;
}

/* In the order of the sizes above. */
static int pour_model(const struct gpt_target *t,
                      const struct gpt_megatron_rank_plan *r, struct pour *pour,
                      struct gpt_err *err)
{
    const struct gpt_megatron_output *p = t->data;
    float scale;

    for (int b = 0; b < p->n_blocks; b++)
        for (int64_t i = 0; i < r->n; i++)
            GPT_TRY(pour_cut(pour, p, &p->blocks[b], &r->cuts[i], err));
    return gpt_megatron_scale(t, &scale)
               ? pour_tile(pour, &scale, sizeof(scale), err)
               : GPT_OK;
}

/* ---- the file of a distributed optimizer ---- */

/* Three buffers a chunk, all of one length. */
static int64_t size_shards(const struct gpt_target *t,
                           const struct gpt_megatron_rank_plan *r,
                           int64_t *sizes)
{
    const struct gpt_megatron_output *p = t->data;
    int64_t n = 0;

    for (int64_t v = 0; v < p->chunks; v++)
        for (int k = 0; k < p->n_shards; k++)
            sizes[n++] = r->elements[v] * (int64_t)sizeof(float);
    return n;
}

/* Parameters from the last to the first, as in the buffer. */
static int pour_shards(const struct gpt_target *t,
                       const struct gpt_megatron_rank_plan *r,
                       struct pour *pour, struct gpt_err *err)
{
    const struct gpt_megatron_output *p = t->data;

    for (int64_t v = 0; v < p->chunks; v++)
        for (int k = 0; k < p->n_shards; k++) {
            int64_t at = 0;

            /* a gap is in front of a parameter, never after the last */
            for (int64_t i = r->first[v + 1] - 1; i >= r->first[v]; i--) {
                GPT_TRY(pour_zeros(pour, r->cuts[i].offset - at, err));
                GPT_TRY(pour_cut(pour, p, &p->shards[k], &r->cuts[i], err));
                at = r->cuts[i].offset + r->cuts[i].count;
            }
        }
    return GPT_OK;
}

/* ---- files ---- */

/* A file of a kind: its pickle, the sizes of its storages, their bytes. */
struct kind {
    int (*put)(struct gpt_pickle_out *o, const struct gpt_target *t,
               int64_t rank, struct gpt_err *err);
    int64_t (*size)(const struct gpt_target *t,
                    const struct gpt_megatron_rank_plan *r, int64_t *sizes);
    int (*pour)(const struct gpt_target *t,
                const struct gpt_megatron_rank_plan *r, struct pour *pour,
                struct gpt_err *err);
};

/* The pickle is composed first and whole: the archive begins with it, and all
 * sizes are known from the plan. */
static int write_parts(struct gpt_target *t, const struct kind *kind,
                       const char *path, int64_t rank, unsigned flags,
                       struct pour *pour, struct gpt_err *err)
{
    const struct gpt_megatron_output *p = t->data;
    const struct gpt_megatron_rank_plan *r = &p->ranks[rank];
    const int64_t most =
        r->n * p->n_blocks + p->chunks * GPT_COUNT(p->shards) + 1;
    struct gpt_pickle_out pickle = {0};
    int64_t *sizes = NULL;
    int status;

    GPT_TRY_GOTO(status, kind->put(&pickle, t, rank, err), out);
    GPT_TRY_GOTO(status,
                 gpt_new(&sizes, (size_t)most, sizeof(*sizes), "sizes", err),
                 out);
    GPT_TRY_GOTO(status,
                 gpt_torch_create(&pour->file, path, flags, &pickle, sizes,
                                  kind->size(t, r, sizes), err),
                 out);
    GPT_TRY_GOTO(status, kind->pour(t, r, pour, err), out);
    status = gpt_torch_commit(pour->file, err);
    pour->file = NULL;
out:
    gpt_torch_abort(pour->file);
    pour->file = NULL;
    gpt_pickle_out_free(&pickle);
    gpt_free(sizes);
    return status;
}

/* A rank's directory is made inside the temporary one of the iteration. */
static int write_file(struct gpt_target *t, const char *dir, int64_t file,
                      unsigned flags, struct pour *pour, struct gpt_err *err)
{
    static const struct kind kinds[] = {
        {gpt_megatron_put_model, size_model, pour_model},
        {gpt_megatron_put_shards, size_shards, pour_shards},
    };
    const struct gpt_megatron_output *p = t->data;
    char path[GPT_PATH_BYTES], rank[GPT_PATH_BYTES];

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, t->files[file].name, err));
    snprintf(rank, sizeof(rank), "%s", path);
    *strrchr(rank, '/') = '\0'; /* the plan has put one there */
    GPT_TRY(gpt_path_mkdirs(rank, err));
    return write_parts(t, &kinds[file / p->n_ranks], path, file % p->n_ranks,
                       flags, pour, err);
}

/* The tracker comes last: a root names an iteration only when its directory is
 * whole and on disk. */
static int write_tracker(const struct gpt_target *t, struct gpt_err *err)
{
    const struct gpt_megatron_output *p = t->data;
    char text[32];
    int n = p->released
                ? snprintf(text, sizeof(text), "%s", GPT_MEGATRON_RELEASE)
                : snprintf(text, sizeof(text), "%lld",
                           (long long)t->source->iteration);

    return gpt_small_file_write(t->o.save, GPT_TRACKER, GPT_OUT_FORCE, text,
                                (size_t)n, err);
}

/* The directory of the iteration appears when all of its files are on disk,
 * then the tracker names it: the order that makes a crash harmless. */
int gpt_megatron_write(struct gpt_target *t, gpt_bytes_done *done,
                       void *context, struct gpt_err *err)
{
    const unsigned flags = t->o.force ? GPT_OUT_FORCE : 0;
    struct pour pour = {.done = done, .context = context};
    struct gpt_outdir *dir;
    int status = GPT_OK;

    /* the root stays when this fails: it may hold other iterations */
    GPT_TRY(gpt_path_mkdirs(t->o.save, err));
    GPT_TRY(gpt_outdir_open(&dir, t->path, flags, err));
    GPT_TRY_GOTO(status, gpt_new(&pour.tile, GPT_TILE_BYTES, 1, "tile", err),
                 fail);
    for (int64_t i = 0; status == GPT_OK && i < t->n_files; i++)
        status = write_file(t, gpt_outdir_path(dir), i, flags | GPT_OUT_INSIDE,
                            &pour, err);
    gpt_free(pour.tile);
    if (status != GPT_OK)
        goto fail;
    GPT_TRY(gpt_outdir_commit(dir, err));
    return write_tracker(t, err);
fail:
    gpt_outdir_abort(dir);
    return status;
}
