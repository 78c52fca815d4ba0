/* base/io.h: the promises of the writer (the old file or the new one, no
 * temporary file afterwards), reads past the end, paths. Runs in its own
 * directory. */
#include "base/io.h"
#include "base/hash.h"
#include "base/memory.h"
#include "tests/lib/files.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

static struct gpt_err err;

/* Entries of a directory, "." and ".." aside. */
static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = -2;

    if (!d)
        return -1;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void has_text(const char *path, const char *want, const char *what)
{
    char *data;
    size_t len;

    if (gpt_read_file(path, 1 << 20, &data, &len, &err) != GPT_OK) {
        ok(false, "%s: %s", what, err.text);
        return;
    }
    is_str(data, want, "%s", what);
    gpt_free(data);
}

static int write_file(const char *path, unsigned flags, const char *text)
{
    return gpt_write_file(path, flags, text, strlen(text), &err);
}

static void test_replace(void)
{
    struct gpt_out *out;

    is_int(write_file("a", 0, "one"), GPT_OK, "a new file");
    has_text("a", "one", "has its text");
    is_int(entries("."), 1, "and no company");
    is_int(write_file("a", 0, "two"), GPT_EEXIST, "it is not replaced");
    is_str(err.text, "'a' exists already", "the error says why");
    ok(strstr(err.hint, "--force") != NULL, "and what to do");
    is_int(write_file("a", GPT_OUT_FORCE, "two"), GPT_OK, "unless by force");
    has_text("a", "two", "then it has the new text");

    is_int(gpt_out_open(&out, "a", GPT_OUT_FORCE, 0, &err), GPT_OK, "open");
    is_int(gpt_out_write(out, "three", 5, &err), GPT_OK, "write");
    has_text("a", "two", "the old file stays until commit");
    gpt_out_abort(out);
    has_text("a", "two", "and after abort");
    is_int(entries("."), 1, "abort leaves nothing");

    /* Somebody else is faster. */
    is_int(gpt_out_open(&out, "b", 0, 0, &err), GPT_OK, "open b");
    put_text("b", "theirs");
    is_int(gpt_out_commit(out, &err), GPT_EEXIST, "a race is lost cleanly");
    has_text("b", "theirs", "the other's file stays");
    is_int(entries("."), 2, "nothing is left");
    gpt_out_abort(NULL);
    unlink("b");
}

static void test_modes(void)
{
    struct stat st;

    chmod("a", 0640);
    is_int(write_file("a", GPT_OUT_FORCE, "x"), GPT_OK, "replaced");
    stat("a", &st);
    is_int(st.st_mode & 0777, 0640, "the mode of the old file is kept");
    umask(027);
    is_int(write_file("m", 0, "x"), GPT_OK, "written");
    umask(022);
    stat("m", &st);
    is_int(st.st_mode & 0777, 0640, "a new file's comes from the umask");
    unlink("m");

    put_text("target", "old");
    if (symlink("target", "link") != 0)
        ok(false, "symlink");
    is_int(write_file("link", 0, "new"), GPT_EEXIST, "a link's target exists");
    is_int(write_file("link", GPT_OUT_FORCE, "new"), GPT_OK, "by force");
    has_text("target", "new", "it is the target that is replaced");
    lstat("link", &st);
    ok(S_ISLNK(st.st_mode), "the link stays");
    unlink("link");
    unlink("target");
}

