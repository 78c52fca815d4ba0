/* Ends a test whose set-up failed: nothing more can be said then. Also in a
 * process of several, which gives nothing back. */
#ifndef GPT_TESTS_MUST_H
#define GPT_TESTS_MUST_H

#include "base/status.h"

#include <stdio.h>
#include <unistd.h>

__attribute__((unused)) static void must(int status, const struct gpt_err *err)
{
    if (status == GPT_OK)
        return;
    printf("Bail out! %s\n", err->text);
    fflush(stdout);
    _exit(1);
}

#endif
