/* The files of a run: a data set a key, what is beside it, and the bad lines;
 * see output.h. With a point to resume from they are PATH.part files, which a
 * stopped run leaves: what was written after the point is cut off when
 * they are opened again. Start at gpt_outputs_open().
 *
 *     PREFIX_KEY_document.bin, .idx        the data set
 *       .lengths, .documents               what the .idx is made of at the end
 *       .json                              where the set comes from
 *       .sources                           where each document comes from
 *     the quarantine file                  bad lines, for all keys together
 */
#include "cmd/preprocess/output.h"

#include "base/io.h"
#include "base/memory.h"
#include "cmd/preprocess/output_names.h"
#include "data/document_sources.h"
#include "data/indexed.h"

#include <string.h>

struct key_output {
    struct gpt_indexed_writer *set;
    struct gpt_out *json, *sources; /* or NULL */
    struct gpt_key_counts counts;
};

struct gpt_outputs {
    const struct gpt_preprocess_options *o;
    enum gpt_dtype dtype;
    struct key_output *keys;
    struct gpt_out *quarantine; /* or NULL */
};

/* ---- open ---- */

/* "key 'text' is named twice" Two keys of one name would write the same
 * files. */
static int check_keys(const struct gpt_preprocess_options *o,
                      struct gpt_err *err)
{
    for (int64_t k = 0; k < o->n_keys; k++)
        for (int64_t j = 0; j < k; j++)
            if (strcmp(o->keys[j], o->keys[k]) == 0)
                return gpt_fail(err, GPT_EUSAGE, "--json-keys names '%s' "
                                "twice", o->keys[k]);
    return GPT_OK;
}

/* at < 0: a run that cannot be resumed. */
static int open_file(struct gpt_out **file, const struct gpt_outputs *out,
                     const char *path, int64_t at, struct gpt_err *err)
{
    unsigned flags = out->o->out_flags;

    return at < 0 ? gpt_out_open(file, path, flags, 0, err)
                  : gpt_out_open_part(file, path, flags, at, err);
}

/* Opens a file beside the data set of a key. */
static int open_beside(struct gpt_out **file, const struct gpt_outputs *out,
                       int64_t key, const char *suffix, int64_t at,
                       struct gpt_err *err)
{
    struct gpt_buf name;

    GPT_TRY(gpt_output_name(&name, out->o, key, suffix, err));
    int status = open_file(file, out, name.data, at, err);
    gpt_buf_free(&name);
    return status;
}

static int open_set(struct gpt_outputs *out, int64_t key,
                    const struct gpt_point *at, struct gpt_err *err)
{
    struct key_output *k = &out->keys[key];
    const struct gpt_indexed_position position = {
        k->counts.tokens, k->counts.sequences, k->counts.documents};
    struct gpt_buf prefix;

    GPT_TRY(gpt_output_name(&prefix, out->o, key, "", err));
    const struct gpt_indexed_writer_options wo = {
        .prefix = prefix.data,
        .dtype = out->dtype,
        .tntidx = out->o->tntidx,
        .flags = out->o->out_flags,
        .at = at ? &position : NULL,
    };
    int status = gpt_indexed_writer_open_with(&k->set, &wo, err);
    gpt_buf_free(&prefix);
    return status;
}

/* A resumed file has its header already; its size follows from the count. */
static int open_sources(struct gpt_outputs *out, int64_t key,
                        const struct gpt_point *at, struct gpt_err *err)
{
    struct key_output *k = &out->keys[key];
    int64_t n = k->counts.documents;
    int64_t size = n ? GPT_SOURCES_HEADER + n * GPT_SOURCE_BYTES : 0;

    GPT_TRY(open_beside(&k->sources, out, key, ".sources", at ? size : -1,
                        err));
    return n ? GPT_OK
             : gpt_out_write(k->sources, GPT_SOURCES_MAGIC, GPT_SOURCES_HEADER,
                             err);
}

