/* The router of experts: which experts a token has, the order of pairs by
 * experts, the backward with its two losses, and steps of biases. A warp has a
 * token, whose scores are in shared memory. Start at cuda_route(). */
#include "cuda/device.cuh"
#include "cuda/sort.cuh"

enum { LANES = 32, WARPS = 8, THREADS = WARPS * LANES };

/* Warps of a block, each with a token and so many floats of shared memory, of which there are 32
 * KiB on every GPU. */
static int64_t warps_of(int64_t floats)
{
    return max(min(8192 / floats, (int64_t)WARPS), (int64_t)1);
}

/* Puts a kernel for N tokens of E experts on the queue; room: floats of a token for each expert. */
template <class... P, class... A>
static void launch_tokens(struct gpt_queue *q, void (*kernel)(P...), const struct gpt_router *op,
                          int64_t room, A... args)
{
    const int64_t warps = warps_of(room * op->e);
    const size_t each = (size_t)(room * warps) * sizeof(float);

    if (cuda_fits(q, kernel, "routers", op->e, each))
        launch(q, kernel, cuda_blocks(op->n, warps), (unsigned)warps * LANES,
               (size_t)op->e * each, args...);
}

/* What each expert has there: a score, and what it is compared by, or the score's gradient; what
 * its group is compared by, where there are groups. */
enum { ROOM = 2, ROOM_GROUPS = 3 };

/* The warp's floats, so many. */
static __device__ inline float *own_room(int floats)
{
    return dynamic_floats() + threadIdx.x / LANES * floats;
}

static __device__ inline int64_t own_token()
{
    return (int64_t)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
}

/* The largest of a token's e logits, and scores from them; each lane writes those that it reads
 * again. Softmax keeps the largest logit out of the exponential. */
static __device__ float score(float *scores, const float *logits, int e, bool sigmoid)
{
    float most = -INFINITY, sum = 0;

    for (int i = threadIdx.x % LANES; i < e; i += LANES)
        most = fmaxf(most, logits[i]);
    most = warp_max(most);
    for (int i = threadIdx.x % LANES; i < e; i += LANES) {
        scores[i] = sigmoid ? 1 / (1 + expf(-logits[i])) : expf(logits[i] - most);
        sum += scores[i];
    }
    sum = warp_sum(sum);
    for (int i = threadIdx.x % LANES; i < e && !sigmoid; i += LANES)
        scores[i] /= sum;
    return most;
}

/* An expert, and the number by which experts are ordered. */
struct candidate {
    float by;
    int expert;
};

/* True when a goes before b: NaN goes last, and of equal numbers the smaller expert first. */
static __device__ inline bool goes_before(const candidate &a, const candidate &b)
{
    const bool number_a = a.by == a.by, number_b = b.by == b.by;

    if (number_a != number_b)
        return number_a;
    return a.by > b.by || (!(a.by < b.by) && a.expert < b.expert);
}

/* Goes before all others. */
static __device__ inline candidate before_all() { return {INFINITY, -1}; }

/* The first of e candidates after `last`; not those whose number in `out` is negative, unless that
 * is NULL. */
static __device__ candidate next_of(const float *by, int e, const candidate &last,
                                    const float *out = NULL)
{
    candidate best = {NAN, INT32_MAX};

    for (int i = threadIdx.x % LANES; i < e; i += LANES) {
        const candidate here = {by[i], i};

        if (out && out[i] < 0)
            continue;
        if (goes_before(last, here) && goes_before(here, best))
            best = here;
    }
#pragma unroll
    for (int lanes = LANES / 2; lanes; lanes /= 2) {
        const candidate other = {__shfl_xor_sync(ALL_LANES, best.by, lanes),
                                 __shfl_xor_sync(ALL_LANES, best.expert, lanes)};

        if (goes_before(other, best))
            best = other;
    }
    return best;
}

/* What a token's scores are divided by, which sum up to this. */
static __device__ inline float divisor(const struct gpt_router &op, float sum)
{
    return op.whole ? 1 : op.sigmoid ? sum + GPT_ROUTER_LEAST : sum;
}

