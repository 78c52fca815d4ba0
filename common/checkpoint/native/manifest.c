/* The manifest's text and the names in a checkpoint root. The manifest ends
 * in a line of fixed length with the CRC-32C of all bytes before it, so that a
 * change of any byte of a checkpoint is noticed. */
#include "checkpoint/native/manifest.h"

#include "base/hash.h"
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every byte before it is covered by the checksum; TAIL is its length when
 * printed, as the eight digits take the place of four characters. */
static const char tail_format[] = "\"crc32c\": \"%08x\"\n}\n";
enum { TAIL = 23 }; /* bytes of it */

/* The checksum covers the text and not the values, so it needs no canonical
 * form: what was read is what was sealed. It is the last member and of fixed
 * length, so a reader finds it without parsing. */
int gpt_manifest_seal(struct gpt_buf *b)
{
    char tail[64];

    snprintf(tail, sizeof(tail), tail_format, gpt_crc32c(0, b->data, b->len));
    return gpt_buf_add(b, tail, strlen(tail));
}

/* Makes the tail that the text should have and compares: a manifest that is cut
 * short, in whatever place, does not end like that. */
static int check_seal(const char *text, size_t len, const char *path,
                      struct gpt_err *err)
{
    char tail[64];
    size_t body = len < TAIL ? 0 : len - TAIL;
    uint32_t crc = gpt_crc32c(0, text, body);

    snprintf(tail, sizeof(tail), tail_format, crc);
    if (len < TAIL || strcmp(text + body, tail) != 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s: cut short or altered: its %zu bytes do not end "
                        "in their checksum %08x",
                        path, len, crc);
    return GPT_OK;
}

/* False where a file may well be there, and this process or machine cannot look
 * at it: another checkpoint must not be taken because of that. */
static bool is_missing(const char *path)
{
    return !gpt_path_exists(path) && (errno == ENOENT || errno == ENOTDIR);
}

/* The checksum is checked before the parser sees the text. The version is
 * checked before anything that a newer one may have changed. */
int gpt_manifest_read(cJSON **root, const char *dir, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES], *text;
    const char *format;
    int64_t version;
    size_t len;
    int status;

    *root = NULL;
    GPT_TRY(gpt_path_join(path, sizeof(path), dir, GPT_MANIFEST, err));
    if (is_missing(path))
        return gpt_fail(err, GPT_EDATA, "%s: missing: no complete checkpoint",
                        path);
    GPT_TRY(gpt_read_held(path, GPT_MANIFEST_LIMIT, &text, &len, err));
    GPT_TRY_GOTO(status, check_seal(text, len, path, err), out);
    GPT_TRY_GOTO(status, gpt_json_parse(root, text, len, path, err), out);
    GPT_TRY_GOTO(status, gpt_json_string(*root, "format", &format, path, err),
                 out);
    GPT_TRY_GOTO(status, gpt_json_int(*root, "version", 1, INT32_MAX, &version,
                                      path, err),
                 out);
    if (strcmp(format, "gpt-checkpoint") != 0 ||
        version > GPT_MANIFEST_VERSION)
        status = gpt_fail(err, GPT_EDATA,
                          "%s: format '%.40s' version %lld, this program "
                          "reads 'gpt-checkpoint' up to version %d",
                          path, format, (long long)version,
                          GPT_MANIFEST_VERSION);
out:
    gpt_free(text);
    if (status != GPT_OK) {
        cJSON_Delete(*root);
        *root = NULL;
    }
    return status;
}

static int compare_descending(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x < *y) - (*x > *y);
}

/* Temporary directories of writers have other names and are not listed. */
int gpt_checkpoint_list(const char *root, int64_t **list, size_t *n,
                        struct gpt_err *err)
{
    size_t cap = 0;
    int status = GPT_OK;

    *list = NULL;
    *n = 0;
    DIR *dir = opendir(root);
    if (!dir)
        return gpt_fail_errno(err, GPT_EIO, "%s", root);
    for (struct dirent *e; status == GPT_OK && (e = readdir(dir));) {
        int64_t iteration;

        if (!gpt_name_is_iteration(e->d_name, &iteration))
            continue;
        status =
            gpt_grow(list, &cap, *n + 1, sizeof(**list), "iterations", err);
        if (status == GPT_OK)
            (*list)[(*n)++] = iteration;
    }
    closedir(dir);
    if (status == GPT_OK && *n)
        qsort(*list, *n, sizeof(**list), compare_descending);
    if (status != GPT_OK) {
        gpt_free(*list);
        *list = NULL;
    }
    return status;
}

/* A file of 64 bytes at most, which holds one number: anything more, even after
 * a NUL, is damage, and a damaged tracker is a reason to look for other
 * iterations, not to fail. */
int gpt_checkpoint_tracker(const char *root, int64_t *iteration,
                           struct gpt_err *err)
{
    char path[GPT_PATH_BYTES], *text, *end;
    size_t len;

    GPT_TRY(gpt_path_join(path, sizeof(path), root, GPT_TRACKER, err));
    if (is_missing(path))
        return gpt_fail(err, GPT_EDATA, "%s: missing", path);
    GPT_TRY(gpt_read_held(path, 64, &text, &len, err));
    errno = 0;
    *iteration = strtoll(text, &end, 10);
    bool good = end > text && errno == 0 && *iteration >= 0 &&
                strlen(end) == strspn(end, " \r\n") &&
                strlen(text) == len;
    int status = good ? GPT_OK
                      : gpt_fail(err, GPT_EDATA, "%s: '%.40s' is no iteration",
                                 path, text);
    gpt_free(text);
    return status;
}
