/* The cost of checkpoints: steps of a small model with a save every INTERVAL
 * steps, in the foreground and in the background, beside the same steps
 * without. Also the wait of the step that saves, beside a copy of the same
 * bytes. On CPUs the thread that writes slows the steps, which here have few
 * tokens: this is the worst case. */
#include "tests/lib/tree.h"
#include "cmd/train/saver.h"
#include "train_step.h"

enum { VOCABULARY = 4096, INTERVAL = 25, ROUNDS = 3 };

enum mode { NONE, FOREGROUND, BACKGROUND, N_MODES };
static const char *const mode_names[N_MODES] = {
    "no save", "save", "save in the background"};

/* Seconds of INTERVAL steps, the first of which saves; *waited: the time for
 * which the save delayed the step. The end of a save in the background
 * counts. */
static double run_block(struct gpt_replica *r, struct gpt_saver *s,
                        int64_t *iteration, double *waited)
{
    double begin = bench_clock();
    struct gpt_err err;

    *waited = 0;
    for (int i = 0; i < INTERVAL; i++) {
        step(r, VOCABULARY);
        const struct gpt_train_state state = {.iteration = ++*iteration};
        if (s && i == 0) {
            double t = bench_now();

            need(gpt_saver_save(s, &state, &err), &err);
            *waited = bench_now() - t;
        }
        if (s)
            need(gpt_saver_check(s, &err), &err);
    }
    if (s)
        need(gpt_saver_wait(s, &err), &err);
    return bench_clock() - begin;
}

static struct gpt_replica *open_small(struct gpt_err *err)
{
    struct gpt_config c = gpt_config_default();
    struct gpt_backend *be;

    c.num_layers = 4;
    c.hidden_size = 192;
    c.num_attention_heads = c.num_query_groups = 3;
    c.max_positions = T;
    c.vocab_size = VOCABULARY;
    need(gpt_config_complete(&c, 128, 1, err), err);
    need(gpt_backend_cpu(&be, err), err);
    return open_replica(be, &c, GPT_F32, B, T);
}

static void report(double blocks[N_MODES][ROUNDS],
                   double waits[N_MODES][ROUNDS], int64_t bytes)
{
    double copy = bench_stream_rate(bench_copy_all, 2);
    double alone = bench_median(blocks[NONE], ROUNDS);
    char name[80];

    printf("# %.1f MB a checkpoint, %.1f ms a step, a save every %d steps\n",
           (double)bytes / 1e6, 1e3 * alone / INTERVAL, INTERVAL);
    for (int m = FOREGROUND; m < N_MODES; m++) {
        snprintf(name, sizeof(name), "%s: the step waits", mode_names[m]);
        bench_row(name, 1e3 * bench_median(waits[m], ROUNDS), "ms",
                  1e3 * 2 * (double)bytes / copy, -1);
        snprintf(name, sizeof(name), "%s: cost", mode_names[m]);
        bench_row(name,
                  100 * (bench_median(blocks[m], ROUNDS) / alone - 1), "%", 0,
                  -1);
    }
}

int main(void)
{
    static double blocks[N_MODES][ROUNDS], waits[N_MODES][ROUNDS];
    char dir[] = "/var/tmp/gpt-bench-save.XXXXXX";
    struct gpt_train_options options[N_MODES] = {
        [FOREGROUND] = {.save = dir},
        [BACKGROUND] = {.save = dir, .async_save = true}};
    struct gpt_train_plan plan = {.train_iters = 1};
    struct gpt_state_context contexts[N_MODES];
    struct gpt_saver *savers[N_MODES] = {NULL};
    struct gpt_err err = {0};
    int64_t iteration = 0, bytes = 0;

    struct gpt_replica *r = open_small(&err);
    make_tree(dir);
    for (int m = FOREGROUND; m < N_MODES; m++) {
        options[m].tokenizer.type = "";
        options[m].keep_checkpoints = 1;
        contexts[m] = (struct gpt_state_context){
            .options = &options[m], .plan = &plan, .option_text = ""};
        need(gpt_saver_open(&savers[m], r, &contexts[m], &err), &err);
    }
    need(gpt_saver_memory(r, &options[BACKGROUND], 0, 1, &bytes, &err), &err);
    for (int m = 0; m < N_MODES; m++) /* pages of memory and of the disk */
        run_block(r, savers[m], &iteration, &waits[m][0]);
    for (int i = 0; i < ROUNDS; i++)
        for (int m = 0; m < N_MODES; m++)
            blocks[m][i] = run_block(r, savers[m], &iteration, &waits[m][i]);
    report(blocks, waits, bytes);
    for (int m = 0; m < N_MODES; m++)
        gpt_saver_close(savers[m]);
    gpt_replica_close(r);
    remove_tree(dir);
    return 0;
}
