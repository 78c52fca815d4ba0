/* What the io_*.c files share. Inside base/ only. */
#ifndef GPT_BASE_IO_INTERNAL_H
#define GPT_BASE_IO_INTERNAL_H

#include "base/io.h"

#include <stdatomic.h>
#include <sys/types.h>

/* ---- io_raw.c: system calls, retried and with fault injection ---- */

/* offset < 0: at the file position. A write returns 0 when all n bytes are
 * written; a read the bytes got, fewer than n at the end of the file. Both
 * return -1 after an error, which is in errno. */
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

/* Removes a name; with fault injection, as a rename. */
int gpt_raw_unlink(const char *path);

/* Kinds of file systems, by f_type of statfs(2); others are where they are
 * used. */
#define GPT_FS_EXT UINT32_C(0xef53) /* ext2 to ext4 */
#define GPT_FS_XFS UINT32_C(0x58465342)
#define GPT_FS_BTRFS UINT32_C(0x9123683e)
#define GPT_FS_TMPFS UINT32_C(0x01021994)

/* True when an open file is in a file system of one of n kinds. */
bool gpt_raw_is_in(int fd, const uint32_t *kinds, size_t n);

/* ---- io_protect.c ---- */

/* GPT_EUSAGE when `path` is an input of this process, or a directory that holds
 * one. */
int gpt_refuse_input(const char *path, struct gpt_err *err) GPT_MUST_USE;

/* ---- io_in.c ---- */

struct gpt_in;
int gpt_in_descriptor(const struct gpt_in *in);
/* NULL: none are kept. */
struct gpt_block_sums *gpt_in_sums(const struct gpt_in *in);

/* ---- io_sums.c: checksums of blocks ---- */

int gpt_sums_open(struct gpt_block_sums **sums, int64_t size,
                  struct gpt_err *err) GPT_MUST_USE;
void gpt_sums_close(struct gpt_block_sums *s); /* NULL is fine */

/* ---- io_look.c: mapped inputs whose pages may go ---- */

struct gpt_look;
/* NULL where the file is to be read instead. Thread-safe. */
struct gpt_look *gpt_look_open(int fd, int64_t size);
/* Takes over a mapping of a file. NULL: no memory, and it is the caller's. */
struct gpt_look *gpt_look_at(uint8_t *data, size_t size);
void gpt_look_close(struct gpt_look *l); /* NULL is fine */
/* The first page that has gone ends the process with GPT_EIO, after `words`
 * are written to stderr; they are borrowed until close. NULL: pages become
 * zeros. */
void gpt_look_end_with(struct gpt_look *l, char *words);
const uint8_t *gpt_look_data(const struct gpt_look *l);
/* True when zeros were seen in the place of a page that had gone. */
bool gpt_look_lost(const struct gpt_look *l);
void gpt_look_drop(const struct gpt_look *l, int64_t offset, int64_t n);
/* The same for whole blocks before the end of these n bytes, but the last. */
void gpt_look_pass(const struct gpt_look *l, int64_t offset, int64_t n);

/* ---- io_out.c ---- */

struct gpt_temp;

struct gpt_out {
    int fd;
    unsigned flags;
    bool stream, standard_output;
    bool reserved;      /* space past the end may be allocated */
    mode_t mode;        /* of the file that is replaced, 0 = none */
    char *path;         /* as the caller wrote it, for messages */
    char *target, *tmp; /* NULL for streams; tmp == NULL for INSIDE */
    bool part;          /* tmp is PATH.part, or the directory is one */
    bool removal;       /* nothing is written: the target goes */
    struct gpt_temp *temp; /* NULL for streams and PATH.part */
    char *memory; /* of the buffer, where that begins elsewhere */
    char *buffer;
    size_t fill;
    bool direct;       /* io_direct.c: the descriptor passes the cache by */
    bool never_direct; /* it was refused */
    int64_t flushed;      /* bytes that gpt_out_write() handed to the kernel */
    int64_t written_back; /* ... and that were sent on towards the disk */
    atomic_llong end;     /* past the last byte written at an offset */
    atomic_bool failed;   /* a write failed: commit must, too */
    /* A file that is memory: its size when it is whole, its file system, and
     * the next such output of this process; see io_room.c. */
    int64_t promised;
    dev_t device;
    struct gpt_out *next;
};

/* Closes and frees; the file stays as it is. */
void gpt_out_free(struct gpt_out *out);
int gpt_out_flush(struct gpt_out *out, struct gpt_err *err);
/* After a write of n bytes at out->flushed, and after one that failed. */
void gpt_out_flushed(struct gpt_out *out, size_t n);
int gpt_out_cannot_write(struct gpt_out *out, size_t n, int64_t offset,
                         struct gpt_err *err);

/* ---- io_direct.c: outputs of GPT_OUT_DIRECT ---- */

/* What gpt_out_write() and gpt_out_flush() do for them. */
int gpt_direct_write(struct gpt_out *out, const void *p, size_t n,
                     struct gpt_err *err) GPT_MUST_USE;
int gpt_direct_flush(struct gpt_out *out, struct gpt_err *err) GPT_MUST_USE;

/* ---- io_room.c: room that is asked for before the work ---- */

/* GPT_EIO when `expected` bytes do not fit beside what is there and what other
 * outputs of this process will write; undone when it is freed. */
int gpt_out_reserve(struct gpt_out *out, int64_t expected,
                    struct gpt_err *err) GPT_MUST_USE;
void gpt_out_unreserve(struct gpt_out *out);

/* ---- io_temp.c: names of temporary files, and their removal ---- */

/* Registers a temporary path; NULL when it is too long or memory is out. */
struct gpt_temp *gpt_temp_add(const char *path, bool is_dir);
void gpt_temp_drop(struct gpt_temp *t);    /* published or removed */
void gpt_temp_drop_under(const char *dir); /* everything below dir */
/* "dir/.name.tmp.PID.RANDOM" for "dir/name"; freed with gpt_free(). */
char *gpt_temp_name(const char *path);
/* True when `name` is such a name for the file `base`. */
bool gpt_is_temp_of(const char *name, const char *base);
/* True when `name` is one for whatever file. */
bool gpt_is_temp(const char *name);
/* "path.part", the same. */
char *gpt_part_name(const char *path);
/* "dir/.name.part", of a directory. */
char *gpt_part_dir_name(const char *path);
/* Removes what killed writers of `path` left, when older than an hour. */
void gpt_temp_sweep(const char *path);
/* rm -r */
int gpt_remove_tree(const char *path);

/* Where `path` really is: the target of a symbolic link, which is what gets
 * replaced. Freed with gpt_free(). */
int gpt_real_target(const char *path, char **out, struct gpt_err *err);

/* "cannot create 'path'" after a call that failed; a directory that is missing
 * is named, with the command that makes it. */
int gpt_out_cannot_create(struct gpt_err *err, const char *path);
/* GPT_EEXIST for `path`, with the hint that helps. */
int gpt_out_exists(struct gpt_err *err, const char *path);

#endif
