/* Fault injection: see fault.h. Empty unless built with -DGPT_FAULTS. */
#include "base/fault.h"

typedef int gpt_fault_not_empty; /* ISO C wants a declaration in every file */

#ifdef GPT_FAULTS
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[GPT_FAULT_KINDS] = {
    "read", "write", "fsync", "rename", "alloc", "unlink"};

/* No error: the process dies there, or is asked to stop. */
enum { KILL = -1, INT = -2 };

static const struct {
    const char *name;
    int value;
} errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR},
              {"EAGAIN", EAGAIN}, {"EDQUOT", EDQUOT}, {"ENOMEM", ENOMEM},
              {"KILL", KILL},     {"INT", INT}};

static struct {
    int kind; /* -1: none */
    long nth;
    int error;
} plan = {-1, 0, EIO};
static atomic_long calls[GPT_FAULT_KINDS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A test asks for the counts first, then lets each call fail in turn:
 * tests/cli/t80-faults.sh. */
static void print_counts(void)
{
    fprintf(stderr, "faults:");
    for (int k = 0; k < GPT_FAULT_KINDS; k++)
        fprintf(stderr, " %s %ld", kind_names[k], atomic_load(&calls[k]));
    fprintf(stderr, "\n");
}

/* A plan that cannot be read must not look like a test that passed. */
static void bad_plan(const char *text)
{
    fprintf(stderr, "faults: cannot read GPT_FAULT='%s'\n", text);
    abort();
}

/* Read once, at the first call: programs do not change their environment after
 * it. */
static void read_plan(void)
{
    const char *text = getenv("GPT_FAULT");
    char kind[16] = "", error[16] = "EIO";

    /* Without a plan nothing fails, so that a fault build also passes the other
     * tests. */
    if (!text || !*text)
        return;
    if (strcmp(text, "count") == 0) {
        atexit(print_counts);
        return;
    }
    /* The error may be left out; EIO is what disks report. */
    if (sscanf(text, "%15[^:]:%ld:%15s", kind, &plan.nth, error) < 2)
        bad_plan(text);
    for (int k = 0; k < GPT_FAULT_KINDS; k++)
        if (strcmp(kind, kind_names[k]) == 0)
            plan.kind = k;
    bool found = false;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (strcmp(error, errors[i].name) == 0) {
            plan.error = errors[i].value;
            found = true;
        }
    if (plan.kind < 0 || !found)
        bad_plan(text);
}

int gpt_fault(enum gpt_fault_kind kind)
{
    pthread_once(&once, read_plan);
    long n = atomic_fetch_add(&calls[kind], 1) + 1;
    /* Calls are counted by an atomic, so that exactly one thread gets the
     * failure. */
    if ((int)kind != plan.kind || n != plan.nth)
        return 0;
    if (plan.error == KILL)
        raise(SIGKILL);
    if (plan.error == INT) {
        raise(SIGINT);
        return 0;
    }
    errno = plan.error;
    return 1;
}
#endif