static void test_buffering(void)
{
    enum { N = 700000 };
    struct gpt_out *out;
    char *data = gpt_alloc(N, 1), *back;
    size_t len, at = 0;
    char few[5];

    for (int i = 0; i < N; i++)
        data[i] = (char)('a' + i % 23);
    is_int(gpt_out_open(&out, "big", 0, 2 * N, &err), GPT_OK, "open");
    for (size_t step = 1; at < N; step = step * 3 + 1) {
        size_t n = step < N - at ? step : N - at;

        if (gpt_out_write(out, data + at, n, &err) != GPT_OK)
            break;
        at += n;
        if (gpt_out_tell(out) != (int64_t)at)
            ok(false, "tell after %zu", at);
    }
    is_int(gpt_out_reread(out, few, 5, N - 5, &err), GPT_OK, "reread");
    ok(memcmp(few, data + N - 5, 5) == 0, "sees what is in the buffer");
    is_int(gpt_out_reread(out, few, 5, N - 3, &err), GPT_EIO,
           "not past the end");
    is_int(gpt_out_printf(out, &err, "%0500000d", 7), GPT_OK, "long printf");
    is_int(gpt_out_commit(out, &err), GPT_OK, "commit");
    is_int(gpt_read_file("big", 1 << 30, &back, &len, &err), GPT_OK, "read");
    is_int(len, N + 500000, "length is what was written, not the estimate");
    ok(len > N && memcmp(back, data, N) == 0 && back[len - 1] == '7',
       "content");
    gpt_free(back);
    gpt_free(data);
    is_int(gpt_read_file("big", N, &back, &len, &err), GPT_EDATA,
           "a limit refuses");
    unlink("big");

    is_int(gpt_out_open(&out, "p", 0, 0, &err), GPT_OK, "open for pwrite");
    is_int(gpt_out_pwrite(out, "XY", 2, 3, &err), GPT_OK, "pwrite later");
    is_int(gpt_out_pwrite(out, "abc", 3, 0, &err), GPT_OK, "pwrite first");
    is_int(gpt_out_tell(out), 5, "tell is the end");
    is_int(gpt_out_commit(out, &err), GPT_OK, "commit");
    has_text("p", "abcXY", "both are there");
    unlink("p");
}

/* Writes data[at..n) in pieces of random sizes, and syncs now and then. */
static bool write_pieces(struct gpt_out *out, const char *data, size_t at,
                         size_t n)
{
    uint32_t seed = 5;
    char few[7];

    while (at < n) {
        seed = seed * 1664525 + 1013904223;
        size_t some = 1 + (seed >> 8) % (seed % 3 ? 300000 : 5000000);

        some = some < n - at ? some : n - at;
        if (gpt_out_write(out, data + at, some, &err) != GPT_OK)
            return false;
        at += some;
        if (gpt_out_tell(out) != (int64_t)at)
            return false;
        if (seed >> 28 == 0 && gpt_out_sync(out, &err) != GPT_OK)
            return false;
        if (seed >> 28 == 1 && at > sizeof(few) &&
            (gpt_out_reread(out, few, 7, (int64_t)at - 7, &err) != GPT_OK ||
             memcmp(few, data + at - 7, 7) != 0))
            return false;
    }
    return true;
}

/* True when a descriptor of this process passes the cache by. */
static bool some_direct(void)
{
    for (int fd = 3; fd < 64; fd++) {
        const int flags = fcntl(fd, F_GETFL);

        if (flags >= 0 && flags & O_DIRECT)
            return true;
    }
    return false;
}

/* Where the file system is one of those that are asked for it, and lets it,
 * whole blocks go past the cache, and what is left at the end does not. */
static void test_direct_is_used(void)
{
    enum { EXT4 = 0xEF53, XFS = 0x58465342, MANY = 5000000 };
    char *data = gpt_alloc(MANY, 1);
    struct gpt_out *out;
    struct statfs fs;
    const int fd = open("probe", O_RDWR | O_CREAT | O_DIRECT, 0666);

    close(fd);
    unlink("probe");
    if (fd < 0 || statfs(".", &fs) != 0 ||
        (fs.f_type != EXT4 && fs.f_type != XFS)) {
        skip("no direct writes here");
    } else if (gpt_out_open(&out, "direct", GPT_OUT_DIRECT, 0, &err) !=
               GPT_OK) {
        ok(false, "%s", err.text);
    } else {
        is_int(gpt_out_write(out, data, MANY, &err), GPT_OK, "much");
        ok(some_direct(), "goes past the cache");
        is_int(gpt_out_begin_sync(out, &err), GPT_OK, "the rest");
        ok(!some_direct(), "does not");
        gpt_out_abort(out);
    }
    gpt_free(data);
}

