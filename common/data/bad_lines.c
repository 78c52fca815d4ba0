/* The words of bad_lines.h. */
#include "data/bad_lines.h"

const char *gpt_bad_word(int kind)
{
    static const char *const words[GPT_BAD_KINDS] = {
#define X(name, word) [name] = word,
        GPT_JSON_BAD_LIST(X)
#undef X
        [GPT_BAD_LONG] = "too long",
    };

    return words[kind];
}
