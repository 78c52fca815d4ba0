/* Writing files of torch.save(): a pickle is built value by value in memory,
 * then it is written with the elements of its tensors. The file loads with
 * torch.load(weights_only=True), as long as the pickle names only what that
 * allows. Start at gpt_torch_write(). */
#ifndef GPT_CHECKPOINT_TORCH_WRITE_H
#define GPT_CHECKPOINT_TORCH_WRITE_H

#include "base/dtype.h"
#include "base/io.h"
#include "base/memory.h"

/* ---- the pickle, of protocol 2 ---- */

/* Bytes of a pickle. Zeroed, then gpt_pickle_begin(). A call that fails, for
 * lack of memory alone, is remembered and reported by gpt_pickle_end(). */
struct gpt_pickle_out {
    struct gpt_buf b;
    bool failed;
};

void gpt_pickle_begin(struct gpt_pickle_out *o);
int gpt_pickle_end(struct gpt_pickle_out *o, struct gpt_err *err) GPT_MUST_USE;
void gpt_pickle_out_free(struct gpt_pickle_out *o);

void gpt_pickle_put_string(struct gpt_pickle_out *o, const char *text);
void gpt_pickle_put_none(struct gpt_pickle_out *o);
void gpt_pickle_put_int(struct gpt_pickle_out *o, int64_t i);
void gpt_pickle_put_real(struct gpt_pickle_out *o, double f);
void gpt_pickle_put_global(struct gpt_pickle_out *o, const char *module,
                           const char *name);
/* A key and its value, in what takes keys and values. */
void gpt_pickle_put_key_string(struct gpt_pickle_out *o, const char *key,
                               const char *value);
void gpt_pickle_put_key_int(struct gpt_pickle_out *o, const char *key,
                            int64_t value);
void gpt_pickle_put_key_real(struct gpt_pickle_out *o, const char *key,
                             double value);
void gpt_pickle_put_key_bool(struct gpt_pickle_out *o, const char *key,
                             bool value);
/* Between the two: values. */
void gpt_pickle_put_list(struct gpt_pickle_out *o);
void gpt_pickle_end_list(struct gpt_pickle_out *o);
void gpt_pickle_put_tuple(struct gpt_pickle_out *o);
void gpt_pickle_end_tuple(struct gpt_pickle_out *o);
/* Between the two: keys and values in turn. */
void gpt_pickle_put_dict(struct gpt_pickle_out *o);
void gpt_pickle_end_dict(struct gpt_pickle_out *o);
/* The same for the attributes of an argparse.Namespace. */
void gpt_pickle_put_namespace(struct gpt_pickle_out *o);
void gpt_pickle_end_namespace(struct gpt_pickle_out *o);
/* A tensor, row-major and tight, that is all of storage `key`; false when
 * PyTorch has no storage of the type. */
bool gpt_pickle_put_tensor(struct gpt_pickle_out *o, int64_t key,
                           enum gpt_dtype dtype, int ndim,
                           const int64_t *shape);

/* ---- the archive ---- */
struct gpt_part;
struct gpt_fill;

/* What a file holds: a pickle, and n storages of bytes[i] each. Parts are the
 * bytes of all storages in order, none of them in two. */
struct gpt_torch_contents {
    const struct gpt_pickle_out *pickle;
    const int64_t *bytes;
    int64_t n;
    struct gpt_part *parts; /* their places are filled in */
    int64_t n_parts;
};

/* Writes such a file. name: as gpt_fill() has it. flags: GPT_OUT_*. */
int gpt_torch_write(struct gpt_fill *fill, const char *path, const char *name,
                    unsigned flags, const struct gpt_torch_contents *contents,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
