/* What the native_*.c files share: names, the lists of files and slices that
 * are most of a manifest, and the text of manifest.json with its own checksum.
 * Private to checkpoint/. */
#ifndef GPT_CHECKPOINT_MANIFEST_H
#define GPT_CHECKPOINT_MANIFEST_H

#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/names.h"
#include "checkpoint/native/native.h"

enum {
    GPT_MANIFEST_VERSION = 2, /* the newest that is read */
    GPT_MANIFEST_LIMIT = 64 << 20,
};

/* b holds a JSON object without its last brace, ending in "," and newline:
 * adds the checksum of that text as the last member, and the brace. */
int gpt_manifest_seal(struct gpt_buf *b) GPT_MUST_USE;

/* Reads DIR/manifest.json: GPT_EDATA when it is missing, cut short, altered,
 * or of a newer version. Freed with cJSON_Delete(). */
int gpt_manifest_read(cJSON **root, const char *dir, struct gpt_err *err)
    GPT_MUST_USE;

/* ---- manifest_list.c: the files, and which slice of what lies where ---- */

struct gpt_manifest_file {
    const char *name;
    int64_t size;
    uint32_t crc;
};

struct gpt_manifest_slice {
    struct gpt_tensor_slice s; /* data NULL */
    const char *entry; /* its name in the file: the tensor's, or, when the file
                        * has several slices of that, one for each of them */
    size_t file;
};

struct gpt_manifest_list {
    struct gpt_manifest_file *files;
    struct gpt_manifest_slice *slices;
    size_t n_files, cap_files, n_slices, cap_slices;
    struct gpt_arena arena; /* the names */
};

void gpt_manifest_free(struct gpt_manifest_list *l);

/* Appends a file; its name is copied. GPT_EFAIL when it is there already or is
 * no name for a file. */
int gpt_manifest_add_file(struct gpt_manifest_list *l, const char *name,
                          struct gpt_err *err) GPT_MUST_USE;
/* Appends slices of the last file and gives them entries; names are copied. */
int gpt_manifest_add_slices(struct gpt_manifest_list *l,
                            const struct gpt_tensor_slice *slices, int64_t n,
                            struct gpt_err *err) GPT_MUST_USE;
/* The lowest version that can say what is in the list. */
int gpt_manifest_version(const struct gpt_manifest_list *l);

/* Adds the members "files" and "tensors" to b, sorted by name, each ending in
 * "," and newline. Sorts the slices. */
int gpt_manifest_print(struct gpt_buf *b, struct gpt_manifest_list *l)
    GPT_MUST_USE;
/* Appends what these members of `root` say to the list: slices of a tensor
 * follow each other. GPT_EDATA, beginning with `what`, names what is wrong. */
int gpt_manifest_parse(struct gpt_manifest_list *l, const cJSON *root,
                       const char *what, struct gpt_err *err) GPT_MUST_USE;

/* Drops files of tensors that hold nothing but state of the optimizer, and the
 * slices in them. */
int gpt_manifest_keep_weights(struct gpt_manifest_list *l,
                              struct gpt_err *err) GPT_MUST_USE;

/* "3072x1024" of a shape; "scalar" of none. */
void gpt_dims_text(char *buf, size_t cap, const int64_t *dims, int ndim,
                   char separator);

/* ---- iterations ---- */

/* The iterations under root, newest first; *list is freed with gpt_free(). */
int gpt_checkpoint_list(const char *root, int64_t **list, size_t *n,
                        struct gpt_err *err) GPT_MUST_USE;
/* What the tracker says; GPT_EDATA when it is missing or not a number. */
int gpt_checkpoint_tracker(const char *root, int64_t *iteration,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
