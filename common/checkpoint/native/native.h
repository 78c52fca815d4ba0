/* Native checkpoints: directories iter_%07d of safetensors files with global
 * names and slices, a manifest with checksums and the whole state, published
 * atomically; latest_checkpointed_iteration.txt is replaced last. The format
 * is described in gpt-checkpoint(5).
 *
 * A tensor is global; files hold slices of it. Readers ask for any slice,
 * whatever the layout of the writer: that is how every layout loads any. */
#ifndef GPT_CHECKPOINT_NATIVE_H
#define GPT_CHECKPOINT_NATIVE_H

#include "checkpoint/source.h"

/* A slice of a global tensor in memory. Its name is that of the parameter
 * table, after the prefix of its kind (checkpoint/names.h). */
struct gpt_tensor_slice {
    const char *name;
    enum gpt_dtype dtype;
    int ndim;
    int64_t global[GPT_TENSOR_DIMS]; /* shape of the whole tensor */
    int64_t begin[GPT_TENSOR_DIMS];  /* where this slice starts */
    int64_t shape[GPT_TENSOR_DIMS];  /* of this slice */
    const void *data;                /* row-major, tight; host memory */
};

/* ---- writing ---- */
struct gpt_checkpoint_writer;
struct gpt_fill;

/* Begins ROOT/iter_%07d (under a temporary name). */
int gpt_checkpoint_create(struct gpt_checkpoint_writer **w, const char *root,
                          int64_t iteration, unsigned flags,
                          struct gpt_err *err) GPT_MUST_USE;
/* The same for ranks that write their own files into one checkpoint, in a
 * directory that all of them see, between gpt_agreement_begin() and end(): all
 * call it, and, when it was GPT_OK (it is so on all or on none), all end with
 * gpt_checkpoint_commit_all(). Names of files differ between ranks. `peers`
 * outlives w; NULL: one rank. */
int gpt_checkpoint_create_all(struct gpt_checkpoint_writer **w,
                              const char *root, int64_t iteration,
                              unsigned flags, struct gpt_agreement *peers,
                              struct gpt_err *err) GPT_MUST_USE;
/* Writes one file of slices ("model_tp00_pp00.safetensors"), of which several
 * may be of the same tensor. */
int gpt_checkpoint_write(struct gpt_checkpoint_writer *w, const char *file,
                         const struct gpt_tensor_slice *slices, int64_t n,
                         struct gpt_err *err) GPT_MUST_USE;
/* Files of a plan: slices[i] (data not read) of a file comes from sources[i],
 * cast to slices[i].dtype, by the threads of `fill`, several files at once. */
struct gpt_checkpoint_file {
    const char *name;
    const struct gpt_tensor_slice *slices;
    const struct gpt_tensor *const *sources;
    int64_t n, bytes; /* of the file; the largest are written first */
};
int gpt_checkpoint_write_plan(struct gpt_checkpoint_writer *w,
                              const struct gpt_checkpoint_file *files,
                              int64_t n_files, struct gpt_fill *fill,
                              struct gpt_err *err) GPT_MUST_USE;
/* Bytes of a file of such slices. */
int gpt_checkpoint_file_bytes(const struct gpt_tensor_slice *slices, int64_t n,
                              int64_t *bytes, struct gpt_err *err)
    GPT_MUST_USE;
/* Adds small files beside (vocab.json, merges.txt), copied. */
int gpt_checkpoint_attach(struct gpt_checkpoint_writer *w, const char *name,
                          const char *source, struct gpt_err *err)
    GPT_MUST_USE;
/* Writes the manifest (format version, layout tp x pp, config, `state` as it
 * is: iteration, consumed samples, schedule, ...; per file size and CRC-32C;
 * per tensor its slices) and publishes directory and tracker. Frees w. */
int gpt_checkpoint_commit(struct gpt_checkpoint_writer *w,
                          const struct gpt_config *config, int64_t tp_size,
                          int64_t pp_size, const cJSON *state,
                          struct gpt_err *err) GPT_MUST_USE;
/* Waits for all ranks, then rank 0 commits what they wrote, unless one failed:
 * `status` and *err say how this one's writing went. Returns on all ranks how
 * it went: GPT_OK, or the failure with the number of the rank. */
int gpt_checkpoint_commit_all(struct gpt_checkpoint_writer *w, int status,
                              const struct gpt_config *config, int64_t tp_size,
                              int64_t pp_size, const cJSON *state,
                              struct gpt_err *err) GPT_MUST_USE;
void gpt_checkpoint_abort(struct gpt_checkpoint_writer *w);

/* Makes ROOT/best a link to an iteration of ROOT: atomically, and on disk when
 * this returns. GPT_EDATA when that iteration is not there. */
int gpt_checkpoint_mark_best(const char *root, int64_t iteration,
                             struct gpt_err *err) GPT_MUST_USE;
/* The iteration that the link names, -1 when there is no such link. */
int64_t gpt_checkpoint_best(const char *root);

/* Removes all but the newest `keep` complete iterations, the one that the
 * tracker names and the one that is marked as the best; keep <= 0: nothing. Of
 * what cannot be removed a warning tells, here and in the next function. */
int gpt_checkpoint_prune(const char *root, int64_t keep, struct gpt_err *err)
    GPT_MUST_USE;
/* The same after `iteration` was loaded. Where the tracker names another one,
 * which could not be read, the older ones may be needed: nothing is removed. */
int gpt_checkpoint_prune_loaded(const char *root, int64_t keep,
                                int64_t iteration, struct gpt_err *err)
    GPT_MUST_USE;
/* Removes the iterations beyond `until`, but for `iteration`: those of a run
 * that another one replaces. The link to the best one goes with its target. */
int gpt_checkpoint_replace(const char *root, int64_t until, int64_t iteration,
                           struct gpt_err *err) GPT_MUST_USE;

/* ---- reading ---- */
struct gpt_checkpoint;

/* `path` is a root (iteration < 0: what the tracker says, falling back with a
 * warning to the newest complete one when that is damaged or missing) or an
 * iter_* directory itself. Of the options, `verify` checks every file's CRC-32C
 * now. GPT_EDATA names file and what is wrong. Of ranks that load one
 * checkpoint, rank 0 chooses it, each rank checks the CRC-32C of its share of
 * the files, and all open it or none. */
int gpt_checkpoint_open_all(struct gpt_checkpoint **c, const char *path,
                            const struct gpt_source_options *options,
                            struct gpt_err *err) GPT_MUST_USE;
void gpt_checkpoint_close(struct gpt_checkpoint *c);
/* As gpt_source_check(). */
int gpt_checkpoint_check(const struct gpt_checkpoint *c,
                         struct gpt_err *err) GPT_MUST_USE;
const char *gpt_checkpoint_dir(const struct gpt_checkpoint *c);
const struct gpt_config *gpt_checkpoint_config(const struct gpt_checkpoint *c);
const cJSON *gpt_checkpoint_state(const struct gpt_checkpoint *c);
/* Layout of the writer. */
void gpt_checkpoint_layout(const struct gpt_checkpoint *c, int64_t *tp_size,
                           int64_t *pp_size);

int64_t gpt_checkpoint_iteration(const struct gpt_checkpoint *c);

/* All tensors, by name ascending, as lists of pieces of the open files. */
const struct gpt_tensor *gpt_checkpoint_tensors(const struct gpt_checkpoint *c,
                                                int64_t *n);

/* The files that the manifest names, by name; attached ones, too. */
const struct gpt_source_file *
gpt_checkpoint_files(const struct gpt_checkpoint *c, int64_t *n);

#endif