/* Makes the scores of experts negative that are of other groups than the token's. strength: room
 * for a float a group. */
static __device__ void leave_groups(const struct gpt_router &op, float *scores, const float *by,
                                    float *strength)
{
    const int groups = (int)op.groups, size = (int)op.e / groups, lane = threadIdx.x % LANES;
    /* one alone is compared by what experts are; sums are of scores */
    const float *of = op.bias || op.group_best == 1 ? by : scores;
    candidate last;

    for (int g = 0; g < groups; g++) {
        float sum = 0;

        last = before_all();
        for (int i = 0; i < op.group_best; i++) {
            last = next_of(of + g * size, size, last);
            sum += last.by;
        }
        if (lane == 0)
            strength[g] = sum;
    }
    __syncwarp();
    last = before_all();
    for (int i = 0; i < op.group_topk; i++)
        last = next_of(strength, groups, last);
    for (int i = lane; i < op.e; i += LANES)
        if (goes_before(last, {strength[i / size], i / size}))
            scores[i] = -1;
    __syncwarp();
}

template <class T>
static __global__ void __launch_bounds__(THREADS) choose(struct gpt_router op)
{
    const bool grouped = op.groups > 1;
    const int e = (int)op.e, k = (int)op.k, lane = threadIdx.x % LANES;
    const int64_t n = own_token();
    float *scores = own_room((grouped ? ROOM_GROUPS : ROOM) * e), *by = scores + e, sum = 0;

    if (n >= op.n)
        return; /* the whole warp */
    const float *logits = op.logits + n * e;
    int32_t *expert = op.expert + n * k;
    score(scores, logits, e, op.sigmoid);
    for (int i = lane; i < e; i += LANES)
        by[i] = op.bias ? scores[i] + to_float(((const T *)op.bias)[i]) : logits[i];
    __syncwarp();
    if (grouped)
        leave_groups(op, scores, by, by + e);
    candidate last = before_all();
    for (int i = 0; i < k; i++) {
        last = next_of(by, e, last, grouped ? scores : NULL);
        sum += scores[last.expert];
        if (lane == i % LANES)
            expert[i] = last.expert;
    }
    sum = divisor(op, sum);
    /* a lane has written the experts that it reads */
    for (int i = lane; i < k; i += LANES)
        op.weight[n * k + i] = scores[expert[i]] / sum * op.scaling;
}

/* Where pairs went, once they are sorted by expert. */
static __global__ void __launch_bounds__(THREADS)
    place_pairs(struct gpt_router op, struct cuda_sorted sorted)
{
    const int pairs = (int)(op.n * op.k), p = blockIdx.x * THREADS + threadIdx.x;

    if (p >= pairs)
        return;
    const int32_t expert = sorted.keys[p], from = sorted.from[p];
    op.source[p] = from;
    op.place[from] = p;
    /* experts without tokens begin where the next one does */
    for (int i = p ? sorted.keys[p - 1] + 1 : 0; i <= expert; i++)
        op.begin[i] = p;
    for (int i = expert + 1; p == pairs - 1 && i <= op.e; i++)
        op.begin[i] = pairs;
}

void cuda_route(struct gpt_queue *q, const struct gpt_router *op)
{
    const int64_t pairs = op->n * op->k;
    struct cuda_list list = {op->expert, 0, (int32_t)op->e, true};
    struct cuda_sorted sorted;

    if (!cuda_ready(q, "route", op->act))
        return;
    if (!pairs) {
        cuda_check(q, cudaMemsetAsync(op->begin, 0, (size_t)(op->e + 1) * sizeof(int32_t),
                                      q->stream));
        return;
    }
    with_type(op->act, [&](auto type) {
        launch_tokens(q, choose<decltype(type)>, op, op->groups > 1 ? ROOM_GROUPS : ROOM, *op);
    });
    void *work = cuda_work(q, gpu_sort_scratch(pairs));
    if (!work)
        return;
    cuda_sort(q, &sorted, &list, 1, pairs, work);
    launch(q, place_pairs, cuda_blocks(pairs, THREADS), THREADS, 0, *op, sorted);
}

