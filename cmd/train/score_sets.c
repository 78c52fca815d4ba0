/* Scores of tasks; see score_sets.h. gpt_score_set_read() makes texts of lines,
 * once, and gpt_score_set_run() figures of the texts' log-probabilities, as
 * often as they are asked for.
 *
 * A text is a continuation or an ending after its context; of its tokens, those
 * after the context are scored, each by the logits of the row before it. The
 * endings of a line are texts of their own, each with the context again: a
 * pass has no memory of another one. */
#include "cmd/train/score_sets.h"

#include "base/json.h"
#include "base/num.h"
#include "base/utf8.h"
#include "cmd/train/read_lines.h"
#include "generate/logprob.h"
#include "generate/pair.h"

#include <math.h>
#include <string.h>

enum { ENDINGS = 16 };

struct gpt_score_line {
    int64_t text0, n; /* its texts */
    int64_t right;    /* which of them; choices alone */
    double chars[ENDINGS]; /* of each ending */
};

/* What reading carries from line to line. */
struct reading {
    struct gpt_score_set *set;
    const struct gpt_score_options *o;
    struct gpt_pair_encoder pairs;
    struct gpt_buf text;
};

/* ---- reading ---- */

/* Texts refer to their tokens by pointers, which move while tokens are added:
 * until all are there, `tokens` is NULL and `from` the place. */
static int add_tokens(struct reading *r, const int32_t *tokens, int64_t n,
                      int64_t first, struct gpt_err *err)
{
    struct gpt_score_set *s = r->set;

    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= r->o->vocab_size)
            return gpt_fail(err, GPT_EDATA,
                            "token id %d is outside the vocabulary of %lld",
                            tokens[i], (long long)r->o->vocab_size);
    GPT_TRY(gpt_grow(&s->texts, &s->cap_texts, (size_t)s->n_texts + 1,
                     sizeof(*s->texts), "texts", err));
    s->texts[s->n_texts++] =
        (struct gpt_given){.n = n, .from = first - 1, .to = n - 1};
    return gpt_ids_add(&s->tokens, tokens, (size_t)n, err);
}

/* A context that is too long loses its beginning, as in the harness; at least
 * one token of it stays, since the first of the continuation is predicted from
 * something. */
static int add_pair(struct reading *r, const struct gpt_pair *pair, bool *cut,
                    struct gpt_err *err)
{
    const int64_t most = r->o->seq_length + 1;
    int64_t first, skip = 0;

    GPT_TRY(gpt_pair_encode(&r->pairs, pair, &first, err));
    const int64_t n = (int64_t)r->pairs.ids.len;
    if (n - first >= most) {
        gpt_fail(err, GPT_EDATA, "the continuation has %lld token%s",
                 (long long)(n - first), gpt_plural(n - first));
        return gpt_hint(err, "it must be shorter than --seq-length");
    }
    skip = gpt_max_i64(n - most, 0);
    *cut = skip > 0;
    return add_tokens(r, r->pairs.ids.data + skip, n - skip, first - skip, err);
}

/* After its texts: the line refers to them by their numbers. */
static int add_line(struct gpt_score_set *s, const struct gpt_score_line *line,
                    struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&s->lines, &s->cap_lines, (size_t)s->n_lines + 1,
                     sizeof(*s->lines), "lines", err));
    s->lines[s->n_lines++] = *line;
    return GPT_OK;
}

/* Reads a line as gpt-generate does, so that one file serves both programs: of
 * a text only the last word is scored. */
static int read_continuation(struct reading *r, const cJSON *object,
                             const char *where, struct gpt_err *err)
{
    const char *key =
        cJSON_GetObjectItemCaseSensitive(object, "text") ? "text" : "context";
    const struct gpt_score_line line = {.text0 = r->set->n_texts, .n = 1};
    const char *context, *continuation;
    struct gpt_pair pair;
    bool cut;

    GPT_TRY(gpt_json_string(object, key, &context, where, err));
    if (cJSON_GetObjectItemCaseSensitive(object, "continuation")) {
        GPT_TRY(gpt_json_string(object, "continuation", &continuation, where,
                                err));
        pair = (struct gpt_pair){context, continuation, strlen(context),
                                 strlen(continuation)};
    } else {
        GPT_TRY(gpt_pair_of_text(&pair, context, strlen(context), err));
    }
    GPT_TRY(add_pair(r, &pair, &cut, err));
    r->set->cut += cut;
    return add_line(r->set, &line, err);
}

