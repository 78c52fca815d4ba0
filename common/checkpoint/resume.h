/* What an interrupted conversion has left: the output under a name that is no
 * checkpoint's (GPT_OUT_PART), and beside it a list of the parts that are
 * whole, ".NAME.resume". A line is
 *
 *     FILE DIGEST PART CRC
 *
 * the file's name, a digest of what is written into it from what, the number of
 * the part, and the CRC-32C of its bytes. A line that is torn has no end and
 * does not count. The list is believed in nothing: a part is taken as it is
 * only when its bytes, read again, have that checksum. So nothing has to be on
 * disk before its line is.
 *
 * One process at a time: the list is locked. Start at gpt_resume_open(). */
#ifndef GPT_CHECKPOINT_RESUME_H
#define GPT_CHECKPOINT_RESUME_H

#include "base/status.h"

struct gpt_resume;
struct gpt_part;

/* The digest of all that is written into the file of that name. */
uint64_t gpt_resume_digest(const char *name, const struct gpt_part *parts,
                           int64_t n);

/* True when a conversion into `path` ended before it was done: the same one
 * goes on, whatever is there under its name. */
bool gpt_resume_is_left(const char *path);

/* path: of the output. files: names of all that will be written with parts;
 * what is left of a conversion into other files is removed, and so is every
 * file without a line. GPT_EEXIST when another process writes the same
 * output. */
int gpt_resume_open(struct gpt_resume **r, const char *path, bool is_file,
                    const char *const *files, int64_t n_files,
                    struct gpt_err *err) GPT_MUST_USE;
/* True when the part of the file was noted; its checksum. */
bool gpt_resume_find(const struct gpt_resume *r, uint64_t digest, int64_t part,
                     uint32_t *crc);
/* Adds a line; not thread-safe. */
int gpt_resume_note(struct gpt_resume *r, const char *file, uint64_t digest,
                    int64_t part, uint32_t crc,
                    struct gpt_err *err) GPT_MUST_USE;
/* True when the output got its name, and the run ended before it had removed
 * the list: what comes after the name may be missing. A line "published" of the
 * list says so when a later run is interrupted, too. */
bool gpt_resume_unfinished(const struct gpt_resume *r);
/* What was written is worth nothing: gpt_resume_close() is not to keep it. */
void gpt_resume_forget(struct gpt_resume *r);
/* Bytes of disk that are taken already. */
int64_t gpt_resume_held(const struct gpt_resume *r);
/* published: the output has its name. Otherwise the parts that were written
 * stay if one of them is whole, which *kept tells. */
void gpt_resume_close(struct gpt_resume *r, bool published, bool *kept);

#endif
