/* CSV and JSON; see tables.h. Both go out while they are made: the CSV of a
 * long run is larger than its metrics. Numbers of CSV have nine digits, with
 * which a float of the run comes back. */
#include "cmd/report/tables.h"

#include "base/json.h"
#include "cmd/report/results.h"

#include <math.h>
#include <string.h>

/* ---- CSV ---- */

/* RFC 4180: quotes where a comma, a quote or a line end would be misread. */
static int write_word(struct gpt_out *out, const char *word,
                      struct gpt_err *err)
{
    if (!word[strcspn(word, ",\"\r\n")])
        return gpt_out_write(out, word, strlen(word), err);
    GPT_TRY(gpt_out_write(out, "\"", 1, err));
    for (; *word; word++)
        GPT_TRY(gpt_out_printf(out, err, *word == '"' ? "\"\"" : "%c", *word));
    return gpt_out_write(out, "\"", 1, err);
}

/* Every field once, in the order of first appearance; the series stand for
 * their names. */
static size_t list_fields(const struct gpt_metrics *runs, size_t n_runs,
                          const struct gpt_series **fields)
{
    size_t n = 0;

    for (size_t r = 0; r < n_runs; r++)
        for (size_t i = 0; i < runs[r].n_series; i++) {
            const struct gpt_series *s = &runs[r].series[i];
            bool known = strcmp(s->name, "consumed_samples") == 0;

            for (size_t k = 0; k < n && !known; k++)
                known = strcmp(fields[k]->name, s->name) == 0;
            if (!known)
                fields[n++] = s;
        }
    return n;
}

/* next[k]: the first value of field k that is not before this line. */
static int write_values(struct gpt_out *out, const struct gpt_series **of_run,
                        size_t n, size_t *next, int64_t line,
                        struct gpt_err *err)
{
    for (size_t k = 0; k < n; k++) {
        const struct gpt_series *s = of_run[k];

        GPT_TRY(gpt_out_write(out, ",", 1, err));
        if (!s || next[k] == s->n || s->line[next[k]] != line)
            continue;
        const double v = s->value[next[k]++];
        if (isfinite(v))
            GPT_TRY(gpt_out_printf(out, err, "%.9g", v));
    }
    return gpt_out_write(out, "\n", 1, err);
}

/* next[] begins at the first value of each field for each run. A run that says
 * nothing of samples, or of time, has none, which is not 0. */
static int write_rows(struct gpt_out *out, const struct gpt_metrics *h,
                      const struct gpt_series **of_run, size_t n, size_t *next,
                      struct gpt_err *err)
{
    const bool samples = gpt_metrics_find(h, "consumed_samples");
    const bool times = gpt_metrics_find(h, "elapsed_ms");

    memset(next, 0, n * sizeof(*next));
    for (size_t i = 0; i < h->n_lines; i++) {
        const struct gpt_moment *at = &h->at[i];

        GPT_TRY(write_word(out, h->name, err));
        GPT_TRY(gpt_out_printf(out, err, ",%lld,", (long long)at->iteration));
        if (samples)
            GPT_TRY(gpt_out_printf(out, err, "%.15g", at->samples));
        GPT_TRY(gpt_out_write(out, ",", 1, err));
        if (times)
            GPT_TRY(gpt_out_printf(out, err, "%.9g", at->ms / 1e3));
        GPT_TRY(write_values(out, of_run, n, next, (int64_t)i, err));
    }
    return GPT_OK;
}

/* Fields are found once for each run, and lines are then walked with one place
 * for each field: the time is that of the table's size. */
int gpt_csv_write(struct gpt_out *out, const struct gpt_metrics *runs,
                  size_t n_runs, struct gpt_err *err)
{
    const struct gpt_series **fields = NULL, **of_run = NULL;
    size_t *next = NULL, most = 1;
    int status;

    for (size_t r = 0; r < n_runs; r++)
        most += runs[r].n_series;
    GPT_TRY_GOTO(status, gpt_new(&fields, most, sizeof(*fields), "fields", err),
                 out);
    GPT_TRY_GOTO(status, gpt_new(&of_run, most, sizeof(*of_run), "fields", err),
                 out);
    GPT_TRY_GOTO(status, gpt_new(&next, most, sizeof(*next), "fields", err),
                 out);
    const size_t n = list_fields(runs, n_runs, fields);
    GPT_TRY_GOTO(status,
                 gpt_out_printf(out, err, "run,iteration,samples,seconds"),
                 out);
    for (size_t k = 0; k < n; k++) {
        GPT_TRY_GOTO(status, gpt_out_write(out, ",", 1, err), out);
        GPT_TRY_GOTO(status, write_word(out, fields[k]->name, err), out);
    }
    GPT_TRY_GOTO(status, gpt_out_write(out, "\n", 1, err), out);
    for (size_t r = 0; r < n_runs; r++) {
        for (size_t k = 0; k < n; k++)
            of_run[k] = gpt_metrics_find(&runs[r], fields[k]->name);
        GPT_TRY_GOTO(status, write_rows(out, &runs[r], of_run, n, next, err),
                     out);
    }
out:
    gpt_free(next);
    gpt_free(of_run);
    gpt_free(fields);
    return status;
}

/* ---- JSON ---- */

/* Not finite is null, as JSON has neither NaN nor infinities. */
static int write_run(struct gpt_out *out, const struct gpt_metrics *h,
                     struct gpt_err *err)
{
    struct gpt_results r;
    cJSON *object = cJSON_CreateObject();
    char *text = NULL;
    int status = gpt_results_of(&r, h, err);

    gpt_json_add(object, "name", cJSON_CreateString(h->name));
    gpt_json_add(object, "file", cJSON_CreateString(h->path));
    for (size_t i = 0; status == GPT_OK && i < gpt_n_result_columns; i++) {
        const struct gpt_result_column *column = &gpt_result_columns[i];
        const double v = gpt_result(&r, column);

        gpt_json_add(object, column->key,
                     isnan(v) ? cJSON_CreateNull() : cJSON_CreateNumber(v));
    }
    if (status == GPT_OK && !(text = gpt_json_print(object, false)))
        status = gpt_no_memory(err, "results");
    if (status == GPT_OK)
        status = gpt_out_printf(out, err, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(object);
    return status;
}

int gpt_results_json(struct gpt_out *out, const struct gpt_metrics *runs,
                     size_t n_runs, struct gpt_err *err)
{
    for (size_t i = 0; i < n_runs; i++)
        GPT_TRY(write_run(out, &runs[i], err));
    return GPT_OK;
}
