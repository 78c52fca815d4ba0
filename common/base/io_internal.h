/* What the io_*.c files share. Inside base/ only. */
#ifndef GPT_BASE_IO_INTERNAL_H
#define GPT_BASE_IO_INTERNAL_H

#include "base/io.h"

/* ---- io_raw.c: system calls, retried and with fault injection ---- */

/* offset < 0: at the file position. Errors are in errno; a read returns the
 * bytes got, fewer than n at the end of the file. */
int gpt_raw_write(int fd, const void *p, size_t n, int64_t offset);
int64_t gpt_raw_read(int fd, void *p, size_t n, int64_t offset);
/* Bytes copied from one file to another inside of the kernel, at most n; 0 when
 * it cannot for these two (or `from` ends); -1 and errno. */
int64_t gpt_raw_copy(int to, int64_t to_offset, int from, int64_t offset,
                     int64_t n);
int gpt_raw_fsync(int fd);
/* Publishes `from` as `to`; EEXIST when `to` exists and `force` is false. */
int gpt_raw_rename(const char *from, const char *to, bool force);
/* fsync of the directory that holds `path`. */
int gpt_raw_fsync_parent(const char *path);

/* ---- io_in.c ---- */

struct gpt_in;
int gpt_in_descriptor(const struct gpt_in *in);

/* ---- io_temp.c: names of temporary files, and their removal ---- */

struct gpt_temp;

/* Registers a temporary path; NULL when it is too long or memory is out. */
struct gpt_temp *gpt_temp_add(const char *path, bool is_dir);
void gpt_temp_drop(struct gpt_temp *t);    /* published or removed */
void gpt_temp_drop_under(const char *dir); /* everything below dir */
/* "dir/.name.tmp.PID.RANDOM" for "dir/name"; freed with gpt_free(). */
char *gpt_temp_name(const char *path);
/* Removes what killed writers of `path` left, when older than an hour. */
void gpt_temp_sweep(const char *path);
/* rm -r */
int gpt_remove_tree(const char *path);

/* Where `path` really is: the target of a symbolic link, which is what gets
 * replaced. Freed with gpt_free(). */
int gpt_real_target(const char *path, char **out, struct gpt_err *err);

/* GPT_EEXIST for `path`, with the hint that helps. */
int gpt_out_exists(struct gpt_err *err, const char *path);

#endif
