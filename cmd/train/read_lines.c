/* Lines of files; see read_lines.h. A file is read whole: what is evaluated at
 * every interval is small beside the data of a training. A line that is wrong
 * ends the reading, where gpt-generate would skip it: a figure that is compared
 * over a run must be one of the same lines, and a user is there at the
 * start. */
#include "cmd/train/read_lines.h"

#include "base/io.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* Data sets of tasks have tens of megabytes. */
enum { LIMIT = 1 << 30 };

/* The tree of a line is gone when its reader returns: readers copy. */
static int take_object(const struct gpt_line_reader *r, const char *line,
                       size_t len, const char *where, struct gpt_err *err)
{
    cJSON *object = NULL;
    int status;

    GPT_TRY(gpt_json_parse(&object, line, len, where, err));
    status = cJSON_IsObject(object)
                 ? r->object(r->user, object, where, err)
                 : gpt_fail(err, GPT_EDATA, "%s: not a JSON object", where);
    cJSON_Delete(object);
    return status;
}

/* Editors end lines in two ways, and leave empty ones at the end. An empty line
 * is therefore nothing, and an empty prompt is written as JSON. */
static int take_line(const struct gpt_line_reader *r, bool json,
                     const char *line, size_t len, const char *where,
                     struct gpt_err *err)
{
    if (len > 0 && line[len - 1] == '\r')
        len--;
    if (len == 0)
        return GPT_OK;
    if (json)
        return take_object(r, line, len, where, err);
    return r->text(r->user, line, len, where, err);
}

/* The number of a line counts empty ones, as editors do. */
int gpt_read_lines(const char *path, const struct gpt_line_reader *r,
                   struct gpt_err *err)
{
    char *text = NULL, where[GPT_JOINED_BYTES];
    size_t len = 0;
    int status;

    GPT_TRY(gpt_in_protect(path, err));
    GPT_TRY(gpt_read_file(path, LIMIT, &text, &len, err));
    const size_t blank = strspn(text, " \t\r\n");
    const bool json = text[blank] == '{' || !r->text;
    status = blank < len ? GPT_OK
                         : gpt_fail(err, GPT_EDATA, "%s: it is empty", path);
    for (size_t at = 0, n = 1; at < len && status == GPT_OK; n++) {
        const char *end = memchr(text + at, '\n', len - at);
        const size_t size = end ? (size_t)(end - text) - at : len - at;

        snprintf(where, sizeof(where), "%s:%zu", path, n);
        status = take_line(r, json, text + at, size, where, err);
        at += size + 1;
    }
    gpt_free(text);
    return status;
}
