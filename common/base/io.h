/* Files. Input: random access with the size known first. Output: the only
 * writer in the tree, so that a name holds the old complete file or the new
 * complete one, never part of one. Start at gpt_out_open().
 *
 * Every failing call names the file, and the offset where that helps. Reads
 * past the end are GPT_EDATA (truncated); everything else is GPT_EIO. */
#ifndef GPT_BASE_IO_H
#define GPT_BASE_IO_H

#include "base/status.h"

enum {
    GPT_PATH_BYTES = 4096, /* of a buffer that holds the path of a file */
    GPT_JOINED_BYTES = GPT_PATH_BYTES + 300, /* that and a name or a suffix */
    GPT_FILE_LIMIT = 256 << 20, /* of vocabularies and the like, read whole */
};

/* ---- input ---- */
struct gpt_in;

int gpt_in_open(struct gpt_in **in, const char *path, struct gpt_err *err)
    GPT_MUST_USE;
void gpt_in_close(struct gpt_in *in); /* NULL is fine */
int64_t gpt_in_size(const struct gpt_in *in);
const char *gpt_in_path(const struct gpt_in *in);

/* True when its name still is that of this file, which was not replaced. */
bool gpt_in_is_current(const struct gpt_in *in);
/* What tells this file from others and from itself before it was changed: its
 * place, size and time. */
struct gpt_in_stamp {
    int64_t device, inode, size, seconds, nanoseconds;
};
struct gpt_in_stamp gpt_in_stamp(const struct gpt_in *in);

/* Makes a file known as an input of this process: no output may replace it or
 * be written to it, under whatever name. A path that is no file is fine. */
int gpt_in_protect(const char *path, struct gpt_err *err) GPT_MUST_USE;
/* The same for the files in a directory, which no output may replace then. */
int gpt_in_protect_dir(const char *dir, struct gpt_err *err) GPT_MUST_USE;

/* Lets this process open `files` files at once beside some others, raising its
 * limit when needed; GPT_EIO names the limit when the system forbids that. */
int gpt_in_allow(int64_t files, struct gpt_err *err) GPT_MUST_USE;

/* Exactly n bytes at `offset`; thread-safe (pread). */
int gpt_in_read(struct gpt_in *in, void *dst, int64_t offset, size_t n,
                struct gpt_err *err) GPT_MUST_USE;

/* The whole file, read-only, mapped until close. Empty files give a valid
 * pointer. Only for inputs that are not rewritten while they are used. */
int gpt_in_map(struct gpt_in *in, const uint8_t **data, struct gpt_err *err)
    GPT_MUST_USE;
/* Closes the descriptor of a mapped file; only the mapping stays, and
 * gpt_in_read() fails. For readers of thousands of files. */
void gpt_in_map_only(struct gpt_in *in);
/* A page of a mapped file that has gone, since another process cut it or the
 * disk fails, ends the program with a message and GPT_EIO. After gpt_in_watch()
 * it is zeros, and gpt_in_whole(), which is called after each reading, fails.
 * Without memory for either SIGBUS ends the program. */
void gpt_in_watch(struct gpt_in *in);
int gpt_in_whole(const struct gpt_in *in, struct gpt_err *err) GPT_MUST_USE;

/* For readers of large files. From gpt_in_look_begin() on, until close,
 * gpt_in_look() gives the n bytes at `offset` in the kernel's own pages,
 * without a copy. It gives NULL where they have to be read: gpt_in_look_begin()
 * was not called, the file system is not one where that works as well, or the
 * file has fewer bytes. All are thread-safe. */
void gpt_in_look_begin(struct gpt_in *in);
const uint8_t *gpt_in_look(const struct gpt_in *in, int64_t offset, size_t n);
/* To be called after the bytes were used: GPT_EDATA when the file was cut
 * meanwhile, GPT_EIO when the disk failed. The bytes seen from there on were
 * zeros. */
int gpt_in_look_check(const struct gpt_in *in,
                      struct gpt_err *err) GPT_MUST_USE;
