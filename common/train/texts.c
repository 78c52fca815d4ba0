/* Given texts through the model; see texts.h. Start at gpt_texts_read().
 *
 * Text i of a pass is row i % B of microbatch i / B of the global batch, as
 * samples are: data parallel ranks take microbatches in turns. Its logits exist
 * on the last stage of its replica, a chunk of rows at a time, cut over the
 * tensor parallel ranks; the rows that are asked for are gathered one by one,
 * and the first of these ranks looks at them. What it finds goes to all ranks
 * by one sum, to which every other rank adds zeros. */
#include "train/texts.h"

#include "base/memory.h"
#include "base/num.h"

#include <string.h>

struct gpt_texts {
    struct gpt_replica *r;
    struct gpt_feed *feed;
    int64_t dp_size, dp_rank;
    int64_t most; /* texts of a pass */
    int32_t *tokens; /* (micro batches, B, T + 1) of this rank */
    void *row;      /* device, (padded V) act, gathered; NULL: not cut */
    void *host_row; /* (padded V) act */
    float *logits;  /* (V) */
    double *sums, *host_sums; /* (most, GPT_TEXT_ANSWERS); device and host */
};

/* A pass under way. */
struct pass {
    struct gpt_texts *t;
    const struct gpt_given *texts;
    int64_t first, n; /* of the texts */
    const struct gpt_given_reader *reader;
};

/* ---- memory ---- */

/* Tensor parallel ranks hold the logits of their own words. */
static bool is_cut(const struct gpt_replica *r)
{
    return r->o.layout.size[GPT_TP] > 1;
}

static bool is_alone(const struct gpt_replica *r)
{
    return !r->o.world || !r->o.world->comm[GPT_GROUP_WORLD];
}

static int64_t micro_batches(const struct gpt_replica *r)
{
    return gpt_max_i64(r->o.micro_batches, 1);
}

/* A row as tensor parallel ranks gather it: dummy words are among it. */
static size_t row_bytes(const struct gpt_replica *r)
{
    return (size_t)r->o.config.padded_vocab_size *
           gpt_dtype_bytes(r->o.exec.act);
}

/* Texts of one pass of all ranks: as many as the largest step has samples. */
static int64_t texts_of_pass(const struct gpt_replica *r, int64_t dp_size)
{
    return micro_batches(r) * dp_size * r->o.exec.micro_batch;
}

static size_t sums_bytes(int64_t texts)
{
    return (size_t)texts * GPT_TEXT_ANSWERS * sizeof(double);
}

static size_t tokens_of_rank(const struct gpt_replica *r)
{
    return (size_t)(micro_batches(r) * r->o.exec.micro_batch *
                    (r->o.exec.seq_length + 1));
}

/* Predictions call it before any texts are open. */
int64_t gpt_texts_sums(const struct gpt_replica *r, int64_t dp_size)
{
    return texts_of_pass(r, dp_size) * GPT_TEXT_ANSWERS;
}

void gpt_texts_memory(const struct gpt_replica *r, int64_t dp_size,
                      int64_t *device, int64_t *host)
{
    const size_t sums = sums_bytes(texts_of_pass(r, dp_size));
    const bool output = r->o.layout.has_output;

    *device = (int64_t)((output && is_cut(r) ? row_bytes(r) : 0) +
                        (gpt_replica_sums(r) ? sums : 0));
    *host = (int64_t)(sums + tokens_of_rank(r) * sizeof(int32_t));
    if (output)
        *host += (int64_t)(row_bytes(r) +
                           (size_t)r->o.config.vocab_size * sizeof(float));
}

/* The last stage alone sees logits. */
static int open_rows(struct gpt_texts *t, struct gpt_err *err)
{
    struct gpt_backend *be = t->r->be;
    static const char what[] = "logits of texts";

    if (!t->r->o.layout.has_output)
        return GPT_OK;
    if (is_cut(t->r))
        GPT_TRY(be->alloc(be, row_bytes(t->r), what, &t->row, err));
    GPT_TRY(be->host_alloc(be, row_bytes(t->r), what, &t->host_row, err));
    return gpt_new(&t->logits, (size_t)t->r->o.config.vocab_size,
                   sizeof(*t->logits), what, err);
}

