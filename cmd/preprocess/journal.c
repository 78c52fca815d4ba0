/* The journal of a run: see journal.h for its format. Its safety rests on three
 * orders: a point is added only after all files are on disk up to it; a line
 * counts only with its check sum, so that a torn one is as good as none; and
 * the journal is removed last, when every output has its name. Start at
 * gpt_journal_open(). */
#include "cmd/preprocess/journal.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/memory.h"
#include "cmd/preprocess/journal_json.h"
#include "cmd/preprocess/output_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MAX_BYTES = 1 << 30,
    BEFORE = 9, /* the check sum and a blank, before the JSON of a line */
};

struct gpt_journal {
    struct gpt_journal_about about;
    struct gpt_append *file;
    bool has_point; /* or may have one: then it is not removed */
};

/* A quarantine that is not there yet will be a regular file. */
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

/* Writes one line in the format of journal.h: the check sum in 8 hexadecimal
 * digits, a blank, the JSON. */
static int add_line(struct gpt_journal *j, const cJSON *object,
                    struct gpt_err *err)
{
    char *text = gpt_json_print(object, false);
    struct gpt_buf line = {0};
    int status;

    if (!text || gpt_buf_printf(&line, "%08" PRIx32 " %s",
                                gpt_crc32c(0, text, strlen(text)), text) !=
                     GPT_OK) {
        status = gpt_no_memory(err, j->about.path);
        goto out;
    }
    /* The line is synced before this returns, so that a crash cannot take back
     * a point. */
    GPT_TRY_GOTO(status, gpt_append_line(j->file, line.data, err), out);
    status = gpt_append_sync(j->file, err);
out:
    gpt_buf_free(&line);
    cJSON_free(text);
    return status;
}

/* Takes the object of the line at *at, which moves to the next line; NULL when
 * the line is not whole: cut by a crash, or of another program. */
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

/* At the end the last input is complete, too. */
int gpt_journal_add(struct gpt_journal *j, const struct gpt_point *p,
                    struct gpt_err *err)
{
    int64_t n_sums = p->complete ? j->about.o->n_inputs : p->input;
    cJSON *o = gpt_point_to_json(&j->about, p, n_sums);
    int status = add_line(j, o, err);

    cJSON_Delete(o);
    GPT_TRY(status);
    /* The next line begins with the sums that this one does not have. */
    j->has_point = true;
    j->about.n_sums = n_sums;
    return GPT_OK;
}

/* Reads up to the last whole line, and cuts off what follows it, so that the
 * next line does not continue a torn one. The sums of inputs are spread over
 * all lines; of the rest the last line counts. */
static int read_points(struct gpt_journal *j, const char *data, size_t len,
                       size_t at, struct gpt_point *p, struct gpt_err *err)
{
    cJSON *last = NULL, *next;
    int status = GPT_OK;

    while (at < len && (next = take_line(data, len, &at)) != NULL) {
        cJSON_Delete(last);
        last = next;
        GPT_TRY_GOTO(status, gpt_sums_from_json(&j->about, last, p, err), out);
    }
    GPT_TRY_GOTO(status, gpt_append_cut(j->file, (int64_t)at, err), out);
    if (last)
        status = gpt_point_from_json(&j->about, last, p, err);
out:
    /* Also after a failure: a journal with a point is never removed for it. */
    j->has_point = last != NULL;
    cJSON_Delete(last);
    return status;
}

/* Refuses a file of another program, which would be cut or removed: a journal
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
static int begin_or_resume(struct gpt_journal *j, const cJSON *run,
                           const char *data, size_t len, struct gpt_point *p,
                           struct gpt_err *err)
{
    size_t at = 0;
    cJSON *was = take_line(data, len, &at);
    bool found = was != NULL;
    int status;

    GPT_TRY_GOTO(status, check_ours(j, was, data, len, err), out);
    if (was)
        status = gpt_resume_check(&j->about, run, was, err);
out:
    cJSON_Delete(was);
    GPT_TRY(status);
    if (found) {
        status = read_points(j, data, len, at, p, err);
        return status == GPT_EDATA ? gpt_hint_no_resume(err) : status;
    }
    GPT_TRY(gpt_append_cut(j->file, 0, err));
    j->has_point = false;
    return add_line(j, run, err);
}

/* The journal is beside the outputs, where it is seen when these are copied or
 * removed. */
static int name_journal(struct gpt_journal *j, struct gpt_err *err)
{
    size_t n = strlen(j->about.o->output_prefix) + sizeof(".resume");

    GPT_TRY(gpt_new(&j->about.path, n, 1, "a file name", err));
    snprintf(j->about.path, n, "%s.resume", j->about.o->output_prefix);
    return GPT_OK;
}

/* The lock is the process's: it ends with a crash, and keeps a second run of
 * the same command from the files of the first. */
static int lock_journal(struct gpt_journal *j, struct gpt_err *err)
{
    struct stat st;

    j->has_point = true; /* until it is read: nothing is removed */
    GPT_TRY(gpt_append_open(&j->file, j->about.path, err));
    GPT_TRY(gpt_append_lock(j->file, err));
    /* The one that was just made is, when it cannot be read. */
    j->has_point = stat(j->about.path, &st) != 0 || st.st_size > 0;
    return GPT_OK;
}

/* The description is compared before a point is read: a journal of another run
 * says nothing about this one. */
static int open_file(struct gpt_journal *j, enum gpt_dtype dtype,
                     struct gpt_point *p, struct gpt_err *err)
{
    size_t len;
    char *data;

    GPT_TRY(name_journal(j, err));
    GPT_TRY(lock_journal(j, err));
    GPT_TRY(gpt_read_file(j->about.path, MAX_BYTES, &data, &len, err));
    cJSON *run = gpt_resume_to_json(j->about.o, dtype);
    int status = run ? begin_or_resume(j, run, data, len, p, err)
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

    *journal = NULL;
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

/* The journal is unlinked while it is locked: after that the name may be the
 * journal of another run. */
static void close_journal(struct gpt_journal *j, bool remove)
{
    if (j->file && remove)
        gpt_out_remove_record(j->about.path);
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

/* The files go before the journal: a crash in between leaves a journal that the
 * next call discards again. */
static int discard_run(struct gpt_journal *j, struct gpt_err *err)
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
    gpt_out_remove_record(j->about.path);
    return GPT_OK;
}

int gpt_journal_discard(const struct gpt_preprocess_options *options,
                        struct gpt_err *err)
{
    struct gpt_journal j = {.about = {.o = options}};

    GPT_TRY(name_journal(&j, err));
    int status = GPT_OK;
    if (gpt_path_exists(j.about.path)) {
        status = discard_run(&j, err);
        (void)gpt_append_close(j.file, NULL);
    }
    gpt_free(j.about.path);
    return status;
}