/* Whether or not the file system here lets it: tmpfs, for one, may not. */
static void test_direct(void)
{
    static const size_t sizes[] = {0, 1, 4096, (2 << 20) - 1, 2 << 20,
                                   (2 << 20) + 1, 40000001};
    const size_t most = sizes[GPT_COUNT(sizes) - 1];
    char *data = gpt_alloc(most, 1), *back;
    struct gpt_out *out;
    size_t len;

    for (size_t i = 0; i < most; i++)
        data[i] = (char)(i * 2654435761u >> 24);
    for (size_t i = 0; i < GPT_COUNT(sizes); i++) {
        const size_t n = sizes[i], kept = n / 3;

        if (gpt_out_open(&out, "direct", GPT_OUT_DIRECT | GPT_OUT_FORCE, 0,
                         &err) != GPT_OK) {
            ok(false, "%s", err.text);
            return;
        }
        ok(write_pieces(out, data, 0, n), "%zu bytes, direct", n);
        is_int(gpt_out_commit(out, &err), GPT_OK, "commit");
        if (gpt_read_file("direct", 1 << 30, &back, &len, &err) != GPT_OK) {
            ok(false, "%s", err.text);
            return;
        }
        ok(len == n && memcmp(back, data, n) == 0, "content");
        gpt_free(back);
        /* a run that resumes after `kept` bytes, of which more are there */
        if (gpt_out_open_part(&out, "part", GPT_OUT_DIRECT, 0, &err) !=
            GPT_OK) {
            ok(false, "%s", err.text);
            return;
        }
        ok(write_pieces(out, data, 0, n / 2), "a part");
        is_int(gpt_out_sync(out, &err), GPT_OK, "sync");
        gpt_out_suspend(out);
        if (gpt_out_open_part(&out, "part", GPT_OUT_DIRECT, (int64_t)kept,
                              &err) != GPT_OK) {
            ok(false, "%s", err.text);
            return;
        }
        ok(write_pieces(out, data, kept, n), "the rest of it");
        is_int(gpt_out_commit(out, &err), GPT_OK, "commit");
        if (gpt_read_file("part", 1 << 30, &back, &len, &err) != GPT_OK) {
            ok(false, "%s", err.text);
            return;
        }
        ok(len == n && memcmp(back, data, n) == 0, "content");
        gpt_free(back);
        unlink("direct");
        unlink("part");
    }
    gpt_free(data);
}

static void test_streams(void)
{
    struct gpt_out *out;

    is_int(gpt_out_open(&out, "/dev/full", 0, 100, &err), GPT_OK,
           "devices are opened, existing or not");
    is_int(gpt_out_write(out, "x", 1, &err), GPT_OK, "buffered");
    is_int(gpt_out_commit(out, &err), GPT_EIO, "a full disk is seen");
    ok(strstr(err.text, "1 bytes at offset 0 of '/dev/full': No space"),
       "and named: %s", err.text);
    is_int(gpt_out_open(&out, "/dev/null", 0, 0, &err), GPT_OK, "/dev/null");
    is_int(gpt_out_pwrite(out, "x", 1, 0, &err), GPT_EIO, "no pwrite there");
    is_int(gpt_out_commit(out, &err), GPT_EIO,
           "a commit after a failed write fails");
    is_int(gpt_out_open(&out, ".", 0, 0, &err), GPT_EIO, "no directory");
    is_int(gpt_out_open(&out, "", 0, 0, &err), GPT_EIO, "no empty name");
    is_int(gpt_out_open(&out, "no/such/x", 0, 0, &err), GPT_EIO, "no path");
    is_str(err.text, "cannot create 'no/such/x': there is no directory "
           "'no/such'",
           "the message names the target");
}

