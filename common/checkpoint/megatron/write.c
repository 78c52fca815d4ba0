/* Writing a classic Megatron checkpoint: one file for each rank of the layout,
 * with the parts of the parameters that the rank holds, and one beside it for a
 * distributed optimizer. What goes where is planned (plan.c) and said in
 * pickles (pickle.c) before; here it becomes the parts of a file. Start at
 * gpt_megatron_write(). */
#include "checkpoint/megatron/write.h"

#include "checkpoint/fill.h"
#include "checkpoint/small_file.h"

#include <stdio.h>
#include <string.h>

/* The storages of a file, and what they are made of. */
struct contents {
    int64_t *sizes, n_sizes;
    struct gpt_part *parts;
    int64_t n_parts;
    float scale; /* of the loss: a storage of one number */
};

/* ---- parts ---- */

/* Bytes in memory, which outlive the writing. */
static void add_bytes(struct contents *c, const void *data, int64_t bytes)
{
    if (bytes > 0)
        c->parts[c->n_parts++] =
            (struct gpt_part){.data = data, .bytes = bytes};
}

/* Boxes of a cut have rows of one width, so they follow each other. */
static void add_cut(struct contents *c, const struct gpt_megatron_output *p,
                    const struct gpt_megatron_block *block,
                    const struct gpt_megatron_cut *cut)
{
    const enum gpt_dtype dtype = gpt_megatron_cut_dtype(p, block, cut);

    for (int i = 0; i < cut->n_boxes; i++) {
        struct gpt_part *part = &c->parts[c->n_parts++];

        *part = (struct gpt_part){
            .tensor = p->sources[block->kind][cut->boxes[i].row],
            .dtype = dtype,
            .bytes = (int64_t)gpt_dtype_bytes(dtype)};
        memcpy(part->begin, cut->boxes[i].begin, sizeof(part->begin));
        memcpy(part->shape, cut->boxes[i].shape, sizeof(part->shape));
        for (int d = 0; d < cut->ndim; d++)
            part->bytes *= part->shape[d];
    }
}

/* The model's file, numbered as in its pickle; the loss scale, if there is one,
 * is the last. */
static void list_model(struct contents *c, const struct gpt_target *t,
                       const struct gpt_megatron_rank_plan *r)
{
    const struct gpt_megatron_output *p = t->data;

    for (int b = 0; b < p->n_blocks; b++)
        for (int64_t i = 0; i < r->n; i++) {
            /* the number of a storage follows from that of its cut */
            if (!gpt_megatron_has_cut(&p->blocks[b], &r->cuts[i])) {
                c->sizes[c->n_sizes++] = 0;
                continue;
            }
            c->sizes[c->n_sizes++] =
                r->cuts[i].count *
                (int64_t)gpt_dtype_bytes(
                    gpt_megatron_cut_dtype(p, &p->blocks[b], &r->cuts[i]));
            add_cut(c, p, &p->blocks[b], &r->cuts[i]);
        }
    if (gpt_megatron_scale(t, &c->scale)) {
        c->sizes[c->n_sizes++] = sizeof(c->scale);
        add_bytes(c, &c->scale, sizeof(c->scale));
    }
}

/* The file of a distributed optimizer: three buffers a chunk, all of one
 * length. Parameters are in them from the last to the first. A gap is in front
 * of a parameter, never after the last, and has fewer than 64 elements. */
static void list_shards(struct contents *c, const struct gpt_target *t,
                        const struct gpt_megatron_rank_plan *r)
{
    static const float zeros[64];
    const struct gpt_megatron_output *p = t->data;
    const int64_t size = sizeof(*zeros);

    for (int64_t b = 0; b < GPT_MEGATRON_CHAINS * p->chunks; b++)
        for (int k = 0; k < p->n_shards; k++) {
            const int chain = (int)(b / p->chunks);
            const int64_t v = b % p->chunks;
            int64_t at = 0;

            if (r->elements[chain][v] == 0)
                continue;
            c->sizes[c->n_sizes++] = r->elements[chain][v] * size;
            for (int64_t i = r->first[v + 1] - 1; i >= r->first[v]; i--) {
                if (gpt_megatron_chain_of(&r->cuts[i]) != chain)
                    continue;
                add_bytes(c, zeros, (r->cuts[i].offset - at) * size);
                add_cut(c, p, &p->shards[k], &r->cuts[i]);
                at = r->cuts[i].offset + r->cuts[i].count;
            }
        }
}

