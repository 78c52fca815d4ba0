/* Compares a model on tensor parallel ranks with the same model on one rank.
 * Ranks are processes over Gloo; each also computes the result of the single
 * rank. Start at parallel_cases. */
#include "tests/unit/model_rig.h"

#include "tests/lib/possible.h"

#include "parallel/store.h"

#include <omp.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MOST_RANKS = 4 };

struct parallel_case {
    bool sequence, tied;
    int64_t groups, b, t;
    enum gpt_recompute recompute;
    int64_t recompute_layers;
    enum gpt_position_embedding positions;
    enum variant variant;
};

static const struct parallel_case parallel_cases[] = {
    {false, true, 8, 2, 12, GPT_RECOMPUTE_NONE, 0,
     GPT_POSITION_LEARNED, GPT2},
    {true, true, 8, 2, 12, GPT_RECOMPUTE_NONE, 0,
     GPT_POSITION_ROPE, GPT2},
    {false, false, 4, 1, 13, GPT_RECOMPUTE_NONE, 0,
     GPT_POSITION_LEARNED, GPT2},
    {true, false, 4, 1, 16, GPT_RECOMPUTE_NONE, 0,
     GPT_POSITION_ALIBI, GPT2},
    {true, true, 4, 4, 7, GPT_RECOMPUTE_NONE, 0,
     GPT_POSITION_LEARNED, GPT2}, /* cut within a sample */
    {false, true, 4, 2, 12, GPT_RECOMPUTE_SELECTIVE, 0,
     GPT_POSITION_ROPE, GPT2},
    {true, true, 4, 2, 12, GPT_RECOMPUTE_SELECTIVE, 0,
     GPT_POSITION_ALIBI, GPT2},
    {.tied = true, .groups = 4, .b = 2, .t = 12, .variant = LLAMA},
    {.sequence = true, .groups = 4, .b = 2, .t = 12, .variant = LLAMA,
     .recompute = GPT_RECOMPUTE_SELECTIVE},
    {.groups = 8, .b = 2, .t = 12, .variant = NEOX},
    {.sequence = true, .groups = 8, .b = 2, .t = 12, .variant = NEOX,
     .recompute = GPT_RECOMPUTE_SELECTIVE},
    {.sequence = true, .groups = 4, .b = 2, .t = 12, .variant = FALCON},
    {.sequence = true, .groups = 4, .b = 2, .t = 12, .variant = GATED_BIASES},
    {.tied = true, .groups = 4, .b = 2, .t = 12, .variant = GEMMA2},
    {.sequence = true, .groups = 4, .b = 2, .t = 12, .variant = GEMMA2,
     .recompute = GPT_RECOMPUTE_SELECTIVE},
    {.groups = 4, .b = 2, .t = 12, .variant = OLMO2},
    {.sequence = true, .groups = 8, .b = 2, .t = 12, .variant = OLMO2,
     .recompute = GPT_RECOMPUTE_UNIFORM, .recompute_layers = 2},
    {.tied = true, .groups = 8, .b = 2, .t = 12, .variant = BLOOM},
    {.sequence = true, .groups = 8, .b = 2, .t = 12, .variant = BLOOM},
    {.sequence = true, .groups = 4, .b = 2, .t = 12, .variant = OPT},
    {.groups = 8, .b = 2, .t = 12, .variant = GPTJ},
    {.sequence = true, .tied = true, .groups = 8, .b = 2, .t = 12,
     .variant = GPTJ, .recompute = GPT_RECOMPUTE_SELECTIVE},
    {.sequence = true, .groups = 4, .b = 2, .t = 12, .variant = GRANITE,
     .recompute = GPT_RECOMPUTE_SELECTIVE},
    {.tied = true, .groups = 4, .b = 2, .t = 12, .variant = GRANITE},
    {.groups = 4, .b = 2, .t = 12, .variant = MIXTRAL},
    {.sequence = true, .groups = 4, .b = 2, .t = 12, .variant = QWEN_MOE},
    {.sequence = true, .groups = 4, .b = 2, .t = 12, .variant = MIXTRAL,
     .recompute = GPT_RECOMPUTE_UNIFORM, .recompute_layers = 2},
    {.groups = 8, .b = 2, .t = 12, .variant = QWEN_MOE,
     .recompute = GPT_RECOMPUTE_SELECTIVE},
    {.groups = 8, .b = 2, .t = 12, .variant = DEEPSEEK},
    {.sequence = true, .groups = 8, .b = 2, .t = 12, .variant = LATENT},
    {.sequence = true, .groups = 8, .b = 2, .t = 12, .variant = DEEPSEEK,
     .recompute = GPT_RECOMPUTE_SELECTIVE},
    /* 2 ranks only, for the sake of time */
    {false, true, 4, 2, 12, GPT_RECOMPUTE_UNIFORM, 3,
     GPT_POSITION_LEARNED, GPT2},
    {true, true, 4, 2, 12, GPT_RECOMPUTE_UNIFORM, 1,
     GPT_POSITION_LEARNED, GPT2},
    {true, false, 4, 2, 12, GPT_RECOMPUTE_BLOCK, 2,
     GPT_POSITION_NONE, GPT2},
    {.groups = 4, .b = 2, .t = 12, .variant = FALCON,
     .recompute = GPT_RECOMPUTE_SELECTIVE},
    {.sequence = true, .groups = 8, .b = 2, .t = 12, .variant = NEOX,
     .recompute = GPT_RECOMPUTE_UNIFORM, .recompute_layers = 3},
    {.groups = 4, .b = 2, .t = 12, .variant = GATED_BIASES,
     .recompute = GPT_RECOMPUTE_UNIFORM, .recompute_layers = 2},
};

