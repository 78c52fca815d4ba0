/* What a plan costs; see estimate.h. Start at gpt_estimate_print(). Memory is
 * in estimate_memory.c, calls of communicators in estimate_calls.c. */
#include "cmd/train/estimate.h"

#include "base/log.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>

/* ---- traffic ---- */

static const char *link_name(enum gpt_link link)
{
    static const char *const names[GPT_N_LINKS] = {
        [GPT_LINK_TENSOR] = "tensor parallel",
        [GPT_LINK_PIPELINE] = "pipeline",
        [GPT_LINK_DATA] = "data parallel",
        [GPT_LINK_TIED] = "tied embedding",
    };

    return names[link];
}

static struct gpt_rows rows_of(const struct gpt_replica_options *o,
                               const struct gpt_layout *layout)
{
    const struct gpt_execution *e = &o->exec;

    return gpt_rows_of(e->micro_batch, e->seq_length, layout->size[GPT_TP],
                       e->sequence_parallel);
}

/* How many layers of a stage backward computes again. Selective recomputation
 * does not count: norms, the core of attention and GELU exchange nothing. */
static int64_t count_recomputed(const struct gpt_replica_options *o,
                                const struct gpt_layout *layout)
{
    int64_t n = 0;

    for (int64_t i = 0; i < layout->chunks; i++) {
        const int64_t layers = layout->chunk[i].n_layers;

        if (o->exec.recompute == GPT_RECOMPUTE_UNIFORM)
            n += layers;
        else if (o->exec.recompute == GPT_RECOMPUTE_BLOCK)
            n += gpt_min_i64(layers, o->exec.recompute_layers);
    }
    return n;
}

/* Layers of all chunks of a stage. */
static int64_t count_layers(const struct gpt_layout *layout)
{
    int64_t n = 0;

    for (int64_t i = 0; i < layout->chunks; i++)
        n += layout->chunk[i].n_layers;
    return n;
}

/* What a rank sends of `bytes` in an all-gather or a reduce-scatter: all but
 * its own part. An all-reduce is both. */
static double rank_share(double bytes, int64_t ranks)
{
    return bytes * (double)(ranks - 1) / (double)ranks;
}

/* How often a microbatch's (N, C) moves. Without sequence parallelism each of
 * the two sums forward and backward moves it twice; with it, gathers and
 * scatters move it as often, and backward gathers two inputs again. */
static double tensor_moves(const struct gpt_replica_options *o,
                           const struct gpt_layout *layout)
{
    const bool sequence = o->exec.sequence_parallel;
    double each = sequence ? 4 + 6 : 4 + 4, again = sequence ? 3 : 2;

    /* blocks side by side are one sum of forward, which recomputation leaves
     * out */
    if (o->config.parallel_blocks) {
        each -= sequence ? 1 : 2;
        again -= sequence ? 1 : 2;
    }
    double moves = each * (double)count_layers(layout) +
                   again * (double)count_recomputed(o, layout);
    /* forward of the embedding and backward of the output layer are sums, the
     * other direction of each gathers where rows are cut */
    if (layout->has_embedding)
        moves += 2;
    if (layout->has_output)
        moves += 2;
    return moves;
}

/* Statistics of a softmax over parts of the vocabulary: every rank sends its
 * own to all others. */
static double loss_bytes(const struct gpt_rows *rows,
                         const struct gpt_layout *layout)
{
    if (!layout->has_output)
        return 0;
    return (double)(GPT_XENT_STATS * rows->n * (int64_t)sizeof(float) *
                    (layout->size[GPT_TP] - 1));
}

/* How many messages of a microbatch a stage sends: the output of each chunk
 * that another stage follows, and the gradient of each chunk's input. */
static int64_t count_messages(const struct gpt_layout *layout)
{
    if (layout->size[GPT_PP] == 1)
        return 0;
    return 2 * layout->chunks - layout->has_embedding - layout->has_output;
}

/* Gradients over data parallel ranks in a step, bucket by bucket as they are
 * sent: padding of buckets is sent, too. */