/* Counts are set first: the sizes of resumed files follow from them. */
static int open_key(struct gpt_outputs *out, int64_t key,
                    const struct gpt_point *at, struct gpt_err *err)
{
    struct key_output *k = &out->keys[key];

    if (at)
        k->counts = at->keys[key];
    GPT_TRY(open_set(out, key, at, err));
    if (out->o->provenance)
        GPT_TRY(open_beside(&k->json, out, key, ".json", at ? 0 : -1, err));
    return out->o->sources ? open_sources(out, key, at, err) : GPT_OK;
}

static int open_keys(struct gpt_outputs *out, const struct gpt_point *at,
                     struct gpt_err *err)
{
    GPT_TRY(check_keys(out->o, err));
    GPT_TRY(gpt_new(&out->keys, (size_t)out->o->n_keys, sizeof(*out->keys),
                    "outputs", err));
    for (int64_t k = 0; k < out->o->n_keys; k++)
        GPT_TRY(open_key(out, k, at, err));
    return GPT_OK;
}

static int open_quarantine(struct gpt_outputs *out,
                           const struct gpt_point *at, struct gpt_err *err)
{
    const struct gpt_preprocess_options *o = out->o;

    if (!o->quarantine)
        return GPT_OK;
    /* Neither of the two may overwrite the other. */
    if (gpt_is_output(o, o->quarantine))
        return gpt_fail(err, GPT_EUSAGE, "'%s' cannot be both a data set and "
                        "the file for bad lines", o->quarantine);
    return open_file(&out->quarantine, out, o->quarantine,
                     at ? at->quarantine_bytes : -1, err);
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
    out->dtype = dtype;
    int status;
    GPT_TRY_GOTO(status, open_keys(out, at, err), fail);
    GPT_TRY_GOTO(status, open_quarantine(out, at, err), fail);
    *outputs = out;
    return GPT_OK;
fail:
    /* The files of an earlier run are worth keeping, those of this one are
     * not. */
    if (at && at->stats.line_bytes > 0)
        gpt_outputs_suspend(out);
    else
        gpt_outputs_abort(out);
    return status;
}

/* ---- write ---- */

/* Adds what a chunk holds of a key to its counts, document by document, as the
 * provenance has a histogram of lengths. */
static void add_counts(struct gpt_key_counts *counts,
                       const struct gpt_line_chunk_key *key)
{
    const int32_t *lengths = key->lengths;

    for (size_t d = 0; d < key->n_documents; d++) {
        int64_t tokens = 0;

        for (int32_t i = 0; i < key->document_sequences[d]; i++)
            tokens += *lengths++;
        gpt_key_counts_add(counts, tokens);
    }
    counts->sequences += (int64_t)key->n_lengths;
    counts->tokens += (int64_t)key->ids.len;
    counts->text_bytes += key->text_bytes;
}

/* Writes where each document comes from. In a part of a file that does not
 * begin at 0 lines cannot be counted: 0 says so, and the offset is always
 * right. */
static int add_sources(struct gpt_out *out, const struct gpt_line_chunk *c,
                       const struct gpt_line_chunk_key *key, int64_t lines,
                       struct gpt_err *err)
{
    int64_t begin = c->begin + c->end - (int64_t)c->len;

    for (size_t d = 0; d < key->n_documents; d++) {
        const struct gpt_line_chunk_place *place = &key->places[d];
        int64_t line = lines + place->line;
        const struct gpt_source_record source = {
            .input = (uint32_t)c->input,
            .line = c->begin == 0 && line <= UINT32_MAX ? (uint32_t)line : 0,
            .offset = (uint64_t)begin + place->at,
        };
        uint8_t record[GPT_SOURCE_BYTES];

        gpt_source_put(record, &source);
        GPT_TRY(gpt_out_write(out, record, sizeof(record), err));
    }
    return GPT_OK;
}

