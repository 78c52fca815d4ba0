/* The sinks of metrics; see sinks.h. Start at gpt_sinks_write().
 *
 * metrics.jsonl is the record: it is written first, and a failure there ends
 * the run. The others are views, for which no run is ended: a command that
 * fails is reported and left. */
#include "cmd/train/sinks.h"

#include "base/io.h"
#include "base/memory.h"
#include "cmd/train/command_pipe.h"
#include "cmd/train/event_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct gpt_sinks {
    struct gpt_append *file, *samples;
    struct gpt_event_file *events;
    struct gpt_command_pipe *command;
    struct gpt_buf line;
};

/* ---- metrics.jsonl ---- */

static const char line_start[] = "{\"iteration\":";

/* Where the lines after `iteration` begin in text[0..len); a last line without
 * an end was cut by a crash and goes, too. A resumed run makes the steps after
 * its checkpoint again, and would write their lines twice. */
static int find_cut(const char *path, const char *text, size_t len,
                    int64_t iteration, size_t *cut, struct gpt_err *err)
{
    size_t at = 0;

    for (int64_t line = 1; at < len; line++) {
        const char *end = memchr(text + at, '\n', len - at);

        if (!end)
            break;
        /* Any other file is refused before a byte of it is lost. */
        if (strncmp(text + at, line_start, sizeof(line_start) - 1) != 0)
            return gpt_fail(err, GPT_EDATA,
                            "%s:%lld: not a line of metrics; --metrics names "
                            "another file",
                            path, (long long)line);
        if (strtoll(text + at + sizeof(line_start) - 1, NULL, 10) > iteration)
            break;
        at = (size_t)(end - text) + 1;
    }
    *cut = at;
    return GPT_OK;
}

/* A run that resumes makes the steps after its checkpoint again: their lines
 * would be in the file twice. The file is replaced whole, so a crash loses
 * nothing. */
static int cut_metrics(const char *path, int64_t iteration, bool keep,
                       struct gpt_err *err)
{
    struct stat file;
    char *text;
    size_t len, cut = 0;
    int status;

    if (stat(path, &file) != 0 || !S_ISREG(file.st_mode)) /* a pipe, say */
        return GPT_OK;
    GPT_TRY(gpt_read_file(path, (int64_t)1 << 32, &text, &len, err));
    status = find_cut(path, text, len, iteration, &cut, err);
    if (status == GPT_OK && keep && memchr(text + cut, '\n', len - cut)) {
        gpt_fail(err, GPT_EEXIST, "%s: holds lines of another run", path);
        status = gpt_hint(err, "name another file with --metrics, or replace "
                               "its lines with --force");
    }
    if (status == GPT_OK && cut < len)
        status = gpt_write_file(path, GPT_OUT_FORCE, text, cut, err);
    gpt_free(text);
    return status;
}

/* NaN and infinities are not JSON. */
static const char *number(char text[32], double x)
{
    if (isfinite(x))
        snprintf(text, 32, "%.9g", x);
    else
        snprintf(text, 32, "null");
    return text;
}

/* A number of a line as JSON. */
static int add_number(struct gpt_buf *line, const struct gpt_metric *m)
{
    char text[32];

    if (m->decimals < 0 || !isfinite(m->value))
        return gpt_buf_printf(line, ",\"%s\":%s", m->name,
                              number(text, m->value));
    return gpt_buf_printf(line, ",\"%s\":%.*f", m->name, m->decimals, m->value);
}

static int make_line(struct gpt_buf *line, int64_t iteration,
                     const struct gpt_metric *metrics, size_t n)
{
    line->len = 0;
    GPT_TRY(gpt_buf_printf(line, "%s%lld", line_start, (long long)iteration));
    for (size_t i = 0; i < n; i++)
        GPT_TRY(add_number(line, &metrics[i]));
    return gpt_buf_printf(line, "}");
}

/* ---- TensorBoard ---- */

/* Seconds since 1970, by which TensorBoard orders what it shows. */
static double wall_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* What is not finite is left out: TensorBoard draws a gap. */
static int write_events(struct gpt_event_file *events, int64_t iteration,
                        const struct gpt_metric *metrics, size_t n,
                        struct gpt_err *err)
{
    const double when = wall_clock();

