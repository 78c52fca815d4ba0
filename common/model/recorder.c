/* Recorded work; see recorder.h. Start at gpt_recorder_run(). Replaying one
 * recording instead of queueing hundreds of operations is what keeps a fast
 * device busy with a small model. */
#include "model/recorder.h"

#include "base/log.h"
#include "base/memory.h"

#include <assert.h>

struct entry {
    bool called; /* at least once: it may be recorded now */
    struct gpt_recording *recording;
};

struct gpt_recorder {
    struct gpt_backend *be;
    int64_t n;
    bool off; /* recording failed: nothing is recorded from then on */
    struct entry entries[];
};

int gpt_recorder_open(struct gpt_recorder **out, struct gpt_backend *be,
                      int64_t n, struct gpt_err *err)
{
    struct gpt_recorder *r;
    char *block; /* a recorder with its entries: gpt_new() takes one size */

    *out = NULL;
    GPT_TRY(gpt_new(&block, sizeof(*r) + (size_t)n * sizeof(*r->entries), 1,
                    "recorded work", err));
    r = (void *)block;
    r->be = be;
    r->n = n;
    *out = r;
    return GPT_OK;
}

void gpt_recorder_close(struct gpt_recorder *r)
{
    if (!r)
        return;
    for (int64_t i = 0; i < r->n; i++)
        if (r->entries[i].recording)
            r->be->recording_close(r->entries[i].recording);
    gpt_free(r);
}

/* Leaves a recording in the entry; after a failure none, there or later. */
static void record_work(struct gpt_recorder *r, struct gpt_queue *q,
                        struct entry *entry, void (*work)(void *),
                        void *context)
{
    struct gpt_err err;

    /* a replay was refused: the queue is no longer as when this was made */
    if (entry->recording)
        r->be->recording_close(entry->recording);
    entry->recording = NULL;
    int status = r->be->record_begin(q, &err);
    if (status == GPT_OK) {
        work(context);
        status = r->be->record_end(q, &entry->recording, &err);
    }
    /* a warning, not an error: without recordings a run is only slower */
    if (status != GPT_OK) {
        r->off = true;
        gpt_warn("operations are not recorded: %s", err.text);
    }
}

void gpt_recorder_run(struct gpt_recorder *r, struct gpt_queue *q,
                      int64_t number, void (*work)(void *), void *context)
{
    assert(number >= 0 && number < r->n);
    struct entry *entry = &r->entries[number];

    /* the usual case, once per pass of every microbatch */
    if (entry->recording && r->be->replay(q, entry->recording))
        return;
    if (entry->called && !r->off)
        record_work(r, q, entry, work, context);
    entry->called = true;
    /* recording only collects: the operations still have to be run */
    if (!entry->recording || !r->be->replay(q, entry->recording))
        work(context);
}