/* The block is copied before this returns; the chunk can be released. */
static int add_key(struct key_output *k, const struct gpt_line_chunk *c,
                   const struct gpt_line_chunk_key *key, int64_t lines,
                   struct gpt_err *err)
{
    const struct gpt_indexed_block block = {
        .tokens = key->ids.data,
        .n_tokens = (int64_t)key->ids.len,
        .lengths = key->lengths,
        .n_sequences = (int64_t)key->n_lengths,
        .document_sequences = key->document_sequences,
        .n_documents = (int64_t)key->n_documents,
    };

    GPT_TRY(gpt_indexed_writer_add(k->set, &block, err));
    add_counts(&k->counts, key);
    return k->sources ? add_sources(k->sources, c, key, lines, err) : GPT_OK;
}

int gpt_outputs_add(struct gpt_outputs *out, const struct gpt_line_chunk *c,
                    int64_t lines, struct gpt_preprocess_stats *stats,
                    struct gpt_err *err)
{
    for (int64_t k = 0; k < out->o->n_keys; k++) {
        GPT_TRY(add_key(&out->keys[k], c, &c->keys[k], lines, err));
        stats->tokens += (int64_t)c->keys[k].ids.len;
        stats->text_bytes += c->keys[k].text_bytes;
    }
    /* A document a good line, for any number of keys. */
    stats->documents += c->lines - (int64_t)c->n_bad;
    stats->line_bytes += (int64_t)c->len;
    return GPT_OK;
}

/* The line as it is, with a newline, which only the last line of a file may
 * lack. */
