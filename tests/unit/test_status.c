/* base/status.h: texts, hints, contexts, and what happens when they are too
 * long or point into the object being filled. */
#include "base/status.h"
#include "tests/lib/tap.h"

#include <errno.h>

int main(void)
{
    struct gpt_err err = {0};

    is_int(gpt_fail(&err, GPT_EDATA, "%s:%d: no field '%s'", "a", 3, "text"),
           GPT_EDATA, "gpt_fail returns its status");
    is_str(err.text, "a:3: no field 'text'", "and keeps the text");
    is_int(err.status, GPT_EDATA, "and the status");
    is_int(gpt_fail(NULL, GPT_EIO, "x"), GPT_EIO, "no object is fine");

    is_int(gpt_hint(&err, "try %d", 7), GPT_EDATA, "gpt_hint keeps the status");
    is_str(err.hint, "try 7", "and sets the hint");
    is_int(gpt_context(&err, "file '%s'", "f"), GPT_EDATA, "context: status");
    is_str(err.text, "file 'f': a:3: no field 'text'", "context goes before");
    is_str(err.hint, "try 7", "context keeps the hint");

    gpt_fail(&err, GPT_EIO, "again: %s", err.text);
    is_str(err.text, "again: file 'f': a:3: no field 'text'",
           "an argument may be the old text");
    is_str(err.hint, "", "a new error has no hint");

    errno = ENOSPC;
    is_int(gpt_fail_errno(&err, GPT_EIO, "cannot write '%s'", "x"), GPT_EIO,
           "gpt_fail_errno returns its status");
    is_str(err.text, "cannot write 'x': No space left on device",
           "and adds the reason");
    is_int(errno, ENOSPC, "errno survives");
    errno = ENOMEM;
    is_int(gpt_fail_errno(&err, GPT_EIO, "cannot map 'x'"), GPT_EFAIL,
           "a lack of memory is no failure of the file");
    is_int(err.status, GPT_EFAIL, "nor in the error");

    char longer[2000];
    memset(longer, 'y', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    gpt_fail(&err, GPT_EFAIL, "%s", longer);
    is_int(strlen(err.text), sizeof(err.text) - 1, "long texts are cut");
    gpt_context(&err, "%s", longer);
    is_int(strlen(err.text), sizeof(err.text) - 1, "so are long contexts");
    ok(strstr(err.text, "y: y") != NULL, "and both parts remain");
    gpt_fail(&err, GPT_EFAIL, "short");
    gpt_context(&err, "%s", longer);
    ok(strstr(err.text, ": short") != NULL, "the inner text is not lost");

#define X(name, code, word)                                                    \
    is_int(name, code, "%s is %d", word, code);                                \
    is_str(gpt_status_word(code), word, "word of %d", code);
    GPT_STATUS_LIST(X)
    is_str(gpt_status_word(99), "unknown", "word of another number");
    return tap_done();
}