/* Lets these bytes no longer count as memory of this process. */
void gpt_in_look_drop(const struct gpt_in *in, int64_t offset, int64_t n);
/* For a reader that goes through a file in stretches and is done with this one
 * and those before it. A few MiB stay counted until gpt_in_look_drop(). */
void gpt_in_look_pass(const struct gpt_in *in, int64_t offset, int64_t n);

/* The CRC-32C of a file that is read for other reasons, too. From
 * gpt_in_keep_sums() on, gpt_in_sum() reads and sums those of the blocks that
 * hold n bytes at `offset` which were not summed before; without it, it does
 * nothing. Several threads may call it at once. gpt_in_sum_all() is for one
 * thread, after them: it sums the rest with threads of its own. */
int gpt_in_keep_sums(struct gpt_in *in, struct gpt_err *err) GPT_MUST_USE;
bool gpt_in_keeps_sums(const struct gpt_in *in);
int gpt_in_sum(struct gpt_in *in, int64_t offset, int64_t n,
               struct gpt_err *err) GPT_MUST_USE;
int gpt_in_sum_all(struct gpt_in *in, uint32_t *crc,
                   struct gpt_err *err) GPT_MUST_USE;

/* Gives the failure to read what is in a file a hint, where a download has left
 * something else; returns the failure's status. */
int gpt_in_explain(const char *path, struct gpt_err *err);

/* The whole file as a NUL-terminated block of gpt_alloc; refuses files larger
 * than `limit` before reading (GPT_EDATA). "-" is standard input. */
int gpt_read_file(const char *path, int64_t limit, char **data, size_t *len,
                  struct gpt_err *err) GPT_MUST_USE;
/* The same of a file by the name that it has to have in a directory: what is no
 * regular file is refused (GPT_EIO), where gpt_read_file() waits for a pipe. */
int gpt_read_held(const char *path, int64_t limit, char **data, size_t *len,
                  struct gpt_err *err) GPT_MUST_USE;

/* True of "-", and of another name of the pipe that is standard input, such as
 * /dev/stdin. A regular file is not meant: it can be read twice. */
bool gpt_in_is_stdin(const char *path);
/* Standard input has one reader. A second one would find it empty, and is
 * refused: GPT_EUSAGE, which names both. `reader` is an option with its "--",
 * or what else reads. For the main thread. */
int gpt_claim_stdin(const char *reader, struct gpt_err *err) GPT_MUST_USE;

/* SHA-256 of a whole file of at most 4 GiB, and its length. */
int gpt_sha256_file(char hex[65], int64_t *bytes, const char *path,
                    struct gpt_err *err) GPT_MUST_USE;

/* ---- output ---- */
enum {
    GPT_OUT_FORCE = 1,  /* replace an existing file (still atomically) */
    GPT_OUT_NOSYNC = 2, /* skip fsync: for scratch and tests of speed */
    GPT_OUT_INSIDE = 4, /* inside a gpt_outdir: publish with the directory */
    /* What is written outlives the process until it is published: PATH.part, or
     * ".NAME.part" of a directory. A file keeps what it has where nothing is
     * written, and has the `expected` size at once: for gpt_out_pwrite() by
     * work that resumes. */
    GPT_OUT_PART = 8,
    /* Large, and not read again soon: where disk and file system allow it, what
     * gpt_out_write() is given goes past the kernel's cache of files. Not for
     * gpt_out_copy(). */
    GPT_OUT_DIRECT = 16,
};

struct gpt_out;

/* Opens a temporary file beside `path`; gpt_out_commit() publishes it. Fails
 * at once with GPT_EEXIST when `path` exists without GPT_OUT_FORCE. "-" and
 * non-regular files (a FIFO, /dev/full) are written directly. `expected` bytes
 * are reserved when > 0, so that a full disk is reported before the work. */
int gpt_out_open(struct gpt_out **out, const char *path, unsigned flags,
                 int64_t expected, struct gpt_err *err) GPT_MUST_USE;