/* The host's part is pinned, as the sums of a step are. */
static int open_sums(struct gpt_texts *t, struct gpt_err *err)
{
    struct gpt_backend *be = t->r->be;
    const size_t bytes = sums_bytes(t->most);
    static const char what[] = "sums over texts";
    void *sums;

    GPT_TRY(be->host_alloc(be, bytes, what, &sums, err));
    t->host_sums = sums;
    if (!t->r->o.world)
        return GPT_OK;
    GPT_TRY(be->alloc(be, bytes, what, &sums, err));
    t->sums = sums;
    return GPT_OK;
}

int gpt_texts_open(struct gpt_texts **texts, struct gpt_replica *r,
                   struct gpt_feed *feed, int64_t dp_size, int64_t dp_rank,
                   struct gpt_err *err)
{
    struct gpt_texts *t;
    int status;

    *texts = NULL;
    GPT_TRY(gpt_new(&t, 1, sizeof(*t), "texts", err));
    t->r = r;
    t->feed = feed;
    t->dp_size = gpt_max_i64(dp_size, 1);
    t->dp_rank = dp_rank;
    t->most = texts_of_pass(r, t->dp_size);
    GPT_TRY_GOTO(status,
                 gpt_new(&t->tokens, tokens_of_rank(r), sizeof(*t->tokens),
                         "texts", err),
                 fail);
    GPT_TRY_GOTO(status, open_rows(t, err), fail);
    GPT_TRY_GOTO(status, open_sums(t, err), fail);
    *texts = t;
    return GPT_OK;
fail:
    gpt_texts_close(t);
    return status;
}

void gpt_texts_close(struct gpt_texts *t)
{
    if (!t)
        return;
    struct gpt_backend *be = t->r->be;

    if (t->row)
        be->free(be, t->row);
    if (t->sums)
        be->free(be, t->sums);
    if (t->host_row)
        be->host_free(be, t->host_row);
    if (t->host_sums)
        be->host_free(be, t->host_sums);
    gpt_free(t->logits);
    gpt_free(t->tokens);
    gpt_free(t);
}

int64_t gpt_texts_vocab(const struct gpt_texts *t)
{
    return t->r->o.config.vocab_size;
}

/* ---- rows ---- */

/* A failure of the queue shows when the pass is waited for. */
static void look_at(const struct pass *p, int64_t text, int64_t row,
                    const void *logits, struct gpt_queue *q)
{
    struct gpt_texts *t = p->t;
    struct gpt_replica *r = t->r;
    const enum gpt_dtype act = r->o.exec.act;
    const int64_t v = r->o.config.padded_vocab_size / r->o.layout.size[GPT_TP];
    struct gpt_err err;

    if (t->row) {
        gpt_comm_all_gather(r->o.world->comm[GPT_GROUP_TP], q, t->row, logits,
                            v, act);
        logits = t->row;
    }
    if (r->o.layout.at[GPT_TP] > 0)
        return;
    r->be->copy_out(q, t->host_row, logits, row_bytes(r));
    if (r->be->sync(q, &err) != GPT_OK)
        return;
    if (!gpt_convert(t->logits, GPT_F32, t->host_row, act,
                     (size_t)r->o.config.vocab_size))
        return;
    p->reader->row(p->reader->user, p->first + text, row, t->logits,
                   t->host_sums + text * GPT_TEXT_ANSWERS);
}

/* The rows of a chunk that are asked for, of all texts in it: the same ones on
 * all tensor parallel ranks, which gather each together. */
