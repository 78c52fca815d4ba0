/* Templates of chats: the part of Jinja2 that the templates of published models
 * use, as a small interpreter. Source: Jinja 3.1, "Template Designer
 * Documentation", with the settings of transformers' apply_chat_template():
 * trim_blocks, lstrip_blocks, break and continue, an immutable sandbox.
 *
 *     gpt_jinja_compile() -> gpt_jinja_render(), any number of times
 *
 * A template is as hostile as any file: it reads nothing but its variables,
 * and steps, nesting, memory and output have limits. What is not in this part
 * of Jinja2 is refused by name and line: tags, filters and tests when a
 * template is compiled, methods when they are called.
 *
 * Statements: set (also of a block, of a tuple and of a namespace's member),
 * if, for with loop, else and a condition, macro, call, with, raw, break,
 * continue, generation. Upper and lower case are known for ASCII alone. */
#ifndef GPT_TEXT_JINJA_H
#define GPT_TEXT_JINJA_H

#include "base/json.h"
#include "base/memory.h"

#include <time.h>

struct gpt_jinja;

/* A template of text[0..len), UTF-8, which is copied. GPT_EDATA: "line N: ...".
 */
int gpt_jinja_compile(struct gpt_jinja **t, const char *text, size_t len,
                      struct gpt_err *err) GPT_MUST_USE;
void gpt_jinja_free(struct gpt_jinja *t); /* NULL is fine */

/* True when the word is a name or a whole string in the template, outside of
 * its text: one that has it nowhere does not look at the variable, or at the
 * member of a message, of that name. */
bool gpt_jinja_mentions(const struct gpt_jinja *t, const char *word);

enum {
    GPT_JINJA_STEPS = 4000000, /* expressions and statements of a rendering */
    GPT_JINJA_BYTES = 64 << 20, /* memory of a rendering's values */
    GPT_JINJA_OUTPUT = 16 << 20,
    GPT_JINJA_DEPTH = 600,    /* of what is inside of something else */
    GPT_JINJA_SOURCE = 1 << 20, /* bytes of a template */
};

struct gpt_jinja_input {
    const cJSON *variables; /* an object: what the template sees */
    const cJSON *more;      /* NULL, or an object that comes before it */
    time_t now;             /* of strftime_now(); 0: the clock's */
};

/* Appends to *out; after a failure it may hold a part. GPT_EDATA for an error
 * of the template, which includes its own raise_exception(): "line N: ...". The
 * template is only read, so that threads may share it. */
int gpt_jinja_render(const struct gpt_jinja *t,
                     const struct gpt_jinja_input *input, struct gpt_buf *out,
                     struct gpt_err *err) GPT_MUST_USE;

#endif