static void test_input(void)
{
    struct gpt_in *in;
    const uint8_t *map, *again;
    char buf[8] = "";

    put_text("in", "0123456789");
    is_int(gpt_in_open(&in, "in", &err), GPT_OK, "open");
    is_int(gpt_in_size(in), 10, "size");
    is_str(gpt_in_path(in), "in", "path");
    is_int(gpt_in_read(in, buf, 6, 4, &err), GPT_OK, "read to the end");
    ok(memcmp(buf, "6789", 4) == 0, "content");
    is_int(gpt_in_read(in, buf, 10, 0, &err), GPT_OK, "nothing at the end");
    static const struct {
        int64_t offset;
        size_t n;
    } bad[] = {{7, 4}, {11, 0}, {-1, 1}, {INT64_MAX, 1}, {0, SIZE_MAX}};
    for (size_t i = 0; i < GPT_COUNT(bad); i++)
        is_int(gpt_in_read(in, buf, bad[i].offset, bad[i].n, &err), GPT_EDATA,
               "read %zu at %lld is refused", bad[i].n,
               (long long)bad[i].offset);
    ok(strstr(err.text, "'in' is cut short") != NULL, "and says: cut short");
    is_int(gpt_in_map(in, &map, &err), GPT_OK, "map");
    ok(memcmp(map, "0123456789", 10) == 0, "content");
    is_int(gpt_in_map(in, &again, &err), GPT_OK, "map again");
    ok(map == again, "is the same");
    if (truncate("in", 5) != 0)
        ok(false, "truncate");
    is_int(gpt_in_read(in, buf, 4, 4, &err), GPT_EDATA, "a file that shrinks");
    gpt_in_map_only(in);
    ok(memcmp(map, "01234", 5) == 0, "the mapping stays");
    is_int(gpt_in_read(in, buf, 0, 1, &err), GPT_EIO, "and is all");
    gpt_in_close(in);

    put_text("in", "");
    is_int(gpt_in_open(&in, "in", &err), GPT_OK, "open empty");
    is_int(gpt_in_map(in, &map, &err), GPT_OK, "map empty");
    ok(map != NULL, "valid");
    gpt_in_close(in);
    gpt_in_close(NULL);
    unlink("in");
    is_int(gpt_in_open(&in, "in", &err), GPT_EIO, "missing");
    ok(!in, "gives NULL");
    is_int(gpt_in_open(&in, ".", &err), GPT_EIO, "a directory");
    is_int(gpt_in_open(&in, "/dev/null", &err), GPT_EIO, "a device");
}

static void test_directory(void)
{
    struct gpt_outdir *dir;
    struct gpt_out *out;
    char path[300];

    is_int(gpt_outdir_open(&dir, "ck", 0, &err), GPT_OK, "open");
    ok(!gpt_path_exists("ck"), "not there yet");
    is_int(gpt_path_join(path, sizeof(path), gpt_outdir_path(dir), "w", &err),
           GPT_OK, "join");
    is_int(write_file(path, GPT_OUT_INSIDE, "weights"), GPT_OK, "file inside");
    is_int(gpt_outdir_commit(dir, &err), GPT_OK, "commit");
    has_text("ck/w", "weights", "there");
    is_int(entries("ck"), 1, "alone");

    is_int(gpt_outdir_open(&dir, "ck", 0, &err), GPT_EEXIST, "no clobbering");
    is_int(gpt_outdir_open(&dir, "ck", GPT_OUT_FORCE, &err), GPT_OK, "force");
    gpt_path_join(path, sizeof(path), gpt_outdir_path(dir), "v", &err)
        ? ok(false, "join")
        : 0;
    is_int(write_file(path, GPT_OUT_INSIDE, "new"), GPT_OK, "file inside");
    has_text("ck/w", "weights", "the old one stays until commit");
    is_int(gpt_outdir_commit(dir, &err), GPT_OK, "commit");
    has_text("ck/v", "new", "the new one is there");
    ok(!gpt_path_exists("ck/w"), "the old one is gone");

    is_int(gpt_outdir_open(&dir, "gone/", 0, &err), GPT_OK, "open another");
    gpt_path_join(path, sizeof(path), gpt_outdir_path(dir), "w", &err)
        ? ok(false, "join")
        : 0;
    is_int(write_file(path, GPT_OUT_INSIDE, "x"), GPT_OK, "file inside");
    gpt_outdir_abort(dir);
    gpt_outdir_abort(NULL);
    is_int(entries("."), 2, "abort leaves nothing (a and ck are there)");

    is_int(gpt_path_mkdirs("empty/one", &err), GPT_OK, "mkdirs");
    is_int(gpt_outdir_open(&dir, "empty/one", 0, &err), GPT_OK,
           "an empty directory needs no force");
    is_int(gpt_outdir_commit(dir, &err), GPT_OK, "commit");
    is_int(gpt_outdir_open(&dir, "empty/one", 0, &err), GPT_OK, "again");
    put_text("empty/one/x", "y");
    is_int(gpt_outdir_commit(dir, &err), GPT_EEXIST, "unless it got filled");
    has_text("empty/one/x", "y", "which stays");
    is_int(entries("empty"), 1, "nothing is left");
    is_int(gpt_out_open(&out, "empty/one/x", GPT_OUT_INSIDE, 0, &err),
           GPT_EEXIST, "files inside never replace");
}

