/* A model of time; see layout_time.h. Start at gpt_layout_time().
 *
 * A layer is its products, each at the share of the peak that large ones reach
 * and no faster than its operands come from memory; attention, at a lower
 * share; and what only moves memory: norms, residual sums, activations. Groups
 * of ranks exchange in rings. What training hides is hidden here, by the same
 * rules: tensor parallel sums beside weight gradients (simulate.c), gradients'
 * sums beside backward, weights beside forward. */
#include "cmd/train/layout_time.h"

#include "base/num.h"
#include "cmd/train/simulate.h"
#include "model/geometry.h"

#include <math.h>

/* Attention in blocks reaches about this part of what large products reach:
 * published figures of FlashAttention 2 on A100. */
#define ATTENTION_SHARE 0.65
/* Rows and columns of a product that one unit of a device computes. Kernels
 * choose among several sizes: what matters is that a product of few tiles
 * leaves units idle. */
#define TILE 128

/* ---- links ---- */

struct link {
    double bandwidth, latency;
};

/* Between `members` ranks that are `stride` apart. Rings over several machines
 * go through the network interface of every member on a machine. */
static struct link link_of(const struct gpt_hardware *h, int64_t members,
                           int64_t stride)
{
    const int64_t near = gpt_max_i64(h->per_node / stride, 1);

    if (members * stride <= h->per_node)
        return (struct link){h->near_bandwidth, h->near_latency};
    return (struct link){
        fmin(h->near_bandwidth,
             h->far_bandwidth * (double)gpt_min_i64(near, members)),
        h->far_latency};
}

/* A gather or a scatter of `bytes`: all but the own part goes around. */
static double ring_seconds(struct link l, int64_t members, double bytes)
{
    if (members == 1)
        return 0;
    return bytes * (double)(members - 1) / (double)members / l.bandwidth +
           l.latency * (double)(members - 1);
}

/* The slowest pair of neighbours counts: a pipeline runs at its pace. */
static struct link pipeline_link(const struct gpt_train_plan *p,
                                 const struct gpt_hardware *h)
{
    const struct gpt_topology *t = &p->topology;

    /* neighbours are tp * dp apart; where the job has several machines, some
     * pair of stages is on two of them */
    return t->world_size <= h->per_node
               ? (struct link){h->near_bandwidth, h->near_latency}
               : (struct link){h->far_bandwidth, h->far_latency};
}

/* ---- a layer ---- */

/* What a layer's time is made of. */
struct device {
    const struct gpt_hardware *h;
    double rate; /* FLOP/s of large products */
    double act;  /* bytes of an activation */
};

/* The type of activations decides the peak and what moves. */
static struct device device_of(const struct gpt_train_plan *p,
                               const struct gpt_hardware *h)
{
    const enum gpt_dtype act = p->replica.exec.act;

    return (struct device){h, h->efficiency * gpt_hardware_peak(h, act),
                           (double)gpt_dtype_bytes(act)};
}

/* What reads and writes, and computes nearly nothing. A kernel that has little
 * to do takes the time to start it. */
static double moving_seconds(const struct device *d, double bytes)
{
    return bytes / d->h->bandwidth + d->h->launch;
}

/* The last round of tiles may leave units idle. */
static double busy_share(const struct device *d, double m, double n)
{
    const double tiles = ceil(m / TILE) * ceil(n / TILE);

    return d->h->units > 0
               ? tiles / (ceil(tiles / d->h->units) * d->h->units)
               : 1;
}

/* (m, k) times (k, n); `out`: bytes of an element of the result that move. */
static double product_seconds(const struct device *d, double m, double n,
                              double k, double out)
{
    const double computing = 2 * m * n * k / (d->rate * busy_share(d, m, n));
    const double bytes = d->act * (m * k + k * n) + out * m * n;

    return fmax(computing, bytes / d->h->bandwidth) + d->h->launch;
}

/* Seconds of a layer, a microbatch: the sums over tensor parallel ranks are not
 * in them. */
