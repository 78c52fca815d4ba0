/* How many nodes a job has, and how many processes a node gets. */
#include "cmd/launch/count.h"

#include "base/num.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROCESSES = 4096, MAX_NODES = 65536 };

/* The GPUs that processes will see: what CUDA_VISIBLE_DEVICES lists, else the
 * device files of the driver. No driver is loaded for that: gpt-launch is no
 * program of CUDA. */
static int64_t count_gpus(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    glob_t found;
    int64_t n = 0;

    if (visible) {
        for (const char *at = visible; *at; at += strspn(at, ",")) {
            if (*at == '-') /* -1 and all after it are hidden */
                break;
            n++;
            at += strcspn(at, ",");
        }
        return n;
    }
    if (glob("/dev/nvidia[0-9]*", 0, NULL, &found) == 0) {
        n = (int64_t)found.gl_pathc;
        globfree(&found);
    }
    return n;
}

/* The same words as torchrun's. The processors are those that are online, as
 * torchrun counts them, not those that this process may run on. */
int gpt_launcher_count(int64_t *n, const char *text, struct gpt_err *err)
{
    const bool any = strcmp(text, "auto") == 0;

    *n = 0;
    if (any || strcmp(text, "gpu") == 0) {
        *n = count_gpus();
        if (*n == 0 && !any) {
            gpt_fail(err, GPT_EDEVICE,
                     "--nproc-per-node gpu: no GPU is visible on this node");
            return gpt_hint(err, "give a number, or cpu");
        }
    }
    if ((any && *n == 0) || strcmp(text, "cpu") == 0)
        *n = sysconf(_SC_NPROCESSORS_ONLN);
    if (*n == 0 && !gpt_parse_int(text, n))
        return gpt_fail(err, GPT_EUSAGE,
                        "--nproc-per-node: '%.100s' is not a number, gpu, cpu "
                        "or auto",
                        text);
    if (*n < 1 || *n > MAX_PROCESSES)
        return gpt_fail(err, GPT_EUSAGE,
                        "--nproc-per-node: %s is out of range (1 to %d)", text,
                        MAX_PROCESSES);
    return GPT_OK;
}

static bool read_range(const char *text, int64_t *least, int64_t *most)
{
    const char *colon = strchr(text, ':');
    char first[24];

    if (!colon)
        return gpt_parse_int(text, most) && gpt_parse_int(text, least);
    if ((size_t)(colon - text) >= sizeof(first))
        return false;
    memcpy(first, text, (size_t)(colon - text));
    first[colon - text] = '\0';
    return gpt_parse_int(first, least) && gpt_parse_int(colon + 1, most);
}

/* torchrun's MIN:MAX is a number where both are the same. */
int gpt_launcher_nodes(int64_t *n, const char *text, struct gpt_err *err)
{
    int64_t least;

    if (!read_range(text, &least, n))
        return gpt_fail(err, GPT_EUSAGE, "--nnodes: '%.100s' is not a number",
                        text);
    if (*n < 1 || *n > MAX_NODES)
        return gpt_fail(err, GPT_EUSAGE,
                        "--nnodes: %.100s is out of range (1 to %d)", text,
                        MAX_NODES);
    if (least == *n)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE,
             "--nnodes: %.100s is a range, and a job keeps the nodes it began "
             "with",
             text);
    return gpt_hint(err, "write one number; a job that lost a node is started "
                         "again with fewer, and gpt-train resumes");
}
