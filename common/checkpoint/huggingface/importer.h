/* A model out of tensors that have the names of transformers, whatever files
 * they lie in: a family's rules say which tensor is which parameter. Front ends
 * of such files say by a function how a tensor is found by its name, and which
 * of their tensors were used; the rest is here. Start at gpt_hf_import_model().
 *
 * A front end calls, in this order: gpt_hf_import_config() for what config.json
 * says, gpt_hf_import_model() for the weights, gpt_hf_import_kind() for each
 * kind of optimizer state that it has, gpt_hf_import_check() for each tensor
 * that nothing used, and gpt_hf_import_attached(). */
#ifndef GPT_CHECKPOINT_HF_IMPORTER_H
#define GPT_CHECKPOINT_HF_IMPORTER_H

#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/names.h"

/* A tensor as the files have it. */
struct gpt_hf_found {
    struct gpt_tensor tensor; /* without pieces where it has more dimensions
                               * than a parameter */
    bool owned;       /* its pieces were made for this call, and are freed */
    const char *file; /* its name, for messages; NULL: in several */
    bool *used;       /* set when a parameter was made of it; NULL: not noted */
};

/* Fills *found, which is zero, with the tensor of a kind; its name stays NULL
 * where there is none. */
typedef int gpt_hf_find(void *context, enum gpt_kind kind, const char *name,
                        struct gpt_hf_found *found, struct gpt_err *err);

/* Fills *found with all of an entry, of `in`, of a file of that name. One of
 * more dimensions than a parameter has gets no pieces. */
int gpt_hf_take_entry(struct gpt_hf_found *found, struct gpt_in *in,
                      const struct gpt_safetensor *entry, const char *file,
                      bool *used, struct gpt_err *err) GPT_MUST_USE;

struct gpt_hf_importer {
    /* Set before: */
    const char *where;         /* the directory, for messages */
    const char *said_in; /* the file that says what the model is; NULL:
                          * config.json */
    struct gpt_config *config; /* whether the output layer is tied is settled */
    const struct gpt_hf_family *family;
    gpt_hf_find *find;
    void *context;
    const char *keys[GPT_N_ADAM_KINDS]; /* that names there have before them,
                                         * for messages; NULL: none */
    int64_t n_held, bytes; /* tensors and bytes of all files: limits */
    const char *prefix;    /* of names: the family's, or "" */

    /* Made: */
    struct gpt_param_table table;
    struct gpt_tensor *tensors; /* of each kind one a parameter */
    int64_t n;
    struct gpt_arena arena;
};

/* Reads config.json and generation_config.json of `dir`. Of a model that reads
 * pictures, too, the text part is read, if `whole` is given; else such a model
 * is refused. Strings of *extra are in the arena. */
int gpt_hf_import_config(struct gpt_config *c, struct gpt_hf_extra *extra,
                         struct gpt_hf_whole *whole, const char *dir,
                         int64_t divisible_by, int64_t tp,
                         struct gpt_arena *arena,
                         struct gpt_err *err) GPT_MUST_USE;
/* What of it every source says: tokens, family and settings. */
void gpt_hf_import_extra(struct gpt_source *s,
                         const struct gpt_hf_extra *extra);

/* The name of the word table, which every model has, behind a prefix. */
void gpt_hf_word_name(char *buf, size_t cap, const struct gpt_hf_family *family,
                      const char *prefix);
/* Settles the output layer and makes all parameters. GPT_EDATA names a tensor
 * that is missing, or that has another shape than config.json says. */
int gpt_hf_import_model(struct gpt_hf_importer *im,
                        struct gpt_err *err) GPT_MUST_USE;
/* One tensor of optimizer state for each parameter. */
int gpt_hf_import_kind(struct gpt_hf_importer *im, enum gpt_kind kind,
                       struct gpt_err *err) GPT_MUST_USE;
/* GPT_EDATA where a tensor that nothing used means that the model computes
 * something that this one does not. name: without keys, in_file: as a message
 * shows it; file: NULL where it is in several. */
int gpt_hf_import_check(const struct gpt_hf_importer *im, const char *name,
                        const char *in_file, const char *file,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_hf_importer_free(struct gpt_hf_importer *im); /* zero is fine */

/* Lists vocabulary and other small files of s->dir, and names in s->left_out
 * what transformers has beside them and is not read: all but `read`, the file
 * of an optimizer, or NULL. */
int gpt_hf_import_attached(struct gpt_source *s, const char *read,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
