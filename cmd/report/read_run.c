/* Reading of runs; see read_run.h. The first character says what a file is: a
 * line of metrics.jsonl begins with a brace, a log does not. The name of the
 * file says nothing, since logs are called as schedulers like. Start at
 * gpt_metrics_read(), at the end. */
#include "cmd/report/read_run.h"

#include "base/io.h"
#include "base/json.h"
#include "cmd/report/log_lines.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char metrics_name[] = "metrics.jsonl";

/* The whole file is read at once. A line is about 300 bytes: seven million
 * lines are more than any run writes. */
enum { METRICS_LIMIT = INT32_MAX };

/* ---- metrics.jsonl ---- */

/* Numbers and nulls are values; text and nested objects are of other programs
 * and are skipped. */
static int take_object(struct gpt_metrics *h, const cJSON *object,
                       const char *where, struct gpt_err *err)
{
    int64_t iteration;

    if (!cJSON_IsObject(object))
        return gpt_fail(err, GPT_EDATA, "%s: not a JSON object", where);
    GPT_TRY(gpt_json_int(object, "iteration", 0, INT64_MAX, &iteration, where,
                         err));
    GPT_TRY(gpt_metrics_line(h, iteration, err));
    for (const cJSON *f = object->child; f; f = f->next) {
        const bool number = cJSON_IsNumber(f);

        if ((number || cJSON_IsNull(f)) && strcmp(f->string, "iteration") != 0)
            GPT_TRY(gpt_metrics_add(h, f->string,
                                    number ? f->valuedouble : (double)NAN,
                                    err));
    }
    gpt_metrics_place(h);
    return GPT_OK;
}

/* The length of the word at the start of text[0..n) by which Python, and what
 * is made with it, writes a number that JSON has not; 0: there is none. */
static size_t no_number(const char *text, size_t n)
{
    static const char *const words[] = {"NaN", "-NaN", "Infinity", "-Infinity"};

    for (size_t i = 0; i < GPT_COUNT(words); i++) {
        const size_t len = strlen(words[i]);

        if (len <= n && memcmp(text, words[i], len) == 0)
            return len;
    }
    return 0;
}

/* Appends a line with null in the place of these words, but in strings. */
static int add_strict(struct gpt_buf *b, const char *line, size_t n)
{
    bool in_string = false;

    for (size_t at = 0; at < n;) {
        const size_t word = in_string ? 0 : no_number(line + at, n - at);
        const size_t len =
            word ? word : (size_t)1 + (line[at] == '\\' && at + 1 < n);

        in_string ^= line[at] == '"';
        GPT_TRY(word ? gpt_buf_add(b, "null", 4)
                     : gpt_buf_add(b, line + at, len));
        at += len;
    }
    return GPT_OK;
}

/* Parses a line, with the words of Python where it has such. */
static int parse_line(cJSON **object, const char *line, size_t n,
                      const char *where, struct gpt_err *err)
{
    struct gpt_buf strict = {0};

    if (!memmem(line, n, "NaN", 3) && !memmem(line, n, "Infinity", 8))
        return gpt_json_parse(object, line, n, where, err);
    int status = add_strict(&strict, line, n) == GPT_OK
                     ? gpt_json_parse(object, strict.data, strict.len, where,
                                      err)
                     : gpt_no_memory(err, "a line of metrics");
    gpt_buf_free(&strict);
    return status;
}

/* Takes a line; one that is no line of metrics leaves no trace. */
static int take_json_line(struct gpt_metrics *h, const char *line, size_t n,
                          const char *where, struct gpt_err *err)
{
    cJSON *object;

    if (n == 0)
        return GPT_OK;
    GPT_TRY(parse_line(&object, line, n, where, err));
    int status = take_object(h, object, where, err);
    cJSON_Delete(object);
    return status;
}

/* gpt-train writes a line by one write(2), but a reader may see a file system's
 * first half of it: what has no end yet is left for the next reading. Any other
 * line that is not JSON, as of a machine that went down, is skipped with a
 * warning that names it: the rest of a long run is worth more than one line. A
 * file without any line of metrics is a failure. */
static int read_json_lines(struct gpt_metrics *h, const char *text, size_t len,
                           struct gpt_err *err)
{
    struct gpt_err first = {0};
    int64_t bad = 0;
    size_t at = 0;

