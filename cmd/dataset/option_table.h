/* The option table of gpt-dataset, made of the rows of its commands: a row that
 * several commands take is there once, and its help names them. */
#ifndef GPT_CMD_DATASET_OPTION_TABLE_H
#define GPT_CMD_DATASET_OPTION_TABLE_H

#include "cmd/dataset/command.h"

enum {
    GPT_DATASET_MAX_COMMANDS = 16,
    GPT_DATASET_MAX_ROWS = 64,
};

struct gpt_dataset_table {
    struct gpt_opt rows[GPT_DATASET_MAX_ROWS]; /* what gpt_main() reads */
    size_t n_rows;
    size_t n_own; /* rows before those that every program has */
    const char *names[GPT_DATASET_MAX_COMMANDS + 1];    /* NULL-terminated */
    const char *usage[GPT_DATASET_MAX_COMMANDS + 1];    /* NULL-terminated */
    const char *examples[GPT_DATASET_MAX_COMMANDS + 1]; /* NULL-terminated */
    char texts[8192]; /* help texts that are put together */
    size_t n_texts;   /* bytes of them in use */
};

/* Fills a zeroed table from n commands. The table is as large as the commands
 * need, which is asserted: it does not depend on any input. */
void gpt_dataset_fill_table(struct gpt_dataset_table *table,
                            const struct gpt_dataset_command *const *commands,
                            size_t n);

/* True when the command has a row of this name. */
bool gpt_dataset_takes(const struct gpt_dataset_command *command,
                       const char *option);

#endif
