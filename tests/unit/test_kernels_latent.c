/* Latent attention's rearrangements, against a map of each element of queries,
 * keys and values to where it comes from: forward they are equal, backward the
 * gradients add up there. Start at source_of(). */
#include "tests/unit/rows.h"

enum part { Q, K, KV, NOWHERE };
struct source {
    enum part part;
    int64_t at; /* an element */
};

/* Where element i of qkv (N, H, 3, D) comes from. */
static struct source source_of(const struct gpt_latent *op, int64_t i)
{
    const int64_t d = op->nope + op->turned, j = i % d;
    const int64_t head = i / d / 3, query = head * d;
    const int64_t kv = head * (op->nope + op->value);
    const bool turns = j < op->turned;

    switch (i / d % 3) {
    case 0:
        return (struct source){Q, turns ? query + op->nope + j
                                        : query + j - op->turned};
    case 1:
        return turns ? (struct source){K, head / op->h * op->turned + j}
                     : (struct source){KV, kv + j - op->turned};
    default:
        return j < op->value ? (struct source){KV, kv + op->nope + j}
                             : (struct source){NOWHERE, 0};
    }
}

struct latent_case {
    struct gpt_latent op;
    struct gpt_latent_grad grad;
    int64_t sizes[NOWHERE], all; /* elements of the parts, and of qkv */
    float *out;                  /* qkv, or gradients of the parts */
    int64_t words;
};

/* After what is written lies one word that is not. */
static bool is_spoilt(const float *x)
{
    uint32_t word;

    memcpy(&word, x, sizeof(word));
    return word == UINT32_MAX;
}

static void run_join(void *ctx)
{
    struct latent_case *k = ctx;

    spoil(k->out, k->words);
    be->latent_join(q, &k->op);
}

static void check_join(struct latent_case *k, const char *name)
{
    const void *const parts[] = {k->op.q, k->op.k, k->op.kv};
    int64_t wrong = 0;

    k->words = words_of(k->all, k->op.act) + 1;
    k->op.qkv = k->out = poisoned(k->words);
    const bool same = same_bytes(run_join, k, k->out, k->words);
    for (int64_t i = 0; i < k->all; i++) {
        const struct source from = source_of(&k->op, i);
        const double want = from.part == NOWHERE
                                ? 0
                                : at(parts[from.part], from.at, k->op.act);

        wrong += at(k->out, i, k->op.act) != want;
    }
    is_int(wrong, 0, "%s: elements of qkv that are wrong", name);
    ok(is_spoilt(k->out + k->words - 1), "%s: nothing behind them", name);
    ok(same, "%s: equal for 1, 2, 3 threads", name);
    free(k->out);
}

static void run_split(void *ctx)
{
    struct latent_case *k = ctx;

    spoil(k->out, k->words);
    be->latent_split(q, &k->op, &k->grad);
}

/* dq and dkv are copies; dk are sums over the heads. */
static void check_split(struct latent_case *k, const char *name)
{
    void *dqkv = rnd_rows(k->all, 1, k->op.act), *got[NOWHERE];
    double *want[NOWHERE], *size[NOWHERE];
    int64_t wrong[NOWHERE], words[NOWHERE];

    k->words = 1;
    for (int p = 0; p < NOWHERE; p++) {
        words[p] = words_of(k->sizes[p], k->op.act);
        k->words += words[p];
        want[p] = calloc((size_t)(k->sizes[p] + 1), sizeof(**want));
        size[p] = calloc((size_t)(k->sizes[p] + 1), sizeof(**size));
    }
    k->out = poisoned(k->words);
    got[Q] = k->out;
    got[K] = k->out + words[Q];
    got[KV] = k->out + words[Q] + words[K];
    for (int64_t i = 0; i < k->all; i++) {
        const struct source to = source_of(&k->op, i);
        const double x = at(dqkv, i, k->op.act);

        if (to.part == NOWHERE) { /* it is not looked at */
            memset((char *)dqkv + bytes_of(i, k->op.act), 0xff,
                   bytes_of(1, k->op.act));
            continue;
        }
        want[to.part][to.at] += x;
        size[to.part][to.at] += fabs(x);
    }
    k->grad = (struct gpt_latent_grad){dqkv, got[Q], got[K], got[KV]};
    const bool same = same_bytes(run_split, k, k->out, k->words);
    for (int p = 0; p < NOWHERE; p++) {
        wrong[p] = 0;
        for (int64_t i = 0; p != K && i < k->sizes[p]; i++)
            wrong[p] += at(got[p], i, k->op.act) != want[p][i];
    }
    wrong[K] = wrong_by(got[K], want[K], size[K], k->sizes[K], k->op.h,
                        k->op.act);
    is_int(wrong[Q], 0, "%s: dq", name);
    is_int(wrong[K], 0, "%s: dk", name);
    is_int(wrong[KV], 0, "%s: dkv", name);
    ok(is_spoilt(k->out + k->words - 1), "%s: nothing behind them", name);
    ok(same, "%s: backward equal for 1, 2, 3 threads", name);
    for (int p = 0; p < NOWHERE; p++)
        free(want[p]), free(size[p]);
    free(dqkv), free(k->out);
}

