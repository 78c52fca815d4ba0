/* The journal of a run of gpt_preprocess(), PREFIX.resume: what the run is, and
 * how far it has come. A killed run leaves it with its PATH.part files, and the
 * same command resumes from its last entry.
 *
 * Each line is a CRC-32C, a blank and a JSON object: the first one describes
 * the run, each other one is a point that all files had reached on disk before
 * the line was written. The last whole line counts. The file is locked while a
 * run uses it. Start at gpt_journal_open(). */
#ifndef GPT_CMD_PREPROCESS_JOURNAL_H
#define GPT_CMD_PREPROCESS_JOURNAL_H

#include "cmd/preprocess/preprocess.h"
#include "data/provenance.h"

/* How far a run has come. */
struct gpt_point {
    int64_t input;  /* number of the input to resume in */
    int64_t offset; /* bytes of it that are done, decompressed */
    int64_t lines;  /* of it that are done */
    int64_t quarantine_bytes;
    struct gpt_xxh64 digest; /* of a plain input up to `offset` */
    struct gpt_key_counts *keys; /* of each key; the caller's */
    struct gpt_input_sum *sums;  /* of each input that is done, the same */
    struct gpt_preprocess_stats stats;
    bool complete; /* every file is whole; only names are missing */
};

struct gpt_journal;

/* Opens and locks the journal. *found tells whether *point, whose keys the
 * caller allocates, was filled from it. GPT_EEXIST: it is another run's, or
 * another process has it. */
int gpt_journal_open(struct gpt_journal **journal,
                     const struct gpt_preprocess_options *options,
                     enum gpt_dtype dtype, struct gpt_point *point,
                     bool *found, struct gpt_err *err) GPT_MUST_USE;
/* Says in the hint what is left to a user whose unfinished run cannot be
 * resumed; returns the status. */
int gpt_hint_no_resume(struct gpt_err *err);
/* Adds a point; it is on disk on return. */
int gpt_journal_add(struct gpt_journal *journal, const struct gpt_point *point,
                    struct gpt_err *err) GPT_MUST_USE;
/* Returns true when there is a point to resume from. */
bool gpt_journal_has_point(const struct gpt_journal *journal);
/* Removes the journal when it holds no point; frees. NULL is fine. */
void gpt_journal_close(struct gpt_journal *journal);
/* Removes it in any case; frees. */
void gpt_journal_remove(struct gpt_journal *journal);
/* Removes the journal of an unfinished run, if there is one, and its files.
 * GPT_EEXIST when that run is still running. */
int gpt_journal_discard(const struct gpt_preprocess_options *options,
                        struct gpt_err *err) GPT_MUST_USE;

/* Returns true when this run can be resumed after it was killed: it reads
 * nothing that cannot be read twice, and writes to regular files only. */
bool gpt_journal_possible(const struct gpt_preprocess_options *options);

#endif