/* Sequential, buffered. */
int gpt_out_write(struct gpt_out *out, const void *p, size_t n,
                  struct gpt_err *err) GPT_MUST_USE;
int gpt_out_printf(struct gpt_out *out, struct gpt_err *err, const char *fmt,
                   ...) GPT_PRINTF(3, 4) GPT_MUST_USE;
/* Appends n bytes of `in` from `offset`, without taking them through memory
 * where the file system can do that (and shares the blocks where it can). */
int gpt_out_copy(struct gpt_out *out, struct gpt_in *in, int64_t offset,
                 int64_t n, struct gpt_err *err) GPT_MUST_USE;
/* At an offset, unbuffered, thread-safe. Do not mix with gpt_out_write(). */
int gpt_out_pwrite(struct gpt_out *out, const void *p, size_t n,
                   int64_t offset, struct gpt_err *err) GPT_MUST_USE;
/* Bytes that are best written together, from a multiple of them on, as the file
 * system says: a page, which may be large where files are memory, or a stripe.
 * 0 where that is not known. */
int64_t gpt_out_block(const struct gpt_out *out);
/* True where bytes of `in` can become those of `out` without being written: a
 * file system that shares blocks, or copies on its server. */
bool gpt_out_shares(const struct gpt_out *out, const struct gpt_in *in);
/* The n bytes of `in` from `from` on, put at `offset` in that way, thread-safe;
 * false when the kernel did not, and nothing counts as written. */
bool gpt_out_share(struct gpt_out *out, int64_t offset, const struct gpt_in *in,
                   int64_t from, int64_t n);
int64_t gpt_out_tell(const struct gpt_out *out);
/* Reads back what this writer wrote (pread on the temporary file). */
int gpt_out_reread(struct gpt_out *out, void *dst, size_t n, int64_t offset,
                   struct gpt_err *err) GPT_MUST_USE;

/* Flush, fsync, publish under the final name, fsync the directory; frees
 * `out` whatever the result. On failure the old file stays as it was. */
int gpt_out_commit(struct gpt_out *out, struct gpt_err *err) GPT_MUST_USE;
/* The same for n files (NULL ones are skipped) that appear together: all of
 * them, or none. They get their names in this order; the one that readers open
 * first is the last. A reader never finds some old and some new: meanwhile, and
 * after a death, the last ones are missing, until the next program that opens
 * one of the files, or writes it again, completes them. All are freed. */
int gpt_out_commit_all(struct gpt_out *const *outs, size_t n,
                       struct gpt_err *err) GPT_MUST_USE;
/* An output that is no file: its commit removes `path`, when that is there,
 * together with the appearance of others. GPT_OUT_FORCE is implied. */
int gpt_out_open_removal(struct gpt_out **out, const char *path,
                         struct gpt_err *err) GPT_MUST_USE;
/* Completes what killed programs left while they gave files their names, of the
 * set that `path` is in, or of all in `dir`: for programs that ask whether a
 * file is there. gpt_in_open() and gpt_read_file() do it themselves. */
int gpt_in_settle(const char *path, struct gpt_err *err) GPT_MUST_USE;
int gpt_out_complete(const char *dir, struct gpt_err *err) GPT_MUST_USE;
/* Removes the temporary file and frees; NULL is fine. */
void gpt_out_abort(struct gpt_out *out);

/* A whole file of `len` bytes at once: open, write and commit, or abort. */
int gpt_write_file(const char *path, unsigned flags, const void *data,
                   size_t len, struct gpt_err *err) GPT_MUST_USE;

/* Flush and fsync; the file stays open. */
int gpt_out_sync(struct gpt_out *out, struct gpt_err *err) GPT_MUST_USE;
/* Flush, and start writing to the disk without waiting: several files are then
 * synced side by side. */
int gpt_out_begin_sync(struct gpt_out *out, struct gpt_err *err) GPT_MUST_USE;

