/* Validation sets with names; see valid_sets.h. Start at gpt_valid_sets_open().
 * A set is a corpus of which the validation split alone is used, whole. */
#include "cmd/train/valid_sets.h"

#include "cmd/train/data_names.h"
#include "cmd/train/named_words.h"
#include "cmd/train/vocabulary.h"

#include <string.h>

/* The data of a run whose validation data are this set. Seed, length and order
 * of samples are those of the run, so that the loss of a set is the one that it
 * would have as --valid-data-path. */
static struct gpt_corpus_options corpus_of(const struct gpt_named *named,
                                           const struct gpt_train_plan *plan)
{
    struct gpt_corpus_options c = {
        .impl = plan->corpus.impl,
        .seq_length = plan->corpus.seq_length,
        .seed = plan->corpus.seed,
        .in_order = plan->corpus.in_order,
        .documents = plan->corpus.documents,
        .begin = plan->corpus.begin,
        .end = plan->corpus.end,
        .vocab_size = plan->corpus.vocab_size,
    };

    c.split_path[GPT_VALID] = named->words.items;
    c.n_split_path[GPT_VALID] = named->words.n;
    c.n_samples[GPT_VALID] = plan->valid_samples;
    return c;
}

/* The checks of data read a plan: this one is the run's, with other data. The
 * names of data sets that are found live as long as the sets do. */
static int open_set(struct gpt_valid_sets *sets, const struct gpt_named *named,
                    const struct gpt_train_plan *plan, bool first,
                    struct gpt_err *err)
{
    struct gpt_train_plan p = *plan;
    struct gpt_valid_set *set = &sets->items[sets->n];

    p.corpus = corpus_of(named, plan);
    set->name = named->name;
    GPT_TRY(gpt_train_find_data(&p.corpus, NULL, &sets->arena, first, err));
    GPT_TRY(gpt_train_check_data_vocabulary(&p, plan->options, err));
    GPT_TRY(gpt_corpus_open(&set->corpus, &p.corpus, err));
    sets->n++;
    return GPT_OK;
}

/* Sets of Megatron-LM's option are called by their places, from 0: its tags in
 * TensorBoard end in that number, and so do those here. */
static int list_numbered(struct gpt_named *all, const struct gpt_list *words,
                         struct gpt_arena *arena, struct gpt_err *err)
{
    for (int64_t i = 0; i < words->n; i++) {
        all[i] = (struct gpt_named){
            .name = gpt_arena_printf(arena, "%lld", (long long)i),
            .words = {.items = &words->items[i], .n = 1},
        };
        if (!all[i].name)
            return gpt_no_memory(err, "names");
    }
    return GPT_OK;
}

/* The names of the option differ from each other already. */
static int check_twice(const struct gpt_named *all, int64_t n,
                       struct gpt_err *err)
{
    for (int64_t i = 1; i < n; i++)
        for (int64_t k = 0; k < i; k++)
            if (strcmp(all[i].name, all[k].name) == 0)
                return gpt_fail(err, GPT_EUSAGE,
                                "--valid-set: the name %s is that of a set of "
                                "--valid-data-path",
                                all[i].name);
    return GPT_OK;
}

/* Sets with numbers come first, as the loss of a run is that of its first set
 * and Megatron-LM's is the first of its list. Without a validation there are
 * none: effects.c has warned of it. *all (n) lives in `arena`. */
static int list_sets(struct gpt_named **all, int64_t *n,
                     const struct gpt_train_options *o,
                     struct gpt_arena *arena, struct gpt_err *err)
{
    const int64_t numbered = o->multiple_valid ? o->valid_path.n : 0;
    struct gpt_named *named;
    int64_t n_named;

    *n = 0;
    if (o->eval_iters == 0)
        return GPT_OK;
    GPT_TRY(gpt_named_parse(&named, &n_named, "--valid-set", &o->valid_set,
                            false, arena, err));
    *n = numbered + n_named;
    *all = gpt_arena_alloc(arena, (size_t)*n + 1, sizeof(**all));
    if (!*all)
        return gpt_no_memory(err, "validation sets");
    if (numbered > 0)
        GPT_TRY(list_numbered(*all, &o->valid_path, arena, err));
    memcpy(*all + numbered, named, (size_t)n_named * sizeof(**all));
    return check_twice(*all, *n, err);
}

/* What is counted are the indices of samples that gpt_valid_sets_open() will
 * make; the sets are not opened for it, so that a plan can be made where the
 * data are not. */
int gpt_valid_sets_predict(int64_t *bytes, const struct gpt_train_plan *plan,
                           struct gpt_err *err)
{
    struct gpt_arena arena = {0};
    struct gpt_named *all;
    int64_t n;

    const int status = list_sets(&all, &n, plan->options, &arena, err);
    *bytes = 0;
    for (int64_t i = 0; status == GPT_OK && i < n; i++) {
        const struct gpt_corpus_options c = corpus_of(&all[i], plan);

        *bytes += gpt_corpus_predict(&c);
    }
    gpt_arena_free(&arena);
    return status;
}

int gpt_valid_sets_open(struct gpt_valid_sets *sets,
                        const struct gpt_train_plan *plan, bool first,
                        struct gpt_err *err)
{
    struct gpt_named *all;
    int64_t n;

    *sets = (struct gpt_valid_sets){.n = 0};
    GPT_TRY(list_sets(&all, &n, plan->options, &sets->arena, err));
    sets->items = gpt_arena_alloc(&sets->arena, (size_t)n + 1,
                                  sizeof(*sets->items));
    if (!sets->items)
        return gpt_no_memory(err, "validation sets");
    for (int64_t i = 0; i < n; i++)
        if (open_set(sets, &all[i], plan, first, err) != GPT_OK)
            return gpt_context(err, "validation set %s", all[i].name);
    return GPT_OK;
}

/* Names and lists live in the arena; the corpora do not. */
void gpt_valid_sets_close(struct gpt_valid_sets *sets)
{
    for (int64_t i = 0; i < sets->n; i++)
        gpt_corpus_close(sets->items[i].corpus);
    gpt_arena_free(&sets->arena);
    *sets = (struct gpt_valid_sets){.n = 0};
}
