/* Names of data sets, as people type them: see data_names.h. Start at
 * gpt_train_find_data(), at the end. Only what is no data set is looked at: a
 * name that is right costs one call. */
#include "cmd/train/data_names.h"

#include "base/io.h"
#include "base/log.h"
#include "base/num.h"
#include "data/indexed.h"
#include "text/inputs.h"

#include <ctype.h>
#include <glob.h>
#include <string.h>

enum { LISTED = 4, HEAD = 4096 };

struct words {
    const char *option; /* that they were given to */
    const char **items; /* a copy, to be changed */
    int64_t n;
    struct gpt_arena *arena;
    bool first;
};

/* ---- what a file is ---- */

/* True when the value of the first key is a number: of all that begins with a
 * brace, a vocabulary. */
static bool is_vocabulary(const char *p)
{
    const char *colon = strstr(p, "\":");

    if (*p != '{' || !colon)
        return false;
    colon += 2;
    while (isspace((unsigned char)*colon))
        colon++;
    return isdigit((unsigned char)*colon);
}

/* The user has text and means to train on it: the next command is the one that
 * makes tokens of it. */
static int is_text(const char *name, const char *what, struct gpt_err *err)
{
    gpt_fail(err, GPT_EDATA, "'%s' is %s, not a data set of tokens", name,
             what);
    return gpt_hint(err, "gpt-preprocess --input %s --output-prefix my-gpt2 "
                    "... makes one: my-gpt2_text_document", name);
}

/* A file of the tokenizer, mostly taken for data because it lies beside it. */
static int is_tokenizer(const char *name, const char *what,
                        const char *options, struct gpt_err *err)
{
    gpt_fail(err, GPT_EDATA, "'%s' is %s, not a data set of tokens", name,
             what);
    return gpt_hint(err, "%s takes it; --data-path takes what gpt-preprocess "
                    "made with it", options);
}

/* GPT_OK when nothing is known of it. */
static int name_content(const char *name, struct gpt_err *err)
{
    char head[HEAD + 1] = "";
    struct gpt_in *in;

    if (gpt_in_open(&in, name, NULL) != GPT_OK)
        return GPT_OK;
    size_t n = (size_t)gpt_min_i64(gpt_in_size(in), HEAD);
    int status = gpt_in_read(in, head, 0, n, NULL);
    gpt_in_close(in);
    if (status != GPT_OK)
        return GPT_OK;
    /* What is certain comes first; the name decides only what is left. */
    if (strncmp(head, "#version", 8) == 0)
        return is_tokenizer(name, "a list of merges", "--merge-file", err);
    if (is_vocabulary(head))
        return is_tokenizer(name, "a vocabulary", "--vocab-file", err);
    if (head[0] == '{' && strstr(head, "\"added_tokens\""))
        return is_tokenizer(name, "a tokenizer", "--tokenizer-model", err);
    if (head[0] == '{' || gpt_inputs_named_jsonl(name))
        return is_text(name, "text in JSON lines", err);
    return is_text(name, "a file", err);
}

/* ---- data sets whose names begin so ---- */

/* A glob that matches the name literally. */
static char *pattern_of(struct gpt_arena *arena, const char *name,
                        const char *tail)
{
    size_t n = strlen(name), at = 0;
    char *pattern = gpt_arena_alloc(arena, 2 * n + strlen(tail) + 1, 1);

    for (size_t i = 0; pattern && i < n; i++) {
        if (strchr("*?[]\\", name[i]))
            pattern[at++] = '\\';
        pattern[at++] = name[i];
    }
    if (pattern)
        memcpy(pattern + at, tail, strlen(tail) + 1);
    return pattern;
}

/* A run must not choose between data sets: the names are listed, and the user
 * takes one. */
static int several(const struct words *w, const char *name,
                   const glob_t *found, struct gpt_err *err)
{
    struct gpt_buf list = {0};

    for (size_t i = 0; i < found->gl_pathc && i < LISTED; i++)
        gpt_buf_printf(&list, "%s%.*s", i > 0 ? ", " : "",
                       (int)strlen(found->gl_pathv[i]) - 4,
                       found->gl_pathv[i]);
    if (found->gl_pathc > LISTED)
        gpt_buf_printf(&list, " and %zu more", found->gl_pathc - LISTED);
    gpt_fail(err, GPT_EDATA, "%s: '%s' is no data set; %zu begin with that "
             "name", w->option, name, found->gl_pathc);
    gpt_hint(err, "name one: %s", list.data ? list.data : "");
    gpt_buf_free(&list);
    return GPT_EDATA;
}

/* Takes the only data set that begins with the name, or that is in it. */
static int take_candidate(struct words *w, int64_t i, bool *taken,
                          struct gpt_err *err)
{
    const char *name = w->items[i];
    bool dir = gpt_path_is_dir(name);
    char *pattern = pattern_of(w->arena, name, dir ? "/*.idx" : "_*.idx");
    glob_t found;
    int status = GPT_OK;