static double data_bytes(const struct gpt_replica_options *o,
                         const struct gpt_flat *flat, int64_t ranks)
{
    double bytes = 0;

    if (ranks == 1)
        return 0;
    for (int64_t b = 0; b < flat->n_buckets; b++) {
        const struct gpt_bucket *bucket = &flat->buckets[b];
        const double n = (double)(bucket->end - bucket->begin);
        /* ZeRO-2 keeps no gradients of layers between microbatches: they are
         * scattered after each. Buckets outside of layers are summed once a
         * step. */
        const bool each = o->zero == GPT_ZERO_2 && bucket->layer >= 0;
        const int64_t times = each ? o->micro_batches : 1;

        /* gradients are float; a distributed optimizer then gathers weights
         * in the type that is computed with */
        if (flat->shards == 1)
            bytes += 2 * rank_share(n * sizeof(float), ranks);
        else
            bytes += rank_share(n * sizeof(float), ranks) * (double)times +
                     rank_share(n * (double)gpt_dtype_bytes(o->exec.act),
                                ranks);
    }
    return bytes;
}

/* The two copies of a tied word table add their gradients: an all-reduce over
 * two ranks, in which each sends all of it once. */
static double tied_bytes(const struct gpt_replica_options *o,
                         const struct gpt_layout *layout)
{
    const struct gpt_widths w = gpt_widths_of(&o->config, layout->size[GPT_TP]);

    if (!o->config.tied_embeddings || layout->size[GPT_PP] == 1 ||
        layout->has_embedding == layout->has_output)
        return 0;
    return (double)(w.vocab * w.hidden) * sizeof(float);
}

/* Sequence parallel ranks each have a part of the gradients of norms and of
 * some biases, tensor parallel ranks of those of heads' norms: bytes of their
 * sum, over this rank's shard. */
static double partial_bytes(const struct gpt_replica_options *o,
                            const struct gpt_flat *flat, int64_t tp_size)
{
    double n = 0;

    for (int64_t i = 0; i < flat->n; i++) {
        if (gpt_flat_is_partial(flat, &flat->slices[i],
                                o->exec.sequence_parallel))
            n += (double)flat->slices[i].count;
    }
    /* The sum is an all-reduce, which sends each part twice: as a
     * reduce-scatter, then as an all-gather. */
    return 2 * rank_share(n / (double)flat->shards * sizeof(float), tp_size);
}

/* Muon's iteration over matrices that tensor parallel ranks share: sums of
 * squares, then a square matrix a step, which is an all-reduce each. */
static double muon_sum_bytes(const struct gpt_replica_options *o,
                             const struct gpt_flat *flat, int64_t tp_size)
{
    if (o->optimizer.kind != GPT_MUON)
        return 0;
    return 2 * rank_share(gpt_muon_sums(&o->optimizer.muon, flat) *
                              sizeof(float),
                          tp_size);
}

/* The momentum of layers, where data parallel ranks keep shards of it. */
static double muon_gather_bytes(const struct gpt_replica_options *o,
                                const struct gpt_flat *flat)
{
    double n = 0;

    if (o->optimizer.kind != GPT_MUON)
        return 0;
    for (int64_t b = 0; b < flat->n_buckets; b++)
        if (gpt_muon_gathers(flat, b))
            n += (double)(flat->buckets[b].end - flat->buckets[b].begin);
    return rank_share(n * sizeof(float), flat->shards);
}

/* All microbatches of a step over the tensor parallel ranks. The block is the
 * one of all rows, whichever of its rows a rank keeps: gathers and scatters
 * move the whole. */
static double tensor_bytes(const struct gpt_replica_options *o,
                           const struct gpt_layout *layout, double m)
{
    const struct gpt_rows rows = rows_of(o, layout), whole = {rows.n, rows.n};
    const int64_t block = gpt_message_bytes(&o->config, whole, o->exec.act);

    return m * (tensor_moves(o, layout) *
                    rank_share((double)block, layout->size[GPT_TP]) +
                loss_bytes(&rows, layout));
}

