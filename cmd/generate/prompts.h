/* Prompts from the command line, text files and JSON Lines. */
#ifndef GPT_CMD_GENERATE_PROMPTS_H
#define GPT_CMD_GENERATE_PROMPTS_H

#include "base/memory.h"

struct gpt_prompt {
    const char *text; /* any bytes */
    size_t len;
    const int32_t *ids; /* (n_ids) instead of a text, or NULL */
    size_t n_ids;
    const char *continuation; /* of its line, to be scored, or NULL */
    int64_t seed;             /* of its line, or -1 */
    const char *id;           /* JSON text of the line's "id", or NULL */
    const char *where;        /* "FILE:LINE", or NULL: no line of a file */
    const char *error;        /* why it is not answered, or NULL */
};

struct gpt_prompts { /* start with all zero */
    struct gpt_prompt *items;
    size_t n, cap;
    struct gpt_arena arena;
    unsigned said;      /* fields of lines that a warning has named */
    bool scored;        /* nothing is generated */
    bool told_of_bytes; /* that are no UTF-8 */
};

/* Appends one prompt; the text is copied. */
int gpt_prompts_add(struct gpt_prompts *p, const char *text, size_t len,
                    struct gpt_err *err) GPT_MUST_USE;

/* Appends the whole of a file ("-": standard input) as one prompt, without the
 * byte order mark at its beginning and the newline at its end, unless it is
 * wanted whole. At most 1 GiB. */
int gpt_prompts_read_text(struct gpt_prompts *p, const char *path, bool whole,
                          struct gpt_err *err) GPT_MUST_USE;

/* Appends a prompt for each line, an object with a "prompt" (or "text", or
 * "context"), which is a string or a list of token ids, and, if it likes, an
 * "id" of any kind, a "seed" and a string "continuation". A line that is not
 * such an object is a prompt with an error, which names file and line. Fields
 * that a server would obey, as "max_tokens", are warned of. */
int gpt_prompts_read_jsonl(struct gpt_prompts *p, const char *path,
                           struct gpt_err *err) GPT_MUST_USE;
/* The same from memory; `name` is the file in errors. */
int gpt_prompts_parse_jsonl(struct gpt_prompts *p, const char *text, size_t len,
                            const char *name, struct gpt_err *err) GPT_MUST_USE;

/* Gives prompt i the text of its ids: bytes of any kind. */
int gpt_prompts_set_text(struct gpt_prompts *p, size_t i, const char *text,
                         size_t len, struct gpt_err *err) GPT_MUST_USE;

/* Gives prompt i an error: `text`, behind its file and line, or its number. */
int gpt_prompts_refuse(struct gpt_prompts *p, size_t i, const char *text,
                       struct gpt_err *err) GPT_MUST_USE;

/* How many prompts have an error. */
size_t gpt_prompts_refused(const struct gpt_prompts *p);

void gpt_prompts_free(struct gpt_prompts *p);

#endif
