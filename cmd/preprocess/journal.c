/* The journal of preprocess_journal.h. Start at gpt_journal_open(). */
#include "cmd/preprocess/journal.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/memory.h"
#include "cmd/preprocess/output.h"
#include "cmd/preprocess/resume_point.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_BYTES = 1 << 30,
    BEFORE = 9, /* the check sum and a blank, before the JSON of a line */
};

struct gpt_journal {
    struct gpt_journal_about about;
    struct gpt_append *file;
    bool has_point; /* or may have one: it is not removed */
};

bool gpt_journal_possible(const struct gpt_preprocess_options *o)
{
    struct stat st;

    for (int64_t i = 0; i < o->n_inputs; i++)
        if (stat(o->inputs[i].path, &st) != 0 || !S_ISREG(st.st_mode))
            return false;
    return !o->quarantine || stat(o->quarantine, &st) != 0 ||
           S_ISREG(st.st_mode);
}

/* ---- lines ---- */

static int add_line(struct gpt_journal *j, const cJSON *object,
                    struct gpt_err *err)
{
    char *text = gpt_json_print(object, false);
    struct gpt_buf line = {0};
    int status = GPT_OK;

    if (!text || gpt_buf_printf(&line, "%08" PRIx32 " %s",
                                gpt_crc32c(0, text, strlen(text)), text) !=
                     GPT_OK)
        status = gpt_fail(err, GPT_EFAIL, "out of memory for '%s'",
                          j->about.path);
    if (status == GPT_OK)
        status = gpt_append_line(j->file, line.data, err);
    if (status == GPT_OK)
        status = gpt_append_sync(j->file, err);
    gpt_buf_free(&line);
    cJSON_free(text);
    return status;
}

/* The object of the line at *at, which moves behind it; NULL when the line is
 * not whole. */
static cJSON *take_line(const char *data, size_t len, size_t *at)
{
    const char *line = data + *at, *end = memchr(line, '\n', len - *at);
    cJSON *object = NULL;
    char sum[BEFORE + 1];

    if (!end || end - line < BEFORE)
        return NULL;
    size_t n = (size_t)(end - line) - BEFORE;
    snprintf(sum, sizeof(sum), "%08" PRIx32 " ",
             gpt_crc32c(0, line + BEFORE, n));
    if (memcmp(line, sum, BEFORE) != 0 ||
        gpt_json_parse(&object, line + BEFORE, n, "journal", NULL) != GPT_OK)
        return NULL;
    *at += (size_t)(end - line) + 1;
    return object;
}

/* ---- points ---- */

int gpt_journal_add(struct gpt_journal *j, const struct gpt_point *p,
                    struct gpt_err *err)
{
    int64_t n_sums = p->complete ? j->about.o->n_inputs : p->input;
    cJSON *o = gpt_point_to_json(&j->about, p, n_sums);
    int status = o ? add_line(j, o, err)
                   : gpt_fail(err, GPT_EFAIL, "out of memory for '%s'",
                              j->about.path);

    cJSON_Delete(o);
    GPT_TRY(status);
    j->has_point = true;
    j->about.n_sums = n_sums;
    return GPT_OK;
}

/* Looks for the last whole line; what follows it is cut off. */
static int read_points(struct gpt_journal *j, const char *data, size_t len,
                       size_t at, struct gpt_point *p, struct gpt_err *err)
{
    cJSON *last = NULL, *next;
    int status = GPT_OK;

    while (status == GPT_OK && at < len &&
           (next = take_line(data, len, &at)) != NULL) {
        cJSON_Delete(last);
        last = next;
        status = gpt_sums_from_json(&j->about, last, p, err);
    }
    if (status == GPT_OK)
        status = gpt_append_cut(j->file, (int64_t)at, err);
    if (status == GPT_OK && last)
        status = gpt_point_from_json(&j->about, last, p, err);
    j->has_point = last != NULL;
    cJSON_Delete(last);
    return status;
}

/* Nothing of others is overwritten or removed, whatever its name: a journal
 * begins with a whole line, or with as much of one as a crash left. */
static int check_ours(const struct gpt_journal *j, const cJSON *first,
                      const char *data, size_t len, struct gpt_err *err)
{
    bool torn = !memchr(data, '\n', len) && (len <= BEFORE || data[8] == ' ');

    if (first || torn)
        return GPT_OK;
    gpt_fail(err, GPT_EEXIST, "'%s' exists already, and is no journal of this "
             "program", j->about.path);
    return gpt_hint(err, "remove it, or use another --output-prefix");
}