/* In a child: what a second SIGINT does. */
static void test_cleanup(void)
{
    pid_t child = fork();

    if (child == 0) {
        struct gpt_out *out;
        struct gpt_outdir *dir;
        char path[300];
        int failed = gpt_out_open(&out, "c1", 0, 0, &err);

        failed |= gpt_outdir_open(&dir, "c2", 0, &err);
        failed |= gpt_path_join(path, sizeof(path), gpt_outdir_path(dir), "w",
                                &err);
        failed |= write_file(path, GPT_OUT_INSIDE, "x");
        failed |= gpt_path_join(path, sizeof(path), gpt_outdir_path(dir), "v",
                                &err);
        failed |= gpt_out_open(&out, path, GPT_OUT_INSIDE, 0, &err);
        failed |= entries(".") != 5;
        gpt_out_cleanup();
        _exit(failed);
    }
    int result = -1;
    waitpid(child, &result, 0);
    is_int(result, 0, "several outputs are open in a child");
    is_int(entries("."), 3, "cleanup removes files and directories");

    struct gpt_out *out;
    is_int(gpt_out_open(&out, "d", 0, 0, &err), GPT_OK, "open");
    child = fork();
    if (child == 0) {
        gpt_out_cleanup();
        _exit(0);
    }
    waitpid(child, &result, 0);
    is_int(gpt_out_commit(out, &err), GPT_OK,
           "a child's cleanup spares the parent's file");
    unlink("d");
}

/* Old temporary files of a killed writer are removed, and no other files. */
static void test_orphans(void)
{
    static const struct {
        const char *name;
        bool old, stays;
    } rows[] = {
        {".o.tmp.999999999.0123abcd", true, false},
        {".o.tmp.999999998.0123abcd", false, true},
        {".o.tmp.1.0123abcd", true, true},
        {".oo.tmp.999999999.0123abcd", true, true},
        {".o.tmp.999999999.0123abcd.txt", true, true},
    };
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        put_text(rows[i].name, "x");
        if (rows[i].old && utimensat(-100, rows[i].name, old, 0) != 0)
            ok(false, "utimensat");
    }
    is_int(write_file("o", 0, "x"), GPT_OK, "a file beside orphans");
    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        ok(gpt_path_exists(rows[i].name) == rows[i].stays, "%s %s",
           rows[i].name, rows[i].stays ? "stays" : "goes");
        unlink(rows[i].name);
    }
    unlink("o");
}

static void test_append(void)
{
    struct gpt_append *a;

    for (int i = 0; i < 2; i++) {
        is_int(gpt_append_open(&a, "log", &err), GPT_OK, "open a log");
        is_int(gpt_append_line(a, i ? "two" : "one", &err), GPT_OK, "a line");
        is_int(gpt_append_close(a, &err), GPT_OK, "close");
    }
    has_text("log", "one\ntwo\n", "logs grow");
    unlink("log");
    is_int(gpt_append_open(&a, "no/log", &err), GPT_EIO, "no directory");
    is_int(gpt_append_close(NULL, &err), GPT_OK, "NULL is fine");
}

