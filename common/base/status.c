/* Statuses and the error object. Text is formatted beside the object first, so
 * that an argument may point into the object being filled. */
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Longer text is cut: the object has no memory of its own to grow. Rank and
 * hint are reset: those of an earlier failure must not be taken for this
 * one's. */
GPT_PRINTF(3, 0)
static void begin_failure(struct gpt_err *err, int status, const char *fmt,
                          va_list args)
{
    char text[sizeof(err->text)];

    vsnprintf(text, sizeof(text), fmt, args);
    memcpy(err->text, text, sizeof(text));
    err->status = status;
    err->rank = -1;
    err->hint[0] = '\0';
}

int gpt_fail(struct gpt_err *err, int status, const char *fmt, ...)
{
    va_list args;

    if (!err)
        return status;
    va_start(args, fmt);
    begin_failure(err, status, fmt, args);
    va_end(args);
    return status;
}

int gpt_fail_errno(struct gpt_err *err, int status, const char *fmt, ...)
{
    /* Formatting may change errno; callers still test it afterwards. */
    int error = errno;
    char reason[128];
    va_list args;

    /* The file has nothing to do with it. */
    if (status == GPT_EIO && error == ENOMEM)
        status = GPT_EFAIL;
    if (!err)
        return status;
    va_start(args, fmt);
    begin_failure(err, status, fmt, args);
    va_end(args);
    size_t len = strlen(err->text);
    snprintf(err->text + len, sizeof(err->text) - len, ": %s",
             strerror_r(error, reason, sizeof(reason)));
    errno = error;
    return status;
}

/* The status stays, so that `return gpt_hint(...)` reads like a failure of its
 * own. */
int gpt_hint(struct gpt_err *err, const char *fmt, ...)
{
    char hint[sizeof(err->hint)];
    va_list args;

    if (!err)
        return GPT_EFAIL;
    va_start(args, fmt);
    vsnprintf(hint, sizeof(hint), fmt, args);
    va_end(args);
    memcpy(err->hint, hint, sizeof(hint));
    return err->status;
}

int gpt_fail_on_rank(struct gpt_err *err, int64_t rank)
{
    if (!err)
        return GPT_EFAIL;
    err->rank = rank;
    return err->status;
}

/* The deeper function knows the field, the one above it the file: the text
 * grows to the left on the way up. */
int gpt_context(struct gpt_err *err, const char *fmt, ...)
{
    char before[sizeof(err->text)];
    char text[sizeof(err->text)];
    va_list args;

    if (!err)
        return GPT_EFAIL;
    va_start(args, fmt);
    int n = vsnprintf(before, sizeof(before), fmt, args);
    va_end(args);
    /* The text at hand matters more than its place: keep half the room. */
    size_t len = n > 0 ? strnlen(before, sizeof(text) / 2) : 0;
    memcpy(text, before, len);
    memcpy(text + len, ": ", 2);
    len += 2;
    size_t kept = strnlen(err->text, sizeof(text) - 1 - len);
    memcpy(text + len, err->text, kept);
    text[len + kept] = '\0';
    memcpy(err->text, text, len + kept + 1);
    return err->status;
}

/* The list is expanded here again, so no status can lack its word. */
const char *gpt_status_word(int status)
{
    switch (status) {
#define X(name, code, word)                                                    \
    case name:                                                                 \
        return word;
        GPT_STATUS_LIST(X)
#undef X
    }
    return "unknown";
}