struct layer {
    double forward, backward;
    double light; /* what selective recomputation makes again */
};

/* Products of a linear layer of `in` and `out` elements a row. Gradients of
 * weights are added to floats, which are read and written. */
static void add_linear(struct layer *l, const struct device *d, double rows,
                       double in, double out)
{
    l->forward += product_seconds(d, rows, out, in, d->act);
    l->backward += product_seconds(d, rows, in, out, d->act) +
                   product_seconds(d, out, in, rows, 8);
}

/* Floating point operations of attention, forward, a token in a layer: what
 * matrix products and logits leave of the model's. */
static double attention_flops(const struct gpt_config *c, int64_t seq_length)
{
    const struct gpt_widths w = gpt_widths_of(c, 1);
    const double h = (double)w.hidden, layers = (double)c->num_layers;
    const double products = layers * gpt_widths_attention_weights(&w) +
                            h * (double)gpt_widths_feed_forwards(c);

    return (gpt_flops_per_token(c, seq_length) / 3 -
            2 * (products + h * (double)w.vocab)) / layers;
}

/* Width of a feed-forward, of the mean layer, of one of tp ranks. Products of
 * experts are taken for one product of all rows, as wide as a token's experts:
 * their rows are fewer, and their matrices more. */
static double mean_ffn(const struct gpt_config *c, int64_t tp)
{
    return (double)gpt_widths_feed_forwards(c) / (double)c->num_layers /
           (c->gated ? 3 : 2) / (double)tp;
}

/* Products in front of attention: one, or those of latent attention, and moving
 * what they give to its place. */
static void add_before_attention(struct layer *l, const struct device *d,
                                 double rows, const struct gpt_widths *w)
{
    const double hidden = (double)w->hidden, queries = (double)w->attention;
    const double q = (double)w->q_rank, kv = (double)w->kv_rank;

    if (w->kv_rank == 0) {
        add_linear(l, d, rows, hidden, (double)w->qkv);
        return;
    }
    if (w->q_rank > 0)
        add_linear(l, d, rows, hidden, q);
    add_linear(l, d, rows, w->q_rank > 0 ? q : hidden, queries);
    add_linear(l, d, rows, hidden, kv);
    add_linear(l, d, rows, kv, (double)w->kv_up);
    add_linear(l, d, rows, hidden, (double)w->turned);
    const double moved = moving_seconds(
        d, d->act * rows * (queries + (double)(w->kv_up + w->qkv)));
    l->forward += moved;
    l->backward += moved;
}

/* Widths are those of one rank, rows those of the whole microbatch: tensor
 * parallel ranks compute every row with a part of each matrix. What sequence
 * parallel ranks share out, norms and residual sums, has the rows they keep. */
static struct layer layer_of(const struct gpt_train_plan *p,
                             const struct device *d)
{
    const struct gpt_config *c = &p->replica.config;
    const struct gpt_execution *e = &p->replica.exec;
    const int64_t tp = p->topology.size[GPT_TP];
    const struct gpt_widths w = gpt_widths_of(c, tp);
    const struct gpt_rows r =
        gpt_rows_of(e->micro_batch, e->seq_length, tp, e->sequence_parallel);
    const double rows = (double)r.n, hidden = (double)w.hidden;
    const double ffn = mean_ffn(c, tp), ffn_in = c->gated ? 2 * ffn : ffn;
    struct layer l = {.forward = 0};

    add_before_attention(&l, d, rows, &w);
    add_linear(&l, d, rows, (double)w.values, hidden);
    add_linear(&l, d, rows, hidden, ffn_in);
    add_linear(&l, d, rows, ffn, hidden);
    /* five products instead of two in backward: scores are made again */
    const double attention = rows * attention_flops(c, e->seq_length) /
                             ((double)tp * d->rate * ATTENTION_SHARE);
    /* a norm reads the stream and what is added to it, and writes both sums */
    const double norms =
        2 * moving_seconds(d, 4 * d->act * (double)r.kept * hidden);
    const double activation =
        moving_seconds(d, d->act * rows * (ffn_in + ffn));
    const double biases = c->no_linear_bias
                              ? 0
                              : moving_seconds(d, d->act * rows *
                                                      ((double)w.qkv + ffn_in));
    l.light = attention + norms + activation;
    l.forward += attention + norms + activation;
    l.backward += 2.5 * attention + 1.5 * norms + 2 * activation + biases;
    return l;
}