/* For work that resumes after an interruption: writes PATH.part, which outlives
 * the process. at = 0 begins it, at > 0 keeps its first `at` bytes and appends;
 * GPT_EDATA when it has fewer. The caller makes sure that no other process
 * writes there. Commit and abort as above, but a commit that fails leaves
 * PATH.part, as suspend does, which drops what is in the buffer. */
int gpt_out_open_part(struct gpt_out **out, const char *path, unsigned flags,
                      int64_t at, struct gpt_err *err) GPT_MUST_USE;
void gpt_out_suspend(struct gpt_out *out); /* NULL is fine */
/* Gives each PATH.part, complete and on disk, its name, unless that has
 * happened before: all together, as gpt_out_commit_all(). `gone` are files to
 * remove with that. */
int gpt_out_publish_parts(const char *const *paths, size_t n,
                          const char *const *gone, size_t n_gone,
                          struct gpt_err *err) GPT_MUST_USE;
/* The file of GPT_OUT_PART for `path`, whether it is there or not; beside what
 * a link points to. */
int gpt_out_part(char *buf, size_t cap, const char *path,
                 struct gpt_err *err) GPT_MUST_USE;
/* Removes PATH.part, if it is there. */
int gpt_out_remove_part(const char *path, struct gpt_err *err) GPT_MUST_USE;
/* Removes the record of parts, at `path`, once nothing is to be resumed from
 * it; a warning where it stays. */
void gpt_out_remove_record(const char *path);
/* The directory of GPT_OUT_PART for the target `path`, whether it is there or
 * not; its removal. */
int gpt_outdir_part(char *buf, size_t cap, const char *path,
                    struct gpt_err *err) GPT_MUST_USE;
int gpt_outdir_remove_part(const char *path, struct gpt_err *err) GPT_MUST_USE;

/* A directory that appears at once: files are written (GPT_OUT_INSIDE) under
 * gpt_outdir_path(), commit renames the directory. One that exists needs
 * GPT_OUT_FORCE, unless it is empty. */
struct gpt_outdir;

/* GPT_EEXIST where `path` may not be replaced; flags: GPT_OUT_FORCE, _PART. */
int gpt_outdir_open(struct gpt_outdir **dir, const char *path, unsigned flags,
                    struct gpt_err *err) GPT_MUST_USE;
const char *gpt_outdir_path(const struct gpt_outdir *dir);
int gpt_outdir_commit(struct gpt_outdir *dir, struct gpt_err *err)
    GPT_MUST_USE;
/* For a second process that writes files there, too: `path` is what
 * gpt_outdir_path() returned in the process that opened the directory. That
 * process alone publishes or removes it: here, commit and abort only free. */
int gpt_outdir_join(struct gpt_outdir **dir, const char *path,
                    struct gpt_err *err) GPT_MUST_USE;
void gpt_outdir_abort(struct gpt_outdir *dir);

/* Logs that only grow (metrics.jsonl). One line is one write(2). */
struct gpt_append;

/* Opens a log at its end, or creates it. GPT_EIO where `path` is a link to a
 * file: the name of a log can be guessed. */
int gpt_append_open(struct gpt_append **a, const char *path,
                    struct gpt_err *err) GPT_MUST_USE;
int gpt_append_line(struct gpt_append *a, const char *line,
                    struct gpt_err *err) GPT_MUST_USE;
/* Bytes that are no line, by one write(2) as well. */
int gpt_append_bytes(struct gpt_append *a, const void *p, size_t n,
                     struct gpt_err *err) GPT_MUST_USE;
int gpt_append_sync(struct gpt_append *a, struct gpt_err *err) GPT_MUST_USE;
/* Locks the log until it is closed or the process ends. GPT_EEXIST when another
 * process has it, or has just removed it; GPT_EIO when it cannot be locked. */
int gpt_append_lock(struct gpt_append *a, struct gpt_err *err) GPT_MUST_USE;
/* Keeps only the first `size` bytes. */
int gpt_append_cut(struct gpt_append *a, int64_t size, struct gpt_err *err)
    GPT_MUST_USE;
