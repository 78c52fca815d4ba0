/* Fuzz target: small files that gpt-train reads. The first byte chooses: 'w'
 * weights of tokens, 'd' data stages, 'j' data sets of each split, 'a' words of
 * --data-path, 's' tasks to score, 'p' prompts of samples. */
#include "cmd/train/prompt_samples.h"
#include "cmd/train/score_sets.h"
#include "cmd/train/split_paths.h"
#include "data/data_stages.h"
#include "tests/fuzz/files.h"
#include "train/loss.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 601, LENGTH = 32 };

static struct gpt_tokenizer *tok;

static void open_tokenizer(void)
{
    const struct gpt_tokenizer_options o = {
        .type = "GPT2BPETokenizer",
        .vocab_file = "tests/golden/gpt2/vocab.json",
        .merge_file = "tests/golden/gpt2/merges.txt"};
    struct gpt_err err;

    if (gpt_tokenizer_open(&tok, &o, &err) != GPT_OK ||
        gpt_tokenizer_vocab_size(tok) > VOCAB)
        abort();
}

static int read_weights(const char *path, struct gpt_err *err)
{
    const struct gpt_loss_options o = {.token_weights = path,
                                       .vocab_size = 10};
    struct gpt_loss_rule *rule = NULL;

    GPT_TRY(gpt_loss_open(&rule, &o, err));
    gpt_loss_close(rule);
    return GPT_OK;
}

static int read_stages(const char *path, struct gpt_err *err)
{
    struct gpt_data_stages s = {0};
    const int status = gpt_data_stages_read(&s, path, err);

    for (int64_t i = 0; status == GPT_OK && i < s.n; i++)
        if (s.stage[i].n < 1 ||
            gpt_data_stages_at(&s, s.stage[i].first) != i)
            abort();
    gpt_data_stages_free(&s);
    return status;
}

static int read_data_files(struct gpt_train_options *o, struct gpt_err *err)
{
    struct gpt_arena arena = {0};
    const int status = gpt_train_read_data_files(o, &arena, err);

    for (int64_t i = 0; status == GPT_OK && i < o->data_path.n; i++)
        if (!o->data_path.items[i][0])
            abort();
    gpt_arena_free(&arena);
    return status;
}

static int read_splits(const char *path, struct gpt_err *err)
{
    return read_data_files(&(struct gpt_train_options){.per_split_paths = path},
                           err);
}

static int read_words(const char *path, struct gpt_err *err)
{
    return read_data_files(&(struct gpt_train_options){.data_args_path = path},
                           err);
}

static int read_tasks(const char *path, struct gpt_err *err)
{
    const struct gpt_score_options o = {.tokenizer = tok, .eod = 600,
                                        .vocab_size = VOCAB,
                                        .seq_length = LENGTH};
    struct gpt_score_set set = {0};
    const int status = gpt_score_set_read(&set, "task", path, &o, err);

    for (int64_t i = 0; status == GPT_OK && i < set.n_texts; i++)
        if (set.texts[i].n > LENGTH + 1 || set.texts[i].from < 0 ||
            set.texts[i].from > set.texts[i].to ||
            set.texts[i].to > set.texts[i].n || set.texts[i].to > LENGTH)
            abort();
    gpt_score_set_free(&set);
    return status;
}

static int read_prompts(const char *path, struct gpt_err *err)
{
    const struct gpt_prompt_options o = {.tokenizer = tok, .tokens = 4,
                                         .eod = 600, .vocab_size = VOCAB,
                                         .seq_length = LENGTH};
    struct gpt_prompt_samples *p = NULL;

    GPT_TRY(gpt_prompt_samples_read(&p, path, &o, err));
    gpt_prompt_samples_close(p);
    return GPT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        char letter;
        int (*read)(const char *path, struct gpt_err *err);
    } readers[] = {{'w', read_weights},
                   {'d', read_stages},
                   {'j', read_splits},
                   {'a', read_words},
                   {'s', read_tasks},
                   {'p', read_prompts}};
    struct gpt_err err = {0};
    char path[160];

    if (!tok)
        open_tokenizer();
    for (size_t i = 0; size && i < GPT_COUNT(readers); i++) {
        if (data[0] != readers[i].letter)
            continue;
        fuzz_write("list", data + 1, size - 1);
        snprintf(path, sizeof(path), "%s/list", fuzz_top);
        fuzz_check(readers[i].read(path, &err), &err);
    }
    return 0;
}
