/* Status codes and the error object: how every fallible function of the
 * library reports. A status is the exit code that it would cause, so a program
 * hands it to exit() unchanged. Start at gpt_fail().
 *
 * This folder is what every other one is built on: errors, memory, numbers,
 * files, threads, logs, JSON, hashes, and the options of programs. It knows
 * nothing of texts, tokens or models, and includes no other folder. Read this
 * header first, then memory.h and io.h. */
#ifndef GPT_BASE_STATUS_H
#define GPT_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* name, exit code, one word for machine-readable logs */
#define GPT_STATUS_LIST(X)                                                     \
    X(GPT_OK, 0, "ok")             /* done; for output: it is on disk */       \
    X(GPT_EFAIL, 1, "failed")      /* anything not named below, ENOMEM */      \
    X(GPT_EUSAGE, 2, "usage")      /* command line or configuration */         \
    X(GPT_EDATA, 3, "bad-data")    /* input malformed, truncated, altered */   \
    X(GPT_EIO, 4, "io")            /* open, read, write, no space */           \
    X(GPT_EDEVICE, 5, "device")    /* absent, unsupported, out of memory */    \
    X(GPT_EDIVERGED, 6, "diverged") /* non-finite loss past the policy */      \
    X(GPT_EEXIST, 7, "exists")     /* output exists and no --force */

enum gpt_status {
#define X(name, code, word) name = (code),
    GPT_STATUS_LIST(X)
#undef X
};

#define GPT_MUST_USE __attribute__((warn_unused_result))
#define GPT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Owned by the caller, no allocation inside, so that running out of memory can
 * be reported. `text` names place, field, value and limit in one line, lower
 * case, no full stop; `hint` is the next command to try, or empty. */
struct gpt_err {
    int status;
    int64_t rank; /* of a job, that failed; -1: this process, or no rank */
    char text[768];
    char hint[512];
};

/* Fills *err (may be NULL) and returns `status`, so that callers can write
 *     return gpt_fail(err, GPT_EDATA, "%s:%lld: no field 'text'", path, line);
 */
int gpt_fail(struct gpt_err *err, int status, const char *fmt, ...)
    GPT_PRINTF(3, 4);

/* The same, followed by ": " and the text of errno as it stood on entry. Where
 * the system lacks memory for a file, GPT_EIO becomes GPT_EFAIL. */
int gpt_fail_errno(struct gpt_err *err, int status, const char *fmt, ...)
    GPT_PRINTF(3, 4);

/* Sets the hint of an error already reported; returns its status. */
int gpt_hint(struct gpt_err *err, const char *fmt, ...) GPT_PRINTF(2, 3);

/* Sets the rank that an error already reported comes from, for callers that
 * have it from another process; returns its status. */
int gpt_fail_on_rank(struct gpt_err *err, int64_t rank);

/* Puts "fmt...: " before the text of an error already reported; returns its
 * status. For callers that know the file where the callee knew the field. */
int gpt_context(struct gpt_err *err, const char *fmt, ...) GPT_PRINTF(2, 3);

/* The word of a status ("bad-data"), never NULL. */
const char *gpt_status_word(int status);

/* Returns from the calling function when `expr` is a failure. */
#define GPT_TRY(expr)                                                          \
    do {                                                                       \
        int try_status_ = (expr);                                              \
        if (try_status_ != GPT_OK)                                             \
            return try_status_;                                                \
    } while (0)

/* Jumps to `label` with `var` holding the failure. One exit a function. */
#define GPT_TRY_GOTO(var, expr, label)                                         \
    do {                                                                       \
        (var) = (expr);                                                        \
        if ((var) != GPT_OK)                                                   \
            goto label;                                                        \
    } while (0)

#define GPT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
