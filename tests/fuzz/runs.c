/* Fuzz target: what gpt-report reads, metrics.jsonl or a log. A run that is
 * accepted is shown in each form; lines of a field ascend. */
#include "base/io.h"
#include "cmd/report/charts.h"
#include "cmd/report/page.h"
#include "cmd/report/read_run.h"
#include "cmd/report/tables.h"
#include "cmd/report/text.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int status)
{
    if (status != GPT_OK)
        abort();
}

static void check_lines(const struct gpt_metrics *h)
{
    for (size_t i = 0; i < h->n_series; i++) {
        const struct gpt_series *s = &h->series[i];

        if (gpt_metrics_find(h, s->name) != s)
            abort();
        for (size_t k = 0; k < s->n; k++)
            if (s->line[k] < 0 || s->line[k] >= (int64_t)h->n_lines ||
                (k > 0 && s->line[k] <= s->line[k - 1]))
                abort();
    }
}

static void show(const struct gpt_metrics *h)
{
    const struct gpt_text_options text = {.columns = 60, .lines = 5};
    struct gpt_charts charts = {0};
    struct gpt_page page = {.runs = h, .n_runs = 1, .charts = &charts,
                            .points = 20};
    struct gpt_buf b = {0};
    struct gpt_out *out;
    struct gpt_err err;

    must(gpt_charts_make(&charts, h, 1, &err));
    must(gpt_text_report(&b, &text, h, 1, &charts, &err));
    must(gpt_out_open(&out, "/dev/null", 0, 0, &err));
    must(gpt_csv_write(out, h, 1, &err));
    must(gpt_results_json(out, h, 1, &err));
    must(gpt_page_write(&page, out, &err));
    must(gpt_out_commit(out, &err));
    gpt_buf_free(&b);
    gpt_charts_free(&charts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_metrics h;
    struct gpt_err err = {0};
    char path[160];

    fuzz_write("run", data, size);
    snprintf(path, sizeof(path), "%s/run", fuzz_top);
    const int status = gpt_metrics_read(&h, path, &err);
    fuzz_check(status, &err);
    if (status == GPT_OK) {
        check_lines(&h);
        show(&h);
        gpt_metrics_free(&h);
    }
    return 0;
}
