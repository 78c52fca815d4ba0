/* A bad line is mostly no accident: the file is of another kind, and all of its
 * lines are bad. What follows the line in memory tells which. Start at
 * gpt_hint_for_line(). */
#include "cmd/preprocess/line_hint.h"

#include "text/content.h"

#include <string.h>

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
        p++;
    return p;
}

/* The hint for what is no object at all. */
static void hint_at_syntax(const struct gpt_line_chunk *c, const char *line,
                           const char *end, struct gpt_err *err)
{
    const char *p = skip_blanks(line, end);

    if (end - p >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
        gpt_hint(err, "sed '1s/^\\xef\\xbb\\xbf//' '%s' >new.jsonl removes the "
                 "mark", c->name);
    else if (p < end && *p == '[')
        gpt_hint(err, "of a JSON array, jq -c '.[]' '%s' >new.jsonl makes JSON "
                 "lines: one object a line", c->name);
    else if (p < end && *p == '<')
        gpt_hint(err, "each line must be a JSON object; a line that begins "
                 "with '<' is of HTML or XML, as a failed download leaves it");
    else if (p < end && *p != '{')
        gpt_hint(err, "each line must be a JSON object; of plain text, jq -cR "
                 "'{text: .}' '%s' >new.jsonl makes one of each line", c->name);
    else
        gpt_hint(err, "--on-error skip leaves bad lines out, --on-error "
                 "quarantine=FILE keeps them");
}

void gpt_hint_for_line(const struct gpt_line_chunk *c, bool first,
                       struct gpt_err *err)
{
    const char *line = c->data + c->line_at, *end = c->data + c->len;

    /* What a compression held was not seen when the file was opened. */
    if (!err || (first && gpt_content_check(line, (size_t)(end - line),
                                            c->name, err) != GPT_OK))
        return;
    if (gpt_content_is_pretty(line, end)) {
        gpt_hint(err, "the object continues on the next line: jq -c . '%s' "
                 ">new.jsonl makes JSON lines, one object a line", c->name);
        return;
    }
    switch (c->bad_kind) {
    case GPT_BAD_SYNTAX:
        hint_at_syntax(c, line, end, err);
        break;
    case GPT_BAD_UTF8:
        gpt_hint(err, "if it is Latin-1: iconv -f LATIN1 -t UTF-8 '%s' >new; "
                 "--on-error skip leaves such lines out", c->name);
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
