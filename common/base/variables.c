/* The table of variables.h. What a word means is known where it is read. */
#include "base/variables.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct row {
    const char *name;
    const char *words[5]; /* the last one is NULL */
} table[] = {
    /* in the order of enum gpt_log_level */
    {"GPT_LOG", {"error", "warning", "info", "debug"}},
    {"GPT_CPU_MATMUL", {"dnnl", "portable"}},
    {"GPT_CUDA_FLASH", {"auto", "mma", "mma-backward"}},
    {"GPT_CUDA_SYNC", {"0", "1"}},
    {"GPT_CUDA_TUNE", {"0", "1"}},
};

/* The place of a row's value: -1 where it is unset, -2 where it is no word of
 * the row. */
static int place(const struct row *r, const char **value)
{
    *value = getenv(r->name);
    if (!*value || !**value)
        return -1;
    for (int i = 0; r->words[i]; i++)
        if (strcmp(*value, r->words[i]) == 0)
            return i;
    return -2;
}

/* "a, b or c" */
static void list_words(const struct row *r, char *text, size_t cap)
{
    int used = 0;

    for (int i = 0; r->words[i]; i++)
        used += snprintf(text + used, cap - (size_t)used, "%s%s",
                         i == 0 ? "" : r->words[i + 1] ? ", " : " or ",
                         r->words[i]);
}

int gpt_variables_check(struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(table); i++) {
        const char *value;
        char words[64];

        if (place(&table[i], &value) != -2)
            continue;
        list_words(&table[i], words, sizeof(words));
        return gpt_fail(err, GPT_EUSAGE, "%s: '%s' is not %s", table[i].name,
                        value, words);
    }
    return GPT_OK;
}

int gpt_variable_word(const char *name)
{
    const char *value;
    size_t i = 0;

    while (i < GPT_COUNT(table) && strcmp(name, table[i].name) != 0)
        i++;
    assert(i < GPT_COUNT(table));
    return place(&table[i], &value);
}