/* One of a layer's sums: an all-reduce of the rows, which sequence parallel
 * ranks make of a scatter and a gather. */
static double sum_seconds(const struct gpt_train_plan *p,
                          const struct gpt_hardware *h)
{
    const struct gpt_execution *e = &p->replica.exec;
    const int64_t tp = p->topology.size[GPT_TP];
    const struct gpt_rows rows =
        gpt_rows_of(e->micro_batch, e->seq_length, 1, false);
    const double bytes =
        (double)gpt_message_bytes(&p->replica.config, rows, e->act);

    return 2 * ring_seconds(link_of(h, tp, 1), tp, bytes) *
           (p->replica.config.parallel_blocks ? 0.5 : 1);
}

/* ---- a chunk ---- */

/* Layers of a chunk that backward computes again, whole. */
static double recomputed_layers(const struct gpt_train_plan *p, double layers)
{
    const struct gpt_execution *e = &p->replica.exec;

    return e->recompute == GPT_RECOMPUTE_UNIFORM ? layers
           : e->recompute == GPT_RECOMPUTE_BLOCK
               ? fmin(layers, (double)e->recompute_layers)
               : 0;
}

/* Logits and loss. Their rows are made in pieces, which costs nothing here. */
static void add_end(struct gpt_simulate_options *s,
                    const struct gpt_train_plan *p, const struct device *d)
{
    const int64_t tp = p->topology.size[GPT_TP];
    const struct gpt_widths w = gpt_widths_of(&p->replica.config, tp);
    const double rows = (double)(p->replica.exec.micro_batch *
                                 p->replica.exec.seq_length);
    const double logits = rows * (double)w.vocab;
    struct layer l = {.forward = 0};

    add_linear(&l, d, rows, (double)w.hidden, (double)w.vocab);
    s->end_forward = l.forward + moving_seconds(d, 2 * d->act * logits);
    s->end_backward = l.backward + moving_seconds(d, d->act * logits);
}

/* Everything but the weights that are gathered. */
static struct gpt_simulate_options times_of(const struct gpt_train_plan *p,
                                            const struct gpt_hardware *h)
{
    const struct gpt_topology *t = &p->topology;
    const struct gpt_execution *e = &p->replica.exec;
    const double n = (double)p->replica.config.num_layers /
                     (double)(t->size[GPT_PP] * t->chunks);
    const struct device d = device_of(p, h);
    const struct layer l = layer_of(p, &d);
    struct gpt_simulate_options s = {
        .sum = sum_seconds(p, h),
        .forward = n * l.forward,
        .backward = n * l.backward,
    };

    /* a layer that is made again leaves out its last sum */
    s.backward += recomputed_layers(p, n) * (l.forward + s.sum);
    if (e->recompute == GPT_RECOMPUTE_SELECTIVE)
        s.backward += n * l.light;
    /* sequence parallel ranks gather two inputs of backward once more */
    if (e->sequence_parallel)
        s.backward += n * s.sum;
    add_end(&s, p, &d);
    if (t->size[GPT_PP] > 1) {
        const struct gpt_rows rows = gpt_rows_of(
            e->micro_batch, e->seq_length, t->size[GPT_TP],
            e->sequence_parallel);
        const struct link l2 = pipeline_link(p, h);

        s.transfer = (double)gpt_message_bytes(&p->replica.config, rows,
                                               e->act) / l2.bandwidth +
                     l2.latency;
    }
    return s;
}