static void test_paths(void)
{
    double root, new;
    char buf[16];

    is_int(gpt_path_join(buf, sizeof(buf), "d", "n", &err), GPT_OK, "join");
    is_str(buf, "d/n", "with a slash");
    is_int(gpt_path_join(buf, sizeof(buf), "d/", "n", &err), GPT_OK, "join");
    is_str(buf, "d/n", "but one");
    is_int(gpt_path_join(buf, sizeof(buf), "directory", "filename", &err),
           GPT_EFAIL, "too long");
    is_int(gpt_path_mkdirs("x/y//z/", &err), GPT_OK, "mkdirs");
    ok(gpt_path_is_dir("x/y/z"), "made them");
    is_int(gpt_path_mkdirs("x/y", &err), GPT_OK, "again is fine");
    put_text("x/f", "");
    is_int(gpt_path_mkdirs("x/f/g", &err), GPT_EIO, "through a file");
    is_str(err.text, "cannot make directory 'x/f': Not a directory",
           "names the part");
    const char *deep = "x/n//o/p/";
    const size_t there = gpt_path_there(deep);
    is_int((int64_t)there, 1, "what is there of a path");
    is_int((int64_t)gpt_path_there("x/y//"), 5, "all");
    is_int((int64_t)gpt_path_there("no/x"), 0, "nothing");
    is_int(gpt_path_mkdirs(deep, &err), GPT_OK, "the rest");
    gpt_path_rmdirs(deep, there);
    ok(!gpt_path_exists("x/n") && gpt_path_exists("x"), "is gone again");
    is_int(gpt_path_mkdirs(deep, &err), GPT_OK, "the rest");
    is_int(gpt_path_mkdirs("x/n/q", &err), GPT_OK, "and more");
    gpt_path_rmdirs(deep, there);
    ok(!gpt_path_exists("x/n/o") && gpt_path_exists("x/n/q"),
       "but for what is not empty");
    ok(gpt_path_same("x/f", "x/../x/f"), "the same file");
    ok(!gpt_path_same("x/f", "x"), "another file");
    ok(gpt_path_same("nope", "./nope//"), "what is not there, by its name");
    ok(!gpt_path_same("nope", "/nope"), "which begins at the root, or not");
    ok(!gpt_path_same("nope", "no"), "by the whole name");
    ok(!gpt_path_same("nope", "x/f"), "is no file that is there");
    ok(gpt_path_below("x/f", "x") && gpt_path_below("x/../x/f", ".") &&
           gpt_path_below("x/new/newer/", "./x//"),
       "below a directory, there or not yet");
    ok(!gpt_path_below("x", "x") && !gpt_path_below("x/", "x") &&
           !gpt_path_below("x/../new", "x") && !gpt_path_below("xnew", "x") &&
           gpt_path_below("new", "/") && !gpt_path_below("new", "x"),
       "beside it, or the directory itself");
    ok(gpt_path_returns("no/../x/f") && gpt_path_returns("x/no/.."),
       "back from a name that is not there");
    ok(!gpt_path_returns("x/../no/..f/a..") && !gpt_path_returns("/../no") &&
           !gpt_path_returns("../no"),
       "or from one that is");
    ok(gpt_path_room("/", &root) && gpt_path_room("/no-such-name", &new) &&
           gpt_path_room("no-such-name/", &new),
       "room below the root and here, for what is not there yet");
}

/* Looking at a file that another process cuts. A file system whose files are
 * only read has nothing to look at. */
static void test_look(void)
{
    enum { N = 64 << 10 };
    static char text[N];
    const uint8_t *seen;
    struct gpt_in *in;

    memset(text, 'x', N);
    is_int(gpt_write_file("seen", 0, text, N, &err), GPT_OK, "a file");
    is_int(gpt_in_open(&in, "seen", &err), GPT_OK, "open");
    ok(!gpt_in_look(in, 0, N), "nothing is shown that was not asked for");
    gpt_in_look_begin(in);
    seen = gpt_in_look(in, 1, N - 1);
    if (!seen) {
        skip("the file system's files are only read");
    } else {
        ok(seen[0] == 'x' && seen[N - 2] == 'x', "its bytes");
        ok(!gpt_in_look(in, 1, N), "not past its end");
        is_int(gpt_in_look_check(in, &err), GPT_OK, "it is whole");
        gpt_in_look_drop(in, 1, N - 1);
        is_int(truncate("seen", 10), 0, "cut by another");
        ok(seen[N - 2] == 0, "what has gone is zeros");
        is_int(gpt_in_look_check(in, &err), GPT_EDATA, "and is reported");
        has_text("seen", "xxxxxxxxxx", "the file is as the other left it");
    }
    gpt_in_close(in);
    unlink("seen");
}

