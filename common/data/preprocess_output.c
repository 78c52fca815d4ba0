/* The files of preprocess_output.h: a data set a key, and the bad lines. */
#include "data/preprocess_output.h"

#include "base/io.h"
#include "base/memory.h"

#include <string.h>

struct gpt_outputs {
    const struct gpt_preprocess_options *o;
    struct gpt_indexed_writer **writers; /* a key each */
    struct gpt_out *quarantine;          /* or NULL */
};

/* ---- open ---- */

/* "key 'text' is named twice" */
static int check_keys(const struct gpt_preprocess_options *o,
                      struct gpt_err *err)
{
    for (int64_t k = 0; k < o->n_keys; k++)
        for (int64_t j = 0; j < k; j++)
            if (strcmp(o->keys[j], o->keys[k]) == 0)
                return gpt_fail(err, GPT_EUSAGE, "key '%s' is named twice",
                                o->keys[k]);
    return GPT_OK;
}

/* "PREFIX_KEY_document.bin"; freed with gpt_buf_free(). */
static int name_file(struct gpt_buf *name,
                     const struct gpt_preprocess_options *o, int64_t key,
                     const char *suffix, struct gpt_err *err)
{
    *name = (struct gpt_buf){0};
    if (gpt_buf_printf(name, "%s_%s_document%s", o->output_prefix,
                       o->keys[key], suffix) == GPT_OK)
        return GPT_OK;
    return gpt_fail(err, GPT_EFAIL, "cannot allocate a file name");
}

static int open_writer(struct gpt_outputs *out, int64_t key,
                       enum gpt_dtype dtype, const struct gpt_point *at,
                       struct gpt_err *err)
{
    struct gpt_buf prefix;
    GPT_TRY(name_file(&prefix, out->o, key, "", err));
    const struct gpt_indexed_writer_options wo = {
        .prefix = prefix.data,
        .dtype = dtype,
        .tntidx = out->o->tntidx,
        .flags = out->o->out_flags,
        .at = at ? &at->keys[key] : NULL,
    };
    int status = gpt_indexed_writer_open_with(&out->writers[key], &wo, err);
    gpt_buf_free(&prefix);
    return status;
}

static int open_writers(struct gpt_outputs *out, enum gpt_dtype dtype,
                        const struct gpt_point *at, struct gpt_err *err)
{
    GPT_TRY(check_keys(out->o, err));
    GPT_TRY(gpt_new(&out->writers, (size_t)out->o->n_keys,
                    sizeof(*out->writers), "writers", err));
    for (int64_t k = 0; k < out->o->n_keys; k++)
        GPT_TRY(open_writer(out, k, dtype, at, err));
    return GPT_OK;
}

/* Is `path` PREFIX_KEY_document.bin or .idx, as we would write it? */
static bool is_output(const struct gpt_preprocess_options *o, const char *path)
{
    size_t n = strlen(o->output_prefix);
    if (strncmp(path, o->output_prefix, n) != 0 || path[n] != '_')
        return false;
    for (int64_t k = 0; k < o->n_keys; k++) {
        const char *rest = path + n + 1;
        size_t len = strlen(o->keys[k]);
        if (strncmp(rest, o->keys[k], len) == 0 &&
            (strcmp(rest + len, "_document.bin") == 0 ||
             strcmp(rest + len, "_document.idx") == 0))
            return true;
    }
    return false;
}

static int open_quarantine(struct gpt_outputs *out,
                           const struct gpt_point *at, struct gpt_err *err)
{
    const struct gpt_preprocess_options *o = out->o;
    if (!o->quarantine)
        return GPT_OK;
    if (is_output(o, o->quarantine))
        return gpt_fail(err, GPT_EUSAGE, "'%s' cannot be both a data set and "
                        "the file for bad lines", o->quarantine);
    for (int64_t i = 0; i < o->n_inputs; i++)
        if (gpt_path_same(o->quarantine, o->inputs[i].path))
            return gpt_fail(err, GPT_EUSAGE, "'%s' cannot be both an input and "
                            "the file for bad lines", o->quarantine);
    if (at)
        return gpt_out_open_part(&out->quarantine, o->quarantine, o->out_flags,
                                 at->quarantine_bytes, err);
    return gpt_out_open(&out->quarantine, o->quarantine, o->out_flags, 0, err);
}

int gpt_outputs_open(struct gpt_outputs **outputs,
                     const struct gpt_preprocess_options *options,
                     enum gpt_dtype dtype, const struct gpt_point *at,
                     struct gpt_err *err)
{
    struct gpt_outputs *out;
    *outputs = NULL;
    GPT_TRY(gpt_new(&out, 1, sizeof(*out), "outputs", err));
    out->o = options;
    int status = open_writers(out, dtype, at, err);
    if (status == GPT_OK)
        status = open_quarantine(out, at, err);
    if (status == GPT_OK)
        *outputs = out;
    else if (at && (at->stats.line_bytes > 0)) /* there is something to lose */
        gpt_outputs_suspend(out);
    else
        gpt_outputs_abort(out);
    return status;
}

/* ---- write ---- */

int gpt_outputs_add(struct gpt_outputs *out, const struct gpt_chunk *c,
                    struct gpt_preprocess_stats *stats, struct gpt_err *err)
{
    for (int64_t k = 0; k < out->o->n_keys; k++) {
        const struct gpt_chunk_key *key = &c->keys[k];
        struct gpt_indexed_block block = {
            .tokens = key->ids.data,
            .n_tokens = (int64_t)key->ids.len,
            .lengths = key->lengths,
            .n_sequences = (int64_t)key->n_lengths,
            .document_sequences = key->document_sequences,
            .n_documents = (int64_t)key->n_documents,
        };
        GPT_TRY(gpt_indexed_writer_add(out->writers[k], &block, err));
        stats->tokens += block.n_tokens;
    }
    stats->documents += c->lines - (int64_t)c->n_bad;
    stats->text_bytes += c->text_bytes;
    stats->line_bytes += (int64_t)c->len;
    return GPT_OK;
}