enum { ALL_CASES = GPT_COUNT(parallel_cases), FIRST_CASES = 31 };

/* What a rank found, for the parent. */
struct finding {
    double loss, logits, gradients, eval;
    bool same; /* as without recomputation, and when sums are waited for */
    char worst[GPT_PARAM_NAME];
};

/* Gradients of rows that are cut are summed by who reduces them. */
static double gradients_error(const struct rig *r, const struct rig *whole,
                              struct gpt_comm *tp, bool sequence, char *name)
{
    double worst = 0;

    for (int64_t i = 0; i < r->flat.n; i++) {
        const struct gpt_slice *s = &r->flat.slices[i];

        if (gpt_flat_is_partial(&r->flat, s, sequence))
            gpt_comm_all_reduce(tp, r->q, gradient(r, s), s->count, GPT_F32,
                                GPT_SUM);
        double e = slice_error(s, gradient(r, s), whole);
        if (!(e <= worst)) {
            worst = e;
            snprintf(name, GPT_PARAM_NAME, "%s", s->param->name);
        }
    }
    return worst;
}

static struct finding find(const struct parallel_case *k, struct gpt_comm *tp)
{
    struct gpt_config c = config(k->tied, k->groups);

    c.position_embedding = k->positions;
    c.rotary_base = 10000;
    c.rotary_percent = 1;
    make_variant(&c, k->variant);
    int64_t size = gpt_comm_size(tp), rank = gpt_comm_rank(tp);
    int64_t columns = c.padded_vocab_size / size;
    struct rig r, plain, whole;
    static struct batch x, y, want;
    struct finding f = {.same = true};
    struct gpt_stage_options o = {
        .layout = gpt_layout_even(&c, size, rank, 1, 0),
        .exec.micro_batch = k->b,
        .exec.seq_length = k->t,
        .tp = tp,
        .exec.overlap_tensor = true,
        .exec.sequence_parallel = k->sequence,
        .exec.recompute = k->recompute,
        .exec.recompute_layers = k->recompute_layers,
        .exec.act = GPT_F32,
    };

    batch_open(&x, k->b, k->t, columns);
    batch_open(&y, k->b, k->t, columns);
    batch_open(&want, k->b, k->t, c.padded_vocab_size);
    rig_open(&r, &c, o, false);
    run(&r, &x, columns);
    o.exec.recompute = GPT_RECOMPUTE_NONE;
    o.exec.overlap_tensor = false;
    rig_open(&plain, &c, o, false);
    run(&plain, &y, columns);
    f.same = same_bits(&r, &x, &plain, &y);
    rig_close(&plain);
    o.layout = GPT_LAYOUT_SINGLE(&c);
    o.tp = NULL;
    o.exec.sequence_parallel = false;
    rig_open(&whole, &c, o, false);
    run(&whole, &want, c.padded_vocab_size);
    f.loss = loss_error(&x, &want);
    f.logits = logits_error(&x, columns, columns * rank, &want);
    f.gradients = gradients_error(&r, &whole, tp, k->sequence, f.worst);
    evaluate(&r, &x);
    evaluate(&whole, &want);
    f.eval = loss_error(&x, &want);
    rig_close(&whole);
    rig_close(&r);
    gpt_free(x.logits);
    gpt_free(y.logits);
    gpt_free(want.logits);
    return f;
}

