/* Lines of logs, as gpt-train and Megatron-LM print them, as rows of metrics:
 *
 *   iteration       20/     100 | consumed samples:           80 | lm loss: ...
 *   validation loss at iteration 20 | lm loss value: 3.2E+00 | lm loss PPL: ...
 *
 * and, for comparison, those of nanoGPT and of llm.c; see take_other().
 *
 * Launchers and schedulers put words of their own before a line, and versions
 * of Megatron-LM differ in the fields between the bars: "elapsed time per
 * iteration (ms)", throughput, loss scale, batch sizes. A line is therefore
 * recognised by its first field alone, and every other field that is "words:
 * number" is taken. Fields with a name in metrics.jsonl get that name, so that
 * a log of one and the metrics of the other are drawn in the same charts. Start
 * at gpt_metrics_read_log(), at the end. */
#include "cmd/report/log_lines.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a log calls the fields of metrics.jsonl, and their unit, where it is
 * another one: Megatron-DeepSpeed prints seconds. Other fields keep their own
 * words: they are shown as they are. */
static const struct log_name {
    const char *log, *field;
    double unit;
} names[] = {
    {"consumed samples", "consumed_samples", 1},
    {"elapsed time per iteration (ms)", "elapsed_ms", 1},
    {"elapsed time per iteration (s)", "elapsed_ms", 1000},
    {"learning rate", "learning_rate", 1},
    {"decoupled learning rate", "decoupled_learning_rate", 1},
    {"global batch size", "global_batch_size", 1},
    {"lm loss", "lm_loss", 1},
    {"samples per second", "samples_per_second", 1},
    {"loss scale", "loss_scale", 1},
    {"grad norm", "grad_norm", 1},
    {"number of skipped iterations", "skipped_iterations", 1},
    {"number of nan iterations", "nan_iterations", 1},
};

/* Words without a name here are the name, as "throughput per GPU
 * (TFLOP/s/GPU)". */
static const char *field_name(const char *log, double *unit)
{
    *unit = 1;
    for (size_t i = 0; i < GPT_COUNT(names); i++)
        if (strcmp(names[i].log, log) == 0) {
            *unit = names[i].unit;
            return names[i].field;
        }
    return log;
}

/* The part of a line between bars: "words: number". Anything else is skipped.
 * A number may be followed by words, as "80.1 (mean 79.9)". */
static int take_part(struct gpt_metrics *h, char *part, struct gpt_err *err)
{
    char *colon = strrchr(part, ':'), *end;

    if (!colon)
        return GPT_OK;
    *colon = '\0';
    while (isspace((unsigned char)*part))
        part++;
    const double value = strtod(colon + 1, &end);
    if (end == colon + 1 || !*part)
        return GPT_OK;
    double unit;
    const char *name = field_name(part, &unit);
    return gpt_metrics_add(h, name, unit * value, err);
}

/* Splits at bars. The line is cut to pieces. */
static int take_parts(struct gpt_metrics *h, char *line, struct gpt_err *err)
{
    char *next, *part;

    for (part = strtok_r(line, "|", &next); part;
         part = strtok_r(NULL, "|", &next))
        GPT_TRY(take_part(h, part, err));
    return GPT_OK;
}

/* " iteration       20/     100 |": the first number. The slash after it tells
 * the line from prose that has the word, as "saved checkpoint at iteration
 * 20". */
static bool is_step(char *line, int64_t *iteration, char **rest)
{
    char *word = strstr(line, "iteration "), *end;

    if (!word || !(*rest = strchr(word, '|')))
        return false;
    *iteration = strtoll(word + strlen("iteration "), &end, 10);
    while (*end == ' ')
        end++;
    return *end == '/' && *iteration >= 0;
}

/* A line of an evaluation. "the end of training" is after the last step. */
static int take_evaluation(struct gpt_metrics *h, char *line, const char *what,
                           struct gpt_err *err)
{
    static const char before[] = "lm loss value: ", at[] = "at iteration ";
    static const char bits[] = "bits per byte: ";
    const char *value = strstr(line, before), *where = strstr(line, at);
    char name[96];
    int64_t iteration = h->n_lines > 0 ? h->at[h->n_lines - 1].iteration : 0;