static void look_at_rows(void *context, int64_t microbatch,
                         const struct gpt_logit_rows *rows)
{
    const struct pass *p = context;
    const struct gpt_replica *r = p->t->r;
    const int64_t length = r->o.exec.seq_length;
    const int64_t b = r->o.exec.micro_batch;
    const int64_t text0 =
        (microbatch * p->t->dp_size + p->t->dp_rank) * b;
    const size_t stride =
        row_bytes(r) / (size_t)r->o.layout.size[GPT_TP];

    for (int64_t i = 0; i < rows->n; i++) {
        const int64_t row = (rows->first + i) % length;
        const int64_t text = text0 + (rows->first + i) / length;
        const struct gpt_given *x =
            text < p->n ? &p->texts[p->first + text] : NULL;

        if (x && row >= x->from && row < x->to)
            look_at(p, text, row,
                    (const char *)rows->logits + (size_t)i * stride, rows->q);
    }
}

/* ---- passes ---- */

/* Rows without a text are padding. */
static void place_tokens(const struct pass *p, int64_t n_micro)
{
    const struct gpt_texts *t = p->t;
    const int64_t b = t->r->o.exec.micro_batch;
    const int64_t row = t->r->o.exec.seq_length + 1;

    memset(t->tokens, 0xFF, (size_t)(n_micro * b * row) * sizeof(*t->tokens));
    for (int64_t i = 0; i < n_micro * b; i++) {
        const int64_t text =
            (i / b * t->dp_size + t->dp_rank) * b + i % b;

        if (text < p->n)
            memcpy(t->tokens + i * row, p->texts[p->first + text].tokens,
                   (size_t)p->texts[p->first + text].n * sizeof(*t->tokens));
    }
}

/* Sums of zeros and one number are that number, to the bit. */
static int share_answers(struct gpt_texts *t, int64_t n, struct gpt_err *err)
{
    struct gpt_replica *r = t->r;
    const size_t bytes = sums_bytes(n);

    if (is_alone(r))
        return GPT_OK;
    r->be->copy_in(r->q, t->sums, t->host_sums, bytes);
    gpt_comm_all_reduce(r->o.world->comm[GPT_GROUP_WORLD], r->q, t->sums,
                        n * GPT_TEXT_ANSWERS, GPT_F64, GPT_SUM);
    r->be->copy_out(r->q, t->host_sums, t->sums, bytes);
    GPT_TRY(r->be->sync(r->q, err));
    return gpt_world_check(r->o.world, err);
}

/* As few microbatches as hold the texts, but where stages are interleaved,
 * whose plan is made for whole groups of them. */
static int64_t count_micro(const struct gpt_texts *t, int64_t n)
{
    const int64_t texts = t->dp_size * t->r->o.exec.micro_batch;

    return t->r->o.layout.chunks > 1 ? micro_batches(t->r)
                                     : gpt_ceil_div(n, texts);
}

/* The watch is taken off also after a failure: a validation that follows must
 * not call into a pass that is over. */
static int run_pass(struct pass *p, struct gpt_err *err)
{
    const struct gpt_pipeline_watch watch = {look_at_rows, p}, none = {0};
    const int64_t n_micro = count_micro(p->t, p->n);
    struct gpt_replica *r = p->t->r;

    memset(p->t->host_sums, 0, sums_bytes(p->n));
    place_tokens(p, n_micro);
    GPT_TRY(gpt_feed_give(p->t->feed, p->t->tokens, n_micro, err));
    gpt_pipeline_watch(r->pipeline, &watch);
    int status = gpt_pipeline_run(r->pipeline, r->q, p->t->feed, n_micro,
                                  GPT_STAGE_EVAL, err);
    gpt_pipeline_watch(r->pipeline, &none);
    GPT_TRY(status);
    GPT_TRY(r->be->sync(r->q, err));
    return share_answers(p->t, p->n, err);
}

/* The last pass may be shorter, and is no larger for that. */
int gpt_texts_read(struct gpt_texts *t, const struct gpt_given *texts,
                   int64_t n, const struct gpt_given_reader *reader,
                   double (*answers)[GPT_TEXT_ANSWERS], struct gpt_err *err)
{
    for (int64_t i = 0; i < n; i += t->most) {
        struct pass pass = {t, texts, i, gpt_min_i64(t->most, n - i), reader};

        GPT_TRY(run_pass(&pass, err));
        memcpy(answers + i, t->host_sums, sums_bytes(pass.n));
    }
    return GPT_OK;
}