    *taken = false;
    if (!pattern)
        return gpt_no_memory(err, "file names");
    if (glob(pattern, 0, NULL, &found) != 0)
        return GPT_OK;
    if (found.gl_pathc == 1 && !dir) {
        const char *path = found.gl_pathv[0];

        w->items[i] = gpt_arena_printf(w->arena, "%.*s",
                                       (int)strlen(path) - 4, path);
        *taken = w->items[i] != NULL;
        status = *taken ? GPT_OK : gpt_no_memory(err, "a file name");
        if (*taken && w->first)
            gpt_info("%s %s: taking the data set %s", w->option, name,
                     w->items[i]);
    } else {
        status = several(w, name, &found, err);
    }
    globfree(&found);
    return status;
}

/* ---- words ---- */

/* A data set may be called "1": the file decides. */
static int is_weight(const struct words *w, int64_t i, struct gpt_err *err)
{
    gpt_fail(err, GPT_EUSAGE, "%s: word %lld of %lld is the number '%s', where "
             "a data set must be", w->option, (long long)i + 1,
             (long long)w->n, w->items[i]);
    return gpt_hint(err, "write a weight before each data set, as in %s 0.3 "
                    "PREFIX1 0.7 PREFIX2, or data sets alone", w->option);
}

/* Quotes made one word of a whole list, or commas stand for blanks: so it is
 * when the first or second part of the word is a data set. */
static int is_list(const struct words *w, const char *name,
                   struct gpt_err *err)
{
    char *list = gpt_arena_printf(w->arena, "%s", name), *rest = NULL;
    char *part = list ? strtok_r(list, " ,\t\n", &rest) : NULL;

    for (int k = 0; part && k < 2; k++) {
        char *index = gpt_arena_printf(w->arena, "%s.idx", part);

        if (index && strcmp(part, name) != 0 && gpt_path_exists(index)) {
            gpt_fail(err, GPT_EUSAGE, "%s: '%s' is one word, and no data set",
                     w->option, name);
            return gpt_hint(err, "weights and data sets are words of their "
                            "own, without quotes around them or commas "
                            "between: %s 0.3 PREFIX1 0.7 PREFIX2", w->option);
        }
        part = strtok_r(NULL, " ,\t\n", &rest);
    }
    return GPT_OK;
}

static int find_one(struct words *w, int64_t i, struct gpt_err *err)
{
    const char *name = w->items[i];
    char *index = gpt_arena_printf(w->arena, "%s.idx", name);
    double number;
    bool taken;

    if (!index)
        return gpt_no_memory(err, "a file name");
    GPT_TRY(gpt_in_settle(index, err));
    if (gpt_path_exists(index))
        return GPT_OK;
    if (gpt_parse_real(name, &number))
        return is_weight(w, i, err);
    GPT_TRY(is_list(w, name, err));
    size_t n = strlen(name);
    /* The reader's own message has the prefix. */
    if (n > 4 && (gpt_path_ends_in(name, ".bin") ||
                  gpt_path_ends_in(name, ".idx")))
        return GPT_OK;
    GPT_TRY(take_candidate(w, i, &taken, err));
    return taken ? GPT_OK : name_content(name, err);
}

/* Words are weights and data sets in turns when each first one of a pair is a
 * number: the rule of data/blend.h, which refuses what is mixed. */
static bool has_weights(const struct words *w)
{
    double number;

    for (int64_t i = 0; i < w->n; i += 2)
        if (!gpt_parse_real(w->items[i], &number))
            return false;
    return w->n > 0 && w->n % 2 == 0;
}

static int find_all(struct words *w, const char *const **items,
                    struct gpt_err *err)
{
    const char **copy = gpt_arena_alloc(w->arena, (size_t)w->n, sizeof(*copy));

    if (!copy)
        return gpt_no_memory(err, "names of data sets");
    for (int64_t i = 0; i < w->n; i++)
        copy[i] = (*items)[i];
    w->items = copy;
    int64_t step = has_weights(w) ? 2 : 1;
    for (int64_t i = step - 1; i < w->n; i += step) {
        GPT_TRY(find_one(w, i, err));
        /* Nothing that the run writes may be one of its data sets. */
        GPT_TRY(gpt_indexed_protect(w->items[i], err));
    }
    *items = copy;
    return GPT_OK;
}

static int find_words(struct gpt_corpus_options *c, struct gpt_arena *arena,
                      bool first, struct gpt_err *err)
{
    static const char *const names[GPT_N_SPLITS] = {
        "--train-data-path", "--valid-data-path", "--test-data-path"};
    struct words whole = {"--data-path", NULL, c->n_data_path, arena, first};

    if (!c->mock) /* which is no name of a file */
        GPT_TRY(find_all(&whole, &c->data_path, err));
    for (int k = 0; k < GPT_N_SPLITS; k++) {
        struct words w = {names[k], NULL, c->n_split_path[k], arena, first};

        GPT_TRY(find_all(&w, &c->split_path[k], err));
    }
    return GPT_OK;
}

int gpt_train_find_data(struct gpt_corpus_options *c, const char *file,
                        struct gpt_arena *arena, bool first,
                        struct gpt_err *err)
{
    const int status = find_words(c, arena, first, err);

    if (status != GPT_OK)
        return file ? gpt_context(err, "%s", file) : status;
    for (int64_t i = 0; c->stages && i < c->stages->n; i++) {
        struct gpt_data_stage *s = &c->stages->stage[i];
        struct words w = {"--data-stages", NULL, s->n, arena, first};

        GPT_TRY(find_all(&w, &s->words, err));
    }
    return GPT_OK;
}