    if (!value)
        return GPT_OK;
    if (where)
        iteration = strtoll(where + strlen(at), NULL, 10);
    GPT_TRY(gpt_metrics_line(h, iteration, err));
    const double loss = strtod(value + strlen(before), NULL);
    snprintf(name, sizeof(name), "%s_loss", what);
    GPT_TRY(gpt_metrics_add(h, name, loss, err));
    snprintf(name, sizeof(name), "%s_ppl", what);
    GPT_TRY(gpt_metrics_add(h, name,
                            isnan(loss) ? loss : exp(fmin(20, loss)), err));
    value = strstr(line, bits);
    if (!value)
        return GPT_OK;
    snprintf(name, sizeof(name), "%s_bits_per_byte", what);
    return gpt_metrics_add(h, name, strtod(value + strlen(bits), NULL), err);
}

/* "validation-wiki loss at iteration 20": one of several validation sets, which
 * Megatron-LM numbers and gpt-train calls by their names. The fields of such a
 * line are named after the word. */
static bool name_of_set(const char *line, char *set, size_t cap)
{
    const char *word = strstr(line, "validation-");
    const size_t n = word ? strcspn(word, " ") : 0;

    if (n == 0 || n >= cap || strncmp(word + n, " loss at ", 9) != 0)
        return false;
    snprintf(set, cap, "%.*s", (int)n, word);
    return true;
}

/* A row of numbers that have names here. */
static int take_row(struct gpt_metrics *h, int64_t iteration, int n,
                    const char *const *fields, const double *values,
                    struct gpt_err *err)
{
    GPT_TRY(gpt_metrics_line(h, iteration, err));
    for (int i = 0; i < n; i++)
        GPT_TRY(gpt_metrics_add(h, fields[i], values[i], err));
    gpt_metrics_place(h);
    return GPT_OK;
}

/* The number in front of a unit, as in "99.0 ms". */
static bool number_before(const char *line, const char *unit, double *value)
{
    const char *end = strstr(line, unit), *begin = end;

    while (begin && begin > line && strchr("0123456789.+-e", begin[-1]))
        begin--;
    if (!end || begin == end)
        return false;
    *value = strtod(begin, NULL);
    return true;
}

/* What llm.c prints: "step 5/100 | loss 3.2 (+0.1z)| norm 1.1 (+0.2z)| lr 1e-4
 * | 99.0 ms | 45.2% bf16 MFU | 17400 tok/s", which versions changed a little;
 * "step 5: train loss 3.2 (took 99 ms)" of its program for CPUs; and "val loss
 * 3.3", which follows the step that it is of. */
static int take_printed(struct gpt_metrics *h, const char *line,
                        struct gpt_err *err)
{
    static const struct {
        const char *before, *after, *field;
    } parts[] = {
        {"| norm ", NULL, "grad_norm"},
        {"| lr ", NULL, "learning_rate"},
        {NULL, " ms", "elapsed_ms"},
        {NULL, "% bf16 MFU", "mfu (%)"},
        {NULL, " tok/s", "tokens_per_second"},
    };
    long long at, last;
    double v;

    if (sscanf(line, "val loss %lf", &v) == 1) {
        at = h->n_lines > 0 ? h->at[h->n_lines - 1].iteration : 0;
        GPT_TRY(gpt_metrics_line(h, at, err));
        return gpt_metrics_add(h, "validation_loss", v, err);
    }
    if (sscanf(line, "step %lld/%lld | loss %lf", &at, &last, &v) != 3 &&
        sscanf(line, "step %lld/%lld | train loss %lf", &at, &last, &v) != 3 &&
        !(sscanf(line, "step %lld: train loss %lf", &at, &v) == 2 &&
          strstr(line, "(took ")))
        return GPT_OK;
    GPT_TRY(gpt_metrics_line(h, at, err));
    GPT_TRY(gpt_metrics_add(h, "lm_loss", v, err));
    for (size_t i = 0; i < GPT_COUNT(parts); i++) {
        const char *p = parts[i].before ? strstr(line, parts[i].before) : NULL;
        const bool found = parts[i].before
                               ? p && sscanf(p + strlen(parts[i].before),
                                             "%lf", &v) == 1
                               : number_before(line, parts[i].after, &v);

        /* a utilization before it is measured is -100 */
        if (found && v >= 0)
            GPT_TRY(gpt_metrics_add(h, parts[i].field, v, err));
    }
    gpt_metrics_place(h);
    return GPT_OK;
}