/* Bytes of files that count as memory of this process; -1: nothing says. */
static int64_t mapped_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long long shared = -1;

    if (f && fscanf(f, "%*s %*s %lld", &shared) != 1)
        shared = -1;
    if (f)
        fclose(f);
    return shared < 0 ? -1 : shared * sysconf(_SC_PAGESIZE);
}

/* A stretch that is passed goes, however long it is, but for its end. */
static void test_pass(void)
{
    enum { MB = 1 << 20, N = 48 * MB, PASSED = 40 * MB, LEFT = 5 * MB };
    const uint8_t *seen = NULL;
    struct gpt_in *in;
    unsigned sum = 0;

    is_int(gpt_write_file("seen", 0, "", 0, &err), GPT_OK, "a file");
    is_int(truncate("seen", N), 0, "of 48 MiB");
    is_int(gpt_in_open(&in, "seen", &err), GPT_OK, "open");
    gpt_in_look_begin(in);
    const int64_t before = mapped_bytes();
    if (before >= 0)
        seen = gpt_in_look(in, 0, N);
    for (int64_t i = 0; seen && i < PASSED; i += 512)
        sum += seen[i];
    if (!seen || mapped_bytes() - before < PASSED / 2) {
        skip("nothing says what counts as memory");
    } else {
        gpt_in_look_pass(in, 0, PASSED);
        ok(mapped_bytes() - before < LEFT, "most of it counts no more");
        for (int64_t i = 0; i < PASSED; i += 512)
            sum += seen[i];
        is_int(sum, 0, "what was passed is there when it is read again");
    }
    gpt_in_close(in);
    unlink("seen");
}

/* ---- in file systems of our own ---- */

static int report(int (*look)(void))
{
    const pid_t child = fork();
    int status = -1;

    if (child == 0)
        _exit(look());
    waitpid(child, &status, 0);
    return status;
}

/* A signal that a process sends is none of a page that has gone: it ends the
 * program as ever, also one that has looked at files. */
__attribute__((unused)) static int meet_bus(void)
{
    const struct rlimit none = {0, 0};
    struct gpt_in *in;

    setrlimit(RLIMIT_CORE, &none);
    if (write_file("seen", GPT_OUT_FORCE, "x") != GPT_OK ||
        gpt_in_open(&in, "seen", &err) != GPT_OK)
        return 1;
    gpt_in_look_begin(in);
    kill(getpid(), SIGBUS);
    return 0;
}

enum { CANNOT_MOUNT = 77 };

/* A mount that this process alone sees, and that goes with it. */
static bool mount_own(const char *type, const char *data)
{
    return (unshare(CLONE_NEWNS) == 0 ||
            unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "own", type, 0, data) == 0 &&
           write_file("own/made", 0, "x") == GPT_OK;
}

/* What lies below an overlay may come over a network. */
static int look_at_overlay(void)
{
    struct gpt_in *in;

    if (!mount_own("overlay", "lowerdir=own.l,upperdir=own.u,workdir=own.w"))
        return CANNOT_MOUNT;
    if (write_file("own/seen", 0, "x") != GPT_OK ||
        gpt_in_open(&in, "own/seen", &err) != GPT_OK)
        return 1;
    gpt_in_look_begin(in);
    return gpt_in_look(in, 0, 1) ? 2 : 0;
}

/* Two outputs are compared with what is free together, and what one has written
 * counts once. Room comes back when an output is given up. */
static int fill_memory(void)
{
    enum { MIB = 1 << 20 };
    static char some[2 * MIB];
    struct gpt_out *a, *b;

    if (!mount_own("tmpfs", "size=8m"))
        return CANNOT_MOUNT;
    if (gpt_out_open(&a, "own/a", 0, 5 * MIB, &err) != GPT_OK)
        return 1;
    if (gpt_out_open(&b, "own/b", 0, 5 * MIB, &err) != GPT_EIO)
        return 2;
    if (!strstr(err.hint, "5242880 of them are for other outputs"))
        return 3;
    if (gpt_out_pwrite(a, some, sizeof(some), 0, &err) != GPT_OK ||
        gpt_out_open(&b, "own/b", 0, 5 * MIB / 2, &err) != GPT_OK)
        return 4;
    gpt_out_abort(a);
    return gpt_out_open(&a, "own/a", 0, 5 * MIB, &err) == GPT_OK ? 0 : 5;
}