/* Gradients, weights and the update only make a step longer. */
double gpt_layout_floor(const struct gpt_train_plan *p,
                        const struct gpt_hardware *h)
{
    const struct gpt_simulate_options s = times_of(p, h);

    return gpt_simulate_floor(p, &s);
}

/* ---- a step ---- */

/* Sums of gradients that the backward of a rank's chunks does not hide: at
 * least those of the layer that comes last. */
static double exposed_sums(const struct gpt_train_plan *p,
                           const struct gpt_hardware *h, double parameters,
                           double backward)
{
    const int64_t dp = p->topology.size[GPT_DP];
    const struct link l = link_of(h, dp, p->topology.size[GPT_TP]);
    const double scatter = ring_seconds(l, dp, sizeof(float) * parameters);
    const double layers = fmax(1, (double)(p->replica.config.num_layers /
                                           p->topology.size[GPT_PP]));
    const double all =
        p->replica.zero == GPT_ZERO_OFF ? 2 * scatter : scatter;
    double seconds = fmax(all / layers, all - backward * (1 - 1 / layers));

    /* gradients that no rank keeps whole are scattered after each microbatch */
    if (p->replica.zero == GPT_ZERO_2)
        seconds += (double)(p->replica.micro_batches - 1) *
                   fmax(0, scatter - backward);
    return seconds;
}

/* The update reads gradients, and reads and writes weights and two moments. All
 * of it is memory traffic: there is a handful of operations for each eight
 * numbers that move. */
static double update_seconds(const struct gpt_train_plan *p,
                             const struct gpt_hardware *h, double parameters)
{
    const double shards =
        p->replica.zero == GPT_ZERO_OFF
            ? 1
            : (double)p->topology.size[GPT_DP];

    return parameters / shards * (8 * sizeof(float) + 2) / h->bandwidth;
}

/* The word tables of the first and the last stage add up their gradients; then
 * all ranks a few numbers. */
static double last_sums(const struct gpt_train_plan *p,
                        const struct gpt_hardware *h)
{
    const struct gpt_topology *t = &p->topology;
    const struct gpt_widths w =
        gpt_widths_of(&p->replica.config, t->size[GPT_TP]);
    const struct link l = pipeline_link(p, h);
    double seconds = 2 * l.latency * ceil(log2((double)t->world_size));

    if (p->replica.config.tied_embeddings && t->size[GPT_PP] > 1)
        seconds += 2 * ring_seconds(l, 2, sizeof(float) *
                                              (double)(w.vocab * w.hidden));
    return seconds;
}

int gpt_layout_time(const struct gpt_train_plan *p,
                    const struct gpt_hardware *h, int64_t parameters,
                    struct gpt_layout_time *t, struct gpt_err *err)
{
    const struct gpt_topology *topology = &p->topology;
    const double n = (double)parameters, chunks = (double)topology->chunks;
    const int64_t dp = topology->size[GPT_DP];
    struct gpt_simulate_options s = times_of(p, h);
    double played;

    *t = (struct gpt_layout_time){.computing = gpt_simulate_floor(p, &s)};
    GPT_TRY(gpt_simulate_step(p, &s, &played, err));
    t->idle = played - t->computing;
    /* Played once more with weights that arrive meanwhile: what is then longer
     * is what no forward hides. */
    if (p->replica.zero != GPT_ZERO_OFF) {
        const double gathered =
            ring_seconds(link_of(h, dp, topology->size[GPT_TP]), dp,
                         n * (double)gpt_dtype_bytes(p->replica.exec.act));
        double with;

        s.weights = gathered / chunks;
        GPT_TRY(gpt_simulate_step(p, &s, &with, err));
        t->updating = with - played;
        played = with;
    }
    /* Beside the last backward of each chunk: before it gradients still
     * grow. */
    if (dp > 1)
        t->reducing = exposed_sums(p, h, n, chunks * s.backward);
    const double update = update_seconds(p, h, n) + last_sums(p, h);
    t->updating += update;
    t->step = played + t->reducing + update;
    return GPT_OK;
}