/* "iter 10: loss 3.2, time 99.0ms, mfu 4.2%" and "step 10: train loss 3.2, val
 * loss 3.3" of nanoGPT; "s:10 trl:3.2 lr:1e-4 norm:1.1" and "s:10 tel:3.3" of
 * llm.c's main.log. sscanf() returns what it has read, the step included. */
static int take_other(struct gpt_metrics *h, const char *line,
                      struct gpt_err *err)
{
    static const char *const iter[] = {"lm_loss", "elapsed_ms", "mfu (%)"};
    static const char *const step[] = {"train_loss", "validation_loss"};
    static const char *const main_log[] = {"lm_loss", "learning_rate",
                                           "grad_norm"};
    long long at;
    double v[3];
    int n;

    if ((n = sscanf(line, "iter %lld: loss %lf, time %lfms, mfu %lf", &at, v,
                    v + 1, v + 2)) >= 2)
        /* before it is measured it is -100 */
        return take_row(h, at, n == 4 && v[2] < 0 ? 2 : n - 1, iter, v, err);
    if (sscanf(line, "step %lld: train loss %lf, val loss %lf", &at, v,
               v + 1) == 3)
        return take_row(h, at, 2, step, v, err);
    if ((n = sscanf(line, "s:%lld trl:%lf lr:%lf norm:%lf", &at, v, v + 1,
                    v + 2)) >= 2)
        return take_row(h, at, n - 1, main_log, v, err);
    if (sscanf(line, "s:%lld tel:%lf", &at, v) == 2)
        return take_row(h, at, 1, step + 1, v, err);
    return take_printed(h, line, err);
}

/* A line of steps which were all skipped has no loss: it counts as one that is
 * no number, as null in metrics.jsonl. */
static int note_no_loss(struct gpt_metrics *h, struct gpt_err *err)
{
    if (isfinite(gpt_metrics_now(h, "lm_loss")) ||
        !(gpt_metrics_now(h, "skipped_iterations") > 0 ||
          gpt_metrics_now(h, "nan_iterations") > 0))
        return GPT_OK;
    return gpt_metrics_add(h, "lm_loss", (double)NAN, err);
}

/* Evaluations first: their lines have "iteration" as well. */
static int take_line(struct gpt_metrics *h, char *line, struct gpt_err *err)
{
    int64_t iteration;
    char *rest, set[80];

    /* Newer Megatron-LM: "validation loss at the end of training on test
     * set". */
    if (strstr(line, "test loss at ") || strstr(line, " on test set "))
        return take_evaluation(h, line, "test", err);
    if (strstr(line, "validation loss at "))
        return take_evaluation(h, line, "validation", err);
    if (name_of_set(line, set, sizeof(set)))
        return take_evaluation(h, line, set, err);
    if (!is_step(line, &iteration, &rest))
        return take_other(h, line, err);
    GPT_TRY(gpt_metrics_line(h, iteration, err));
    GPT_TRY(take_parts(h, rest, err));
    GPT_TRY(note_no_loss(h, err));
    gpt_metrics_place(h);
    return GPT_OK;
}

/* The text stays as it is: each line is copied before it is cut to pieces. A
 * last line without an end is being written and is left out. */
int gpt_metrics_read_log(struct gpt_metrics *h, const char *text, size_t len,
                         struct gpt_err *err)
{
    struct gpt_buf line = {0};
    int status = GPT_OK;

    for (size_t at = 0; at < len && status == GPT_OK;) {
        const char *end = memchr(text + at, '\n', len - at);

        if (!end)
            break;
        const size_t n = (size_t)(end - text) - at;
        line.len = 0;
        status = gpt_buf_add(&line, text + at, n) == GPT_OK
                     ? take_line(h, line.data, err)
                     : gpt_no_memory(err, "a line of a log");
        at += n + 1;
    }
    gpt_buf_free(&line);
    GPT_TRY(status);
    if (h->n_lines == 0 && len > 0)
        return gpt_fail(err, GPT_EDATA, "%s: no line of metrics, nor of a "
                        "training log", h->path);
    return GPT_OK;
}
