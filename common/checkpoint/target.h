/* A checkpoint of any format, to be written from a source: planned from headers
 * alone, shown or written. Start at gpt_target_plan(); a format's front end is
 * a row of checkpoint/format.h. */
#ifndef GPT_CHECKPOINT_TARGET_H
#define GPT_CHECKPOINT_TARGET_H

#include "checkpoint/source.h"

struct gpt_param;

/* A small file that is copied beside the weights. */
struct gpt_attachment {
    const char *name; /* there */
    const char *path; /* to copy; a GGUF file: the vocabulary in it */
};

struct gpt_target_options {
    const char *save;         /* a directory, or a file */
    struct gpt_config config; /* vocabulary and padding may differ from the
                               * source's */
    int64_t tp_size, pp_size; /* layout, where the format has one */
    int64_t ep_size; /* ranks that share experts, where the format has these;
                      * 0 = 1 */
    /* Virtual stages of a rank, 0 = one; layers of an uneven first and last
     * stage, 0 = as the others. */
    int64_t chunks, first_layers, last_layers;
    enum gpt_dtype dtype;     /* of parameters; GPT_N_DTYPES: the source's */
    const struct gpt_packing *packing; /* of matrices, where the format has
                                        * any; NULL: none */
    int style;                /* of names: an index of the format's styles */
    int64_t divisible_by;     /* that the vocabulary is padded to, times tp */
    int64_t max_shard_size;   /* bytes of tensors in a file, where the format
                               * cuts by size */
    const struct gpt_attachment *attached;
    int64_t n_attached;
    bool shard_optimizer; /* its state as a distributed optimizer has it, where
                           * the format has two ways */
    bool force; /* replace what is there */
};

/* A file of tensors that will be written. */
struct gpt_target_file {
    char name[112]; /* GPT_NATIVE_FILE_NAME fits */
    int64_t bytes, tensors;
};

struct gpt_target {
    const struct gpt_format *format;
    const struct gpt_source *source; /* borrowed */
    struct gpt_target_options o;     /* its pointers are borrowed */
    char path[GPT_PATH_BYTES]; /* where the output will be, and can be opened */
    int64_t n_tensors; /* of the output, when it is opened as a source */
    struct gpt_target_file *files;
    int64_t n_files;
    int64_t bytes; /* of all files */

    /* private */
    void *data; /* of the front end */
    struct gpt_tensor *resized; /* vocabulary tables of another height */
    int64_t n_resized, room;
    struct gpt_arena arena;
};

/* GPT_EEXIST by gpt_format_check_place(). GPT_EUSAGE when the model does not
 * divide by the layout; GPT_EDATA when the source lacks a tensor, has one too
 * many, or the format cannot hold its model. */
int gpt_target_plan(struct gpt_target *t, const struct gpt_format *format,
                    const struct gpt_source *source,
                    const struct gpt_target_options *options,
                    struct gpt_err *err) GPT_MUST_USE;
void gpt_target_close(struct gpt_target *t); /* zero is fine */

/* Writes and publishes the output; `done` (may be NULL) hears the bytes of
 * tensors so far. GPT_EEXIST when it is there and force is not set. */
int gpt_target_write(struct gpt_target *t, gpt_bytes_done *done, void *context,
                     struct gpt_err *err) GPT_MUST_USE;

/* GPT_EUSAGE names what of the model does not divide by tp_size. */
int gpt_target_check(const struct gpt_format *format,
                     const struct gpt_target_options *options,
                     struct gpt_err *err) GPT_MUST_USE;

/* For front ends: the part of the model that a rank's file gets. GPT_EUSAGE
 * names the rule that the model breaks. */
struct gpt_layout;
int gpt_target_layout(const struct gpt_target *t, int64_t tp_rank,
                      int64_t pp_rank, struct gpt_layout *layout,
                      struct gpt_err *err) GPT_MUST_USE;
/* For front ends: allocates t->files for n files. */
int gpt_target_files(struct gpt_target *t, int64_t n,
                     struct gpt_err *err) GPT_MUST_USE;

/* For front ends: makes room for n tables that gpt_target_find() resizes. */
int gpt_target_resizes(struct gpt_target *t, int64_t n,
                       struct gpt_err *err) GPT_MUST_USE;
/* For front ends: *out becomes the source's tensor of that name, a parameter or
 * a state of it, with as many rows as the output has. Dummy rows that are new
 * repeat the last row of a parameter, as Megatron's converters have it, and are
 * zero in optimizer state, which no step has touched. It lives as long as the
 * target. GPT_EDATA when there is none, or its shape is not the parameter's. */
int gpt_target_find(struct gpt_target *t, const char *name,
                    const struct gpt_param *param,
                    const struct gpt_tensor **out,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