/* Messages have the rows that a rank keeps: sequence parallel ranks of two
 * stages send each other their parts. */
static double pipeline_bytes(const struct gpt_replica_options *o,
                             const struct gpt_layout *layout, double m)
{
    const int64_t message =
        gpt_message_bytes(&o->config, rows_of(o, layout), o->exec.act);

    return m * (double)count_messages(layout) * (double)message;
}

/* Bytes that a rank of the stage sends in the largest step. */
static int estimate_traffic(const struct gpt_train_plan *plan, int64_t pp_rank,
                            double bytes[GPT_N_LINKS], struct gpt_err *err)
{
    const struct gpt_replica_options *o = &plan->replica;
    const double m = (double)gpt_max_i64(o->micro_batches, 1);
    struct gpt_param_table table;
    struct gpt_layout layout;
    struct gpt_flat flat = {0};
    int status;

    /* Tensor parallel rank 0 represents its stage: it holds no less than the
     * others. */
    GPT_TRY(gpt_train_layout(plan, 0, pp_rank, &layout, err));
    GPT_TRY(gpt_params_build(&table, &o->config, err));
    GPT_TRY_GOTO(status, gpt_flat_build(&flat, &table, &layout, err), out);
    bytes[GPT_LINK_TENSOR] = tensor_bytes(o, &layout, m) +
                             partial_bytes(o, &flat, layout.size[GPT_TP]) +
                             muon_sum_bytes(o, &flat, layout.size[GPT_TP]);
    bytes[GPT_LINK_PIPELINE] = pipeline_bytes(o, &layout, m);
    bytes[GPT_LINK_DATA] = data_bytes(o, &flat, plan->topology.size[GPT_DP]) +
                           muon_gather_bytes(o, &flat);
    bytes[GPT_LINK_TIED] = tied_bytes(o, &layout);
out:
    gpt_flat_free(&flat);
    gpt_params_free(&table);
    return status;
}

/* Stages are taken as equally long and transfers as free. gpt_simulate() plays
 * the schedule with times instead, and shows what this formula leaves out. */
double gpt_estimate_bubble(const struct gpt_train_plan *plan)
{
    const struct gpt_topology *t = &plan->topology;

    /* the first microbatch takes P - 1 steps to reach the last stage, and its
     * gradient as many back; V chunks make each step a V-th as long */
    return (double)(t->size[GPT_PP] - 1) /
           (double)(t->chunks * gpt_max_i64(plan->replica.micro_batches, 1));
}

/* ---- what is printed ---- */

/* Prints one row of the table. The columns are the kinds that a change of
 * layout moves; all others are one sum. */
static void print_memory(int64_t first, int64_t last, int64_t parameters,
                         const struct gpt_memory *memory)
{
    static const enum gpt_memory_kind columns[] = {
        GPT_MEM_PARAMETERS, GPT_MEM_GRADIENTS, GPT_MEM_OPTIMIZER,
        GPT_MEM_ACTIVATIONS};
    char stages[48], text[32], line[160] = "";
    double rest = gpt_memory_total(memory); /* what no column shows */

    /* A format may use fewer arguments than follow it, so that one call serves
     * both forms. */
    snprintf(stages, sizeof(stages),
             first == last ? "%lld" : "%lld to %lld", (long long)first,
             (long long)last);
    for (size_t i = 0; i < GPT_COUNT(columns); i++) {
        const double bytes = (double)memory->bytes[columns[i]];
        size_t n = strlen(line);

        snprintf(line + n, sizeof(line) - n, " %12s",
                 gpt_text_bytes(text, bytes));
        rest -= bytes;
    }
    char other[32];
    gpt_log_line("   %-12s %14lld%s %12s %12s", stages, (long long)parameters,
                 line, gpt_text_bytes(other, rest),
                 gpt_text_bytes(text, gpt_memory_total(memory)));
}

/* Neighbouring stages with equal figures share a line. Stages differ where one
 * has an end of the model, or where an earlier one keeps more microbatches in
 * flight. */