int gpt_outputs_add_bad(struct gpt_outputs *out, const struct gpt_line_chunk *c,
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

/* The sums of the inputs are complete only now. */
static int write_json(struct gpt_outputs *out, int64_t key,
                      const struct gpt_point *at, struct gpt_err *err)
{
    struct key_output *k = &out->keys[key];
    const struct gpt_preprocess_options *o = out->o;
    const struct gpt_provenance p = {
        .origin = {
            .inputs = o->inputs,
            .n_inputs = o->n_inputs,
            .tokenizer = o->tokenizer,
            .tokenizer_id = o->tokenizer_id,
            .command = o->command,
            .shard = o->shard,
            .n_shards = o->n_shards,
            .tntidx = o->tntidx,
        },
        .key = o->keys[key],
        .dtype = out->dtype,
        .counts = &k->counts,
        .sums = at->sums,
        .bad = &at->stats.bad,
    };

    return k->json ? gpt_provenance_write(k->json, &p, err) : GPT_OK;
}

/* What an older set has beside it and this one has not would describe the
 * wrong tokens: it goes with that set. */
static int add_stale(struct gpt_out **file, const struct gpt_outputs *out,
                     int64_t key, const char *suffix, struct gpt_err *err)
{
    struct gpt_buf name;

    if (*file || !(out->o->out_flags & GPT_OUT_FORCE))
        return GPT_OK;
    GPT_TRY(gpt_output_name(&name, out->o, key, suffix, err));
    int status = gpt_path_exists(name.data)
                     ? gpt_out_open_removal(file, name.data, err)
                     : GPT_OK;
    gpt_buf_free(&name);
    return status;
}

/* Lists the files in the order of publication: first the quarantine, so that no
 * data set is there without the lines that it lacks; then what belongs to each
 * set; last the .idx of all sets, which readers open first. */
static int collect_files(struct gpt_outputs *out, struct gpt_out **files,
                         const struct gpt_point *at, struct gpt_err *err)
{
    size_t n_keys = (size_t)out->o->n_keys;

    /* Everything is written before a file leaves `out`: what fails here leaves
     * all of them to be aborted there. */
    for (size_t k = 0; k < n_keys; k++) {
        struct key_output *key = &out->keys[k];

        GPT_TRY(write_json(out, (int64_t)k, at, err));
        GPT_TRY(add_stale(&key->json, out, (int64_t)k, ".json", err));
        GPT_TRY(add_stale(&key->sources, out, (int64_t)k, ".sources", err));
    }
    for (size_t k = 0; k < n_keys; k++) {
        struct gpt_out **beside = files + 1 + 3 * k;
        struct gpt_indexed_writer *set = out->keys[k].set;

        out->keys[k].set = NULL;
        GPT_TRY(gpt_indexed_writer_release(set, &beside[0],
                                           &files[1 + 3 * n_keys + k], err));
        beside[1] = out->keys[k].json;
        beside[2] = out->keys[k].sources;
        out->keys[k].json = out->keys[k].sources = NULL;
    }
    files[0] = out->quarantine;
    out->quarantine = NULL;
    return GPT_OK;
}

int gpt_outputs_commit(struct gpt_outputs *out, const struct gpt_point *at,
                       struct gpt_err *err)
{
    size_t n = 1 + 4 * (size_t)out->o->n_keys;
    struct gpt_out **files = NULL;
    int status;

    GPT_TRY_GOTO(status, gpt_new(&files, n, sizeof(*files), "outputs", err),
                 out);
    status = collect_files(out, files, at, err);
    /* Files that were collected have left `out`, which does not abort them. */
    for (size_t i = 0; status != GPT_OK && i < n; i++)
        gpt_out_abort(files[i]);
    if (status == GPT_OK)
        status = gpt_out_commit_all(files, n, err);
    /* The commit has freed the files, whatever came of it. */
    gpt_free(files);
out:
    gpt_outputs_abort(out);
    return status;
}

/* Suspending and aborting differ only in what becomes of each file. */
static void close_outputs(struct gpt_outputs *out,
                          void (*close_file)(struct gpt_out *),
                          void (*close_set)(struct gpt_indexed_writer *))
{
    if (!out)
        return;
    close_file(out->quarantine);
    /* A run that failed while it opened its files has some of them; NULL is
     * fine for the rest. */
    for (int64_t k = 0; out->keys && k < out->o->n_keys; k++) {
        close_set(out->keys[k].set);
        close_file(out->keys[k].json);
        close_file(out->keys[k].sources);
    }
    gpt_free(out->keys);
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

/* The size to which the file is cut when the run is resumed. */
int64_t gpt_outputs_quarantined(const struct gpt_outputs *out)
{
    return out->quarantine ? gpt_out_tell(out->quarantine) : 0;
}

static int sync_file(struct gpt_out *file, struct gpt_err *err)
{
    return file ? gpt_out_sync(file, err) : GPT_OK;
}

/* Only after all files are on disk may the journal name the point. */
int gpt_outputs_sync(struct gpt_outputs *out, struct gpt_point *at,
                     struct gpt_err *err)
{
    for (int64_t i = 0; i < out->o->n_keys; i++) {
        struct key_output *k = &out->keys[i];

        GPT_TRY(gpt_indexed_writer_sync(k->set, err));
        GPT_TRY(sync_file(k->sources, err));
        at->keys[i] = k->counts;
    }
    return sync_file(out->quarantine, err);
}

static int begin_sync(struct gpt_out *file, struct gpt_err *err)
{
    return file ? gpt_out_begin_sync(file, err) : GPT_OK;
}

/* Everything is written, and its way to the disk begun, before the first file
 * is waited for: the disk works on all at once. */
int gpt_outputs_finish(struct gpt_outputs *out, struct gpt_point *at,
                       struct gpt_err *err)
{
    for (int64_t i = 0; i < out->o->n_keys; i++) {
        struct key_output *k = &out->keys[i];

        at->keys[i] = k->counts;
        GPT_TRY(gpt_indexed_writer_end(k->set, err));
        GPT_TRY(write_json(out, i, at, err));
        GPT_TRY(begin_sync(k->json, err));
        GPT_TRY(begin_sync(k->sources, err));
    }
    for (int64_t i = 0; i < out->o->n_keys; i++) {
        GPT_TRY(gpt_indexed_writer_finish(out->keys[i].set, err));
        GPT_TRY(sync_file(out->keys[i].json, err));
        GPT_TRY(sync_file(out->keys[i].sources, err));
    }
    return sync_file(out->quarantine, err);
}
