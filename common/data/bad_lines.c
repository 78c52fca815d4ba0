/* The words of bad_lines.h. */
#include "data/bad_lines.h"

#include <assert.h>

/* The words are those of the scanner, and one for a line that is good JSON. */
const char *gpt_bad_word(int kind)
{
    static const char *const words[GPT_BAD_KINDS] = {
#define X(name, word) [name] = word,
        GPT_JSON_BAD_LIST(X)
#undef X
        [GPT_BAD_LONG] = "too long",
    };

    assert(kind >= 0 && kind < GPT_BAD_KINDS);
    return words[kind];
}
