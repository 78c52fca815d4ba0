/* Names before words; see named_words.h. The names become parts of fields of
 * metrics and of tags, which is why their characters are few: programs that
 * read these split them at spaces, slashes and commas. Start at take_word(). */
#include "cmd/train/named_words.h"

#include "base/io.h"

#include <ctype.h>
#include <string.h>

enum { MAX_NAME = 40 };

/* Where the sign of "NAME=WORD" is, or NULL. A path may hold a sign, too: a
 * name has no slash, so that the first of the two tells. */
static const char *find_sign(const char *word)
{
    const char *sign = strchr(word, '='), *slash = strchr(word, '/');

    return sign && !(slash && slash < sign) ? sign : NULL;
}

/* An empty name would make the fields of a set those of the run's own split,
 * and a name that comes twice would write two curves into one. */
static int check_name(const struct gpt_named *named, int64_t n,
                      const char *option, const char *name, struct gpt_err *err)
{
    bool good = *name != '\0';

    for (const char *c = name; *c; c++)
        good = good && (isalnum((unsigned char)*c) || strchr("._-", *c));
    /* what reads the log knows fields of a bounded length */
    if (strlen(name) > MAX_NAME) {
        gpt_fail(err, GPT_EUSAGE,
                 "%s: the name '%s' is longer than %d characters", option,
                 name, MAX_NAME);
        return gpt_hint(err, "give a shorter one, as in NAME=FILE");
    }
    if (!good)
        return gpt_fail(err, GPT_EUSAGE,
                        "%s: '%s' is no name: letters, digits, '.', '_' and "
                        "'-' make one",
                        option, name);
    for (int64_t i = 0; i < n; i++)
        if (strcmp(named[i].name, name) == 0)
            return gpt_fail(err, GPT_EUSAGE, "%s: the name %s comes twice",
                            option, name);
    return GPT_OK;
}

/* "dir/set.jsonl" gives "set": what follows the first dot of a name says how
 * its file is written. */
static const char *name_of_path(const char *path, struct gpt_arena *arena)
{
    const char *last = gpt_path_name(path);

    return gpt_arena_printf(arena, "%.*s", (int)strcspn(last, "."), last);
}

/* Takes one word: it begins a name, or belongs to the one before it. */
static int take_word(struct gpt_named *named, int64_t *n, const char *option,
                     const char **word, bool own, struct gpt_arena *arena,
                     struct gpt_err *err)
{
    const char *sign = find_sign(*word), *name;

    if (!sign && !own && *n > 0) {
        named[*n - 1].words.n++;
        return GPT_OK;
    }
    if (!sign && !own) {
        gpt_fail(err, GPT_EUSAGE, "%s: '%s' has no name", option, *word);
        return gpt_hint(err, "write NAME=%s", *word);
    }
    name = sign ? gpt_arena_printf(arena, "%.*s", (int)(sign - *word), *word)
                : name_of_path(*word, arena);
    if (!name)
        return gpt_no_memory(err, "names");
    GPT_TRY(check_name(named, *n, option, name, err));
    if (sign && sign[1] == '\0') {
        gpt_fail(err, GPT_EUSAGE, "%s: nothing is after '%s'", option, *word);
        return gpt_hint(err, "a variable of a script may not be set");
    }
    if (sign)
        *word = sign + 1;
    named[(*n)++] = (struct gpt_named){.name = name,
                                       .words = {.items = word, .n = 1}};
    return GPT_OK;
}

/* The list of the option stays as it is: the words are copied, so that a name
 * can be taken off its word in place. One element more than there are words
 * keeps an empty list from being no memory. */
int gpt_named_parse(struct gpt_named **named, int64_t *n, const char *option,
                    const struct gpt_list *words, bool own,
                    struct gpt_arena *arena, struct gpt_err *err)
{
    const char **copy =
        gpt_arena_alloc(arena, (size_t)words->n + 1, sizeof(*copy));

    *n = 0;
    *named = gpt_arena_alloc(arena, (size_t)words->n + 1, sizeof(**named));
    if (!copy || !*named)
        return gpt_no_memory(err, "names");
    for (int64_t i = 0; i < words->n; i++) {
        copy[i] = words->items[i];
        GPT_TRY(take_word(*named, n, option, &copy[i], own, arena, err));
    }
    return GPT_OK;
}
