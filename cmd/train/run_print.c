/* What a run prints of itself before its first step. */
#include "cmd/train/run_parts.h"

#include "base/log.h"
#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 64 }; /* ranks whose parameters are listed one by one */

/* gpt-launch speaks torchrun's protocol, and is known by the name of its runs;
 * ranks of a plan were started by nothing. */
static const char *launcher_name(const struct gpt_run *r)
{
    const char *id = getenv("TORCHELASTIC_RUN_ID");

    if (r->planned)
        return "planned";
    return id && strcmp(id, "gpt-launch") == 0 ? id : r->world->launch.launcher;
}

/* What was decided is printed, not what was asked for: sharding and sequence
 * parallelism may be off for want of other ranks. */
static void print_ranks(const struct gpt_run *r)
{
    static const char *const shardings[] = {
        [GPT_ZERO_OFF] = "",
        [GPT_ZERO_1] = ", distributed optimizer",
        [GPT_ZERO_2] = ", distributed optimizer and gradients",
    };
    const struct gpt_topology *t = &r->plan.topology;

    if (r->o->sequence_parallel && !r->plan.replica.exec.sequence_parallel)
        gpt_log_line(" > sequence parallelism is off: it needs "
                     "--tensor-model-parallel-size of at least 2");
    if (gpt_run_is_alone(r))
        return;
    gpt_log_line(" > %lld ranks (%s): tensor %lld, pipeline %lld x %lld, "
                 "data %lld%s%s; through %s",
                 (long long)t->world_size, launcher_name(r),
                 (long long)t->size[GPT_TP], (long long)t->size[GPT_PP],
                 (long long)t->chunks, (long long)t->size[GPT_DP],
                 r->plan.replica.exec.sequence_parallel
                     ? ", sequence parallel"
                     : "",
                 shardings[r->plan.replica.zero], r->carrier);
}

/* Logs which passes become CUDA graphs: those whose operations are of this rank
 * alone. */
static void print_graphs(const struct gpt_run *r)
{
    const struct gpt_replica_options *o = &r->plan.replica;

    if (!o->exec.record)
        return;
    if (!r->be->record_begin && !gpt_run_is_absent(r))
        gpt_log_line(" > CUDA graphs are off: device %s has none", r->be->name);
    else if (o->layout.size[GPT_TP] > 1)
        gpt_log_line(" > CUDA graphs are off: tensor parallel ranks exchange "
                     "within a pass");
    else if (o->overlap_gather)
        gpt_log_line(" > CUDA graphs are off: gradients and weights are "
                     "exchanged within passes");
    else if (r->plan.topology.size[GPT_DP] > 1)
        gpt_log_line(" > CUDA graphs: of forward; gradients are summed over "
                     "ranks within backward");
    else
        gpt_log_line(" > CUDA graphs: of forward and of backward");
}

/* Rank 0 computes what every rank holds: it follows from the layout. Where
 * there are very many ranks, the first of each tensor parallel group is shown;
 * the others of it hold as much. */
static int print_parameters(const struct gpt_run *r, struct gpt_err *err)
{
    const int64_t *size = r->plan.topology.size;
    const int64_t parts = size[GPT_PP] * size[GPT_TP];
    const int64_t each = parts > SHOWN ? size[GPT_TP] : 1;

    for (int64_t i = 0; i < parts; i += each) {
        const int64_t tp_rank = i % size[GPT_TP], pp_rank = i / size[GPT_TP];
        struct gpt_layout layout;
        struct gpt_flat flat;

        GPT_TRY(gpt_train_layout(&r->plan, tp_rank, pp_rank, &layout, err));
        GPT_TRY(gpt_flat_build(&flat, &r->replica->table, &layout, err));
        gpt_log_line(" > number of parameters on (tensor, pipeline) model "
                     "parallel rank (%lld, %lld): %lld",
                     (long long)tp_rank, (long long)pp_rank,
                     (long long)flat.count);
        gpt_flat_free(&flat);
    }
    return GPT_OK;
}

/* Which products are rounded, since the type of activations does not tell. */
static void print_fp8(const struct gpt_run *r)
{
    const struct gpt_fp8_layers *fp8 = &r->plan.replica.exec.fp8;

    if (!r->o->fp8_format)
        return;
    gpt_log_line(" > factors of eight bits: %s, scaled by tensor, in layers "
                 "%lld to %lld of %lld%s",
                 r->o->fp8_format, (long long)fp8->first + 1,
                 (long long)fp8->end,
                 (long long)r->plan.replica.config.num_layers,
                 r->be->host_memory ? "; rounded and multiplied as bf16" : "");
}

int gpt_run_print_model(const struct gpt_run *r,
                        const struct gpt_memory *memory, struct gpt_err *err)
{
    const struct gpt_config *c = &r->plan.replica.config;
    char text[256], has[32], gets[32];

    if (!gpt_run_is_first(r))
        return GPT_OK;
    if (gpt_run_is_absent(r))
        snprintf(text, sizeof(text),
                 "%s, of which none is opened: of its %s a run gets %s",
                 r->absent.name, gpt_text_bytes(has, r->absent_has.total),
                 gpt_text_bytes(gets, r->absent_has.memory));
    else
        r->be->describe(r->be, text, sizeof(text));
    gpt_log_line(" > device: %s", text);
    print_ranks(r);
    print_graphs(r);
    print_fp8(r);
    gpt_log_line(" > padded vocab (size: %lld) with %lld dummy tokens "
                 "(new size: %lld)",
                 (long long)c->vocab_size, (long long)r->plan.vocab_dummies,
                 (long long)c->padded_vocab_size);
    GPT_TRY(print_parameters(r, err));
    gpt_log_line("> learning rate decay style: %s", r->o->lr_decay_style);
    gpt_log_line(" > micro batch size: %lld, global batch size: %lld, "
                 "steps: %lld, samples: %lld",
                 (long long)r->o->micro_batch_size,
                 (long long)r->plan.rampup.global_batch,
                 (long long)r->plan.train_iters,
                 (long long)r->plan.train_samples);
    gpt_log_line(gpt_run_is_alone(r) ? " > memory:" : " > memory of rank 0:");
    gpt_memory_print(memory);
    return GPT_OK;
}