/* Checksums that are taken in whatever order readers come: several at once,
 * some of the file or none, more than once. */
static void test_sums(void)
{
    static const int64_t sizes[] = {0, 1, 65536, (1 << 20) - 1, 1 << 20,
                                    (5 << 20) + 12345};
    static uint8_t data[(5 << 20) + 12345];
    const int64_t most = (int64_t)sizeof(data);
    uint32_t state = 7, crc;

    for (int64_t i = 0; i < most; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = (uint8_t)(state >> 16);
    }
    for (size_t k = 0; k < GPT_COUNT(sizes); k++) {
        const int64_t size = sizes[k];
        const uint32_t want = gpt_crc32c(0, data, (size_t)size);
        int failed = 0;
        struct gpt_in *in;

        is_int(gpt_write_file("summed", GPT_OUT_FORCE, (char *)data,
                              (size_t)size, &err), GPT_OK, "a file");
        for (int turn = 0; turn < 3; turn++) {
            is_int(gpt_in_open(&in, "summed", &err), GPT_OK, "open");
            is_int(gpt_in_sum(in, 0, size, &err), GPT_OK, "nothing is kept");
            is_int(gpt_in_keep_sums(in, &err), GPT_OK, "now it is");
#pragma omp parallel for num_threads(4) reduction(+ : failed)
            for (int i = 0; i < 20 * turn; i++) {
                const int64_t at = size * ((i * 7) % 20) / 20;

                failed += gpt_in_sum(in, at, size / 15, NULL) != GPT_OK;
            }
            is_int(failed, 0, "parts are summed");
            is_int(gpt_in_sum_all(in, &crc, &err), GPT_OK, "and the rest");
            ok(crc == want, "%lld bytes, turn %d: %08x, %08x",
               (long long)size, turn, crc, want);
            gpt_in_close(in);
        }
    }
    struct gpt_in *in;
    is_int(gpt_in_open(&in, "summed", &err), GPT_OK, "open");
    is_int(gpt_in_keep_sums(in, &err), GPT_OK, "kept");
    is_int(gpt_in_sum(in, 0, 10, &err), GPT_OK, "its first block");
    is_int(truncate("summed", 3 << 20), 0, "another cuts it");
    is_int(gpt_in_sum(in, 4 << 20, 10, &err), GPT_EDATA, "a block has gone");
    is_int(gpt_in_sum_all(in, &crc, &err), GPT_EDATA, "and is missed");
    gpt_in_close(in);
    unlink("summed");
}

static void test_file_systems(void)
{
    static const char *const dirs[] = {"own", "own.l", "own.u", "own.w"};
    const struct {
        int (*look)(void);
        const char *what;
    } rows[] = {{look_at_overlay, "files of an overlay are read"},
                {fill_memory, "outputs in memory share its room"}};

#ifdef __SANITIZE_ADDRESS__
    skip("SIGBUS is met by the sanitizer"); /* whose handler exits */
#else
    ok(WTERMSIG(report(meet_bus)) == SIGBUS,
       "SIGBUS that is sent ends the program");
#endif
    for (size_t i = 0; i < GPT_COUNT(dirs); i++)
        is_int(mkdir(dirs[i], 0700), 0, "mkdir %s", dirs[i]);
    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const int status = report(rows[i].look);

        if (status == CANNOT_MOUNT << 8)
            skip("%s: no mounts of our own here", rows[i].what);
        else
            is_int(status, 0, "%s", rows[i].what);
    }
}

int main(void)
{
    char dir[] = "/tmp/gpt-io-XXXXXX";

    umask(022);
    make_tree(dir);
    if (chdir(dir) != 0)
        return 1;
    test_replace();
    test_modes();
    test_buffering();
    test_direct();
    test_direct_is_used();
    test_streams();
    test_input();
    test_look();
    test_pass();
    test_sums();
    test_directory();
    test_cleanup();
    test_orphans();
    test_append();
    test_paths();
    test_file_systems();
    remove_tree(dir);
    ok(access(dir, F_OK) != 0, "scratch directory removed");
    return tap_done();
}