    for (int64_t line = 1; at < len; line++) {
        const char *end = memchr(text + at, '\n', len - at);
        char where[GPT_JOINED_BYTES];
        struct gpt_err one;

        if (!end)
            break;
        const size_t n = (size_t)(end - text) - at;
        snprintf(where, sizeof(where), "%s:%lld", h->path, (long long)line);
        int status = take_json_line(h, text + at, n, where, &one);
        if (status == GPT_EDATA && bad++ == 0)
            first = one;
        if (status != GPT_OK && status != GPT_EDATA) {
            *err = one;
            return status;
        }
        at += n + 1;
    }
    if (bad > 0 && h->n_lines == 0) {
        *err = first;
        return GPT_EDATA;
    }
    if (bad == 0)
        return GPT_OK;
    h->warning = gpt_arena_printf(&h->arena, "%s; %lld line%s skipped",
                                  first.text, (long long)bad,
                                  bad == 1 ? " is" : "s are");
    return h->warning ? GPT_OK : gpt_no_memory(err, "a warning");
}

/* ---- runs ---- */

/* "NAME=RUN" unless a file has that very name. A name is text for a legend: a
 * slash before the sign means that the sign is part of a path. */
static int name_run(struct gpt_metrics *h, const char *run,
                    struct gpt_err *err)
{
    const char *sign = strchr(run, '='), *slash = strchr(run, '/');
    char path[GPT_PATH_BYTES];

    h->name = h->path = run;
    if (sign && sign > run && !(slash && slash < sign) &&
        !gpt_path_exists(run)) {
        h->name = gpt_arena_printf(&h->arena, "%.*s", (int)(sign - run), run);
        h->path = sign + 1;
    }
    if (gpt_path_is_dir(h->path)) {
        GPT_TRY(gpt_path_join(path, sizeof(path), h->path, metrics_name, err));
        h->path = gpt_arena_strdup(&h->arena, path);
    }
    return h->name && h->path ? GPT_OK : gpt_no_memory(err, "names of runs");
}

/* The first record of such a file is "brain.Event:2", after the length of the
 * record, its checksum, and the time. */
static bool is_events(const char *text, size_t len)
{
    static const char mark[] = "brain.Event:";

    return len > 64 && memmem(text, 64, mark, sizeof(mark) - 1);
}

/* An empty file is a run that has not written yet, and is no error: --follow is
 * often started first. A log may begin with a brace, too. */
static int read_text(struct gpt_metrics *h, const char *text, size_t len,
                     struct gpt_err *err)
{
    const size_t blank = strspn(text, " \t\r\n");
    int status = GPT_EDATA;

    if (is_events(text, len)) {
        gpt_fail(err, GPT_EDATA, "%s: a file of TensorBoard's events", h->path);
        return gpt_hint(err, "name metrics.jsonl of the run, or its log: they "
                             "have what the events have");
    }
    if (text[blank] == '{')
        status = read_json_lines(h, text, len, err);
    if (status == GPT_EDATA) {
        struct gpt_err json = *err;

        status = gpt_metrics_read_log(h, text, len, err);
        if (status == GPT_EDATA && text[blank] == '{')
            *err = json;
    }
    if (status == GPT_EDATA)
        gpt_hint(err, "logs of gpt-train, Megatron-LM, nanoGPT and llm.c are "
                 "read, and JSON lines with the number 'iteration'; jq -c "
                 "'.log_history[] | .iteration = .step | .lm_loss = .loss | "
                 ".validation_loss = .eval_loss' makes them of "
                 "trainer_state.json of Transformers");
    return status;
}

int gpt_metrics_read(struct gpt_metrics *h, const char *run,
                     struct gpt_err *err)
{
    char *text = NULL;
    size_t len;
    int status;

    *h = (struct gpt_metrics){.name = NULL};
    GPT_TRY_GOTO(status, name_run(h, run, err), out);
    status = gpt_read_file(h->path, METRICS_LIMIT, &text, &len, err);
    if (status == GPT_EIO && !gpt_path_exists(h->path))
        gpt_hint(err, "a run is a directory of gpt-train --save, its "
                 "metrics.jsonl, or a log of it");
    if (status == GPT_OK)
        status = read_text(h, text, len, err);
    gpt_free(text);
out:
    if (status != GPT_OK)
        gpt_metrics_free(h);
    return status;
}
