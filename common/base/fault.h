/* Fault injection, for tests. In normal builds gpt_fault() is the constant 0
 * and costs nothing. Built with -DGPT_FAULTS, the environment says which call
 * fails:
 *
 *     GPT_FAULT=write:3:ENOSPC   the third write fails with ENOSPC
 *     GPT_FAULT=rename:2:KILL    SIGKILL comes before the second rename
 *     GPT_FAULT=write:5:INT      SIGINT comes before the fifth write
 *     GPT_FAULT=alloc:17         the seventeenth allocation gives NULL
 *     GPT_FAULT=count            nothing fails; the number of calls of every
 *                                kind is printed on stderr at exit
 */
#ifndef GPT_BASE_FAULT_H
#define GPT_BASE_FAULT_H

#include <errno.h>

enum gpt_fault_kind {
    GPT_FAULT_READ,
    GPT_FAULT_WRITE,
    GPT_FAULT_FSYNC,
    GPT_FAULT_RENAME,
    GPT_FAULT_ALLOC,
    GPT_FAULT_UNLINK, /* of old files and journals, at the end */
    GPT_FAULT_KINDS
};

#ifdef GPT_FAULTS
/* Counts the call; true, with errno set, when it is the one to fail. */
int gpt_fault(enum gpt_fault_kind kind);
#else
#define gpt_fault(kind) 0
#endif

#endif