/* Takes over the journal that is there, or begins it. */
static int begin(struct gpt_journal *j, const cJSON *run, const char *data,
                 size_t len, struct gpt_point *p, struct gpt_err *err)
{
    size_t at = 0;
    cJSON *was = take_line(data, len, &at);
    int status = check_ours(j, was, data, len, err);

    if (status == GPT_OK && was)
        status = gpt_resume_check(&j->about, run, was, err);
    bool fresh = !was;
    cJSON_Delete(was);
    GPT_TRY(status);
    if (!fresh)
        return read_points(j, data, len, at, p, err);
    GPT_TRY(gpt_append_cut(j->file, 0, err));
    j->has_point = false;
    return add_line(j, run, err);
}

static int name_journal(struct gpt_journal *j, struct gpt_err *err)
{
    size_t n = strlen(j->about.o->output_prefix) + sizeof ".resume";

    GPT_TRY(gpt_new(&j->about.path, n, 1, "a file name", err));
    snprintf(j->about.path, n, "%s.resume", j->about.o->output_prefix);
    return GPT_OK;
}

static int lock_journal(struct gpt_journal *j, struct gpt_err *err)
{
    j->has_point = true; /* until it is known: nothing is removed */
    GPT_TRY(gpt_append_open(&j->file, j->about.path, err));
    return gpt_append_lock(j->file, err);
}

static int open_file(struct gpt_journal *j, enum gpt_dtype dtype,
                     struct gpt_point *p, struct gpt_err *err)
{
    size_t len;
    char *data;

    GPT_TRY(name_journal(j, err));
    GPT_TRY(lock_journal(j, err));
    GPT_TRY(gpt_read_file(j->about.path, MAX_BYTES, &data, &len, err));
    cJSON *run = gpt_resume_to_json(j->about.o, dtype);
    int status = run ? begin(j, run, data, len, p, err)
                 : gpt_fail(err, GPT_EFAIL, "cannot describe the run: an input "
                            "is not there, or memory is out");
    cJSON_Delete(run);
    gpt_free(data);
    return status;
}

int gpt_journal_open(struct gpt_journal **journal,
                     const struct gpt_preprocess_options *options,
                     enum gpt_dtype dtype, struct gpt_point *point,
                     bool *found, struct gpt_err *err)
{
    struct gpt_journal *j;

    GPT_TRY(gpt_new(&j, 1, sizeof(*j), "a journal", err));
    j->about.o = options;
    int status = open_file(j, dtype, point, err);
    *found = j->has_point;
    if (status != GPT_OK)
        gpt_journal_close(j);
    else
        *journal = j;
    return status;
}

bool gpt_journal_has_point(const struct gpt_journal *j)
{
    return j->has_point;
}

/* Unlinked while it is locked, so that nobody else's is. */
static void close_journal(struct gpt_journal *j, bool remove)
{
    if (j->file && remove)
        unlink(j->about.path);
    gpt_append_drop(j->file); /* every line was synced */
    gpt_free(j->about.path);
    gpt_free(j);
}

void gpt_journal_close(struct gpt_journal *j)
{
    if (j)
        close_journal(j, !j->has_point);
}

void gpt_journal_remove(struct gpt_journal *j)
{
    close_journal(j, true);
}

static int discard(struct gpt_journal *j, struct gpt_err *err)
{
    size_t len, at = 0;
    char *data;

    GPT_TRY(lock_journal(j, err));
    GPT_TRY(gpt_read_file(j->about.path, MAX_BYTES, &data, &len, err));
    cJSON *first = take_line(data, len, &at);
    int status = check_ours(j, first, data, len, err);
    cJSON_Delete(first);
    gpt_free(data);
    GPT_TRY(status);
    GPT_TRY(gpt_outputs_discard(j->about.o, err));
    unlink(j->about.path);
    return GPT_OK;
}

int gpt_journal_discard(const struct gpt_preprocess_options *options,
                        struct gpt_err *err)
{
    struct gpt_journal j = {.about = {.o = options}};

    GPT_TRY(name_journal(&j, err));
    int status = GPT_OK;
    if (gpt_path_exists(j.about.path)) {
        status = discard(&j, err);
        (void)gpt_append_close(j.file, NULL);
    }
    gpt_free(j.about.path);
    return status;
}
