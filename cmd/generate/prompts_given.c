/* The prompts of a command; see prompts_given.h. */
#include "cmd/generate/prompts_given.h"

#include <string.h>
#include <unistd.h>

/* Prompts of the command line come first, then those of files, in the order
 * given. A terminal is not waited for: a program that waits in silence looks as
 * if it hung. */
int gpt_prompts_read_given(struct gpt_prompts *p,
                           const struct gpt_generate_options *o,
                           enum gpt_prompt_files files, struct gpt_err *err)
{
    const char *const standard_input[] = {"-"};
    const char *const *names = o->prompt_file.items;
    int64_t n_files = o->prompt_file.n;

    for (int64_t i = 0; i < o->prompt.n; i++)
        GPT_TRY(gpt_prompts_add(p, o->prompt.items[i],
                                strlen(o->prompt.items[i]), err));
    if (o->prompt.n + n_files == 0) {
        if (isatty(STDIN_FILENO)) {
            gpt_fail(err, GPT_EUSAGE, "no prompt");
            return gpt_hint(err, "give --prompt TEXT, --prompt-file FILE or "
                                 "text on standard input");
        }
        names = standard_input;
        n_files = 1;
    }
    for (int64_t i = 0; i < n_files; i++)
        GPT_TRY(files == GPT_FILES_JSONL
                    ? gpt_prompts_read_jsonl(p, names[i], err)
                    : gpt_prompts_read_text(p, names[i],
                                            files == GPT_FILES_WHOLE, err));
    return GPT_OK;
}