static int print_stages(const struct gpt_train_plan *plan,
                        struct gpt_backend *be, struct gpt_err *err)
{
    const int64_t stages = plan->topology.size[GPT_PP];
    struct gpt_memory memory, next;
    int64_t parameters, next_parameters, first = 0;

    gpt_log_line(" > memory of a rank, by pipeline stage:");
    gpt_log_line("   %-12s %14s %12s %12s %12s %12s %12s %12s", "stage",
                 "parameters", "weights", "gradients", "optimizer",
                 "activations", "other", "total");
    GPT_TRY(gpt_estimate_memory(plan, be, 0, &memory, &parameters, err));
    for (int64_t p = 1; p < stages; p++) {
        GPT_TRY(
            gpt_estimate_memory(plan, be, p, &next, &next_parameters, err));
        if (memcmp(&memory, &next, sizeof(next)) == 0 &&
            parameters == next_parameters)
            continue;
        print_memory(first, p - 1, parameters, &memory);
        memory = next;
        parameters = next_parameters;
        first = p;
    }
    print_memory(first, stages - 1, parameters, &memory);
    return GPT_OK;
}

/* Prints the traffic of the stage that sends most. A step waits for its slowest
 * rank, so that one stage is enough. */
static int print_traffic(const struct gpt_train_plan *plan,
                         struct gpt_err *err)
{
    double most[GPT_N_LINKS] = {0}, most_sum = -1;
    int64_t busiest = 0;
    char text[32];

    for (int64_t p = 0; p < plan->topology.size[GPT_PP]; p++) {
        double bytes[GPT_N_LINKS], sum = 0;

        GPT_TRY(estimate_traffic(plan, p, bytes, err));
        for (int i = 0; i < GPT_N_LINKS; i++)
            sum += bytes[i];
        if (sum <= most_sum)
            continue;
        busiest = p;
        most_sum = sum;
        memcpy(most, bytes, sizeof(most));
    }
    gpt_log_line(" > bytes that a rank of stage %lld sends in a step:",
                 (long long)busiest);
    for (int i = 0; i < GPT_N_LINKS; i++)
        gpt_log_line("   %-16s %20.0f  %s",
                     link_name((enum gpt_link)i), most[i],
                     gpt_text_bytes(text, most[i]));
    return GPT_OK;
}

/* Says how far a device would carry this plan, when its size is known. */
static int print_fit(const struct gpt_train_plan *plan, struct gpt_backend *be,
                     double limit, struct gpt_err *err)
{
    int64_t micro_batch;
    char text[32];

    if (limit <= 0)
        return GPT_OK;
    GPT_TRY(gpt_estimate_fit(plan, be, limit, &micro_batch, err));
    gpt_text_bytes(text, limit);
    if (micro_batch == 0)
        gpt_log_line(" > no micro batch fits into %s a rank", text);
    else
        gpt_log_line(" > the largest micro batch that fits into %s a rank: "
                     "%lld",
                     text, (long long)micro_batch);
    return GPT_OK;
}

int gpt_estimate_print(const struct gpt_train_plan *plan,
                       struct gpt_backend *be, double limit,
                       struct gpt_err *err)
{
    const struct gpt_config *c = &plan->replica.config;
    const int64_t t = plan->replica.exec.seq_length;

    GPT_TRY(print_stages(plan, be, err));
    GPT_TRY(print_traffic(plan, err));
    gpt_log_line(" > pipeline bubble: %.4f of the time of computing, "
                 "(P - 1) / (V m)",
                 gpt_estimate_bubble(plan));
    /* The work of a step is divided evenly here. Recomputation is not counted:
     * as in Megatron-LM, these are the operations of the model. */
    gpt_log_line(" > a step computes %.4g floating point operations a rank",
                 gpt_flops_per_token(c, t) * (double)t *
                     (double)plan->rampup.global_batch /
                     (double)plan->topology.world_size);
    return print_fit(plan, be, limit, err);
}