/* An ending follows its context after a space, as the harness puts one between
 * them; the space is none of its characters. An ending that begins with one has
 * it already. */
static int add_ending(struct reading *r, const char *context, const cJSON *item,
                      double *chars, bool *cut, struct gpt_err *err)
{
    if (!cJSON_IsString(item) || !*item->valuestring)
        return gpt_fail(err, GPT_EDATA, "an ending is no text");
    r->text.len = 0;
    if (gpt_buf_printf(&r->text, "%s%s",
                       *item->valuestring == ' ' ? "" : " ",
                       item->valuestring) != GPT_OK)
        return gpt_no_memory(err, "an ending");
    const struct gpt_pair pair = {context, r->text.data, strlen(context),
                                  r->text.len};
    /* the harness counts Python's characters: code points */
    *chars = (double)gpt_utf8_count(item->valuestring,
                                    strlen(item->valuestring));
    return add_pair(r, &pair, cut, err);
}

/* The number of the right ending; some files have it as a text, as Hugging
 * Face's HellaSwag does. */
static int read_label(const cJSON *object, int64_t n, int64_t *label,
                      const char *where, struct gpt_err *err)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, "label");

    if (!cJSON_IsString(item))
        return gpt_json_int(object, "label", 0, n - 1, label, where, err);
    if (!gpt_parse_int(item->valuestring, label) || *label < 0 || *label >= n)
        return gpt_fail(err, GPT_EDATA,
                        "%s: label is '%s', must be from 0 to %lld", where,
                        item->valuestring, (long long)n - 1);
    return GPT_OK;
}

/* The number of endings is small in every such task; a fixed room for their
 * lengths keeps a line in one piece. */
static int read_choices(struct reading *r, const cJSON *object,
                        const cJSON *endings, const char *where,
                        struct gpt_err *err)
{
    struct gpt_score_line line = {.text0 = r->set->n_texts};
    const char *context;
    const cJSON *item;
    bool any = false, cut;

    line.n = cJSON_GetArraySize(endings);
    if (!cJSON_IsArray(endings) || line.n < 2 || line.n > ENDINGS)
        return gpt_fail(err, GPT_EDATA,
                        "endings must be a list of 2 to %d texts", ENDINGS);
    GPT_TRY(gpt_json_string(object, "ctx", &context, where, err));
    GPT_TRY(read_label(object, line.n, &line.right, where, err));
    int64_t i = 0;
    cJSON_ArrayForEach(item, endings)
    {
        GPT_TRY(add_ending(r, context, item, &line.chars[i++], &cut, err));
        any = any || cut;
    }
    r->set->cut += any;
    return add_line(r->set, &line, err);
}

/* The first line says which kind the file is: figures of both together would
 * mean nothing. A failure that does not name its line yet gets it here, as the
 * checks of tokens know none. */
static int read_object(void *user, const cJSON *object, const char *where,
                       struct gpt_err *err)
{
    struct reading *r = user;
    const cJSON *endings = cJSON_GetObjectItemCaseSensitive(object, "endings");
    int status;

    if (r->set->n_lines == 0)
        r->set->choices = endings != NULL;
    if (r->set->choices != (endings != NULL))
        return gpt_fail(err, GPT_EDATA,
                        "%s: lines with endings and lines with continuations "
                        "are in one file",
                        where);
    status = endings ? read_choices(r, object, endings, where, err)
                     : read_continuation(r, object, where, err);
    if (status == GPT_EDATA && err && !strstr(err->text, where))
        gpt_context(err, "%s", where);
    return status;
}

/* Tokens lie one after the other in the order of texts, so that the lengths
 * alone say where each begins. */
int gpt_score_set_read(struct gpt_score_set *set, const char *name,
                       const char *path, const struct gpt_score_options *o,
                       struct gpt_err *err)
{
    struct reading r = {.set = set, .o = o};
    const struct gpt_line_reader reader = {.object = read_object, .user = &r};
    size_t at = 0;