static int be_rank(int64_t rank, int64_t size, int64_t port, int64_t cases,
                   struct finding *findings)
{
    struct gpt_launch_env l = {.world_size = size,
                           .rank = rank,
                           .host = "127.0.0.1",
                           .port = port,
                           .agent_store = true,
                           .run_id = "test"};
    const int64_t ranks[MOST_RANKS] = {0, 1, 2, 3};
    struct gpt_comm_options o = {
        .be = be,
        .carrier = GPT_GLOO,
        .name = "tp",
        .ranks = ranks,
        .n = size,
        .index = rank,
        .timeout = 60,
    };
    struct gpt_comm *tp;
    struct gpt_err err = {0};

    omp_set_num_threads(1);
    must(gpt_store_open(&o.store, &l, 60, &err), &err);
    must(gpt_comm_open(&tp, &o, &err), &err);
    for (int64_t i = 0; i < cases; i++)
        findings[i] = find(&parallel_cases[i], tp);
    must(gpt_comm_check(tp, &err), &err);
    gpt_comm_close(tp);
    gpt_store_close(o.store);
    return 0;
}

static void report(const struct finding *findings, int64_t size, int64_t cases)
{
    for (int64_t i = 0; i < cases; i++) {
        const struct parallel_case *k = &parallel_cases[i];
        struct finding worst = {.same = true};

        for (int64_t r = 0; r < size; r++) {
            const struct finding *f = &findings[r * cases + i];

            worst.loss = fmax(worst.loss, f->loss);
            worst.logits = fmax(worst.logits, f->logits);
            worst.gradients = fmax(worst.gradients, f->gradients);
            worst.eval = fmax(worst.eval, f->eval);
            worst.same = worst.same && f->same;
        }
        bool good = worst.loss <= 1e-5 && worst.logits <= 1e-5 &&
                    worst.gradients <= 1e-5 && worst.eval <= 1e-5 &&
                    worst.same;
        if (!ok(good,
                "TP %lld%s, %s, %s, %lld groups, %lldx%lld, recompute %s %lld: "
                "loss %.1e, logits %.1e, gradients %.1e, evaluation %.1e",
                (long long)size, k->sequence ? " SP" : "",
                variant_names[k->variant],
                k->tied ? "tied" : "untied", (long long)k->groups,
                (long long)k->b, (long long)k->t, recompute_names[k->recompute],
                (long long)k->recompute_layers, worst.loss, worst.logits,
                worst.gradients, worst.eval)) {
            printf("# %s bits as without recomputation and overlap\n",
                   worst.same ? "the same" : "other");
            for (int64_t r = 0; r < size; r++)
                printf("# rank %lld: worst in %s\n", (long long)r,
                       findings[r * cases + i].worst);
        }
    }
}

/* Processes are made before this one has threads; they read the port of the
 * store from a pipe. */
static void ranks(int64_t size, int64_t cases)
{
    const size_t bytes = sizeof(struct finding) * (size_t)(cases * size);
    struct finding *findings = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct gpt_store_server *v = NULL;
    struct gpt_err err = {0};
    int64_t port = 0;
    pid_t pids[MOST_RANKS];
    int fds[2], status, wrong = 0;

    if (findings == MAP_FAILED || pipe(fds) != 0)
        exit(1);
    fflush(stdout);
    for (int64_t r = 0; r < size; r++) {
        pids[r] = fork();
        if (pids[r] < 0)
            exit(1);
        if (pids[r] == 0) {
            alarm(300);
            if (read(fds[0], &port, sizeof(port)) != sizeof(port))
                _exit(99);
            _exit(be_rank(r, size, port, cases, findings + r * cases));
        }
    }
    must(gpt_store_server_open(&v, "127.0.0.1", 0, &err), &err);
    port = gpt_store_server_port(v);
    for (int64_t r = 0; r < size; r++)
        if (write(fds[1], &port, sizeof(port)) != sizeof(port))
            exit(1);
    for (int64_t r = 0; r < size; r++)
        wrong += waitpid(pids[r], &status, 0) != pids[r] || status != 0;
    gpt_store_server_close(v, 1);
    close(fds[0]);
    close(fds[1]);
    is_int(wrong, 0, "%lld ranks came to their end", (long long)size);
    report(findings, size, cases);
    munmap(findings, bytes);
}

int main(void)
{
    static const struct {
        int64_t size, cases;
    } jobs[] = {{2, ALL_CASES}, {4, FIRST_CASES}};
    struct gpt_err err;

    must(gpt_backend_cpu(&be, &err), &err);
    for (size_t i = 0; i < GPT_COUNT(jobs); i++)
        if (ranks_possible)
            ranks(jobs[i].size, jobs[i].cases);
        else
            skip("%lld ranks: built without Gloo", (long long)jobs[i].size);
    return tap_done();
}