/* ---- files ---- */

/* A file of a kind: its pickle, and its contents. */
struct kind {
    int (*put)(struct gpt_pickle_out *o, const struct gpt_target *t,
               int64_t rank, struct gpt_err *err);
    void (*list)(struct contents *c, const struct gpt_target *t,
                 const struct gpt_megatron_rank_plan *r);
};

/* Room for either kind of file: a cut in each block, as its boxes and a gap in
 * front of them. Either kind has less than this. */
static int make_contents(struct contents *c,
                         const struct gpt_megatron_output *p,
                         const struct gpt_megatron_rank_plan *r,
                         struct gpt_err *err)
{
    const int64_t blocks = p->n_blocks + p->n_shards;
    const int64_t sizes =
        (r->n + GPT_MEGATRON_CHAINS * p->chunks) * blocks + 1;
    const int64_t parts = r->n * (GPT_MEGATRON_JOINED + 1) * blocks + 1;

    GPT_TRY(gpt_new(&c->sizes, (size_t)sizes, sizeof(*c->sizes), "sizes", err));
    return gpt_new(&c->parts, (size_t)parts, sizeof(*c->parts), "parts", err);
}

struct place {
    const struct gpt_target *t;
    const char *dir;
};

/* A rank's directory is made inside the temporary one of the iteration. */
static int write_file(void *context, int64_t file, struct gpt_fill *fill,
                      struct gpt_err *err)
{
    const struct place *place = context;
    const struct gpt_target *t = place->t;
    static const struct kind kinds[] = {
        {gpt_megatron_put_model, list_model},
        {gpt_megatron_put_shards, list_shards},
    };
    const struct gpt_megatron_output *p = t->data;
    const struct kind *kind = &kinds[file / p->n_ranks];
    const int64_t rank = file % p->n_ranks;
    char path[GPT_PATH_BYTES], own[GPT_PATH_BYTES];
    struct gpt_pickle_out pickle = {0};
    struct contents c = {.n_parts = 0};
    int status;

    GPT_TRY(gpt_path_join(path, sizeof(path), place->dir, t->files[file].name,
                          err));
    snprintf(own, sizeof(own), "%s", path);
    *strrchr(own, '/') = '\0'; /* the plan has put one there */
    GPT_TRY(gpt_path_mkdirs(own, err));
    GPT_TRY_GOTO(status, kind->put(&pickle, t, rank, err), out);
    GPT_TRY_GOTO(status, make_contents(&c, p, &p->ranks[rank], err), out);
    kind->list(&c, t, &p->ranks[rank]);
    const struct gpt_torch_contents written = {
        .pickle = &pickle,
        .bytes = c.sizes,
        .n = c.n_sizes,
        .parts = c.parts,
        .n_parts = c.n_parts,
    };
    status = gpt_torch_write(fill, path, t->files[file].name,
                             fill->flags | GPT_OUT_INSIDE, &written, err);
out:
    gpt_pickle_out_free(&pickle);
    gpt_free(c.sizes);
    gpt_free(c.parts);
    return status;
}

static int write_files(const struct gpt_target *t, const char *dir,
                       struct gpt_fill *fill, struct gpt_err *err)
{
    struct place place = {t, dir};
    int64_t *bytes;

    GPT_TRY(gpt_new(&bytes, (size_t)t->n_files, sizeof(*bytes), "files", err));
    for (int64_t i = 0; i < t->n_files; i++)
        bytes[i] = t->files[i].bytes;
    const int status = gpt_fill_files(fill, bytes, t->n_files, write_file,
                                      &place, err);
    gpt_free(bytes);
    return status;
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
int gpt_megatron_write(struct gpt_target *t, struct gpt_fill *fill,
                       struct gpt_err *err)
{
    struct gpt_outdir *dir;

    /* the root stays when this fails: it may hold other iterations */
    GPT_TRY(gpt_path_mkdirs(t->o.save, err));
    GPT_TRY(gpt_outdir_open(&dir, t->path, fill->flags, err));
    const int status = write_files(t, gpt_outdir_path(dir), fill, err);
    if (status != GPT_OK) {
        gpt_outdir_abort(dir);
        return status;
    }
    GPT_TRY(gpt_outdir_commit(dir, err));
    return write_tracker(t, err);
}