    *set = (struct gpt_score_set){.name = name};
    r.pairs.begin = o->eod;
    int status = gpt_encoder_open(&r.pairs.encoder, o->tokenizer, err);
    if (status == GPT_OK)
        status = gpt_read_lines(path, &reader, err);
    gpt_encoder_close(r.pairs.encoder);
    gpt_pair_encoder_free(&r.pairs);
    gpt_buf_free(&r.text);
    for (int64_t i = 0; i < set->n_texts; i++) {
        set->texts[i].tokens = set->tokens.data + at;
        at += (size_t)set->texts[i].n;
    }
    return status;
}

/* A set that was read in part is freed in the same way. */
void gpt_score_set_free(struct gpt_score_set *set)
{
    gpt_free(set->lines);
    gpt_free(set->texts);
    gpt_free(set->tokens.data);
    *set = (struct gpt_score_set){.name = NULL};
}

/* ---- figures ---- */

/* The numbers of an answer: the sum of log-probabilities, and how many tokens
 * are the most probable ones. */
enum { LOGPROB, GREEDY };

struct scoring {
    const struct gpt_score_set *set;
    int64_t vocab;
};

/* A token by the logits before it, as generate/score.c scores it. Whether it is
 * the most probable one is asked for continuations alone. */
static void score_row(void *user, int64_t text, int64_t row,
                      const float *logits, double answer[GPT_TEXT_ANSWERS])
{
    const struct scoring *s = user;
    const int32_t id = s->set->texts[text].tokens[row + 1];

    answer[LOGPROB] +=
        (double)logits[id] - gpt_log_sum(logits, s->vocab);
    answer[GREEDY] +=
        !s->set->choices && gpt_most_probable(logits, s->vocab) == id;
}

/* The most probable ending: the first of equal ones, as NumPy's argmax. chars:
 * by what the log-probability of each is divided, or NULL. */
static int64_t best_ending(const struct gpt_score_line *line,
                           double (*answers)[GPT_TEXT_ANSWERS],
                           const double *chars)
{
    int64_t best = 0;
    double most = -(double)INFINITY;

    for (int64_t i = 0; i < line->n; i++) {
        const double x = answers[line->text0 + i][LOGPROB] /
                         (chars ? chars[i] : 1);

        if (x > most) {
            most = x;
            best = i;
        }
    }
    return best;
}

/* Sums in the order of lines, on every rank from the same answers: the figures
 * have the same bits everywhere. A text whose logits are no numbers makes the
 * perplexity none, and its line a wrong one. */
static void add_up(const struct gpt_score_set *set,
                   double (*answers)[GPT_TEXT_ANSWERS],
                   struct gpt_score_figures *f)
{
    const double lines = (double)set->n_lines;
    double right = 0, normalized = 0, logprob = 0;

    for (int64_t i = 0; i < set->n_lines; i++) {
        const struct gpt_score_line *line = &set->lines[i];
        const int64_t text = line->text0 + line->right;
        const struct gpt_given *given = &set->texts[text];

        logprob += answers[text][LOGPROB];
        if (set->choices) {
            right += best_ending(line, answers, NULL) == line->right;
            normalized += best_ending(line, answers, line->chars) ==
                          line->right;
        } else {
            right += (int64_t)answers[text][GREEDY] == given->to - given->from;
        }
    }
    *f = (struct gpt_score_figures){
        .accuracy = right / lines,
        .perplexity = exp(-logprob / lines),
        .normalized = set->choices ? normalized / lines : (double)NAN,
    };
}

/* The answers are as many as the texts, and are needed for the time of the call
 * alone. */
int gpt_score_set_run(const struct gpt_score_set *set, struct gpt_texts *texts,
                      struct gpt_score_figures *figures, struct gpt_err *err)
{
    struct scoring s = {set, gpt_texts_vocab(texts)};
    const struct gpt_given_reader reader = {score_row, &s};
    double (*answers)[GPT_TEXT_ANSWERS] = NULL;

    GPT_TRY(gpt_new(&answers, (size_t)set->n_texts, sizeof(*answers), "scores",
                    err));
    int status =
        gpt_texts_read(texts, set->texts, set->n_texts, &reader, answers, err);
    if (status == GPT_OK)
        add_up(set, answers, figures);
    gpt_free(answers);
    return status;
}