int gpt_append_close(struct gpt_append *a, struct gpt_err *err);
/* Closes a log that is not worth a sync: one that was unlinked. */
void gpt_append_drop(struct gpt_append *a); /* NULL is fine */

/* Writes n bytes at the position of a descriptor, however often it is
 * interrupted or takes less; false and errno when it fails. */
bool gpt_write_all(int fd, const void *p, size_t n);

/* Unlinks every temporary file and directory that is still open; async-signal
 * safe for files. For exits that cannot unwind. */
void gpt_out_cleanup(void);

/* Removes every temporary file and directory in `dir`, left by programs that
 * were killed. The caller makes sure that no other process writes there. */
void gpt_out_sweep(const char *dir);

/* ---- links ---- */

/* Makes `path` a symbolic link to `target`, in the place of one that is there:
 * at every moment it is the old link or the new one. GPT_EEXIST when it is
 * something else. */
int gpt_link_write(const char *path, const char *target,
                   struct gpt_err *err) GPT_MUST_USE;
/* What a link says. GPT_EIO when there is none, GPT_EDATA when it is none. */
int gpt_link_read(const char *path, char *target, size_t cap) GPT_MUST_USE;

/* ---- paths ---- */
bool gpt_path_exists(const char *path);
/* True when an error of a call that looked for a file does not answer whether
 * it is there: no permission, no descriptors, a disk that fails. */
bool gpt_path_hidden(int error);
bool gpt_path_is_dir(const char *path);
/* The same device and inode; where neither is there, the same names, whatever
 * slashes are between and behind them. */
bool gpt_path_same(const char *a, const char *b);
/* True when a name that is not there is followed by "..": making its directory
 * would lead the path elsewhere. */
bool gpt_path_returns(const char *path);
/* True when what is at `path`, or will be, lies in the directory `dir` or
 * further down, whatever links lead there; not for a path that returns. */
bool gpt_path_below(const char *path, const char *dir);
/* What comes after the last slash. */
const char *gpt_path_name(const char *path);
/* Writes the directory of the running program, with a slash behind it; "" and
 * false when that is not known. */
bool gpt_path_program(char dir[GPT_PATH_BYTES]);
bool gpt_path_ends_in(const char *path, const char *suffix);
/* True when "dir/name" exists; name may be a path of several parts, or NULL,
 * which no directory holds. */
bool gpt_path_holds(const char *dir, const char *name);
/* Cuts off the last name of a path, in a buffer of two bytes or more; the path
 * becomes "." where it has no other name. False where nothing is above it. */
bool gpt_path_to_parent(char *path);
/* Writes the path itself if it is there, or the nearest above it that is. False
 * when that is not known. */
bool gpt_path_nearest(char nearest[GPT_PATH_BYTES], const char *path);
/* GPT_EIO when `path` cannot be written or made as things are: it, or the
 * nearest above it that is there, is not writable, or is no directory where one
 * must be. Makes nothing; what cannot be known passes. */
int gpt_path_check_writable(const char *path, struct gpt_err *err) GPT_MUST_USE;
/* Bytes that may still be written where `path` is, or will be; false when that
 * is not known. */
bool gpt_path_room(const char *path, double *room);
int gpt_path_mkdirs(const char *path, struct gpt_err *err) GPT_MUST_USE;
/* Bytes of `path` up to which its directories are there. gpt_path_rmdirs()
 * removes those after them, as far as they are empty: what gpt_path_mkdirs()
 * made meanwhile, for nothing. */
size_t gpt_path_there(const char *path);
void gpt_path_rmdirs(const char *path, size_t there);
/* "dir/name" into buf; GPT_EFAIL when it does not fit. */
int gpt_path_join(char *buf, size_t cap, const char *dir, const char *name,
                  struct gpt_err *err) GPT_MUST_USE;

#endif
