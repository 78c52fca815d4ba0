/* Reading of stages; see data_stages.h. A line is a stage: a sample, then words
 * as a data path has them. Start at gpt_data_stages_read(). */
#include "data/data_stages.h"

#include "base/io.h"
#include "base/num.h"

#include <string.h>

enum { FILE_LIMIT = 16 << 20 };

/* A carriage return is one, for files of other systems. */
static const char blanks[] = " \t\r";

/* The number of words in a line. */
static int64_t count_words(const char *line)
{
    int64_t n = 0;

    for (line += strspn(line, blanks); *line; line += strspn(line, blanks)) {
        n++;
        line += strcspn(line, blanks);
    }
    return n;
}

/* Cuts the line into its words, in place. */
static void cut_words(char *line, const char **words)
{
    for (line += strspn(line, blanks); *line; line += strspn(line, blanks)) {
        *words++ = line;
        line += strcspn(line, blanks);
        if (*line)
            *line++ = '\0';
    }
}

/* The rules about one stage beside the one before it. */
static int check_stage(const struct gpt_data_stages *s, const char *path,
                       int64_t number, const char *word, struct gpt_err *err)
{
    const struct gpt_data_stage *now = &s->stage[s->n];
    double weight;

    if (!gpt_parse_int(word, &s->stage[s->n].first) || now->first < 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%lld: a stage begins with the number of a sample, "
                        "not with '%.100s'", path,
                        (long long)number, word);
    if (s->n == 0 && now->first != 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%lld: the first stage begins at sample 0, not %lld",
                        path, (long long)number, (long long)now->first);
    if (s->n > 0 && now->first <= now[-1].first)
        return gpt_fail(err, GPT_EDATA,
                        "%s:%lld: stage %lld begins at sample %lld, but must "
                        "begin after the stage before it, at %lld",
                        path, (long long)number, (long long)s->n + 1,
                        (long long)now->first, (long long)now[-1].first);
    if (now->n == 0)
        return gpt_fail(err, GPT_EDATA, "%s:%lld: a stage without data sets",
                        path, (long long)number);
    /* Sets without weights are read in proportion to their size, once: that
     * says nothing of a stage, which ends where the next begins. */
    if (now->n > 1 && !gpt_parse_real(now->words[0], &weight))
        return gpt_fail(err, GPT_EDATA,
                        "%s:%lld: several data sets need a weight each",
                        path, (long long)number);
    return GPT_OK;
}

/* Comments may stand after a stage, and take a line of their own. */
static int take_line(struct gpt_data_stages *s, size_t *cap, const char *path,
                     int64_t number, char *line, struct gpt_err *err)
{
    static const char what[] = "data stages";
    const char **words;

    line[strcspn(line, "#")] = '\0';
    const int64_t n = count_words(line);
    if (n == 0)
        return GPT_OK;
    GPT_TRY(gpt_grow(&s->stage, cap, (size_t)s->n + 1, sizeof(*s->stage), what,
                     err));
    words = gpt_arena_alloc(&s->arena, (size_t)n, sizeof(*words));
    char *copy = gpt_arena_strdup(&s->arena, line);
    if (!words || !copy)
        return gpt_no_memory(err, what);
    cut_words(copy, words);
    s->stage[s->n] = (struct gpt_data_stage){.words = words + 1, .n = n - 1};
    GPT_TRY(check_stage(s, path, number, words[0], err));
    s->n++;
    return GPT_OK;
}

int gpt_data_stages_read(struct gpt_data_stages *s, const char *path,
                         struct gpt_err *err)
{
    char *text = NULL, *next;
    size_t len, cap = 0;
    int64_t number = 0;
    int status;

    *s = (struct gpt_data_stages){.n = 0};
    GPT_TRY(gpt_in_protect(path, err));
    GPT_TRY(gpt_read_file(path, FILE_LIMIT, &text, &len, err));
    /* the text is cut by NULs below: one of the file would hide what follows */
    if (strlen(text) != len) {
        status = gpt_fail(err, GPT_EDATA, "%s: holds a NUL byte", path);
        goto out;
    }
    status = GPT_OK;
    for (char *line = text; line && status == GPT_OK; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        status = take_line(s, &cap, path, ++number, line, err);
    }
    if (status == GPT_OK && s->n == 0) {
        gpt_fail(err, GPT_EDATA, "%s: holds no stage", path);
        status = gpt_hint(err, "a line '0 PREFIX' is a stage that begins at "
                               "sample 0");
    }
out:
    gpt_free(text);
    if (status != GPT_OK)
        gpt_data_stages_free(s);
    return status;
}

void gpt_data_stages_free(struct gpt_data_stages *s)
{
    gpt_free(s->stage);
    gpt_arena_free(&s->arena);
    *s = (struct gpt_data_stages){.n = 0};
}

/* From the end, as the last stage is the longest of most runs. */
int64_t gpt_data_stages_at(const struct gpt_data_stages *s, int64_t sample)
{
    int64_t i = s->n - 1;

    while (i > 0 && s->stage[i].first > sample)
        i--;
    return i;
}
