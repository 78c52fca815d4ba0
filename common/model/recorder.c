/* Recorded pieces of work; see pieces.h. Start at gpt_recorder_run(). */
#include "model/recorder.h"

#include "base/log.h"
#include "base/memory.h"

struct piece {
    bool known; /* it has run before */
    struct gpt_recording *recording;
};

struct gpt_recorder {
    struct gpt_backend *be;
    int64_t n;
    bool off; /* recording failed: everything runs as it is */
    struct piece pieces[];
};

int gpt_recorder_open(struct gpt_recorder **out, struct gpt_backend *be,
                      int64_t n, struct gpt_err *err)
{
    struct gpt_recorder *p;
    char *block;

    *out = NULL;
    GPT_TRY(gpt_new(&block, sizeof(*p) + (size_t)n * sizeof(*p->pieces), 1,
                    "recorded work", err));
    p = (void *)block;
    p->be = be;
    p->n = n;
    *out = p;
    return GPT_OK;
}

void gpt_recorder_close(struct gpt_recorder *p)
{
    if (!p)
        return;
    for (int64_t i = 0; i < p->n; i++)
        if (p->pieces[i].recording)
            p->be->recording_close(p->pieces[i].recording);
    gpt_free(p);
}

/* Leaves a recording, or says why there is none from now on. */
static void record(struct gpt_recorder *p, struct gpt_queue *q,
                   struct piece *piece, void (*work)(void *), void *context)
{
    struct gpt_err err;

    if (piece->recording)
        p->be->recording_close(piece->recording);
    piece->recording = NULL;
    int status = p->be->record_begin(q, &err);
    if (status == GPT_OK) {
        work(context);
        status = p->be->record_end(q, &piece->recording, &err);
    }
    if (status != GPT_OK) {
        p->off = true;
        gpt_warn("operations are not recorded: %s", err.text);
    }
}

void gpt_recorder_run(struct gpt_recorder *p, struct gpt_queue *q, int64_t i,
                      void (*work)(void *), void *context)
{
    struct piece *piece = &p->pieces[i];

    if (piece->recording && p->be->replay(q, piece->recording))
        return;
    if (piece->known && !p->off)
        record(p, q, piece, work, context);
    piece->known = true;
    if (!piece->recording || !p->be->replay(q, piece->recording))
        work(context);
}
