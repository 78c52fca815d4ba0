/* The front end of Megatron-LM's classic checkpoints: a row of
 * checkpoint/format.h. What the files mean is megatron.h's; here a directory
 * becomes a source. Start at open_megatron(). */
#include "checkpoint/format.h"
#include "checkpoint/dcp/dcp.h"
#include "checkpoint/huggingface/family.h"
#include "checkpoint/megatron/megatron.h"
#include "checkpoint/run_state.h"
#include "checkpoint/safetensors/entry.h"

/* A root of this format and a native one have the same tracker; the directory
 * that it names decides. */
static bool recognise_megatron(const char *path)
{
    char dir[GPT_PATH_BYTES];

    return gpt_megatron_find(dir, sizeof(dir), path, -1);
}

/* One file a rank. Sizes are those of the files, with RNG states and optimizer
 * state that are not read. */
static int list_ranks(struct gpt_source *s, const struct gpt_megatron *m,
                      struct gpt_err *err)
{
    const int64_t n = gpt_megatron_ranks(m);
    struct gpt_source_file *files =
        gpt_arena_alloc(&s->arena, (size_t)n, sizeof(*files));

    if (!files)
        return gpt_no_memory(err, "names of files");
    for (int64_t i = 0; i < n; i++) {
        struct gpt_source_file *f = &files[s->n_files];

        if (!m->ranks[i].file)
            continue;
        *f = (struct gpt_source_file){
            .name = m->ranks[i].file,
            .bytes = gpt_in_size(m->ranks[i].torch.in),
        };
        for (int64_t v = 0; v < m->ranks[i].n_chunks; v++)
            f->tensors += m->ranks[i].chunks[v].tensors.n;
        s->weight_bytes += f->bytes;
        s->n_files++;
    }
    s->files = files;
    return GPT_OK;
}

/* Files of global tensors. */
static int list_dist(struct gpt_source *s, const struct gpt_megatron *m,
                     struct gpt_err *err)
{
    struct gpt_source_file *files = gpt_arena_alloc(
        &s->arena, (size_t)m->dist->n_files, sizeof(*files));

    if (!files)
        return gpt_no_memory(err, "names of files");
    for (int64_t i = 0; i < m->dist->n_files; i++) {
        files[i] = (struct gpt_source_file){
            .name = m->dist->files[i].name,
            .bytes = gpt_in_size(m->dist->files[i].in),
            .tensors = m->dist->files[i].parts,
        };
        s->weight_bytes += files[i].bytes;
    }
    s->files = files;
    s->n_files = m->dist->n_files;
    return GPT_OK;
}

static int open_megatron(struct gpt_source *s, const char *path,
                         const struct gpt_source_options *o,
                         struct gpt_err *err)
{
    struct gpt_megatron *m;

    GPT_TRY(gpt_megatron_open(&m, path, o->iteration, o->optimizer, err));
    /* from here on close_megatron() frees it, also after a failure */
    s->data = m;
    m->checks_copies = o->verify_later;
    s->dir = m->dir;
    s->config = m->config;
    s->iteration = m->iteration;
    s->tp_size = m->tp_size;
    s->pp_size = m->pp_size;
    s->state = m->state;
    gpt_run_state_take_origin(s);
    s->family = gpt_hf_family_type(gpt_run_state_family(s->state));
    s->left_out = m->left_out;
    s->tensors = m->tensors;
    s->n_tensors = m->n;
    return m->dist ? list_dist(s, m, err) : list_ranks(s, m, err);
}

/* The source's members point into what is closed here. */
static void close_megatron(struct gpt_source *s)
{
    gpt_megatron_close(s->data);
}

/* There are no checksums of files; copies are what tells of another run's file
 * among those of a directory. */
static int check_megatron(const struct gpt_source *s, struct gpt_err *err)
{
    return gpt_megatron_check_copies(s->data, err);
}

/* The tensors of each file, under the names that they have there. */
static int list_megatron(const struct gpt_source *s, gpt_stored_visit *visit,
                         void *context, struct gpt_err *err)
{
    const struct gpt_megatron *m = s->data;

    /* global tensors are in no file of their own */
    for (int64_t i = 0; m->dist && i < m->dist->n; i++) {
        const struct gpt_stored stored =
            gpt_stored_tensor(&m->dist->tensors[i]);

        GPT_TRY(visit(context, &stored, err));
    }
    for (int64_t i = 0; i < gpt_megatron_ranks(m); i++)
        for (int64_t v = 0; v < m->ranks[i].n_chunks; v++) {
            const struct gpt_safetensors *list = &m->ranks[i].chunks[v].tensors;

            for (int64_t k = 0; k < list->n; k++) {
                const struct gpt_stored stored =
                    gpt_stored_entry(&list->tensors[k], m->ranks[i].file);

                GPT_TRY(visit(context, &stored, err));
            }
        }
    return GPT_OK;
}

/* Where ranks are a multiple of query groups, Megatron-LM cuts the rows of the
 * fused matrix into equal parts all the same, and its ranks gather the products
 * of a group's parts (core/transformer/attention.py, since 0.16; older modules
 * have no such ranks). */
bool gpt_megatron_shares_groups(const struct gpt_target_options *o)
{
    const int64_t groups = o->config.num_query_groups;
    const int64_t heads = o->config.num_attention_heads + 2 * groups;

    return o->style != GPT_MEGATRON_LEGACY && o->tp_size > groups &&
           o->tp_size % groups == 0 &&
           heads * o->config.head_size % o->tp_size == 0;
}

/* Each rank has a part of every expert that it has, where native ranks have
 * whole ones. */
static void divide(const struct gpt_target_options *o, struct gpt_config *c)
{
    if (gpt_megatron_shares_groups(o))
        c->num_query_groups = o->tp_size;
    if (c->num_experts > 0)
        c->num_experts = o->tp_size;
}

/* Iterations are added to a root as native ones are, so a run's directory can
 * be written again. Dummy rows of the vocabulary are stored. */
const struct gpt_format gpt_format_megatron = {
    .name = "megatron",
    .title = "megatron",
    .stores_padding = true,
    .keeps_state = true,
    .shards_optimizer = true,
    .shares_dir = true,
    .shares_experts = true,
    .styles = gpt_megatron_styles,
    .recognises = recognise_megatron,
    .open = open_megatron,
    .close = close_megatron,
    .check = check_megatron,
    .list = list_megatron,
    .divide = divide,
    .plan = gpt_megatron_plan,
    .free_plan = gpt_megatron_free_plan,
    .write = gpt_megatron_write,
};
