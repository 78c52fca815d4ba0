/* A bad line is mostly no accident: the file is of another kind, and all of its
 * lines are bad. What follows the line in memory tells which. Start at
 * gpt_hint_for_line(). */
#include "cmd/preprocess/line_hint.h"

#include "base/utf8.h"
#include "text/content.h"
#include "text/str.h"

#include <stdio.h>
#include <string.h>

enum { COMMAND = 400 }; /* bytes; with more a hint has no room for a sentence */

/* A command that puts the input through a filter; the filter alone where the
 * name is too long, or would have to be quoted. */
static const char *through(char command[COMMAND],
                           const struct gpt_line_chunk *c, const char *filter)
{
    int n;

    if (c->pipe && c->packed)
        n = snprintf(command, COMMAND, "| %s -dc | %s before gpt-preprocess",
                     c->packed, filter);
    else if (c->pipe)
        n = snprintf(command, COMMAND, "| %s before gpt-preprocess", filter);
    else if (c->packed)
        n = snprintf(command, COMMAND, "%s -dc <'%s' | %s >new.jsonl",
                     c->packed, c->name, filter);
    else
        n = snprintf(command, COMMAND, "%s <'%s' >new.jsonl", filter, c->name);
    return n < COMMAND && (c->pipe || !strchr(c->name, '\'')) ? command
                                                              : filter;
}

/* The hint for what is no object at all. */
static void hint_at_syntax(const struct gpt_line_chunk *c, const char *line,
                           const char *end, struct gpt_err *err)
{
    const char *p = gpt_skip_blanks(line, end);
    char command[COMMAND];

    if (gpt_utf8_mark(p, (size_t)(end - p)) > 0)
        gpt_hint(err, "%s removes the mark",
                 through(command, c, "sed 's/^\\xef\\xbb\\xbf//'"));
    else if (p < end && *p == '[')
        gpt_hint(err, "of a JSON array, %s makes JSON lines: one object a line",
                 through(command, c, "jq -c '.[]'"));
    else if (p < end && *p == '<')
        gpt_hint(err, "each line must be a JSON object; a line that begins "
                 "with '<' is of HTML or XML, as a failed download leaves it");
    else if (p < end && *p != '{')
        gpt_hint(err, "each line must be a JSON object; of plain text, %s "
                 "makes one of each line, and with -cRs one of a whole file",
                 through(command, c, "jq -cR '{text: .}'"));
    else
        gpt_hint(err, "--on-error skip leaves bad lines out, --on-error "
                 "quarantine=FILE keeps them");
}

void gpt_hint_for_line(const struct gpt_line_chunk *c, bool first,
                       struct gpt_err *err)
{
    const char *line = c->data + c->line_at, *end = c->data + c->len;
    char command[COMMAND];

    /* What a compression held was not seen when the file was opened. */
    if (!err || (first && gpt_content_check(line, (size_t)(end - line),
                                            c->name, err) != GPT_OK))
        return;
    if (gpt_content_is_pretty(line, end)) {
        gpt_hint(err, "the object continues on the next line: %s makes JSON "
                 "lines, one object a line", through(command, c, "jq -c ."));
        return;
    }
    switch (c->bad_kind) {
    case GPT_BAD_SYNTAX:
        hint_at_syntax(c, line, end, err);
        break;
    case GPT_BAD_UTF8:
        gpt_hint(err, "if it is Latin-1: %s; --on-error skip leaves such lines "
                 "out", through(command, c, "iconv -f LATIN1 -t UTF-8"));
        break;
    case GPT_BAD_NO_FIELD:
    case GPT_BAD_TYPE:
        gpt_hint(err, "--json-keys names the field that holds the text; "
                 "--on-error skip leaves such lines out");
        break;
    default:
        gpt_hint(err, "--on-error skip leaves bad lines out, --on-error "
                 "quarantine=FILE keeps them");
        break;
    }
}