    for (size_t i = 0; i < n; i++) {
        double factor;
        char buf[256];
        const char *tag = gpt_event_tag(metrics[i].name, buf, sizeof(buf),
                                        &factor);

        if (isfinite(metrics[i].value))
            GPT_TRY(gpt_event_file_scalar(
                events, when, iteration, tag, metrics[i].value * factor, err));
    }
    return GPT_OK;
}

/* ---- all ---- */

int gpt_sinks_write(struct gpt_sinks *s, int64_t iteration,
                    const struct gpt_metric *metrics, size_t n,
                    struct gpt_err *err)
{
    if (!s->file && !s->events && !s->command)
        return GPT_OK;
    if (make_line(&s->line, iteration, metrics, n) != GPT_OK)
        return gpt_no_memory(err, "a line of metrics");
    if (s->file)
        GPT_TRY(gpt_append_line(s->file, s->line.data, err));
    if (s->events)
        GPT_TRY(write_events(s->events, iteration, metrics, n, err));
    if (s->command)
        gpt_command_pipe_line(s->command, s->line.data);
    return GPT_OK;
}

/* The file of samples is a record, as metrics.jsonl is: what cannot be written
 * ends the run. */
int gpt_sinks_sample(struct gpt_sinks *s, int64_t iteration, const char *line,
                     const char *tag, const char *text, struct gpt_err *err)
{
    if (s->samples)
        GPT_TRY(gpt_append_line(s->samples, line, err));
    return s->events ? gpt_event_file_text(s->events, wall_clock(), iteration,
                                           tag, text, err)
                     : GPT_OK;
}

/* Lines of steps that will be made again are cut off before any is added. */
static int open_lines(struct gpt_append **file, const char *path,
                      int64_t iteration, bool keep, struct gpt_err *err)
{
    if (!path)
        return GPT_OK;
    GPT_TRY(cut_metrics(path, iteration, keep, err));
    return gpt_append_open(file, path, err);
}

/* A file is made in a directory that is there; those of event files are
 * made. */
int gpt_sinks_check(const struct gpt_sink_options *o, const char *save,
                    struct gpt_err *err)
{
    char dir[GPT_PATH_BYTES];

    if (o->tensorboard)
        GPT_TRY(gpt_path_check_writable(o->tensorboard, err));
    if (!o->metrics)
        return GPT_OK;
    GPT_TRY(gpt_path_check_writable(o->metrics, err));
    if (gpt_path_is_dir(o->metrics))
        return gpt_fail(err, GPT_EIO, "cannot write '%s': it is a directory",
                        o->metrics);
    snprintf(dir, sizeof(dir), "%.*s",
             (int)(gpt_path_name(o->metrics) - o->metrics), o->metrics);
    if (!dir[0] || gpt_path_exists(dir) ||
        (save && gpt_path_same(dir, save)))
        return GPT_OK;
    return gpt_fail(err, GPT_EIO, "cannot create '%s': there is no directory "
                    "'%s'", o->metrics, dir);
}

int gpt_sinks_open(struct gpt_sinks **sinks, const struct gpt_sink_options *o,
                   struct gpt_err *err)
{
    struct gpt_sinks *s = NULL;
    int status;

    *sinks = NULL;
    GPT_TRY(gpt_new(&s, 1, sizeof(*s), "metrics", err));
    GPT_TRY_GOTO(
        status, open_lines(&s->file, o->metrics, o->iteration, o->keep, err),
        fail);
    GPT_TRY_GOTO(status,
                 open_lines(&s->samples, o->samples, o->iteration, false, err),
                 fail);
    if (o->tensorboard)
        GPT_TRY_GOTO(status,
                     gpt_event_file_open(&s->events, o->tensorboard, err),
                     fail);
    if (o->command)
        GPT_TRY_GOTO(status, gpt_command_pipe_open(&s->command, o->command,
                                                   err), fail);
    *sinks = s;
    return GPT_OK;
fail:
    gpt_sinks_close(s, NULL);
    return status;
}

/* All are closed; the first failure is the one that is reported. */
int gpt_sinks_close(struct gpt_sinks *s, struct gpt_err *err)
{
    if (!s)
        return GPT_OK;
    int status = gpt_append_close(s->file, err);
    int next = gpt_append_close(s->samples, status == GPT_OK ? err : NULL);

    status = status != GPT_OK ? status : next;
    next = gpt_event_file_close(s->events, status == GPT_OK ? err : NULL);
    status = status != GPT_OK ? status : next;

    gpt_command_pipe_close(s->command);
    gpt_buf_free(&s->line);
    gpt_free(s);
    return status;
}