/* ---- backward ---- */

/* What a token's backward takes. Where there are losses: share (1), in device memory, how much
 * they count; aux, z: times what a token adds to a loss. */
struct backward {
    struct gpt_router op;
    const float *dweight, *scale, *share;
    float aux, z;
    float *losses; /* (blocks, 2); NULL: there are none */
};

/* How much the tokens' losses count together. One block: the order of the sum depends on n
 * alone. */
static __global__ void __launch_bounds__(THREADS)
    sum_weights(float *share, const float *weights, int64_t n)
{
    double sum[1] = {0};

    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        sum[0] += (double)weights[i];
    block_sum(sum);
    if (threadIdx.x == 0)
        *share = (float)sum[0];
}

/* Adds the gradient of the weights to d: with w = s / S, dS = -sum dw w / S. */
static __device__ void weights_back(const backward &p, float *d, const float *scores, int64_t n)
{
    const int32_t *expert = p.op.expert + n * p.op.k;
    const float *dweight = p.dweight + n * p.op.k;
    float sum = 0, dot = 0;

    for (int i = 0; i < p.op.k; i++)
        sum += scores[expert[i]];
    sum = divisor(p.op, sum);
    for (int i = 0; i < p.op.k && !p.op.whole; i++)
        dot += dweight[i] * scores[expert[i]] / sum;
    /* a token's experts differ from each other, so that lanes do */
    for (int i = threadIdx.x % LANES; i < p.op.k; i += LANES)
        d[expert[i]] += p.op.scaling * (dweight[i] - dot) / sum;
}

/* d becomes the gradient of the scores by the loss that spreads tokens; returns the token's part. A
 * share of an expert costs how many pairs the expert has: whole numbers, whose differences from
 * the mean cost are small. */
static __device__ float spread_back(const backward &p, float by, float *d, const float *scores,
                                    int e)
{
    double sum = 0, cost = 0;

    for (int i = threadIdx.x % LANES; i < e && p.aux == 0; i += LANES)
        d[i] = 0;
    if (p.aux == 0)
        return 0;
    for (int i = threadIdx.x % LANES; i < e; i += LANES) {
        sum += (double)scores[i];
        cost += (double)scores[i] * (p.op.begin[i + 1] - p.op.begin[i]);
    }
    sum = warp_sum(sum);
    cost = warp_sum(cost);
    sum = 1 / (p.op.sigmoid ? sum + (double)GPT_ROUTER_LEAST : sum);
    cost *= sum;
    for (int i = threadIdx.x % LANES; i < e; i += LANES) {
        const double above = p.op.begin[i + 1] - p.op.begin[i] - cost;

        d[i] = by == 0 ? 0 : (float)((double)by * above * sum);
    }
    return (float)cost;
}

/* The logarithm of the sum of exponentials. */
static __device__ float log_sum(const float *logits, int e, float most)
{
    float sum = 0;

    for (int i = threadIdx.x % LANES; i < e; i += LANES)
        sum += expf(logits[i] - most);
    return most + logf(warp_sum(sum));
}

/* From scores to logits, to which the loss of large ones is added; by: times its slope. */
template <class T>
static __device__ void logits_back(const backward &p, T *dlogits, float by, float lse,
                                   const float *d, const float *scores, const float *logits,
                                   int e)
{
    float dot = 0;

    for (int i = threadIdx.x % LANES; i < e; i += LANES)
        dot += d[i] * scores[i];
    dot = warp_sum(dot);
    for (int i = threadIdx.x % LANES; i < e; i += LANES) {
        float x = p.op.sigmoid ? d[i] * scores[i] * (1 - scores[i]) : (d[i] - dot) * scores[i];

        if (by != 0)
            x += by * 2 * lse * expf(logits[i] - lse);
        dlogits[i] = from_float<T>(x);
    }
}