/* As it is, with a newline, which only the last line of a file may lack. */
int gpt_outputs_add_bad(struct gpt_outputs *out, const struct gpt_chunk *c,
                        size_t at, struct gpt_err *err)
{
    if (!out->quarantine)
        return GPT_OK;
    const char *line = c->data + at;
    const char *newline = memchr(line, '\n', c->len - at);
    size_t len = newline ? (size_t)(newline - line) : c->len - at;
    GPT_TRY(gpt_out_write(out->quarantine, line, len, err));
    return gpt_out_write(out->quarantine, "\n", 1, err);
}

/* ---- the end ---- */

/* The quarantine first: no data set without the lines that it lacks. */
static int commit_all(struct gpt_outputs *out, struct gpt_err *err)
{
    struct gpt_out *quarantine = out->quarantine;
    out->quarantine = NULL;
    if (quarantine)
        GPT_TRY(gpt_out_commit(quarantine, err));
    for (int64_t k = 0; k < out->o->n_keys; k++) {
        struct gpt_indexed_writer *w = out->writers[k];
        out->writers[k] = NULL;
        GPT_TRY(gpt_indexed_writer_commit(w, err));
    }
    return GPT_OK;
}

int gpt_outputs_commit(struct gpt_outputs *out, struct gpt_err *err)
{
    int status = commit_all(out, err);
    gpt_outputs_abort(out);
    return status;
}

static void close_outputs(struct gpt_outputs *out,
                          void (*close_file)(struct gpt_out *),
                          void (*close_set)(struct gpt_indexed_writer *))
{
    if (!out)
        return;
    close_file(out->quarantine);
    for (int64_t k = 0; out->writers && k < out->o->n_keys; k++)
        close_set(out->writers[k]);
    gpt_free(out->writers);
    gpt_free(out);
}

void gpt_outputs_abort(struct gpt_outputs *out)
{
    close_outputs(out, gpt_out_abort, gpt_indexed_writer_abort);
}

/* ---- PATH.part ---- */

void gpt_outputs_suspend(struct gpt_outputs *out)
{
    close_outputs(out, gpt_out_suspend, gpt_indexed_writer_suspend);
}

int64_t gpt_outputs_quarantined(const struct gpt_outputs *out)
{
    return out->quarantine ? gpt_out_tell(out->quarantine) : 0;
}

int gpt_outputs_sync(struct gpt_outputs *out, struct gpt_point *at,
                     struct gpt_err *err)
{
    for (int64_t k = 0; k < out->o->n_keys; k++)
        GPT_TRY(gpt_indexed_writer_sync(out->writers[k], &at->keys[k], err));
    return out->quarantine ? gpt_out_sync(out->quarantine, err) : GPT_OK;
}

int gpt_outputs_finish(struct gpt_outputs *out, struct gpt_err *err)
{
    for (int64_t k = 0; k < out->o->n_keys; k++)
        GPT_TRY(gpt_indexed_writer_finish(out->writers[k], err));
    return out->quarantine ? gpt_out_sync(out->quarantine, err) : GPT_OK;
}

static const char *const published[] = {".bin", ".idx"};
static const char *const scratch[] = {".lengths", ".documents"};

/* Calls `act` with the name of each of the files of all keys. */
static int each_file(const struct gpt_preprocess_options *o,
                     const char *const suffixes[2],
                     int (*act)(const char *path, struct gpt_err *err),
                     struct gpt_err *err)
{
    for (int64_t i = 0; i < 2 * o->n_keys; i++) {
        struct gpt_buf name;
        GPT_TRY(name_file(&name, o, i / 2, suffixes[i % 2], err));
        int status = act(name.data, err);
        gpt_buf_free(&name);
        GPT_TRY(status);
    }
    return GPT_OK;
}

/* The quarantine first: no data set without the lines that it lacks. */
int gpt_outputs_publish(const struct gpt_preprocess_options *o,
                        struct gpt_err *err)
{
    GPT_TRY(each_file(o, scratch, gpt_out_remove_part, err));
    if (o->quarantine)
        GPT_TRY(gpt_out_publish_part(o->quarantine, err));
    return each_file(o, published, gpt_out_publish_part, err);
}

static int is_there(const char *path, struct gpt_err *err)
{
    struct gpt_buf part = {0};
    bool there = gpt_path_exists(path);
    if (!there && gpt_buf_printf(&part, "%s.part", path) == GPT_OK)
        there = gpt_path_exists(part.data);
    gpt_buf_free(&part);
    return there ? GPT_OK : gpt_fail(err, GPT_EIO, "'%s' is not there", path);
}

bool gpt_outputs_are_there(const struct gpt_preprocess_options *o)
{
    return each_file(o, published, is_there, NULL) == GPT_OK &&
           (!o->quarantine || is_there(o->quarantine, NULL) == GPT_OK);
}

int gpt_outputs_discard(const struct gpt_preprocess_options *o,
                        struct gpt_err *err)
{
    GPT_TRY(each_file(o, scratch, gpt_out_remove_part, err));
    if (o->quarantine)
        GPT_TRY(gpt_out_remove_part(o->quarantine, err));
    return each_file(o, published, gpt_out_remove_part, err);
}