static void check_latent(int64_t n, int64_t h, int64_t nope, int64_t turned,
                         int64_t value, enum gpt_dtype act)
{
    const int64_t heads = n * h;
    struct latent_case k = {
        .op = {.n = n, .h = h, .nope = nope, .turned = turned, .value = value,
               .act = act},
        .sizes = {heads * (nope + turned), n * turned, heads * (nope + value)},
        .all = heads * 3 * (nope + turned)};
    void *from[NOWHERE];
    char name[120];

    for (int p = 0; p < NOWHERE; p++)
        from[p] = rnd_rows(k.sizes[p], 1, act);
    k.op.q = from[Q];
    k.op.k = from[K];
    k.op.kv = from[KV];
    snprintf(name, sizeof(name),
             "%s: latent n%lld h%lld %lld + %lld, %lld %s", setting,
             (long long)n, (long long)h, (long long)nope, (long long)turned,
             (long long)value, name_of(act));
    check_join(&k, name);
    check_split(&k, name);
    for (int p = 0; p < NOWHERE; p++)
        free(from[p]);
}

struct fit_case {
    int64_t to, from, n;
    enum gpt_dtype act;
    const void *x;
    float *y;
    int64_t words;
};

static void run_fit(void *ctx)
{
    struct fit_case *k = ctx;

    spoil(k->y, k->words);
    be->fit_columns(q, k->y, k->to, k->x, k->from, k->n, k->act);
}

static void check_fit(int64_t to, int64_t from, int64_t n, enum gpt_dtype act)
{
    void *x = rnd_rows(n * from, 1, act);
    struct fit_case k = {to, from, n, act, x, NULL,
                         words_of(n * to, act) + 1};
    int64_t wrong = 0;

    k.y = poisoned(k.words);
    const bool same = same_bytes(run_fit, &k, k.y, k.words);
    for (int64_t i = 0; i < n * to; i++) {
        const int64_t j = i % to;

        wrong += at(k.y, i, act) !=
                 (j < from ? at(x, i / to * from + j, act) : 0);
    }
    wrong += !is_spoilt(k.y + k.words - 1);
    is_int(wrong, 0, "%s: %lld rows of %lld as %lld, %s: wrong elements",
           setting, (long long)n, (long long)from, (long long)to,
           name_of(act));
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    free(x), free(k.y);
}

/* Types that the CPU does not compute in, by name. */
static void check_refusal(void)
{
    struct gpt_latent op = {.act = GPT_F16};
    struct gpt_queue *other;
    struct gpt_err err = {0};

    if (be->queue_open(be, &other, &err) != GPT_OK)
        return;
    be->latent_join(other, &op);
    is_int(be->sync(other, &err), GPT_EDEVICE, "fp16 is refused");
    ok(strstr(err.text, "latent_join") && strstr(err.text, "F16"),
       "the message names operation and type: %s", err.text);
    be->queue_close(other);
}

static void body(void)
{
    static const int64_t shapes[][5] = {
        {1, 1, 1, 1, 1},  {3, 2, 4, 2, 6},      {5, 3, 7, 2, 3},
        {0, 2, 4, 2, 4},  {17, 16, 128, 64, 128}, {1, 128, 128, 64, 128},
        {40, 1, 64, 32, 64}, {9, 5, 16, 8, 24},
    };

    for (int t = 0; t < 2; t++) {
        const enum gpt_dtype act = t ? GPT_BF16 : GPT_F32;

        for (size_t i = 0; i < GPT_COUNT(shapes); i++)
            check_latent(shapes[i][0], shapes[i][1], shapes[i][2],
                         shapes[i][3], shapes[i][4], act);
        for (int i = 0; i < 6; i++) {
            const int64_t nope = rnd_int(1, 70), turned = rnd_int(1, 40);

            check_latent(rnd_int(1, 40), rnd_int(1, 12), nope, turned,
                         rnd_int(1, nope + turned), act);
            check_fit(rnd_int(1, 90), rnd_int(1, 90), rnd_int(0, 60), act);
        }
        check_fit(24, 24, 500, act);
        check_fit(128, 192, 400, act);
        check_fit(192, 128, 400, act);
    }
    check_refusal();
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