/* Warps past the last token have none, and meet the block's barriers. */
template <class T>
static __global__ void __launch_bounds__(THREADS) route_back(backward p, T *dlogits)
{
    const int64_t n = own_token();
    const int e = n < p.op.n ? (int)p.op.e : 0;
    float *scores = own_room(ROOM * (int)p.op.e), *d = scores + p.op.e;
    const float share = p.losses ? *p.share : 0, by = share * (p.scale ? *p.scale : 1);
    float losses[2] = {0, 0};

    if (e) {
        const float *logits = p.op.logits + n * e;
        const float most = score(scores, logits, e, p.op.sigmoid);
        const float spread = spread_back(p, by * p.aux, d, scores, e);

        __syncwarp();
        weights_back(p, d, scores, n);
        __syncwarp();
        /* exponentials of all experts again, for nothing without such a loss */
        const float lse = p.z != 0 ? log_sum(logits, e, most) : 0;
        logits_back(p, dlogits + n * e, by * p.z, lse, d, scores, logits, e);
        if (threadIdx.x % LANES == 0) {
            losses[0] = share * p.aux * spread;
            losses[1] = share * p.z * lse * lse;
        }
    }
    if (!p.losses)
        return;
    block_sum(losses);
    if (threadIdx.x < 2)
        p.losses[2 * blockIdx.x + threadIdx.x] = losses[threadIdx.x];
}

static __global__ void __launch_bounds__(THREADS)
    add_counts(float *counts, const int32_t *begin, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < n)
        counts[i] += (float)(begin[i + 1] - begin[i]);
}

void cuda_route_bwd(struct gpt_queue *q, const struct gpt_router *op,
                    const struct gpt_router_grad *grad)
{
    const int64_t blocks = cuda_blocks(op->n, warps_of(ROOM * op->e));
    const float n = (float)op->n;

    if (!cuda_ready(q, "route_bwd", op->act) || !op->n)
        return;
    backward p = {*op, grad->dweight, grad->scale, NULL,
                  grad->aux * (float)op->e / (float)op->k / n / n, grad->z / n, NULL};
    if (grad->aux != 0 || grad->z != 0) {
        float *work = (float *)cuda_work(q, (size_t)(1 + 2 * blocks) * sizeof(float));

        if (!work)
            return;
        p.share = work;
        p.losses = work + 1;
        launch(q, sum_weights, 1, THREADS, 0, work, grad->weights, op->n);
    }
    with_type(op->act, [&](auto type) {
        using T = decltype(type);

        launch_tokens(q, route_back<T>, op, ROOM, p, (T *)grad->dlogits);
    });
    if (p.losses)
        cuda_add_columns(q, {{grad->losses, grad->losses + 1}, {1, 1}}, p.losses, blocks);
    if (grad->counts)
        launch(q, add_counts, cuda_blocks(op->e, THREADS), THREADS, 0, grad->counts, op->begin,
               op->e);
}

/* ---- biases ---- */

template <class T>
static __global__ void __launch_bounds__(THREADS) balance(struct gpt_balance op, T *copy)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i >= op.n)
        return;
    const double above = op.mean - (double)op.counts[i];
    const float step = above > 0 ? (float)op.rate : above < 0 ? -(float)op.rate : 0;
    float p[1] = {op.p[i] + step};
    op.p[i] = p[0];
    if (copy)
        store(copy + i, p);
}

void cuda_balance(struct gpt_queue *q, const struct gpt_balance *op)
{
    enum gpt_dtype act = op->p_act ? op->act : GPT_F32;

    if (!cuda_ready(q, "balance", act) || !op->n)
        return;
    /* In float the activations' copy may be p itself. */
    void *copy = op->p_act == op->p ? NULL : op->p_act;
    with_type(act, [&](auto type) {
        using T = decltype(type);

        launch(q, balance<T>, cuda_blocks(op->n, THREADS), THREADS, 0, *op, (T *)copy);
    });
}
